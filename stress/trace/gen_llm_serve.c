// SPDX-License-Identifier: Apache-2.0
// "llm-serve": a server of a language model of 7.6 billion parameters. Sequences arrive in bursts,
// with prompts and answers of heavy tails. Each step decodes one token of every running sequence
// and processes one chunk of the oldest waiting prompt. A sequence's cache (56 KiB a token, in 7
// groups of layers) is made anew, larger, every 64 tokens, or is blocks of 16 tokens. Some prompts
// begin with one of a few known prefixes, whose cache stays while there is room. When live bytes
// come near the cap, unused prefixes go, then the youngest sequence, which starts over later.
//
// Streams: the first decodes; prompts are processed on the others, so decoding uses blocks of
// theirs.
//
// Bounds: O(running sequences) a step. Locks: none. May fail: as gen_program.h.
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/gen_program.h"
#include "stress/trace/input.h"

enum {
    HIDDEN = 3584,
    INNER = 18944,
    VOCABULARY = 152064,
    LAYERS = 28,
    KEYS = 512,         // channels of keys, and of values, of a layer
    GROUPS = 7,         // of layers, whose cache is one tensor
    TOKEN_BYTES = 8192, // of one group's cache
    GROW_TOKENS = 64,
    BLOCK_TOKENS = 16,
    PROMPT_LEAST = 32,
    PROMPT_MOST = 16384,
    ANSWER_LEAST = 16,
    ANSWER_MOST = 2048,
    PREFIXES = 4,
    PREFIX_LEAST = 512,
    PREFIX_MOST = 4096,
    PREFIX_PCT = 40, // of sequences have one
    TOKENS_MAX = PREFIX_MOST + PROMPT_MOST + ANSWER_MOST,
    BLOCKS_MAX = TOKENS_MAX / BLOCK_TOKENS + 2,
    RUNNING_MAX = 64,
    LAYERS_MODELLED = 2, // whose temporaries a pass has; the others have the same again
};

typedef struct cached {
    uint32_t block;
    bool is_shared; // made on a stream that processes prompts
} cached_t;

typedef struct sequence {
    uint64_t number;
    uint64_t prompt, answer;  // tokens; the prompt without its prefix
    uint64_t done, processed; // tokens in the cache; of them of the prompt
    uint64_t room;            // tokens that the cache has room for
    int prefix;               // or -1
    cached_t *blocks;         // GROUPS, or as many as BLOCKS_MAX
    size_t block_count;
} sequence_t;

typedef struct prefix {
    uint64_t tokens, users;
    bool is_cached;
    uint32_t groups[GROUPS];
} prefix_t;

typedef struct server {
    gen_program_t program;
    uint64_t cap_bytes, chunk_tokens, answer_tokens, requests;
    uint64_t kv;
    bool no_prefix;
    sequence_t all[RUNNING_MAX]; // in the order in which they were let in
    size_t count;
    prefix_t prefixes[PREFIXES];
    uint64_t arrived;    // sequences so far
    sequence_t *waiting; // those that arrived and did not start, or start over
    size_t waiting_count;
} server_t;

// --- caches --------------------------------------------------------------------------------------

static void cache_add(server_t *s, sequence_t *q, uint64_t size_bytes, uint64_t stream) {
    if (q->block_count == BLOCKS_MAX) {
        s->program.has_failed = true;
        return;
    }
    q->blocks[q->block_count++] =
        (cached_t){gen_alloc(&s->program, size_bytes, stream), stream != 0};
}

static void cache_free(server_t *s, const cached_t *cached) {
    if (cached->is_shared)
        gen_free_shared(&s->program, cached->block);
    else
        gen_free(&s->program, cached->block);
}

// Each group's tensor is copied into a larger one.
static void cache_grow(server_t *s, sequence_t *q, uint64_t room, uint64_t stream) {
    for (size_t i = 0; i < GROUPS; i++) {
        cached_t old = {GEN_NO_BLOCK, false};
        if (q->block_count > i)
            old = q->blocks[i];
        cached_t grown = {gen_alloc(&s->program, room * TOKEN_BYTES, stream), stream != 0};
        q->blocks[i] = grown;
        cache_free(s, &old);
    }
    q->block_count = GROUPS;
    q->room = room;
}

static void cache_reserve(server_t *s, sequence_t *q, uint64_t tokens, uint64_t stream) {
    if (s->kv == TRACE_KV_GROW) {
        if (tokens > q->room)
            cache_grow(s, q, berm__align_up(tokens, GROW_TOKENS), stream);
        return;
    }
    for (; q->room < tokens && !s->program.has_failed; q->room += BLOCK_TOKENS)
        cache_add(s, q, BLOCK_TOKENS * TOKEN_BYTES * GROUPS, stream);
}

static void cache_end(server_t *s, sequence_t *q) {
    for (size_t i = 0; i < q->block_count; i++)
        cache_free(s, &q->blocks[i]);
    q->block_count = 0;
    q->room = q->done = q->processed = 0;
    if (q->prefix >= 0)
        s->prefixes[q->prefix].users--;
}

