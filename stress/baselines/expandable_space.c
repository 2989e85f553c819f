// SPDX-License-Identifier: Apache-2.0
// Segments of the expandable model: addresses, pages and the blocks that have none; the order in
// which things are tried is expandable.c.
//
// Layout: a segment reserves 9/8 of the device in pages of 2 MiB (small pool) or 20 MiB (large).
// Blocks tile it by prev and next: live, free (in the pool of the PyTorch model), awaited, or
// unmapped (in a set of gaps). One handle a page.
// Bounds: finding a place walks the gaps of a stream, of which there are few; mapping is one create
// and one map a page and one set-access; release walks the pools.
// Locks: none; one thread. May fail: as the driver does; a failed map leaves no page behind.
#include "stress/baselines/expandable_space.h"

#include <stdlib.h>

#include "base/bits.h"
#include "host/mem.h"

static ordered_key_t gap_key(const void *stream, uint64_t addr) {
    return (ordered_key_t){(uint64_t)(uintptr_t)stream, addr, 0};
}

static expandable_gap_t *gap_of(ordered_node_t *node) {
    return node == NULL ? NULL : BERM_CONTAINER_OF(node, expandable_gap_t, node);
}

static expandable_segment_t *segment_of(const expandable_t *x, uint64_t addr) {
    ordered_node_t *node = ordered_set_below(&x->segments, (ordered_key_t){addr + 1, 0, 0});
    return BERM_CONTAINER_OF(node, expandable_segment_t, node);
}

bool expandable_is_unmapped(const pytorch_block_t *block) {
    return block->requested_bytes == EXPANDABLE_UNMAPPED;
}

// Free or unmapped: nothing and nobody uses it.
static bool block_is_available(const pytorch_block_t *block) {
    return block != NULL && (block->node.is_member || expandable_is_unmapped(block));
}

// A page of 20 MiB is no power of two.
static uint64_t pages_of(const expandable_segment_t *segment, uint64_t bytes) {
    return (bytes + segment->page_bytes - 1) / segment->page_bytes;
}

// --- gaps ----------------------------------------------------------------------------------------

static void gap_insert(expandable_t *x, expandable_gap_t *gap, pytorch_block_t *block) {
    block->requested_bytes = EXPANDABLE_UNMAPPED;
    gap->block = block;
    ordered_set_insert(&x->gaps[block->is_small], &gap->node, gap_key(block->stream, block->addr));
}

static expandable_gap_t *gap_remove(expandable_t *x, const pytorch_block_t *block) {
    ordered_set_t *gaps = &x->gaps[block->is_small];
    expandable_gap_t *gap = gap_of(ordered_set_at_least(gaps, gap_key(block->stream, block->addr)));
    ordered_set_remove(gaps, &gap->node);
    return gap;
}

static void block_link_after(pytorch_block_t *block, pytorch_block_t *next) {
    next->prev = block;
    next->next = block->next;
    if (next->next != NULL)
        next->next->prev = next;
    block->next = next;
}

static void block_unlink(pytorch_block_t *block) {
    if (block->prev != NULL)
        block->prev->next = block->next;
    if (block->next != NULL)
        block->next->prev = block->prev;
    pytorch_block_destroy(block);
}

// Cuts a block that is in no set at `size_bytes`; `high` becomes the upper part.
static void block_cut(pytorch_block_t *block, pytorch_block_t *high, uint64_t size_bytes) {
    high->addr = block->addr + size_bytes;
    high->size_bytes = block->size_bytes - size_bytes;
    high->stream = block->stream;
    high->is_small = block->is_small;
    block->size_bytes = size_bytes;
    block_link_after(block, high);
}

// --- segments ------------------------------------------------------------------------------------

static void handles_free(expandable_segment_t *segment) {
    if (segment->handles != NULL)
        berm__mem_unreserve(segment->handles, segment->page_count * sizeof *segment->handles);
}

static bool segment_reserve(expandable_segment_t *segment, uint64_t wanted_bytes) {
    segment->page_count = pages_of(segment, wanted_bytes);
    // Most pages are never used: this costs memory only where it is written.
    segment->handles = berm__mem_reserve(segment->page_count * sizeof *segment->handles);
    return segment->handles != NULL &&
           stress_driver()->address_reserve(&segment->addr,
                                            segment->page_count * segment->page_bytes, 0, 0,
                                            0) == BERM_CU_SUCCESS;
}

