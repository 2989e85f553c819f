// SPDX-License-Identifier: Apache-2.0
// Deals a trace over streams: see deal.h. Events are passed on in their order to a builder, which
// refuses whatever would be no correct program.
//
// Bounds: O(LAGGING_MAX) an event while blocks lag, O(1) otherwise.
// Determinism: integers and base/rng.h only.
// Locks: none. May fail: for want of memory; nothing remains then.
#include "stress/trace/deal.h"

#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

enum {
    TURN_IN = 16,      // one alloc in so many gives the turn to a stream
    TURNS_EACH = 8,    // more do where a stream would have fewer turns than that
    SHARED_IN = 4,     // one block in so many is used by another stream when it is freed
    LAG_EVENTS = 100,  // and is done up to so many events later
    LAGGING_MAX = 256, // of those at one time; others are freed as recorded
};

typedef struct lagging {
    uint32_t block;
    uint64_t done_event;
} lagging_t;

typedef struct deal {
    const trace_t *trace;
    trace_builder_t *builder;
    berm_rng_t rng;
    uint64_t streams, turn; // whose turn it is
    uint64_t turn_in;       // one alloc in so many gives it to a stream
    lagging_t lagging[LAGGING_MAX];
    size_t lagging_count;
} deal_t;

// What other streams are done with by now.
static int deal_done(deal_t *d, uint64_t time_us) {
    for (size_t i = 0; i < d->lagging_count;) {
        if (d->lagging[i].done_event > d->builder->trace->event_count) {
            i++;
            continue;
        }
        uint32_t block = d->lagging[i].block;
        d->lagging_count--;
        memmove(&d->lagging[i], &d->lagging[i + 1], (d->lagging_count - i) * sizeof d->lagging[i]);
        if (trace_builder_free_done(d->builder, block, time_us) != 0)
            return -1;
    }
    return 0;
}

static int deal_free(deal_t *d, uint32_t block, uint64_t time_us) {
    bool is_shared = d->streams > 1 && berm__rng_below(&d->rng, SHARED_IN) == 0 &&
                     d->lagging_count < LAGGING_MAX && !d->trace->blocks[block].is_deferred;
    bool is_awaited = is_shared || d->trace->blocks[block].is_deferred;
    if (trace_builder_free(d->builder, block, is_awaited, time_us) != 0)
        return -1;
    if (is_shared)
        d->lagging[d->lagging_count++] = (lagging_t){
            block, d->builder->trace->event_count + berm__rng_below(&d->rng, LAG_EVENTS)};
    return 0;
}

static int deal_event(deal_t *d, const trace_event_t *event) {
    const trace_block_t *block = &d->trace->blocks[event->block];
    uint32_t number;
    if (deal_done(d, event->time_us) != 0)
        return -1;
    switch ((trace_op_t)event->op) {
    case TRACE_ALLOC:
        if (berm__rng_below(&d->rng, d->turn_in) == 0)
            d->turn = berm__rng_below(&d->rng, d->streams);
        return trace_builder_alloc(d->builder, block->size_bytes, d->turn, event->time_us, &number);
    case TRACE_FREE:
        return deal_free(d, event->block, event->time_us);
    case TRACE_FREE_DONE:
        return trace_builder_free_done(d->builder, event->block, event->time_us);
    case TRACE_OOM:
        return trace_builder_oom(d->builder, block->size_bytes, d->turn, event->time_us);
    }
    return -1;
}

trace_t *trace_deal(const trace_t *trace, uint64_t streams, uint64_t seed, char *error,
                    size_t error_capacity) {
    deal_t d = {.trace = trace,
                .builder = trace_builder_create(trace->path, trace->format),
                .streams = streams};
    uint64_t turn_in = trace->alloc_count / (streams * TURNS_EACH);
    d.turn_in = berm__max_u64(1, berm__min_u64(turn_in, TURN_IN));
    berm__rng_seed(&d.rng, seed);
    bool is_good = d.builder != NULL;
    for (size_t i = 0; i < trace->event_count && is_good; i++)
        is_good = deal_event(&d, &trace->events[i]) == 0;
    if (!is_good) {
        trace_fail(error, error_capacity, "%s: %s", trace->path,
                   d.builder == NULL || d.builder->failure == NULL ? "no memory for the trace"
                                                                   : d.builder->failure);
        trace_builder_destroy(d.builder);
        return NULL;
    }
    trace_t *dealt = d.builder->trace;
    dealt->live_before = trace->live_before;
    dealt->device = trace->device;
    dealt->source_reserved_at_peak_bytes = trace->source_reserved_at_peak_bytes;
    dealt->source_reserved_peak_bytes = trace->source_reserved_peak_bytes;
    return trace_builder_finish(d.builder, error, error_capacity);
}
