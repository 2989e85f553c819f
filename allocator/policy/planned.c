// SPDX-License-Identifier: Apache-2.0
// The addresses of a plan: see planned.h.
#include "policy/planned.h"

#include "base/bits.h"
#include "host/mem.h"
#include "policy/supply.h"

static uint64_t cell_of(uint64_t offset_bytes) {
    return offset_bytes / BERM_CELL_BYTES;
}

bool berm__course_init(berm_course_t *course, uint32_t length) {
    *course = (berm_course_t){.length = length};
    course->bytes = berm__mem_alloc(length * sizeof *course->bytes);
    course->item_of = berm__mem_alloc(length * sizeof *course->item_of);
    course->request_of = berm__mem_alloc(length * sizeof *course->request_of);
    if (course->bytes != NULL && course->item_of != NULL && course->request_of != NULL)
        return true;
    berm__course_destroy(course);
    return false;
}

void berm__course_destroy(berm_course_t *course) {
    berm__mem_free(course->bytes, course->length * sizeof *course->bytes);
    berm__mem_free(course->item_of, course->length * sizeof *course->item_of);
    berm__mem_free(course->request_of, course->length * sizeof *course->request_of);
    *course = (berm_course_t){0};
}

static void records_free(berm_planned_t *gone) {
    berm__pages_destroy(&gone->pages);
    berm__forecast_destroy(&gone->forecast);
    berm__course_destroy(&gone->course);
    berm__cells_destroy(&gone->taken);
    if (gone->range_of != NULL)
        berm__mem_unreserve(gone->range_of, gone->range_of_bytes);
    berm__follow_destroy(gone->follow);
    berm__planner_destroy(gone->planner);
}

// The records of a plan: others look at them with the pool's lock alone.
static berm_planned_t records_take(berm_planned_t *planned, berm_pool_t *pool) {
    berm__mutex_lock(&pool->lock);
    berm_planned_t gone = *planned;
    if (gone.segment != NULL) {
        gone.segment->planned = NULL;
        gone.segment->has_views = false;
        pool->is_planned = false;
    }
    *planned = (berm_planned_t){0};
    berm__mutex_unlock(&pool->lock);
    return gone;
}

berm_status_t berm__planned_install(berm_planned_t *planned, berm_pool_t *pool,
                                    berm_planner_t *planner, const berm_course_t *course) {
    const berm_plan_t *plan = berm__planner_plan(planner);
    uint64_t cells = cell_of(plan->arena_bytes - 1) + 1;
    berm_planned_t made = {.planner = planner, .plan = plan, .course = *course};
    made.follow = berm__follow_create(course->bytes, course->length);
    made.range_of_bytes = cells * sizeof *made.range_of;
    made.range_of = berm__mem_reserve(made.range_of_bytes);
    bool is_made =
        made.follow != NULL && made.range_of != NULL && berm__cells_init(&made.taken, cells) &&
        (plan->is_aliased
             ? berm__pages_init(&made.pages, plan)
             : berm__forecast_init(&made.forecast, plan, course, pool->device->gpu.lg_granule));
    if (!is_made) {
        records_free(&made);
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    }
    berm__mutex_lock(&pool->lock);
    *planned = made;
    berm__mutex_unlock(&pool->lock);
    berm_status_t status = berm__pool_arena_add(pool, plan->arena_bytes, planned);
    if (status != BERM_OK) {
        made = records_take(planned, pool);
        records_free(&made);
    }
    return status;
}

// Pages of an aliased plan are unmapped once nothing uses them.
static bool pages_leave(berm_planned_t *planned, berm_pool_t *pool) {
    uint64_t taken = 0;
    berm__mutex_lock(&pool->lock);
    bool is_empty = planned->taken_count == 0;
    berm__mutex_unlock(&pool->lock);
    if (!is_empty || berm__device_edits_check(pool->device) != BERM_OK ||
        berm__stream_seal(pool->stream) != BERM_OK || berm__stream_poll(pool->stream) != BERM_OK ||
        berm__pages_steal(&planned->pages, pool, planned->segment, UINT64_MAX, &taken) != BERM_OK)
        return false;
    return !berm__pages_are_mapped(&planned->pages);
}

bool berm__planned_drop(berm_planned_t *planned, berm_pool_t *pool, bool is_closing) {
    if (planned->segment == NULL)
        return true;
    if (is_closing) {
        records_free(planned);
        *planned = (berm_planned_t){0};
        return true;
    }
    berm__mutex_lock(&pool->lock);
    planned->is_ending = true;
    berm__mutex_unlock(&pool->lock);
    if (berm__pages_are_on(&planned->pages) && !pages_leave(planned, pool))
        return false;
    berm_planned_t gone = records_take(planned, pool);
    records_free(&gone);
    return true;
}

