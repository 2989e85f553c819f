// SPDX-License-Identifier: Apache-2.0
// Blocks that can grow: each has a segment of its own, as many addresses as the device has memory,
// and lies at its start. Behind it nothing lies but what it grew from or may grow into:
//
//   ranges     [ LIVE, the block ][ free ][ void ...
//
// Growing maps what is missing behind the block and joins it to the block; the address stays, and
// the data with it. A block that was freed leaves its segment, with the pages in it, to the next
// one; the pages may move away meanwhile like any others.
//
// Growing is a request for the bytes behind the block, so that it climbs the same ladder: the
// pool's `growing` says which block, from the time the ladder is entered until it is left. The
// device's lock is held for all of that, so there is one at a time, and the block is not freed
// meanwhile.
//
// Cost: a request looks at the pool's segments, one a block that lived at the same time; a growth
// makes one map and at most one create for each granule that is missing, and one call for access.
//
// Locks: the pool's for a hit; the device's, in its context, where memory is mapped, and the
// pool's only while ranges are changed.
#include "policy/resizable.h"

#include "base/bits.h"
#include "policy/supply.h"

uint64_t berm__resizable_occupied(uint64_t size_bytes) {
    return berm__align_up(berm__max_u64(size_bytes, BERM_SMALL_MAX_BYTES + 1),
                          BERM_RANGE_UNIT_BYTES);
}

// Addresses for a block, and the range that holds the first of them.
typedef struct spot {
    berm_segment_t *segment;
    berm_range_t *first;
    uint64_t start_bytes;
} spot_t;

// Nothing lives there, and nothing is in the way.
static bool segment_is_open(const berm_segment_t *segment) {
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next)
        if (range->state != BERM_RANGE_FREE && range->state != BERM_RANGE_VOID)
            return false;
    return true;
}

// Where a new block would lie in the segment; false if it cannot.
static bool segment_offer(berm_segment_t *segment, uint64_t size_bytes, uint64_t alignment_bytes,
                          spot_t *spot) {
    uint64_t start = berm__align_up(segment->base, alignment_bytes) - segment->base;
    if (start + size_bytes > segment->span_bytes || !segment_is_open(segment))
        return false;
    *spot = (spot_t){segment, berm__ranges_at(&segment->ranges, start), start};
    return true;
}

// Of the segments that serve a new block the one with most memory behind it; STATE if none does.
static berm_status_t spot_for_new(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  spot_t *best) {
    berm_status_t status = BERM_ERROR_STATE;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        spot_t spot;
        if (!segment_offer(segment, size_bytes, alignment_bytes, &spot) ||
            (status == BERM_OK && segment->ranges.free_bytes <= best->segment->ranges.free_bytes))
            continue;
        *best = spot;
        status = BERM_OK;
    }
    return status;
}

// Behind the block that grows.
static berm_status_t spot_behind(berm_pool_t *pool, uint64_t size_bytes, spot_t *spot) {
    berm_block_t block;
    berm_segment_t *segment = pool->growing.segment;
    berm_status_t status = berm__pool_block_find(segment, pool->growing.addr, &block);
    if (status != BERM_OK)
        return status;
    uint64_t start = block.range->start_bytes + block.range->size_bytes, end = start + size_bytes;
    if (end > segment->span_bytes)
        return BERM_ERROR_OUT_OF_ADDRESSES;
    // Poisoned addresses behind a block are its end.
    for (const berm_range_t *range = block.range->next; range != NULL && range->start_bytes < end;
         range = range->next)
        if (range->state != BERM_RANGE_FREE && range->state != BERM_RANGE_VOID)
            return BERM_ERROR_OUT_OF_ADDRESSES;
    *spot = (spot_t){segment, block.range->next, start};
    return BERM_OK;
}

static berm_status_t spot_find(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                               spot_t *spot) {
    return pool->growing.addr != 0 ? spot_behind(pool, size_bytes, spot)
                                   : spot_for_new(pool, size_bytes, alignment_bytes, spot);
}

// Cuts the block out where all of it is mapped; STATE if it is not.
static berm_status_t spot_take(berm_pool_t *pool, const spot_t *spot, uint64_t size_bytes,
                               berm_place_t *place) {
    berm_range_t *range = spot->first;
    if (range->state != BERM_RANGE_FREE ||
        range->start_bytes + range->size_bytes < spot->start_bytes + size_bytes)
        return BERM_ERROR_STATE;
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    place->segment = spot->segment;
    place->range = berm__ranges_carve(&spot->segment->ranges, range, spot->start_bytes, size_bytes,
                                      BERM_RANGE_LIVE);
    return BERM_OK;
}

