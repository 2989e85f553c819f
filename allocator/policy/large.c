// SPDX-License-Identifier: Apache-2.0
// The large path: good fit over the mapped free ranges of a pool's segments, and giving back. Sizes
// are multiples of 512 bytes, packed with no regard to granules: neighbours share border granules,
// which costs up to 13 % less memory than whole pages would (docs/adr/0002-byte-granular.md).
//
// Locks: the pool's.
#include "policy/learn.h"
#include "policy/resizable.h"

#include "base/bits.h"

berm_status_t berm__large_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place) {
    if (BERM_UNLIKELY(berm__pool_is_owned(pool)))
        return berm__owned_hit(pool, size_bytes, alignment_bytes, place);
    if (BERM_UNLIKELY(berm__pool_is_resizable(pool)))
        return berm__resizable_hit(pool, size_bytes, alignment_bytes, place);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        if (segment->planned != NULL)
            continue;
        berm_range_t *range =
            berm__ranges_find(&segment->ranges, segment->base, size_bytes, alignment_bytes);
        if (range == NULL)
            continue;
        if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
            return BERM_ERROR_OUT_OF_HOST_MEMORY;
        uint64_t start =
            berm__align_up(segment->base + range->start_bytes, alignment_bytes) - segment->base;
        place->range =
            berm__ranges_carve(&segment->ranges, range, start, size_bytes, BERM_RANGE_LIVE);
        place->segment = segment;
        return BERM_OK;
    }
    return BERM_ERROR_STATE;
}

void berm__large_give(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range) {
    if (BERM_UNLIKELY(range->is_pinned)) {
        berm__segment_cell_write(segment, range->start_bytes, 0);
        berm__ranges_lift(&segment->ranges, range, BERM_RANGE_HELD);
        berm__pin_hold(pool, segment->base + range->start_bytes);
        return;
    }
    if (BERM_UNLIKELY(berm__range_is_exported(pool, segment, range))) {
        berm__export_retire(pool, segment, range);
        return;
    }
    if (BERM_UNLIKELY(pool->learn != NULL) && !range->is_slab)
        berm__learn_give(pool, segment, range);
    range->mappings = 0;
    berm__segment_ticket_set(segment, range->start_bytes, range->size_bytes,
                             berm__pool_has_order(pool) ? berm__stream_ticket(pool->stream)
                                                        : BERM_TICKET_NONE);
    if (range->is_slab) {
        berm__segment_cells_write(segment, range->start_bytes, range->size_bytes, 0);
    } else {
        berm__segment_cell_write(segment, range->start_bytes, 0);
        pool->taken_blocks--;
    }
    (void)berm__ranges_settle(&segment->ranges, range, BERM_RANGE_FREE);
}
