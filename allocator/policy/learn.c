// SPDX-License-Identifier: Apache-2.0
// Learned placement: see learn.h.
#include "policy/learn.h"

#include "base/bits.h"
#include "host/clock.h"
#include "host/log.h"
#include "host/mem.h"
#include "policy/alias.h"
#include "policy/counts.h"

#define NOTES_BYTES (BERM_LEARN_NOTES_MAX * sizeof(berm_note_t))

// --- life --------------------------------------------------------------------------------------

static void plan_forget(berm_learn_t *learn) {
    berm__planner_destroy(learn->planner);
    berm__course_destroy(&learn->course);
    learn->planner = NULL;
}

static void watch_forget(berm_learn_t *learn) {
    berm__period_destroy(learn->period);
    if (learn->notes != NULL)
        berm__mem_unreserve(learn->notes, NOTES_BYTES);
    learn->period = NULL;
    learn->notes = NULL;
}

// From the beginning. False without host memory.
static bool watch_begin(berm_learn_t *learn) {
    watch_forget(learn);
    learn->state = BERM_LEARN_WATCHING;
    learn->note_count = learn->note_moved = learn->moved_count = learn->retry_note = 0;
    learn->window_misses = 0;
    learn->wants_rest = false;
    learn->live_bytes = learn->outside_bytes = 0;
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
    plan_forget(learn);
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
        plan_forget(learn);
        watch_forget(learn);
    }
    berm__mutex_unlock(&pool->lock);
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

// --- planning ----------------------------------------------------------------------------------

static berm_note_t *note_at(const berm_learn_t *learn, uint32_t number) {
    return &learn->notes[number % BERM_LEARN_NOTES_MAX];
}

// How many requests a block outlived: of what is still live, as many as the block that was in its
// place a period before. 0: unknown, or more than a period.
static uint32_t note_lifetime(const berm_learn_t *learn, uint32_t number, uint32_t length) {
    const berm_note_t *note = note_at(learn, number);
    if (note->end == 0) {
        if (number < length || number + BERM_LEARN_NOTES_MAX < learn->note_count + length)
            return 0;
        const berm_note_t *before = note_at(learn, number -= length);
        if (before->size_units != note->size_units || before->end == 0)
            return 0;
        note = before;
    }
    uint32_t lifetime = note->end - number;
    return lifetime <= length ? lifetime : 0;
}

// The course of the last period, and the blocks in it that do not outlive one by more. False
// without host memory.
static bool items_make(berm_learn_t *learn, uint32_t length, berm_plan_item_t **items) {
    uint32_t first = learn->note_count - length;
    berm_course_t *course = &learn->course;
    *items = berm__mem_alloc(length * sizeof **items);
    if (*items == NULL || !berm__course_init(course, length))
        return false;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t lifetime = note_lifetime(learn, first + i, length), end = i + lifetime;
        course->bytes[i] = note_at(learn, first + i)->size_units * BERM_RANGE_UNIT_BYTES;
        course->item_of[i] = BERM_ITEM_NONE;
        if (lifetime == 0)
            continue;
        (*items)[course->item_count] =
            (berm_plan_item_t){course->bytes[i], i, end > length ? end - length : end};
        course->request_of[course->item_count] = i;
        course->item_of[i] = course->item_count++;
    }
    return true;
}

// Bytes of blocks live now that the plan will have.
static uint64_t items_live_bytes(const berm_learn_t *learn, uint32_t length) {
    uint64_t bytes = 0;
    for (uint32_t i = learn->note_count - length; i < learn->note_count; i++)
        if (note_at(learn, i)->end == 0 && note_lifetime(learn, i, length) > 0)
            bytes += note_at(learn, i)->size_units * BERM_RANGE_UNIT_BYTES;
    return bytes;
}

// The most bytes of items live at one time; 0 without host memory.
static uint64_t items_peak_bytes(const berm_plan_item_t *items, uint32_t count, uint32_t length) {
    uint64_t *change = berm__mem_alloc((length + 1) * sizeof *change), live = 0, peak = 0;
    if (change == NULL)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        change[items[i].begin] += items[i].size_bytes;
        change[items[i].end] -= items[i].size_bytes;
        live += items[i].end <= items[i].begin ? items[i].size_bytes : 0;
    }
    for (uint32_t at = 0; at < length; at++) {
        live += change[at];
        peak = berm__max_u64(peak, live);
    }
    berm__mem_free(change, (length + 1) * sizeof *change);
    return peak;
}

// Until the last block from before a plan is free, granules are shared by fewer blocks than before
// and after: of a device that is so full that this would not fit, no plan is made.
enum {
    TRANSITION_SHARE = 128
};

