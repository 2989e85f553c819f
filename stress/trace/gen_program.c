// SPDX-License-Identifier: Apache-2.0
// A program being written: see gen_program.h.
//
// Bounds: O(GEN_LAGGING_MAX) an event while blocks lag, O(1) otherwise.
// Determinism: integers and base/rng.h only.
// Locks: none. May fail: for want of memory, kept in has_failed until gen_end says so.
#include "stress/trace/gen_program.h"

#include <string.h>

#include "base/bits.h"
#include "stress/trace/input.h"

enum {
    LAG_EVENTS_DEFAULT = 100,
    CHANGE_LEAST_PCT = 75, // of its size that a changed request has, and most
    CHANGE_MOST_PCT = 125,
};

#define SEED_OTHER UINT64_C(0x6c61677321)

void gen_begin(gen_program_t *p, const char *kind, const trace_generate_options_t *options) {
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->seed = options->seed;
    p->streams = gen_default(options->streams, 1);
    p->lag_events = gen_default(options->lag_events, LAG_EVENTS_DEFAULT);
    p->change_pct = options->change_pct;
    berm__rng_seed(&p->shape, p->seed);
    berm__rng_seed(&p->other, p->seed ^ SEED_OTHER);
    p->builder = trace_builder_create(kind, "generated");
    p->has_failed = p->builder == NULL;
}

void gen_iteration_begin(gen_program_t *p) {
    berm__rng_seed(&p->shape, p->seed + 1);
    p->is_iterating = true;
}

void gen_iteration_end(gen_program_t *p) {
    p->is_iterating = false;
}

static void lagging_done(gen_program_t *p, size_t at) {
    uint32_t block = p->lagging[at].block;
    p->lagging_count--;
    memmove(&p->lagging[at], &p->lagging[at + 1], (p->lagging_count - at) * sizeof p->lagging[at]);
    p->has_failed |= trace_builder_free_done(p->builder, block, 0) != 0;
}

// Before an event of the program: what other streams are done with by now.
static void lagging_step(gen_program_t *p) {
    for (size_t i = 0; i < p->lagging_count && !p->has_failed;) {
        if (p->lagging[i].done_event <= p->builder->trace->event_count)
            lagging_done(p, i);
        else
            i++;
    }
}

trace_t *gen_end(gen_program_t *p, char *error, size_t error_capacity) {
    while (p->lagging_count > 0 && !p->has_failed)
        lagging_done(p, 0);
    trace_builder_t *builder = p->builder;
    p->builder = NULL;
    if (!p->has_failed)
        return trace_builder_finish(builder, error, error_capacity);
    trace_fail(error, error_capacity, "%s: %s", p->kind,
               builder == NULL || builder->failure == NULL ? "no memory for the trace"
                                                           : builder->failure);
    if (builder != NULL)
        trace_builder_destroy(builder);
    return NULL;
}

static uint64_t size_changed(gen_program_t *p, uint64_t size_bytes) {
    if (!p->is_iterating || berm__rng_below(&p->other, 100) >= p->change_pct)
        return size_bytes;
    uint64_t pct =
        CHANGE_LEAST_PCT + berm__rng_below(&p->other, CHANGE_MOST_PCT - CHANGE_LEAST_PCT + 1);
    uint64_t changed_bytes = size_bytes * pct / 100;
    return changed_bytes == size_bytes || changed_bytes == 0 ? size_bytes + 1 : changed_bytes;
}

uint32_t gen_alloc(gen_program_t *p, uint64_t size_bytes, uint64_t stream) {
    if (p->has_failed)
        return GEN_NO_BLOCK;
    lagging_step(p);
    if (p->change_pct > 0)
        size_bytes = size_changed(p, size_bytes);
    uint32_t block = GEN_NO_BLOCK;
    if (p->has_failed || trace_builder_alloc(p->builder, size_bytes, stream, 0, &block) != 0) {
        p->has_failed = true;
        return GEN_NO_BLOCK;
    }
    return block;
}

void gen_free(gen_program_t *p, uint32_t block) {
    if (p->has_failed || block == GEN_NO_BLOCK)
        return;
    lagging_step(p);
    p->has_failed |= trace_builder_free(p->builder, block, false, 0) != 0;
}

void gen_free_shared(gen_program_t *p, uint32_t block) {
    if (p->streams == 1) {
        gen_free(p, block);
        return;
    }
    if (p->has_failed || block == GEN_NO_BLOCK)
        return;
    lagging_step(p);
    if (p->lagging_count == GEN_LAGGING_MAX)
        lagging_done(p, 0);
    p->has_failed |= trace_builder_free(p->builder, block, true, 0) != 0;
    uint64_t lag = 1 + berm__rng_below(&p->other, p->lag_events);
    if (!p->has_failed)
        p->lagging[p->lagging_count++] =
            (gen_lagging_t){block, p->builder->trace->event_count + lag};
}

void gen_touch(gen_program_t *p, uint64_t size_bytes, uint64_t stream) {
    gen_free(p, gen_alloc(p, size_bytes, stream));
}

void gen_push(gen_program_t *p, gen_stack_t *stack, uint64_t size_bytes, uint64_t stream) {
    if (stack->count < GEN_TEMPORARIES_MAX)
        stack->blocks[stack->count++] = gen_alloc(p, size_bytes, stream);
    else
        p->has_failed = true;
}

void gen_pop(gen_program_t *p, gen_stack_t *stack, size_t count) {
    while (count-- > 0 && stack->count > 0)
        gen_free(p, stack->blocks[--stack->count]);
}

uint64_t gen_heavy_tail(gen_program_t *p, uint64_t least, uint64_t most) {
    uint64_t octaves = berm__bit_highest(most / least) + 1, value;
    do {
        uint64_t from = least << gen_below(p, octaves);
        value = from + gen_below(p, from);
    } while (value > most);
    return value;
}
