// SPDX-License-Identifier: Apache-2.0
// Where a miss gets its memory: the headroom rule. Reserved may grow freely while it stays within
// (1 + e) of live memory, live being the larger of what is requested with this request and the peak
// so far; beyond that, and at the device's or the user's limit, pages that are free elsewhere move.
//
// With remap:alias pages of the request's own stream move before their work is done (alias.h).
// With remap:off pages do not move: at the limit, and only there, free handles are given back to
// the driver and new ones made, as an allocator without remapping would do.
#include "policy/supply.h"

#include "base/bits.h"
#include "policy/alias.h"

typedef struct supply {
    berm_pool_t *pool;
    berm_demand_t *demand;
    bool is_device_full;   // the driver refused to create
    berm_status_t refusal; // what it said
    bool is_large_refused; // the driver had no room for a large handle
    bool has_sealed;       // every pool's stream has an event for what is free by now
} supply_t;

// Granules still missing, when large handles go wherever they have room.
static uint64_t supply_short(const supply_t *supply) {
    uint32_t whole = supply->demand->whole;
    if (whole > 0)
        return berm__store_has(supply->pool->group->store, whole) ? 0 : whole;
    const berm_store_t *store = supply->pool->group->store;
    const berm_aliased_t *aliased = &supply->pool->aliased;
    uint64_t large =
        berm__min_u64(store->idle_large_count + aliased->large_count, supply->demand->large_max);
    uint64_t have =
        large * store->phys->large_granules + store->idle_small_count + aliased->small_count;
    return supply->demand->granules > have ? supply->demand->granules - have : 0;
}

// Bytes that may be created within the headroom.
static uint64_t headroom_bytes(const supply_t *supply) {
    berm_device_t *device = supply->pool->device;
    uint64_t live, peak;
    berm__counts_requested_read(device, &live, &peak);
    live = berm__max_u64(live + supply->demand->request_bytes, peak);
    double target = (double)live * (1.0 + device->headroom_pct / 100.0);
    double room = target - (double)device->phys.reserved_bytes;
    return room <= 0 ? 0 : room >= 0x1p62 ? UINT64_C(1) << 62 : (uint64_t)room;
}

// Large handles cost 5 to 16 times fewer driver calls, but move only whole: a live block on one of
// their granules holds all of them. So they serve requests of several handles only, and once half
// of what the device or the limit allows is taken, requests of many: near the cap every granule
// counts, and of a block of many handles only the two at its ends are in another's way.
enum {
    LARGE_REQUEST_HANDLES = 2,
    LARGE_REQUEST_HANDLES_NEAR_CAP = 16,
};

static bool supply_wants_large(const supply_t *supply, uint64_t room_bytes) {
    const berm_device_t *device = supply->pool->device;
    const berm_phys_t *phys = &device->phys;
    uint64_t large_bytes = (uint64_t)phys->large_granules << device->gpu.lg_granule;
    uint64_t cap_bytes = berm__min_u64(device->limit_bytes, device->gpu.memory_bytes);
    uint64_t least = phys->reserved_bytes + large_bytes <= cap_bytes / 2
                         ? LARGE_REQUEST_HANDLES
                         : LARGE_REQUEST_HANDLES_NEAR_CAP;
    return phys->large_granules > 1 && !supply->is_large_refused &&
           supply->pool->group->store->idle_large_count < supply->demand->large_max &&
           supply_short(supply) >= phys->large_granules && room_bytes >= large_bytes &&
           supply->demand->request_bytes >= least * large_bytes;
}

// Creates one handle of at most `room_bytes`: a large one where it fits in a hole. True if made.
static bool supply_create(supply_t *supply, uint64_t room_bytes) {
    berm_phys_t *phys = &supply->pool->device->phys;
    berm_store_t *store = supply->pool->group->store;
    uint32_t least = supply->demand->whole > 0 ? supply->demand->whole : 1;
    room_bytes = berm__min_u64(room_bytes, berm__device_growth_bytes(supply->pool->device));
    if (room_bytes >> phys->gpu->lg_granule < least || supply->is_device_full)
        return false;
    bool is_large = least == 1 && supply_wants_large(supply, room_bytes);
    uint64_t created_before = phys->created_bytes;
    berm_status_t status = berm__store_create(store, is_large ? phys->large_granules : least);
    if (status != BERM_OK && is_large) { // a smaller one may still fit
        supply->is_large_refused = true;
        status = berm__store_create(store, 1);
    }
    if (status == BERM_OK) {
        supply->demand->created_bytes += phys->created_bytes - created_before;
        return true;
    }
    supply->is_device_full = true;
    supply->refusal = status;
    return false;
}

