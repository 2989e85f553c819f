// SPDX-License-Identifier: Apache-2.0
// remap:alias. A page that work queued on the pool's own stream may still use is mapped a second
// time, at once, for a new block of the same stream: that block's work is queued after it, so
// nothing waits. Its old address is STALE, neither free nor a hole, until that work is done; then
// it is unmapped.
//
//   before   [live][   free    ][live]            handles  a b b c
//   alias    [live][   stale   ][live] ... [busy] b at both: stale here, idle for the pool there
//   later    [live][   void    ][live] ... [live] one cuMemUnmap, once the ticket has passed
//
// Sound only between operations of a stream that follow each other whole: see docs/tuning.md.
//
// A handle that was aliased and is not mapped anew yet is in the pool's own idle lists (`aliased`):
// others may have it when its ticket has passed, and its stale mapping is gone.
//
// Locks: the device's, in its context; the pool's while ranges change. What is STALE is changed by
// who holds the device's lock only.
#include "policy/alias.h"

#include "base/bits.h"
#include "berm_introspect.h"

// Stale mappings of a device: beyond so many, or beyond addresses of as many bytes as the device
// has memory, pages move when their work is done, as they do without.
enum {
    STALE_MAPPINGS_MAX = 1 << 14
};

// How many more granules may become stale.
static uint64_t stale_room(const berm_device_t *device) {
    uint64_t most_bytes = device->gpu.memory_bytes, stale_bytes = device->phys.stale_bytes;
    if (device->phys.stale_mappings >= STALE_MAPPINGS_MAX || stale_bytes >= most_bytes)
        return 0;
    return berm__min_u64(STALE_MAPPINGS_MAX - device->phys.stale_mappings,
                         (most_bytes - stale_bytes) >> device->gpu.lg_granule);
}

bool berm__alias_is_allowed(const berm_pool_t *pool) {
    return pool->device->remap_is_alias && berm__pool_has_order(pool) &&
           berm__group_may_move(pool->group) && !berm__pool_is_apart(pool) &&
           stale_room(pool->device) > 0;
}

// The handles of a run leave their granules, for the pool, under the ticket of the whole run.
// Returns how many.
static uint32_t run_detach(berm_pool_t *pool, berm_segment_t *segment, uint64_t first,
                           uint64_t count, uint64_t ticket) {
    uint32_t handles = 0;
    for (uint64_t at = first; at < first + count;) {
        berm_phys_handle_t *handle = segment->handle_of[at];
        for (uint64_t i = 0; i < handle->granules; i++)
            segment->handle_of[at + i] = NULL;
        at += handle->granules;
        handle->aliased = &pool->aliased;
        handle->ticket = ticket;
        berm__segment_forget(segment, handle);
        handles++;
    }
    segment->store->phys->stale_mappings += handles;
    return handles;
}

static uint64_t run_ticket(const berm_segment_t *segment, uint64_t first, uint64_t count) {
    uint64_t ticket = BERM_TICKET_NONE;
    for (uint64_t at = first; at < first + count; at++)
        ticket = berm__max_u64(ticket, segment->ticket_of[at]);
    return ticket;
}

// The first run of handles in [*first, *first + count) that are no larger than `handle_granules`,
// up to `most` granules but one handle at least; 0 if there is none.
static uint64_t run_cut(const berm_segment_t *segment, uint64_t *first, uint64_t count,
                        uint32_t handle_granules, uint64_t most) {
    uint64_t at = *first, end = at + count, taken = 0;
    while (at < end && segment->handle_of[at]->granules > handle_granules)
        at += segment->handle_of[at]->granules;
    *first = at;
    while (at + taken < end && taken < most) {
        uint64_t granules = segment->handle_of[at + taken]->granules;
        if (granules > handle_granules || (taken > 0 && taken + granules > most))
            break;
        taken += granules;
    }
    return taken;
}

static berm_status_t range_alias(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                                 uint32_t handle_granules, uint64_t most, uint64_t *taken) {
    uint64_t first, count;
    if (!berm__segment_whole_handles(segment, range->start_bytes, range->size_bytes, &first,
                                     &count))
        return BERM_OK;
    count = run_cut(segment, &first, count, handle_granules, most);
    if (count == 0)
        return BERM_OK;
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    unsigned lg = segment->gpu->lg_granule;
    uint64_t ticket = run_ticket(segment, first, count);
    range = berm__ranges_carve(&segment->ranges, range, first << lg, count << lg, BERM_RANGE_STALE);
    range->as.stale.ticket = ticket;
    range->as.stale.next = segment->stale;
    range->mappings = run_detach(pool, segment, first, count, ticket);
    segment->stale = range;
    segment->store->phys->stale_bytes += range->size_bytes;
    *taken += count;
    return BERM_OK;
}

