// SPDX-License-Identifier: Apache-2.0
// The large path: good fit over the mapped free ranges of a pool's segments, and giving back. Sizes
// are multiples of 512 bytes, packed with no regard to granules: neighbours share border granules,
// which costs up to 13 % less memory than whole pages would (docs/adr/0002-byte-granular.md).
#include "policy/pool.h"

#include "base/bits.h"

bool berm__large_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                     berm_segment_t **segment_out, berm_range_t **range_out,
                     berm_status_t *status) {
    *status = BERM_OK;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_range_t *range =
            berm__ranges_find(&segment->ranges, segment->base, size_bytes, alignment_bytes);
        if (range == NULL)
            continue;
        if (!berm__node_slab_reserve(&pool->device->range_nodes, 2)) {
            *status = BERM_ERROR_OUT_OF_HOST_MEMORY;
            return false;
        }
        uint64_t start =
            berm__align_up(segment->base + range->start_bytes, alignment_bytes) - segment->base;
        *range_out =
            berm__ranges_carve(&segment->ranges, range, start, size_bytes, BERM_RANGE_LIVE);
        *segment_out = segment;
        return true;
    }
    return false;
}

void berm__large_give(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range) {
    berm__segment_ticket_set(segment, range->start_bytes, range->size_bytes,
                             berm__pool_has_order(pool) ? berm__stream_ticket(pool->stream)
                                                        : BERM_TICKET_NONE);
    berm__segment_cells_write(segment, range->start_bytes, range->is_slab ? range->size_bytes : 1,
                              0);
    (void)berm__ranges_settle(&segment->ranges, range, BERM_RANGE_FREE);
}
