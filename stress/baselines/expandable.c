// SPDX-License-Identifier: Apache-2.0
// A model of PyTorch's caching allocator with expandable segments, to compare with: one growing
// segment of addresses a pool and stream, memory mapped page by page at its end or in its lowest
// gap, pages unmapped only when the device is full.
//
// Sizes, pools, joins and events are the PyTorch model's (pytorch_*.c), segments and pages
// expandable_space.c; this file is the order in which things are tried:
//   - best fit by size, but of two candidates the one whose free bytes plus the unmapped range
//     behind it are fewer, so that a growing tail is taken last;
//   - otherwise the lowest address where free plus unmapped bytes suffice, then a new segment;
//   - on failure wait for all events, unmap every whole free page of every stream, try once more.
// A block is split wherever 512 bytes remain. Not modelled: peers, captures, IPC, age-based
// collection; max_split_size, which PyTorch itself does not combine well with it, is refused.
// Bounds: a hit O(log n) besides the walk over candidates, as in PyTorch.
// Invariants (expandable_audit): 1. blocks tile their segment; 2. neighbours both free or both
// unmapped are joined; 3. pools and gaps hold what they should; 4. figures equal the sums over
// blocks; 5. a page has memory where no unmapped block covers it. Locks: none; one thread.
// Driver: on a miss, and events. May fail: out of memory after the retry.
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/expandable_space.h"

static const char *expandable_open(expandable_t *x, const stress_allocator_options_t *options) {
    x->prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    x->prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    x->prop.location.id = options->device;
    size_t granule_bytes = 0, free_bytes = 0, total_bytes = 0;
    if (stress_driver()->get_granularity(&granule_bytes, &x->prop,
                                         BERM_CU_MEM_GRANULARITY_MINIMUM) != BERM_CU_SUCCESS)
        return "the device has no virtual memory management";
    if (!berm__is_pow2(granule_bytes) || PYTORCH_SMALL_SEGMENT % granule_bytes != 0 ||
        x->base.sizes.large_segment_bytes % granule_bytes != 0)
        return "the device's granules do not divide the page sizes";
    if (stress_driver()->mem_get_info(&free_bytes, &total_bytes) != BERM_CU_SUCCESS)
        return "cuMemGetInfo failed";
    x->device_bytes = total_bytes;
    return NULL;
}

static stress_allocator_t *expandable_create(const stress_allocator_options_t *options, char *error,
                                             size_t error_capacity) {
    expandable_t *x = calloc(1, sizeof *x);
    char text[256] = "";
    const char *fault = "no memory";
    if (x != NULL) {
        if (!pytorch_sizes_parse(&x->base.sizes, options->conf, text, sizeof text))
            fault = text;
        else if (x->base.sizes.max_split_bytes != UINT64_MAX)
            fault = "max_split_size_mb does not go with expandable segments";
        else
            fault = expandable_open(x, options);
    }
    if (fault != NULL) {
        (void)snprintf(error, error_capacity, "expandable: %s", fault);
        free(x);
        return NULL;
    }
    stress_allocator_t *a = &x->base;
    a->limit_bytes = options->limit_bytes;
    ordered_set_init(&a->small);
    ordered_set_init(&a->large);
    addr_map_init(&a->live);
    berm__list_init(&a->all);
    ordered_set_init(&x->segments);
    ordered_set_init(&x->gaps[0]);
    ordered_set_init(&x->gaps[1]);
    return a;
}

static void expandable_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    pytorch_events_synchronize(a);
    expandable_segments_destroy(expandable_of(a));
    while (!berm__list_is_empty(&a->all))
        pytorch_block_destroy(BERM_CONTAINER_OF(a->all.next, pytorch_block_t, all));
    pytorch_events_destroy(a);
    addr_map_destroy(&a->live);
    free(expandable_of(a));
}

// What a block can become without moving: itself and the unmapped range behind it.
static uint64_t expandable_reach(const pytorch_block_t *block) {
    const pytorch_block_t *next = block->next;
    bool grows = next != NULL && expandable_is_unmapped(next);
    return block->size_bytes + (grows ? next->size_bytes : 0);
}

static pytorch_block_t *expandable_pool_take(stress_allocator_t *a, uint64_t size_bytes,
                                             void *stream) {
    ordered_set_t *pool = pytorch_pool(a, pytorch_is_small(size_bytes));
    const ordered_key_t key = {(uint64_t)(uintptr_t)stream, size_bytes, 0};
    ordered_node_t *at = ordered_set_at_least(pool, key);
    if (at == NULL || at->key.first != key.first)
        return NULL;
    pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, node);
    while ((at = ordered_node_next(at)) != NULL && at->key.first == key.first) {
        pytorch_block_t *next = BERM_CONTAINER_OF(at, pytorch_block_t, node);
        if (expandable_reach(next) >= expandable_reach(block))
            break;
        block = next;
    }
    pytorch_pool_remove(a, block);
    return block;
}

