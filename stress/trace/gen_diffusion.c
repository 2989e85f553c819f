// SPDX-License-Identifier: Apache-2.0
// "diffusion": images by a latent diffusion model of three levels. Each request has its resolution
// and its number of images: a text encoder, steps of a network whose way down keeps what the way up
// joins, and a decoder whose activations are by far the largest. Convolutions ask for workspaces of
// odd sizes.
//
// Streams: requests take one in turn, and as many as there are streams, up to 4, are under way at a
// time, a step each in turn; the text encoder runs on the first, whose embeddings the others use.
//
// Bounds: about 400 events a step. Locks: none. May fail: as gen_program.h.
#include "base/bits.h"
#include "stress/trace/gen_program.h"

enum {
    LEVELS = 3,
    BLOCKS = 2, // of each level
    STEPS_LEAST = 8,
    STEPS_MOST = 12,
    TEXT_TOKENS = 77,
    TEXT_CHANNELS = 2048,
    IMAGES_MOST = 4,
    UNDER_WAY_MAX = 4,
    WEIGHTS = 700, // tensors
};

typedef struct resolution {
    uint64_t width, height;
} resolution_t;

static const resolution_t resolutions[] = {
    {1024, 1024}, {512, 512},  {768, 768},  {1152, 896}, {896, 1152},  {1216, 832},
    {832, 1216},  {1344, 768}, {1536, 640}, {640, 1536}, {1280, 1280}, {1536, 1536},
};

static const uint64_t channels_of[LEVELS] = {320, 640, 1280};

typedef struct job {
    bool is_running;
    resolution_t size;
    uint64_t images, steps, stream;
    uint32_t text, latents, schedule;
} job_t;

static uint64_t level_pixels(const job_t *job, int level) {
    return (job->size.width / 8 >> level) * (job->size.height / 8 >> level);
}

// Bytes of an activation of one level: images with and without the text, bf16.
static uint64_t level_bytes(const job_t *job, int level, uint64_t channels) {
    return 2 * job->images * level_pixels(job, level) * channels * 2;
}

static uint32_t residual(gen_program_t *p, const job_t *job, int level, uint64_t channels_in) {
    uint64_t in_bytes = level_bytes(job, level, channels_in);
    uint64_t out_bytes = level_bytes(job, level, channels_of[level]);
    uint32_t normed = gen_alloc(p, in_bytes, job->stream);
    uint32_t half = gen_alloc(p, out_bytes, job->stream);
    gen_touch(p, in_bytes / 3 + BERM_KIB(17), job->stream); // a workspace
    gen_free(p, normed);
    normed = gen_alloc(p, out_bytes, job->stream);
    gen_free(p, half);
    uint32_t out = gen_alloc(p, out_bytes, job->stream);
    gen_touch(p, out_bytes / 3 + BERM_KIB(17), job->stream);
    gen_free(p, normed);
    return out;
}

// In place but for its temporaries.
static void attention(gen_program_t *p, const job_t *job, int level) {
    gen_stack_t stack = {0};
    uint64_t bytes = level_bytes(job, level, channels_of[level]);
    gen_push(p, &stack, bytes, job->stream); // the norm
    gen_push(p, &stack, 3 * bytes, job->stream);
    gen_push(p, &stack, bytes, job->stream);
    gen_pop(p, &stack, 2);
    gen_push(p, &stack, 2 * job->images * TEXT_TOKENS * channels_of[level] * 4, job->stream);
    gen_push(p, &stack, bytes, job->stream);
    gen_pop(p, &stack, 2);
    gen_push(p, &stack, 8 * bytes, job->stream); // gated inner layer
    gen_push(p, &stack, 4 * bytes, job->stream);
    gen_pop(p, &stack, stack.count);
}

static uint32_t block(gen_program_t *p, const job_t *job, int level, uint32_t input,
                      uint64_t channels_in, bool keeps_input) {
    uint32_t out = residual(p, job, level, channels_in);
    if (!keeps_input)
        gen_free(p, input);
    if (level > 0)
        attention(p, job, level);
    return out;
}

// One step of the network: down, middle, up.
static void network(gen_program_t *p, const job_t *job) {
    uint32_t kept[LEVELS * BLOCKS + 1];
    size_t kept_count = 0;
    uint64_t channels = channels_of[0];
    gen_touch(p, 2 * job->images * 1280 * 2, job->stream); // the time's embedding
    uint32_t at = gen_alloc(p, level_bytes(job, 0, channels), job->stream);
    kept[kept_count++] = at;
    for (int level = 0; level < LEVELS; level++) {
        for (int i = 0; i < BLOCKS; i++) {
            at = block(p, job, level, at, channels, true);
            channels = channels_of[level];
            kept[kept_count++] = at;
        }
    }
    at = block(p, job, LEVELS - 1, at, channels, true);
    for (int level = LEVELS - 1; level >= 0; level--) {
        for (int i = 0; i < BLOCKS; i++) {
            uint32_t joined =
                gen_alloc(p, level_bytes(job, level, channels + channels_of[level]), job->stream);
            gen_free(p, at);
            gen_free(p, kept[--kept_count]);
            at = block(p, job, level, joined, channels + channels_of[level], false);
            channels = channels_of[level];
        }
    }
    gen_free(p, kept[0]);
    uint32_t noise = gen_alloc(p, 2 * job->images * level_pixels(job, 0) * 4 * 2, job->stream);
    gen_free(p, at);
    gen_touch(p, job->images * level_pixels(job, 0) * 4 * 4, job->stream);
    gen_free(p, noise);
}

