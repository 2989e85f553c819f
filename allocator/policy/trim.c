// SPDX-License-Identifier: Apache-2.0
// Giving physical memory back: trim and the retirement of a stream. Both wait until the work that
// was queued when memory was freed is done, since neither unmap nor release waits for it.
//
// Locks: the device's, in its context.
#include "policy/alias.h"
#include "policy/cache.h"
#include "policy/learn.h"
#include "policy/share.h"

#include "base/bits.h"

// Waits for everything that holds back free memory of a pool: deferred frees and the stream itself.
static berm_status_t pool_quiesce(berm_pool_t *pool) {
    bool waited = true;
    berm_status_t status = BERM_OK;
    while (waited && status == BERM_OK)
        status = berm__deferred_wait_oldest(pool, &waited);
    (void)berm__small_flush_locking(pool);
    if (status == BERM_OK)
        status = berm__stream_wait_all(pool->stream);
    if (status == BERM_ERROR_CAPTURE)
        return BERM_OK; // what a capture holds back stays
    return status == BERM_OK ? berm__alias_retire(pool) : status;
}

berm_status_t berm__device_trim(berm_device_t *device, uint64_t keep_bytes,
                                uint64_t *released_bytes) {
    uint64_t before = device->phys.released_bytes;
    berm_status_t status = BERM_OK;
    *released_bytes = 0;
    berm__device_imports_sweep(device);
    (void)berm__caches_drain(device);
    if (berm__device_unallocated_bytes(device) <= keep_bytes)
        return BERM_OK;
    status = berm__device_edits_check(device);
    if (status == BERM_OK && device->released_count > 0)
        status = berm__groups_reap(device, true);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        berm__pins_settle(pool);
        if (status == BERM_OK && berm__group_may_move(pool->group))
            status = pool_quiesce(pool);
    }
    unsigned lg = device->gpu.lg_granule;
    while (status == BERM_OK) {
        uint64_t cached = berm__device_cached_bytes(device), taken = 0;
        if (cached <= keep_bytes)
            break;
        uint64_t excess = cached - keep_bytes;
        uint64_t granules = (excess + device->gpu.granule_bytes - 1) >> lg;
        uint64_t idle = berm__phys_idle_granules(&device->phys);
        uint64_t reserved = device->phys.reserved_bytes;
        if (granules > idle)
            status = berm__steal_device(device, NULL, granules - idle, &taken);
        if (status == BERM_OK)
            status =
                berm__phys_release_idle(&device->phys, reserved - berm__min_u64(reserved, excess));
        if (device->phys.reserved_bytes == reserved && taken == 0)
            break;
    }
    *released_bytes = device->phys.released_bytes - before;
    return status == BERM_OK ? berm__decay_tick(device, false) : status;
}

// Nobody finds the stream any more, and what is freed into its pools has passed.
static void retired_mark(berm_device_t *device, berm_stream_ref_t *stream) {
    berm__mutex_lock(&device->streams_lock);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (pool->stream == stream)
            berm__mutex_lock_also(&pool->lock);
    stream->is_retired = true;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (pool->stream == stream)
            berm__mutex_unlock_also(&pool->lock);
    if (device->stream_last == stream)
        device->stream_last = NULL;
    berm__mutex_unlock(&device->streams_lock);
}

berm_status_t berm__device_stream_retire(berm_device_t *device, berm_stream_ref_t *stream) {
    (void)berm__caches_drain(device);
    // All of its work, not only what was queued before frees: blocks that live on may be freed with
    // any stream later, and blocks of other pools may wait for this one.
    berm_status_t status = berm__stream_wait(stream, berm__stream_ticket(stream));
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (status == BERM_OK && pool->stream == stream)
            status = pool_quiesce(pool);
    if (status != BERM_OK)
        return status;
    // What they hold by now was freed meanwhile; its ticket passes as that of any retired stream.
    if (stream->pool != NULL)
        berm__caches_retire(stream->pool);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (pool->stream == stream)
            berm__learn_end(pool);
    retired_mark(device, stream);
    // Its pages serve any stream from now on; what stays is shared with live blocks. The stream is
    // retired whatever becomes of that.
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        uint64_t taken = 0, whole = pool->stream == stream ? berm__steal_obtainable(pool) : 0;
        if (whole > 0)
            (void)berm__steal_pool(pool, whole, &taken);
    }
    berm__device_streams_collect(device);
    return BERM_OK;
}