// --- passes --------------------------------------------------------------------------------------

// The temporaries of a pass over `tokens`, of which `sampled` get a next token.
static void pass(server_t *s, uint64_t tokens, uint64_t sampled, uint64_t stream) {
    gen_program_t *p = &s->program;
    gen_stack_t outer = {0}, inner = {0};
    gen_push(p, &outer, tokens * 8, stream);          // token numbers
    gen_push(p, &outer, tokens * HIDDEN * 2, stream); // embeddings
    for (int i = 0; i < LAYERS_MODELLED; i++) {
        gen_push(p, &outer, tokens * HIDDEN * 2, stream);
        gen_push(p, &inner, tokens * HIDDEN * 2, stream);
        gen_push(p, &inner, tokens * (HIDDEN + 2 * KEYS) * 2, stream);
        gen_push(p, &inner, tokens * HIDDEN * 2, stream);
        gen_pop(p, &inner, 3);
        gen_push(p, &inner, tokens * INNER * 4, stream);
        gen_push(p, &inner, tokens * INNER * 2, stream);
        gen_pop(p, &inner, 2);
    }
    if (sampled > 0) {
        gen_push(p, &inner, sampled * VOCABULARY * 2, stream);
        gen_push(p, &inner, sampled * VOCABULARY * 4, stream);
        gen_push(p, &inner, sampled * VOCABULARY * 4, stream);
        gen_push(p, &inner, sampled * 8, stream);
        gen_pop(p, &inner, 4);
    }
    gen_pop(p, &outer, outer.count);
}

static void prefix_cache(server_t *s, prefix_t *prefix, uint64_t stream) {
    for (int i = 0; i < GROUPS; i++)
        prefix->groups[i] = gen_alloc(&s->program, prefix->tokens * TOKEN_BYTES, stream);
    pass(s, prefix->tokens, 0, stream);
    prefix->is_cached = true;
}

static void prefix_drop(server_t *s, prefix_t *prefix) {
    for (int i = 0; i < GROUPS && prefix->is_cached; i++)
        gen_free_shared(&s->program, prefix->groups[i]);
    prefix->is_cached = false;
}

static void prefill_chunk(server_t *s, sequence_t *q) {
    uint64_t streams = s->program.streams;
    uint64_t stream = streams == 1 ? 0 : 1 + q->number % (streams - 1);
    prefix_t *prefix = q->prefix < 0 ? NULL : &s->prefixes[q->prefix];
    if (prefix != NULL && !prefix->is_cached)
        prefix_cache(s, prefix, stream);
    uint64_t tokens = berm__min_u64(q->prompt - q->processed, s->chunk_tokens);
    cache_reserve(s, q, q->processed + tokens, stream);
    q->processed += tokens;
    q->done = q->processed;
    pass(s, tokens, q->processed == q->prompt ? 1 : 0, stream);
}

// --- who runs ------------------------------------------------------------------------------------

static sequence_t arrive(server_t *s) {
    sequence_t q = {.number = s->arrived++, .prefix = -1};
    q.prompt = gen_heavy_tail(&s->program, PROMPT_LEAST, PROMPT_MOST);
    q.answer = gen_heavy_tail(&s->program, ANSWER_LEAST, s->answer_tokens);
    bool has_prefix = gen_below(&s->program, 100) < PREFIX_PCT;
    int which = (int)gen_below(&s->program, PREFIXES);
    if (has_prefix && !s->no_prefix)
        q.prefix = which;
    return q;
}

static void sequence_end(server_t *s, size_t at) {
    cache_end(s, &s->all[at]);
    free(s->all[at].blocks);
    s->count--;
    memmove(&s->all[at], &s->all[at + 1], (s->count - at) * sizeof s->all[at]);
}

// One or a burst, in three of ten steps.
static void arrivals(server_t *s) {
    if (gen_below(&s->program, 10) >= 3)
        return;
    uint64_t burst = gen_below(&s->program, 20) == 0 ? 8 : 1;
    while (burst-- > 0 && s->arrived < s->requests) {
        s->waiting[s->waiting_count++] = arrive(s);
    }
}

static uint64_t sequence_bytes(const sequence_t *q) {
    return (q->prompt + 2 * GROW_TOKENS) * TOKEN_BYTES * GROUPS;
}

// Lets waiting ones in, in order, while there is room for their prompts.
static void admit(server_t *s) {
    size_t taken = 0;
    uint64_t promised_bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        promised_bytes += (s->all[i].prompt - s->all[i].processed) * TOKEN_BYTES * GROUPS;
    while (taken < s->waiting_count && s->count < RUNNING_MAX) {
        sequence_t *q = &s->waiting[taken];
        promised_bytes += sequence_bytes(q);
        bool is_alone = s->count == 0;
        if (!is_alone && gen_live_bytes(&s->program) + promised_bytes + BERM_GIB(2) > s->cap_bytes)
            break;
        q->blocks = calloc(BLOCKS_MAX, sizeof *q->blocks);
        if (q->blocks == NULL) {
            s->program.has_failed = true;
            return;
        }
        if (q->prefix >= 0)
            s->prefixes[q->prefix].users++;
        s->all[s->count++] = *q;
        taken++;
    }
    s->waiting_count -= taken;
    memmove(s->waiting, s->waiting + taken, s->waiting_count * sizeof *s->waiting);
}

