// SPDX-License-Identifier: Apache-2.0
// A miss: nothing that is mapped and free fits. The window rule says where the request goes: of all
// runs of free addresses, to the place that needs the fewest new mappings; only its holes are
// filled. supply.c says with what memory.
//
//   run:      [FREE][ VOID ][FREE][   VOID   ]      between two blocks
//   windows:  left- and right-aligned at every boundary of the run
//
// Where nothing mapped helps, a request of a few granules or more goes into the middle of the
// largest stretch of VOID. So blocks have unmapped addresses beside them, and what is freed between
// two others can be made larger in place instead of being taken apart: pages move half as often
// (docs/adr/0006-window.md).
//
// Order under failure: host records are secured; the window leaves the free index (BUSY); handles
// are gathered; each hole is mapped; last, the window is free again and the request is cut from it.
// Whatever fails, the window is settled by what its granules then are: mapped parts FREE, the rest
// VOID.
//
// Cost: bounded by FREE_RANGES_MAX runs of 2 RUN_WALK_MAX ranges. Locks: the device's, in its
// context; the pool's while a window is chosen, closed and settled, and not while the driver is
// called.
#include "policy/planned.h"
#include "policy/resizable.h"
#include "policy/supply.h"

#include "base/bits.h"

// A place for a request: [start, start + size) within the run; need = VOID granules it touches.
typedef struct window {
    berm_segment_t *segment;
    berm_range_t *first; // the range that holds the start
    uint64_t start_bytes;
    uint64_t need;
    // Once closed.
    berm_range_t *busy; // all of it; NULL: settled already
    uint64_t nodes;     // promised to it
} window_t;

// Walks a run forwards and counts VOID granules before an offset.
typedef struct cursor {
    const berm_range_t *range;
    uint64_t void_granules; // in ranges before `range`
    unsigned lg;
} cursor_t;

static bool range_is_open(const berm_range_t *range) {
    if (range == NULL)
        return false;
    berm_range_state_t state = berm__range_state(range);
    return state == BERM_RANGE_FREE || state == BERM_RANGE_VOID;
}

// Moves to the range that holds `offset` (or ends there) and returns how many VOID granules lie
// before it: those begun count if `counts_begun`.
static uint64_t cursor_count(cursor_t *cursor, uint64_t offset, bool counts_begun) {
    while (cursor->range->start_bytes + cursor->range->size_bytes < offset ||
           (!counts_begun && cursor->range->start_bytes + cursor->range->size_bytes == offset &&
            range_is_open(cursor->range->next))) {
        if (cursor->range->state == BERM_RANGE_VOID)
            cursor->void_granules += cursor->range->size_bytes >> cursor->lg;
        cursor->range = cursor->range->next;
    }
    if (cursor->range->state != BERM_RANGE_VOID)
        return cursor->void_granules;
    uint64_t into = offset - cursor->range->start_bytes;
    uint64_t round = counts_begun ? (UINT64_C(1) << cursor->lg) - 1 : 0;
    return cursor->void_granules + ((into + round) >> cursor->lg);
}

static void window_offer(window_t *best, berm_segment_t *segment, const cursor_t *at,
                         uint64_t start_bytes, uint64_t need) {
    if (best->segment != NULL && need >= best->need)
        return;
    *best = (window_t){.segment = segment,
                       .first = (berm_range_t *)at->range,
                       .start_bytes = start_bytes,
                       .need = need};
}

typedef struct request {
    uint64_t size_bytes, alignment_bytes;
    bool may_spread; // a place apart from other blocks is as good
} request_t;

static uint64_t start_align_up(const berm_segment_t *segment, uint64_t start, request_t request) {
    return berm__align_up(segment->base + start, request.alignment_bytes) - segment->base;
}

