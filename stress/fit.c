// SPDX-License-Identifier: Apache-2.0
// Finds the smallest sufficient capacity: see fit.h. One probe is one replay on a fresh device.
//
// Bounds: about log2(range / granule) + 12 replays. The lower end of the range is the peak of live
// in whole granules, which no allocator can go below; the upper end is what a run with the most
// memory reserved.
// Invariant of the bisection: `failing` was seen to fail or is below any possible; `passing` was
// seen to finish.
// May fail: simulated devices only.
#include "stress/fit.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"

enum {
    PROBES_BESIDE = 5 // at 1, 2, 4, 8, 16 granules below and above the answer
};

typedef struct fit {
    const trace_t *trace;
    stress_replay_options_t options;
    stress_fit_result_t *result;
    uint64_t granule_bytes;
    char *error;
    size_t error_capacity;
} fit_t;

// 1 it finished, 0 it ran out of memory, -1 it could not run.
static int fit_probe(fit_t *f, uint64_t capacity_bytes, uint64_t *reserved_bytes) {
    stress_replay_result_t run;
    stress_fit_result_t *result = f->result;
    f->options.capacity_bytes = capacity_bytes;
    if (stress_replay(f->trace, &f->options, &run, f->error, f->error_capacity) != 0)
        return -1;
    result->runs++;
    result->findings += run.hazards + run.leaked_blocks + run.check_failures;
    int status = run.completed ? 1 : 0;
    if (run.failure[0] != '\0') {
        (void)snprintf(f->error, f->error_capacity, "%s at %" PRIu64 " bytes: %s", run.allocator,
                       capacity_bytes, run.failure);
        status = -1;
    }
    if (status == 1) {
        *reserved_bytes = run.peak_reserved_bytes;
        if (capacity_bytes < result->min_capacity_bytes) {
            result->min_capacity_bytes = capacity_bytes;
            result->peak_reserved_bytes = run.peak_reserved_bytes;
            result->allocated_bytes_total = run.allocated_bytes_total;
            result->moved_bytes_total = run.moved_bytes_total;
            result->driver_calls = run.driver_calls;
            result->driver_ns = run.driver_ns;
            result->host_waits = run.host_waits;
        }
    } else if (capacity_bytes > result->highest_failing_bytes) {
        result->highest_failing_bytes = capacity_bytes;
    }
    stress_replay_result_destroy(&run);
    return status;
}

// Narrows (failing, passing] to one granule. False when a run could not be made.
static bool fit_bisect(fit_t *f, uint64_t failing_bytes, uint64_t passing_bytes) {
    uint64_t reserved_bytes = 0;
    while (passing_bytes - failing_bytes > f->granule_bytes) {
        uint64_t granules = (passing_bytes - failing_bytes) / f->granule_bytes;
        uint64_t middle_bytes = failing_bytes + granules / 2 * f->granule_bytes;
        int status = fit_probe(f, middle_bytes, &reserved_bytes);
        if (status < 0)
            return false;
        if (status == 1)
            passing_bytes = middle_bytes;
        else
            failing_bytes = middle_bytes;
    }
    return true;
}

// Looks on both sides of the answer for what would make it not monotone.
static bool fit_probe_beside(fit_t *f, uint64_t floor_bytes, uint64_t most_bytes) {
    uint64_t answer_bytes = f->result->min_capacity_bytes, reserved_bytes = 0;
    for (int i = 0; i < PROBES_BESIDE; i++) {
        uint64_t step_bytes = f->granule_bytes << i;
        if (answer_bytes + step_bytes <= most_bytes &&
            fit_probe(f, answer_bytes + step_bytes, &reserved_bytes) < 0)
            return false;
        // One granule below was seen to fail already.
        if (i > 0 && answer_bytes >= floor_bytes + step_bytes &&
            fit_probe(f, answer_bytes - step_bytes, &reserved_bytes) < 0)
            return false;
    }
    return true;
}

static double mib(uint64_t bytes) {
    return (double)bytes / (double)BERM_MIB(1);
}

