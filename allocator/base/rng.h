// SPDX-License-Identifier: Apache-2.0
// A small seeded generator (splitmix64, Steele et al. 2014) for tests, traces and stress. Not for
// secrets. The same seed gives the same sequence on every machine.
#ifndef BERM_BASE_RNG_H
#define BERM_BASE_RNG_H

#include "base/defs.h"

typedef struct berm_rng {
    uint64_t state;
} berm_rng_t;

static inline void berm__rng_seed(berm_rng_t *rng, uint64_t seed) {
    rng->state = seed;
}

static inline uint64_t berm__rng_next(berm_rng_t *rng) {
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Uniform in [0, bound); bound > 0. The bias (below bound / 2^64) does not matter here.
static inline uint64_t berm__rng_below(berm_rng_t *rng, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)berm__rng_next(rng) * bound) >> 64);
}

// Uniform in [0, 1).
static inline double berm__rng_unit(berm_rng_t *rng) {
    return (double)(berm__rng_next(rng) >> 11) * 0x1p-53;
}

#endif
