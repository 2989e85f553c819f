// SPDX-License-Identifier: Apache-2.0
// core/planner.h: what a plan promises, by brute force over random items; around the cycle; with
// and without aliases; slice by slice as in one go; every failure of host memory; small limits.
#include <criterion/criterion.h>
#include <string.h>

#include "base/rng.h"
#include "core/planner.h"
#include "host/mem.h"

enum {
    ITEMS_MAX = 250,
    GRANULE = 4096,
    WORK = 2000000 // of one plan
};

typedef struct problem {
    berm_plan_item_t items[ITEMS_MAX];
    uint32_t count;
    berm_planner_options_t options;
} problem_t;

static bool is_live(const berm_plan_item_t *item, uint32_t position) {
    if (item->end > item->begin)
        return position >= item->begin && position < item->end;
    return position >= item->begin || position < item->end;
}

static bool live_together(const problem_t *problem, uint32_t a, uint32_t b) {
    for (uint32_t position = 0; position < problem->options.period; position++)
        if (is_live(&problem->items[a], position) && is_live(&problem->items[b], position))
            return true;
    return false;
}

static uint64_t peak_of(const problem_t *problem, uint64_t rounding) {
    uint64_t peak = 0;
    for (uint32_t position = 0; position < problem->options.period; position++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < problem->count; i++)
            if (is_live(&problem->items[i], position))
                live += (problem->items[i].size_bytes + rounding - 1) / rounding * rounding;
        peak = live > peak ? live : peak;
    }
    return peak;
}

// The part of item `i` in granule `granule` of the arena, as physical bytes [*from, *to).
static void physical_part(const problem_t *problem, const berm_plan_t *plan, uint32_t i,
                          uint64_t granule, uint64_t *from, uint64_t *to) {
    uint64_t start = plan->offset_bytes[i], end = start + problem->items[i].size_bytes;
    uint64_t low = granule * GRANULE, high = low + GRANULE;
    uint64_t page = (uint64_t)plan->page_of[granule] * GRANULE;
    *from = page + ((start > low ? start : low) - low);
    *to = page + ((end < high ? end : high) - low);
}

static void check_pair(const problem_t *problem, const berm_plan_t *plan, uint32_t a, uint32_t b) {
    const uint64_t start_a = plan->offset_bytes[a], end_a = start_a + problem->items[a].size_bytes;
    const uint64_t start_b = plan->offset_bytes[b], end_b = start_b + problem->items[b].size_bytes;
    cr_assert(a == b || end_a <= start_b || end_b <= start_a, "items %u and %u overlap", a, b);
    for (uint64_t ga = start_a / GRANULE; ga * GRANULE < end_a; ga++)
        for (uint64_t gb = start_b / GRANULE; gb * GRANULE < end_b; gb++) {
            uint64_t from_a, to_a, from_b, to_b;
            if ((a == b && ga == gb) || plan->page_of[ga] != plan->page_of[gb])
                continue;
            physical_part(problem, plan, a, ga, &from_a, &to_a);
            physical_part(problem, plan, b, gb, &from_b, &to_b);
            cr_assert(to_a <= from_b || to_b <= from_a, "items %u and %u share a page", a, b);
        }
}

static void check_plan(const problem_t *problem, const berm_plan_t *plan) {
    static uint8_t has_page[1 << 16];
    cr_assert(plan->item_count == problem->count);
    cr_assert(plan->peak_bytes == peak_of(problem, 1));
    cr_assert(plan->arena_bytes == (uint64_t)plan->mapping_count * GRANULE);
    cr_assert(plan->mapping_count <= problem->options.mappings_max);
    cr_assert(problem->options.pages_max == 0 || plan->page_count <= problem->options.pages_max);
    cr_assert((uint64_t)plan->page_count * GRANULE >= plan->peak_bytes);
    cr_assert(plan->is_aliased == (plan->mapping_count > plan->page_count));
    cr_assert(plan->page_count < sizeof has_page);
    memset(has_page, 0, sizeof has_page);
    for (uint32_t i = 0; i < plan->mapping_count; i++) {
        cr_assert(plan->page_of[i] < plan->page_count);
        has_page[plan->page_of[i]] = 1;
    }
    for (uint32_t i = 0; i < plan->page_count; i++)
        cr_assert(has_page[i]);
    for (uint32_t a = 0; a < problem->count; a++) {
        cr_assert(plan->offset_bytes[a] % 512 == 0);
        cr_assert(plan->offset_bytes[a] + problem->items[a].size_bytes <= plan->arena_bytes);
        for (uint32_t b = a; b < problem->count; b++)
            if (a == b || live_together(problem, a, b))
                check_pair(problem, plan, a, b);
    }
}

