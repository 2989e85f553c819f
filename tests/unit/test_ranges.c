// SPDX-License-Identifier: Apache-2.0
// core/ranges.h: a random model against one byte of state per unit, with the checker run after each
// step; the bound of the good fit; and each invariant broken by hand, so that the checker is
// checked as well.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "core/ranges.h"
#include "host/mem.h"

enum {
    UNITS = 768,       // of the model's segment
    GRANULE_UNITS = 16 // VOID comes and goes in these
};

#define UNIT      BERM_RANGE_UNIT_BYTES
#define BASE_ADDR UINT64_C(0x7f0000000000)

typedef struct model {
    berm_node_slab_t nodes;
    berm_ranges_t ranges;
    uint8_t state[UNITS];  // by unit
    uint16_t block[UNITS]; // LIVE, AWAITED, BUSY: number of the range the unit is part of
    uint16_t blocks;       // numbers given out
    uint64_t free_units;   // with the state FREE
} model_t;

static model_t model;
static char error[256];

static void model_begin(void) {
    memset(&model, 0, sizeof model);
    memset(model.state, BERM_RANGE_VOID, sizeof model.state);
    berm__node_slab_init(&model.nodes, sizeof(berm_range_t));
    cr_assert(berm__ranges_init(&model.ranges, UNITS * UNIT, &model.nodes));
}

static void model_end(void) {
    berm__ranges_destroy(&model.ranges);
    cr_assert(berm__node_slab_live(&model.nodes) == 0);
    berm__node_slab_destroy(&model.nodes);
    cr_assert(berm__mem_held_bytes() == 0);
}

static void model_set(uint64_t start, uint64_t size, berm_range_state_t state) {
    uint64_t at = start / UNIT;
    model.blocks++;
    for (uint64_t i = 0; i < size / UNIT; i++) {
        model.free_units += state == BERM_RANGE_FREE;
        model.free_units -= model.state[at + i] == BERM_RANGE_FREE;
        model.state[at + i] = (uint8_t)state;
        model.block[at + i] = model.blocks;
    }
}

static bool is_joined(uint8_t state) {
    return state == BERM_RANGE_FREE || state == BERM_RANGE_VOID;
}

// The end of the run of units that must be one range.
static uint64_t model_run_end(uint64_t at) {
    uint64_t end = at + 1;
    while (end < UNITS && model.state[end] == model.state[at] &&
           (is_joined(model.state[at]) || model.block[end] == model.block[at]))
        end++;
    return end;
}

static void model_compare(void) {
    cr_assert(berm__ranges_check(&model.ranges, error, sizeof error) == 0, "%s", error);
    uint64_t count = 0, largest = 0;
    const berm_range_t *range = model.ranges.first;
    for (uint64_t at = 0; at < UNITS; range = range->next, count++) {
        uint64_t end = model_run_end(at);
        cr_assert(range != NULL && range->start_bytes == at * UNIT);
        cr_assert(range->size_bytes == (end - at) * UNIT && range->state == model.state[at]);
        if (model.state[at] == BERM_RANGE_FREE && end - at > largest)
            largest = end - at;
        at = end;
    }
    cr_assert(range == NULL);
    cr_assert(berm__node_slab_live(&model.nodes) == count);
    cr_assert(model.ranges.free_bytes == model.free_units * UNIT);
    const berm_range_t *found = berm__ranges_largest_free(&model.ranges);
    cr_assert((found != NULL ? found->size_bytes : 0) == largest * UNIT);
}

// Whether any run of free units holds the request.
static bool model_fits(uint64_t size, uint64_t alignment) {
    for (uint64_t at = 0; at < UNITS; at = model_run_end(at)) {
        if (model.state[at] != BERM_RANGE_FREE)
            continue;
        uint64_t address = BASE_ADDR + at * UNIT;
        uint64_t start = (address + alignment - 1) / alignment * alignment;
        if (start + size <= BASE_ADDR + model_run_end(at) * UNIT)
            return true;
    }
    return false;
}

