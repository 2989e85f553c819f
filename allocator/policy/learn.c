// SPDX-License-Identifier: Apache-2.0
// Learned placement: see learn.h.
#include "policy/learn_inside.h"

#include "base/bits.h"
#include "host/clock.h"
#include "host/log.h"
#include "host/mem.h"
#include "policy/alias.h"
#include "policy/counts.h"

#define NOTES_BYTES (BERM_LEARN_NOTES_MAX * sizeof(berm_note_t))

// --- life --------------------------------------------------------------------------------------

static void watch_forget(berm_learn_t *learn) {
    berm__period_destroy(learn->period);
    if (learn->notes != NULL)
        berm__mem_unreserve(learn->notes, NOTES_BYTES);
    learn->period = NULL;
    learn->notes = NULL;
}

static void counts_reset(berm_learn_t *learn) {
    learn->state = BERM_LEARN_WATCHING;
    learn->note_count = learn->note_moved = learn->moved_count = learn->retry_note = 0;
    learn->window_misses = 0;
    learn->wants_rest = false;
    learn->live_bytes = learn->outside_bytes = 0;
}

// From the beginning. False without host memory.
static bool watch_begin(berm_learn_t *learn) {
    watch_forget(learn);
    counts_reset(learn);
    learn->period = berm__period_create(BERM_LEARN_NOTES_MAX);
    learn->notes = berm__mem_reserve(NOTES_BYTES);
    return learn->period != NULL && learn->notes != NULL;
}

// Both locks are held, or nobody else has the pool. There is no plan.
static void learn_free(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    atomic_store(&pool->is_learning, false);
    atomic_store(&pool->learn_wants, false);
    pool->learn = NULL;
    learn__plan_forget(learn);
    watch_forget(learn);
    berm__mem_free(learn, sizeof *learn);
}

void berm__learn_destroy(berm_pool_t *pool) {
    if (pool->learn == NULL)
        return;
    (void)berm__planned_drop(&pool->learn->planned, pool, true);
    learn_free(pool);
}

void berm__learn_end(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    bool is_pushed, is_gone = false;
    if (learn == NULL)
        return;
    if (berm__gpu_enter(&pool->device->gpu, &is_pushed) == BERM_OK)
        is_gone = berm__planned_drop(&learn->planned, pool, false);
    berm__gpu_leave(&pool->device->gpu, is_pushed);
    berm__mutex_lock(&pool->lock);
    if (is_gone) {
        learn_free(pool);
    } else {
        learn->is_over = true;
        learn->state = BERM_LEARN_WATCHING;
        learn__plan_forget(learn);
        watch_forget(learn);
    }
    berm__mutex_unlock(&pool->lock);
}

bool berm__learn_is_aliased(const berm_pool_t *pool) {
    const berm_learn_t *learn = pool->learn;
    return learn != NULL && learn->planned.segment != NULL && learn->planned.plan->is_aliased;
}

static bool pool_may_learn(const berm_pool_t *pool) {
    return pool->device->learns && pool->is_default && berm__pool_has_order(pool) &&
           !berm__pool_is_plain(pool) && !berm__pool_is_owned(pool);
}

static void miss_count(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    learn->window_misses++;
    if (pool->device->moves != learn->moves) {
        learn->note_moved = learn->note_count + 1;
        learn->moved_count++;
    }
    learn->moves = pool->device->moves;
}

// Whether a pool that does not watch has missed often enough of late.
static bool rest_is_over(berm_pool_t *pool) {
    uint64_t now = atomic_load(&pool->device->request_count) + 1, from = pool->rest_from;
    if (from > 0 && ++pool->rest_misses < BERM_LEARN_WINDOW_MISSES)
        return false;
    pool->rest_misses = 0;
    pool->rest_from = now;
    return from == 0 || now - from < BERM_LEARN_WINDOW_NOTES;
}

void berm__learn_miss(berm_pool_t *pool) {
    if (!pool_may_learn(pool))
        return;
    berm__mutex_lock(&pool->lock);
    berm_learn_t *learn = pool->learn;
    bool is_over = learn != NULL && learn->is_over;
    if (learn != NULL && learn->period != NULL) {
        miss_count(pool);
    } else if (!is_over && rest_is_over(pool)) {
        if (learn == NULL)
            pool->learn = learn = berm__mem_alloc(sizeof *learn);
        if (learn != NULL && !watch_begin(learn)) { // without memory it goes on as it was
            watch_forget(learn);
            if (learn->planned.segment == NULL)
                learn_free(pool);
        }
        atomic_store(&pool->is_learning, pool->learn != NULL);
    }
    berm__mutex_unlock(&pool->lock);
}

