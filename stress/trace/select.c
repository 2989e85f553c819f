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
    const trace_event_t *failed; // is made, and freed at once; NULL: none
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
        if (event == s->failed &&
            (trace_builder_alloc(s->builder, block->size_bytes, stream, event->time_us, number) ||
             trace_builder_free(s->builder, *number, false, event->time_us)))
            return -1;
        if (event == s->failed)
            return 0;
        return trace_builder_oom(s->builder, block->size_bytes, stream, event->time_us);
    }
    return -1;
}

static trace_t *select_run(const trace_t *trace, uint64_t most_bytes, const trace_event_t *failed,
                           char *error, size_t error_capacity) {
    selection_t s = {.trace = trace,
                     .builder = trace_builder_create(trace->path, trace->format),
                     .numbers = calloc(trace->block_count + 1, sizeof *s.numbers),
                     .most_bytes = most_bytes,
                     .failed = failed};
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

trace_t *trace_select_small(const trace_t *trace, uint64_t most_bytes, char *error,
                            size_t error_capacity) {
    return select_run(trace, most_bytes, NULL, error, error_capacity);
}

trace_t *trace_select_failed(const trace_t *trace, char *error, size_t error_capacity) {
    for (size_t i = trace->event_count; i-- > 0;)
        if (trace->events[i].op == TRACE_OOM)
            return select_run(trace, UINT64_MAX, &trace->events[i], error, error_capacity);
    trace_fail(error, error_capacity, "%s: no request failed in it", trace->path);
    return NULL;
}
