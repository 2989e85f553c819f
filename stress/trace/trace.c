// SPDX-License-Identifier: Apache-2.0
// Builds, checks and destroys a trace in memory. Reading is in read.c and the readers, writing in
// write_csv.c.
//
// Layout: events, blocks and streams are arrays that grow by doubling; an event names its block by
// index, a block its stream. A failed allocation (TRACE_OOM) has a block of its own, which carries
// its size and is never live.
// Bounds: O(1) amortised per event; 16 bytes per event, 17 per block.
// Invariants, checked by trace_check:
//   1. every index is in range;
//   2. the first event of a block is its ALLOC or OOM, in the order of block numbers;
//   3. a block is freed at most once, after its alloc;
//   4. a FREE of a deferred block has exactly one FREE_DONE after it, every other none;
//   5. sizes are 1 to 2^62, and the live ones never add up to more than 2^63;
//   6. the blocks live before the recording are the first, allocated first;
//   7. the counted figures are those of the events.
// Locks: none. May fail: for want of memory or by an invariant; the builder is unchanged then.
#include <stdlib.h>
#include <string.h>

#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

#define LIVE_MAX_BYTES (UINT64_C(1) << 63)
#define NO_MEMORY      "no memory for the trace"

// Makes room for one more item. realloc sizes cannot overflow: counts are below 2^32.
static int reserve_one(void **items, size_t count, size_t *capacity, size_t item_size) {
    if (count < *capacity) {
        return 0;
    }
    size_t bigger = *capacity == 0 ? 64 : *capacity * 2;
    void *moved = realloc(*items, bigger * item_size);
    if (moved == NULL) {
        return -1;
    }
    *items = moved;
    *capacity = bigger;
    return 0;
}

static int fail(trace_builder_t *builder, const char *what) {
    builder->failure = what;
    return -1;
}

trace_builder_t *trace_builder_create(const char *path, const char *format) {
    trace_builder_t *builder = calloc(1, sizeof *builder);
    trace_t *trace = calloc(1, sizeof *trace);
    char *copy = strdup(path);
    if (builder == NULL || trace == NULL || copy == NULL) {
        free(builder);
        free(trace);
        free(copy);
        return NULL;
    }
    trace->path = copy;
    trace->format = format;
    builder->trace = trace;
    return builder;
}

void trace_builder_destroy(trace_builder_t *builder) {
    if (builder == NULL) {
        return;
    }
    trace_destroy(builder->trace);
    trace_u64_map_destroy(&builder->stream_map);
    free(builder->states);
    free(builder);
}

void trace_destroy(trace_t *trace) {
    if (trace == NULL) {
        return;
    }
    free(trace->path);
    free(trace->events);
    free(trace->blocks);
    free(trace->streams);
    free(trace);
}

uint64_t trace_live_end_bytes(const trace_t *trace) {
    uint64_t live_bytes = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        uint64_t size_bytes = trace->blocks[trace->events[i].block].size_bytes;
        if (trace->events[i].op == TRACE_ALLOC)
            live_bytes += size_bytes;
        else if (trace->events[i].op == TRACE_FREE)
            live_bytes -= size_bytes;
    }
    return live_bytes;
}

static int add_stream(trace_builder_t *builder, uint64_t stream, uint32_t *index) {
    trace_t *trace = builder->trace;
    *index = trace_u64_map_get(&builder->stream_map, stream);
    if (*index != TRACE_MAP_NONE) {
        return 0;
    }
    void *streams = trace->streams;
    if (reserve_one(&streams, trace->stream_count, &builder->stream_capacity,
                    sizeof *trace->streams) != 0) {
        return fail(builder, NO_MEMORY);
    }
    trace->streams = streams;
    *index = (uint32_t)trace->stream_count;
    if (trace_u64_map_set(&builder->stream_map, stream, *index) != 0) {
        return fail(builder, NO_MEMORY);
    }
    trace->streams[trace->stream_count++] = stream;
    return 0;
}

static int reserve_event(trace_builder_t *builder) {
    trace_t *trace = builder->trace;
    void *events = trace->events;
    if (trace->event_count >= UINT32_MAX) {
        return fail(builder, "more than 2^32 events");
    }
    if (reserve_one(&events, trace->event_count, &builder->event_capacity, sizeof *trace->events)) {
        return fail(builder, NO_MEMORY);
    }
    trace->events = events;
    return 0;
}

static void push_event(trace_builder_t *builder, trace_op_t op, uint32_t block, uint64_t time_us) {
    trace_t *trace = builder->trace;
    trace->events[trace->event_count++] =
        (trace_event_t){.op = (uint8_t)op, .block = block, .time_us = time_us};
    builder->last_time_us = time_us;
}

