// SPDX-License-Identifier: Apache-2.0
// Taking physical memory away from free addresses: whole handles that no live byte and no queued
// work touches. They are unmapped in runs, one cuMemUnmap each, and become idle; whoever needs them
// maps them elsewhere. Moving pages instead of data is what this library is about.
//
// Victims are taken from the smallest free run that has a whole handle: large runs are the ones a
// request can still use as they are.
//
// A handle under a pinned block is never wholly free: some of its bytes are live, awaited or held.
//
// Pages move only between pools of one store, and never from or within a pool whose group's pages
// must stay (group.h).
//
// Locks: the device's, in its context; a pool's while its runs are picked and settled, and not
// while the driver unmaps them. A failed unmap poisons its range (I16: a POISONED range is in no
// free list and its handles never move).
#include "policy/alias.h"

#include "base/bits.h"
#include "policy/planned.h"

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

// The first run of handles in [first, first + count) whose tickets have passed, at most `most`
// granules but one handle at least.
static bool passed_run(const berm_segment_t *segment, const berm_stream_ref_t *stream, run_t within,
                       uint64_t most, run_t *run) {
    uint64_t limit = within.first + within.count;
    *run = (run_t){0, 0};
    for (uint64_t at = within.first, end; at < limit && run->count < most; at = end) {
        end = handle_end(segment, at, limit);
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

// The same among the whole handles of a free range.
static bool range_passed_run(const berm_segment_t *segment, const berm_range_t *range,
                             const berm_stream_ref_t *stream, uint64_t most, run_t *run) {
    run_t whole;
    return berm__segment_whole_handles(segment, range->start_bytes, range->size_bytes, &whole.first,
                                       &whole.count) &&
           passed_run(segment, stream, whole, most, run);
}

// Runs on their way out of their addresses: BUSY while the driver unmaps them.
enum {
    BATCH_MAX = 64,
    SKIPS_MAX = 64, // ranges of less than two granules without anything to take, before larger ones
};

typedef struct batch {
    unsigned count, skips;
    uint64_t granules;
    struct {
        berm_segment_t *segment;
        berm_range_t *range;
        run_t run;
    } runs[BATCH_MAX];
} batch_t;

// Takes a run out of its free range.
static berm_status_t batch_add(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                               run_t run, batch_t *batch) {
    unsigned lg = segment->gpu->lg_granule;
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    range = berm__ranges_carve(&segment->ranges, range, run.first << lg, run.count << lg,
                               BERM_RANGE_BUSY);
    batch->runs[batch->count].segment = segment;
    batch->runs[batch->count].range = range;
    batch->runs[batch->count++].run = run;
    batch->granules += run.count;
    return BERM_OK;
}

// Takes what has passed out of a range, if anything.
static berm_status_t batch_take(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                                uint64_t most, batch_t *batch) {
    run_t run;
    if (!range_passed_run(segment, range, pool->stream, most - batch->granules, &run)) {
        batch->skips++;
        return BERM_OK;
    }
    return batch_add(pool, segment, range, run, batch);
}

// Takes runs that have passed out of the free ones, smallest free range first, up to `most`
// granules: of a plan's arena, or of all others. A range of less than two granules may have no
// whole one; there may be any number of those, so they are left for last once SKIPS_MAX were in
// vain. The pool's lock is held.
static berm_status_t batch_pick(berm_pool_t *pool, bool is_of_plan, uint64_t most, bool skips_any,
                                batch_t *batch) {
    uint64_t granule = pool->device->gpu.granule_bytes;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        if ((segment->planned != NULL) != is_of_plan || segment->has_views)
            continue;
        berm_range_t *range = berm__ranges_bin_first(&segment->ranges, granule);
        while (range != NULL && batch->granules < most && batch->count < BATCH_MAX) {
            berm_range_t *next = berm__ranges_bin_next(&segment->ranges, range);
            if (!skips_any && batch->skips >= SKIPS_MAX && range->size_bytes < 2 * granule)
                next = berm__ranges_bin_first(&segment->ranges, 2 * granule);
            else if (range->size_bytes >= granule) {
                berm_status_t status = batch_take(pool, segment, range, most, batch);
                if (status != BERM_OK)
                    return status;
            }
            range = next;
        }
    }
    return BERM_OK;
}

// --- arenas of plans: what the plan wants last goes first ----------------------------------------

enum {
    PLAN_RANGES_MAX = 64, // looked at for each run
    PLAN_SAMPLES = 4      // handles of each
};

typedef struct victim {
    berm_range_t *range;
    run_t whole; // of the range
    uint64_t granule;
    uint32_t distance;
} victim_t;

static bool victim_is_good(const berm_pool_t *pool, const berm_segment_t *segment,
                           const run_t *whole, uint64_t granule, uint32_t least,
                           uint32_t *distance) {
    uint64_t end = handle_end(segment, granule, whole->first + whole->count);
    *distance = berm__planned_distance(segment->planned, granule);
    return *distance >= least && handle_has_passed(segment, pool->stream, granule, end);
}

static void victim_offer(const berm_pool_t *pool, const berm_segment_t *segment,
                         berm_range_t *range, victim_t *best) {
    run_t whole;
    if (!berm__segment_whole_handles(segment, range->start_bytes, range->size_bytes, &whole.first,
                                     &whole.count))
        return;
    for (uint64_t i = 0; i < PLAN_SAMPLES; i++) {
        uint64_t at = whole.first + i * whole.count / PLAN_SAMPLES;
        uint32_t distance;
        while (at > whole.first && segment->handle_of[at - 1] == segment->handle_of[at])
            at--;
        if (victim_is_good(pool, segment, &whole, at, best->distance + 1, &distance))
            *best = (victim_t){range, whole, at, distance};
    }
}

// A run of handles that the plan wants late, around the one that it wants last of some.
static bool plan_run(const berm_pool_t *pool, berm_segment_t *segment, uint64_t most,
                     berm_range_t **range, run_t *run) {
    victim_t best = {0};
    uint32_t distance;
    berm_range_t *at = berm__ranges_bin_last(&segment->ranges);
    for (int i = 0; i < PLAN_RANGES_MAX && at != NULL; i++) {
        victim_offer(pool, segment, at, &best);
        at = berm__ranges_bin_prev(&segment->ranges, at);
    }
    if (best.range == NULL)
        return false;
    uint64_t end = best.whole.first + best.whole.count;
    *range = best.range;
    *run = (run_t){best.granule, handle_end(segment, best.granule, end) - best.granule};
    while (run->first + run->count < end && run->count < most &&
           victim_is_good(pool, segment, &best.whole, run->first + run->count, best.distance / 2,
                          &distance)) {
        uint64_t next = run->first + run->count;
        uint64_t count = handle_end(segment, next, end) - next;
        if (run->count + count > most)
            break;
        run->count += count;
    }
    return true;
}

static berm_status_t plan_pick(berm_pool_t *pool, uint64_t most, batch_t *batch) {
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_range_t *range;
        run_t run;
        if (segment->planned == NULL || segment->has_views)
            continue;
        while (batch->granules < most && batch->count < BATCH_MAX &&
               plan_run(pool, segment, most - batch->granules, &range, &run)) {
            berm_status_t status = batch_add(pool, segment, range, run, batch);
            if (status != BERM_OK)
                return status;
        }
    }
    return BERM_OK;
}

