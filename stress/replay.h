// SPDX-License-Identifier: Apache-2.0
// Runs a trace through an allocator on the device that is open, and reports.
//
// live = requested bytes of live blocks (a deferred block until its FREE). A repeat is the whole
// recording, with the blocks that were live before it; what is live at its end is freed before the
// next. driver_calls and driver_us cover the making of the allocator and all repeats, not its end,
// and never the harness's own calls.
#ifndef STRESS_REPLAY_H
#define STRESS_REPLAY_H

#include <stdio.h>

#include "base/emit.h"
#include "stress/allocator.h"
#include "stress/device.h"
#include "stress/trace/trace.h"
#include "stress/work.h"

typedef enum stress_check {
    STRESS_CHECK_NONE,
    STRESS_CHECK_AUDIT, // overlap and alignment always; audit and ledger about 20 times a repeat
    STRESS_CHECK_FULL,  // overlap, alignment and ledger after every event, audit by audit_every
} stress_check_t;

typedef struct stress_replay_options {
    const stress_allocator_ops_t *ops;
    const char *conf;    // "" for none
    double headroom_pct; // < 0: the allocator's default
    uint64_t limit_bytes;
    uint64_t capacity_bytes; // of the simulated device; 0: as opened
    uint32_t repeats;
    stress_check_t check;
    uint64_t audit_every; // events, with STRESS_CHECK_FULL; 1
    bool stops_at_hazard; // the run fails at the event that showed it
    stress_work_options_t work;
    FILE *series; // NULL, or where a line of CSV goes for every event
    // Called now and then; NULL for none.
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
} stress_replay_options_t;

void stress_replay_options_default(stress_replay_options_t *options);

typedef struct stress_repeat {
    uint64_t peak_reserved_bytes, moved_bytes, memory_calls;
    double planned_share; // of requests above 64 KiB: served where a plan had them
} stress_repeat_t;

typedef struct stress_replay_result {
    const char *allocator;
    const char *trace;          // borrowed from the trace
    uint64_t events;            // of one repeat
    uint64_t source_oom_events; // TRACE_OOM among them: passed over
    uint64_t capacity_bytes;    // of the device or, if less, the limit; 0: unknown
    uint32_t repeats;           // asked for
    bool completed;
    uint64_t oom_event, oom_size_bytes; // where completed is false and `failure` is empty
    uint32_t oom_repeat;                // from 0
    // At that moment:
    uint64_t oom_live_bytes, oom_reserved_bytes, oom_largest_free_bytes; // the last on its stream
    char oom_message[512]; // the allocator's own, or ""
    char failure[256];     // another error than out of memory, in words
    uint64_t peak_live_bytes, peak_allocated_bytes, peak_reserved_bytes;
    double reserved_over_live, worst_reserved_over_live;
    uint64_t allocated_bytes_total, moved_bytes_total;
    stress_repeat_t *per_repeat;
    uint32_t per_repeat_count; // those begun
    stress_calls_t driver_calls;
    uint64_t driver_ns, host_waits, host_wait_ns;
    uint64_t mappings_peak, va_peak_bytes;
    uint64_t largest_free_end_bytes, largest_free_at_peak_bytes, largest_obtainable_bytes;
    uint64_t hazards, leaked_blocks, check_failures;
    uint64_t alias_hazards, stale_map_hazards; // of the hazards
    uint64_t audits;
    char first_hazard[256], first_check_failure[256];
    bool is_simulated; // otherwise hazards, mappings, addresses and waits are not known
    double op_mean_ns;
    uint64_t op_p50_ns, op_p99_ns, op_p999_ns;
} stress_replay_result_t;

// 0 when it ran, to the end or not; -1 with a line in `error` when it could not start. The result
// is to be destroyed in the first case.
int stress_replay(const trace_t *trace, const stress_replay_options_t *options,
                  stress_replay_result_t *result, char *error, size_t error_capacity);
void stress_replay_result_destroy(stress_replay_result_t *result);

// Whether the command ends with 0: completed, and nothing was found.
bool stress_replay_is_good(const stress_replay_result_t *result);

// Why the run ended, out of memory, as one sentence without the allocator's name.
void stress_replay_oom_text(const stress_replay_result_t *result, char *text, size_t capacity);

// One object, as the design's list has it.
void stress_replay_emit(berm_emit_t *emit, const stress_replay_result_t *result);

#endif
