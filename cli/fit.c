// SPDX-License-Identifier: Apache-2.0
// berm fit: the smallest capacity at which a trace finishes. The search is stress/fit.c.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_options.h"
#include "stress/fit.h"

typedef struct fit_row {
    stress_fit_result_t fit;
    char why[512]; // why it did not finish, or ""
} fit_row_t;

static void table_result(cli_table_t *table, const stress_fit_result_t *r) {
    cli_table_row(table);
    cli_table_cell(table, "%s", r->allocator);
    if (!r->is_fitting) {
        cli_table_cell(table, "> %.0f", cli_mib(r->most_bytes));
        for (int i = 0; i < 5; i++)
            cli_table_cell(table, "-");
        cli_table_cell(table, "%u", r->runs);
        return;
    }
    cli_table_cell(table, "%.0f", cli_mib(r->min_capacity_bytes));
    cli_table_cell(table, "%.4f", r->capacity_over_live);
    cli_table_cell(table, "%.0f", cli_mib(r->moved_bytes_total));
    cli_table_cell(table, "%" PRIu64, stress_calls_all(&r->driver_calls));
    cli_table_cell(table, "%.1f", (double)r->driver_ns / 1e6);
    cli_table_cell(table, "%" PRIu64, r->host_waits);
    cli_table_cell(table, "%u", r->runs);
}

static void print_notes(const fit_row_t *row) {
    const stress_fit_result_t *r = &row->fit;
    if (row->why[0] != '\0')
        (void)printf("%s\n", row->why);
    else if (!r->is_monotone)
        (void)printf("%s: not monotone: it also failed at %.0f MiB\n", r->allocator,
                     cli_mib(r->highest_failing_bytes));
    if (r->findings > 0)
        (void)printf("%s: %" PRIu64 " hazards, leaks or failed checks; berm replay says which\n",
                     r->allocator, r->findings);
}

// "fits on 7282 MiB where pytorch needs 7940": the first allocator against the others.
static void print_verdict(const fit_row_t *rows, size_t count) {
    if (count < 2 || !rows[0].fit.is_fitting)
        return;
    (void)printf("%s fits on %.0f MiB", rows[0].fit.allocator,
                 cli_mib(rows[0].fit.min_capacity_bytes));
    for (size_t i = 1; i < count; i++) {
        const stress_fit_result_t *r = &rows[i].fit;
        const char *before = i == 1 ? " where" : i + 1 == count ? " and" : ",";
        (void)printf("%s %s %s", before, r->allocator, i == 1 ? "needs " : "");
        if (r->is_fitting)
            (void)printf("%.0f", cli_mib(r->min_capacity_bytes));
        else
            (void)printf("more than %.0f", cli_mib(r->most_bytes));
    }
    (void)printf("\n");
}

static void print_trace(const trace_t *trace, const fit_row_t *rows, size_t count) {
    static const char *const names[] = {"allocator",    "smallest MiB", "of live",    "moved MiB",
                                        "driver calls", "driver ms",    "host waits", "runs"};
    cli_table_t *table = calloc(1, sizeof *table);
    cli_run_print_trace(trace);
    if (table == NULL)
        return;
    cli_table_head(table, names, BERM_ARRAY_LENGTH(names));
    for (size_t i = 0; i < count; i++)
        table_result(table, &rows[i].fit);
    cli_table_print(table, stdout);
    free(table);
    (void)printf("\n");
    print_verdict(rows, count);
    for (size_t i = 0; i < count; i++)
        print_notes(&rows[i]);
}

static void print_json(const fit_row_t *rows, size_t count) {
    berm_emit_t emit;
    cli_results_begin(&emit, count);
    for (size_t i = 0; i < count; i++)
        stress_fit_emit(&emit, &rows[i].fit);
    cli_results_end(&emit, count);
    (void)fflush(stdout);
    for (size_t i = 0; i < count; i++)
        if (rows[i].why[0] != '\0')
            (void)cli_fail("fit", "%s: %s", rows[i].fit.trace, rows[i].why);
}

// Every trace with every allocator; what does not finish has its row too.
static int fit_all(cli_run_options_t *o, fit_row_t *rows, size_t *done) {
    char error[512] = "", what[128];
    for (size_t i = 0; i < o->path_count; i++) {
        for (size_t j = 0; j < o->allocator_count; j++) {
            const char *slash = strrchr(o->paths[i], '/');
            (void)snprintf(what, sizeof what, "%s: %.80s", o->allocators[j]->name,
                           slash != NULL ? slash + 1 : o->paths[i]);
            o->replay.ops = o->allocators[j];
            o->replay.capacity_bytes = o->device.capacity_bytes;
            o->replay.progress = cli_show_progress;
            o->replay.progress_context = what;
            fit_row_t *row = &rows[*done];
            int status = stress_fit(o->traces[i], &o->replay, &row->fit, error, sizeof error);
            if (status < 0)
                return cli_fail(o->command, "%s", error);
            if (status > 0)
                memcpy(row->why, error, sizeof row->why);
            (*done)++;
        }
        cli_progress_end();
        if (!o->is_json)
            print_trace(o->traces[i], rows + *done - o->allocator_count, o->allocator_count);
    }
    return CLI_OK;
}

static int fit_run(int argc, char **argv) {
    cli_run_options_t *o = calloc(1, sizeof *o);
    if (o == NULL)
        return cli_fail(argv[0], "no memory");
    int status = cli_run_open(o, argv[0], argc, argv);
    fit_row_t *rows = NULL;
    size_t done = 0;
    if (status == CLI_OK) {
        rows = calloc(o->path_count * o->allocator_count, sizeof *rows);
        status = rows == NULL ? cli_fail(argv[0], "no memory") : fit_all(o, rows, &done);
    }
    cli_progress_end();
    if (status == CLI_OK && o->is_json)
        print_json(rows, done);
    for (size_t i = 0; i < done; i++)
        if (status == CLI_OK && (rows[i].fit.findings > 0 || !rows[i].fit.is_fitting))
            status = CLI_FINDING;
    free(rows);
    int closed = cli_run_close(o);
    free(o);
    return closed != CLI_OK ? closed : status;
}

const cli_command_t cli_fit = {
    .name = "fit",
    .summary = "find the smallest device capacity at which a trace finishes",
    .help = "usage: berm fit [OPTION...] TRACE...\n\n"
            "Finds, by bisection to one granule, the smallest capacity of a simulated device at\n"
            "which the trace finishes, and says when finishing is not monotone in "
            "capacity.\n\n" CLI_RUN_HELP(
                "",
                "  --capacity BYTES     the most to try (24G, 80GiB, ...); 16 times the "
                "peak of live\n",
                "") "\nColumns:\n"
                    "  smallest MiB         the smallest memory of a device on which it finishes; "
                    "\"> N\": it\n"
                    "                       does not with N, the most tried\n"
                    "  of live              that over the peak of live memory; 1 is the least "
                    "there can be\n"
                    "  moved MiB            memory that was given another address there, without "
                    "copying\n"
                    "  driver calls, driver ms  calls of the driver there and their modelled time\n"
                    "  host waits           times the allocator waited for the device there\n"
                    "  runs                 replays that the search took\n"
                    "\nExit status 1: one does not finish even with the most, or a run had a "
                    "finding.\n",
    .help_more = cli_run_help_allocators,
    .run = fit_run,
};