// Maps what the request lacks; the block, in no pool, or NULL.
static pytorch_block_t *expandable_grow(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    expandable_t *x = expandable_of(a);
    uint64_t segment_bytes = pytorch_segment_bytes(&a->sizes, size_bytes);
    // As PyTorch does: what is then mapped in whole pages may exceed the limit by almost a page.
    if (segment_bytes > a->limit_bytes ||
        a->figures.reserved_bytes > a->limit_bytes - segment_bytes)
        return NULL;
    pytorch_block_t *block =
        expandable_place_find(x, size_bytes, stream, pytorch_is_small(size_bytes));
    if (block == NULL)
        return NULL;
    if (expandable_is_unmapped(block) &&
        !expandable_block_map(x, block, berm__min_u64(block->size_bytes, size_bytes)))
        return NULL;
    while (block->size_bytes < size_bytes) {
        pytorch_block_t *next = block->next; // unmapped; it takes in the block before it
        uint64_t lacking = size_bytes - block->size_bytes;
        if (!expandable_block_map(x, next, berm__min_u64(next->size_bytes, lacking)))
            return NULL;
        block = next;
    }
    pytorch_pool_remove(a, block);
    return block;
}

static pytorch_block_t *expandable_miss(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    pytorch_block_t *block = expandable_grow(a, size_bytes, stream);
    if (block != NULL)
        return block;
    pytorch_events_synchronize(a);
    expandable_pages_release(expandable_of(a));
    a->retries++;
    return expandable_grow(a, size_bytes, stream);
}

static stress_result_t expandable_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                        uint64_t *addr) {
    if (request_bytes == 0 || request_bytes >= PYTORCH_REQUEST_LIMIT)
        return STRESS_OUT_OF_MEMORY;
    if (a->spare == NULL && (a->spare = pytorch_block_create(a)) == NULL)
        return STRESS_ERROR;
    a->is_driver_failing = false;
    pytorch_events_process(a);
    uint64_t size_bytes = pytorch_round(&a->sizes, request_bytes);
    pytorch_block_t *block = expandable_pool_take(a, size_bytes, stream);
    if (block == NULL)
        block = expandable_miss(a, size_bytes, stream);
    if (block == NULL)
        return a->is_driver_failing ? STRESS_ERROR : STRESS_OUT_OF_MEMORY;
    if (block->size_bytes - size_bytes >= PYTORCH_BLOCK_MIN)
        block = pytorch_block_split(a, block, size_bytes);
    stress_figures_t *f = &a->figures;
    f->active_bytes += block->size_bytes;
    if (!addr_map_insert(&a->live, block->addr, block)) {
        pytorch_block_release(a, block);
        return STRESS_ERROR;
    }
    block->is_allocated = true;
    block->requested_bytes = request_bytes;
    f->requested_bytes += request_bytes;
    f->allocated_bytes += block->size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    a->live_blocks++;
    *addr = block->addr;
    return STRESS_OK;
}

// --- what the PyTorch model does already ---------------------------------------------------------

static stress_result_t expandable_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                       void *stream) {
    return stress_pytorch_ops.free(a, addr, size_bytes, stream);
}

static stress_result_t expandable_record_stream(stress_allocator_t *a, uint64_t addr,
                                                void *stream) {
    return stress_pytorch_ops.record_stream(a, addr, stream);
}

static void expandable_figures(stress_allocator_t *a, stress_figures_t *figures) {
    stress_pytorch_ops.figures(a, figures);
}

static void expandable_peaks_reset(stress_allocator_t *a) {
    stress_pytorch_ops.peaks_reset(a);
}

static uint64_t expandable_largest_free(stress_allocator_t *a, void *stream) {
    return stress_pytorch_ops.largest_free(a, stream);
}

// At least this: the release frees so many pages, wherever the device has them.
static uint64_t expandable_largest_obtainable(stress_allocator_t *a, void *stream) {
    uint64_t largest = expandable_largest_free(a, stream);
    size_t free_bytes = 0, total_bytes = 0;
    if (stress_driver()->mem_get_info(&free_bytes, &total_bytes) != BERM_CU_SUCCESS)
        return largest;
    uint64_t releasable = expandable_pages_releasable(expandable_of(a));
    uint64_t below_limit = a->limit_bytes - (a->figures.reserved_bytes - releasable);
    uint64_t room = berm__min_u64(free_bytes + releasable, below_limit);
    room = room / a->sizes.large_segment_bytes * a->sizes.large_segment_bytes;
    return berm__max_u64(room, largest);
}

static int expandable_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    const char *fault = expandable_space_fault(expandable_of(a));
    if (fault == NULL)
        return 0;
    (void)snprintf(error, error_capacity, "expandable: invariant %s", fault);
    return fault[0] - '0';
}

const stress_allocator_ops_t stress_expandable_ops = {
    .name = "expandable",
    .summary = "PyTorch's allocator with expandable segments: pages mapped at a growing end",
    .create = expandable_create,
    .destroy = expandable_destroy,
    .alloc = expandable_alloc,
    .free = expandable_free,
    .record_stream = expandable_record_stream,
    .figures = expandable_figures,
    .peaks_reset = expandable_peaks_reset,
    .largest_free = expandable_largest_free,
    .largest_obtainable = expandable_largest_obtainable,
    .audit = expandable_audit,
};
