// SPDX-License-Identifier: Apache-2.0
// The table of kinds of traces made by rule. Each is in a file gen_*.c of its own.
//
// Locks: none. May fail: on options that a kind does not take.
#include "stress/trace/generate.h"

#include <string.h>

#include "base/defs.h"
#include "stress/trace/gen_program.h"
#include "stress/trace/input.h"

enum {
    TAKES_REPEATS = TRACE_TAKES_ITERATIONS | TRACE_TAKES_CHANGE | TRACE_TAKES_LAG,
};

// The figures are checked by tests/unit/test_generate_kinds.c.
static const trace_kind_t kinds[] = {
    {"random", "independent allocs (73 %) and frees, as RMM's random-allocations benchmark",
     TRACE_TAKES_OPERATIONS | TRACE_TAKES_MAX_SIZE | TRACE_TAKES_LIVE_CAP | TRACE_TAKES_SIZES |
         TRACE_TAKES_LAG,
     gen_random, 1000, UINT64_C(34353178411), UINT64_C(31943768839)},
    {"gpt-train", "a transformer's training: micro-batches, gradients, optimizer",
     TAKES_REPEATS | TRACE_TAKES_LAYERS | TRACE_TAKES_HIDDEN | TRACE_TAKES_MICRO_BATCHES |
         TRACE_TAKES_STAGES | TRACE_TAKES_MOE | TRACE_TAKES_RECOMPUTE | TRACE_TAKES_OFFLOAD,
     gen_gpt_train, 48539, UINT64_C(38051381636), UINT64_C(18392809472)},
    {"llm-serve", "a language model serving: prompts, caches that grow, ends",
     TAKES_REPEATS | TRACE_TAKES_LIVE_CAP | TRACE_TAKES_REQUESTS | TRACE_TAKES_KV |
         TRACE_TAKES_CHUNK | TRACE_TAKES_ANSWER | TRACE_TAKES_NO_PREFIX,
     gen_llm_serve, 165858, UINT64_C(25989131264), UINT64_C(15264787456)},
    {"diffusion", "images by diffusion, of changing resolution and number",
     TAKES_REPEATS | TRACE_TAKES_REQUESTS | TRACE_TAKES_STEPS, gen_diffusion, 67366,
     UINT64_C(10373744200), UINT64_C(8482112000)},
    {"multi-model", "models of many sizes, loaded and unloaded as they are asked for",
     TAKES_REPEATS | TRACE_TAKES_LIVE_CAP | TRACE_TAKES_REQUESTS, gen_multi_model, 84170,
     UINT64_C(40894577072), UINT64_C(0)},
};

const trace_kind_t *trace_kinds(size_t *count) {
    *count = BERM_ARRAY_LENGTH(kinds);
    return kinds;
}

const trace_kind_t *trace_kind_find(const char *name) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

// The first option that is given and not among `takes`; NULL if there is none.
static const char *option_refused(const trace_generate_options_t *o, uint32_t takes) {
    const struct {
        const char *name;
        uint32_t bit;
        bool is_given;
    } options[] = {
        {"--operations", TRACE_TAKES_OPERATIONS, o->operations != 0},
        {"--max-size", TRACE_TAKES_MAX_SIZE, o->max_size_bytes != 0},
        {"--live-cap", TRACE_TAKES_LIVE_CAP, o->live_cap_bytes != 0},
        {"--sizes", TRACE_TAKES_SIZES, o->sizes != 0},
        {"--iterations", TRACE_TAKES_ITERATIONS, o->iterations != 0},
        {"--change", TRACE_TAKES_CHANGE, o->change_pct != 0},
        {"--lag", TRACE_TAKES_LAG, o->lag_events != 0},
        {"--layers", TRACE_TAKES_LAYERS, o->layers != 0},
        {"--hidden", TRACE_TAKES_HIDDEN, o->hidden != 0},
        {"--micro-batches", TRACE_TAKES_MICRO_BATCHES, o->micro_batches != 0},
        {"--stages", TRACE_TAKES_STAGES, o->stages != 0},
        {"--moe", TRACE_TAKES_MOE, o->moe_pct != 0},
        {"--recompute", TRACE_TAKES_RECOMPUTE, o->recompute},
        {"--offload", TRACE_TAKES_OFFLOAD, o->offload},
        {"--requests", TRACE_TAKES_REQUESTS, o->requests != 0},
        {"--kv", TRACE_TAKES_KV, o->kv != 0},
        {"--chunk", TRACE_TAKES_CHUNK, o->chunk_tokens != 0},
        {"--steps", TRACE_TAKES_STEPS, o->steps != 0},
        {"--answer", TRACE_TAKES_ANSWER, o->answer_tokens != 0},
        {"--no-prefix", TRACE_TAKES_NO_PREFIX, o->no_prefix},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(options); i++)
        if (options[i].is_given && (options[i].bit & takes) == 0)
            return options[i].name;
    return NULL;
}

trace_t *trace_generate(const char *name, const trace_generate_options_t *options, char *error,
                        size_t error_capacity) {
    static const trace_generate_options_t defaults = {0};
    const trace_kind_t *kind = trace_kind_find(name);
    if (options == NULL)
        options = &defaults;
    if (kind == NULL) {
        trace_fail(error, error_capacity, "%s: no such kind of trace; `berm gen --help` lists them",
                   name);
        return NULL;
    }
    const char *refused = option_refused(options, kind->takes);
    if (refused != NULL) {
        trace_fail(error, error_capacity, "%s: takes no %s; see berm gen --help", name, refused);
        return NULL;
    }
    return kind->generate(options, error, error_capacity);
}