// Windows that begin at a boundary of the run, and those that end at one. Both walk the run once.
static void run_windows(window_t *best, berm_segment_t *segment, const berm_range_t *run,
                        uint64_t run_end, request_t request) {
    unsigned lg = segment->gpu->lg_granule;
    cursor_t low = {run, 0, lg}, high = {run, 0, lg};
    for (const berm_range_t *range = run; range_is_open(range); range = range->next) {
        uint64_t start = start_align_up(segment, range->start_bytes, request);
        if (start + request.size_bytes > run_end)
            break;
        uint64_t before = cursor_count(&low, start, false);
        uint64_t after = cursor_count(&high, start + request.size_bytes, true);
        window_offer(best, segment, &low, start, after - before);
    }
    low = high = (cursor_t){run, 0, lg};
    for (const berm_range_t *range = run; range_is_open(range) && range->start_bytes < run_end;
         range = range->next) {
        uint64_t end = range->start_bytes + range->size_bytes;
        if (end - run->start_bytes < request.size_bytes)
            continue;
        uint64_t start =
            berm__align_down(segment->base + end - request.size_bytes, request.alignment_bytes) -
            segment->base;
        if (start < run->start_bytes || start > end)
            continue;
        uint64_t before = cursor_count(&low, start, false);
        uint64_t after = cursor_count(&high, start + request.size_bytes, true);
        window_offer(best, segment, &low, start, after - before);
    }
}

// The run of open ranges around one of them, of a long one the part next to it.
enum {
    RUN_WALK_MAX = 128 // ranges to either side
};

static void run_offer(window_t *best, berm_segment_t *segment, const berm_range_t *range,
                      request_t request) {
    const berm_range_t *run = range;
    for (int i = 0; i < RUN_WALK_MAX && range_is_open(run->prev); i++)
        run = run->prev;
    uint64_t run_end = range->start_bytes;
    for (int i = 0; i < RUN_WALK_MAX && range_is_open(range); i++, range = range->next)
        run_end = range->start_bytes + range->size_bytes;
    if (run_end - run->start_bytes >= request.size_bytes)
        run_windows(best, segment, run, run_end, request);
}

// The index: mapped memory that a window can use lies in free ranges, and the larger the more it
// saves, so only the runs around the largest of them are looked at, and one where everything is to
// be mapped. So a miss costs the same in a heap of a million blocks. Against a full search,
// reserved and the share of moved bytes were the same on the recorded traces and MiniMalloc, but
// for resnet, where the share went from .0075 to .0114 in one pass and from .0122 to .0084 in the
// next.
enum {
    FREE_RANGES_MAX = 32
};

// A place apart from other blocks: in the middle of the largest VOID range of a segment that has
// addresses to spare. It shares no granule with a neighbour, so it has to be as good as the places
// that do, but for one mapping in SPREAD_TOLERANCE, and the rest of its last granule must be little
// beside all that is in use: in a small heap every granule counts, and none is spent this way.
enum {
    SPREAD_GRANULES_MIN = 5,
    SPREAD_HEAP_GRANULES_MIN = 2048, // in use
    SPREAD_REST_SHARE = 4096,        // of what is in use
    SPREAD_TOLERANCE = 128,
    SPREAD_SPANS_MIN = 8, // times the device's memory: what counts as addresses to spare
};

static bool request_may_spread(berm_device_t *device, uint64_t size_bytes) {
    const berm_gpu_t *gpu = &device->gpu;
    uint64_t live, peak;
    berm__counts_requested_read(device, &live, &peak);
    uint64_t used_bytes = berm__max_u64(live + size_bytes, peak);
    uint64_t rest_bytes = (0 - size_bytes) & (gpu->granule_bytes - 1);
    return used_bytes >> gpu->lg_granule >= SPREAD_HEAP_GRANULES_MIN &&
           size_bytes >> gpu->lg_granule >= SPREAD_GRANULES_MIN &&
           rest_bytes <= used_bytes / SPREAD_REST_SHARE;
}