// Items of 1 to `units_max` units of 512 bytes (whole granules where asked), one event a position.
static void problem_make(problem_t *problem, uint64_t seed, uint32_t units_max, bool is_whole,
                         bool wraps) {
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    memset(problem, 0, sizeof *problem);
    problem->count = 2 + (uint32_t)berm__rng_below(&rng, ITEMS_MAX - 2);
    uint32_t period = 2 * problem->count;
    problem->options = (berm_planner_options_t){
        .granule_bytes = GRANULE, .period = period, .mappings_max = 1 << 16, .work_max = WORK};
    for (uint32_t i = 0; i < problem->count; i++) {
        berm_plan_item_t *item = &problem->items[i];
        item->size_bytes = (1 + berm__rng_below(&rng, units_max)) * 512;
        if (is_whole)
            item->size_bytes = (item->size_bytes + GRANULE - 1) / GRANULE * GRANULE;
        item->begin = (uint32_t)berm__rng_below(&rng, period);
        uint32_t life = 1 + (uint32_t)berm__rng_below(&rng, period / 3);
        if (berm__rng_below(&rng, 20) == 0)
            life = period;
        item->end = item->begin + life;
        if (item->end > period)
            item->end = wraps ? item->end - period : period;
    }
}

static berm_planner_t *plan_made(const problem_t *problem, uint64_t slice) {
    berm_planner_t *planner =
        berm__planner_create(problem->items, problem->count, &problem->options);
    cr_assert(planner != NULL);
    while (berm__planner_step(planner, slice) == BERM_PLANNER_WORKING) {
    }
    return planner;
}

Test(planner, packings_keep_their_promises) {
    problem_t problem;
    for (uint64_t seed = 0; seed < 150; seed++) {
        problem_make(&problem, seed, seed % 2 ? 40 : 8, seed % 3 == 0, seed % 4 != 0);
        berm_planner_t *planner = plan_made(&problem, UINT64_MAX);
        const berm_plan_t *plan = berm__planner_plan(planner);
        cr_assert(plan != NULL && !plan->is_aliased);
        for (uint32_t i = 0; i < plan->page_count; i++)
            cr_assert(plan->page_of[i] == i);
        check_plan(&problem, plan);
        berm__planner_destroy(planner);
    }
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

// Where every size is whole granules and nothing wraps, an aliased plan has the peak's pages.
Test(planner, aliased_plans_need_the_peak_and_no_more) {
    problem_t problem;
    int aliased = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        problem_make(&problem, seed, seed % 2 ? 320 : 60, true, false);
        problem.options.may_alias = true;
        berm_planner_t *planner = plan_made(&problem, UINT64_MAX);
        const berm_plan_t *plan = berm__planner_plan(planner);
        cr_assert(plan != NULL);
        cr_assert((uint64_t)plan->page_count * GRANULE == plan->peak_bytes);
        aliased += plan->is_aliased;
        check_plan(&problem, plan);
        berm__planner_destroy(planner);
    }
    cr_assert(aliased > 20, "only %d of these plans were aliased", aliased);
}

