// SPDX-License-Identifier: Apache-2.0
// The matrix of traces, streams, modes and switches: every cell once, what a cell finds, and what
// the matrix makes of it.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/defs.h"
#include "stress/matrix/matrix.h"

static char error[512];

static const matrix_source_t sources[] = {
    {.name = "random",
     .kind = "random",
     .generate = {.operations = 300,
                  .max_size_bytes = BERM_MIB(64),
                  .live_cap_bytes = BERM_GIB(1),
                  .lag_events = 20}},
    {.name = "images", .kind = "diffusion", .generate = {.requests = 1, .steps = 1}},
};

static matrix_options_t options_of(void) {
    return (matrix_options_t){.sources = sources,
                              .source_count = 2,
                              .streams = {1, 4},
                              .streams_count = 2,
                              .modes = {"remap:passed", "remap:alias", "remap:off"},
                              .mode_count = 3,
                              .event_lag_ns = 100000,
                              .audits = 100};
}

static matrix_result_t run_cell(const matrix_options_t *options, const matrix_cell_t *cell) {
    matrix_result_t result;
    trace_t *trace = matrix_cell_trace(options, cell, error, sizeof error);
    cr_assert(trace != NULL, "%s", error);
    cr_assert(trace->stream_count == cell->streams);
    matrix_cell_run(options, cell, trace, &result);
    trace_destroy(trace);
    return result;
}

static const matrix_switch_t *switch_named(const char *name) {
    for (size_t i = 0; i < matrix_switch_count; i++)
        if (strcmp(matrix_switches[i].name, name) == 0)
            return &matrix_switches[i];
    cr_assert_fail("no switch %s", name);
    return NULL;
}

Test(matrix, has_each_combination_once) {
    const matrix_options_t options = options_of();
    size_t count = matrix_cell_count(&options);
    cr_assert(count == 2 * 2 * 3 * matrix_switch_count);
    for (size_t i = 0; i < count; i++) {
        const matrix_cell_t a = matrix_cell(&options, i);
        for (size_t j = 0; j < i; j++) {
            const matrix_cell_t b = matrix_cell(&options, j);
            cr_assert(a.source != b.source || a.streams != b.streams || a.mode != b.mode ||
                      a.with != b.with);
        }
    }
}

Test(matrix, a_cell_moves_pages_and_finds_nothing) {
    const matrix_options_t options = options_of();
    const matrix_cell_t cell = {&sources[0], 4, "remap:passed", switch_named("plain")};
    matrix_result_t r = run_cell(&options, &cell);
    cr_assert(r.is_good && !r.is_caught && r.finding[0] == '\0', "%s", r.finding);
    cr_assert(r.moved_bytes > 0 && r.repeats == 3 && r.hazards == 0);
    cr_assert(r.audits >= 100 && r.audits < 220, "%llu audits", (unsigned long long)r.audits);
}

// The device that a switch makes is the one that the cell runs on.
Test(matrix, a_fault_by_a_page_edit_is_a_finding) {
    const matrix_options_t options = options_of();
    const matrix_switch_t unguarded = {
        .name = "x", .device = switch_named("faults-page-edits")->device, .conf = ""};
    const matrix_cell_t cell = {&sources[0], 4, "remap:passed", &unguarded};
    matrix_result_t r = run_cell(&options, &cell);
    cr_assert(!r.is_good && r.hazards > 0 && r.finding[0] != '\0');
    const matrix_cell_t guarded = {&sources[0], 4, "remap:passed",
                                   switch_named("faults-page-edits")};
    r = run_cell(&options, &guarded);
    cr_assert(r.is_good && !r.is_caught, "%s", r.finding);
}

Test(matrix, mappings_that_show_late_must_be_caught) {
    const matrix_options_t options = options_of();
    const matrix_cell_t cell = {&sources[0], 1, "remap:off", switch_named("stale-map")};
    matrix_result_t r = run_cell(&options, &cell);
    cr_assert(r.is_good && r.is_caught && r.allowed_hazards > 0 && r.hazards == 0, "%s", r.finding);
    matrix_switch_t at_once = *cell.with;
    at_once.device.stale_map_ns = 0;
    const matrix_cell_t not_caught = {&sources[0], 1, "remap:off", &at_once};
    r = run_cell(&options, &not_caught);
    cr_assert(!r.is_good && strstr(r.finding, "not caught") != NULL, "%s", r.finding);
}

static size_t reported, bad;

static void report(void *context, size_t number, const matrix_result_t *result) {
    cr_assert(number == reported && context == &reported, "in order");
    reported++;
    bad += !result->is_good;
}

Test(matrix, runs_all_in_processes) {
    matrix_options_t options = options_of();
    cr_assert(matrix_run(&options, 2, report, &reported, error, sizeof error) == 0, "%s", error);
    cr_assert(reported == matrix_cell_count(&options) && bad == 0, "%zu of %zu", bad, reported);
}

Test(matrix, what_cannot_run_is_a_finding) {
    static const matrix_source_t unknown = {.name = "x", .kind = "no such kind"};
    matrix_options_t options = options_of();
    options.modes[0] = "remap:never";
    options.mode_count = 1;
    options.source_count = 1;
    cr_assert(matrix_run(&options, 1, report, &reported, error, sizeof error) == 0, "%s", error);
    cr_assert(reported == matrix_cell_count(&options) && bad == reported);
    options = options_of();
    options.sources = &unknown;
    options.source_count = 1;
    reported = bad = 0;
    cr_assert(matrix_run(&options, 1, report, &reported, error, sizeof error) == 0, "%s", error);
    cr_assert(reported == matrix_cell_count(&options) && bad == reported);
}
