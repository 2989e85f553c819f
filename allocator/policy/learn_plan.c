// SPDX-License-Identifier: Apache-2.0
// From what a pool has seen to a plan: see learn.h. Locks: the pool's.
#include "policy/learn_inside.h"

#include "base/bits.h"
#include "host/clock.h"
#include "host/mem.h"
#include "policy/alias.h"
#include "policy/counts.h"

void learn__plan_forget(berm_learn_t *learn) {
    berm__planner_destroy(learn->planner);
    berm__course_destroy(&learn->course);
    learn->planner = NULL;
}

berm_note_t *learn__note_at(const berm_learn_t *learn, uint32_t number) {
    return &learn->notes[number % BERM_LEARN_NOTES_MAX];
}

// A course is of one period, or of two of them where blocks outlive one: what a program keeps until
// the next period has made its own. Two of them are live for a moment, in turns at two places.
enum {
    ROUNDS_MAX = 2
};

// How many requests a block outlived: of what is still live, as many as the block that was in its
// place one or two periods before. 0: unknown, or more than two periods.
static uint32_t note_lifetime(const berm_learn_t *learn, uint32_t number, uint32_t length) {
    const berm_note_t *note = learn__note_at(learn, number);
    uint32_t units = note->size_units;
    for (int round = 0; note->end == 0; round++) {
        if (round == ROUNDS_MAX || number < length ||
            learn->note_count - number + length > BERM_LEARN_NOTES_MAX)
            return 0;
        note = learn__note_at(learn, number -= length);
        if (note->size_units != units)
            return 0;
    }
    uint32_t lifetime = note->end - number;
    return lifetime <= ROUNDS_MAX * length ? lifetime : 0;
}

// The course of the last period, once or twice, and the blocks in it that do not outlive it by
// more. False without host memory.
static bool items_make(berm_learn_t *learn, uint32_t length, uint32_t total,
                       berm_plan_item_t **items) {
    uint32_t first = learn->note_count - length;
    berm_course_t *course = &learn->course;
    *items = berm__mem_alloc(total * sizeof **items);
    if (*items == NULL || !berm__course_init(course, total))
        return false;
    for (uint32_t i = 0; i < total; i++) {
        uint32_t number = first + i % length, lifetime = note_lifetime(learn, number, length);
        course->bytes[i] = learn__note_at(learn, number)->size_units * BERM_RANGE_UNIT_BYTES;
        course->item_of[i] = BERM_ITEM_NONE;
        if (lifetime == 0 || lifetime > total)
            continue;
        uint32_t end = i + lifetime;
        (*items)[course->item_count] =
            (berm_plan_item_t){course->bytes[i], i, end > total ? end - total : end};
        course->request_of[course->item_count] = i;
        course->item_of[i] = course->item_count++;
    }
    return true;
}

uint64_t learn__items_live_bytes(const berm_learn_t *learn, uint32_t length, uint32_t total) {
    uint64_t bytes = 0;
    for (uint32_t back = 1; back <= total && back <= learn->note_count; back++) {
        uint32_t number = learn->note_count - back;
        uint32_t lifetime = note_lifetime(learn, number, length);
        if (learn__note_at(learn, number)->end == 0 && lifetime > 0 && lifetime <= total)
            bytes += learn__note_at(learn, number)->size_units * BERM_RANGE_UNIT_BYTES;
    }
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
    uint64_t planned = learn__items_live_bytes(pool->learn, length, pool->learn->course.length);
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
void learn__planning_give_up(berm_learn_t *learn) {
    learn__plan_forget(learn);
    learn->state = BERM_LEARN_WATCHING;
    learn->retry_note =
        (uint32_t)berm__min_u64(learn->note_count + learn->note_count / 2ull, UINT32_MAX);
}

// How many periods the course should have: two where blocks that outlive one are so many bytes that
// a plan without them would lose its memory to them, and get it back, in each period.
static uint32_t rounds_find(const berm_pool_t *pool, uint32_t length) {
    const berm_learn_t *learn = pool->learn;
    uint64_t late_bytes = 0, live, peak;
    for (uint32_t i = learn->note_count - length; i < learn->note_count; i++)
        if (note_lifetime(learn, i, length) > length)
            late_bytes += learn__note_at(learn, i)->size_units * BERM_RANGE_UNIT_BYTES;
    berm__counts_requested_read(pool->device, &live, &peak);
    bool is_much = late_bytes > 0 && late_bytes >= peak / TRANSITION_SHARE;
    return is_much && length <= BERM_LEARN_LONG_NOTES ? ROUNDS_MAX : 1;
}

void learn__planning_begin(berm_pool_t *pool, uint32_t length) {
    berm_learn_t *learn = pool->learn;
    berm_plan_item_t *items = NULL;
    uint32_t total = length * rounds_find(pool, length);
    bool is_made = items_make(learn, length, total, &items);
    uint32_t count = learn->course.item_count;
    uint64_t peak_bytes = is_made ? items_peak_bytes(items, count, total) : 0;
    const berm_planner_options_t options = {
        .granule_bytes = pool->device->gpu.granule_bytes,
        .period = total,
        .pages_max = pages_max(pool, peak_bytes, length),
        .mappings_max = MAPPINGS_MAX,
        .may_alias = berm__alias_is_allowed(pool),
        // To be done when the second period is: a slice a request and a free.
        .work_max = berm__min_u64(length / 2 + 16, WORK_MAX_MS) * BERM_PLANNER_WORK_PER_MS,
    };
    if (peak_bytes > 0 && options.pages_max > 0)
        learn->planner = berm__planner_create(items, count, &options);
    berm__mem_free(items, total * sizeof *items);
    learn->plan_note = learn->note_count;
    learn->plan_length = length;
    learn->state = BERM_LEARN_PLANNING;
    if (learn->planner == NULL)
        learn__planning_give_up(learn);
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

void learn__planning_step(berm_pool_t *pool) {
    berm_learn_t *learn = pool->learn;
    uint64_t start_ns = berm__clock_own_ns();
    berm_planner_state_t state = berm__planner_step(learn->planner, BERM_PLANNER_WORK_PER_MS);
    atomic_fetch_add(&pool->device->plans.spent_ns, berm__clock_own_ns() - start_ns);
    if (state == BERM_PLANNER_CANNOT) {
        learn__planning_give_up(learn);
    } else if (state == BERM_PLANNER_DONE && evidence_is_enough(learn)) {
        learn->state = BERM_LEARN_READY;
        atomic_store(&pool->learn_wants, true);
    }
}

// Whether the period that the plan is for is still the one that is seen.
bool learn__plan_is_current(const berm_learn_t *learn) {
    uint32_t length = berm__period_length(learn->period);
    uint32_t slack = learn->plan_length / 16 + 2;
    return length + slack >= learn->plan_length && length <= learn->plan_length + slack;
}