// Before a step: room for what it can add.
static void make_room(server_t *s) {
    for (int i = 0; i < PREFIXES; i++)
        if (gen_live_bytes(&s->program) + BERM_GIB(2) > s->cap_bytes && s->prefixes[i].users == 0)
            prefix_drop(s, &s->prefixes[i]);
    while (gen_live_bytes(&s->program) + BERM_GIB(1) > s->cap_bytes && s->count > 1) {
        sequence_t youngest = s->all[s->count - 1];
        sequence_end(s, s->count - 1);
        youngest.blocks = NULL;
        youngest.block_count = 0;
        youngest.done = youngest.processed = youngest.room = 0;
        memmove(s->waiting + 1, s->waiting, s->waiting_count * sizeof *s->waiting);
        s->waiting[0] = youngest;
        s->waiting_count++;
    }
}

static void step(server_t *s) {
    uint64_t decoding = 0;
    sequence_t *prompt = NULL;
    arrivals(s);
    make_room(s);
    admit(s);
    for (size_t i = 0; i < s->count; i++) {
        sequence_t *q = &s->all[i];
        if (q->processed < q->prompt) {
            prompt = prompt == NULL ? q : prompt;
            continue;
        }
        cache_reserve(s, q, q->done + 1, 0);
        q->done++;
        decoding++;
    }
    if (prompt != NULL)
        prefill_chunk(s, prompt);
    if (decoding > 0)
        pass(s, decoding, decoding, 0);
    for (size_t i = s->count; i-- > 0;)
        if (s->all[i].done >= s->all[i].prompt + s->all[i].answer)
            sequence_end(s, i);
}

static void iteration(server_t *s) {
    gen_iteration_begin(&s->program);
    s->arrived = 0;
    for (int i = 0; i < PREFIXES; i++)
        s->prefixes[i] =
            (prefix_t){.tokens = gen_heavy_tail(&s->program, PREFIX_LEAST, PREFIX_MOST)};
    while (!s->program.has_failed &&
           (s->arrived < s->requests || s->waiting_count > 0 || s->count > 0))
        step(s);
    for (int i = 0; i < PREFIXES; i++)
        prefix_drop(s, &s->prefixes[i]);
    gen_iteration_end(&s->program);
}

static void weights_make(server_t *s) {
    gen_program_t *p = &s->program;
    uint64_t h = HIDDEN;
    (void)gen_alloc(p, h * VOCABULARY * 2, 0);
    for (int i = 0; i < LAYERS; i++) {
        (void)gen_alloc(p, h * 2, 0);
        (void)gen_alloc(p, h * (h + 2 * KEYS) * 2, 0);
        (void)gen_alloc(p, (h + 2 * KEYS) * 2, 0);
        (void)gen_alloc(p, h * h * 2, 0);
        (void)gen_alloc(p, h * 2, 0);
        (void)gen_alloc(p, h * INNER * 4, 0);
        (void)gen_alloc(p, h * INNER * 2, 0);
    }
    (void)gen_alloc(p, h * 2, 0);
    (void)gen_alloc(p, h * VOCABULARY * 2, 0);
    (void)gen_alloc(p, BERM_MIB(32), 0); // the matrix library's workspace
}

trace_t *gen_llm_serve(const trace_generate_options_t *options, char *error,
                       size_t error_capacity) {
    server_t *s = calloc(1, sizeof *s);
    uint64_t requests = gen_default(options->requests, 250);
    sequence_t *waiting = calloc((size_t)requests, sizeof *waiting);
    if (s == NULL || waiting == NULL) {
        free(s);
        free(waiting);
        trace_fail(error, error_capacity, "llm-serve: no memory for the trace");
        return NULL;
    }
    s->waiting = waiting;
    s->requests = requests;
    s->cap_bytes = gen_default(options->live_cap_bytes, BERM_GIB(26));
    s->chunk_tokens = gen_default(options->chunk_tokens, 1024);
    s->answer_tokens = gen_default(options->answer_tokens, ANSWER_MOST);
    s->kv = options->kv;
    s->no_prefix = options->no_prefix;
    gen_begin(&s->program, "llm-serve", options);
    weights_make(s);
    uint64_t iterations = gen_default(options->iterations, 1);
    for (uint64_t i = 0; i < iterations && !s->program.has_failed; i++)
        iteration(s);
    for (size_t i = 0; i < s->count; i++) // after a failure
        free(s->all[i].blocks);
    trace_t *trace = gen_end(&s->program, error, error_capacity);
    free(waiting);
    free(s);
    return trace;
}