static void spread_offer(window_t *best, berm_segment_t *segment, request_t request) {
    const berm_gpu_t *gpu = segment->gpu;
    uint64_t granules = (request.size_bytes + gpu->granule_bytes - 1) >> gpu->lg_granule;
    if (!request.may_spread || segment->span_bytes / SPREAD_SPANS_MIN < gpu->memory_bytes)
        return;
    const berm_range_t *range = berm__ranges_largest_void(&segment->ranges);
    if (range == NULL ||
        range->size_bytes / 2 < request.size_bytes + request.alignment_bytes + gpu->granule_bytes)
        return;
    uint64_t middle = range->start_bytes + (range->size_bytes - request.size_bytes) / 2;
    uint64_t start = start_align_up(segment, berm__align_down(middle, gpu->granule_bytes), request);
    cursor_t at = {range, 0, gpu->lg_granule};
    window_offer(best, segment, &at, start, granules - granules / SPREAD_TOLERANCE);
}

static void segment_windows(window_t *best, berm_segment_t *segment, request_t request) {
    spread_offer(best, segment, request);
    uint64_t slack = request.alignment_bytes - BERM_RANGE_UNIT_BYTES;
    const berm_range_t *unmapped =
        berm__ranges_find_void(&segment->ranges, request.size_bytes + slack);
    if (unmapped != NULL)
        run_offer(best, segment, unmapped, request);
    berm_range_t *range = berm__ranges_bin_last(&segment->ranges);
    for (int i = 0; i < FREE_RANGES_MAX && range != NULL; i++) {
        run_offer(best, segment, range, request);
        range = berm__ranges_bin_prev(&segment->ranges, range);
    }
}

static bool window_choose(berm_pool_t *pool, request_t request, window_t *window) {
    *window = (window_t){0};
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        if (segment->planned == NULL)
            segment_windows(window, segment, request);
    return window->segment != NULL;
}

// Takes the window, grown to whole VOID granules at its ends, out of the free index as one BUSY
// range; the records that settling may need are promised to it.
static berm_status_t window_close(berm_pool_t *pool, window_t *window, uint64_t size_bytes) {
    berm_ranges_t *ranges = &window->segment->ranges;
    uint64_t granule = pool->device->gpu.granule_bytes;
    uint64_t end_bytes = window->start_bytes + size_bytes, pieces = 1;
    berm_range_t *last = window->first;
    while (last->start_bytes + last->size_bytes < end_bytes) {
        last = last->next;
        pieces++;
    }
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + pieces + 4))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t start = window->start_bytes;
    if (window->first->state == BERM_RANGE_VOID)
        start = berm__align_down(start, granule);
    if (last->state == BERM_RANGE_VOID)
        end_bytes = berm__align_up(end_bytes, granule);
    berm_range_t *range = window->first, *head = NULL;
    while (range != NULL && range->start_bytes < end_bytes) {
        uint64_t low = berm__max_u64(range->start_bytes, start);
        uint64_t high = berm__min_u64(range->start_bytes + range->size_bytes, end_bytes);
        range = berm__ranges_carve(ranges, range, low, high - low, BERM_RANGE_BUSY);
        if (head == NULL)
            head = range;
        range = range->next;
    }
    BERM_INSIST(head != NULL, "a window has at least one range");
    while (head->start_bytes + head->size_bytes < end_bytes)
        berm__ranges_absorb_next(ranges, head);
    window->nodes = pieces + 2;
    pool->range_nodes_promised += window->nodes;
    window->busy = head;
    return BERM_OK;
}

// Makes a BUSY range FREE where its granules are mapped, and VOID where not.
static void window_settle(berm_segment_t *segment, berm_range_t *busy) {
    uint64_t granule_bytes = segment->gpu->granule_bytes;
    for (;;) {
        uint64_t start = busy->start_bytes, end = start + busy->size_bytes;
        bool is_mapped = segment->handle_of[berm__segment_granule_of(segment, start)] != NULL;
        uint64_t at = berm__align_down(start, granule_bytes) + granule_bytes;
        while (at < end &&
               (segment->handle_of[berm__segment_granule_of(segment, at)] != NULL) == is_mapped)
            at += granule_bytes;
        at = berm__min_u64(at, end);
        berm_range_t *piece =
            berm__ranges_carve(&segment->ranges, busy, start, at - start, BERM_RANGE_BUSY);
        berm_range_t *rest = at < end ? piece->next : NULL;
        (void)berm__ranges_settle(&segment->ranges, piece,
                                  is_mapped ? BERM_RANGE_FREE : BERM_RANGE_VOID);
        if (rest == NULL)
            return;
        busy = rest;
    }
}

