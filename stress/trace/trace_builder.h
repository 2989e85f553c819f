// SPDX-License-Identifier: Apache-2.0
// Internal to stress/trace: how readers and generators make a trace_t, event by event. The builder
// refuses whatever would break an invariant of trace.h; `failure` then says what, and the reader
// puts the file and line in front of it.
#ifndef STRESS_TRACE_TRACE_BUILDER_H
#define STRESS_TRACE_TRACE_BUILDER_H

#include "base/defs.h"
#include "stress/trace/trace.h"
#include "stress/trace/u64_map.h"

#define TRACE_SIZE_MAX (UINT64_C(1) << 62)

typedef enum trace_block_state {
    TRACE_BLOCK_LIVE,
    TRACE_BLOCK_FREED,   // free, with no other stream to wait for as far as known
    TRACE_BLOCK_AWAITED, // free, some stream is still using it
    TRACE_BLOCK_DONE,    // free, and no stream uses it any more
    TRACE_BLOCK_FAILED,  // an allocation that failed (TRACE_OOM); never live
} trace_block_state_t;

typedef struct trace_builder {
    trace_t *trace;
    uint8_t *states; // trace_block_state_t per block
    size_t event_capacity, block_capacity, stream_capacity;
    trace_u64_map_t stream_map; // stream value to index
    uint64_t live_bytes;
    uint64_t last_time_us;
    const char *failure; // static text about the last call that returned -1
} trace_builder_t;

// NULL without memory. `format` must be static text.
trace_builder_t *trace_builder_create(const char *path, const char *format);
void trace_builder_destroy(trace_builder_t *builder);

// Each appends one event: 0, or -1 with `failure` set and nothing changed.
BERM_NODISCARD int trace_builder_alloc(trace_builder_t *builder, uint64_t size_bytes,
                                       uint64_t stream, uint64_t time_us, uint32_t *block);
// With `is_awaited` the block is deferred from the start.
BERM_NODISCARD int trace_builder_free(trace_builder_t *builder, uint32_t block, bool is_awaited,
                                      uint64_t time_us);
// Allowed once per block, after its free; makes it deferred if it was not yet.
BERM_NODISCARD int trace_builder_free_done(trace_builder_t *builder, uint32_t block,
                                           uint64_t time_us);
BERM_NODISCARD int trace_builder_oom(trace_builder_t *builder, uint64_t size_bytes, uint64_t stream,
                                     uint64_t time_us);

static inline trace_block_state_t trace_builder_state(const trace_builder_t *builder,
                                                      uint32_t block) {
    return (trace_block_state_t)builder->states[block];
}

// Ends the trace: blocks still awaited get their TRACE_FREE_DONE here. Destroys the builder, also
// on failure, which is NULL with a line in `error`.
trace_t *trace_builder_finish(trace_builder_t *builder, char *error, size_t error_capacity);

// Checks every invariant of trace.h and that the counted figures agree with the events. 0, or -1
// with a line in `error`.
BERM_NODISCARD int trace_check(const trace_t *trace, char *error, size_t error_capacity);

#endif
