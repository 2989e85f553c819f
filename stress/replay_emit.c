// SPDX-License-Identifier: Apache-2.0
// What a replay gave, in words and as the JSON of `berm replay`: see replay.h. Values that the
// device cannot tell are null. Nothing can fail.
#include <inttypes.h>
#include <string.h>

#include "stress/replay.h"

static double mib(uint64_t bytes) {
    return (double)bytes / (double)BERM_MIB(1);
}

void stress_replay_oom_text(const stress_replay_result_t *r, char *text, size_t capacity) {
    char repeat[32] = "", asked[32], end[96];
    const uint64_t wanted_bytes = r->oom_live_bytes + r->oom_size_bytes;
    if (r->repeats > 1)
        (void)snprintf(repeat, sizeof repeat, " of repeat %" PRIu32, r->oom_repeat + 1);
    if (r->oom_size_bytes < BERM_MIB(1) / 10)
        (void)snprintf(asked, sizeof asked, "%" PRIu64 " byte%s", r->oom_size_bytes,
                       BERM_PLURAL(r->oom_size_bytes));
    else
        (void)snprintf(asked, sizeof asked, "%.1f MiB", mib(r->oom_size_bytes));
    if (wanted_bytes > r->capacity_bytes && r->capacity_bytes != 0)
        (void)snprintf(end, sizeof end, "no allocator could");
    else
        (void)snprintf(end, sizeof end, "%.1f MiB reserved, largest free %.1f MiB",
                       mib(r->oom_reserved_bytes), mib(r->oom_largest_free_bytes));
    (void)snprintf(text, capacity,
                   "out of memory at event %" PRIu64 "%s: asked for %s with %.1f MiB live, %.1f of "
                   "%.1f MiB: %s",
                   r->oom_event, repeat, asked, mib(r->oom_live_bytes), mib(wanted_bytes),
                   mib(r->capacity_bytes), end);
}

static void emit_known(berm_emit_t *emit, const char *key, bool is_known, uint64_t value) {
    if (is_known)
        berm__emit_u64(emit, key, value);
    else
        berm__emit_null(emit, key);
}

static void emit_end(berm_emit_t *emit, const stress_replay_result_t *r) {
    bool is_oom = !r->completed && r->failure[0] == '\0';
    berm__emit_bool(emit, "completed", r->completed);
    emit_known(emit, "oom_event", is_oom, r->oom_event);
    emit_known(emit, "oom_size_bytes", is_oom, r->oom_size_bytes);
    emit_known(emit, "oom_repeat", is_oom, r->oom_repeat);
    if (r->failure[0] != '\0')
        berm__emit_string(emit, "failure", r->failure);
    else
        berm__emit_null(emit, "failure");
}

static void emit_repeats(berm_emit_t *emit, const stress_replay_result_t *r) {
    berm__emit_array_begin(emit, "per_repeat");
    for (uint32_t i = 0; i < r->per_repeat_count; i++) {
        const stress_repeat_t *repeat = &r->per_repeat[i];
        berm__emit_object_begin(emit, NULL);
        berm__emit_u64(emit, "peak_reserved_bytes", repeat->peak_reserved_bytes);
        berm__emit_u64(emit, "moved_bytes", repeat->moved_bytes);
        berm__emit_u64(emit, "memory_calls", repeat->memory_calls);
        berm__emit_double(emit, "planned_share", repeat->planned_share, 4);
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
}

static void emit_driver(berm_emit_t *emit, const stress_replay_result_t *r) {
    berm__emit_object_begin(emit, "driver_calls");
    stress_calls_emit(emit, &r->driver_calls);
    berm__emit_object_end(emit);
    // On a real device berm's own calls are counted but not timed.
    bool is_timed = r->is_simulated || strcmp(r->allocator, "berm") != 0;
    emit_known(emit, "driver_us", is_timed, r->driver_ns / 1000);
    berm__emit_u64(emit, "host_waits", r->host_waits);
    emit_known(emit, "host_wait_us", r->is_simulated, r->host_wait_ns / 1000);
    emit_known(emit, "mappings_peak", r->is_simulated, r->mappings_peak);
    emit_known(emit, "va_peak_bytes", r->is_simulated, r->va_peak_bytes);
}

static void emit_findings(berm_emit_t *emit, const stress_replay_result_t *r) {
    emit_known(emit, "hazards", r->is_simulated, r->hazards);
    emit_known(emit, "alias_hazards", r->is_simulated, r->alias_hazards);
    emit_known(emit, "stale_map_hazards", r->is_simulated, r->stale_map_hazards);
    berm__emit_u64(emit, "audits", r->audits);
    berm__emit_u64(emit, "leaked_blocks", r->leaked_blocks);
    berm__emit_u64(emit, "check_failures", r->check_failures);
    if (r->hazards > 0)
        berm__emit_string(emit, "first_hazard", r->first_hazard);
    if (r->check_failures > 0)
        berm__emit_string(emit, "first_check_failure", r->first_check_failure);
}

void stress_replay_emit(berm_emit_t *emit, const stress_replay_result_t *r) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "allocator", r->allocator);
    berm__emit_string(emit, "trace", r->trace);
    berm__emit_u64(emit, "events", r->events);
    berm__emit_u64(emit, "source_oom_events", r->source_oom_events);
    berm__emit_u64(emit, "repeats", r->repeats);
    emit_end(emit, r);
    berm__emit_u64(emit, "peak_live_bytes", r->peak_live_bytes);
    berm__emit_u64(emit, "peak_allocated_bytes", r->peak_allocated_bytes);
    berm__emit_u64(emit, "peak_reserved_bytes", r->peak_reserved_bytes);
    berm__emit_double(emit, "reserved_over_live", r->reserved_over_live, 6);
    berm__emit_double(emit, "worst_reserved_over_live", r->worst_reserved_over_live, 6);
    berm__emit_u64(emit, "allocated_bytes_total", r->allocated_bytes_total);
    berm__emit_u64(emit, "moved_bytes_total", r->moved_bytes_total);
    emit_repeats(emit, r);
    emit_driver(emit, r);
    berm__emit_object_begin(emit, "largest_free_block_bytes");
    berm__emit_u64(emit, "end", r->largest_free_end_bytes);
    berm__emit_u64(emit, "at_peak", r->largest_free_at_peak_bytes);
    berm__emit_object_end(emit);
    berm__emit_u64(emit, "largest_obtainable_bytes", r->largest_obtainable_bytes);
    emit_findings(emit, r);
    berm__emit_object_begin(emit, "host_ns_per_op");
    berm__emit_double(emit, "mean", r->op_mean_ns, 1);
    berm__emit_u64(emit, "p50", r->op_p50_ns);
    berm__emit_u64(emit, "p99", r->op_p99_ns);
    berm__emit_u64(emit, "p999", r->op_p999_ns);
    berm__emit_object_end(emit);
    berm__emit_object_end(emit);
}
