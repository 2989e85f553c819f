// SPDX-License-Identifier: Apache-2.0
// RMM's real allocators: the pool and the arena of its headers, and berm as a resource of RMM. What
// is loaded and how is real.c and stress/real; `./run rmm-setup` sets it up.
//
// They have no record_stream: the harness waits for other streams before it frees. May fail: not
// set up.
#include "stress/baselines/baselines.h"
#include "stress/baselines/real.h"

static const real_source_t rmm_pool = {
    .name = "rmm-pool",
    .mode = "pool",
    .environment = "BERM_RMM_BASELINE",
    .library = "rmm/librmm_baseline.so",
    .set_up = "./run rmm-setup",
};

static const real_source_t rmm_arena = {
    .name = "rmm-arena",
    .mode = "arena",
    .environment = "BERM_RMM_BASELINE",
    .library = "rmm/librmm_baseline.so",
    .set_up = "./run rmm-setup",
};

static const real_source_t rmm_berm = {
    .name = "rmm-berm",
    .mode = "berm",
    .environment = "BERM_RMM_BERM",
    .library = "rmm/librmm_berm.so",
    .set_up = "./run rmm-setup",
};

static stress_allocator_t *pool_create(const stress_allocator_options_t *options, char *error,
                                       size_t error_capacity) {
    return real_create(&rmm_pool, options, error, error_capacity);
}

static stress_allocator_t *arena_create(const stress_allocator_options_t *options, char *error,
                                        size_t error_capacity) {
    return real_create(&rmm_arena, options, error, error_capacity);
}

static stress_allocator_t *berm_create(const stress_allocator_options_t *options, char *error,
                                       size_t error_capacity) {
    return real_create(&rmm_berm, options, error, error_capacity);
}

const stress_allocator_ops_t stress_rmm_pool_ops = {
    .name = "rmm-pool",
    .summary = "RMM's pool, growing from nothing (./run rmm-setup)",
    .is_per_process = true,
    .alignment_bytes = 256,
    .create = pool_create,
    .destroy = real_destroy,
    .alloc = real_alloc,
    .free = real_free,
    .figures = real_figures,
    .peaks_reset = real_peaks_reset,
    .largest_free = real_largest_free,
};

const stress_allocator_ops_t stress_rmm_arena_ops = {
    .name = "rmm-arena",
    .summary = "RMM's arena, of all memory that is free at the start (./run rmm-setup)",
    .is_per_process = true,
    .alignment_bytes = 256,
    .create = arena_create,
    .destroy = real_destroy,
    .alloc = real_alloc,
    .free = real_free,
    .figures = real_figures,
    .peaks_reset = real_peaks_reset,
    .largest_free = real_largest_free,
};

const stress_allocator_ops_t stress_rmm_berm_ops = {
    .name = "rmm-berm",
    .summary = "berm through its resource for RMM, include/berm_rmm.hpp (./run rmm-setup)",
    .is_per_process = true,
    .alignment_bytes = 512,
    .create = berm_create,
    .destroy = real_destroy,
    .alloc = real_alloc,
    .free = real_free,
    .figures = real_figures,
    .peaks_reset = real_peaks_reset,
    .largest_free = real_largest_free,
};
