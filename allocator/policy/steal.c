// SPDX-License-Identifier: Apache-2.0
// Taking physical memory away from free addresses: whole handles that no live byte and no queued
// work touches. They are unmapped in runs, one cuMemUnmap each, and become idle; whoever needs them
// maps them elsewhere. Moving pages instead of data is what this library is about.
//
// Victims are taken from the smallest free run that has a whole handle: large runs are the ones a
// request can still use as they are.
//
// Locks: the device's; its context is current. A failed unmap poisons its range (I16: a POISONED
// range is in no free list and its handles never move).
#include "policy/pool.h"

#include "base/bits.h"

typedef struct run {
    uint64_t first, count; // granules
} run_t;

static uint64_t handle_end(const berm_segment_t *segment, uint64_t granule, uint64_t limit) {
    uint64_t end = granule + 1;
    while (end < limit && segment->handle_of[end] == segment->handle_of[granule])
        end++;
    return end;
}

static bool handle_has_passed(const berm_segment_t *segment, const berm_stream_ref_t *stream,
                              uint64_t granule, uint64_t end) {
    for (; granule < end; granule++)
        if (!berm__stream_has_passed(stream, segment->ticket_of[granule]))
            return false;
    return true;
}

// The first run of whole handles in the range whose tickets have passed, at most `most` granules
// but one handle at least.
static bool range_passed_run(const berm_segment_t *segment, const berm_range_t *range,
                             const berm_stream_ref_t *stream, uint64_t most, run_t *run) {
    uint64_t first, count;
    if (!berm__segment_whole_handles(segment, range->start_bytes, range->size_bytes, &first,
                                     &count))
        return false;
    *run = (run_t){0, 0};
    for (uint64_t at = first, end; at < first + count && run->count < most; at = end) {
        end = handle_end(segment, at, first + count);
        bool has_passed = handle_has_passed(segment, stream, at, end);
        if (!has_passed && run->count > 0)
            break;
        if (!has_passed)
            continue;
        if (run->count == 0)
            run->first = at;
        else if (run->count + (end - at) > most)
            break;
        run->count += end - at;
    }
    return run->count > 0;
}

static berm_status_t run_steal(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                               run_t run) {
    berm_device_t *device = pool->device;
    if (!berm__node_slab_reserve(&device->range_nodes, device->range_nodes_promised + 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    unsigned lg = device->gpu.lg_granule;
    berm_range_t *cut = berm__ranges_carve(&segment->ranges, range, run.first << lg,
                                           run.count << lg, BERM_RANGE_BUSY);
    berm_status_t status = berm__segment_unmap(segment, run.first, run.count);
    if (status != BERM_OK) {
        berm__ranges_lift(&segment->ranges, cut, BERM_RANGE_POISONED);
        segment->poisoned_bytes += cut->size_bytes;
        device->poisoned_bytes += cut->size_bytes;
        return status;
    }
    (void)berm__ranges_settle(&segment->ranges, cut, BERM_RANGE_VOID);
    return BERM_OK;
}

static berm_status_t pool_steal(berm_pool_t *pool, uint64_t granules, uint64_t *taken) {
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        uint64_t granule_bytes = pool->device->gpu.granule_bytes;
        berm_range_t *range = berm__ranges_bin_first(&segment->ranges, granule_bytes);
        while (range != NULL && *taken < granules) {
            berm_range_t *next = berm__ranges_bin_next(&segment->ranges, range);
            run_t run;
            if (range_passed_run(segment, range, pool->stream, granules - *taken, &run)) {
                berm_status_t status = run_steal(pool, segment, range, run);
                if (status != BERM_OK)
                    return status;
                *taken += run.count;
            }
            range = next;
        }
    }
    return BERM_OK;
}

berm_status_t berm__steal_passed(berm_pool_t *pool, uint64_t granules, uint64_t *taken) {
    *taken = 0;
    berm_device_t *device = pool->device;
    (void)berm__small_flush(pool);
    berm_status_t status = berm__stream_poll(pool->stream);
    if (status == BERM_OK)
        status = pool_steal(pool, granules, taken);
    BERM_LIST_EACH (berm_pool_t, other, &device->pools, link) {
        if (status != BERM_OK || *taken >= granules)
            break;
        if (other == pool)
            continue;
        (void)berm__small_flush(other);
        status = berm__stream_poll(other->stream);
        if (status == BERM_OK)
            status = pool_steal(other, granules, taken);
    }
    return status;
}

// The lowest ticket that has not passed among whole free handles of a range; 0 if none.
static uint64_t range_cheapest_ticket(const berm_segment_t *segment, const berm_range_t *range,
                                      const berm_stream_ref_t *stream) {
    uint64_t first, count, cheapest = 0;
    if (!berm__segment_whole_handles(segment, range->start_bytes, range->size_bytes, &first,
                                     &count))
        return 0;
    for (uint64_t at = first, end; at < first + count; at = end) {
        end = handle_end(segment, at, first + count);
        uint64_t last = 0;
        for (uint64_t granule = at; granule < end; granule++)
            last = berm__max_u64(last, segment->ticket_of[granule]);
        if (!berm__stream_has_passed(stream, last) && (cheapest == 0 || last < cheapest))
            cheapest = last;
    }
    return cheapest;
}

berm_status_t berm__steal_wait(berm_pool_t *pool, bool *waited) {
    uint64_t cheapest = 0;
    *waited = false;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_range_t *range =
            berm__ranges_bin_first(&segment->ranges, pool->device->gpu.granule_bytes);
        for (; range != NULL; range = berm__ranges_bin_next(&segment->ranges, range)) {
            uint64_t ticket = range_cheapest_ticket(segment, range, pool->stream);
            if (ticket != 0 && (cheapest == 0 || ticket < cheapest))
                cheapest = ticket;
        }
    }
    if (cheapest == 0)
        return BERM_OK;
    berm_status_t status = berm__stream_wait(pool->stream, cheapest);
    *waited = status == BERM_OK;
    return status;
}

// Whole handles in the runs of free and awaited ranges of a segment.
static uint64_t segment_obtainable(const berm_segment_t *segment) {
    uint64_t granules = 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL;) {
        uint64_t start = range->start_bytes, size = 0, first, count;
        for (; range != NULL; range = range->next) {
            berm_range_state_t state = berm__range_state(range);
            if (state != BERM_RANGE_FREE && state != BERM_RANGE_AWAITED)
                break;
            size += range->size_bytes;
        }
        if (size > 0 && berm__segment_whole_handles(segment, start, size, &first, &count))
            granules += count;
        if (range != NULL)
            range = range->next;
    }
    return granules;
}

uint64_t berm__steal_obtainable(berm_pool_t *pool) {
    uint64_t granules = 0;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        granules += segment_obtainable(segment);
    return granules;
}
