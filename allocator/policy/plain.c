// SPDX-License-Identifier: Apache-2.0
// Pools of plain memory: where a miss gets a segment, and which segments go back. Nothing moves, so
// there is no headroom to keep: such a pool grows until the limit or the device stands in the way,
// and then segments that are wholly free, of any plain pool, are given back until there is room.
//
// Sizes: a segment is at least a 16th of what its pool has, so that a pool has few of them however
// it grew (each address found by a free costs one step more for each segment beside it); where that
// much is not to be had, it is what the request needs. On the recording gpt2_varlen reserved / live
// is 1.22, 1.19, 1.17 and 1.17 with an 8th, 16th, 32nd and 64th, with 94, 124, 178 and 258 driver
// calls.
//
// Locks: the device's, in its context; the pool's while its ranges are looked at, and not while the
// driver is called: a segment that goes is BUSY meanwhile.
#include "vmm/plain.h"

#include "base/bits.h"
#include "policy/pool.h"
#include "policy/source.h"

enum {
    GROWTH_SHARE = 16 // a new segment is at least this part of its pool
};
static const uint64_t chunk_most_bytes = BERM_GIB(1);

static bool is_short(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT;
}

// How large the next segment should be, in powers of two.
static uint64_t chunk_bytes(const berm_pool_t *pool) {
    uint64_t held_bytes = 0, bytes = pool->device->gpu.granule_bytes;
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
        held_bytes += segment->span_bytes;
    while (bytes < held_bytes / GROWTH_SHARE && bytes < chunk_most_bytes)
        bytes *= 2;
    return bytes;
}

// --- which segments are free -------------------------------------------------------------------

static bool segment_is_free(const berm_segment_t *segment, bool counts_awaited) {
    if (segment->is_exported || segment->handle_of[0]->pins > 0)
        return false;
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        berm_range_state_t state = berm__range_state(range);
        if (state != BERM_RANGE_FREE && !(counts_awaited && state == BERM_RANGE_AWAITED))
            return false;
    }
    return true;
}

static uint64_t segment_ticket(const berm_segment_t *segment) {
    uint64_t last = 0, granules = segment->span_bytes >> segment->gpu->lg_granule;
    for (uint64_t i = 0; i < granules; i++)
        last = berm__max_u64(last, segment->ticket_of[i]);
    return last;
}

uint64_t berm__plain_free_bytes(berm_pool_t *pool, bool counts_awaited) {
    uint64_t bytes = 0;
    if (!berm__group_may_move(pool->group))
        return 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
        if (segment_is_free(segment, counts_awaited))
            bytes += segment->plain_bytes;
    berm__mutex_unlock(&pool->lock);
    return bytes;
}

// --- giving back -------------------------------------------------------------------------------

// The free segment whose work has passed that is the smallest of at least `bytes`, or else, if it
// `may_exceed`, the largest; among those that are at most `bytes` otherwise.
static berm_segment_t *segment_choose(berm_pool_t *pool, uint64_t bytes, bool may_exceed) {
    berm_segment_t *best = NULL;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        uint64_t size = segment->plain_bytes;
        if ((!may_exceed && size > bytes) || !segment_is_free(segment, false) ||
            !berm__stream_has_passed(pool->stream, segment_ticket(segment)))
            continue;
        bool is_enough = best != NULL && best->plain_bytes >= bytes;
        if (best == NULL ||
            (is_enough ? size >= bytes && size < best->plain_bytes : size > best->plain_bytes))
            best = segment;
    }
    return best;
}

// Gives a BUSY segment back; one that the driver refuses to take is poisoned. Nobody finds it from
// before the driver has it: its addresses may be another's at once.
static berm_status_t segment_release(berm_pool_t *pool, berm_segment_t *segment) {
    berm__plain_hide(segment);
    berm_status_t status = berm__source_or_plain_free(pool->device, segment);
    berm__mutex_lock(&pool->lock);
    if (status == BERM_OK || !berm__plain_show(segment))
        berm__plain_forget(segment);
    else
        berm__range_poison(pool, segment, segment->ranges.first);
    berm__mutex_unlock(&pool->lock);
    return status;
}

berm_status_t berm__plain_release(berm_pool_t *pool, uint64_t bytes, bool may_exceed,
                                  uint64_t *released_bytes) {
    *released_bytes = 0;
    if (!berm__group_may_move(pool->group))
        return BERM_OK;
    (void)berm__small_flush_locking(pool);
    berm_status_t status = berm__stream_poll(pool->stream);
    while (status == BERM_OK && *released_bytes < bytes) {
        berm__mutex_lock(&pool->lock);
        berm_segment_t *segment = segment_choose(pool, bytes - *released_bytes, may_exceed);
        if (segment != NULL)
            berm__ranges_lift(&segment->ranges, segment->ranges.first, BERM_RANGE_BUSY);
        berm__mutex_unlock(&pool->lock);
        if (segment == NULL)
            break;
        uint64_t size = segment->plain_bytes;
        status = segment_release(pool, segment);
        *released_bytes += status == BERM_OK ? size : 0;
    }
    return status;
}

