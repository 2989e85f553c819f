// SPDX-License-Identifier: Apache-2.0
// A part of a trace: see select.h. What remains goes to a builder, which numbers it anew.
//
// Bounds: O(1) an event; 4 bytes of host memory a block. Locks: none. May fail: for want of memory;
// nothing remains then.
#include "stress/trace/select.h"

#include <stdlib.h>

#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

typedef struct selection {
    const trace_t *trace;
    trace_builder_t *builder;
    uint32_t *numbers; // new ones, of the blocks that remain
    uint64_t most_bytes;
} selection_t;

static int select_event(selection_t *s, const trace_event_t *event) {
    const trace_block_t *block = &s->trace->blocks[event->block];
    uint64_t stream = s->trace->streams[block->stream];
    uint32_t *number = &s->numbers[event->block];
    if (block->size_bytes > s->most_bytes)
        return 0;
    switch ((trace_op_t)event->op) {
    case TRACE_ALLOC:
        s->builder->trace->live_before += event->block < s->trace->live_before;
        return trace_builder_alloc(s->builder, block->size_bytes, stream, event->time_us, number);
    case TRACE_FREE:
        return trace_builder_free(s->builder, *number, block->is_deferred, event->time_us);
    case TRACE_FREE_DONE:
        return trace_builder_free_done(s->builder, *number, event->time_us);
    case TRACE_OOM:
        return trace_builder_oom(s->builder, block->size_bytes, stream, event->time_us);
    }
    return -1;
}

trace_t *trace_select_small(const trace_t *trace, uint64_t most_bytes, char *error,
                            size_t error_capacity) {
    selection_t s = {.trace = trace,
                     .builder = trace_builder_create(trace->path, trace->format),
                     .numbers = calloc(trace->block_count + 1, sizeof *s.numbers),
                     .most_bytes = most_bytes};
    bool is_good = s.builder != NULL && s.numbers != NULL;
    for (size_t i = 0; i < trace->event_count && is_good; i++)
        is_good = select_event(&s, &trace->events[i]) == 0;
    free(s.numbers);
    if (is_good) {
        s.builder->trace->device = trace->device;
        return trace_builder_finish(s.builder, error, error_capacity);
    }
    trace_fail(error, error_capacity, "%s: %s", trace->path,
               s.builder == NULL || s.builder->failure == NULL ? "no memory for the trace"
                                                               : s.builder->failure);
    trace_builder_destroy(s.builder);
    return NULL;
}
