// SPDX-License-Identifier: Apache-2.0
// berm_walk: every mapped run of every pool with what lies in it, for callers that make snapshots
// in a form of their own.
//
// A run is what lies between addresses with nothing usable behind them: VOID, STALE, BUSY and
// POISONED ranges. Bounds: each range twice, each slot once. Locks: the device's, all pools frozen;
// the callback runs under them. Allocates nothing, calls no driver.
#include "berm_introspect.h"
#include "front/heap.h"
#include "front/tag.h"
#include "policy/cache.h"

typedef struct walk {
    berm_walk_fn fn;
    void *context;
    berm_walk_segment_t segment;
} walk_t;

static bool is_walked(const berm_range_t *range) {
    return range->state == BERM_RANGE_FREE || range->state == BERM_RANGE_LIVE ||
           range->state == BERM_RANGE_AWAITED || range->state == BERM_RANGE_HELD;
}

static void walk_slab(const walk_t *walk, const berm_slab_t *slab) {
    berm_walk_block_t block = {.size = sizeof block, .addr = slab->base, .is_small = 1};
    berm_addr_t end = slab->base + slab->range->size_bytes;
    block.size_bytes = berm__size_class_bytes(slab->size_class);
    for (uint32_t slot = 0; slot < slab->slots; slot++) {
        bool is_taken = berm__slot_is_taken(slab, slot);
        block.addr = berm__slot_addr(slab, slot);
        block.requested_bytes = is_taken ? (uint64_t)slab->slot[slot].requested + 1 : 0;
        block.kind = BERM_ADDRESS_FREE;
        block.allocation_index = 0;
        block.tag = berm__tag_name(is_taken ? slab->slot[slot].tag : 0);
        if (berm__slot_is_live(slab, slot)) {
            block.kind = BERM_ADDRESS_LIVE;
            block.allocation_index = slab->slot[slot].index;
        } else if (is_taken) {
            bool is_held = slab->slot[slot].state == BERM_SLOT_HELD;
            block.kind = is_held ? BERM_ADDRESS_HELD : BERM_ADDRESS_AWAITED;
        }
        walk->fn(walk->context, &walk->segment, &block);
    }
    block.addr = berm__slot_addr(slab, slab->slots);
    block.size_bytes = end - block.addr;
    block.kind = BERM_ADDRESS_FREE;
    block.requested_bytes = block.allocation_index = 0;
    block.tag = berm__tag_name(0);
    if (block.size_bytes > 0) // the tail that no slot covers
        walk->fn(walk->context, &walk->segment, &block);
}

static void walk_range(const walk_t *walk, berm_addr_t base, const berm_range_t *range) {
    bool is_block = range->state == BERM_RANGE_LIVE || range->state == BERM_RANGE_AWAITED;
    const berm_walk_block_t block = {
        .size = sizeof block,
        .addr = base + range->start_bytes,
        .size_bytes = range->size_bytes,
        .requested_bytes = is_block ? range->as.block.requested_bytes : 0,
        .allocation_index = range->state == BERM_RANGE_LIVE ? range->as.block.index : 0,
        .kind = berm__range_kind(range),
        .tag = berm__tag_name(is_block ? range->tag : 0),
    };
    walk->fn(walk->context, &walk->segment, &block);
}

static void walk_segment(walk_t *walk, const berm_segment_t *segment) {
    const berm_range_t *range = segment->ranges.first;
    walk->segment.is_plain = segment->is_plain;
    walk->segment.is_aliased = segment->has_views;
    while (range != NULL) {
        const berm_range_t *first = range;
        uint64_t size_bytes = 0;
        for (; range != NULL && is_walked(range); range = range->next)
            size_bytes += range->size_bytes;
        if (size_bytes > 0) {
            walk->segment.addr = segment->base + first->start_bytes;
            walk->segment.size_bytes = size_bytes;
            walk->fn(walk->context, &walk->segment, NULL);
        }
        for (; first != range; first = first->next) {
            if (first->is_slab)
                walk_slab(walk, first->owner);
            else
                walk_range(walk, segment->base, first);
        }
        if (range != NULL)
            range = range->next;
    }
}

void berm__walk_frozen(const berm_device_t *device, berm_walk_fn fn, void *context) {
    walk_t opened = {fn, context, {.size = sizeof opened.segment}};
    walk_t *walk = &opened;
    walk->segment.device = device->gpu.ordinal;
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link) {
        walk->segment.stream = pool->stream->handle;
        walk->segment.pool = pool->group->id;
        walk->segment.is_released = pool->group->use_count == 0;
        BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
            walk_segment(walk, segment);
    }
}

berm_status_t berm_walk(int ordinal, berm_walk_fn fn, void *context) {
    berm_device_t *device;
    bool is_running;
    if (fn == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_walk: no callback");
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK || device == NULL)
        return status;
    berm__mutex_lock(&device->lock);
    berm__device_freeze(device);
    berm__walk_frozen(device, fn, context);
    berm__device_thaw(device);
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}