static int fit_run(fit_t *f, uint64_t most_bytes) {
    uint64_t floor_bytes = berm__align_up(f->trace->peak_live_bytes, f->granule_bytes);
    if (floor_bytes == 0)
        floor_bytes = f->granule_bytes;
    uint64_t reserved_bytes = 0;
    const char *name = f->options.ops->name;
    bool is_limit = f->options.limit_bytes < most_bytes;
    const char *option = is_limit ? "--limit" : "--capacity";
    uint64_t bound_bytes = is_limit ? f->options.limit_bytes : most_bytes;
    if (f->trace->peak_live_bytes > bound_bytes) {
        (void)snprintf(f->error, f->error_capacity,
                       "%s: no allocator could finish: peak live is %.1f MiB, %s %.1f MiB", name,
                       mib(f->trace->peak_live_bytes), option, mib(bound_bytes));
        return 1;
    }
    int status = fit_probe(f, most_bytes, &reserved_bytes);
    if (status == 0) {
        (void)snprintf(f->error, f->error_capacity,
                       "%s: does not finish with %.1f MiB; give more with %s", name,
                       mib(bound_bytes), option);
        return 1;
    }
    if (status < 0)
        return -1;
    // What it reserved without need is enough, except where more room had changed its mind.
    uint64_t passing_bytes = berm__align_up(reserved_bytes, f->granule_bytes);
    if (passing_bytes < floor_bytes || passing_bytes > most_bytes)
        passing_bytes = most_bytes;
    status = passing_bytes < most_bytes ? fit_probe(f, passing_bytes, &reserved_bytes) : 1;
    if (status < 0)
        return -1;
    uint64_t failing_bytes = floor_bytes - f->granule_bytes;
    if (status == 0) {
        failing_bytes = passing_bytes;
        passing_bytes = most_bytes;
    }
    if (!fit_bisect(f, failing_bytes, passing_bytes) ||
        !fit_probe_beside(f, floor_bytes, most_bytes))
        return -1;
    return 0;
}

int stress_fit(const trace_t *trace, const stress_replay_options_t *options,
               stress_fit_result_t *result, char *error, size_t error_capacity) {
    *result = (stress_fit_result_t){.allocator = options->ops->name,
                                    .trace = trace->path,
                                    .min_capacity_bytes = UINT64_MAX,
                                    .peak_live_bytes = trace->peak_live_bytes};
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL) {
        (void)snprintf(error, error_capacity,
                       "a capacity can be tried on the simulated device only");
        return -1;
    }
    simcuda_config_t config;
    sim->config_default(&config);
    fit_t fit = {.trace = trace,
                 .options = *options,
                 .result = result,
                 .granule_bytes = config.granule_bytes,
                 .error = error,
                 .error_capacity = error_capacity};
    uint64_t most_bytes = options->capacity_bytes;
    if (most_bytes == 0)
        most_bytes = trace->peak_live_bytes < UINT64_C(1) << 42
                         ? berm__max_u64(16 * trace->peak_live_bytes, BERM_MIB(64))
                         : UINT64_C(1) << 46;
    most_bytes = berm__align_up(most_bytes, fit.granule_bytes);
    result->most_bytes = most_bytes;
    int status = fit_run(&fit, most_bytes);
    if (status != 0)
        return status;
    result->is_fitting = true;
    result->is_monotone = result->highest_failing_bytes < result->min_capacity_bytes;
    if (result->peak_live_bytes > 0)
        result->capacity_over_live =
            (double)result->min_capacity_bytes / (double)result->peak_live_bytes;
    return 0;
}

void stress_fit_emit(berm_emit_t *emit, const stress_fit_result_t *r) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "allocator", r->allocator);
    berm__emit_string(emit, "trace", r->trace);
    if (r->is_fitting)
        berm__emit_u64(emit, "min_capacity_bytes", r->min_capacity_bytes);
    else
        berm__emit_null(emit, "min_capacity_bytes");
    berm__emit_u64(emit, "peak_live_bytes", r->peak_live_bytes);
    if (r->is_fitting)
        berm__emit_double(emit, "capacity_over_live", r->capacity_over_live, 6);
    else
        berm__emit_null(emit, "capacity_over_live");
    if (r->is_fitting)
        berm__emit_bool(emit, "monotone", r->is_monotone);
    else
        berm__emit_null(emit, "monotone");
    berm__emit_u64(emit, "highest_failing_bytes", r->highest_failing_bytes);
    berm__emit_u64(emit, "runs", r->runs);
    berm__emit_u64(emit, "peak_reserved_bytes", r->peak_reserved_bytes);
    berm__emit_u64(emit, "allocated_bytes_total", r->allocated_bytes_total);
    berm__emit_u64(emit, "moved_bytes_total", r->moved_bytes_total);
    berm__emit_u64(emit, "driver_calls", stress_calls_all(&r->driver_calls));
    berm__emit_u64(emit, "driver_us", r->driver_ns / 1000);
    berm__emit_u64(emit, "host_waits", r->host_waits);
    berm__emit_u64(emit, "findings", r->findings);
    berm__emit_object_end(emit);
}
