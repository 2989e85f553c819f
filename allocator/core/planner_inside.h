// SPDX-License-Identifier: Apache-2.0
// Internal to planner*.c: the state of a planner between two slices.
//
// Sizes and offsets are in units of 512 bytes. Time is rotated, so that position 0 is where the
// fewest bytes are live: begin < period, begin < end <= 2 * period, and an item wraps exactly if
// end > period.
//
// A phase function does some of its work, adds what it did to `done`, and is true once the phase
// is over.
#ifndef BERM_CORE_PLANNER_INSIDE_H
#define BERM_CORE_PLANNER_INSIDE_H

#include "core/planner.h"

#define PLANNER_UNIT_BYTES UINT64_C(512)

// Elementary steps that the search for a better packing may take: at most this, and at most a
// quarter of all. The search for a better aliased plan may take four times that.
#define PLANNER_SEARCH_WORK (100 * BERM_PLANNER_WORK_PER_MS)

typedef enum planner_phase {
    PLANNER_PEAK,       // live bytes by position; then time is rotated
    PLANNER_PACK_SORT,  // one of the orders of packing
    PLANNER_PACK,       // first fit in that order
    PLANNER_BEGIN_SORT, // orders for replays
    PLANNER_END_SORT,
    PLANNER_SCALE,  // the step of arena addresses for aliased plans
    PLANNER_REPLAY, // one replay of the period over a table of pages
    PLANNER_FINISH, // the best plan is written out
    PLANNER_OVER,
} planner_phase_t;

// A resumable heap sort of item numbers by (key, number).
typedef struct planner_sort {
    uint32_t *order;
    const uint64_t *keys;
    uint32_t count;
    uint32_t to_sift; // items that are not yet part of the heap
    uint32_t to_pop;  // items that are not yet in their place
} planner_sort_t;

// A placed item, or one of the two parts of one that wraps: addresses [low, high) are taken in
// [begin, end) of the rotated period.
typedef struct planner_span {
    uint64_t low, high;
    uint32_t begin, end;
} planner_span_t;

// First fit over lifetimes. `spans` is sorted by low.
typedef struct planner_pack {
    planner_span_t *spans;
    uint32_t span_count;
    uint32_t *order;      // of items
    uint32_t *best_order; // of the best of the four
    uint64_t *offset;
    uint64_t *best_offset;
    uint64_t height, best_height; // best: UINT64_MAX while there is none
    uint32_t at;                  // index into order of the next item
    uint32_t order_number;        // which order this is
    uint64_t search_end;          // of `done`: no search beyond
} planner_pack_t;

// A replay over islands of cells. A cell is one step of arena addresses with a page (of step
// granules) behind it; islands are runs of cells whose place in the arena is open until the end.
//   - next links the cells of an island; what is linked stays linked
//   - free_until[page] is 0 while the page is live, else the position from which an item that wraps
//     has it (UINT32_MAX: none): the page serves items with end <= free_until
//   - dead pages are in a ring in order of death, pages never used behind page_count
typedef struct planner_alias {
    uint32_t *begin_order, *end_order; // items by begin, and by the end in the same period
    uint32_t *cell_page, *next;
    uint32_t *first_cell, *best_cell; // of each item
    uint32_t *best_page, *best_next;
    uint32_t *heads; // first cells of islands; the last cell is tail[head]
    uint32_t *tail;
    uint32_t *wrapped_begin, *free_until, *seen, *seen_at; // by page
    uint32_t *dead_next, *dead_prev;                       // by page; the last element is the ring
    uint32_t *best_heads;
    uint32_t cells_max;          // arena and pages in granules, at most
    uint32_t cells_limit;        // cells this replay may have
    bool may_join, takes_newest; // how this replay chooses
    bool has_failed;
    uint32_t chance; // how often it does so by chance
    uint32_t cell_count, page_count, island_count;
    uint32_t best_cells, best_pages, best_islands; // best_cells is UINT32_MAX while there is none
    uint32_t step_granules;
    uint32_t pages_wanted;     // the peak in steps
    uint32_t begin_at, end_at; // indices of the next events
    uint32_t dead_at;          // the next dead page to be looked at for the holes of a window
    uint32_t walk;             // stamp of `seen`
    uint32_t round;            // number of this replay
    uint64_t random, search_end;
} planner_alias_t;

struct berm_planner {
    berm_planner_options_t options;
    berm_planner_state_t state;
    planner_phase_t phase;
    uint64_t done;
    uint32_t count;
    uint32_t *begin, *end; // rotated, as above
    uint64_t *size;        // units of 512 bytes
    uint64_t *delta;       // PEAK: change of live units by position
    uint64_t *keys;
    uint32_t position; // PEAK: the next
    uint64_t live, peak;
    uint64_t lowest; // PEAK: live at `cut`
    uint32_t cut;
    uint32_t pages_least;  // no plan has fewer
    uint32_t pages_good;   // no search for fewer
    uint32_t pages_cap;    // the most that are accepted
    uint64_t memory_bytes; // of `memory`
    void *memory;          // all arrays
    planner_sort_t sort;
    planner_pack_t pack;
    planner_alias_t alias;
    berm_plan_t plan;
};

static inline uint64_t planner__search_work(const berm_planner_t *planner) {
    uint64_t quarter = planner->options.work_max / 4;
    return quarter < PLANNER_SEARCH_WORK ? quarter : PLANNER_SEARCH_WORK;
}

// planner_sort.c
void planner__sort_begin(planner_sort_t *sort, uint32_t *order, const uint64_t *keys,
                         uint32_t count);
bool planner__sort_step(planner_sort_t *sort, uint64_t *done, uint64_t until);

// planner_pack.c
void planner__pack_begin(berm_planner_t *planner); // the next order: keys, and its sort begun
bool planner__pack_step(berm_planner_t *planner, uint64_t until);
bool planner__pack_more(berm_planner_t *planner); // after a pass: true if another one is begun
uint64_t planner__pack_pages(const berm_planner_t *planner, uint64_t height);

// planner_alias.c
bool planner__alias_scale(berm_planner_t *planner);
void planner__alias_begin(berm_planner_t *planner); // the next replay
bool planner__alias_step(berm_planner_t *planner, uint64_t until);
bool planner__alias_more(berm_planner_t *planner);
void planner__alias_write(berm_planner_t *planner);

#endif