// Where a handle of one size is wanted, those of other sizes are of use only as room.
static berm_status_t whole_release(supply_t *supply) {
    const berm_phys_t *phys = &supply->pool->device->phys;
    if (supply_short(supply) == 0)
        return BERM_OK;
    supply->is_device_full = false;
    uint64_t room = (uint64_t)supply->demand->whole << phys->gpu->lg_granule;
    return berm__store_release_idle(supply->pool->group->store,
                                    phys->reserved_bytes -
                                        berm__min_u64(phys->reserved_bytes, room));
}

// Arenas of plans are filled with what is free elsewhere; requests take from them too.
static bool supply_takes_planned(const supply_t *supply) {
    return !supply->demand->is_spare || supply->demand->request_bytes > 0;
}

// Takes free pages from their addresses. With remap off they go back to the driver, which makes
// room to create.
static berm_status_t supply_steal(supply_t *supply, bool *has_progress) {
    berm_device_t *device = supply->pool->device;
    berm_phys_t *phys = &device->phys;
    berm_store_t *store = supply->pool->group->store;
    uint64_t taken = 0, small = store->idle_small_count, large = store->idle_large_count;
    berm_status_t status =
        berm__steal_passed(supply->pool, supply_short(supply), !supply->demand->is_spare, &taken);
    *has_progress = taken > 0;
    if (taken == 0)
        return status;
    if (supply->demand->whole > 0)
        return whole_release(supply);
    if (!device->remap_is_off) {
        phys->moved_bytes += taken << device->gpu.lg_granule;
        return BERM_OK;
    }
    supply->is_device_full = supply->is_large_refused = false;
    return berm__store_release_newest(store, store->idle_small_count - small,
                                      store->idle_large_count - large);
}

// Takes pages whose work is not done, within the order of their stream.
static berm_status_t supply_alias(supply_t *supply, bool *has_progress) {
    berm_phys_t *phys = &supply->pool->device->phys;
    uint64_t taken = 0;
    uint64_t capture;
    if (supply->demand->whole > 0 || !berm__alias_is_allowed(supply->pool))
        return BERM_OK;
    // A graph has no place in the order of the stream that it is captured on.
    if (berm__capture_read(phys->gpu, supply->pool->stream->handle, &capture) != BERM_OK ||
        capture != BERM_CAPTURE_NONE)
        return BERM_OK;
    // A large handle is of use only where a hole has room for it.
    uint64_t large =
        supply->pool->group->store->idle_large_count + supply->pool->aliased.large_count;
    uint32_t most = large < supply->demand->large_max ? phys->large_granules : 1;
    berm_status_t status = berm__alias_take(supply->pool, most, supply_short(supply),
                                            supply_takes_planned(supply), &taken);
    phys->moved_bytes += taken << phys->gpu->lg_granule;
    *has_progress = taken > 0;
    return status;
}

// Idle large handles that no hole has room for are of use only in pieces.
static bool supply_split(supply_t *supply) {
    berm_store_t *store = supply->pool->group->store;
    if (supply->demand->whole > 0 || store->idle_large_count <= supply->demand->large_max)
        return false;
    return berm__store_split_large(store) == BERM_OK;
}

static berm_status_t deferred_process_all(berm_device_t *device, bool *has_progress) {
    *has_progress = false;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        bool freed;
        berm_status_t status = berm__deferred_process(pool, &freed);
        if (status != BERM_OK)
            return status;
        *has_progress |= freed;
    }
    return BERM_OK;
}

static berm_status_t others_wait(supply_t *supply, bool *has_progress) {
    berm_device_t *device = supply->pool->device;
    *has_progress = false;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        berm_status_t status = berm__steal_wait(pool, has_progress);
        if (status != BERM_OK || *has_progress)
            return status;
    }
    return BERM_OK;
}

