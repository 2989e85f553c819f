// SPDX-License-Identifier: Apache-2.0
// "gpt-train": the requests of a transformer's training as PyTorch makes them. Weights (bf16) and
// the optimizer's state (fp32, allocated in the first step) last. Each micro-batch has its own
// sequence length. Its forward pass keeps activations, its backward pass frees them in reverse
// among temporaries; gradients live from the first micro-batch to the end of the iteration.
//
// Pipeline: this program is the first stage, which runs stages - 1 forward passes ahead, then one
// forward and one backward in turn, the oldest micro-batch first. Recompute keeps a layer's last
// output only and runs its forward pass again. Offload lets the host have what a layer keeps. With
// experts the tokens of each differ from layer to layer.
//
// Streams: half compute, a micro-batch each in turn; on the others gradients are reduced and
// activations copied, which is where blocks are used by a second stream.
//
// Bounds: some hundred events a layer and micro-batch. Locks: none. May fail: as gen_program.h.
#include <stdlib.h>

#include "base/bits.h"
#include "stress/trace/gen_program.h"
#include "stress/trace/input.h"

enum {
    BATCH = 4,       // sequences of a micro-batch
    SEQUENCE = 2048, // tokens of the longest one
    SEQUENCE_STEP = 64,
    HEAD = 128, // channels of a head
    VOCABULARY = 50304,
    KEPT_MAX = 48,  // activations of a layer
    PARAMETERS = 8, // tensors with weights of a layer, apart from experts
    EXPERTS = 8,
    EXPERTS_PER_TOKEN = 2,
    PER_LAYER = PARAMETERS + 2 * EXPERTS,
    STATES = 3, // of the optimizer for each parameter: master weight and two moments
};

typedef struct kept {
    uint32_t block;
    uint64_t size_bytes;
    bool is_shared; // made on the copying stream
} kept_t;

// What one layer keeps of one micro-batch.
typedef struct layer_kept {
    kept_t all[KEPT_MAX];
    size_t count;
    bool is_offloaded;
} layer_kept_t;

typedef struct parameter {
    uint64_t elements;
    uint32_t weight, gradient, state[STATES];
} parameter_t;

typedef struct gpt {
    gen_program_t program;
    uint64_t layers, hidden, micro_batches, stages, moe_pct;
    bool recompute, offload;
    uint64_t compute_streams;
    parameter_t *parameters; // layers * PER_LAYER, then the embeddings and the last norm
    size_t parameter_count;
    layer_kept_t *kept; // of `stages` micro-batches in flight, layers each
    uint64_t *tokens;   // of each micro-batch
    uint64_t running;   // the micro-batch at work
    uint64_t side;      // counts uses of the other streams
    bool is_last;       // of the iteration, whose gradients are reduced
} gpt_t;

// --- small parts ---------------------------------------------------------------------------------

static uint64_t gpt_stream(const gpt_t *g) {
    return g->running % g->compute_streams;
}

// The next of those that reduce and copy.
static uint64_t gpt_side_stream(gpt_t *g) {
    uint64_t sides = g->program.streams - g->compute_streams;
    return sides == 0 ? gpt_stream(g) : g->compute_streams + g->side++ % sides;
}

static layer_kept_t *gpt_kept(gpt_t *g, uint64_t layer) {
    return &g->kept[g->running % g->stages * g->layers + layer];
}

// Bytes of one activation of `hidden` channels, bf16.
static uint64_t gpt_wide(const gpt_t *g) {
    return g->tokens[g->running] * g->hidden * 2;
}

static void keep(gpt_t *g, layer_kept_t *kept, uint64_t size_bytes) {
    if (kept->count == KEPT_MAX) {
        g->program.has_failed = true;
        return;
    }
    kept->all[kept->count++] =
        (kept_t){gen_alloc(&g->program, size_bytes, gpt_stream(g)), size_bytes, false};
}

static void drop(gpt_t *g, layer_kept_t *kept, size_t count) {
    while (count-- > 0 && kept->count > 0) {
        const kept_t *last = &kept->all[--kept->count];
        if (last->is_shared)
            gen_free_shared(&g->program, last->block);
        else
            gen_free(&g->program, last->block);
    }
}

