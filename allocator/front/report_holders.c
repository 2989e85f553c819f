// SPDX-License-Identifier: Apache-2.0
// Who holds what is live, for the report of a failed request: by pool and by size. See report.h.
//
// Cost: a walk over all ranges, with every pool stopped; a report is due once a second at most.
#include <string.h>

#include "base/bits.h"
#include "front/report.h"

typedef struct sizes {
    struct {
        uint64_t bytes, blocks;
    } of[64]; // by the power of two that is at least the size
} sizes_t;

static void sizes_add(sizes_t *sizes, uint64_t block_bytes, uint64_t blocks) {
    unsigned lg = berm__bit_highest(block_bytes);
    if (!berm__is_pow2(block_bytes))
        lg++;
    sizes->of[lg].bytes += block_bytes * blocks;
    sizes->of[lg].blocks += blocks;
}

// Keeps the list sorted by bytes; true if the entry, or the one that made room, is left out.
static bool holder_insert(berm_holder_t *list, unsigned *count, const berm_holder_t *holder) {
    unsigned at = *count;
    bool is_full = *count == BERM_HOLDERS_MAX;
    while (at > 0 && list[at - 1].live_bytes < holder->live_bytes)
        at--;
    if (at == BERM_HOLDERS_MAX)
        return true;
    unsigned last = is_full ? BERM_HOLDERS_MAX - 1 : (*count)++;
    memmove(&list[at + 1], &list[at], (last - at) * sizeof *list);
    list[at] = *holder;
    return is_full;
}

static void pool_walk(const berm_pool_t *pool, berm_holder_t *holder, sizes_t *sizes) {
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link) {
        holder->reserved_bytes += segment->mapped_bytes;
        const berm_range_t *range = segment->ranges.first;
        for (; range != NULL; range = range->next) {
            uint64_t bytes = range->size_bytes, blocks = 1;
            if (berm__range_state(range) != BERM_RANGE_LIVE)
                continue;
            if (range->is_slab) {
                const berm_slab_t *slab = range->owner;
                bytes = berm__size_class_bytes(slab->size_class);
                blocks = slab->used;
            }
            holder->live_bytes += bytes * blocks;
            holder->blocks += blocks;
            sizes_add(sizes, bytes, blocks);
        }
    }
}

void berm__holders_take(berm_device_t *device, berm_holders_t *holders) {
    sizes_t sizes = {0};
    *holders = (berm_holders_t){0};
    berm__device_freeze(device);
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link) {
        berm_holder_t holder = {.id = pool->group->id, .stream = pool->stream->handle};
        pool_walk(pool, &holder, &sizes);
        if (holder.reserved_bytes > 0)
            holders->pools_left_out += holder_insert(holders->pools, &holders->pool_count, &holder);
    }
    berm__device_thaw(device);
    for (unsigned lg = 0; lg < BERM_ARRAY_LENGTH(sizes.of); lg++) {
        berm_holder_t holder = {.live_bytes = sizes.of[lg].bytes,
                                .blocks = sizes.of[lg].blocks,
                                .largest_bytes = UINT64_C(1) << lg};
        if (holder.blocks > 0)
            (void)holder_insert(holders->sizes, &holders->size_count, &holder);
    }
}