// Makes room at the limit or on a full device: releases idle handles of other stores than `except`,
// or, where there are none, takes free pages that have passed from pools of those.
static berm_status_t room_make(berm_device_t *device, const berm_store_t *except, uint64_t granules,
                               bool *has_progress) {
    berm_phys_t *phys = &device->phys;
    uint64_t reserved = phys->reserved_bytes, taken = 0;
    uint64_t keep = reserved - berm__min_u64(reserved, granules << device->gpu.lg_granule);
    berm_status_t status = BERM_OK;
    for (unsigned i = phys->store_count; i-- > 0 && status == BERM_OK;)
        if (&phys->stores[i] != except)
            status = berm__store_release_idle(&phys->stores[i], keep);
    *has_progress = phys->reserved_bytes < reserved;
    if (*has_progress || status != BERM_OK || phys->store_count == 1)
        return status;
    status = berm__steal_device(device, except, granules, &taken);
    *has_progress = taken > 0;
    return status;
}

// Events for what is free by now. Pages that have not passed may do so while handles are created,
// one by one, and are taken then; the rest are movable at the next miss, without a wait.
static void streams_seal(supply_t *supply) {
    supply->has_sealed = true;
    BERM_LIST_EACH (berm_pool_t, pool, &supply->pool->device->pools, link)
        if (berm__pool_has_order(pool))
            (void)berm__stream_seal(pool->stream);
}

// Memory with other properties cannot be mapped here, but it can make room; so can handles of other
// sizes than the one that is wanted.
static berm_status_t supply_foreign(supply_t *supply, bool *has_progress) {
    const berm_store_t *except = supply->demand->whole > 0 ? NULL : supply->pool->group->store;
    berm_status_t status =
        room_make(supply->pool->device, except, supply_short(supply), has_progress);
    if (*has_progress)
        supply->is_device_full = supply->is_large_refused = false;
    return status;
}

// One step towards enough; *has_progress false when there is none left to take.
static berm_status_t supply_step(supply_t *supply, bool *has_progress) {
    berm_device_t *device = supply->pool->device;
    *has_progress = true;
    if (!supply->demand->is_spare && supply_create(supply, headroom_bytes(supply)))
        return BERM_OK;
    if (supply_split(supply))
        return BERM_OK;
    if (!supply->has_sealed)
        streams_seal(supply);
    bool may_move = !device->remap_is_off;
    if (may_move) {
        berm_status_t status = supply_steal(supply, has_progress);
        if (status == BERM_OK && !*has_progress &&
            (!supply->demand->is_spare || supply->demand->takes_unpassed))
            status = supply_alias(supply, has_progress);
        if (status != BERM_OK || *has_progress)
            return status;
    }
    if (supply->demand->is_spare) {
        // Last, so that what is free serves first.
        *has_progress =
            supply->demand->request_bytes > 0 && supply_create(supply, headroom_bytes(supply));
        return BERM_OK;
    }
    berm_status_t status = deferred_process_all(device, has_progress);
    if (status != BERM_OK || *has_progress)
        return status;
    if (may_move) {
        status = berm__steal_wait(supply->pool, has_progress);
        if (status != BERM_OK || *has_progress)
            return status;
    }
    *has_progress = supply_create(supply, UINT64_MAX);
    if (*has_progress)
        return BERM_OK;
    status = supply_steal(supply, has_progress);
    if (status == BERM_OK && !*has_progress)
        status = supply_foreign(supply, has_progress);
    if (status != BERM_OK || *has_progress || device->ladder.puts_off_waits)
        return status;
    return others_wait(supply, has_progress);
}

void berm__supply_undo(berm_pool_t *pool, const berm_demand_t *demand) {
    berm_phys_t *phys = &pool->device->phys;
    uint64_t most = berm__min_u64(demand->created_bytes, phys->reserved_bytes);
    (void)berm__store_release_idle(pool->group->store, phys->reserved_bytes - most);
}

berm_status_t berm__supply_gather(berm_pool_t *pool, berm_demand_t *demand) {
    berm_device_t *device = pool->device;
    uint64_t moved_before = device->phys.moved_bytes;
    supply_t supply = {.pool = pool, .demand = demand};
    berm_status_t status = BERM_OK;
    bool has_progress = true;
    while (status == BERM_OK && has_progress && supply_short(&supply) > 0)
        status = supply_step(&supply, &has_progress);
    if (device->phys.moved_bytes > moved_before)
        device->moves++;
    if (status == BERM_OK && supply_short(&supply) == 0)
        return BERM_OK;
    berm__supply_undo(pool, demand);
    if (status != BERM_OK)
        return status;
    if (supply.is_device_full && supply.refusal != BERM_OK)
        return supply.refusal;
    return BERM_ERROR_LIMIT;
}
