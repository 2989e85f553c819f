// SPDX-License-Identifier: Apache-2.0
// Taking the state of a private group: see pool_state.h; pool_restore.c makes it so again.
#include "policy/pool_state.h"

#include "host/mem.h"

static void slab_collect(const berm_segment_t *segment, const berm_slab_t *slab,
                         berm_state_block_t *blocks, size_t *count) {
    for (uint32_t slot = 0; slot < slab->slots; slot++) {
        if (!berm__slot_is_live(slab, slot))
            continue;
        berm_addr_t addr = berm__slot_addr(slab, slot);
        if (blocks != NULL)
            blocks[*count] = (berm_state_block_t){
                .segment = (berm_segment_t *)slab->segment,
                .addr = addr,
                .start_bytes = addr - segment->base,
                .size_bytes = berm__size_class_bytes(slab->size_class),
                .requested_bytes = (uint64_t)slab->slot[slot].requested + 1,
                .index = slab->slot[slot].index,
                .tag = slab->slot[slot].tag,
                .home_bytes = slab->range->start_bytes,
                .slot = slot,
                .size_class = slab->size_class,
                .is_small = true,
            };
        ++*count;
    }
}

static void segment_collect(berm_segment_t *segment, berm_state_block_t *blocks, size_t *count) {
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        if (berm__range_state(range) != BERM_RANGE_LIVE)
            continue;
        if (range->is_slab) {
            slab_collect(segment, range->owner, blocks, count);
            continue;
        }
        if (blocks != NULL)
            blocks[*count] = (berm_state_block_t){
                .segment = segment,
                .addr = segment->base + range->start_bytes,
                .start_bytes = range->start_bytes,
                .size_bytes = range->size_bytes,
                .requested_bytes = range->as.block.requested_bytes,
                .index = range->as.block.index,
                .tag = range->tag,
            };
        ++*count;
    }
}

// Counts the live blocks of the group, and writes them to `blocks` if that is not NULL. Its pools
// have no caches, and who frees into one holds the device's lock, as the caller does.
static size_t group_collect(const berm_group_t *group, berm_state_block_t *blocks) {
    size_t count = 0;
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        berm__mutex_lock(&pool->lock);
        BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
            segment_collect(segment, blocks, &count);
        berm__mutex_unlock(&pool->lock);
    }
    return count;
}

static size_t state_bytes(size_t count) {
    return sizeof(berm_pool_state_t) + count * sizeof(berm_state_block_t);
}

berm_status_t berm__pool_state_take(berm_group_t *group, berm_pool_state_t **out) {
    size_t count = group_collect(group, NULL);
    *out = berm__mem_alloc(state_bytes(count));
    if (*out == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    (*out)->serial = group->serial;
    (*out)->ordinal = group->device->gpu.ordinal;
    (*out)->count = group_collect(group, (*out)->blocks);
    BERM_INSIST((*out)->count == count, "a locked group stands still");
    return BERM_OK;
}

void berm__pool_state_destroy(berm_pool_state_t *state) {
    if (state != NULL)
        berm__mem_free(state, state_bytes(state->count));
}