static pytorch_block_t *segment_create(expandable_t *x, void *stream, bool is_small) {
    expandable_segment_t *segment = calloc(1, sizeof *segment);
    expandable_gap_t *gap = calloc(1, sizeof *gap);
    pytorch_block_t *block = pytorch_block_create(&x->base);
    if (segment != NULL) {
        segment->page_bytes = is_small ? PYTORCH_SMALL_SEGMENT : x->base.sizes.large_segment_bytes;
        segment->stream = stream;
        segment->is_small = is_small;
    }
    if (segment == NULL || gap == NULL || block == NULL ||
        !segment_reserve(segment, x->device_bytes + x->device_bytes / 8)) {
        if (segment != NULL)
            handles_free(segment);
        if (block != NULL)
            pytorch_block_destroy(block);
        free(segment);
        free(gap);
        return NULL;
    }
    block->addr = segment->addr;
    block->size_bytes = segment->page_count * segment->page_bytes;
    block->stream = stream;
    block->is_small = is_small;
    ordered_set_insert(&x->segments, &segment->node, (ordered_key_t){segment->addr, 0, 0});
    gap_insert(x, gap, block);
    return block;
}

static void segment_destroy(expandable_t *x, expandable_segment_t *segment) {
    (void)stress_driver()->address_free(segment->addr, segment->page_count * segment->page_bytes);
    ordered_set_remove(&x->segments, &segment->node);
    handles_free(segment);
    free(segment);
}

static bool place_has_room(const pytorch_block_t *block, uint64_t size_bytes) {
    uint64_t room_bytes = 0;
    for (; room_bytes < size_bytes && block_is_available(block); block = block->next)
        room_bytes += block->size_bytes;
    return room_bytes >= size_bytes;
}

pytorch_block_t *expandable_place_find(expandable_t *x, uint64_t size_bytes, void *stream,
                                       bool is_small) {
    ordered_node_t *at = ordered_set_at_least(&x->gaps[is_small], gap_key(stream, 0));
    for (; at != NULL && at->key.first == (uint64_t)(uintptr_t)stream; at = ordered_node_next(at)) {
        pytorch_block_t *block = gap_of(at)->block;
        if (block_is_available(block->prev))
            block = block->prev;
        if (place_has_room(block, size_bytes))
            return block;
    }
    pytorch_block_t *block = segment_create(x, stream, is_small);
    return block != NULL && place_has_room(block, size_bytes) ? block : NULL;
}

// --- pages ---------------------------------------------------------------------------------------

static void pages_drop(expandable_segment_t *segment, uint64_t begin, uint64_t end,
                       uint64_t mapped_end) {
    for (uint64_t i = begin; i < end; i++) {
        if (i < mapped_end)
            (void)stress_driver()->mem_unmap(segment->addr + i * segment->page_bytes,
                                             segment->page_bytes);
        (void)stress_driver()->mem_release(segment->handles[i]);
        segment->handles[i] = 0;
    }
}

