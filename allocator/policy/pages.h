// SPDX-License-Identifier: Apache-2.0
// The physical pages of an aliased plan's arena: pages that are each mapped at several places of
// it, of which one at a time is used.
//
//   arena granule:   0   1   2   3   4   5 ...
//   page:            0   1   2   0   3   1          page_of of core/planner.h
//
// A page whose granules are all free may be served at any of them, in the order of the pool's
// stream; while a block has it at one, its other granules are free addresses that cannot be served.
// Blocks of such an arena begin at a granule and share none.
//
// Invariants (docs/invariants.md):
//   I35  a page is in use exactly if a block lies over one of its granules, and over no other; the
//        handle of a page stands at granules of the page only, `views` times in all
//
// Locks: handles are under the device's, use under the pool's.
#ifndef BERM_POLICY_PAGES_H
#define BERM_POLICY_PAGES_H

#include "core/planner.h"
#include "policy/pool.h"

typedef struct berm_page {
    berm_phys_handle_t *handle; // NULL: none
    uint32_t first_granule;     // of its granules; the next is in next_granule
    bool is_used;
    bool is_lost; // one of its granules is poisoned: it is never used or moved again
    bool is_seen; // by a walk that counts pages
} berm_page_t;

typedef struct berm_pages {
    const berm_plan_t *plan;
    berm_page_t *pages;     // NULL: the plan has no aliases
    uint32_t *next_granule; // of the same page; UINT32_MAX: the last
} berm_pages_t;

// For an aliased plan. False without host memory.
BERM_NODISCARD bool berm__pages_init(berm_pages_t *pages, const berm_plan_t *plan);
void berm__pages_destroy(berm_pages_t *pages);
static inline bool berm__pages_are_on(const berm_pages_t *pages) {
    return pages->pages != NULL;
}

// Of the granules [first, first + count): whether no block uses their pages; a block takes them,
// and gives them back. The pool's lock is held.
bool berm__pages_are_free(const berm_pages_t *pages, uint64_t first, uint64_t count);
void berm__pages_use(berm_pages_t *pages, uint64_t first, uint64_t count, bool is_used);

// How many pages of [first, first + count) have no handle yet. Locked.
uint64_t berm__pages_short(berm_pages_t *pages, uint64_t first, uint64_t count);
// Maps [first, first + count), of which nothing is mapped: pages that have a handle once more, the
// others with idle handles, aliased ones first, of which there are enough. Errors and their
// effect as berm__segment_map. Locked.
berm_status_t berm__pages_map(berm_pages_t *pages, berm_pool_t *pool, berm_segment_t *segment,
                              uint64_t first, uint64_t count);

// Takes up to `granules` pages that are not used and whose work has passed away from all their
// addresses; their handles become idle. Locked, in context. DRIVER: a granule is poisoned.
berm_status_t berm__pages_steal(berm_pages_t *pages, berm_pool_t *pool, berm_segment_t *segment,
                                uint64_t granules, uint64_t *taken);
// The lowest ticket that has not passed and is the last of a page that is not used; 0: none. The
// pool's lock is held.
uint64_t berm__pages_cheapest_ticket(const berm_pages_t *pages, const berm_pool_t *pool,
                                     const berm_segment_t *segment);
// Pages with a handle that are not used and may move.
uint64_t berm__pages_unused(const berm_pages_t *pages);
// Whether any page has a handle.
bool berm__pages_are_mapped(const berm_pages_t *pages);

#endif
