// SPDX-License-Identifier: Apache-2.0
// "multi-model": a server of 24 models from 0.2 to 13 GiB that do not fit together. A call picks a
// model, a few of them most often; a model that is not there is loaded, after those unused longest
// have been unloaded, until weights and temporaries stay below the cap. Calls have lengths of a
// heavy tail.
//
// Streams: models take one in turn. While a model is loaded through a staging buffer on the first
// stream, the model's own stream uses that buffer.
//
// Bounds: O(models) a call besides its events. Locks: none. May fail: as gen_program.h.
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/trace/gen_program.h"
#include "stress/trace/input.h"

enum {
    MODELS = 24,
    TENSORS = 6, // of a layer
    LAYERS_MAX = 48,
    TOKENS_LEAST = 64,
    TOKENS_MOST = 8192,
    LAYERS_MODELLED = 6, // whose temporaries a call has
};

typedef struct model {
    uint64_t layers, hidden, inner, vocabulary, stream;
    uint64_t bytes; // of the weights
    uint64_t last_call;
    bool is_loaded;
    uint32_t weights[LAYERS_MAX * TENSORS + 1];
} model_t;

typedef struct host {
    gen_program_t program;
    uint64_t cap_bytes, requests;
    model_t models[MODELS];
} host_t;

static void tensor_sizes(const model_t *m, uint64_t sizes[TENSORS]) {
    sizes[0] = m->hidden * 2;
    sizes[1] = 3 * m->hidden * m->hidden * 2;
    sizes[2] = m->hidden * m->hidden * 2;
    sizes[3] = m->hidden * 2;
    sizes[4] = m->hidden * m->inner * 2;
    sizes[5] = m->hidden * m->inner * 2;
}

static void models_make(host_t *h) {
    static const uint64_t hidden[] = {768, 1024, 1280, 1536, 2048, 2560, 3200, 4096};
    for (uint64_t i = 0; i < MODELS; i++) {
        model_t *m = &h->models[i];
        uint64_t sizes[TENSORS], layer_bytes = 0;
        m->hidden = hidden[gen_below(&h->program, BERM_ARRAY_LENGTH(hidden))];
        m->layers = 12 + 2 * gen_below(&h->program, 11);
        m->inner = m->hidden * (3 + gen_below(&h->program, 3)) + 128 * gen_below(&h->program, 8);
        m->vocabulary = 32000 + 1000 * gen_below(&h->program, 100);
        m->stream = i % h->program.streams;
        tensor_sizes(m, sizes);
        for (int j = 0; j < TENSORS; j++)
            layer_bytes += sizes[j];
        m->bytes = m->layers * layer_bytes + m->vocabulary * m->hidden * 2;
    }
}

static void unload(host_t *h, model_t *m) {
    for (uint64_t i = 0; i <= m->layers * TENSORS; i++)
        gen_free(&h->program, m->weights[i]);
    m->is_loaded = false;
}

// A layer at a time, through a buffer.
static void load(host_t *h, model_t *m) {
    gen_program_t *p = &h->program;
    uint64_t sizes[TENSORS];
    tensor_sizes(m, sizes);
    m->weights[0] = gen_alloc(p, m->vocabulary * m->hidden * 2, m->stream);
    for (uint64_t layer = 0; layer < m->layers; layer++) {
        uint32_t staging = gen_alloc(p, sizes[1] + sizes[4], 0);
        for (uint64_t i = 0; i < TENSORS; i++)
            m->weights[1 + layer * TENSORS + i] = gen_alloc(p, sizes[i], m->stream);
        if (m->stream == 0)
            gen_free(p, staging);
        else
            gen_free_shared(p, staging);
    }
    m->is_loaded = true;
}

static model_t *unused_longest(host_t *h) {
    model_t *found = NULL;
    for (int i = 0; i < MODELS; i++)
        if (h->models[i].is_loaded && (found == NULL || h->models[i].last_call < found->last_call))
            found = &h->models[i];
    return found;
}

static void call(host_t *h, const model_t *m) {
    gen_program_t *p = &h->program;
    gen_stack_t outer = {0}, inner = {0};
    uint64_t tokens = gen_heavy_tail(p, TOKENS_LEAST, TOKENS_MOST);
    uint64_t wide_bytes = tokens * m->hidden * 2;
    gen_push(p, &outer, tokens * 8, m->stream);
    gen_push(p, &outer, wide_bytes, m->stream);
    for (int i = 0; i < LAYERS_MODELLED; i++) {
        gen_push(p, &outer, 2 * wide_bytes, m->stream); // the layer's cache
        gen_push(p, &inner, wide_bytes, m->stream);
        gen_push(p, &inner, 3 * wide_bytes, m->stream);
        gen_push(p, &inner, wide_bytes, m->stream);
        gen_pop(p, &inner, 2);
        gen_push(p, &inner, tokens * m->inner * 2, m->stream);
        gen_push(p, &inner, tokens * m->inner * 2, m->stream);
        gen_pop(p, &inner, inner.count);
    }
    for (int i = 0; i < 12; i++) { // tokens of the answer
        gen_push(p, &inner, m->vocabulary * 4, m->stream);
        gen_push(p, &inner, m->vocabulary * 4, m->stream);
        gen_pop(p, &inner, inner.count);
    }
    gen_pop(p, &outer, outer.count);
}

// Popular ones: the least of two draws.
static model_t *pick(host_t *h) {
    uint64_t one = gen_below(&h->program, MODELS), two = gen_below(&h->program, MODELS);
    return &h->models[berm__min_u64(one, two)];
}

static void iteration(host_t *h) {
    gen_iteration_begin(&h->program);
    for (uint64_t i = 0; i < h->requests && !h->program.has_failed; i++) {
        model_t *m = pick(h);
        for (model_t *old; !m->is_loaded && (old = unused_longest(h)) != NULL &&
                           gen_live_bytes(&h->program) + m->bytes + BERM_GIB(3) > h->cap_bytes;)
            unload(h, old);
        if (!m->is_loaded)
            load(h, m);
        m->last_call = i;
        call(h, m);
    }
    for (model_t *old; (old = unused_longest(h)) != NULL && !h->program.has_failed;)
        unload(h, old);
    gen_iteration_end(&h->program);
}

trace_t *gen_multi_model(const trace_generate_options_t *options, char *error,
                         size_t error_capacity) {
    host_t *h = calloc(1, sizeof *h);
    if (h == NULL) {
        trace_fail(error, error_capacity, "multi-model: no memory for the trace");
        return NULL;
    }
    h->cap_bytes = gen_default(options->live_cap_bytes, BERM_GIB(40));
    h->requests = gen_default(options->requests, 300);
    gen_begin(&h->program, "multi-model", options);
    models_make(h);
    uint64_t iterations = gen_default(options->iterations, 1);
    for (uint64_t i = 0; i < iterations && !h->program.has_failed; i++)
        iteration(h);
    trace_t *trace = gen_end(&h->program, error, error_capacity);
    free(h);
    return trace;
}
