// SPDX-License-Identifier: Apache-2.0
// The smallest capacity of the simulated device at which a trace finishes, found by bisection to
// one granule, and whether finishing is monotone in capacity as far as it was probed.
#ifndef STRESS_FIT_H
#define STRESS_FIT_H

#include "stress/replay.h"

typedef struct stress_fit_result {
    const char *allocator, *trace; // borrowed
    bool is_fitting;               // it finished somewhere
    uint64_t most_bytes;           // the most that was to be tried
    uint64_t min_capacity_bytes;   // the lowest at which it was seen to finish; UINT64_MAX: none
    uint64_t peak_live_bytes;
    double capacity_over_live;
    bool is_monotone;               // no probe above min_capacity_bytes failed
    uint64_t highest_failing_bytes; // of all probes
    uint32_t runs;
    // At min_capacity_bytes:
    uint64_t peak_reserved_bytes, allocated_bytes_total, moved_bytes_total;
    stress_calls_t driver_calls;
    uint64_t driver_ns, host_waits;
    uint64_t findings; // hazards, leaks and check failures of all runs
} stress_fit_result_t;

// `options` as for a replay; capacity_bytes is the most to try, 0 being 16 times the peak of live.
// 0; 1 when it does not finish even there (`error` says so, and whether any allocator could:
// nothing runs for what cannot); -1 with a line in `error` when it could not run. The result is
// good to emit unless it could not run.
int stress_fit(const trace_t *trace, const stress_replay_options_t *options,
               stress_fit_result_t *result, char *error, size_t error_capacity);

void stress_fit_emit(berm_emit_t *emit, const stress_fit_result_t *result);

#endif