// --- what is seen ------------------------------------------------------------------------------

// A window is full: whether too little was missed in it to watch on.
static bool watch_is_idle(berm_learn_t *learn) {
    bool is_idle =
        learn->window_misses < BERM_LEARN_WINDOW_MISSES && learn->state == BERM_LEARN_WATCHING;
    learn->window_misses = 0;
    return is_idle;
}

// An ending plan's arena has no block any more.
static bool ending_is_due(const berm_learn_t *learn) {
    return learn->planned.is_ending && learn->planned.taken_count == 0;
}

// A plan is replaced by one for a longer period only, or for another when it serves badly.
static bool plan_is_wanted(const berm_learn_t *learn, uint32_t length) {
    if (learn->note_count < learn->retry_note ||
        (length > BERM_LEARN_LONG_NOTES &&
         (uint64_t)learn->moved_count * BERM_LEARN_LONG_RATE < learn->note_count))
        return false;
    const berm_planned_t *planned = &learn->planned;
    return planned->segment == NULL || length > learn->active_length + learn->active_length / 2 ||
           (length != learn->active_length &&
            berm__follow_match_permille(planned->follow) < BERM_LEARN_GOOD_PERMILLE);
}

// Notes are counted with 32 bits: what was seen is forgotten, and the plan stays. Blocks noted
// before may be taken for later ones of their size: a wrong lifetime, once. False while a plan is
// installed.
static bool watch_again(berm_learn_t *learn) {
    if (learn->state == BERM_LEARN_INSTALLING)
        return false;
    learn__plan_forget(learn);
    berm__period_reset(learn->period);
    counts_reset(learn);
    learn->may_wait = false;
    return true;
}

void berm__learn_note(berm_pool_t *pool, berm_range_t *range, bool is_planned) {
    berm_learn_t *learn = pool->learn;
    if (ending_is_due(learn))
        atomic_store(&pool->learn_wants, true);
    if (learn->period == NULL || (learn->note_count == UINT32_MAX && !watch_again(learn)))
        return;
    uint64_t units = range->size_bytes / BERM_RANGE_UNIT_BYTES;
    learn->live_bytes += range->size_bytes;
    learn->outside_bytes += is_planned ? 0 : range->size_bytes;
    *learn__note_at(learn, learn->note_count) = (berm_note_t){(uint32_t)units, 0};
    range->mappings = ++learn->note_count;
    berm_period_verdict_t verdict = berm__period_note(learn->period, units, learn->live_bytes);
    if (learn->state == BERM_LEARN_WATCHING) {
        if (verdict != BERM_PERIOD_NONE &&
            plan_is_wanted(learn, berm__period_length(learn->period)))
            learn__planning_begin(pool, berm__period_length(learn->period));
    } else if (learn->state != BERM_LEARN_INSTALLING && !learn__plan_is_current(learn)) {
        learn__planning_give_up(learn);
    }
    if (learn->state == BERM_LEARN_PLANNING)
        learn__planning_step(pool);
    if (learn->note_count % BERM_LEARN_WINDOW_NOTES == 0 && watch_is_idle(learn)) {
        learn->wants_rest = true;
        atomic_store(&pool->learn_wants, true);
    }
}

enum {
    FILL_BYTES = 32 << 20 // freed before the arena is filled on
};

static bool plan_is_settled(const berm_learn_t *learn) {
    return learn->may_wait && learn->outside_bytes <= learn->settled_bytes;
}

// Memory outside the arena is free again: time to fill it on?
static void freed_add(berm_pool_t *pool, uint64_t bytes) {
    berm_learn_t *learn = pool->learn;
    if (learn->planned.segment == NULL)
        return;
    learn->freed_bytes += bytes;
    bool is_due = learn->freed_bytes >= FILL_BYTES && !berm__planned_is_filled(&learn->planned);
    if (!is_due && !plan_is_settled(learn))
        return;
    learn->freed_bytes = 0;
    atomic_store(&pool->learn_wants, true);
}