static uint32_t temporary(gpt_t *g, uint64_t size_bytes) {
    return gen_alloc(&g->program, size_bytes, gpt_stream(g));
}

static void release(gpt_t *g, uint32_t block) {
    gen_free(&g->program, block);
}

// The gradient of a weight: the tensor itself the first time, then one to be added to it.
static void gradient(gpt_t *g, parameter_t *parameter) {
    uint32_t block = temporary(g, parameter->elements * 2);
    if (parameter->gradient == GEN_NO_BLOCK)
        parameter->gradient = block;
    else
        release(g, block);
}

static parameter_t *gpt_layer(gpt_t *g, uint64_t layer) {
    return &g->parameters[layer * PER_LAYER];
}

// --- forward -------------------------------------------------------------------------------------

static void forward_norm(gpt_t *g, layer_kept_t *kept) {
    keep(g, kept, gpt_wide(g));
    keep(g, kept, g->tokens[g->running] * 4); // mean
    keep(g, kept, g->tokens[g->running] * 4); // reciprocal deviation
}

// Projection, dropout with its mask, sum with what went around.
static void forward_residual(gpt_t *g, layer_kept_t *kept, uint32_t projected) {
    keep(g, kept, gpt_wide(g) / 2);
    uint32_t dropped = temporary(g, gpt_wide(g));
    release(g, projected);
    keep(g, kept, gpt_wide(g));
    release(g, dropped);
}

static void forward_attention(gpt_t *g, layer_kept_t *kept) {
    uint64_t statistics_bytes = g->tokens[g->running] * (g->hidden / HEAD) * 4;
    forward_norm(g, kept);
    keep(g, kept, 3 * gpt_wide(g)); // query, key, value
    uint32_t workspace = temporary(g, 2 * statistics_bytes);
    keep(g, kept, gpt_wide(g));
    keep(g, kept, statistics_bytes);
    keep(g, kept, 8); // seed and offset of the dropout inside
    keep(g, kept, 8);
    release(g, workspace);
    forward_residual(g, kept, temporary(g, gpt_wide(g)));
}

// Tokens that an expert gets: the fair share and up to moe_pct more or less. The same when the
// layer's forward pass runs again.
static uint64_t expert_tokens(const gpt_t *g, uint64_t layer, uint64_t expert) {
    berm_rng_t rng;
    berm__rng_seed(&rng, g->program.seed ^ ((g->running * g->layers + layer) * EXPERTS + expert));
    uint64_t fair = g->tokens[g->running] * EXPERTS_PER_TOKEN / EXPERTS;
    uint64_t tokens = fair * (100 - g->moe_pct + berm__rng_below(&rng, 2 * g->moe_pct + 1)) / 100;
    return tokens == 0 ? 1 : tokens;
}

static uint32_t forward_experts(gpt_t *g, layer_kept_t *kept, uint64_t layer) {
    gen_stack_t outputs = {0};
    keep(g, kept, g->tokens[g->running] * EXPERTS * 4); // the router's scores
    for (uint64_t i = 0; i < EXPERTS; i++) {
        uint64_t wide_bytes = expert_tokens(g, layer, i) * g->hidden * 2;
        keep(g, kept, wide_bytes);     // its tokens
        keep(g, kept, wide_bytes / 2); // inner layer
        keep(g, kept, wide_bytes / 2); // activation
        gen_push(&g->program, &outputs, wide_bytes, gpt_stream(g));
    }
    uint32_t combined = temporary(g, gpt_wide(g));
    gen_pop(&g->program, &outputs, outputs.count);
    return combined;
}

static void forward_layer(gpt_t *g, uint64_t layer) {
    layer_kept_t *kept = gpt_kept(g, layer);
    forward_attention(g, kept);
    forward_norm(g, kept);
    uint32_t out;
    if (g->moe_pct > 0) {
        out = forward_experts(g, kept, layer);
    } else {
        keep(g, kept, 4 * gpt_wide(g));
        keep(g, kept, 4 * gpt_wide(g));
        out = temporary(g, gpt_wide(g));
    }
    forward_residual(g, kept, out);
}

