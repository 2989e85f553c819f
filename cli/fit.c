// SPDX-License-Identifier: Apache-2.0
// berm fit: the smallest capacity at which a trace finishes. The search is stress/fit.c.
#include <inttypes.h>
#include <stdlib.h>

#include "cli/run_options.h"
#include "stress/fit.h"

static void print_table(const stress_fit_result_t *results, size_t count) {
    static const char *const names[] = {"allocator", "live MiB",     "smallest MiB", "/ live",
                                        "moved MiB", "driver calls", "driver ms",    "host waits",
                                        "runs",      "trace"};
    cli_table_t *table = calloc(1, sizeof *table);
    if (table == NULL)
        return;
    cli_table_row(table);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(names); i++)
        cli_table_cell(table, "%s", names[i]);
    for (size_t i = 0; i < count; i++) {
        const stress_fit_result_t *r = &results[i];
        cli_table_row(table);
        cli_table_cell(table, "%s", r->allocator);
        cli_table_cell(table, "%.1f", cli_mib(r->peak_live_bytes));
        cli_table_cell(table, "%.0f", cli_mib(r->min_capacity_bytes));
        cli_table_cell(table, "%.4f", r->capacity_over_live);
        cli_table_cell(table, "%.0f", cli_mib(r->moved_bytes_total));
        cli_table_cell(table, "%" PRIu64, stress_calls_all(&r->driver_calls));
        cli_table_cell(table, "%.1f", (double)r->driver_ns / 1e6);
        cli_table_cell(table, "%" PRIu64, r->host_waits);
        cli_table_cell(table, "%u", r->runs);
        cli_table_cell(table, "%s", r->trace);
    }
    cli_table_print(table, stdout);
    free(table);
    for (size_t i = 0; i < count; i++)
        if (!results[i].is_monotone)
            (void)printf("%s: not monotone: it also failed at %.0f MiB\n", results[i].allocator,
                         cli_mib(results[i].highest_failing_bytes));
}

static void print_json(const stress_fit_result_t *results, size_t count) {
    berm_emit_t emit;
    cli_results_begin(&emit, count);
    for (size_t i = 0; i < count; i++)
        stress_fit_emit(&emit, &results[i]);
    cli_results_end(&emit, count);
}

static int fit_all(cli_run_options_t *o, stress_fit_result_t *results, size_t *done) {
    char error[512] = "";
    for (size_t i = 0; i < o->path_count; i++) {
        for (size_t j = 0; j < o->allocator_count; j++) {
            o->replay.ops = o->allocators[j];
            o->replay.capacity_bytes = o->device.capacity_bytes;
            o->replay.progress = cli_show_progress;
            o->replay.progress_context = o->paths[i];
            int status = stress_fit(o->traces[i], &o->replay, &results[*done], error, sizeof error);
            if (status != 0) {
                (void)cli_fail(o->command, "%s", error);
                return status > 0 ? CLI_FINDING : CLI_BAD;
            }
            (*done)++;
        }
    }
    return CLI_OK;
}

static int fit_run(int argc, char **argv) {
    cli_run_options_t *o = calloc(1, sizeof *o);
    if (o == NULL)
        return cli_fail(argv[0], "no memory");
    int status = cli_run_open(o, argv[0], argc, argv);
    stress_fit_result_t *results = NULL;
    size_t done = 0;
    if (status == CLI_OK) {
        results = calloc(o->path_count * o->allocator_count, sizeof *results);
        status = results == NULL ? cli_fail(argv[0], "no memory") : fit_all(o, results, &done);
    }
    cli_progress_end();
    if (status == CLI_OK && o->is_json)
        print_json(results, done);
    else if (status == CLI_OK)
        print_table(results, done);
    for (size_t i = 0; i < done; i++)
        if (status == CLI_OK && results[i].findings > 0)
            status = CLI_FINDING;
    free(results);
    int closed = cli_run_close(o);
    free(o);
    return closed != CLI_OK ? closed : status;
}

const cli_command_t cli_fit = {
    .name = "fit",
    .summary = "find the smallest device capacity at which a trace finishes",
    .help = "usage: berm fit [OPTION...] TRACE...\n\n"
            "Finds, by bisection to one granule, the smallest capacity of a simulated device at\n"
            "which the trace finishes, and says when finishing is not monotone in capacity.\n"
            "--capacity is the most to try; 16 times the peak of live memory by "
            "default.\n\n" CLI_RUN_HELP
            "\nExit status 1: it does not finish even with the most, or a run had a finding.\n",
    .help_more = cli_run_help_allocators,
    .run = fit_run,
};
