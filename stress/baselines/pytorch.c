// SPDX-License-Identifier: Apache-2.0
// A model of PyTorch's native caching allocator, to compare with: its sizes, pools, best fit, split
// and merge rules, its miss path with release and retry, its events for record_stream.
//
// Sizes are pytorch_sizes.c, structures pytorch_blocks.c, events pytorch_events.c; this file is the
// order in which things are tried. Not modelled: graph captures and private pools, registered
// callbacks, age-based garbage collection (acts only by option), expandable segments.
// Bounds: a hit O(log n), as in PyTorch.
// Invariants (pytorch_audit): 1. blocks tile their segment; 2. no two free neighbours; 3. pools
// hold the free blocks and nothing else; 4. figures equal the sums over blocks. Locks: none; one
// thread. Driver: on a miss, and events. May fail: out of memory after the retry.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/baselines/baselines.h"
#include "stress/baselines/pytorch_blocks.h"

static stress_allocator_t *pytorch_create(const stress_allocator_options_t *options, char *error,
                                          size_t error_capacity) {
    stress_allocator_t *a = calloc(1, sizeof *a);
    if (a == NULL) {
        (void)snprintf(error, error_capacity, "pytorch: no memory");
        return NULL;
    }
    if (!pytorch_sizes_parse(&a->sizes, options->conf, error, error_capacity)) {
        free(a);
        return NULL;
    }
    a->limit_bytes = options->limit_bytes;
    ordered_set_init(&a->small);
    ordered_set_init(&a->large);
    addr_map_init(&a->live);
    berm__list_init(&a->all);
    return a;
}

static void pytorch_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    pytorch_events_synchronize(a);
    for (berm_list_t *at = a->all.next; at != &a->all; at = at->next) {
        const pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, all);
        // The first block of a segment has the segment's address; the spare has none.
        if (block->prev == NULL && block->addr != 0)
            (void)stress_driver()->mem_free(block->addr);
    }
    while (!berm__list_is_empty(&a->all))
        pytorch_block_destroy(BERM_CONTAINER_OF(a->all.next, pytorch_block_t, all));
    pytorch_events_destroy(a);
    addr_map_destroy(&a->live);
    free(a);
}

// The miss path: a segment of the driver; release what is oversize; release all and retry.
static pytorch_block_t *pytorch_miss(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    bool is_small = pytorch_is_small(size_bytes);
    uint64_t segment_bytes = pytorch_segment_bytes(&a->sizes, size_bytes);
    pytorch_block_t *block = pytorch_segment_create(a, segment_bytes, stream, is_small);
    if (block == NULL && pytorch_segments_release_oversize(a, segment_bytes, stream))
        block = pytorch_segment_create(a, segment_bytes, stream, is_small);
    if (block != NULL)
        return block;
    pytorch_events_synchronize(a);
    pytorch_segments_release(a);
    a->retries++;
    return pytorch_segment_create(a, segment_bytes, stream, is_small);
}

static stress_result_t pytorch_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                     uint64_t *addr) {
    if (request_bytes == 0 || request_bytes >= PYTORCH_REQUEST_LIMIT)
        return STRESS_OUT_OF_MEMORY;
    if (a->spare == NULL && (a->spare = pytorch_block_create(a)) == NULL)
        return STRESS_ERROR;
    pytorch_events_process(a);
    uint64_t size_bytes = pytorch_round(&a->sizes, request_bytes);
    pytorch_block_t *block = pytorch_pool_take(a, size_bytes, stream);
    if (block == NULL)
        block = pytorch_miss(a, size_bytes, stream);
    if (block == NULL)
        return a->is_driver_failing ? STRESS_ERROR : STRESS_OUT_OF_MEMORY;
    if (pytorch_must_split(&a->sizes, block->is_small, size_bytes, block->size_bytes))
        block = pytorch_block_split(a, block, size_bytes);
    if (!addr_map_insert(&a->live, block->addr, block)) {
        a->figures.active_bytes += block->size_bytes;
        pytorch_block_release(a, block);
        return STRESS_ERROR;
    }
    block->is_allocated = true;
    block->requested_bytes = request_bytes;
    stress_figures_t *f = &a->figures;
    f->requested_bytes += request_bytes;
    f->allocated_bytes += block->size_bytes;
    f->active_bytes += block->size_bytes;
    if (f->allocated_bytes > f->allocated_peak_bytes)
        f->allocated_peak_bytes = f->allocated_bytes;
    a->live_blocks++;
    *addr = block->addr;
    return STRESS_OK;
}

static stress_result_t pytorch_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                    void *stream) {
    (void)size_bytes;
    (void)stream;
    pytorch_block_t *block = addr_map_remove(&a->live, addr);
    if (block == NULL)
        return STRESS_ERROR;
    block->is_allocated = false;
    a->figures.requested_bytes -= block->requested_bytes;
    a->figures.allocated_bytes -= block->size_bytes;
    a->live_blocks--;
    stress_result_t result = STRESS_OK;
    if (block->use_count > 0)
        result = pytorch_events_insert(a, block);
    if (block->event_count == 0)
        pytorch_block_release(a, block);
    return result;
}