// All but the last output goes; the backward pass makes it again.
static void forward_forget(gpt_t *g, layer_kept_t *kept) {
    kept_t last = kept->all[--kept->count];
    drop(g, kept, kept->count);
    kept->all[kept->count++] = last;
}

// The host gets copies, and the copying stream is not done when the blocks are freed.
static void forward_offload(gpt_t *g, layer_kept_t *kept) {
    for (size_t i = 0; i < kept->count; i++) {
        gen_free_shared(&g->program, kept->all[i].block);
        kept->all[i].block = GEN_NO_BLOCK;
    }
    kept->is_offloaded = true;
}

static void forward(gpt_t *g, uint64_t micro_batch) {
    g->running = micro_batch;
    uint32_t input = temporary(g, g->tokens[micro_batch] * 8); // token numbers
    for (uint64_t layer = 0; layer < g->layers; layer++) {
        layer_kept_t *kept = gpt_kept(g, layer);
        forward_layer(g, layer);
        if (g->recompute)
            forward_forget(g, kept);
        // Not the last: it is needed at once.
        if (g->offload && layer + 1 < g->layers)
            forward_offload(g, kept);
    }
    release(g, input);
}

// --- backward ------------------------------------------------------------------------------------

static void backward_fetch(gpt_t *g, uint64_t layer) {
    layer_kept_t *kept = gpt_kept(g, layer);
    for (size_t i = 0; i < kept->count && kept->is_offloaded; i++) {
        kept->all[i].block = gen_alloc(&g->program, kept->all[i].size_bytes, gpt_side_stream(g));
        kept->all[i].is_shared = true;
    }
    kept->is_offloaded = false;
}

static void backward_norm(gpt_t *g, layer_kept_t *kept, parameter_t *scale) {
    gradient(g, scale);
    drop(g, kept, 3);
}

// Sum of two gradients, of which the first is the caller's.
static uint32_t backward_sum(gpt_t *g, uint32_t one, uint32_t two) {
    uint32_t sum = temporary(g, gpt_wide(g));
    release(g, one);
    release(g, two);
    return sum;
}

static uint32_t backward_experts(gpt_t *g, layer_kept_t *kept, parameter_t *of_layer) {
    for (size_t i = EXPERTS; i-- > 0;) {
        uint64_t wide_bytes = kept->all[kept->count - 3].size_bytes;
        uint32_t inner = temporary(g, wide_bytes / 2);
        gradient(g, &of_layer[PARAMETERS + 2 * i + 1]);
        drop(g, kept, 2);
        gen_touch(&g->program, wide_bytes, gpt_stream(g));
        gradient(g, &of_layer[PARAMETERS + 2 * i]);
        release(g, inner);
        drop(g, kept, 1);
    }
    drop(g, kept, 1);
    return temporary(g, gpt_wide(g));
}

static uint32_t backward_dense(gpt_t *g, layer_kept_t *kept, parameter_t *of_layer) {
    uint32_t activation = temporary(g, 4 * gpt_wide(g));
    gradient(g, &of_layer[7]);
    drop(g, kept, 1);
    uint32_t inner = temporary(g, 4 * gpt_wide(g));
    release(g, activation);
    drop(g, kept, 1);
    uint32_t out = temporary(g, gpt_wide(g));
    gradient(g, &of_layer[6]);
    release(g, inner);
    return out;
}

static uint32_t backward_attention(gpt_t *g, layer_kept_t *kept, parameter_t *of_layer) {
    uint32_t masked = temporary(g, gpt_wide(g));
    drop(g, kept, 2); // the sum and the mask
    uint32_t heads = temporary(g, gpt_wide(g));
    gradient(g, &of_layer[3]);
    release(g, masked);
    uint32_t three = temporary(g, 3 * gpt_wide(g));
    drop(g, kept, 5);
    release(g, heads);
    uint32_t out = temporary(g, gpt_wide(g));
    gradient(g, &of_layer[1]);
    release(g, three);
    return out;
}