// Items that wrap, sizes that are no whole granules, steps of several granules.
Test(planner, aliased_plans_hold_around_the_cycle) {
    problem_t problem;
    int aliased = 0, made = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        problem_make(&problem, seed, 160, seed % 2 == 0, true);
        if (seed % 3 == 0)
            for (uint32_t i = 0; i < problem.count; i++)
                problem.items[i].size_bytes += 4 * GRANULE;
        problem.options.may_alias = true;
        uint64_t least = (peak_of(&problem, 1) + GRANULE - 1) / GRANULE;
        problem.options.pages_max = seed % 4 < 2 ? 0 : (uint32_t)(least + least / 50);
        berm_planner_t *planner = plan_made(&problem, UINT64_MAX);
        const berm_plan_t *plan = berm__planner_plan(planner);
        cr_assert(plan != NULL || problem.options.pages_max != 0);
        if (plan != NULL) {
            made++;
            aliased += plan->is_aliased;
            check_plan(&problem, plan);
        }
        berm__planner_destroy(planner);
    }
    cr_assert(aliased > 20 && made > 200, "%d aliased, %d made", aliased, made);
}

Test(planner, slices_give_the_same_plan) {
    problem_t problem;
    const uint64_t slices[] = {1, 7, 1000, 100000};
    for (uint64_t seed = 0; seed < 6; seed++) {
        problem_make(&problem, seed, 160, true, seed % 2 == 0);
        problem.options.may_alias = true;
        problem.options.work_max = 300000;
        berm_planner_t *whole = plan_made(&problem, UINT64_MAX);
        const berm_plan_t *expected = berm__planner_plan(whole);
        for (size_t i = 0; i < BERM_ARRAY_LENGTH(slices); i++) {
            berm_planner_t *sliced = plan_made(&problem, slices[i]);
            const berm_plan_t *plan = berm__planner_plan(sliced);
            cr_assert(berm__planner_work(sliced) == berm__planner_work(whole));
            cr_assert((plan == NULL) == (expected == NULL));
            if (plan != NULL) {
                cr_assert(plan->mapping_count == expected->mapping_count);
                cr_assert_arr_eq(plan->offset_bytes, expected->offset_bytes,
                                 problem.count * sizeof(uint64_t));
                cr_assert_arr_eq(plan->page_of, expected->page_of,
                                 plan->mapping_count * sizeof(uint32_t));
            }
            berm__planner_destroy(sliced);
        }
        berm__planner_destroy(whole);
    }
}

// More work never makes a plan worse: fewer pages, and of as many pages fewer mappings.
Test(planner, search_keeps_the_best) {
    problem_t problem;
    int better = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint64_t last = UINT64_MAX;
        problem_make(&problem, seed, 320, true, seed % 2 == 0);
        problem.options.may_alias = true;
        for (uint64_t work = 250000; work <= 8000000; work *= 2) {
            problem.options.work_max = work;
            berm_planner_t *planner = plan_made(&problem, UINT64_MAX);
            const berm_plan_t *plan = berm__planner_plan(planner);
            uint64_t cost =
                plan == NULL ? UINT64_MAX : (uint64_t)plan->page_count << 32 | plan->mapping_count;
            cr_assert(cost <= last, "seed %u, work %u", (unsigned)seed, (unsigned)work);
            better += cost < last;
            last = cost;
            berm__planner_destroy(planner);
        }
    }
    cr_assert(better > 16, "%d", better);
}

// A slice does not take much longer than it was told to: one item, at most, more.
Test(planner, slices_are_short) {
    problem_t problem;
    problem_make(&problem, 2, 160, true, true);
    problem.options.may_alias = true;
    berm_planner_t *planner = berm__planner_create(problem.items, problem.count, &problem.options);
    cr_assert(planner != NULL);
    uint64_t before = 0, slices = 0;
    for (; berm__planner_step(planner, 1000) == BERM_PLANNER_WORKING; slices++) {
        cr_assert(berm__planner_work(planner) >= before + 1000);
        cr_assert(berm__planner_work(planner) < before + 5000);
        before = berm__planner_work(planner);
    }
    cr_assert(slices > 10);
    berm__planner_destroy(planner);
}