berm_status_t berm__resizable_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place) {
    spot_t spot;
    if (pool->growing.addr != 0) {
        berm_status_t status = spot_behind(pool, size_bytes, &spot);
        return status == BERM_OK ? spot_take(pool, &spot, size_bytes, place) : status;
    }
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_status_t status = BERM_ERROR_STATE;
        if (segment_offer(segment, size_bytes, alignment_bytes, &spot))
            status = spot_take(pool, &spot, size_bytes, place);
        if (status != BERM_ERROR_STATE)
            return status;
    }
    return BERM_ERROR_STATE;
}

// The pool's lock is held, and given up meanwhile.
static berm_status_t spot_map(berm_pool_t *pool, spot_t *spot, uint64_t size_bytes,
                              berm_place_t *place) {
    berm_demand_t demand = {.request_bytes = size_bytes};
    berm_status_t status =
        berm__miss_map_at(pool, spot->segment, spot->first, spot->start_bytes, size_bytes, &demand);
    if (status != BERM_OK)
        return status;
    spot->first = berm__ranges_at(&spot->segment->ranges, spot->start_bytes);
    status = spot_take(pool, spot, size_bytes, place);
    return status == BERM_ERROR_STATE ? BERM_ERROR_OUT_OF_DEVICE_MEMORY : status;
}

berm_status_t berm__resizable_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place) {
    spot_t spot;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = spot_find(pool, size_bytes, alignment_bytes, &spot);
    if (status == BERM_ERROR_STATE) {
        berm__mutex_unlock(&pool->lock);
        status = berm__pool_room_add(pool, size_bytes + alignment_bytes,
                                     pool->device->gpu.memory_bytes + alignment_bytes);
        if (status != BERM_OK)
            return status;
        berm__mutex_lock(&pool->lock);
        status = spot_find(pool, size_bytes, alignment_bytes, &spot);
    }
    if (status == BERM_OK)
        status = spot_map(pool, &spot, size_bytes, place);
    berm__mutex_unlock(&pool->lock);
    return status == BERM_ERROR_STATE ? BERM_ERROR_OUT_OF_ADDRESSES : status;
}

// The pool's lock is held, and given up meanwhile.
static berm_status_t block_grow(const berm_block_t *block, uint64_t size_bytes) {
    berm_pool_t *pool = block->pool;
    berm_range_t *range = block->range;
    berm_counts_t counts = {0};
    uint64_t occupied = berm__resizable_occupied(size_bytes);
    if (size_bytes <= range->as.block.requested_bytes)
        return BERM_OK;
    if (occupied > range->size_bytes) {
        berm_place_t behind;
        uint64_t more_bytes = occupied - range->size_bytes;
        pool->growing.segment = block->segment;
        pool->growing.addr = block->addr;
        berm_status_t status =
            berm__large_take(pool, more_bytes, BERM_RANGE_UNIT_BYTES, true, &behind);
        pool->growing.segment = NULL;
        pool->growing.addr = 0;
        if (status != BERM_OK)
            return status;
        BERM_INSIST(behind.range == range->next && berm__range_state(range) == BERM_RANGE_LIVE,
                    "a block is not freed while it grows: the device's lock is held");
        berm__ranges_absorb_next(&block->segment->ranges, range);
        berm__count_add(&counts.allocated, more_bytes);
    }
    berm__count_add(&counts.requested, size_bytes - range->as.block.requested_bytes);
    range->as.block.requested_bytes = size_bytes;
    berm__counts_merge(&counts, pool->device);
    return BERM_OK;
}

berm_status_t berm__resizable_grow(berm_segment_t *segment, berm_addr_t addr, uint64_t size_bytes) {
    berm_block_t block;
    berm_pool_t *pool = segment->pool;
    berm_status_t status = berm__pool_capture_join(pool);
    if (status != BERM_OK)
        return status;
    berm__deferred_tick_locked(pool);
    berm__mutex_lock(&pool->lock);
    status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK)
        status = block_grow(&block, size_bytes);
    berm__mutex_unlock(&pool->lock);
    return status;
}
