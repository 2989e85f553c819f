// SPDX-License-Identifier: Apache-2.0
// The tables of the matrix, and one cell of it: see matrix.h. Processes are run.c.
//
// Seeds are fixed here: a row's options must not change once a result is published.
// Locks: none; one thread. May fail: a device, a trace or a replay that cannot be made is a finding
// of the cell.
#include "stress/matrix/matrix.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/bits.h"
#include "base/defs.h"
#include "stress/replay.h"
#include "stress/trace/deal.h"

enum {
    REPEATED_EVENTS = 20000, // a trace is repeated while it has no more in all
    REPEATS_MAX = 3,
    CAPACITY_OF_LIVE = 4,
};

const matrix_source_t matrix_generated[] = {
    {.name = "gpt-train",
     .kind = "gpt-train",
     .generate = {.iterations = 3, .layers = 4, .micro_batches = 4, .seed = 5}},
    {.name = "gpt-train-changing",
     .kind = "gpt-train",
     .generate = {.iterations = 4, .layers = 4, .micro_batches = 2, .change_pct = 5, .seed = 6}},
    {.name = "gpt-train-recompute",
     .kind = "gpt-train",
     .generate = {.iterations = 2,
                  .layers = 4,
                  .micro_batches = 2,
                  .recompute = true,
                  .offload = true,
                  .seed = 7}},
    {.name = "llm-serve",
     .kind = "llm-serve",
     .generate = {.requests = 6, .answer_tokens = 64, .seed = 8}},
    {.name = "llm-serve-blocks",
     .kind = "llm-serve",
     .generate = {.requests = 6, .answer_tokens = 64, .kv = TRACE_KV_BLOCKS, .seed = 9}},
    {.name = "diffusion", .kind = "diffusion", .generate = {.requests = 2, .seed = 10}},
    {.name = "multi-model",
     .kind = "multi-model",
     .generate = {.requests = 15, .live_cap_bytes = BERM_GIB(12), .seed = 11}},
    {.name = "random",
     .kind = "random",
     .generate = {.operations = 3000,
                  .max_size_bytes = BERM_MIB(256),
                  .live_cap_bytes = BERM_GIB(8),
                  .lag_events = 50,
                  .seed = 12}},
    {.name = "random-log",
     .kind = "random",
     .generate = {.operations = 5000,
                  .max_size_bytes = BERM_GIB(1),
                  .live_cap_bytes = BERM_GIB(8),
                  .sizes = TRACE_SIZES_LOG,
                  .lag_events = 50,
                  .seed = 13}},
};
const size_t matrix_generated_count = BERM_ARRAY_LENGTH(matrix_generated);

const matrix_switch_t matrix_switches[] = {
    {.name = "plain", .conf = ""},
    {.name = "drains-map", .device = {.drains_map = true}, .conf = ""},
    {.name = "faults-page-edits", .device = {.faults_page_edits = true}, .conf = ",sync_edits:on"},
    {.name = "dependent-launch", .device = {.pdl_overlap_ns = 100000}, .conf = ""},
    {.name = "stale-map", .device = {.stale_map_ns = 1000000}, .conf = "", .shows_late = true},
};
const size_t matrix_switch_count = BERM_ARRAY_LENGTH(matrix_switches);

size_t matrix_cell_count(const matrix_options_t *options) {
    return options->source_count * options->streams_count * options->mode_count *
           matrix_switch_count;
}

matrix_cell_t matrix_cell(const matrix_options_t *options, size_t number) {
    matrix_cell_t cell;
    cell.with = &matrix_switches[number % matrix_switch_count];
    number /= matrix_switch_count;
    cell.mode = options->modes[number % options->mode_count];
    number /= options->mode_count;
    cell.streams = options->streams[number % options->streams_count];
    cell.source = &options->sources[number / options->streams_count];
    return cell;
}