static void model_alloc(berm_rng_t *rng) {
    uint64_t size = UNIT * (1 + berm__rng_below(rng, (uint64_t)1 << berm__rng_below(rng, 8)));
    uint64_t alignment = UNIT << (berm__rng_below(rng, 4) == 0 ? berm__rng_below(rng, 7) : 0);
    berm_range_t *range = berm__ranges_find(&model.ranges, BASE_ADDR, size, alignment);
    cr_assert((range != NULL) == model_fits(size, alignment));
    if (range == NULL)
        return;
    uint64_t address = BASE_ADDR + range->start_bytes;
    uint64_t start = (address + alignment - 1) / alignment * alignment - BASE_ADDR;
    cr_assert(range->state == BERM_RANGE_FREE);
    cr_assert(start + size <= range->start_bytes + range->size_bytes);
    cr_assert(berm__node_slab_reserve(&model.nodes, 2));
    berm_range_t *cut = berm__ranges_carve(&model.ranges, range, start, size, BERM_RANGE_LIVE);
    cr_assert(cut->start_bytes == start && cut->size_bytes == size);
    model_set(start, size, BERM_RANGE_LIVE);
}

static berm_range_t *range_random(berm_rng_t *rng) {
    return berm__ranges_at(&model.ranges, berm__rng_below(rng, UNITS * UNIT));
}

// LIVE to AWAITED or FREE, AWAITED to FREE.
static void model_free(berm_rng_t *rng) {
    berm_range_t *range = range_random(rng);
    if (range->state != BERM_RANGE_LIVE && range->state != BERM_RANGE_AWAITED)
        return;
    uint64_t start = range->start_bytes, size = range->size_bytes;
    bool is_awaited = range->state == BERM_RANGE_LIVE && berm__rng_below(rng, 3) == 0;
    berm_range_state_t state = is_awaited ? BERM_RANGE_AWAITED : BERM_RANGE_FREE;
    range = berm__ranges_settle(&model.ranges, range, state);
    cr_assert(range->start_bytes <= start);
    cr_assert(range->start_bytes + range->size_bytes >= start + size);
    model_set(start, size, state);
}

// Whole granules of a VOID range become FREE, or of a FREE one VOID, by way of BUSY.
static void model_map(berm_rng_t *rng) {
    const uint64_t granule = GRANULE_UNITS * UNIT;
    berm_range_t *range = range_random(rng);
    if (!is_joined(range->state))
        return;
    uint64_t first = (range->start_bytes + granule - 1) / granule;
    uint64_t last = (range->start_bytes + range->size_bytes) / granule;
    if (first >= last)
        return;
    uint64_t start = (first + berm__rng_below(rng, last - first)) * granule;
    uint64_t size = (1 + berm__rng_below(rng, last - start / granule)) * granule;
    if (size > 4 * granule)
        size = 4 * granule;
    bool is_mapping = range->state == BERM_RANGE_VOID;
    cr_assert(berm__node_slab_reserve(&model.nodes, 2));
    range = berm__ranges_carve(&model.ranges, range, start, size, BERM_RANGE_BUSY);
    model_set(start, size, BERM_RANGE_BUSY);
    model_compare();
    berm_range_state_t state = is_mapping ? BERM_RANGE_FREE : BERM_RANGE_VOID;
    (void)berm__ranges_settle(&model.ranges, range, state);
    model_set(start, size, state);
}

// Two neighbours that are both LIVE become one.
static void model_absorb(berm_rng_t *rng) {
    berm_range_t *range = range_random(rng), *next = range->next;
    if (range->state != BERM_RANGE_LIVE || next == NULL || next->state != BERM_RANGE_LIVE)
        return;
    uint64_t start = range->start_bytes, size = range->size_bytes + next->size_bytes;
    berm__ranges_absorb_next(&model.ranges, range);
    model_set(start, size, BERM_RANGE_LIVE);
}

static void model_run(uint64_t seed, int steps) {
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    model_begin();
    model_compare();
    for (int i = 0; i < steps; i++) {
        uint64_t kind = berm__rng_below(&rng, 16);
        if (kind < 7)
            model_alloc(&rng);
        else if (kind < 12)
            model_free(&rng);
        else if (kind < 15)
            model_map(&rng);
        else
            model_absorb(&rng);
        model_compare();
    }
    model_end();
}

Test(ranges, random_model) {
    for (uint64_t seed = 1; seed <= 6; seed++)
        model_run(seed, 1500);
}

// --- finding -------------------------------------------------------------------------------------

