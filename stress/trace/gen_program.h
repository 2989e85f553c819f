// SPDX-License-Identifier: Apache-2.0
// Internal to stress/trace: a program being written, request by request, by the generators of
// gen_*.c. On top of the builder it has a sticky failure, blocks that other streams still use when
// they are freed, work that repeats, and requests that change.
//
// After a failure every call does nothing, so a generator asks once, at the end.
#ifndef STRESS_TRACE_GEN_PROGRAM_H
#define STRESS_TRACE_GEN_PROGRAM_H

#include "base/rng.h"
#include "stress/trace/generate.h"
#include "stress/trace/trace_builder.h"

#define GEN_NO_BLOCK UINT32_MAX

enum {
    GEN_LAGGING_MAX = 256,    // blocks that are freed and still used; the oldest is done beyond
    GEN_TEMPORARIES_MAX = 64, // of one gen_stack_t
};

typedef struct gen_lagging {
    uint32_t block;
    uint64_t done_event; // the free_done comes before the first event from this on
} gen_lagging_t;

typedef struct gen_program {
    const char *kind;
    trace_builder_t *builder; // NULL after the end
    berm_rng_t shape;         // of the work; starts again with each iteration
    berm_rng_t other;         // of changes and lags; goes on
    uint64_t seed;
    uint64_t streams;
    uint64_t lag_events;
    uint64_t change_pct;
    bool is_iterating; // requests may change
    bool has_failed;
    gen_lagging_t lagging[GEN_LAGGING_MAX];
    size_t lagging_count;
} gen_program_t;

// Blocks that are freed in the reverse order.
typedef struct gen_stack {
    uint32_t blocks[GEN_TEMPORARIES_MAX];
    size_t count;
} gen_stack_t;

// Fails (has_failed) for want of memory.
void gen_begin(gen_program_t *program, const char *kind, const trace_generate_options_t *options);
// Work that begins here is the same each time, but for changes.
void gen_iteration_begin(gen_program_t *program);
void gen_iteration_end(gen_program_t *program);
// The trace, or NULL with a line. Blocks that lag are done.
trace_t *gen_end(gen_program_t *program, char *error, size_t error_capacity);

uint32_t gen_alloc(gen_program_t *program, uint64_t size_bytes, uint64_t stream);
void gen_free(gen_program_t *program, uint32_t block); // GEN_NO_BLOCK: nothing
// A free while another stream still uses the block. With one stream it is a plain free.
void gen_free_shared(gen_program_t *program, uint32_t block);
// A request whose block is freed before anything else.
void gen_touch(gen_program_t *program, uint64_t size_bytes, uint64_t stream);

void gen_push(gen_program_t *program, gen_stack_t *stack, uint64_t size_bytes, uint64_t stream);
void gen_pop(gen_program_t *program, gen_stack_t *stack, size_t count);

static inline uint64_t gen_below(gen_program_t *program, uint64_t bound) {
    return berm__rng_below(&program->shape, bound);
}

// From least to most: the octave first, each alike, then uniform in it. Few are large.
uint64_t gen_heavy_tail(gen_program_t *program, uint64_t least, uint64_t most);

static inline uint64_t gen_default(uint64_t given, uint64_t otherwise) {
    return given != 0 ? given : otherwise;
}

static inline uint64_t gen_live_bytes(const gen_program_t *program) {
    return program->builder == NULL ? 0 : program->builder->live_bytes;
}

// The kinds, each in its file.
trace_t *gen_random(const trace_generate_options_t *options, char *error, size_t error_capacity);
trace_t *gen_gpt_train(const trace_generate_options_t *options, char *error, size_t error_capacity);
trace_t *gen_llm_serve(const trace_generate_options_t *options, char *error, size_t error_capacity);
trace_t *gen_diffusion(const trace_generate_options_t *options, char *error, size_t error_capacity);
trace_t *gen_multi_model(const trace_generate_options_t *options, char *error,
                         size_t error_capacity);

#endif
