// SPDX-License-Identifier: Apache-2.0
// The addresses of a plan: an arena, one segment of the pool, in which each block of a period has
// its place. Requests that follow the plan are served there and no others; learn.h makes plans and
// drops them.
//
//   arena:  |  item 3  |item 7|   item 12    | ...        offsets of core/planner.h
//   taken:  ^          ^      ^                           cells (64 KiB) where a taken range starts
//
// The arena is tiled by ranges like any segment, and its granules are mapped like any others:
// before they are needed as far as memory is idle (fill), else when the block is asked for. Under
// pressure free pages of it move to other requests, after all others; the plan goes on without
// them.
//
// Invariants (docs/invariants.md):
//   I34  `taken` has exactly the cells where a range of the arena starts that is LIVE, AWAITED,
//        CACHED or HELD, taken_count of them; range_of leads to it; no slab is in the arena
//
// The arena of an aliased plan has pages that are mapped several times (pages.h), so it never
// serves as a segment like others: when its plan ends it serves nobody, and when its last block is
// free and its work has passed, all of it is unmapped.
//
// Locks: the pool's; it is made and dropped under the device's as well.
#ifndef BERM_POLICY_PLANNED_H
#define BERM_POLICY_PLANNED_H

#include "core/cells.h"
#include "core/follow.h"
#include "core/planner.h"
#include "policy/forecast.h"
#include "policy/pages.h"

// The requests of one period, in their order, and which of them the plan has places for.
typedef struct berm_course {
    uint32_t length, item_count;
    uint64_t *bytes;      // of each request
    uint32_t *item_of;    // of each request; BERM_ITEM_NONE: no place
    uint32_t *request_of; // of each item, ascending
} berm_course_t;

#define BERM_ITEM_NONE UINT32_MAX

typedef struct berm_planned {
    berm_segment_t *segment; // NULL: no plan
    berm_planner_t *planner; // owns the plan
    const berm_plan_t *plan;
    berm_course_t course;
    berm_follow_t *follow;    // over all requests of the period
    berm_pages_t pages;       // of an aliased plan
    berm_forecast_t forecast; // of any other
    bool is_ending;           // it serves nobody any more (below)
    uint64_t taken_count;
    berm_cells_t taken;
    berm_range_t **range_of; // by cell
    uint64_t range_of_bytes;
    uint64_t filled_bytes; // below, the arena has been mapped beforehand
} berm_planned_t;

// Host memory for a course of `length` requests; false without, and nothing is held. Destroy: one
// that was not made, all zero, is allowed.
BERM_NODISCARD bool berm__course_init(berm_course_t *course, uint32_t length);
void berm__course_destroy(berm_course_t *course);

// Makes an arena for a plan that is done; the next request is the first of the course, until
// follow.h is told otherwise. Takes planner and course over, also on failure. Locked, in context:
// OUT_OF_ADDRESSES, OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST.
berm_status_t berm__planned_install(berm_planned_t *planned, berm_pool_t *pool,
                                    berm_planner_t *planner, const berm_course_t *course);
// Ends the plan: the arena is a segment like others; false if it cannot be that yet, and is ending.
// The device's lock is held, in context; `is_closing`: the segments are gone.
bool berm__planned_drop(berm_planned_t *planned, berm_pool_t *pool, bool is_closing);

// Serves a request as the plan has it. False: it is none of the plan's, or its place is taken, and
// is to be served as usual. True: *status is BERM_OK, or BERM_ERROR_STATE where memory must be
// mapped first and `may_map` is false. The pool's lock is held, and with `may_map` the device's,
// the pool's then being given up meanwhile.
bool berm__planned_take(berm_planned_t *planned, berm_pool_t *pool, uint64_t size_bytes,
                        bool may_map, berm_place_t *place, berm_status_t *status);
// In how many requests a granule of the arena is wanted, as far as the plan knows.
static inline uint32_t berm__planned_distance(const berm_planned_t *planned, uint64_t granule) {
    return berm__forecast_distance(&planned->forecast, granule,
                                   berm__follow_cursor(planned->follow));
}
// The range of the arena that holds an offset. The pool's lock is held.
berm_range_t *berm__planned_range_at(const berm_planned_t *planned, uint64_t offset_bytes);
// A range of the arena is about to be free. The pool's lock is held.
void berm__planned_give(berm_planned_t *planned, const berm_range_t *range);

// Maps granules of the arena beforehand, as far as memory is free elsewhere and its work has
// passed, or where aliases are allowed and it `takes_unpassed`. Locked, in context.
void berm__planned_fill(berm_planned_t *planned, berm_pool_t *pool, bool takes_unpassed);
static inline bool berm__planned_is_filled(const berm_planned_t *planned) {
    return planned->filled_bytes >= planned->plan->arena_bytes;
}

#endif