// Free ranges of the sizes given, in units, with a live unit after each.
static void segment_cut(const uint64_t *sizes, int count) {
    uint64_t at = 0;
    for (int i = 0; i < count; i++) {
        cr_assert(berm__node_slab_reserve(&model.nodes, 4));
        berm_range_t *rest = berm__ranges_at(&model.ranges, at * UNIT);
        (void)berm__ranges_carve(&model.ranges, rest, at * UNIT, sizes[i] * UNIT, BERM_RANGE_FREE);
        rest = berm__ranges_at(&model.ranges, (at + sizes[i]) * UNIT);
        (void)berm__ranges_carve(&model.ranges, rest, (at + sizes[i]) * UNIT, UNIT,
                                 BERM_RANGE_LIVE);
        at += sizes[i] + 1;
    }
    cr_assert(berm__ranges_check(&model.ranges, error, sizeof error) == 0, "%s", error);
}

Test(ranges, find_takes_a_close_fit) {
    static const uint64_t sizes[] = {100, 9, 33, 10, 66, 65, 67, 8, 34};
    model_begin();
    segment_cut(sizes, 9);
    static const uint64_t cases[][2] = {{1, 8},   {8, 8},    {9, 9},    {10, 10}, {11, 33},
                                        {33, 33}, {34, 34},  {35, 65},  {65, 65}, {66, 66},
                                        {67, 67}, {68, 100}, {100, 100}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(cases); i++) {
        berm_range_t *range = berm__ranges_find(&model.ranges, 0, cases[i][0] * UNIT, UNIT);
        cr_assert(range != NULL && range->size_bytes == cases[i][1] * UNIT, "%d units",
                  (int)cases[i][0]);
    }
    cr_assert(berm__ranges_find(&model.ranges, 0, 101 * UNIT, UNIT) == NULL);
    cr_assert(berm__ranges_find(&model.ranges, 0, UNITS * UNIT, UNIT) == NULL);
    cr_assert(berm__ranges_find(&model.ranges, 0, UINT64_C(1) << 62, UNIT) == NULL);
    model_end();
}

// A fit is found even when it is the last of a long bin of ranges that are a little too small.
Test(ranges, find_never_misses_the_own_bin) {
    uint64_t sizes[22];
    for (int i = 0; i < 22; i++)
        sizes[i] = i == 0 ? 33 : 32; // one bin: its sizes differ by less than 1/16
    model_begin();
    segment_cut(sizes, 22);
    berm_range_t *range = berm__ranges_find(&model.ranges, 0, 33 * UNIT, UNIT);
    cr_assert(range != NULL && range->start_bytes == 0);
    model_end();
}

Test(ranges, bins_are_walked_from_small_to_large) {
    static const uint64_t sizes[] = {100, 9, 33, 10, 65, 8, 9};
    model_begin();
    segment_cut(sizes, 7);
    uint64_t last = 0;
    int count = 0;
    for (berm_range_t *range = berm__ranges_bin_first(&model.ranges, UNIT); range != NULL;
         range = berm__ranges_bin_next(&model.ranges, range), count++) {
        cr_assert(range->state == BERM_RANGE_FREE && range->size_bytes >= last);
        last = range->size_bytes;
    }
    cr_assert(count == 7 && last == 100 * UNIT);
    berm_range_t *range = berm__ranges_bin_first(&model.ranges, 34 * UNIT);
    cr_assert(range != NULL && range->size_bytes >= 33 * UNIT);
    cr_assert(berm__ranges_bin_first(&model.ranges, 200 * UNIT) == NULL);
    model_end();
}

// The VOID range behind the blocks is the largest until there is none behind them.
Test(ranges, the_largest_void) {
    model_begin();
    berm_range_t *all = berm__ranges_largest_void(&model.ranges);
    cr_assert(all != NULL && all == model.ranges.first);
    uint64_t span = model.ranges.span_bytes;
    (void)berm__ranges_carve(&model.ranges, all, 10 * UNIT, UNIT, BERM_RANGE_LIVE);
    berm_range_t *rest = berm__ranges_largest_void(&model.ranges);
    cr_assert(rest->start_bytes == 11 * UNIT && rest->size_bytes == span - 11 * UNIT);
    (void)berm__ranges_carve(&model.ranges, rest, 11 * UNIT, span - 11 * UNIT, BERM_RANGE_LIVE);
    cr_assert(berm__ranges_largest_void(&model.ranges)->size_bytes == 10 * UNIT);
    (void)berm__ranges_carve(&model.ranges, model.ranges.first, 0, 10 * UNIT, BERM_RANGE_LIVE);
    cr_assert(berm__ranges_largest_void(&model.ranges) == NULL);
    model_end();
}