// Takes the gradient of the layer's output and gives that of its input.
static uint32_t backward_layer(gpt_t *g, uint64_t layer, uint32_t incoming) {
    layer_kept_t *kept = gpt_kept(g, layer);
    parameter_t *of_layer = gpt_layer(g, layer);
    backward_fetch(g, layer);
    if (layer > 0)
        backward_fetch(g, layer - 1);
    if (g->recompute) {
        drop(g, kept, kept->count);
        forward_layer(g, layer);
    }
    drop(g, kept, 1); // the sum
    uint32_t masked = temporary(g, gpt_wide(g));
    drop(g, kept, 1);
    uint32_t inner =
        g->moe_pct > 0 ? backward_experts(g, kept, of_layer) : backward_dense(g, kept, of_layer);
    release(g, masked);
    uint32_t normed = temporary(g, gpt_wide(g));
    backward_norm(g, kept, &of_layer[4]);
    release(g, inner);
    uint32_t out = backward_sum(g, incoming, normed);
    uint32_t attention = backward_attention(g, kept, of_layer);
    normed = temporary(g, gpt_wide(g));
    backward_norm(g, kept, &of_layer[0]);
    release(g, attention);
    return backward_sum(g, out, normed);
}

// The layer's gradients, side by side in two buffers, on streams that reduce them among programs.
static void reduce(gpt_t *g, uint64_t layer) {
    uint64_t elements = 0;
    for (size_t i = 0; i < PER_LAYER; i++)
        elements += gpt_layer(g, layer)[i].elements;
    for (int i = 0; i < 2 && g->program.streams > 1; i++)
        gen_free_shared(&g->program, gen_alloc(&g->program, elements, gpt_side_stream(g)));
}

// Loss and its gradient, which the last stage has; others receive theirs.
static uint32_t backward_begin(gpt_t *g, parameter_t *head) {
    uint64_t scores = g->tokens[g->running] * VOCABULARY;
    if (g->stages > 1)
        return gen_alloc(&g->program, gpt_wide(g), gpt_side_stream(g));
    uint32_t normed = temporary(g, gpt_wide(g));
    uint32_t half = temporary(g, scores * 2);
    uint32_t full = temporary(g, scores * 4);
    release(g, half);
    uint32_t loss = temporary(g, 4);
    uint32_t of_full = temporary(g, scores * 4);
    release(g, full);
    uint32_t of_half = temporary(g, scores * 2);
    release(g, of_full);
    uint32_t out = temporary(g, gpt_wide(g));
    gradient(g, head);
    release(g, of_half);
    release(g, normed);
    release(g, loss);
    return out;
}

static void backward(gpt_t *g, uint64_t micro_batch) {
    g->running = micro_batch;
    g->is_last = micro_batch + 1 == g->micro_batches;
    parameter_t *embedding = &g->parameters[g->layers * PER_LAYER];
    uint32_t incoming = backward_begin(g, embedding);
    for (uint64_t layer = g->layers; layer-- > 0;) {
        incoming = backward_layer(g, layer, incoming);
        if (g->is_last)
            reduce(g, layer);
    }
    gradient(g, embedding);
    release(g, incoming);
}

// --- the program ---------------------------------------------------------------------------------

// Adam, one layer's tensors together; then the gradients go.
static void optimizer_step(gpt_t *g) {
    g->running = 0;
    gen_stack_t norms = {0};
    for (int i = 0; i < 8; i++)
        gen_push(&g->program, &norms, 4, gpt_stream(g));
    gen_pop(&g->program, &norms, norms.count);
    for (size_t first = 0; first < g->parameter_count; first += PER_LAYER) {
        gen_stack_t temporaries = {0};
        for (size_t i = first; i < first + PER_LAYER && i < g->parameter_count; i++) {
            parameter_t *parameter = &g->parameters[i];
            for (int j = 0; j < STATES && parameter->elements > 0; j++)
                if (parameter->state[j] == GEN_NO_BLOCK)
                    parameter->state[j] = temporary(g, parameter->elements * 4);
            if (parameter->elements > 0)
                gen_push(&g->program, &temporaries, parameter->elements * 4, gpt_stream(g));
        }
        gen_pop(&g->program, &temporaries, temporaries.count);
    }
    for (size_t i = 0; i < g->parameter_count; i++) {
        release(g, g->parameters[i].gradient);
        g->parameters[i].gradient = GEN_NO_BLOCK;
    }
}

