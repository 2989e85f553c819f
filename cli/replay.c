// SPDX-License-Identifier: Apache-2.0
// berm replay: runs traces through allocators and reports side by side. The run is stress/replay.c.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_options.h"

// How a run ended, in a word or two.
static const char *result_words(const stress_replay_result_t *r) {
    if (r->failure[0] != '\0')
        return "failed";
    if (!r->completed)
        return "out of memory";
    if (!stress_replay_is_good(r))
        return "findings";
    return r->peak_live_bytes > 0 ? "ok" : "nothing allocated";
}

static void table_head(cli_table_t *table) {
    static const char *const names[] = {"allocator",
                                        "peak\nlive\nMiB",
                                        "peak\nreserved\nMiB",
                                        "reserved\n/live",
                                        "largest\nfree\nMiB",
                                        "moved\nMiB",
                                        "driver\ncalls",
                                        "driver\nms",
                                        "host\nwaits",
                                        "ns/op",
                                        "result"};
    cli_table_head(table, names, BERM_ARRAY_LENGTH(names));
}

static void table_result(cli_table_t *table, const stress_replay_result_t *r) {
    cli_table_row(table);
    cli_table_cell(table, "%s", r->allocator);
    cli_table_cell(table, "%.1f", cli_mib(r->peak_live_bytes));
    cli_table_cell(table, "%.0f", cli_mib(r->peak_reserved_bytes));
    if (r->peak_live_bytes > 0)
        cli_table_cell(table, "%.4f", r->reserved_over_live);
    else
        cli_table_cell(table, "-");
    cli_table_cell(table, "%.1f", cli_mib(r->largest_free_at_peak_bytes));
    cli_table_cell(table, "%.0f", cli_mib(r->moved_bytes_total));
    cli_table_cell(table, "%" PRIu64, stress_calls_all(&r->driver_calls));
    cli_table_cell(table, "%.1f", (double)r->driver_ns / 1e6);
    cli_table_cell(table, "%" PRIu64, r->host_waits);
    cli_table_cell(table, "%.0f", r->op_mean_ns);
    cli_table_cell(table, "%s", result_words(r));
}

static void print_findings(const stress_replay_result_t *r) {
    char text[512];
    if (r->failure[0] != '\0') {
        (void)printf("%s: %s\n", r->allocator, r->failure);
    } else if (!r->completed) {
        stress_replay_oom_text(r, text, sizeof text);
        (void)printf("%s: %s\n", r->allocator, text);
        if (r->oom_message[0] != '\0')
            (void)printf("%s: its own words: %s\n", r->allocator, r->oom_message);
    }
    if (r->hazards > 0)
        (void)printf("%s: %" PRIu64 " hazards, the first: %s\n", r->allocator, r->hazards,
                     r->first_hazard);
    if (r->leaked_blocks > 0)
        (void)printf("%s: %" PRIu64 " leaks\n", r->allocator, r->leaked_blocks);
    if (r->check_failures > 0)
        (void)printf("%s: %" PRIu64 " failed checks, the first: %s\n", r->allocator,
                     r->check_failures, r->first_check_failure);
}

static void print_trace(const trace_t *trace, const stress_replay_result_t *results, size_t count) {
    cli_table_t *table = calloc(1, sizeof *table);
    cli_run_print_trace(trace);
    if (table == NULL)
        return;
    table_head(table);
    for (size_t i = 0; i < count; i++)
        table_result(table, &results[i]);
    cli_table_print(table, stdout);
    (void)printf("\n");
    for (size_t i = 0; i < count; i++)
        print_findings(&results[i]);
    free(table);
}

static void print_json(const stress_replay_result_t *results, size_t count) {
    berm_emit_t emit;
    cli_results_begin(&emit, count);
    for (size_t i = 0; i < count; i++)
        stress_replay_emit(&emit, &results[i]);
    cli_results_end(&emit, count);
}