// Unmaps the runs of a batch. After a failure the rest become free again, as they were.
static berm_status_t batch_unmap(berm_pool_t *pool, const batch_t *batch, uint64_t *taken) {
    berm_status_t statuses[BATCH_MAX], status = BERM_OK;
    unsigned done = 0;
    for (; done < batch->count && status == BERM_OK; done++) {
        run_t run = batch->runs[done].run;
        statuses[done] = status =
            berm__segment_unmap(batch->runs[done].segment, run.first, run.count);
        *taken += status == BERM_OK ? run.count : 0;
    }
    berm__mutex_lock(&pool->lock);
    for (unsigned i = 0; i < batch->count; i++) {
        berm_segment_t *segment = batch->runs[i].segment;
        if (i < done)
            berm__range_unmapped(pool, segment, batch->runs[i].range, statuses[i]);
        else
            (void)berm__ranges_settle(&segment->ranges, batch->runs[i].range, BERM_RANGE_FREE);
    }
    berm__mutex_unlock(&pool->lock);
    return status;
}

static berm_status_t segments_release(berm_pool_t *pool, uint64_t granules, uint64_t *taken) {
    unsigned lg = pool->device->gpu.lg_granule;
    uint64_t released_bytes, wanted = granules - *taken;
    uint64_t bytes = wanted > UINT64_MAX >> lg ? UINT64_MAX : wanted << lg;
    berm_status_t status = berm__plain_release(pool, bytes, true, &released_bytes);
    *taken += released_bytes >> lg;
    return status;
}