Test(planner, a_failure_of_host_memory_is_an_answer) {
    problem_t problem;
    problem_make(&problem, 1, 40, false, true);
    problem.options.may_alias = true;
    uint64_t nth = 1;
    for (;; nth++) {
        berm__mem_fault_nth(nth, 1);
        berm_planner_t *planner =
            berm__planner_create(problem.items, problem.count, &problem.options);
        if (planner != NULL) {
            // All memory is there now.
            berm__mem_fault_nth(1, 0);
            while (berm__planner_step(planner, 10000) == BERM_PLANNER_WORKING) {
            }
            cr_assert(berm__mem_calls() == 0 && berm__planner_plan(planner) != NULL);
            berm__planner_destroy(planner);
            break;
        }
        cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
    }
    berm__mem_fault_nth(0, 0);
    cr_assert(nth == 3, "create took memory %u times", (unsigned)nth - 1);
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

static berm_planner_state_t outcome(const problem_t *problem) {
    berm_planner_t *planner = plan_made(problem, UINT64_MAX);
    berm_planner_state_t state = berm__planner_step(planner, UINT64_MAX);
    cr_assert((berm__planner_plan(planner) != NULL) == (state == BERM_PLANNER_DONE));
    berm__planner_destroy(planner);
    return state;
}

Test(planner, limits_are_kept) {
    problem_t problem;
    problem_make(&problem, 5, 160, true, false);
    uint32_t peak = (uint32_t)(peak_of(&problem, 1) / GRANULE);
    problem.options.may_alias = true;
    problem.options.pages_max = peak;
    cr_assert(outcome(&problem) == BERM_PLANNER_DONE);
    problem.options.pages_max = peak - 1;
    cr_assert(outcome(&problem) == BERM_PLANNER_CANNOT);
    problem.options.pages_max = 0;
    problem.options.mappings_max = peak - 1;
    cr_assert(outcome(&problem) == BERM_PLANNER_CANNOT);
    problem.options.mappings_max = 0;
    cr_assert(outcome(&problem) == BERM_PLANNER_CANNOT);
    problem.options.mappings_max = 1 << 16;
    problem.options.work_max = 1;
    cr_assert(outcome(&problem) == BERM_PLANNER_CANNOT);
    problem.options.work_max = 0;
    problem.count = 0;
    cr_assert(outcome(&problem) == BERM_PLANNER_DONE);
}

// Whatever the budget, what comes out is a plan or none.
Test(planner, small_budgets_give_a_sound_plan_or_none) {
    problem_t problem;
    int none = 0, made = 0;
    for (uint64_t work = 100; work < 400000; work = work * 5 / 4) {
        problem_make(&problem, 7, 160, true, true);
        problem.options.may_alias = true;
        problem.options.work_max = work;
        berm_planner_t *planner = plan_made(&problem, 1000);
        const berm_plan_t *plan = berm__planner_plan(planner);
        if (plan != NULL)
            check_plan(&problem, plan);
        none += plan == NULL;
        made += plan != NULL;
        berm__planner_destroy(planner);
    }
    cr_assert(none > 0 && made > 0);
}

static bool is_refused(const problem_t *problem) {
    berm_planner_t *planner =
        berm__planner_create(problem->items, problem->count, &problem->options);
    bool refused = planner == NULL;
    berm__planner_destroy(planner);
    return refused;
}

Test(planner, unsound_input_is_refused) {
    problem_t sound, problem;
    problem_make(&sound, 9, 8, false, true);
    cr_assert(!is_refused(&sound));
    problem = sound, problem.options.granule_bytes = 3000;
    cr_assert(is_refused(&problem));
    problem = sound, problem.options.granule_bytes = 256;
    cr_assert(is_refused(&problem));
    problem = sound, problem.options.period = 0;
    cr_assert(is_refused(&problem));
    problem = sound, problem.items[0].size_bytes = 0;
    cr_assert(is_refused(&problem));
    problem = sound, problem.items[0].size_bytes = 513;
    cr_assert(is_refused(&problem));
    problem = sound, problem.items[0].begin = problem.options.period;
    cr_assert(is_refused(&problem));
    problem = sound, problem.items[0].end = problem.options.period + 1;
    cr_assert(is_refused(&problem));
    problem = sound, problem.items[0].size_bytes = UINT64_MAX / 512 * 512;
    cr_assert(is_refused(&problem));
    problem = sound;
    cr_assert(problem.count > 8);
    for (int i = 0; i < 8; i++)
        problem.items[i].size_bytes = UINT64_C(3) << 60; // each is fine, the sum is not
    cr_assert(is_refused(&problem));
}