void berm__learn_give(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range) {
    berm_learn_t *learn = pool->learn;
    bool is_planned = segment->planned != NULL;
    if (is_planned)
        berm__planned_give(segment->planned, range);
    if (ending_is_due(learn))
        atomic_store(&pool->learn_wants, true);
    uint32_t number = range->mappings;
    if (learn->period != NULL && number > 0 && number <= learn->note_count &&
        learn->note_count - number < BERM_LEARN_NOTES_MAX) {
        berm_note_t *note = learn__note_at(learn, number - 1);
        if (note->end == 0 && note->size_units == range->size_bytes / BERM_RANGE_UNIT_BYTES) {
            note->end = learn->note_count;
            learn->live_bytes -= range->size_bytes;
            learn->outside_bytes -= is_planned ? 0 : range->size_bytes;
        }
    }
    if (!is_planned)
        freed_add(pool, range->size_bytes);
    if (learn->state == BERM_LEARN_PLANNING)
        learn__planning_step(pool);
}

// Counts a request of a pool with a plan; after four periods of them looks whether it is any good.
static void asked_count(berm_pool_t *pool, bool is_served) {
    berm_learn_t *learn = pool->learn;
    learn->served += is_served;
    if (++learn->asked < 4 * learn->active_length)
        return;
    learn->wants_drop = learn->served < learn->active_length;
    learn->asked = learn->served = 0;
    if (learn->wants_drop)
        atomic_store(&pool->learn_wants, true);
}

bool berm__learn_take(berm_pool_t *pool, uint64_t occupied_bytes, const berm_request_t *request,
                      berm_place_t *place, berm_status_t *status) {
    berm_learn_t *learn = pool->learn;
    if (request->alignment_bytes > BERM_RANGE_UNIT_BYTES || learn->refused == request->number + 1)
        return false;
    bool is_planned =
        berm__planned_take(&learn->planned, pool, occupied_bytes, request->may_map, place, status);
    if (is_planned && *status != BERM_OK)
        return true; // it comes again
    asked_count(pool, is_planned);
    learn->refused = is_planned ? 0 : request->number + 1;
    if (is_planned) {
        atomic_fetch_add(&pool->device->plans.requests, 1);
        atomic_fetch_add(&pool->device->plans.bytes, occupied_bytes);
    }
    return is_planned;
}

// --- ticks -------------------------------------------------------------------------------------

// Which request of the course should be next.
static uint32_t request_next(const berm_learn_t *learn) {
    return (learn->note_count - learn->plan_note) % learn->planned.course.length;
}

// True once there is none.
static bool plan_drop(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    if (learn->planned.segment == NULL)
        return true;
    if (!learn->planned.is_ending)
        atomic_fetch_add(&pool->device->plans.dropped, 1);
    berm__mutex_lock(&pool->lock);
    learn->wants_drop = false;
    berm__mutex_unlock(&pool->lock);
    return berm__planned_drop(&learn->planned, pool, false);
}

bool berm__learn_yield(berm_device_t *device) {
    bool has_dropped = false;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        berm_learn_t *learn = pool->learn;
        if (learn == NULL || learn->planned.segment == NULL || learn->planned.is_ending)
            continue;
        has_dropped |= plan_drop(pool);
        berm__mutex_lock(&pool->lock);
        learn__planning_give_up(learn);
        berm__mutex_unlock(&pool->lock);
    }
    return has_dropped;
}

static void plan_install(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    berm_planner_t *planner = learn->planner;
    berm_status_t status = BERM_ERROR_STATE; // the one before it is ending, or it may not be
    bool is_allowed = !berm__planner_plan(planner)->is_aliased || berm__alias_is_allowed(pool);
    if (is_allowed && plan_drop(pool)) {
        berm_course_t course = learn->course; // planner and items are this tick's
        learn->planner = NULL;
        learn->course = (berm_course_t){0};
        status = berm__planned_install(&learn->planned, pool, planner, &course);
    }
    berm__mutex_lock(&pool->lock);
    if (status == BERM_OK) {
        berm__follow_seek(learn->planned.follow, request_next(learn));
        learn->state = BERM_LEARN_WATCHING;
        learn->wants_drop = false;
        learn->freed_bytes = 0;
        learn->may_wait = true;
        uint64_t leaving =
            learn__items_live_bytes(learn, learn->plan_length, learn->planned.course.length);
        learn->settled_bytes = learn->outside_bytes - berm__min_u64(learn->outside_bytes, leaving);
        learn->asked = learn->served = 0;
        learn->active_length = learn->plan_length;
        learn__plan_forget(learn);
        atomic_store(&pool->learn_wants, true); // to be filled
        atomic_fetch_add(&pool->device->plans.made, 1);
        atomic_fetch_add(&pool->device->plans.mappings, learn->planned.plan->mapping_count);
    } else {
        learn__planning_give_up(learn);
    }
    berm__mutex_unlock(&pool->lock);
}

