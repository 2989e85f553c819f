// SPDX-License-Identifier: Apache-2.0
// Plans where the blocks of one period of a cyclic workload go: offsets in an arena of addresses,
// and the physical page behind each granule of the arena.
//
// Two kinds of plan. A packing gives every granule a page of its own and lets blocks share
// granules; its page count is its height. Where no packing found is low enough and `may_alias` is
// set, an aliased plan lets several granules have one page: no two of them are live at one time.
// There every block begins at a granule and shares none with another.
//
// A plan, once made, promises (tests/unit/test_planner.c checks it by brute force):
//   - no two items that are live at one time overlap in the arena, nor in physical memory; this
//     holds around the cycle too: an item that wraps is live at the start of each period
//   - offsets are multiples of 512 bytes, and every item lies inside the arena
//   - page_of holds every page below page_count at least once
//
// The work is done in slices by berm__planner_step; all memory is taken by berm__planner_create, so
// that a step cannot fail. The same input gives the same plan however it is sliced.
// Integers only, no clock. Locks: the owner's.
#ifndef BERM_CORE_PLANNER_H
#define BERM_CORE_PLANNER_H

#include <stdbool.h>

#include "base/defs.h"

// Elementary steps that take at most about 1 ms: an element visited is one (1 to 2 ns).
#define BERM_PLANNER_WORK_PER_MS UINT64_C(250000)

// One block, live in [begin, end). end <= begin: it is live from begin to the period's end, and on
// to end in the next period (end == begin: always). Of two events at one position the end is first.
typedef struct berm_plan_item {
    uint64_t size_bytes; // a multiple of 512, more than 0
    uint32_t begin, end; // below and at most the period
} berm_plan_item_t;

typedef struct berm_planner_options {
    uint64_t granule_bytes; // a power of two, at least 512
    uint32_t period;        // positions in one period, at least 1
    uint32_t pages_max;    // good enough: the first plan with no more pages is taken, and more is a
                           // failure. 0: the fewest pages that can be found, however many (1 % more
                           // where that spares an aliased plan much work)
    uint32_t mappings_max; // granules of the arena at most
    bool may_alias;
    uint64_t work_max; // elementary steps in all, after which the best plan so far is taken; 0: 2 s
} berm_planner_options_t;

typedef struct berm_plan {
    uint64_t *offset_bytes; // of each item, in the order given
    uint32_t *page_of;      // of each granule of the arena
    uint64_t arena_bytes;   // a multiple of granule_bytes
    uint64_t peak_bytes;    // the most bytes of items live at one time: no plan has less memory
    uint32_t item_count;
    uint32_t mapping_count; // granules of the arena
    uint32_t page_count;
    bool is_aliased; // some page is behind several granules; mapping_count == page_count otherwise
} berm_plan_t;

typedef enum berm_planner_state {
    BERM_PLANNER_WORKING,
    BERM_PLANNER_DONE,
    BERM_PLANNER_CANNOT, // no plan within pages_max and mappings_max was found
} berm_planner_state_t;

typedef struct berm_planner berm_planner_t;

// Copies the items. NULL without host memory, or when the items or options break what is said
// above (no item at all is fine).
BERM_NODISCARD berm_planner_t *berm__planner_create(const berm_plan_item_t *items,
                                                    uint32_t item_count,
                                                    const berm_planner_options_t *options);
void berm__planner_destroy(berm_planner_t *planner); // NULL is allowed

// Goes on for about `work` elementary steps. Once the state is not WORKING it stays what it is.
berm_planner_state_t berm__planner_step(berm_planner_t *planner, uint64_t work);

// The plan, valid until the planner is destroyed; NULL unless the state is DONE.
const berm_plan_t *berm__planner_plan(const berm_planner_t *planner);

// Elementary steps done so far.
uint64_t berm__planner_work(const berm_planner_t *planner);

#endif
