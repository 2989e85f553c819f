// SPDX-License-Identifier: Apache-2.0
// The reclaim ladder: what is tried, in this order, before a request fails (docs/architecture.md).
//
//   1  what is mapped and free in the pool               large.c
//   2  what threads have cached, and empty slabs         cache.c, small.c
//   3  frees of other streams that have finished         deferred.c
//   4  freed blocks of the pool that are pinned, once they are announced: the caller does that,
//      with no lock held, and asks again (pin.h)
//   5  mapping: headroom, moved pages, growth; at the limit idle memory that goes back to the
//      driver and makes room                             miss.c, supply.c
//   6  the same as 4 for all pools of the device
//   7  the application's callbacks                       front/slow.c, front/pressure.h
//   8  waiting: for pages of other pools (supply.c), for frees of other streams, oldest first, this
//      pool's and then the others', and for the last work of pools that were released; then plans
//      are dropped, so that their arenas serve anyone   learn.h
//   9  pools that serve others before they fail          front/slow.c
//  10  failing
//
// Waits for the pool's own stream are part of moving, 5. Where no callback is to be asked 8 comes
// with 5. Steps 6 and on, and waits, are counted as retries; each request by the last step that
// gave it something (ladder.h). Locks: the device's; the pool's is taken step by step, and what a
// step finds is taken before it is given up.
#include "policy/ladder.h"

#include "policy/alias.h"
#include "policy/cache.h"
#include "policy/learn.h"

// What the driver has been asked for, to tell what served a request.
typedef struct work {
    uint64_t host_waits, returned_bytes, moved_bytes;
} work_t;

static work_t work_read(const berm_device_t *device) {
    const berm_phys_t *phys = &device->phys;
    return (work_t){device->host_waits, phys->released_bytes - phys->split_bytes,
                    phys->moved_bytes};
}

// A request was served by mapping.
static void mapping_note(berm_device_t *device, work_t before) {
    work_t after = work_read(device);
    berm_step_t step = BERM_STEP_MAP;
    if (after.moved_bytes > before.moved_bytes)
        step = BERM_STEP_MOVE;
    if (after.returned_bytes > before.returned_bytes)
        step = BERM_STEP_RELEASE;
    if (after.host_waits > before.host_waits)
        step = BERM_STEP_WAIT;
    berm__ladder_raise(&device->ladder, step);
}

// Waits for one deferred free, of this pool if it has any, or for one released pool's last work.
// False when none is left.
static berm_status_t deferred_wait_any(berm_pool_t *pool, bool *waited) {
    berm_status_t status = berm__deferred_wait_oldest(pool, waited);
    BERM_LIST_EACH (berm_pool_t, other, &pool->device->pools, link)
        if (status == BERM_OK && !*waited)
            status = berm__deferred_wait_oldest(other, waited);
    if (status == BERM_OK && !*waited && pool->device->released_count > 0)
        status = berm__groups_wait(pool->device, waited);
    return status;
}

static berm_status_t hit_locking(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                 berm_place_t *place) {
    berm__mutex_lock(&pool->lock);
    (void)berm__small_flush(pool);
    berm_status_t status = berm__large_hit(pool, size_bytes, alignment_bytes, place);
    berm__mutex_unlock(&pool->lock);
    return status;
}

// Addresses that are stale come back to the miss that needs some.
static void stale_process(berm_pool_t *pool) {
    if (pool->device->phys.stale_mappings > 0 && berm__stream_poll(pool->stream) == BERM_OK)
        (void)berm__alias_retire(pool);
}

// Steps 3 and on, in the device's context.
static berm_status_t ladder_climb(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place) {
    berm_device_t *device = pool->device;
    bool freed, waited = true, is_last = false;
    work_t before = work_read(device);
    stale_process(pool);
    if (pool->device->released_count > 0)
        (void)berm__groups_reap(pool->device, false);
    (void)berm__deferred_process(pool, &freed); // an error comes up again where it matters
    if (freed) {
        berm__ladder_raise(&device->ladder, BERM_STEP_FREES);
        berm_status_t status = hit_locking(pool, size_bytes, alignment_bytes, place);
        if (status != BERM_ERROR_STATE)
            return status;
    }
    berm_status_t shortage = berm__miss_map(pool, size_bytes, alignment_bytes, place);
    // When nothing is left to wait for, one more try: what finished while a window was open may
    // have been in its way.
    while (berm__status_is_shortage(shortage) && !is_last && !device->ladder.puts_off_waits) {
        device->retries++;
        if (deferred_wait_any(pool, &waited) != BERM_OK)
            break;
        is_last = !waited;
        if (waited)
            berm__ladder_raise(&device->ladder, BERM_STEP_WAIT);
        berm_status_t status = hit_locking(pool, size_bytes, alignment_bytes, place);
        if (status != BERM_ERROR_STATE)
            return status;
        shortage = berm__miss_map(pool, size_bytes, alignment_bytes, place);
    }
    if (berm__status_is_shortage(shortage) && !device->ladder.puts_off_waits &&
        berm__learn_yield(device)) {
        berm_status_t status = hit_locking(pool, size_bytes, alignment_bytes, place);
        if (status != BERM_ERROR_STATE)
            return status;
        shortage = berm__miss_map(pool, size_bytes, alignment_bytes, place);
    }
    if (shortage == BERM_OK)
        mapping_note(device, before);
    return shortage;
}

// What the caller has to announce before the request can be tried again; STATE.
static berm_status_t pins_want(berm_device_t *device, berm_pool_t *pool) {
    device->pins_wanted = pool;
    return BERM_ERROR_STATE;
}

// Step 2 and on. No pool's lock is held.
static berm_status_t ladder_start(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place) {
    (void)berm__caches_drain(pool->device);
    berm_status_t status = hit_locking(pool, size_bytes, alignment_bytes, place);
    if (status == BERM_OK)
        berm__ladder_raise(&pool->device->ladder, BERM_STEP_CACHES);
    if (status != BERM_ERROR_STATE)
        return status;
    if (BERM_UNLIKELY(atomic_load(&pool->pins.held_count) > 0))
        return pins_want(pool->device, pool);
    bool is_pushed;
    status = berm__gpu_enter(&pool->device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__device_edits_check(pool->device);
    if (status == BERM_OK)
        status = ladder_climb(pool, size_bytes, alignment_bytes, place);
    if (BERM_UNLIKELY(berm__status_is_shortage(status)) && berm__pins_are_held(pool->device))
        status = pins_want(pool->device, NULL);
    if (status == BERM_OK)
        berm__learn_miss(pool);
    if (status == BERM_OK)
        (void)berm__decay_tick(pool->device, true); // the request is served, whatever becomes of it
    berm__gpu_leave(&pool->device->gpu, is_pushed);
    return status;
}

berm_status_t berm__large_take(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                               bool may_map, berm_place_t *place) {
    berm_status_t status = berm__large_hit(pool, size_bytes, alignment_bytes, place);
    if (BERM_LIKELY(status != BERM_ERROR_STATE) || !may_map)
        return status;
    berm__mutex_unlock(&pool->lock);
    status = ladder_start(pool, size_bytes, alignment_bytes, place);
    berm__mutex_lock(&pool->lock);
    return status;
}
