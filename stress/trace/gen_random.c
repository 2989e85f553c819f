// SPDX-License-Identifier: Apache-2.0
// "random": the mix of RMM's random-allocations benchmark. Allocs and frees are independent, sizes
// uniform or log-uniform below a largest, and live bytes below a cap.
//
// Bounds: O(1) per operation; 4 bytes per operation besides the trace.
// Determinism: integers and base/rng.h only, no floating point and no libm.
// Locks: none. May fail: on contradicting options or for want of memory.
#include <stdlib.h>

#include "base/bits.h"
#include "stress/trace/gen_program.h"
#include "stress/trace/input.h"

enum {
    ALLOC_PERCENT = 73,  // of operations, while the cap allows it; RMM's figure
    SHARED_PERCENT = 25, // of frees, by option: another stream still uses the block
};

// A size from 1 to max. By octave: first the power of two below it, each alike, then uniform up to
// the next one; what falls above max is drawn again. This follows the logarithmic law to within
// the shape inside an octave, in integers.
static uint64_t draw_size(berm_rng_t *rng, uint64_t law, uint64_t max) {
    if (law == TRACE_SIZES_UNIFORM) {
        return 1 + berm__rng_below(rng, max);
    }
    uint64_t size;
    do {
        uint64_t octave = UINT64_C(1) << berm__rng_below(rng, berm__bit_highest(max) + 1);
        size = octave + berm__rng_below(rng, octave);
    } while (size > max);
    return size;
}

static int fill_random(trace_generate_options_t *options, char *error, size_t error_capacity) {
    if (options->operations == 0) {
        options->operations = 1000;
    }
    if (options->live_cap_bytes == 0) {
        options->live_cap_bytes = BERM_GIB(32);
    }
    if (options->max_size_bytes == 0) {
        options->max_size_bytes = berm__min_u64(BERM_MIB(4096), options->live_cap_bytes);
    }
    if (options->streams == 0) {
        options->streams = 1;
    }
    const char *what = NULL;
    if (options->operations > TRACE_MAP_NONE / 2) {
        what = "more operations than a trace holds (2^31)";
    } else if (options->max_size_bytes > options->live_cap_bytes) {
        what = "the largest size (--max-size) exceeds the cap on live bytes (--live-cap)";
    } else if (options->live_cap_bytes > TRACE_SIZE_MAX) {
        what = "the cap on live bytes (--live-cap) is larger than 2^62";
    } else if (options->sizes != TRACE_SIZES_UNIFORM && options->sizes != TRACE_SIZES_LOG) {
        what = "no such law of sizes";
    }
    if (what != NULL) {
        trace_fail(error, error_capacity, "random: %s", what);
        return -1;
    }
    return 0;
}

// One operation, decided as RMM's benchmark does: the size is drawn first, whether or not it is
// used; with nothing live it is always an alloc.
static void step_random(gen_program_t *p, const trace_generate_options_t *options, uint32_t *live,
                        size_t *live_count) {
    uint64_t size = draw_size(&p->shape, options->sizes, options->max_size_bytes);
    bool is_alloc = *live_count == 0;
    if (!is_alloc)
        is_alloc = gen_below(p, 100) < ALLOC_PERCENT &&
                   size <= options->live_cap_bytes - gen_live_bytes(p);
    if (is_alloc) {
        live[(*live_count)++] = gen_alloc(p, size, gen_below(p, options->streams));
        return;
    }
    size_t victim = (size_t)gen_below(p, *live_count);
    uint32_t block = live[victim];
    live[victim] = live[--*live_count];
    if (options->lag_events > 0 && berm__rng_below(&p->other, 100) < SHARED_PERCENT)
        gen_free_shared(p, block);
    else
        gen_free(p, block);
}

trace_t *gen_random(const trace_generate_options_t *given, char *error, size_t error_capacity) {
    trace_generate_options_t options = *given;
    if (fill_random(&options, error, error_capacity) != 0) {
        return NULL;
    }
    gen_program_t p;
    gen_begin(&p, "random", &options);
    uint32_t *live = malloc((size_t)options.operations * sizeof *live);
    size_t live_count = 0;
    p.has_failed |= live == NULL;
    for (uint64_t i = 0; i < options.operations && !p.has_failed; i++)
        step_random(&p, &options, live, &live_count);
    free(live);
    return gen_end(&p, error, error_capacity);
}