typedef enum work {
    WORK_NONE,
    WORK_INSTALL,
    WORK_FILL,
    WORK_DROP,
    WORK_REST,
    WORK_END,
} work_t;

static work_t work_find(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    work_t work = WORK_NONE;
    if (learn == NULL)
        return WORK_NONE;
    berm__mutex_lock(&pool->lock);
    bool has_plan = learn->planned.segment != NULL;
    bool wants_rest = learn->wants_rest && learn->state == BERM_LEARN_WATCHING;
    if (learn->is_over || (!has_plan && (wants_rest || learn->period == NULL)))
        work = WORK_END;
    else if (wants_rest)
        work = WORK_REST;
    else if (learn->state == BERM_LEARN_READY)
        work = WORK_INSTALL;
    else if (has_plan && (learn->wants_drop || ending_is_due(learn)))
        work = WORK_DROP;
    else if (has_plan && !learn->planned.is_ending &&
             (plan_is_settled(learn) || !berm__planned_is_filled(&learn->planned)))
        work = WORK_FILL;
    if (work == WORK_INSTALL)
        learn->state = BERM_LEARN_INSTALLING;
    berm__mutex_unlock(&pool->lock);
    return work;
}

// The plan goes on, the watch ends.
static void watch_rest(berm_pool_t *pool) {
    berm__mutex_lock(&pool->lock);
    watch_forget(pool->learn);
    pool->learn->wants_rest = false;
    berm__mutex_unlock(&pool->lock);
}

static void plan_fill(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    (void)berm__stream_seal(pool->stream); // what is free may have passed by then
    berm__planned_fill(&learn->planned, pool, false);
    berm__mutex_lock(&pool->lock);
    bool is_last = plan_is_settled(learn);
    if (is_last) {
        learn->may_wait = false;
        learn->planned.filled_bytes = 0; // what went to other requests meanwhile comes back
    }
    berm__mutex_unlock(&pool->lock);
    if (is_last && (berm__alias_is_allowed(pool) || berm__stream_wait_all(pool->stream) == BERM_OK))
        berm__planned_fill(&learn->planned, pool, true);
}

static void work_do(berm_pool_t *pool, work_t work) {
    if (work == WORK_INSTALL)
        plan_install(pool);
    if (work == WORK_DROP)
        (void)plan_drop(pool);
    if (work == WORK_REST)
        watch_rest(pool);
    if (work == WORK_END)
        berm__learn_end(pool);
    if (work == WORK_FILL)
        plan_fill(pool);
}

// What is to be said of it once no lock is held.
typedef struct news {
    work_t work;
    uint32_t length, items;
} news_t;

static void news_log(const berm_pool_t *pool, const news_t *news) {
    if (news->work == WORK_INSTALL)
        BERM_LOG(BERM_LOG_INFO, "stream %#llx: a plan for %u of %u requests that come again",
                 (unsigned long long)pool->stream->handle, news->items, news->length);
    if (news->work == WORK_DROP)
        BERM_LOG(BERM_LOG_INFO, "stream %#llx: the plan was dropped, requests do not follow it",
                 (unsigned long long)pool->stream->handle);
}

// With the device's lock, in its context, where mappings may change.
static news_t work_next(berm_pool_t *pool) {
    const berm_learn_t *learn = pool->learn;
    news_t news = {.work = work_find(pool)};
    bool was_ending = learn != NULL && learn->planned.is_ending;
    uint64_t made = atomic_load(&pool->device->plans.made);
    if (news.work == WORK_INSTALL) {
        news.length = learn->course.length;
        news.items = learn->course.item_count;
    }
    work_do(pool, news.work);
    if (news.work == WORK_INSTALL ? atomic_load(&pool->device->plans.made) == made : was_ending)
        news.work = WORK_NONE;
    return news;
}

void berm__learn_work(berm_pool_t *pool) {
    berm_device_t *device = pool->device;
    bool is_pushed;
    news_t news = {WORK_NONE, 0, 0};
    if (!berm__mutex_trylock(&device->lock))
        return;
    atomic_store(&pool->learn_wants, false);
    berm_status_t status = berm__gpu_enter(&device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__device_edits_check(device);
    if (status == BERM_OK)
        news = work_next(pool);
    else
        atomic_store(&pool->learn_wants, pool->learn != NULL); // another time
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    news_log(pool, &news);
}
