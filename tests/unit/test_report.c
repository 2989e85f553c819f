// SPDX-License-Identifier: Apache-2.0
// What a failed request says (front/report.c), and what is logged of slow ones.
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "berm_introspect.h"
#include "host/log.h"
#include "tests/support/heap_inside.h"

#define MIB ((uint64_t)1 << 20)

static char lines[4096];

static void line_keep(void *context, berm_log_level_t level, const char *line) {
    (void)context;
    (void)level;
    (void)strncat(lines, line, sizeof lines - strlen(lines) - 1);
    (void)strncat(lines, "\n", sizeof lines - strlen(lines) - 1);
}

static void report_expect(const char *part) {
    cr_assert(strstr(berm_error_message(), part) != NULL, "'%s' is not in '%s'", part,
              berm_error_message());
}

// Another process holds the memory: the line says so, and what could be had.
Test(report, memory_that_others_hold) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    berm__log_sink_set(line_keep, NULL);
    (void)heap_alloc(10 * MIB, NULL);
    cr_assert(simcuda_outside_set(0, 48 * MIB) == 0);
    cr_assert(berm_alloc(20 * MIB, 0, NULL, &out) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    report_expect("20.0 MiB wanted on device 0: out of device memory");
    report_expect("largest obtainable 6 MiB");
    report_expect("held outside berm 48 MiB, free 6 MiB");
    cr_assert(strstr(lines, "20.0 MiB wanted") != NULL, "the failure is logged: '%s'", lines);
    BERM_TEST_END_INSIDE();
}

// The limit is named, and what is obtainable below it.
Test(report, the_limit) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "limit:32M"});
    berm__log_sink_set(line_keep, NULL);
    (void)heap_alloc(20 * MIB, NULL);
    cr_assert(berm_alloc(16 * MIB, 0, NULL, &out) == BERM_ERROR_LIMIT);
    report_expect("16.0 MiB wanted on device 0: the limit stands in the way");
    report_expect("largest obtainable 12 MiB");
    report_expect("limit 32 MiB");
    cr_assert(berm_alloc(12 * MIB, 0, NULL, &out) == BERM_OK);
    BERM_TEST_END_INSIDE();
}

// log:info has a line for a request that made memory grow, and none for a hit.
Test(report, growth_is_logged) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "log:info"});
    berm__log_sink_set(line_keep, NULL);
    berm_addr_t block = heap_alloc(6 * MIB, NULL);
    cr_assert(strstr(lines, "6 MiB were created and 0 MiB moved, with 0 waits") != NULL, "'%s'",
              lines);
    lines[0] = '\0';
    heap_free(block, NULL);
    (void)heap_alloc(6 * MIB, NULL);
    cr_assert(lines[0] == '\0', "'%s'", lines);
    BERM_TEST_END_INSIDE();
}
