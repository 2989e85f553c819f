// SPDX-License-Identifier: Apache-2.0
// How large a request could be: now, without a driver call, and at all. Figures of the statistics
// and of the out-of-memory report; they empty the threads' caches and give empty slabs back, as a
// request would before it calls the driver.
//
// Locks: the device's. Finding what is obtainable may query events: its context is current.
#include "base/bits.h"
#include "policy/cache.h"
#include "policy/pool.h"

static uint64_t largest_range_locked(const berm_pool_t *pool) {
    uint64_t largest = 0;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        const berm_range_t *range = berm__ranges_largest_free(&segment->ranges);
        if (range != NULL && segment->planned == NULL)
            largest = berm__max_u64(largest, range->size_bytes);
    }
    return largest;
}

uint64_t berm__pool_largest_range(berm_pool_t *pool) {
    berm__mutex_lock(&pool->lock);
    uint64_t largest = largest_range_locked(pool);
    berm__mutex_unlock(&pool->lock);
    return largest;
}

uint64_t berm__pool_largest_free(berm_pool_t *pool) {
    (void)berm__caches_drain(pool->device);
    berm__mutex_lock(&pool->lock);
    (void)berm__small_flush(pool);
    uint64_t largest = largest_range_locked(pool);
    if (largest <= BERM_SMALL_MAX_BYTES)
        largest = berm__small_largest(pool);
    berm__mutex_unlock(&pool->lock);
    return largest;
}

// A small request needs a slab: the largest one whose slab the memory is enough for.
static uint64_t servable_bytes(uint64_t obtainable) {
    if (obtainable > BERM_SMALL_MAX_BYTES)
        return obtainable;
    for (unsigned size_class = BERM_SIZE_CLASS_COUNT; size_class-- > 0;)
        if (berm__size_class_slab_bytes(size_class) <= obtainable)
            return berm__size_class_bytes(size_class);
    return 0;
}

// The largest run of free and awaited ranges in one segment.
uint64_t berm__pool_largest_awaited(berm_pool_t *pool) {
    uint64_t largest = 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link) {
        uint64_t run = 0;
        for (const berm_range_t *range = segment->ranges.first; range != NULL;
             range = range->next) {
            berm_range_state_t state = berm__range_state(range);
            bool is_open = state == BERM_RANGE_FREE || state == BERM_RANGE_AWAITED;
            run = is_open && segment->planned == NULL ? run + range->size_bytes : 0;
            largest = berm__max_u64(largest, run);
        }
    }
    berm__mutex_unlock(&pool->lock);
    return largest > BERM_SMALL_MAX_BYTES ? largest : 0;
}

berm_obtainable_t berm__device_obtainable(berm_device_t *device, berm_pool_t *pool,
                                          uint64_t driver_free_bytes) {
    unsigned lg = device->gpu.lg_granule;
    (void)berm__caches_drain(device);
    uint64_t now = pool != NULL ? berm__pool_largest_free(pool) : 0;
    uint64_t idle = berm__phys_idle_granules(&device->phys), whole = 0, free = 0;
    BERM_LIST_EACH (berm_pool_t, each, &device->pools, link) {
        (void)berm__deferred_process(each, NULL); // what has passed by now is no estimate
        (void)berm__small_flush_locking(each);
        uint64_t most = berm__steal_obtainable(each);
        whole += most;
        free += berm__min_u64(berm__steal_free(each), most);
        idle += berm__aliased_granules(&each->aliased, device->phys.large_granules);
    }
    if (pool != NULL && berm__pool_is_plain(pool))
        now = berm__max_u64(now, berm__pool_largest_awaited(pool));
    uint64_t growth = berm__min_u64(berm__device_growth_bytes(device), driver_free_bytes) >> lg;
    uint64_t bytes = (idle + whole + growth) << lg;
    return (berm_obtainable_t){.bytes = berm__max_u64(now, servable_bytes(bytes)),
                               .idle_bytes = idle << lg,
                               .free_bytes = free << lg,
                               .awaited_bytes = (whole - free) << lg,
                               .growth_bytes = growth << lg};
}