// A new block and its first event, which is `op`.
static int add_block(trace_builder_t *builder, trace_op_t op, uint64_t size_bytes, uint64_t stream,
                     uint64_t time_us, uint32_t *block) {
    trace_t *trace = builder->trace;
    if (size_bytes == 0) {
        return fail(builder, "the size is 0");
    }
    if (size_bytes > TRACE_SIZE_MAX) {
        return fail(builder, "the size is larger than 2^62");
    }
    if (trace->block_count >= TRACE_MAP_NONE - 1) {
        return fail(builder, "more than 2^32 blocks");
    }
    if (reserve_event(builder) != 0) {
        return -1;
    }
    size_t capacity = builder->block_capacity;
    void *blocks = trace->blocks;
    if (reserve_one(&blocks, trace->block_count, &capacity, sizeof *trace->blocks) != 0) {
        return fail(builder, NO_MEMORY);
    }
    trace->blocks = blocks;
    void *states = builder->states;
    if (reserve_one(&states, trace->block_count, &builder->block_capacity, 1) != 0) {
        return fail(builder, NO_MEMORY);
    }
    builder->states = states;
    uint32_t index;
    if (add_stream(builder, stream, &index) != 0) {
        return -1;
    }
    *block = (uint32_t)trace->block_count++;
    trace->blocks[*block] = (trace_block_t){.size_bytes = size_bytes, .stream = index};
    builder->states[*block] = op == TRACE_ALLOC ? TRACE_BLOCK_LIVE : TRACE_BLOCK_FAILED;
    push_event(builder, op, *block, time_us);
    return 0;
}

int trace_builder_alloc(trace_builder_t *builder, uint64_t size_bytes, uint64_t stream,
                        uint64_t time_us, uint32_t *block) {
    trace_t *trace = builder->trace;
    if (size_bytes <= TRACE_SIZE_MAX && builder->live_bytes > LIVE_MAX_BYTES - size_bytes) {
        return fail(builder, "the live blocks add up to more than 2^63 bytes");
    }
    if (add_block(builder, TRACE_ALLOC, size_bytes, stream, time_us, block) != 0) {
        return -1;
    }
    builder->live_bytes += size_bytes;
    if (builder->live_bytes > trace->peak_live_bytes) {
        trace->peak_live_bytes = builder->live_bytes;
    }
    trace->alloc_count++;
    trace->live_at_end++;
    return 0;
}

int trace_builder_free(trace_builder_t *builder, uint32_t block, bool is_awaited,
                       uint64_t time_us) {
    trace_t *trace = builder->trace;
    if (trace_builder_state(builder, block) != TRACE_BLOCK_LIVE) {
        return fail(builder, "the block is not live");
    }
    if (reserve_event(builder) != 0) {
        return -1;
    }
    push_event(builder, TRACE_FREE, block, time_us);
    builder->states[block] = is_awaited ? TRACE_BLOCK_AWAITED : TRACE_BLOCK_FREED;
    trace->blocks[block].is_deferred = is_awaited;
    builder->live_bytes -= trace->blocks[block].size_bytes;
    trace->free_count++;
    trace->live_at_end--;
    return 0;
}

int trace_builder_free_done(trace_builder_t *builder, uint32_t block, uint64_t time_us) {
    trace_block_state_t state = trace_builder_state(builder, block);
    if (state != TRACE_BLOCK_FREED && state != TRACE_BLOCK_AWAITED) {
        return fail(builder, "the block was not freed before");
    }
    if (reserve_event(builder) != 0) {
        return -1;
    }
    push_event(builder, TRACE_FREE_DONE, block, time_us);
    builder->states[block] = TRACE_BLOCK_DONE;
    builder->trace->blocks[block].is_deferred = true;
    return 0;
}

int trace_builder_oom(trace_builder_t *builder, uint64_t size_bytes, uint64_t stream,
                      uint64_t time_us) {
    uint32_t block;
    return add_block(builder, TRACE_OOM, size_bytes, stream, time_us, &block);
}

trace_t *trace_builder_finish(trace_builder_t *builder, char *error, size_t error_capacity) {
    trace_t *trace = builder->trace;
    for (uint32_t block = 0; block < trace->block_count; block++) {
        if (trace_builder_state(builder, block) == TRACE_BLOCK_AWAITED &&
            trace_builder_free_done(builder, block, builder->last_time_us) != 0) {
            trace_fail(error, error_capacity, "%s: %s", trace->path, builder->failure);
            trace_builder_destroy(builder);
            return NULL;
        }
    }
    if (trace_check(trace, error, error_capacity) != 0) {
        trace_builder_destroy(builder);
        return NULL;
    }
    builder->trace = NULL;
    trace_builder_destroy(builder);
    return trace;
}