// The next hole, a run of unmapped granules, after [*first, *first + *count); false at the end.
static bool hole_next(const berm_segment_t *segment, uint64_t end, uint64_t *first,
                      uint64_t *count) {
    uint64_t at = *first + *count;
    while (at < end && segment->handle_of[at] != NULL)
        at++;
    *first = at;
    while (at < end && segment->handle_of[at] == NULL)
        at++;
    *count = at - *first;
    return *count > 0;
}

static uint64_t window_end_granule(const berm_segment_t *segment, const berm_range_t *busy) {
    return berm__segment_granule_of(segment, busy->start_bytes + busy->size_bytes - 1) + 1;
}

// Nine tenths of what there may be are reserved. A plan is filled with small handles then, so that
// what is free between its blocks can go to other requests while it is installed.
static bool is_tight(const berm_pool_t *pool) {
    const berm_device_t *device = pool->device;
    uint64_t cap_bytes = berm__min_u64(device->limit_bytes, device->gpu.memory_bytes);
    return device->phys.reserved_bytes > cap_bytes / 10 * 9;
}

static void demand_measure(const berm_pool_t *pool, berm_segment_t *segment,
                           const berm_range_t *busy, berm_demand_t *demand) {
    uint64_t first = berm__segment_granule_of(segment, busy->start_bytes), count = 0;
    uint64_t end = window_end_granule(segment, busy);
    if (segment->has_views) {
        berm_planned_t *planned = segment->planned;
        demand->granules = berm__pages_short(&planned->pages, first, end - first);
        return;
    }
    while (hole_next(segment, end, &first, &count)) {
        demand->granules += count;
        demand->large_max += count / segment->store->phys->large_granules;
    }
    if (segment->store->phys->large_granules == 1 || (segment->planned != NULL && is_tight(pool)))
        demand->large_max = 0;
}

// A hole that failed to map and cannot be unmapped either is cut out of the window for good. The
// pool's lock is held.
static void hole_poison(berm_pool_t *pool, window_t *window, uint64_t first, uint64_t count) {
    berm_segment_t *segment = window->segment;
    unsigned lg = segment->gpu->lg_granule;
    berm_range_t *poisoned = berm__ranges_carve(&segment->ranges, window->busy, first << lg,
                                                count << lg, BERM_RANGE_BUSY);
    berm_range_t *before = poisoned->prev, *after = poisoned->next;
    berm__range_poison(pool, segment, poisoned);
    // What is BUSY beside it is of this window: the device's lock is held for each.
    if (before != NULL && berm__range_state(before) == BERM_RANGE_BUSY)
        window_settle(segment, before);
    window->busy = after != NULL && berm__range_state(after) == BERM_RANGE_BUSY ? after : NULL;
}

// Maps the holes with the idle handles. No pool's lock is held.
static berm_status_t holes_map(berm_pool_t *pool, window_t *window, bool may_be_large) {
    berm_segment_t *segment = window->segment;
    uint64_t first = berm__segment_granule_of(segment, window->busy->start_bytes), count = 0;
    uint64_t end = window_end_granule(segment, window->busy);
    uint32_t large_granules = segment->store->phys->large_granules;
    while (hole_next(segment, end, &first, &count)) {
        uint64_t large = 0;
        if (large_granules > 1 && may_be_large)
            large = berm__min_u64(count / large_granules,
                                  segment->store->idle_large_count + pool->aliased.large_count);
        berm_planned_t *planned = segment->planned;
        berm_status_t status =
            segment->has_views ? berm__pages_map(&planned->pages, pool, segment, first, count)
                               : berm__segment_map(segment, first, count, large, &pool->aliased);
        if (status == BERM_OK)
            continue;
        if (status != BERM_ERROR_CORRUPTION)
            return status;
        berm__mutex_lock(&pool->lock);
        hole_poison(pool, window, first, count);
        berm__mutex_unlock(&pool->lock);
        return BERM_ERROR_DRIVER;
    }
    return BERM_OK;
}

