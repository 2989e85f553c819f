// SPDX-License-Identifier: Apache-2.0
// core/cells: against a plain array of booleans, at every bound around the ends of words and
// levels.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "base/rng.h"
#include "core/cells.h"
#include "host/mem.h"

enum {
    SMALL_MAX = 300,
    LARGE = 300000, // four levels
};

static bool has[LARGE];

static uint64_t below(uint64_t cell) {
    for (;; cell--) {
        if (has[cell])
            return cell;
        if (cell == 0)
            return BERM_CELL_NONE;
    }
}

static void toggle(berm_cells_t *cells, uint64_t cell) {
    if (has[cell])
        berm__cells_remove(cells, cell);
    else
        berm__cells_insert(cells, cell);
    has[cell] = !has[cell];
}

static void all_agree(const berm_cells_t *cells, uint64_t bound) {
    for (uint64_t cell = 0; cell < bound; cell++) {
        cr_assert(berm__cells_has(cells, cell) == has[cell]);
        cr_assert(berm__cells_at_or_below(cells, cell) == below(cell), "at or below %llu of %llu",
                  (unsigned long long)cell, (unsigned long long)bound);
    }
}

Test(cells, every_small_bound) {
    for (uint64_t bound = 1; bound <= SMALL_MAX; bound += bound < 70 ? 1 : 23) {
        berm_cells_t cells;
        berm_rng_t rng;
        berm__rng_seed(&rng, bound);
        memset(has, 0, sizeof has);
        cr_assert(berm__cells_init(&cells, bound));
        all_agree(&cells, bound);
        for (int i = 0; i < 60; i++) {
            toggle(&cells, berm__rng_below(&rng, bound));
            all_agree(&cells, bound);
        }
        berm__cells_destroy(&cells);
    }
}

// One bit alone is found from everywhere above it, and nothing from below.
Test(cells, a_single_cell_in_many) {
    static const uint64_t places[] = {0, 63, 64, 4095, 4096, 4097, 262143, 262144, LARGE - 1};
    berm_cells_t cells;
    cr_assert(berm__cells_init(&cells, LARGE));
    cr_assert(cells.levels == 4);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(places); i++) {
        berm__cells_insert(&cells, places[i]);
        cr_assert(berm__cells_at_or_below(&cells, LARGE - 1) == places[i]);
        cr_assert(berm__cells_at_or_below(&cells, places[i]) == places[i]);
        if (places[i] > 0)
            cr_assert(berm__cells_at_or_below(&cells, places[i] - 1) == BERM_CELL_NONE);
        berm__cells_remove(&cells, places[i]);
        cr_assert(berm__cells_at_or_below(&cells, LARGE - 1) == BERM_CELL_NONE);
    }
    berm__cells_destroy(&cells);
}

// Few and many cells of a large set, in clusters, so that whole words empty and fill again.
Test(cells, random_against_an_array) {
    berm_cells_t cells;
    berm_rng_t rng;
    berm__rng_seed(&rng, 7);
    memset(has, 0, sizeof has);
    cr_assert(berm__cells_init(&cells, LARGE));
    for (int round = 0; round < 3000; round++) {
        uint64_t base = berm__rng_below(&rng, LARGE - 200), width = 1 + berm__rng_below(&rng, 200);
        for (int i = 0; i < 20; i++)
            toggle(&cells, base + berm__rng_below(&rng, width));
        for (int i = 0; i < 20; i++) {
            uint64_t cell = berm__rng_below(&rng, i % 2 == 0 ? base + width : LARGE);
            cr_assert(berm__cells_has(&cells, cell) == has[cell]);
            cr_assert(berm__cells_at_or_below(&cells, cell) == below(cell));
        }
    }
    for (uint64_t cell = 0; cell < LARGE; cell++)
        if (has[cell])
            toggle(&cells, cell);
    for (uint64_t word = 0; word < cells.word_count; word++)
        cr_assert(cells.words[0][word] == 0, "what was removed is gone from every level");
    berm__cells_destroy(&cells);
}

Test(cells, without_host_memory_there_is_none) {
    berm_cells_t cells;
    berm__mem_fault_nth(1, 1);
    cr_assert(!berm__cells_init(&cells, 100));
    berm__mem_fault_nth(0, 0);
    berm__cells_destroy(&cells);
    cr_assert(berm__mem_held_bytes() == 0);
}