trace_t *matrix_cell_trace(const matrix_options_t *options, const matrix_cell_t *cell, char *error,
                           size_t error_capacity) {
    const matrix_source_t *source = cell->source;
    if (source->trace != NULL)
        return trace_deal(source->trace, cell->streams, options->seed, error, error_capacity);
    trace_generate_options_t generate = source->generate;
    generate.streams = cell->streams;
    generate.seed += options->seed;
    return trace_generate(source->kind, &generate, error, error_capacity);
}

static stress_replay_options_t cell_options(const matrix_options_t *options, const trace_t *trace,
                                            const char *conf) {
    stress_replay_options_t replay;
    stress_replay_options_default(&replay);
    replay.ops = stress_allocators[0];
    replay.conf = conf;
    replay.check = STRESS_CHECK_FULL;
    uint64_t events = berm__max_u64(trace->event_count, 1);
    replay.repeats =
        (uint32_t)berm__max_u64(1, berm__min_u64(REPEATED_EVENTS / events, REPEATS_MAX));
    replay.audit_every = berm__max_u64(1, events * replay.repeats / options->audits);
    replay.capacity_bytes = berm__max_u64(trace->peak_live_bytes * CAPACITY_OF_LIVE, BERM_GIB(1));
    replay.work.event_lag_ns = options->event_lag_ns;
    replay.work.seed = options->seed;
    return replay;
}

static void finding(matrix_result_t *result, const char *what, const char *words) {
    if (result->finding[0] == '\0')
        (void)snprintf(result->finding, sizeof result->finding, "%s: %.200s", what, words);
}

// What the replay found, by what the cell allows.
static void cell_judge(const matrix_cell_t *cell, const stress_replay_result_t *r,
                       matrix_result_t *result) {
    bool may_alias = cell->with->device.pdl_overlap_ns > 0;
    result->allowed_hazards =
        (may_alias ? r->alias_hazards : 0) + (cell->with->shows_late ? r->stale_map_hazards : 0);
    result->hazards = r->hazards - result->allowed_hazards;
    result->is_caught = result->allowed_hazards > 0;
    result->leaks = r->leaked_blocks;
    result->check_failures = r->check_failures;
    result->audits = r->audits;
    result->moved_bytes = r->moved_bytes_total;
    result->host_waits = r->host_waits;
    if (result->hazards > 0) // which may be why it did not end
        finding(result, "hazard", r->first_hazard);
    if (!r->completed)
        finding(result, "did not end", r->failure[0] != '\0' ? r->failure : r->oom_message);
    if (r->leaked_blocks > 0)
        finding(result, "leak", "something is left on the device");
    if (r->check_failures > 0)
        finding(result, "check", r->first_check_failure);
    if (cell->with->shows_late && r->stale_map_hazards == 0 && r->peak_live_bytes > 0)
        finding(result, "not caught", "no hazard, though mappings show late");
    result->is_good = result->finding[0] == '\0';
}

static double seconds_now(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void matrix_cell_run(const matrix_options_t *options, const matrix_cell_t *cell,
                     const trace_t *trace, matrix_result_t *result) {
    char error[256] = "", conf[256];
    double start = seconds_now();
    (void)snprintf(conf, sizeof conf, "%.200s%s", cell->mode, cell->with->conf);
    const stress_replay_options_t replay = cell_options(options, trace, conf);
    *result = (matrix_result_t){
        .events = trace->event_count, .repeats = replay.repeats, .audit_every = replay.audit_every};
    stress_device_options_t device = cell->with->device;
    device.name = "sim";
    stress_replay_result_t r;
    if (stress_device_open(&device, error, sizeof error) != 0 ||
        stress_replay(trace, &replay, &r, error, sizeof error) != 0) {
        finding(result, "could not run", error);
    } else {
        cell_judge(cell, &r, result);
        stress_replay_result_destroy(&r);
    }
    stress_device_close();
    result->seconds = seconds_now() - start;
}