// Memory for the pages [begin, end), or none of them.
static bool pages_map(expandable_t *x, expandable_segment_t *segment, uint64_t begin,
                      uint64_t end) {
    const stress_driver_t *d = stress_driver();
    const berm_cu_mem_access_t access = {x->prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    uint64_t page_bytes = segment->page_bytes, created = begin, mapped = begin;
    berm_cu_result_t result = BERM_CU_SUCCESS;
    x->base.is_driver_failing = false;
    for (; created < end && result == BERM_CU_SUCCESS; created += result == BERM_CU_SUCCESS)
        result = d->mem_create(&segment->handles[created], page_bytes, &x->prop, 0);
    x->base.is_driver_failing = result != BERM_CU_SUCCESS && result != BERM_CU_OUT_OF_MEMORY;
    if (result != BERM_CU_SUCCESS)
        segment->handles[created] = 0;
    for (; mapped < end && result == BERM_CU_SUCCESS; mapped += result == BERM_CU_SUCCESS)
        result = d->mem_map(segment->addr + mapped * page_bytes, page_bytes, 0,
                            segment->handles[mapped], 0);
    if (result == BERM_CU_SUCCESS)
        result = d->set_access(segment->addr + begin * page_bytes, (end - begin) * page_bytes,
                               &access, 1);
    if (result == BERM_CU_SUCCESS)
        return true;
    pages_drop(segment, begin, created, mapped);
    return false;
}

static void reserved_add(expandable_t *x, uint64_t bytes) {
    stress_figures_t *f = &x->base.figures;
    f->reserved_bytes += bytes;
    f->reserved_peak_bytes = berm__max_u64(f->reserved_peak_bytes, f->reserved_bytes);
}

bool expandable_block_map(expandable_t *x, pytorch_block_t *block, uint64_t size_bytes) {
    stress_allocator_t *a = &x->base;
    expandable_segment_t *segment = segment_of(x, block->addr);
    uint64_t begin = (block->addr - segment->addr) / segment->page_bytes;
    uint64_t bytes = pages_of(segment, size_bytes) * segment->page_bytes;
    pytorch_block_t *rest = NULL;
    if (bytes < block->size_bytes && (rest = pytorch_block_create(a)) == NULL)
        return false;
    if (!pages_map(x, segment, begin, begin + bytes / segment->page_bytes)) {
        if (rest != NULL)
            pytorch_block_destroy(rest);
        return false;
    }
    expandable_gap_t *gap = gap_remove(x, block);
    if (rest != NULL) {
        block_cut(block, rest, bytes);
        gap_insert(x, gap, rest);
    } else {
        free(gap);
    }
    block->requested_bytes = 0;
    reserved_add(x, bytes);
    a->figures.active_bytes += block->size_bytes; // the release takes it off again
    pytorch_block_release(a, block);
    return true;
}

// Joins an unmapped block, not yet in the set of gaps, with unmapped neighbours.
static void gap_join(expandable_t *x, pytorch_block_t *block) {
    pytorch_block_t *prev = block->prev, *next = block->next;
    if (prev != NULL && expandable_is_unmapped(prev)) {
        free(gap_remove(x, prev));
        block->addr = prev->addr;
        block->size_bytes += prev->size_bytes;
        block_unlink(prev);
    }
    if (next != NULL && expandable_is_unmapped(next)) {
        free(gap_remove(x, next));
        block->size_bytes += next->size_bytes;
        block_unlink(next);
    }
}

// The whole pages inside a block.
static void block_pages(const expandable_segment_t *segment, const pytorch_block_t *block,
                        uint64_t *begin, uint64_t *end) {
    uint64_t offset = block->addr - segment->addr;
    *begin = pages_of(segment, offset);
    *end = (offset + block->size_bytes) / segment->page_bytes;
}

// Unmaps what a free block has of whole pages; without host memory it stays as it is.
static void block_unmap(expandable_t *x, pytorch_block_t *block) {
    stress_allocator_t *a = &x->base;
    expandable_segment_t *segment = segment_of(x, block->addr);
    uint64_t begin, end;
    block_pages(segment, block, &begin, &end);
    if (begin >= end)
        return;
    expandable_gap_t *gap = calloc(1, sizeof *gap);
    pytorch_block_t *low = pytorch_block_create(a), *high = pytorch_block_create(a);
    bool is_good = gap != NULL && low != NULL && high != NULL &&
                   stress_driver()->stream_synchronize(block->stream) == BERM_CU_SUCCESS;
    uint64_t before = segment->addr + begin * segment->page_bytes - block->addr;
    uint64_t bytes = (end - begin) * segment->page_bytes;
    if (is_good) {
        a->figures.host_waits++;
        pages_drop(segment, begin, end, end);
        a->figures.reserved_bytes -= bytes;
        pytorch_pool_remove(a, block);
        if (before > 0) {
            block_cut(block, low, before);
            pytorch_pool_insert(a, block);
            block = low;
            low = NULL;
        }
        if (block->size_bytes > bytes) {
            block_cut(block, high, bytes);
            pytorch_pool_insert(a, high);
            high = NULL;
        }
        block->requested_bytes = EXPANDABLE_UNMAPPED;
        gap_join(x, block);
        gap_insert(x, gap, block);
        gap = NULL;
    }
    if (low != NULL)
        pytorch_block_destroy(low);
    if (high != NULL)
        pytorch_block_destroy(high);
    free(gap);
}

void expandable_pages_release(expandable_t *x) {
    for (int is_small = 0; is_small < 2; is_small++) {
        // What an unmapping leaves in the pool has no whole page: a second visit does nothing.
        ordered_node_t *at = ordered_set_first(pytorch_pool(&x->base, is_small == 1));
        while (at != NULL) {
            pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, node);
            at = ordered_node_next(at);
            block_unmap(x, block);
        }
        for (at = ordered_set_first(&x->gaps[is_small]); at != NULL;) {
            expandable_gap_t *gap = gap_of(at);
            at = ordered_node_next(at);
            if (gap->block->prev != NULL || gap->block->next != NULL)
                continue;
            segment_destroy(x, segment_of(x, gap->block->addr));
            pytorch_block_destroy(gap->block);
            ordered_set_remove(&x->gaps[is_small], &gap->node);
            free(gap);
        }
    }
}