// The range that holds an offset: at most a few after the taken one below it.
berm_range_t *berm__planned_range_at(const berm_planned_t *planned, uint64_t offset_bytes) {
    uint64_t cell = berm__cells_at_or_below(&planned->taken, cell_of(offset_bytes));
    // A block that starts in the offset's own cell may start after it.
    if (cell != BERM_CELL_NONE && planned->range_of[cell]->start_bytes > offset_bytes)
        cell = cell > 0 ? berm__cells_at_or_below(&planned->taken, cell - 1) : BERM_CELL_NONE;
    berm_range_t *range =
        cell == BERM_CELL_NONE ? planned->segment->ranges.first : planned->range_of[cell];
    while (range->start_bytes + range->size_bytes <= offset_bytes)
        range = range->next;
    return range;
}

typedef enum span_state {
    SPAN_FREE,  // all of it, in one range
    SPAN_HOLES, // some of it is to be mapped
    SPAN_TAKEN,
} span_state_t;

static bool span_pages(const berm_planned_t *planned, uint64_t start_bytes, uint64_t size_bytes,
                       uint64_t *first, uint64_t *count) {
    unsigned lg = planned->segment->gpu->lg_granule;
    *first = start_bytes >> lg;
    *count = ((start_bytes + size_bytes - 1) >> lg) + 1 - *first;
    return berm__pages_are_on(&planned->pages);
}

static span_state_t span_look(const berm_planned_t *planned, const berm_range_t *range,
                              uint64_t start_bytes, uint64_t size_bytes) {
    uint64_t end_bytes = start_bytes + size_bytes, first, count;
    if (span_pages(planned, start_bytes, size_bytes, &first, &count) &&
        !berm__pages_are_free(&planned->pages, first, count))
        return SPAN_TAKEN;
    if (berm__range_state(range) == BERM_RANGE_FREE &&
        range->start_bytes + range->size_bytes >= end_bytes)
        return SPAN_FREE;
    for (; range != NULL && range->start_bytes < end_bytes; range = range->next) {
        berm_range_state_t state = berm__range_state(range);
        if (state != BERM_RANGE_FREE && state != BERM_RANGE_VOID)
            return SPAN_TAKEN;
    }
    return SPAN_HOLES;
}

static berm_status_t span_take(berm_planned_t *planned, berm_pool_t *pool, berm_range_t *range,
                               uint64_t start_bytes, uint64_t size_bytes, berm_place_t *place) {
    berm_segment_t *segment = planned->segment;
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    range = berm__ranges_carve(&segment->ranges, range, start_bytes, size_bytes, BERM_RANGE_LIVE);
    berm__cells_insert(&planned->taken, cell_of(start_bytes));
    planned->range_of[cell_of(start_bytes)] = range;
    planned->taken_count++;
    uint64_t first, count;
    if (span_pages(planned, start_bytes, size_bytes, &first, &count))
        berm__pages_use(&planned->pages, first, count, true);
    *place = (berm_place_t){segment, range};
    return BERM_OK;
}

// Which request of the course it is: one of its size, or the one that is due, if the size is not
// far from that one's and there is room for it.
static uint32_t request_find(const berm_planned_t *planned, uint64_t size_bytes) {
    uint32_t request = berm__follow_find(planned->follow, size_bytes);
    if (request != BERM_FOLLOW_NONE)
        return request;
    uint32_t due = berm__follow_due(planned->follow), item = planned->course.item_of[due];
    uint64_t due_bytes = planned->course.bytes[due];
    if (item == BERM_ITEM_NONE || size_bytes < due_bytes / 4 * 3 || size_bytes > due_bytes / 4 * 5)
        return BERM_FOLLOW_NONE;
    uint64_t start = planned->plan->offset_bytes[item], end = planned->plan->arena_bytes;
    if (berm__pages_are_on(&planned->pages)) // behind it its own pages may come again
        end = start + berm__align_up(due_bytes, planned->segment->gpu->granule_bytes);
    if (start + size_bytes > end)
        return BERM_FOLLOW_NONE;
    berm_range_t *range = berm__planned_range_at(planned, start);
    return span_look(planned, range, start, size_bytes) == SPAN_TAKEN ? BERM_FOLLOW_NONE : due;
}