// Of the plans' arenas, or of all other segments. Pages with several views are passed by.
static berm_status_t part_alias(berm_pool_t *pool, uint32_t handle_granules, uint64_t granules,
                                bool is_of_plan, uint64_t *taken) {
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        if ((segment->planned != NULL) != is_of_plan || segment->has_views)
            continue;
        berm_range_t *range =
            berm__ranges_bin_first(&segment->ranges, pool->device->gpu.granule_bytes);
        while (range != NULL && *taken < granules && status == BERM_OK) {
            berm_range_t *next = berm__ranges_bin_next(&segment->ranges, range);
            status = range_alias(pool, segment, range, handle_granules, granules - *taken, taken);
            range = next;
        }
    }
    return status;
}

berm_status_t berm__alias_take(berm_pool_t *pool, uint32_t handle_granules, uint64_t granules,
                               bool takes_planned, uint64_t *taken) {
    *taken = 0;
    granules = berm__min_u64(granules, stale_room(pool->device));
    berm__mutex_lock(&pool->lock);
    berm_status_t status = part_alias(pool, handle_granules, granules, false, taken);
    if (status == BERM_OK && takes_planned && pool->is_planned)
        status = part_alias(pool, handle_granules, granules, true, taken);
    berm__mutex_unlock(&pool->lock);
    return status;
}

// --- retiring ----------------------------------------------------------------------------------

// Takes the stale range at *at off the segment's list and unmaps it; where the driver refuses to
// wait before, it stays.
static berm_status_t range_retire(berm_pool_t *pool, berm_segment_t *segment, berm_range_t **at) {
    berm_range_t *range = *at;
    berm_status_t status = berm__drv_status(berm__gpu_edit_begin(segment->gpu));
    if (status != BERM_OK)
        return status;
    *at = range->as.stale.next;
    berm__segment_tell(segment, BERM_EVENT_UNMAP, segment->base + range->start_bytes,
                       range->size_bytes);
    status = berm__drv_status(BERM_DRV_CALL(segment->gpu->drv, UNMAP, mem_unmap,
                                            segment->base + range->start_bytes, range->size_bytes));
    berm__mutex_lock(&pool->lock);
    if (status == BERM_OK) {
        pool->device->phys.stale_mappings -= range->mappings;
        pool->device->phys.stale_bytes -= range->size_bytes;
        range->mappings = 0;
    }
    berm__range_unmapped(pool, segment, range, status);
    berm__mutex_unlock(&pool->lock);
    return status;
}

// Handles that the pool did not use and that have passed are anyone's.
static void aliased_pass(berm_pool_t *pool, berm_list_t *idle, uint64_t *count) {
    for (berm_list_t *link = idle->next, *next; link != idle; link = next) {
        berm_phys_handle_t *handle = BERM_CONTAINER_OF(link, berm_phys_handle_t, link);
        next = link->next;
        if (!berm__stream_has_passed(pool->stream, handle->ticket))
            continue;
        berm__list_remove(&handle->link);
        --*count;
        handle->aliased = NULL;
        berm__store_give(handle);
    }
}

berm_status_t berm__alias_retire(berm_pool_t *pool) {
    berm_status_t first_error = berm__device_edits_check(pool->device);
    if (first_error != BERM_OK)
        return first_error == BERM_ERROR_CAPTURE ? BERM_OK : first_error;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        for (berm_range_t **at = &segment->stale; *at != NULL;) {
            berm_range_t *range = *at;
            if (!berm__stream_has_passed(pool->stream, range->as.stale.ticket)) {
                at = &range->as.stale.next;
                continue;
            }
            berm_status_t status = range_retire(pool, segment, at);
            if (*at == range)
                return status;
            if (first_error == BERM_OK)
                first_error = status;
        }
    }
    aliased_pass(pool, &pool->aliased.small, &pool->aliased.small_count);
    aliased_pass(pool, &pool->aliased.large, &pool->aliased.large_count);
    return first_error;
}