// Memory behind all of a closed window, or an error.
static berm_status_t window_fill(berm_pool_t *pool, window_t *window, berm_demand_t *demand) {
    demand_measure(pool, window->segment, window->busy, demand);
    berm_status_t status = berm__supply_gather(pool, demand);
    if (status == BERM_OK) {
        status = holes_map(pool, window, demand->large_max > 0);
        if (status != BERM_OK)
            berm__supply_undo(pool, demand);
    }
    return status;
}

// A window of addresses, taken out of the free index; a segment is added where none has room.
static berm_status_t window_open(berm_pool_t *pool, request_t request, window_t *window) {
    berm_status_t status = BERM_ERROR_OUT_OF_ADDRESSES;
    for (int attempt = 0; attempt < 2; attempt++) {
        berm__mutex_lock(&pool->lock);
        bool is_found = window_choose(pool, request, window);
        if (is_found)
            status = window_close(pool, window, request.size_bytes);
        berm__mutex_unlock(&pool->lock);
        if (is_found || attempt > 0)
            return status;
        status = berm__pool_segment_add(pool, request.size_bytes + request.alignment_bytes);
        if (status != BERM_OK)
            return status;
        status = BERM_ERROR_OUT_OF_ADDRESSES;
    }
    return status;
}

berm_status_t berm__miss_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                             berm_place_t *place) {
    window_t window;
    if (berm__pool_is_plain(pool))
        return berm__plain_map(pool, size_bytes, alignment_bytes, place);
    if (berm__pool_is_owned(pool))
        return berm__owned_map(pool, size_bytes, alignment_bytes, place);
    if (berm__pool_is_resizable(pool))
        return berm__resizable_map(pool, size_bytes, alignment_bytes, place);
    request_t request = {size_bytes, alignment_bytes, request_may_spread(pool->device, size_bytes)};
    berm_status_t status = window_open(pool, request, &window);
    if (status != BERM_OK)
        return status;
    berm_demand_t demand = {.request_bytes = size_bytes};
    status = window_fill(pool, &window, &demand);
    berm__mutex_lock(&pool->lock);
    if (window.busy != NULL)
        window_settle(window.segment, window.busy);
    pool->range_nodes_promised -= window.nodes;
    // At once: another thread may be waiting for the lock, to take what was mapped for this one.
    if (status == BERM_OK)
        status = berm__large_hit(pool, size_bytes, alignment_bytes, place);
    berm__mutex_unlock(&pool->lock);
    return status == BERM_ERROR_STATE ? BERM_ERROR_OUT_OF_DEVICE_MEMORY : status;
}

berm_status_t berm__miss_map_at(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *first,
                                uint64_t start_bytes, uint64_t size_bytes, berm_demand_t *demand) {
    window_t window = {.segment = segment, .first = first, .start_bytes = start_bytes};
    berm_status_t status = window_close(pool, &window, size_bytes);
    if (status != BERM_OK)
        return status;
    berm__mutex_unlock(&pool->lock);
    bool is_pushed;
    status = berm__gpu_enter(&pool->device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__device_edits_check(pool->device);
    if (status == BERM_OK)
        status = window_fill(pool, &window, demand);
    berm__gpu_leave(&pool->device->gpu, is_pushed);
    berm__mutex_lock(&pool->lock);
    if (window.busy != NULL)
        window_settle(window.segment, window.busy);
    pool->range_nodes_promised -= window.nodes;
    return status;
}
