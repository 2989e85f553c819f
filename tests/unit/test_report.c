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
    report_expect("largest obtainable 6.0 MiB");
    report_expect("held outside berm 48.0 MiB, free 6.0 MiB");
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
    report_expect("largest obtainable 12.0 MiB");
    report_expect("limit 32.0 MiB");
    cr_assert(berm_alloc(12 * MIB, 0, NULL, &out) == BERM_OK);
    BERM_TEST_END_INSIDE();
}

// Figures that would read the same, and those below 1 MiB, are exact.
Test(report, figures_do_not_mislead) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "limit:32M"});
    berm__log_sink_set(line_keep, NULL);
    cr_assert(berm_alloc(32 * MIB + 1, 0, NULL, &out) == BERM_ERROR_LIMIT);
    report_expect("33554433 bytes wanted");
    report_expect("largest obtainable 33554432 bytes");
    report_expect("limit 33554432 bytes");
    (void)heap_alloc(12 * MIB + 900 * 1024, NULL);
    cr_assert(berm_alloc(40 * MIB, 0, NULL, &out) == BERM_ERROR_LIMIT);
    report_expect("40.0 MiB wanted");
    report_expect("live 12.9 MiB, cached 1.1 MiB, reserved 14.0 MiB");
    BERM_TEST_END_INSIDE();
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "limit:512K"});
    cr_assert(berm_alloc(1, 0, NULL, &out) == BERM_ERROR_LIMIT);
    report_expect("1 byte wanted");
    report_expect("limit 524288 bytes");
    BERM_TEST_END_INSIDE();
}

static uint64_t now_ns;

static uint64_t now_read(void *context) {
    (void)context;
    return now_ns;
}

// A device and a cause have one line a second, which counts what had none.
Test(report, lines_are_a_second_apart) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "limit:32M"});
    berm__log_sink_set(line_keep, NULL);
    cr_assert(berm_clock_set(now_read, NULL) == BERM_OK);
    for (int i = 0; i < 5; i++)
        cr_assert(berm_alloc(40 * MIB, 0, NULL, &out) == BERM_ERROR_LIMIT);
    cr_assert(strchr(lines, '\n') == lines + strlen(lines) - 1, "one line: '%s'", lines);
    lines[0] = '\0';
    now_ns = 999999999;
    cr_assert(berm_alloc(40 * MIB, 0, NULL, &out) == BERM_ERROR_LIMIT);
    cr_assert(lines[0] == '\0', "'%s'", lines);
    cr_assert(berm_limit_set(0, UINT64_MAX) == BERM_OK);
    cr_assert(berm_alloc(80 * MIB, 0, NULL, &out) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    cr_assert(strstr(lines, "80.0 MiB wanted") != NULL, "another cause has its own: '%s'", lines);
    lines[0] = '\0';
    now_ns = 1000000000;
    cr_assert(berm_limit_set(0, 32 * MIB) == BERM_OK);
    cr_assert(berm_alloc(40 * MIB, 0, NULL, &out) == BERM_ERROR_LIMIT);
    cr_assert(strstr(lines, "(5 more such since the last line)") != NULL, "'%s'", lines);
    (void)berm_clock_set(NULL, NULL);
    BERM_TEST_END_INSIDE();
}

// log:info has a line for a request that made memory grow, and none for a hit.
Test(report, growth_is_logged) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "log:info"});
    berm__log_sink_set(line_keep, NULL);
    berm_addr_t block = heap_alloc(6 * MIB, NULL);
    cr_assert(strstr(lines, "6.0 MiB were created and 0.0 MiB moved, with 0 waits") != NULL, "'%s'",
              lines);
    lines[0] = '\0';
    heap_free(block, NULL);
    (void)heap_alloc(6 * MIB, NULL);
    cr_assert(lines[0] == '\0', "'%s'", lines);
    BERM_TEST_END_INSIDE();
}
