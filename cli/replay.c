// SPDX-License-Identifier: Apache-2.0
// berm replay: runs traces through allocators and reports side by side. The run is stress/replay.c.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_options.h"

// How a run ended, in a few words.
static void result_words(const stress_replay_result_t *r, char *words, size_t capacity) {
    if (r->failure[0] != '\0')
        (void)snprintf(words, capacity, "failed");
    else if (!r->completed)
        (void)snprintf(words, capacity, "out of memory at event %" PRIu64, r->oom_event);
    else if (stress_replay_is_good(r))
        (void)snprintf(words, capacity, "ok");
    else
        (void)snprintf(words, capacity,
                       "%" PRIu64 " hazards, %" PRIu64 " leaks, %" PRIu64 " failed checks",
                       r->hazards, r->leaked_blocks, r->check_failures);
}

static void table_head(cli_table_t *table) {
    static const char *const names[] = {
        "allocator", "live MiB",     "reserved MiB", "res/live",   "worst", "largest free MiB",
        "moved MiB", "driver calls", "driver ms",    "host waits", "ns/op", "result"};
    cli_table_row(table);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(names); i++)
        cli_table_cell(table, "%s", names[i]);
}

static void table_result(cli_table_t *table, const stress_replay_result_t *r) {
    char words[CLI_TABLE_CELL];
    result_words(r, words, sizeof words);
    cli_table_row(table);
    cli_table_cell(table, "%s", r->allocator);
    cli_table_cell(table, "%.1f", cli_mib(r->peak_live_bytes));
    cli_table_cell(table, "%.0f", cli_mib(r->peak_reserved_bytes));
    cli_table_cell(table, "%.4f", r->reserved_over_live);
    cli_table_cell(table, "%.3f", r->worst_reserved_over_live);
    cli_table_cell(table, "%.1f", cli_mib(r->largest_free_end_bytes));
    cli_table_cell(table, "%.0f", cli_mib(r->moved_bytes_total));
    cli_table_cell(table, "%" PRIu64, stress_calls_all(&r->driver_calls));
    cli_table_cell(table, "%.1f", (double)r->driver_ns / 1e6);
    cli_table_cell(table, "%" PRIu64, r->host_waits);
    cli_table_cell(table, "%.0f", r->op_mean_ns);
    cli_table_cell(table, "%s", words);
}

static void print_findings(const stress_replay_result_t *r) {
    if (r->failure[0] != '\0')
        (void)printf("%s: %s\n", r->allocator, r->failure);
    else if (!r->completed)
        (void)printf("%s: out of memory: event %" PRIu64 " of repeat %u asked for %" PRIu64
                     " bytes\n",
                     r->allocator, r->oom_event, r->oom_repeat + 1, r->oom_size_bytes);
    if (r->hazards > 0)
        (void)printf("%s: first hazard: %s\n", r->allocator, r->first_hazard);
    if (r->check_failures > 0)
        (void)printf("%s: first failed check: %s\n", r->allocator, r->first_check_failure);
}

static void print_trace(const trace_t *trace, const stress_replay_result_t *results, size_t count) {
    cli_table_t *table = calloc(1, sizeof *table);
    (void)printf("%s: %s, %zu events, %zu allocs, %zu streams, peak live %.1f MiB", trace->path,
                 trace->format, trace->event_count, trace->alloc_count, trace->stream_count,
                 cli_mib(trace->peak_live_bytes));
    if (trace->source_reserved_peak_bytes > 0)
        (void)printf(", reserved when recorded %.0f MiB",
                     cli_mib(trace->source_reserved_peak_bytes));
    (void)printf("\n\n");
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

const cli_command_t cli_replay = {
    .name = "replay",
    .summary = "run traces through allocators on a device and report",
    .help =
        "usage: berm replay [OPTION...] TRACE...\n\n"
        "Runs the allocations and frees of a recorded program through an allocator and reports\n"
        "what that needed: memory reserved against memory live, driver calls and their time,\n"
        "waits, the largest free block, hazards, leaks. TRACE is, by its content and gzip or\n"
        "not: a PyTorch memory snapshot, an RMM log, event CSV, or lifetimes CSV.\n\n" CLI_RUN_HELP
        "\nThe JSON object holds what `berm replay` reports for one trace and one allocator; for\n"
        "several it is {\"results\": [...]}. Exit status 1: out of memory, a hazard, a leak or a\n"
        "failed check.\n",
    .help_more = cli_run_help_allocators,
    .run = replay_run,
};