// Of an aliased plan's arena: page by page, since each may be mapped anywhere in it.
static berm_status_t pages_steal(berm_pool_t *pool, uint64_t granules, uint64_t *taken) {
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        berm_planned_t *planned = segment->planned;
        if (segment->has_views && status == BERM_OK)
            status = berm__pages_steal(&planned->pages, pool, segment, granules, taken);
    }
    return status;
}

static berm_status_t part_steal(berm_pool_t *pool, bool is_of_plan, uint64_t granules,
                                uint64_t *taken) {
    if (!berm__group_may_move(pool->group) || *taken >= granules)
        return BERM_OK;
    if (berm__pool_is_plain(pool))
        return segments_release(pool, granules, taken);
    berm_status_t status = berm__device_edits_check(pool->device);
    if (status != BERM_OK)
        return status == BERM_ERROR_CAPTURE ? BERM_OK : status;
    (void)berm__small_flush_locking(pool);
    status = berm__stream_poll(pool->stream);
    if (status == BERM_OK)
        status = berm__alias_retire(pool);
    bool has_more = true, skips_any = false;
    if (status == BERM_OK && is_of_plan)
        status = pages_steal(pool, granules, taken);
    while (status == BERM_OK && has_more && *taken < granules) {
        batch_t batch = {0};
        berm__mutex_lock(&pool->lock);
        berm_status_t picked = is_of_plan ? plan_pick(pool, granules - *taken, &batch) : BERM_OK;
        if (picked == BERM_OK && batch.count == 0)
            picked = batch_pick(pool, is_of_plan, granules - *taken, skips_any, &batch);
        berm__mutex_unlock(&pool->lock);
        status = batch_unmap(pool, &batch, taken);
        if (status == BERM_OK)
            status = picked;
        // When the larger ones were not enough, all of the small ones are looked at.
        bool was_cut = !skips_any && batch.skips >= SKIPS_MAX && batch.count < BATCH_MAX;
        has_more = (is_of_plan ? batch.count > 0 : batch.count == BATCH_MAX) || was_cut;
        skips_any = skips_any || was_cut;
    }
    return status;
}

berm_status_t berm__steal_pool(berm_pool_t *pool, uint64_t granules, uint64_t *taken) {
    berm_status_t status = part_steal(pool, false, granules, taken);
    return status == BERM_OK && pool->is_planned ? part_steal(pool, true, granules, taken) : status;
}

berm_status_t berm__steal_passed(berm_pool_t *pool, uint64_t granules, bool takes_planned,
                                 uint64_t *taken) {
    *taken = 0;
    berm_status_t status = part_steal(pool, false, granules, taken);
    BERM_LIST_EACH (berm_pool_t, other, &pool->device->pools, link)
        if (status == BERM_OK && other != pool && other->group->store == pool->group->store)
            status = part_steal(other, false, granules, taken);
    BERM_LIST_EACH (berm_pool_t, each, &pool->device->pools, link)
        if (status == BERM_OK && takes_planned && each->is_planned &&
            each->group->store == pool->group->store)
            status = part_steal(each, true, granules, taken);
    return status;
}