uint64_t berm__plain_cheapest_ticket(berm_pool_t *pool) {
    uint64_t cheapest = 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link) {
        uint64_t ticket = segment_is_free(segment, false) ? segment_ticket(segment) : 0;
        if (ticket != 0 && !berm__stream_has_passed(pool->stream, ticket) &&
            (cheapest == 0 || ticket < cheapest))
            cheapest = ticket;
    }
    berm__mutex_unlock(&pool->lock);
    return cheapest;
}

// --- a miss ------------------------------------------------------------------------------------

typedef struct want {
    uint64_t size_bytes, alignment_bytes;
    berm_place_t *place;
} want_t;

static berm_status_t hit_locking(berm_pool_t *pool, const want_t *want) {
    berm__mutex_lock(&pool->lock);
    berm_status_t status =
        berm__large_hit(pool, want->size_bytes, want->alignment_bytes, want->place);
    berm__mutex_unlock(&pool->lock);
    return status;
}

// A new segment, from which the request is served before anybody else can be.
static berm_status_t segment_add(berm_pool_t *pool, uint64_t span_bytes, const want_t *want) {
    berm_device_t *device = pool->device;
    berm_segment_t *segment;
    uint64_t room = berm__device_growth_bytes(device);
    if (room < span_bytes)
        return BERM_ERROR_LIMIT;
    berm_status_t status =
        berm__plain_create(pool->group->store, device->dir, span_bytes, pool, &segment);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&pool->lock);
    status = berm__plain_open(segment, &pool->range_nodes);
    bool is_open = status == BERM_OK, is_over = segment->plain_bytes > room;
    if (is_open)
        berm__list_push_back(&pool->segments, &segment->link);
    if (is_open && is_over) // with what alignment took
        berm__ranges_lift(&segment->ranges, segment->ranges.first, BERM_RANGE_BUSY);
    if (is_open && !is_over)
        status = berm__large_hit(pool, want->size_bytes, want->alignment_bytes, want->place);
    berm__mutex_unlock(&pool->lock);
    if (is_open && is_over) {
        status = segment_release(pool, segment);
        return status == BERM_OK ? BERM_ERROR_LIMIT : status;
    }
    if (!is_open) {
        if (berm__plain_free(segment) != BERM_OK) // once more: there is no later chance
            (void)berm__plain_free(segment);
        berm__plain_forget(segment);
    }
    return status == BERM_ERROR_STATE ? BERM_ERROR_OUT_OF_DEVICE_MEMORY : status;
}

// Finishes frees that are done, and records events for what is free by now.
static berm_status_t pools_look(berm_device_t *device, bool *has_freed) {
    berm_status_t status = BERM_OK;
    *has_freed = false;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        bool freed = false;
        if (status == BERM_OK)
            status = berm__deferred_process(pool, &freed);
        *has_freed |= freed;
        if (status == BERM_OK && berm__pool_has_order(pool))
            status = berm__stream_seal(pool->stream);
    }
    return status;
}

// Gives memory back, of plain pools and of others, or finishes frees that could make some; waits
// for the device only where nothing else is left.
static berm_status_t room_make(berm_device_t *device, uint64_t bytes, bool *has_progress) {
    berm_phys_t *phys = &device->phys;
    uint64_t reserved = phys->reserved_bytes, taken = 0;
    uint64_t keep = reserved - berm__min_u64(reserved, bytes);
    berm_status_t status = pools_look(device, has_progress);
    if (status != BERM_OK || *has_progress)
        return status;
    status = berm__phys_release_idle(phys, keep);
    if (status == BERM_OK && phys->reserved_bytes == reserved)
        status =
            berm__steal_device(device, NULL, (bytes - 1) / device->gpu.granule_bytes + 1, &taken);
    *has_progress = phys->reserved_bytes < reserved || taken > 0;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (status == BERM_OK && !*has_progress && !device->ladder.puts_off_waits)
            status = berm__steal_wait(pool, has_progress);
    return status;
}

// How much must go before a segment of `bytes` has room, as far as the limit and the driver tell.
static uint64_t room_short(berm_device_t *device, uint64_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t room = berm__device_growth_bytes(device);
    if (BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_bytes, &total_bytes) ==
        BERM_CU_SUCCESS)
        room = berm__min_u64(room, free_bytes);
    return room < bytes ? bytes - room : device->gpu.granule_bytes;
}

berm_status_t berm__plain_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place) {
    want_t want = {size_bytes, alignment_bytes, place};
    if (berm__pool_is_owned(pool) && alignment_bytes > BERM_CELL_BYTES)
        return BERM_ERROR_ALIGNMENT; // a block is a segment from its start
    uint64_t slack = alignment_bytes > BERM_CELL_BYTES ? alignment_bytes : 0;
    uint64_t exact = berm__align_up(size_bytes + slack, pool->device->gpu.granule_bytes);
    uint64_t chunk = berm__pool_is_owned(pool) ? exact : berm__max_u64(exact, chunk_bytes(pool));
    berm_status_t status = segment_add(pool, chunk, &want);
    if (is_short(status) && exact < chunk)
        status = segment_add(pool, exact, &want);
    bool has_progress = true;
    while (is_short(status) && has_progress) {
        berm_status_t made =
            room_make(pool->device, room_short(pool->device, exact), &has_progress);
        if (made != BERM_OK)
            return made;
        made = hit_locking(pool, &want);
        if (made != BERM_ERROR_STATE)
            return made;
        if (has_progress)
            status = segment_add(pool, exact, &want);
    }
    return status;
}