// Every trace through every allocator; *done counts the results.
static int replay_all(cli_run_options_t *o, stress_replay_result_t *results, size_t *done) {
    char error[512] = "", what[128];
    for (size_t i = 0; i < o->path_count; i++) {
        for (size_t j = 0; j < o->allocator_count; j++) {
            const char *slash = strrchr(o->paths[i], '/');
            (void)snprintf(what, sizeof what, "%s: %.80s", o->allocators[j]->name,
                           slash != NULL ? slash + 1 : o->paths[i]);
            o->replay.ops = o->allocators[j];
            o->replay.progress = cli_show_progress;
            o->replay.progress_context = what;
            if (stress_replay(o->traces[i], &o->replay, &results[*done], error, sizeof error) != 0)
                return cli_fail(o->command, "%s", error);
            (*done)++;
        }
        cli_progress_end();
        if (!o->is_json)
            print_trace(o->traces[i], results + *done - o->allocator_count, o->allocator_count);
    }
    return CLI_OK;
}

static int replay_run(int argc, char **argv) {
    cli_run_options_t *o = calloc(1, sizeof *o);
    if (o == NULL)
        return cli_fail(argv[0], "no memory");
    int status = cli_run_open(o, argv[0], argc, argv);
    stress_replay_result_t *results = NULL;
    size_t done = 0;
    if (status == CLI_OK) {
        o->replay.capacity_bytes = o->device.capacity_bytes;
        results = calloc(o->path_count * o->allocator_count, sizeof *results);
        status = results == NULL ? cli_fail(argv[0], "no memory") : replay_all(o, results, &done);
    }
    if (status == CLI_OK && o->is_json)
        print_json(results, done);
    for (size_t i = 0; i < done; i++) {
        if (status == CLI_OK && !stress_replay_is_good(&results[i]))
            status = CLI_FINDING;
        stress_replay_result_destroy(&results[i]);
    }
    free(results);
    int closed = cli_run_close(o);
    free(o);
    return closed != CLI_OK ? closed : status;
}

#define SERIES_HELP                                                                                \
    "  --series FILE        writes after every event, as CSV, live, allocated, active and\n"       \
    "                       reserved bytes, and so far: moved bytes, driver calls, us in them;\n"  \
    "                       one trace and one allocator\n"

const cli_command_t cli_replay = {
    .name = "replay",
    .summary = "run traces through allocators on a device and report",
    .help = "usage: berm replay [OPTION...] TRACE...\n\n"
            "Runs the allocations and frees of a recorded program through an allocator and "
            "reports\n"
            "what that needed: memory reserved against memory live, driver calls and their time,\n"
            "waits, the largest free block, hazards, leaks. TRACE is, by its content and gzip or\n"
            "not: a PyTorch memory snapshot, an RMM log, event CSV, or lifetimes "
            "CSV.\n\n" CLI_RUN_HELP("  --device sim|cuda[:N]  where to run; the simulated device "
                                    "is the default\n",
                                    "  --capacity BYTES     memory of the simulated device (24G, "
                                    "80GiB, ...); 80G\n",
                                    SERIES_HELP) "\nColumns:\n"
                                                 "  peak live MiB        the most that the "
                                                 "program had allocated at once, as requested\n"
                                                 "  peak reserved MiB    the most that the "
                                                 "allocator held from the driver\n"
                                                 "  reserved/live        the second over the "
                                                 "first; 1 is the least there can be\n"
                                                 "  largest free MiB     the largest block that "
                                                 "would need no driver call, when live was at\n"
                                                 "                       its peak (--json has "
                                                 "the end too)\n"
                                                 "  moved MiB            memory that was given "
                                                 "another address, without copying\n"
                                                 "  driver calls, driver ms  calls of the driver "
                                                 "and the time they took, waits apart; on the\n"
                                                 "                       simulated device "
                                                 "modelled by --latency. Mostly the first pass:\n"
                                                 "                       --repeat 2 shows what a "
                                                 "second one adds\n"
                                                 "  host waits           times the allocator "
                                                 "waited for the device\n"
                                                 "  ns/op                mean host time of an "
                                                 "alloc or a free, simulating the driver "
                                                 "included\n"
                                                 "  result               ok, or what is "
                                                 "explained under the table\n"
                                                 "\nIn the JSON, planned_share of per_repeat is "
                                                 "the share of large requests that a plan\n"
                                                 "served.\n"
                                                 "\nThe JSON object holds what `berm replay` "
                                                 "reports for one trace and one allocator; for\n"
                                                 "several it is {\"results\": [...]}. Exit "
                                                 "status 1: out of memory, a hazard, a leak or "
                                                 "a\n"
                                                 "failed check.\n",
    .help_more = cli_run_help_allocators,
    .run = replay_run,
};