typedef struct check {
    const trace_t *trace;
    uint8_t *states;
    uint32_t next_block; // that must appear next
    size_t allocs, frees, live;
    uint64_t live_bytes, peak_bytes;
} check_t;

// Invariants 1, 2, 5 and 6 for the first event of a block.
static const char *check_first(check_t *check, const trace_event_t *event) {
    const trace_block_t *block = &check->trace->blocks[event->block];
    if (event->block != check->next_block++) {
        return "invariant 2: blocks do not appear in the order of their numbers";
    }
    if (block->stream >= check->trace->stream_count) {
        return "invariant 1: no such stream";
    }
    if (block->size_bytes == 0 || block->size_bytes > TRACE_SIZE_MAX) {
        return "invariant 5: size out of range";
    }
    if (event->op == TRACE_OOM) {
        check->states[event->block] = TRACE_BLOCK_FAILED;
        return event->block < check->trace->live_before ? "invariant 6: a failed block was live"
                                                        : NULL;
    }
    if (check->live_bytes > LIVE_MAX_BYTES - block->size_bytes) {
        return "invariant 5: the live blocks add up to more than 2^63";
    }
    check->live_bytes += block->size_bytes;
    check->allocs++;
    check->live++;
    if (check->live_bytes > check->peak_bytes) {
        check->peak_bytes = check->live_bytes;
    }
    return NULL;
}

// Invariants 1, 3 and 4 for one event.
static const char *check_event(check_t *check, size_t index) {
    const trace_event_t *event = &check->trace->events[index];
    if (event->block >= check->trace->block_count) {
        return "invariant 1: no such block";
    }
    if (event->op == TRACE_ALLOC || event->op == TRACE_OOM) {
        return check_first(check, event);
    }
    if (index < check->trace->live_before) {
        return "invariant 6: the blocks live before the recording do not come first";
    }
    if (event->block >= check->next_block) {
        return "invariant 2: freed before its alloc";
    }
    const trace_block_t *block = &check->trace->blocks[event->block];
    uint8_t *state = &check->states[event->block];
    if (event->op == TRACE_FREE) {
        if (*state != TRACE_BLOCK_LIVE) {
            return "invariant 3: freed while not live";
        }
        *state = block->is_deferred ? TRACE_BLOCK_AWAITED : TRACE_BLOCK_FREED;
        check->live_bytes -= block->size_bytes;
        check->frees++;
        check->live--;
        return NULL;
    }
    if (event->op != TRACE_FREE_DONE || *state != TRACE_BLOCK_AWAITED) {
        return event->op == TRACE_FREE_DONE ? "invariant 4: done while not awaited"
                                            : "invariant 1: no such op";
    }
    *state = TRACE_BLOCK_DONE;
    return NULL;
}

// Invariants 2, 4, 6 and 7 once all events have been seen.
static const char *check_end(const check_t *check) {
    const trace_t *trace = check->trace;
    if (check->next_block != trace->block_count) {
        return "invariant 2: a block has no event";
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        if (check->states[i] == TRACE_BLOCK_AWAITED ||
            (trace->blocks[i].is_deferred && check->states[i] != TRACE_BLOCK_DONE)) {
            return "invariant 4: a deferred block is never done";
        }
    }
    if (trace->live_before > trace->block_count) {
        return "invariant 6: more blocks live before than blocks";
    }
    if (check->allocs != trace->alloc_count || check->frees != trace->free_count ||
        check->live != trace->live_at_end || check->peak_bytes != trace->peak_live_bytes) {
        return "invariant 7: the counted figures are not those of the events";
    }
    return NULL;
}

int trace_check(const trace_t *trace, char *error, size_t error_capacity) {
    check_t check = {.trace = trace, .states = calloc(trace->block_count + 1, 1)};
    if (check.states == NULL) {
        trace_fail(error, error_capacity, "%s: " NO_MEMORY, trace->path);
        return -1;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const char *what = check_event(&check, i);
        if (what != NULL) {
            trace_fail(error, error_capacity, "%s: event %zu: %s", trace->path, i, what);
            free(check.states);
            return -1;
        }
    }
    const char *what = check_end(&check);
    if (what != NULL) {
        trace_fail(error, error_capacity, "%s: %s", trace->path, what);
    }
    free(check.states);
    return what == NULL ? 0 : -1;
}
