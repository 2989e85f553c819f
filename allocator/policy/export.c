// SPDX-License-Identifier: Apache-2.0
// Blocks that were exported: see share.h. Other processes may have the memory from then on, and for
// as long as they like, so its handle serves no other block: when the block is free and the work
// that used it is done, it is unmapped and given back to the driver.
//
// Locks: `is_exported` of a handle is set under the device's lock and that of the block's pool, and
// read under either. Retire calls the driver.
#include "policy/share.h"

#include "base/bits.h"

berm_phys_handle_t *berm__block_own_handle(const berm_block_t *block) {
    const berm_segment_t *segment = block->segment;
    if (block->slab != NULL || !berm__pool_is_owned(block->pool))
        return NULL;
    return segment->handle_of[berm__segment_granule_of(segment, block->range->start_bytes)];
}

void berm__handle_exported_set(berm_phys_handle_t *handle, bool is_exported) {
    berm_phys_t *phys = handle->store->phys;
    uint64_t bytes = (uint64_t)handle->granules << phys->gpu->lg_granule;
    if (handle->is_exported != is_exported)
        phys->exported_bytes += is_exported ? bytes : 0 - bytes;
    handle->is_exported = is_exported;
}

bool berm__range_is_exported(const berm_pool_t *pool, const berm_segment_t *segment,
                             const berm_range_t *range) {
    if (BERM_LIKELY(!berm__pool_is_owned(pool)))
        return false;
    const berm_phys_handle_t *handle =
        segment->handle_of[berm__segment_granule_of(segment, range->start_bytes)];
    return handle != NULL && handle->is_exported;
}

void berm__export_retire(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range) {
    berm_gpu_t *gpu = segment->gpu;
    bool is_pushed;
    uint64_t first = berm__segment_granule_of(segment, range->start_bytes);
    uint64_t count = range->size_bytes >> gpu->lg_granule;
    berm__segment_cell_write(segment, range->start_bytes, 0);
    berm__ranges_lift(&segment->ranges, range, BERM_RANGE_BUSY);
    pool->taken_blocks--;
    berm__mutex_unlock(&pool->lock);
    (void)berm__gpu_enter(gpu, &is_pushed); // the calls below need no context on most drivers
    berm_status_t status = berm__segment_unmap(segment, first, count);
    (void)berm__phys_release_leaving(&pool->device->phys); // what stays is tried again later
    berm__gpu_leave(gpu, is_pushed);
    berm__mutex_lock(&pool->lock);
    berm__range_unmapped(pool, segment, range, status);
}