// Image after image, to full resolution.
static void decode(gen_program_t *p, const job_t *job) {
    static const uint64_t channels[4] = {512, 512, 256, 128};
    uint64_t pixels = level_pixels(job, 0);
    for (uint64_t image = 0; image < job->images; image++) {
        uint32_t at = gen_alloc(p, pixels * channels[0] * 2, job->stream);
        for (int level = 0; level < 4; level++) {
            uint64_t bytes = (pixels << (2 * level)) * channels[level] * 2;
            uint32_t normed = gen_alloc(p, bytes, job->stream);
            uint32_t out = gen_alloc(p, bytes, job->stream);
            gen_touch(p, bytes / 2 + BERM_KIB(33), job->stream);
            gen_free(p, normed);
            gen_free(p, at);
            at = out;
            if (level < 3) {
                out = gen_alloc(p, 4 * bytes, job->stream); // twice as wide and as high
                gen_free(p, at);
                at = out;
            }
        }
        uint32_t picture = gen_alloc(p, (pixels << 6) * 3 * 4, job->stream);
        gen_free(p, at);
        gen_free(p, picture);
    }
}

static void job_begin(gen_program_t *p, job_t *job, uint64_t number, uint64_t steps) {
    job->is_running = true;
    job->size = resolutions[gen_below(p, BERM_ARRAY_LENGTH(resolutions))];
    job->images = 1 + gen_below(p, IMAGES_MOST);
    job->steps = STEPS_LEAST + gen_below(p, STEPS_MOST - STEPS_LEAST + 1);
    job->steps = gen_default(steps, job->steps);
    job->stream = number % p->streams;
    uint64_t text_bytes = 2 * job->images * TEXT_TOKENS * TEXT_CHANNELS * 2;
    job->text = gen_alloc(p, text_bytes, 0);
    for (int i = 0; i < 8; i++) {
        gen_stack_t stack = {0};
        gen_push(p, &stack, text_bytes, 0);
        gen_push(p, &stack, 3 * text_bytes, 0);
        gen_push(p, &stack, 4 * text_bytes, 0);
        gen_pop(p, &stack, stack.count);
    }
    job->latents = gen_alloc(p, job->images * level_pixels(job, 0) * 4 * 4, job->stream);
    job->schedule = gen_alloc(p, job->steps * 8, job->stream);
}

static void job_step(gen_program_t *p, job_t *job) {
    network(p, job);
    if (--job->steps > 0)
        return;
    decode(p, job);
    gen_free(p, job->schedule);
    gen_free(p, job->latents);
    if (job->stream == 0)
        gen_free(p, job->text);
    else
        gen_free_shared(p, job->text);
    job->is_running = false;
}

static void iteration(gen_program_t *p, const trace_generate_options_t *options) {
    uint64_t requests = gen_default(options->requests, 20);
    job_t jobs[UNDER_WAY_MAX] = {{0}};
    uint64_t under_way = berm__min_u64(p->streams, UNDER_WAY_MAX), begun = 0, running;
    gen_iteration_begin(p);
    do {
        running = 0;
        for (uint64_t i = 0; i < under_way; i++) {
            if (!jobs[i].is_running && begun < requests)
                job_begin(p, &jobs[i], begun++, options->steps);
            if (jobs[i].is_running)
                job_step(p, &jobs[i]);
            running += jobs[i].is_running;
        }
    } while (!p->has_failed && (running > 0 || begun < requests));
    gen_iteration_end(p);
}

trace_t *gen_diffusion(const trace_generate_options_t *options, char *error,
                       size_t error_capacity) {
    gen_program_t p;
    gen_begin(&p, "diffusion", options);
    for (int i = 0; i < WEIGHTS; i++) { // 6.4 GiB: mostly of the widest level
        uint64_t channels = channels_of[i % 7 < 4 ? 2 : i % 7 < 6 ? 1 : 0];
        (void)gen_alloc(&p, channels * channels * (i % 3 == 0 ? 9 : 4) * 2, 0);
        (void)gen_alloc(&p, channels * 2, 0);
    }
    uint64_t iterations = gen_default(options->iterations, 1);
    for (uint64_t i = 0; i < iterations && !p.has_failed; i++)
        iteration(&p, options);
    return gen_end(&p, error, error_capacity);
}