// Granules that the arena may have: what the headroom and the limit leave beside everything else.
static uint32_t pages_max(berm_pool_t *pool, uint64_t peak_bytes, uint32_t length) {
    berm_device_t *device = pool->device;
    uint64_t live, peak;
    berm__counts_requested_read(device, &live, &peak);
    uint64_t planned = items_live_bytes(pool->learn, length);
    uint64_t others = live - berm__min_u64(live, planned);
    peak = berm__max_u64(peak, others + peak_bytes);
    double target = (double)peak * (1.0 + device->headroom_pct / 100.0);
    uint64_t most = target >= 0x1p62 ? UINT64_C(1) << 62 : (uint64_t)target;
    most = berm__min_u64(most, berm__min_u64(device->limit_bytes, device->gpu.memory_bytes));
    most -= berm__min_u64(most, others);
    most -= most / TRANSITION_SHARE;
    return (uint32_t)berm__min_u64(most >> device->gpu.lg_granule, UINT32_MAX);
}

// Of an arena: the driver has room for some 520,000 in all on large devices.
#define MAPPINGS_MAX UINT32_C(400000)
#define WORK_MAX_MS  2000

// No plan for a while: the period has to be seen as often again.
static void planning_give_up(berm_learn_t *learn) {
    plan_forget(learn);
    learn->state = BERM_LEARN_WATCHING;
    learn->retry_note = learn->note_count + learn->note_count / 2;
}

static void planning_begin(berm_pool_t *pool, uint32_t length) {
    berm_learn_t *learn = pool->learn;
    berm_plan_item_t *items = NULL;
    bool is_made = items_make(learn, length, &items);
    uint32_t count = learn->course.item_count;
    uint64_t peak_bytes = is_made ? items_peak_bytes(items, count, length) : 0;
    const berm_planner_options_t options = {
        .granule_bytes = pool->device->gpu.granule_bytes,
        .period = length,
        .pages_max = pages_max(pool, peak_bytes, length),
        .mappings_max = MAPPINGS_MAX,
        .may_alias = berm__alias_is_allowed(pool),
        // To be done when the second period is: a slice a request and a free.
        .work_max = berm__min_u64(length / 2 + 16, WORK_MAX_MS) * BERM_PLANNER_WORK_PER_MS,
    };
    if (peak_bytes > 0 && options.pages_max > 0)
        learn->planner = berm__planner_create(items, count, &options);
    berm__mem_free(items, length * sizeof *items);
    learn->plan_note = learn->note_count;
    learn->plan_length = length;
    learn->state = BERM_LEARN_PLANNING;
    if (learn->planner == NULL)
        planning_give_up(learn);
}

// Whether so much has matched that the plan is worth its driver calls.
static bool evidence_is_enough(const berm_learn_t *learn) {
    uint32_t length = learn->plan_length;
    uint32_t since = learn->note_count - learn->plan_note;
    if (berm__period_verdict(learn->period) != BERM_PERIOD_CONFIRMED || since < length / 8)
        return false; // it may be taken for another for a moment
    if (learn->note_moved > 0 && learn->note_count - learn->note_moved < length)
        return true;
    uint64_t wanted =
        berm__min_u64((uint64_t)length * BERM_LEARN_EVIDENCE_PERIODS, BERM_LEARN_EVIDENCE_NOTES);
    return length + since >= wanted;
}

static void planning_step(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    uint64_t start_ns = berm__clock_own_ns();
    berm_planner_state_t state = berm__planner_step(learn->planner, BERM_PLANNER_WORK_PER_MS);
    atomic_fetch_add(&pool->device->plans.spent_ns, berm__clock_own_ns() - start_ns);
    if (state == BERM_PLANNER_CANNOT) {
        planning_give_up(learn);
    } else if (state == BERM_PLANNER_DONE && evidence_is_enough(learn)) {
        learn->state = BERM_LEARN_READY;
        atomic_store(&pool->learn_wants, true);
    }
}

