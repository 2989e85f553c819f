// SPDX-License-Identifier: Apache-2.0
// Blocks that own their memory: in a group whose blocks can be exported, a block is one handle, a
// whole number of granules, so that an export never shows a neighbour's bytes. There are no slabs.
//
//   ranges     [live 3 ][ free  2 + 1  ][live 1][void ...
//   handles    [   a   ][    b    ][ c ][  d   ]
//
// A free range may hold several handles side by side; a request takes one of exactly its size, and
// one of another size is given back to the driver where room is short (supply.c).
//
// Locks: the pool's for a hit; the device's, in its context, where memory is mapped, and the
// pool's only while ranges are changed.
#include "policy/supply.h"

#include "base/bits.h"

static uint32_t granules_of(const berm_pool_t *pool, uint64_t size_bytes) {
    return (uint32_t)(size_bytes >> pool->device->gpu.lg_granule);
}

static bool start_is_aligned(const berm_segment_t *segment, uint64_t granule,
                             uint64_t alignment_bytes) {
    return berm__is_aligned(segment->base + (granule << segment->gpu->lg_granule), alignment_bytes);
}

// The first granule of a handle of exactly `granules` in a free range, which is whole handles from
// end to end; false if there is none. What is behind a free range changes only once it is BUSY, so
// the pool's lock is enough; what is behind its neighbours may change meanwhile.
static bool range_find(const berm_segment_t *segment, const berm_range_t *range, uint32_t granules,
                       uint64_t alignment_bytes, uint64_t *found) {
    uint64_t at = berm__segment_granule_of(segment, range->start_bytes);
    uint64_t end = at + (range->size_bytes >> segment->gpu->lg_granule);
    for (; at < end; at += segment->handle_of[at]->granules) {
        if (segment->handle_of[at]->granules != granules ||
            !start_is_aligned(segment, at, alignment_bytes))
            continue;
        *found = at;
        return true;
    }
    return false;
}

static berm_status_t segment_hit(berm_pool_t *pool, berm_segment_t *segment, uint64_t size_bytes,
                                 uint64_t alignment_bytes, berm_place_t *place) {
    berm_range_t *range = berm__ranges_bin_first(&segment->ranges, size_bytes);
    for (; range != NULL; range = berm__ranges_bin_next(&segment->ranges, range)) {
        uint64_t granule;
        if (!range_find(segment, range, granules_of(pool, size_bytes), alignment_bytes, &granule))
            continue;
        if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
            return BERM_ERROR_OUT_OF_HOST_MEMORY;
        place->segment = segment;
        place->range =
            berm__ranges_carve(&segment->ranges, range, granule << segment->gpu->lg_granule,
                               size_bytes, BERM_RANGE_LIVE);
        return BERM_OK;
    }
    return BERM_ERROR_STATE;
}

berm_status_t berm__owned_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place) {
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_status_t status = segment_hit(pool, segment, size_bytes, alignment_bytes, place);
        if (status != BERM_ERROR_STATE)
            return status;
    }
    return BERM_ERROR_STATE;
}

// Unmapped addresses for the block, BUSY; BERM_ERROR_STATE if no segment has them. The pool's lock
// is held.
static berm_status_t addresses_find(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment,
                                    berm_place_t *busy) {
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 4))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_range_t *range = berm__ranges_find_void(&segment->ranges, size_bytes + alignment);
        if (range == NULL)
            continue;
        uint64_t start =
            berm__align_up(segment->base + range->start_bytes, alignment) - segment->base;
        busy->range =
            berm__ranges_carve(&segment->ranges, range, start, size_bytes, BERM_RANGE_BUSY);
        busy->segment = segment;
        pool->range_nodes_promised += 2; // what settling may need
        return BERM_OK;
    }
    return BERM_ERROR_STATE;
}

// The same, in a segment that is added where no other has them.
static berm_status_t addresses_take(berm_pool_t *pool, uint64_t size_bytes,
                                    uint64_t alignment_bytes, berm_place_t *busy) {
    uint64_t alignment = berm__max_u64(alignment_bytes, pool->device->gpu.granule_bytes);
    berm_status_t status = BERM_ERROR_STATE;
    for (int attempt = 0; attempt < 2 && status == BERM_ERROR_STATE; attempt++) {
        if (attempt > 0) {
            status = berm__pool_segment_add(pool, size_bytes + 2 * alignment);
            if (status != BERM_OK)
                return status;
        }
        berm__mutex_lock(&pool->lock);
        status = addresses_find(pool, size_bytes, alignment, busy);
        berm__mutex_unlock(&pool->lock);
    }
    return status == BERM_ERROR_STATE ? BERM_ERROR_OUT_OF_ADDRESSES : status;
}

berm_status_t berm__owned_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place) {
    berm_place_t busy;
    berm_status_t status = addresses_take(pool, size_bytes, alignment_bytes, &busy);
    if (status != BERM_OK)
        return status;
    uint32_t granules = granules_of(pool, size_bytes);
    berm_demand_t demand = {.granules = granules, .whole = granules, .request_bytes = size_bytes};
    status = berm__supply_gather(pool, &demand);
    if (status == BERM_OK)
        status = berm__segment_map_whole(
            busy.segment, berm__segment_granule_of(busy.segment, busy.range->start_bytes),
            granules);
    if (status != BERM_OK && status != BERM_ERROR_CORRUPTION)
        berm__supply_undo(pool, &demand);
    berm__mutex_lock(&pool->lock);
    pool->range_nodes_promised -= 2;
    if (status == BERM_ERROR_CORRUPTION) {
        berm__range_poison(pool, busy.segment, busy.range);
        status = BERM_ERROR_DRIVER;
    } else if (status == BERM_OK) {
        berm__ranges_lift(&busy.segment->ranges, busy.range, BERM_RANGE_LIVE);
        *place = busy;
    } else {
        (void)berm__ranges_settle(&busy.segment->ranges, busy.range, BERM_RANGE_VOID);
    }
    berm__mutex_unlock(&pool->lock);
    return status;
}
