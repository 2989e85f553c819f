// SPDX-License-Identifier: Apache-2.0
// Blocks, pools and segments of the PyTorch model; the order in which they are tried is pytorch.c.
//
// Layout: a segment is one cuMemAlloc and the list of blocks that tile it, by prev and next. Free
// blocks are in the pool (small or large) of their segment, ordered (stream, size, address).
// Bounds: search, insert and remove O(log n); split and join O(1) besides.
// Locks: none; one thread. Only segment functions call the driver.
#include "stress/baselines/pytorch_blocks.h"

#include <stdlib.h>

static ordered_key_t key_of(const void *stream, uint64_t size_bytes, uint64_t addr) {
    return (ordered_key_t){(uint64_t)(uintptr_t)stream, size_bytes, addr};
}

static pytorch_block_t *block_of(ordered_node_t *node) {
    return node == NULL ? NULL : BERM_CONTAINER_OF(node, pytorch_block_t, node);
}

pytorch_block_t *pytorch_block_create(stress_allocator_t *a) {
    pytorch_block_t *block = calloc(1, sizeof *block);
    if (block != NULL)
        berm__list_push_back(&a->all, &block->all);
    return block;
}

void pytorch_block_destroy(pytorch_block_t *block) {
    berm__list_remove(&block->all);
    free(block->uses);
    free(block);
}

ordered_set_t *pytorch_pool(stress_allocator_t *a, bool is_small) {
    return is_small ? &a->small : &a->large;
}

void pytorch_pool_insert(stress_allocator_t *a, pytorch_block_t *block) {
    ordered_set_insert(pytorch_pool(a, block->is_small), &block->node,
                       key_of(block->stream, block->size_bytes, block->addr));
}

void pytorch_pool_remove(stress_allocator_t *a, pytorch_block_t *block) {
    ordered_set_remove(pytorch_pool(a, block->is_small), &block->node);
}

pytorch_block_t *pytorch_pool_take(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    ordered_set_t *pool = pytorch_pool(a, pytorch_is_small(size_bytes));
    pytorch_block_t *block = block_of(ordered_set_at_least(pool, key_of(stream, size_bytes, 0)));
    if (block == NULL || block->stream != stream ||
        !pytorch_may_take(&a->sizes, size_bytes, block->size_bytes))
        return NULL;
    pytorch_pool_remove(a, block);
    return block;
}

pytorch_block_t *pytorch_pool_largest(stress_allocator_t *a, bool is_small, void *stream) {
    const ordered_set_t *pool = pytorch_pool(a, is_small);
    pytorch_block_t *block =
        block_of(ordered_set_below(pool, key_of(stream, UINT64_MAX, UINT64_MAX)));
    return block != NULL && block->stream == stream ? block : NULL;
}

pytorch_block_t *pytorch_block_split(stress_allocator_t *a, pytorch_block_t *block,
                                     uint64_t size_bytes) {
    pytorch_block_t *low = a->spare;
    a->spare = NULL;
    low->addr = block->addr;
    low->size_bytes = size_bytes;
    low->stream = block->stream;
    low->is_small = block->is_small;
    low->prev = block->prev;
    low->next = block;
    if (low->prev != NULL)
        low->prev->next = low;
    block->prev = low;
    block->addr += size_bytes;
    block->size_bytes -= size_bytes;
    pytorch_pool_insert(a, block);
    return low;
}

// Takes a free neighbour into `block`; nothing happens if it is not free.
static void block_join(stress_allocator_t *a, pytorch_block_t *block, pytorch_block_t *neighbour) {
    if (neighbour == NULL || !neighbour->node.is_member)
        return;
    pytorch_pool_remove(a, neighbour);
    if (block->prev == neighbour) {
        block->addr = neighbour->addr;
        block->prev = neighbour->prev;
        if (block->prev != NULL)
            block->prev->next = block;
    } else {
        block->next = neighbour->next;
        if (block->next != NULL)
            block->next->prev = block;
    }
    block->size_bytes += neighbour->size_bytes;
    pytorch_block_destroy(neighbour);
}

void pytorch_block_release(stress_allocator_t *a, pytorch_block_t *block) {
    a->figures.active_bytes -= block->size_bytes;
    block_join(a, block, block->prev);
    block_join(a, block, block->next);
    pytorch_pool_insert(a, block);
}

pytorch_block_t *pytorch_segment_create(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                        bool is_small) {
    if (size_bytes > a->limit_bytes || a->figures.reserved_bytes > a->limit_bytes - size_bytes)
        return NULL;
    pytorch_block_t *block = pytorch_block_create(a);
    if (block == NULL)
        return NULL;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_result_t result = stress_driver()->mem_alloc(&addr, size_bytes);
    a->is_driver_failing = result != BERM_CU_SUCCESS && result != BERM_CU_OUT_OF_MEMORY;
    if (result != BERM_CU_SUCCESS) {
        pytorch_block_destroy(block);
        return NULL;
    }
    block->addr = addr;
    block->size_bytes = size_bytes;
    block->stream = stream;
    block->is_small = is_small;
    a->figures.reserved_bytes += size_bytes;
    if (a->figures.reserved_bytes > a->figures.reserved_peak_bytes)
        a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    return block;
}

void pytorch_segment_destroy(stress_allocator_t *a, pytorch_block_t *block) {
    pytorch_pool_remove(a, block);
    // cuMemFree waits for the device by itself.
    (void)stress_driver()->mem_free(block->addr);
    a->figures.host_waits++;
    a->figures.reserved_bytes -= block->size_bytes;
    pytorch_block_destroy(block);
}

static bool block_is_segment(const pytorch_block_t *block) {
    return block->prev == NULL && block->next == NULL;
}

void pytorch_segments_release(stress_allocator_t *a) {
    ordered_set_t *pools[2] = {&a->large, &a->small};
    for (int i = 0; i < 2; i++) {
        for (ordered_node_t *at = ordered_set_first(pools[i]); at != NULL;) {
            pytorch_block_t *block = block_of(at);
            at = ordered_node_next(at);
            if (block_is_segment(block))
                pytorch_segment_destroy(a, block);
        }
    }
}

uint64_t pytorch_segments_releasable(const stress_allocator_t *a) {
    const ordered_set_t *pools[2] = {&a->large, &a->small};
    uint64_t sum_bytes = 0;
    for (int i = 0; i < 2; i++)
        for (ordered_node_t *at = ordered_set_first(pools[i]); at != NULL;
             at = ordered_node_next(at))
            if (block_is_segment(block_of(at)))
                sum_bytes += block_of(at)->size_bytes;
    return sum_bytes;
}

bool pytorch_segments_release_oversize(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    uint64_t split_max = a->sizes.max_split_bytes;
    if (split_max == UINT64_MAX)
        return false;
    uint64_t wanted = size_bytes < split_max ? split_max : size_bytes;
    pytorch_block_t *block = block_of(ordered_set_at_least(&a->large, key_of(stream, wanted, 0)));
    if (block != NULL && block->stream == stream) {
        if (!block_is_segment(block))
            return false;
        pytorch_segment_destroy(a, block);
        return true;
    }
    uint64_t released_bytes = 0;
    while (released_bytes < wanted) {
        block = pytorch_pool_largest(a, false, stream);
        if (block == NULL || block->size_bytes < split_max || !block_is_segment(block))
            return false;
        released_bytes += block->size_bytes;
        pytorch_segment_destroy(a, block);
    }
    return true;
}