static stress_result_t pytorch_record_stream(stress_allocator_t *a, uint64_t addr, void *stream) {
    pytorch_block_t *block = addr_map_find(&a->live, addr);
    if (block == NULL)
        return STRESS_ERROR;
    if (stream == block->stream)
        return STRESS_OK;
    for (size_t i = 0; i < block->use_count; i++)
        if (block->uses[i] == stream)
            return STRESS_OK;
    if (block->use_count == block->use_capacity) {
        size_t capacity = block->use_capacity == 0 ? 4 : block->use_capacity * 2;
        void **uses = realloc(block->uses, capacity * sizeof *uses);
        if (uses == NULL)
            return STRESS_ERROR;
        block->uses = uses;
        block->use_capacity = capacity;
    }
    block->uses[block->use_count++] = stream;
    return STRESS_OK;
}

static void pytorch_figures(stress_allocator_t *a, stress_figures_t *figures) {
    *figures = a->figures;
}

static void pytorch_peaks_reset(stress_allocator_t *a) {
    a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

static uint64_t pytorch_largest_free(stress_allocator_t *a, void *stream) {
    pytorch_events_process(a);
    const pytorch_block_t *block = pytorch_pool_largest(a, false, stream);
    if (block != NULL)
        return block->size_bytes;
    block = pytorch_pool_largest(a, true, stream);
    if (block == NULL)
        return 0;
    // A larger request would go to the large pool.
    return block->size_bytes < PYTORCH_SMALL_MAX ? block->size_bytes : PYTORCH_SMALL_MAX;
}

static uint64_t pytorch_largest_obtainable(stress_allocator_t *a, void *stream) {
    uint64_t largest = pytorch_largest_free(a, stream);
    size_t free_bytes = 0, total_bytes = 0;
    if (stress_driver()->mem_get_info(&free_bytes, &total_bytes) != BERM_CU_SUCCESS)
        return largest;
    uint64_t releasable = pytorch_segments_releasable(a);
    uint64_t room = free_bytes + releasable;
    uint64_t below_limit = a->limit_bytes - (a->figures.reserved_bytes - releasable);
    room = room < below_limit ? room : below_limit;
    room = room / PYTORCH_SEGMENT_ROUND * PYTORCH_SEGMENT_ROUND;
    return room > largest ? room : largest;
}

static const char *pytorch_block_fault(const pytorch_block_t *block) {
    const pytorch_block_t *next = block->next;
    if (next != NULL && (next->prev != block || block->addr + block->size_bytes != next->addr))
        return "1: blocks do not tile their segment";
    if (next != NULL && block->node.is_member && next->node.is_member)
        return "2: two free neighbours were not joined";
    bool is_free = !block->is_allocated && block->event_count == 0;
    if (block->node.is_member != is_free)
        return "3: a pool and a block disagree";
    return NULL;
}

static int pytorch_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    const char *fault = NULL;
    stress_figures_t sum = {0};
    size_t free_count = 0;
    for (berm_list_t *at = a->all.next; at != &a->all && fault == NULL; at = at->next) {
        const pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, all);
        if (block == a->spare)
            continue;
        fault = pytorch_block_fault(block);
        sum.reserved_bytes += block->size_bytes;
        sum.active_bytes += block->node.is_member ? 0 : block->size_bytes;
        sum.allocated_bytes += block->is_allocated ? block->size_bytes : 0;
        sum.requested_bytes += block->is_allocated ? block->requested_bytes : 0;
        free_count += block->node.is_member;
    }
    if (fault == NULL && (!ordered_set_is_valid(&a->small) || !ordered_set_is_valid(&a->large) ||
                          free_count != a->small.count + a->large.count))
        fault = "3: a pool is not in order";
    const stress_figures_t *f = &a->figures;
    if (fault == NULL &&
        (sum.reserved_bytes != f->reserved_bytes || sum.active_bytes != f->active_bytes ||
         sum.allocated_bytes != f->allocated_bytes || sum.requested_bytes != f->requested_bytes))
        fault = "4: figures differ from the sums over blocks";
    if (fault == NULL)
        return 0;
    (void)snprintf(error, error_capacity, "pytorch: invariant %s", fault);
    return fault[0] - '0';
}

const stress_allocator_ops_t stress_pytorch_ops = {
    .name = "pytorch",
    .summary = "PyTorch's native caching allocator: best fit in 2 and 20 MiB segments",
    .create = pytorch_create,
    .destroy = pytorch_destroy,
    .alloc = pytorch_alloc,
    .free = pytorch_free,
    .record_stream = pytorch_record_stream,
    .figures = pytorch_figures,
    .peaks_reset = pytorch_peaks_reset,
    .largest_free = pytorch_largest_free,
    .largest_obtainable = pytorch_largest_obtainable,
    .audit = pytorch_audit,
};
