// SPDX-License-Identifier: Apache-2.0
// No caching at all, to compare with: every request is cuMemAlloc, every free cuMemFree, which
// waits for the device. It has no record_stream: the harness waits for other streams before it
// frees.
//
// Reserved is what the device holds for the blocks, which the driver does not tell, so it is taken
// from their addresses: a block above 1 MiB has granules of its own, smaller ones share the granule
// of 2 MiB that they lie in.
// Bounds: O(1) besides the driver. Locks: none; one thread. May fail: out of memory.
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "stress/baselines/addr_map.h"
#include "stress/baselines/baselines.h"
#include "stress/device.h"

#define GRANULE_BYTES BERM_MIB(2)
#define SHARED_MAX    BERM_MIB(1)

typedef struct cudamalloc_block {
    uint64_t addr, requested_bytes;
} cudamalloc_block_t;

typedef struct cudamalloc_granule {
    uint64_t blocks;
} cudamalloc_granule_t;

struct stress_allocator {
    uint64_t limit_bytes, live_blocks;
    addr_map_t live;
    addr_map_t shared; // granules with small blocks in them
    stress_figures_t figures;
};

static stress_allocator_t *cudamalloc_create(const stress_allocator_options_t *options, char *error,
                                             size_t error_capacity) {
    stress_allocator_t *a = NULL;
    if (options->conf[0] != '\0')
        (void)snprintf(error, error_capacity, "cudamalloc: there are no options");
    else if ((a = calloc(1, sizeof *a)) == NULL)
        (void)snprintf(error, error_capacity, "cudamalloc: no memory");
    else
        a->limit_bytes = options->limit_bytes;
    return a;
}

static void cudamalloc_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    size_t position = 0;
    for (cudamalloc_block_t *block; (block = addr_map_next(&a->live, &position)) != NULL;) {
        (void)stress_driver()->mem_free(block->addr);
        free(block);
    }
    addr_map_destroy(&a->live);
    position = 0;
    for (void *granule; (granule = addr_map_next(&a->shared, &position)) != NULL;)
        free(granule);
    addr_map_destroy(&a->shared);
    free(a);
}

// Takes a block into the account, or out of it. False without memory.
static bool cudamalloc_reserve(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes) {
    if (size_bytes > SHARED_MAX) {
        a->figures.reserved_bytes += berm__align_up(size_bytes, GRANULE_BYTES);
        return true;
    }
    uint64_t at = berm__align_down(addr, GRANULE_BYTES);
    cudamalloc_granule_t *granule = addr_map_find(&a->shared, at);
    if (granule == NULL) {
        granule = calloc(1, sizeof *granule);
        if (granule == NULL || !addr_map_insert(&a->shared, at, granule)) {
            free(granule);
            return false;
        }
        a->figures.reserved_bytes += GRANULE_BYTES;
    }
    granule->blocks++;
    return true;
}

static void cudamalloc_unreserve(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes) {
    if (size_bytes > SHARED_MAX) {
        a->figures.reserved_bytes -= berm__align_up(size_bytes, GRANULE_BYTES);
        return;
    }
    uint64_t at = berm__align_down(addr, GRANULE_BYTES);
    cudamalloc_granule_t *granule = addr_map_find(&a->shared, at);
    if (--granule->blocks > 0)
        return;
    (void)addr_map_remove(&a->shared, at);
    free(granule);
    a->figures.reserved_bytes -= GRANULE_BYTES;
}

static stress_result_t cudamalloc_alloc(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                        uint64_t *addr) {
    (void)stream;
    if (size_bytes == 0 || size_bytes > UINT64_C(1) << 62)
        return STRESS_OUT_OF_MEMORY;
    stress_figures_t *f = &a->figures;
    // A small block may need a granule of its own: the limit holds in any case.
    uint64_t most_bytes = berm__align_up(size_bytes, GRANULE_BYTES);
    if (most_bytes > a->limit_bytes || f->reserved_bytes > a->limit_bytes - most_bytes)
        return STRESS_OUT_OF_MEMORY;
    cudamalloc_block_t *block = calloc(1, sizeof *block);
    if (block == NULL)
        return STRESS_ERROR;
    berm_cu_result_t result = stress_driver()->mem_alloc(&block->addr, size_bytes);
    if (result != BERM_CU_SUCCESS) {
        free(block);
        return result == BERM_CU_OUT_OF_MEMORY ? STRESS_OUT_OF_MEMORY : STRESS_ERROR;
    }
    bool is_counted = cudamalloc_reserve(a, block->addr, size_bytes);
    if (!is_counted || !addr_map_insert(&a->live, block->addr, block)) {
        if (is_counted)
            cudamalloc_unreserve(a, block->addr, size_bytes);
        (void)stress_driver()->mem_free(block->addr);
        free(block);
        return STRESS_ERROR;
    }
    block->requested_bytes = size_bytes;
    f->requested_bytes += size_bytes;
    f->allocated_bytes += size_bytes;
    f->active_bytes += size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    f->reserved_peak_bytes = berm__max_u64(f->reserved_peak_bytes, f->reserved_bytes);
    a->live_blocks++;
    *addr = block->addr;
    return STRESS_OK;
}

static stress_result_t cudamalloc_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                       void *stream) {
    (void)size_bytes;
    (void)stream;
    cudamalloc_block_t *block = addr_map_remove(&a->live, addr);
    if (block == NULL)
        return STRESS_ERROR;
    berm_cu_result_t result = stress_driver()->mem_free(addr);
    a->figures.requested_bytes -= block->requested_bytes;
    a->figures.allocated_bytes -= block->requested_bytes;
    a->figures.active_bytes -= block->requested_bytes;
    cudamalloc_unreserve(a, addr, block->requested_bytes);
    a->figures.host_waits++;
    a->live_blocks--;
    free(block);
    return result == BERM_CU_SUCCESS ? STRESS_OK : STRESS_ERROR;
}

static void cudamalloc_figures(stress_allocator_t *a, stress_figures_t *figures) {
    *figures = a->figures;
}

static void cudamalloc_peaks_reset(stress_allocator_t *a) {
    a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

// Nothing is cached.
static uint64_t cudamalloc_largest_free(stress_allocator_t *a, void *stream) {
    (void)a;
    (void)stream;
    return 0;
}

static uint64_t cudamalloc_largest_obtainable(stress_allocator_t *a, void *stream) {
    (void)stream;
    size_t free_bytes = 0, total_bytes = 0;
    (void)stress_driver()->mem_get_info(&free_bytes, &total_bytes);
    return berm__min_u64(free_bytes, a->limit_bytes - a->figures.reserved_bytes);
}

const stress_allocator_ops_t stress_cudamalloc_ops = {
    .name = "cudamalloc",
    .summary = "every request cuMemAlloc, every free cuMemFree",
    .create = cudamalloc_create,
    .destroy = cudamalloc_destroy,
    .alloc = cudamalloc_alloc,
    .free = cudamalloc_free,
    .figures = cudamalloc_figures,
    .peaks_reset = cudamalloc_peaks_reset,
    .largest_free = cudamalloc_largest_free,
    .largest_obtainable = cudamalloc_largest_obtainable,
};