// Whether the period that the plan is for is still the one that is seen.
static bool plan_is_current(const berm_learn_t *learn) {
    uint32_t length = berm__period_length(learn->period);
    uint32_t slack = learn->plan_length / 16 + 2;
    return length + slack >= learn->plan_length && length <= learn->plan_length + slack;
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

void berm__learn_note(berm_pool_t *pool, berm_range_t *range, bool is_planned) {
    berm_learn_t *learn = pool->learn;
    if (ending_is_due(learn))
        atomic_store(&pool->learn_wants, true);
    if (learn->period == NULL)
        return;
    uint64_t units = range->size_bytes / BERM_RANGE_UNIT_BYTES;
    learn->live_bytes += range->size_bytes;
    learn->outside_bytes += is_planned ? 0 : range->size_bytes;
    *note_at(learn, learn->note_count) = (berm_note_t){(uint32_t)units, 0};
    range->mappings = ++learn->note_count;
    berm_period_verdict_t verdict = berm__period_note(learn->period, units, learn->live_bytes);
    if (learn->state == BERM_LEARN_WATCHING) {
        if (verdict != BERM_PERIOD_NONE &&
            plan_is_wanted(learn, berm__period_length(learn->period)))
            planning_begin(pool, berm__period_length(learn->period));
    } else if (!plan_is_current(learn)) {
        planning_give_up(learn);
    }
    if (learn->state == BERM_LEARN_PLANNING)
        planning_step(pool);
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
        number + BERM_LEARN_NOTES_MAX > learn->note_count) {
        berm_note_t *note = note_at(learn, number - 1);
        if (note->end == 0 && note->size_units == range->size_bytes / BERM_RANGE_UNIT_BYTES) {
            note->end = learn->note_count;
            learn->live_bytes -= range->size_bytes;
            learn->outside_bytes -= is_planned ? 0 : range->size_bytes;
        }
    }
    if (!is_planned)
        freed_add(pool, range->size_bytes);
    if (learn->state == BERM_LEARN_PLANNING)
        planning_step(pool);
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
    if (request->alignment_bytes > BERM_RANGE_UNIT_BYTES)
        return false;
    bool is_planned =
        berm__planned_take(&learn->planned, pool, occupied_bytes, request->may_map, place, status);
    if (is_planned && *status != BERM_OK)
        return true; // it comes again
    asked_count(pool, is_planned);
    if (is_planned) {
        atomic_fetch_add(&pool->device->plans.requests, 1);
        atomic_fetch_add(&pool->device->plans.bytes, occupied_bytes);
    }
    return is_planned;
}

// --- ticks -------------------------------------------------------------------------------------

// Which request of the course should be next.
static uint32_t request_next(const berm_learn_t *learn) {
    return (learn->note_count - learn->plan_note) % learn->plan_length;
}

// True once there is none.
static bool plan_drop(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    if (learn->planned.segment == NULL)
        return true;
    if (!learn->planned.is_ending)
        atomic_fetch_add(&pool->device->plans.dropped, 1);
    learn->wants_drop = false;
    return berm__planned_drop(&learn->planned, pool, false);
}

static void plan_install(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    berm_planner_t *planner = learn->planner;
    berm_status_t status = BERM_ERROR_STATE; // the one before it is ending
    if (plan_drop(pool)) {
        learn->planner = NULL;
        status = berm__planned_install(&learn->planned, pool, planner, &learn->course,
                                       request_next(learn));
    }
    berm__mutex_lock(&pool->lock);
    if (status == BERM_OK) {
        learn->state = BERM_LEARN_WATCHING;
        learn->wants_drop = false;
        learn->freed_bytes = 0;
        learn->may_wait = true;
        uint64_t leaving = items_live_bytes(learn, learn->plan_length);
        learn->settled_bytes = learn->outside_bytes - berm__min_u64(learn->outside_bytes, leaving);
        learn->asked = learn->served = 0;
        learn->active_length = learn->plan_length;
        plan_forget(learn);
        atomic_store(&pool->learn_wants, true); // to be filled
        atomic_fetch_add(&pool->device->plans.made, 1);
        atomic_fetch_add(&pool->device->plans.mappings, learn->planned.plan->mapping_count);
    } else {
        planning_give_up(learn);
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
    const berm_learn_t *learn = pool->learn;
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

// Once no lock is held.
static void work_log(const berm_pool_t *pool, work_t work, uint32_t length, uint32_t items,
                     bool is_active) {
    if (work == WORK_INSTALL && is_active)
        BERM_LOG(BERM_LOG_INFO, "stream %#llx: a plan for %u of %u requests that come again",
                 (unsigned long long)pool->stream->handle, items, length);
    if (work == WORK_DROP)
        BERM_LOG(BERM_LOG_INFO, "stream %#llx: the plan was dropped, requests do not follow it",
                 (unsigned long long)pool->stream->handle);
}

void berm__learn_work(berm_pool_t *pool) {
    berm_device_t *device = pool->device;
    bool is_pushed, is_active = false;
    uint32_t length = 0, items = 0;
    if (!berm__mutex_trylock(&device->lock))
        return;
    atomic_store(&pool->learn_wants, false);
    work_t work = work_find(pool);
    if (work == WORK_INSTALL) {
        length = pool->learn->plan_length;
        items = pool->learn->course.item_count;
    }
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK)
        work_do(pool, work);
    berm__gpu_leave(&device->gpu, is_pushed);
    if (work == WORK_INSTALL)
        is_active = pool->learn->planned.segment != NULL;
    berm__mutex_unlock(&device->lock);
    work_log(pool, work, length, items, is_active);
}