Test(ranges, init_without_host_memory) {
    berm_node_slab_t nodes;
    berm_ranges_t ranges;
    berm__node_slab_init(&nodes, sizeof(berm_range_t));
    berm__mem_fault_nth(1, 0);
    cr_assert(!berm__ranges_init(&ranges, UNITS * UNIT, &nodes));
    berm__ranges_destroy(&ranges);
    berm__node_slab_destroy(&nodes);
}

Test(ranges, largest_span) {
    berm_node_slab_t nodes;
    static berm_ranges_t ranges;
    berm__node_slab_init(&nodes, sizeof(berm_range_t));
    cr_assert(berm__ranges_init(&ranges, UINT64_C(1) << 56, &nodes));
    berm__ranges_lift(&ranges, ranges.first, BERM_RANGE_FREE);
    cr_assert(berm__ranges_check(&ranges, error, sizeof error) == 0, "%s", error);
    cr_assert(berm__ranges_find(&ranges, 0, UINT64_C(1) << 56, UNIT) == ranges.first);
    cr_assert(berm__ranges_find(&ranges, 0, UNIT, UINT64_C(1) << 32) == ranges.first);
    berm__ranges_destroy(&ranges);
    berm__node_slab_destroy(&nodes);
}

// --- the checker is checked ----------------------------------------------------------------------

static void broken_expect(int invariant) {
    char number[8];
    error[0] = '\0';
    int found = berm__ranges_check(&model.ranges, error, sizeof error);
    cr_assert(found == invariant, "%d: %s", found, error);
    (void)snprintf(number, sizeof number, "I%d:", invariant);
    cr_assert(strncmp(error, number, strlen(number)) == 0, "%s", error);
}

static void broken_begin(void) {
    static const uint64_t sizes[] = {10, 20};
    model_begin();
    segment_cut(sizes, 2);
}

Test(ranges, i1_gap) {
    broken_begin();
    model.ranges.first->next->start_bytes += UNIT;
    broken_expect(1);
}

Test(ranges, i1_back_link) {
    broken_begin();
    model.ranges.first->next->prev = NULL;
    broken_expect(1);
}

Test(ranges, i1_span) {
    broken_begin();
    model.ranges.span_bytes += UNIT;
    broken_expect(1);
}

Test(ranges, i1_empty_range) {
    broken_begin();
    model.ranges.first->size_bytes = 0;
    broken_expect(1);
}

Test(ranges, i2_free_neighbours) {
    broken_begin();
    berm__ranges_lift(&model.ranges, model.ranges.first->next, BERM_RANGE_FREE);
    broken_expect(2);
}

Test(ranges, i2_void_neighbours) {
    broken_begin();
    model.ranges.first->next->next->next->state = BERM_RANGE_VOID; // the unit before the VOID rest
    broken_expect(2);
}

Test(ranges, i3_free_range_in_no_bin) {
    broken_begin();
    berm__list_remove(&model.ranges.first->as.bin);
    broken_expect(3);
}

Test(ranges, i3_live_range_in_a_bin) {
    broken_begin();
    model.ranges.first->state = BERM_RANGE_LIVE;
    broken_expect(3);
}

Test(ranges, i3_bitmap) {
    broken_begin();
    model.ranges.free.linear_bits[0] ^= 1;
    broken_expect(3);
}

Test(ranges, i3_level_bitmap) {
    broken_begin();
    model.ranges.free.level_bits ^= UINT64_C(1) << 40;
    broken_expect(3);
}

Test(ranges, i4_free_bytes) {
    broken_begin();
    model.ranges.free_bytes += UNIT;
    broken_expect(4);
}

Test(ranges, names_of_states) {
    cr_assert_str_eq(berm__range_state_name(BERM_RANGE_FREE), "free");
    cr_assert_str_eq(berm__range_state_name(BERM_RANGE_POISONED), "poisoned");
    cr_assert_str_eq(berm__range_state_name(BERM_RANGE_STATE_COUNT), "unknown");
}