berm_status_t berm__steal_device(berm_device_t *device, const berm_store_t *except,
                                 uint64_t granules, uint64_t *taken) {
    berm_status_t status = BERM_OK;
    *taken = 0;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (status == BERM_OK && pool->group->store != except)
            status = berm__steal_pool(pool, granules, taken);
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

static uint64_t segment_cheapest_ticket(const berm_pool_t *pool, berm_segment_t *segment) {
    uint64_t cheapest = 0;
    const berm_planned_t *planned = segment->planned;
    if (segment->has_views)
        return berm__pages_cheapest_ticket(&planned->pages, pool, segment);
    berm_range_t *range = berm__ranges_bin_first(&segment->ranges, pool->device->gpu.granule_bytes);
    for (; range != NULL; range = berm__ranges_bin_next(&segment->ranges, range)) {
        uint64_t ticket = range_cheapest_ticket(segment, range, pool->stream);
        if (ticket != 0 && (cheapest == 0 || ticket < cheapest))
            cheapest = ticket;
    }
    return cheapest;
}

// The same of all of the pool's ranges.
static uint64_t pool_cheapest_ticket(berm_pool_t *pool) {
    uint64_t cheapest = 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        uint64_t ticket = segment_cheapest_ticket(pool, segment);
        if (ticket != 0 && (cheapest == 0 || ticket < cheapest))
            cheapest = ticket;
    }
    berm__mutex_unlock(&pool->lock);
    return cheapest;
}

berm_status_t berm__steal_wait(berm_pool_t *pool, bool *waited) {
    uint64_t cheapest = 0;
    *waited = false;
    if (berm__group_may_move(pool->group))
        cheapest = berm__pool_is_plain(pool) ? berm__plain_cheapest_ticket(pool)
                                             : pool_cheapest_ticket(pool);
    if (cheapest == 0)
        return BERM_OK;
    berm_status_t status = berm__stream_wait(pool->stream, cheapest);
    *waited = status == BERM_OK;
    return status == BERM_ERROR_CAPTURE ? BERM_OK : status;
}

// Free, or so once its streams are done. Memory that other processes may have is theirs.
static bool range_is_obtainable(const berm_pool_t *pool, const berm_segment_t *segment,
                                const berm_range_t *range) {
    berm_range_state_t state = berm__range_state(range);
    return state == BERM_RANGE_FREE ||
           (state == BERM_RANGE_AWAITED && !berm__range_is_exported(pool, segment, range));
}

// Granules of whole handles in [start, start + size).
static uint64_t whole_granules(const berm_segment_t *segment, uint64_t start_bytes,
                               uint64_t size_bytes) {
    uint64_t first, count;
    return berm__segment_whole_handles(segment, start_bytes, size_bytes, &first, &count) ? count
                                                                                         : 0;
}

static uint64_t pages_unused(const berm_segment_t *segment) {
    const berm_planned_t *planned = segment->planned;
    return berm__pages_unused(&planned->pages);
}

uint64_t berm__steal_free(berm_pool_t *pool) {
    uint64_t granules = 0;
    if (berm__pool_is_plain(pool))
        return berm__plain_free_bytes(pool, false) >> pool->device->gpu.lg_granule;
    if (!berm__group_may_move(pool->group))
        return 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        if (segment->has_views) {
            granules += pages_unused(segment);
            continue;
        }
        berm_range_t *range =
            berm__ranges_bin_first(&segment->ranges, pool->device->gpu.granule_bytes);
        for (; range != NULL; range = berm__ranges_bin_next(&segment->ranges, range))
            granules += whole_granules(segment, range->start_bytes, range->size_bytes);
    }
    berm__mutex_unlock(&pool->lock);
    return granules;
}

// Whole handles in the runs of free and awaited ranges of a segment.
static uint64_t segment_obtainable(const berm_pool_t *pool, const berm_segment_t *segment) {
    uint64_t granules = 0;
    if (segment->has_views)
        return pages_unused(segment);
    for (const berm_range_t *range = segment->ranges.first; range != NULL;) {
        uint64_t start = range->start_bytes, size = 0;
        for (; range != NULL && range_is_obtainable(pool, segment, range); range = range->next)
            size += range->size_bytes;
        if (size > 0)
            granules += whole_granules(segment, start, size);
        if (range != NULL)
            range = range->next;
    }
    return granules;
}

uint64_t berm__steal_obtainable(berm_pool_t *pool) {
    uint64_t granules = 0;
    bool will_move = pool->group->use_count == 0 || berm__group_may_move(pool->group);
    if (berm__pool_is_plain(pool))
        return berm__plain_free_bytes(pool, true) >> pool->device->gpu.lg_granule;
    if (!will_move)
        return 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        granules += segment_obtainable(pool, segment);
    berm__mutex_unlock(&pool->lock);
    return granules;
}