// The request of the course that it is, if it has a place, and what is there. While memory is
// mapped there, another thread may be served as that one; the plan stays, the device's lock is
// held.
static span_state_t place_find(berm_planned_t *planned, berm_pool_t *pool, uint64_t size_bytes,
                               bool may_map, uint32_t *request, berm_range_t **range) {
    for (;;) {
        *request = request_find(planned, size_bytes);
        uint32_t item =
            *request == BERM_FOLLOW_NONE ? BERM_ITEM_NONE : planned->course.item_of[*request];
        if (item == BERM_ITEM_NONE)
            return SPAN_TAKEN;
        uint64_t start = planned->plan->offset_bytes[item];
        *range = berm__planned_range_at(planned, start);
        span_state_t state = span_look(planned, *range, start, size_bytes);
        if (state != SPAN_HOLES || !may_map)
            return state;
        berm_demand_t demand = {.request_bytes = size_bytes, .is_spare = true};
        (void)berm__miss_map_at(pool, planned->segment, *range, start, size_bytes, &demand);
        may_map = false;
    }
}

bool berm__planned_take(berm_planned_t *planned, berm_pool_t *pool, uint64_t size_bytes,
                        bool may_map, berm_place_t *place, berm_status_t *status) {
    uint32_t request;
    berm_range_t *range;
    if (planned->is_ending)
        return false;
    span_state_t state = place_find(planned, pool, size_bytes, may_map, &request, &range);
    *status = BERM_ERROR_STATE;
    if (state == SPAN_HOLES && !may_map)
        return true;
    if (state == SPAN_FREE)
        *status = span_take(planned, pool, range,
                            planned->plan->offset_bytes[planned->course.item_of[request]],
                            size_bytes, place);
    if (*status != BERM_OK) {
        if (request == BERM_FOLLOW_NONE)
            berm__follow_skip(planned->follow, size_bytes);
        else
            berm__follow_pass(planned->follow, request);
        return false;
    }
    berm__follow_accept(planned->follow, request);
    return true;
}

void berm__planned_give(berm_planned_t *planned, const berm_range_t *range) {
    berm__cells_remove(&planned->taken, cell_of(range->start_bytes));
    planned->range_of[cell_of(range->start_bytes)] = NULL;
    planned->taken_count--;
    uint64_t first, count;
    if (span_pages(planned, range->start_bytes, range->size_bytes, &first, &count))
        berm__pages_use(&planned->pages, first, count, false);
}

enum {
    FILL_GRANULES = 256 // mapped with one call for access
};

// The next range that has no memory behind it, from where the last fill came to.
static berm_range_t *fill_next(berm_planned_t *planned) {
    uint64_t arena_bytes = planned->plan->arena_bytes;
    berm_range_t *range = berm__planned_range_at(planned, planned->filled_bytes);
    while (range != NULL && range->start_bytes < arena_bytes &&
           berm__range_state(range) != BERM_RANGE_VOID)
        range = range->next;
    uint64_t at =
        range == NULL ? arena_bytes : berm__max_u64(range->start_bytes, planned->filled_bytes);
    planned->filled_bytes = berm__min_u64(at, arena_bytes);
    return at < arena_bytes ? range : NULL;
}

static uint64_t idle_granules(const berm_pool_t *pool) {
    const berm_store_t *store = pool->group->store;
    return berm__store_idle_granules(store) +
           berm__aliased_granules(&pool->aliased, store->phys->large_granules);
}

void berm__planned_fill(berm_planned_t *planned, berm_pool_t *pool, bool takes_unpassed) {
    berm_segment_t *segment = planned->segment;
    unsigned lg = segment->gpu->lg_granule;
    uint64_t most = FILL_GRANULES;
    berm_range_t *range;
    berm__mutex_lock(&pool->lock);
    while (most > 0 && !berm__planned_is_filled(planned) && (range = fill_next(planned)) != NULL) {
        uint64_t end =
            berm__min_u64(range->start_bytes + range->size_bytes, planned->plan->arena_bytes);
        uint64_t count = berm__min_u64((end - planned->filled_bytes) >> lg, most);
        berm_demand_t demand = {.is_spare = true, .takes_unpassed = takes_unpassed};
        berm_status_t status =
            berm__miss_map_at(pool, segment, range, planned->filled_bytes, count << lg, &demand);
        // Where there was not enough, what was found is idle now, and as much can be mapped.
        if (status == BERM_ERROR_LIMIT || status == BERM_ERROR_OUT_OF_DEVICE_MEMORY)
            most = berm__min_u64(count - 1, idle_granules(pool));
        else if (status != BERM_OK)
            most = 0;
    }
    berm__mutex_unlock(&pool->lock);
}
