// SPDX-License-Identifier: Apache-2.0
// The reclaim ladder: what is tried, in this order, before a request fails (docs/architecture.md).
//
//   1  what is mapped and free in the pool               large.c
//   2  what threads have cached, and empty slabs         cache.c, small.c
//   3  frees of other streams that have finished         deferred.c
//   4  mapping: headroom, moved pages, growth, waits     miss.c, supply.c
//   5  waiting for frees of other streams, oldest first, this pool's and then the others'
//   6  failing
//
// Steps 5 and on are counted as retries. Locks: the device's.
#include "policy/cache.h"
#include "policy/pool.h"

static bool is_shortage(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
           status == BERM_ERROR_CEILING || status == BERM_ERROR_OUT_OF_ADDRESSES;
}

// Waits for one deferred free, of this pool if it has any. False when none is left.
static berm_status_t deferred_wait_any(berm_pool_t *pool, bool *waited) {
    berm_status_t status = berm__deferred_wait_oldest(pool, waited);
    BERM_LIST_EACH (berm_pool_t, other, &pool->device->pools, link)
        if (status == BERM_OK && !*waited)
            status = berm__deferred_wait_oldest(other, waited);
    return status;
}

static berm_status_t ladder_climb(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_segment_t **segment, berm_range_t **range) {
    berm_device_t *device = pool->device;
    berm_status_t status, shortage;
    bool freed, waited = true, is_last = false;
    (void)berm__deferred_process(pool, &freed); // an error comes up again where it matters
    if (freed && berm__large_hit(pool, size_bytes, alignment_bytes, segment, range, &status))
        return BERM_OK;
    shortage = berm__miss_map(pool, size_bytes, alignment_bytes);
    // When nothing is left to wait for, one more try: what finished while a window was open may
    // have been in its way.
    while (is_shortage(shortage) && !is_last) {
        device->retries++;
        status = deferred_wait_any(pool, &waited);
        if (status != BERM_OK)
            break;
        is_last = !waited;
        (void)berm__small_flush(pool);
        if (berm__large_hit(pool, size_bytes, alignment_bytes, segment, range, &status))
            return BERM_OK;
        shortage = berm__miss_map(pool, size_bytes, alignment_bytes);
    }
    if (shortage != BERM_OK)
        return shortage;
    if (berm__large_hit(pool, size_bytes, alignment_bytes, segment, range, &status))
        return BERM_OK;
    return status != BERM_OK ? status : BERM_ERROR_OUT_OF_DEVICE_MEMORY;
}

berm_status_t berm__large_take(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                               berm_segment_t **segment, berm_range_t **range) {
    berm_status_t status;
    if (berm__large_hit(pool, size_bytes, alignment_bytes, segment, range, &status) ||
        status != BERM_OK)
        return status;
    bool has_drained = berm__caches_drain(pool->device);
    if ((berm__small_flush(pool) || has_drained) &&
        berm__large_hit(pool, size_bytes, alignment_bytes, segment, range, &status))
        return BERM_OK;
    bool is_pushed;
    status = berm__gpu_enter(&pool->device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = ladder_climb(pool, size_bytes, alignment_bytes, segment, range);
    berm__gpu_leave(&pool->device->gpu, is_pushed);
    return status;
}