static void iteration(gpt_t *g) {
    gen_iteration_begin(&g->program);
    for (uint64_t i = 0; i < g->micro_batches; i++) {
        uint64_t steps = SEQUENCE / SEQUENCE_STEP;
        uint64_t sequence = SEQUENCE_STEP * (steps / 2 + gen_below(&g->program, steps / 2 + 1));
        g->tokens[i] = BATCH * sequence;
    }
    uint64_t done = 0;
    for (uint64_t i = 0; i < g->micro_batches; i++) {
        forward(g, i);
        if (i + 1 >= g->stages)
            backward(g, done++);
    }
    while (done < g->micro_batches)
        backward(g, done++);
    optimizer_step(g);
    gen_iteration_end(&g->program);
}

static void parameters_make(gpt_t *g) {
    uint64_t h = g->hidden;
    const uint64_t dense[PARAMETERS] = {2 * h, 3 * h * h, 3 * h,     h * h,
                                        2 * h, h,         4 * h * h, 4 * h * h};
    for (size_t i = 0; i < g->parameter_count; i++) {
        parameter_t *parameter = &g->parameters[i];
        size_t of_layer = i % PER_LAYER;
        bool is_expert = of_layer >= PARAMETERS;
        parameter->elements = is_expert ? h * h / 2 : dense[of_layer];
        if (g->moe_pct > 0 ? of_layer == 6 || of_layer == 7 : is_expert)
            parameter->elements = 0;
        if (i == g->layers * PER_LAYER)
            parameter->elements = VOCABULARY * h;
        parameter->gradient = GEN_NO_BLOCK;
        for (int j = 0; j < STATES; j++)
            parameter->state[j] = GEN_NO_BLOCK;
        parameter->weight = parameter->elements == 0
                                ? GEN_NO_BLOCK
                                : gen_alloc(&g->program, parameter->elements * 2, 0);
    }
    (void)gen_alloc(&g->program, BERM_MIB(32), 0); // the matrix library's workspace
}

static bool gpt_open(gpt_t *g, const trace_generate_options_t *options) {
    g->micro_batches = gen_default(options->micro_batches, 8);
    g->stages = gen_default(options->stages, 1);
    g->layers = gen_default(options->layers, 24);
    g->hidden = gen_default(options->hidden, 2048);
    g->moe_pct = options->moe_pct;
    g->recompute = options->recompute;
    g->offload = options->offload;
    gen_begin(&g->program, "gpt-train", options);
    g->compute_streams = berm__min_u64(berm__max_u64(g->program.streams / 2, 1), g->micro_batches);
    g->parameter_count = (size_t)(g->layers * PER_LAYER + 1);
    g->parameters = calloc(g->parameter_count, sizeof *g->parameters);
    g->kept = calloc((size_t)(g->stages * g->layers), sizeof *g->kept);
    g->tokens = calloc((size_t)g->micro_batches, sizeof *g->tokens);
    return g->parameters != NULL && g->kept != NULL && g->tokens != NULL;
}

trace_t *gen_gpt_train(const trace_generate_options_t *options, char *error,
                       size_t error_capacity) {
    gpt_t g = {0};
    if (options->hidden % HEAD != 0) {
        trace_fail(error, error_capacity, "gpt-train: --hidden is no multiple of %d", HEAD);
        return NULL;
    }
    if (gpt_open(&g, options))
        parameters_make(&g);
    else
        g.program.has_failed = true;
    uint64_t iterations = gen_default(options->iterations, 3);
    for (uint64_t i = 0; i < iterations && !g.program.has_failed; i++)
        iteration(&g);
    free(g.parameters);
    free(g.kept);
    free(g.tokens);
    return gen_end(&g.program, error, error_capacity);
}