uint64_t expandable_pages_releasable(const expandable_t *x) {
    const ordered_set_t *pools[2] = {&x->base.large, &x->base.small};
    uint64_t sum_bytes = 0, begin, end;
    for (int i = 0; i < 2; i++) {
        for (ordered_node_t *at = ordered_set_first(pools[i]); at != NULL;
             at = ordered_node_next(at)) {
            const pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, node);
            const expandable_segment_t *segment = segment_of(x, block->addr);
            block_pages(segment, block, &begin, &end);
            sum_bytes += begin < end ? (end - begin) * segment->page_bytes : 0;
        }
    }
    return sum_bytes;
}

void expandable_segments_destroy(expandable_t *x) {
    for (ordered_node_t *at; (at = ordered_set_first(&x->segments)) != NULL;) {
        expandable_segment_t *segment = BERM_CONTAINER_OF(at, expandable_segment_t, node);
        (void)stress_driver()->stream_synchronize(segment->stream);
        for (uint64_t i = 0; i < segment->page_count; i++)
            if (segment->handles[i] != 0)
                pages_drop(segment, i, i + 1, i + 1);
        segment_destroy(x, segment);
    }
    for (int i = 0; i < 2; i++) {
        for (ordered_node_t *at; (at = ordered_set_first(&x->gaps[i])) != NULL;) {
            ordered_set_remove(&x->gaps[i], at);
            free(gap_of(at));
        }
    }
}

// --- audit ---------------------------------------------------------------------------------------

static const char *block_fault(const expandable_t *x, const pytorch_block_t *block) {
    const pytorch_block_t *next = block->next;
    bool is_unmapped = expandable_is_unmapped(block);
    if (next != NULL && (next->prev != block || block->addr + block->size_bytes != next->addr))
        return "1: blocks do not tile their segment";
    if (next != NULL && ((block->node.is_member && next->node.is_member) ||
                         (is_unmapped && expandable_is_unmapped(next))))
        return "2: two free neighbours were not joined";
    bool is_free = !block->is_allocated && block->event_count == 0 && !is_unmapped;
    if (block->node.is_member != is_free)
        return "3: a pool and a block disagree";
    const expandable_segment_t *segment = segment_of(x, block->addr);
    uint64_t begin, end;
    block_pages(segment, block, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        if ((segment->handles[i] == 0) != is_unmapped)
            return "5: memory and blocks disagree about a page";
    return NULL;
}

const char *expandable_space_fault(expandable_t *x) {
    stress_allocator_t *a = &x->base;
    const char *fault = NULL;
    stress_figures_t sum = {0};
    size_t free_count = 0, unmapped_count = 0;
    for (berm_list_t *at = a->all.next; at != &a->all && fault == NULL; at = at->next) {
        const pytorch_block_t *block = BERM_CONTAINER_OF(at, pytorch_block_t, all);
        if (block == a->spare)
            continue;
        fault = block_fault(x, block);
        free_count += block->node.is_member;
        if (expandable_is_unmapped(block)) {
            unmapped_count++;
            continue;
        }
        sum.reserved_bytes += block->size_bytes;
        sum.active_bytes += block->node.is_member ? 0 : block->size_bytes;
        sum.allocated_bytes += block->is_allocated ? block->size_bytes : 0;
        sum.requested_bytes += block->is_allocated ? block->requested_bytes : 0;
    }
    if (fault == NULL && (!ordered_set_is_valid(&a->small) || !ordered_set_is_valid(&a->large) ||
                          free_count != a->small.count + a->large.count ||
                          unmapped_count != x->gaps[0].count + x->gaps[1].count))
        fault = "3: a pool is not in order";
    const stress_figures_t *f = &a->figures;
    if (fault == NULL &&
        (sum.reserved_bytes != f->reserved_bytes || sum.active_bytes != f->active_bytes ||
         sum.allocated_bytes != f->allocated_bytes || sum.requested_bytes != f->requested_bytes))
        fault = "4: figures differ from the sums over blocks";
    return fault;
}
