// SPDX-License-Identifier: Apache-2.0
// Learned placement: a pool whose program does the same again and again is watched, and from the
// third time on its large blocks lie where a plan made from the second has put them, so that no
// page has to move any more.
//
//   none -> WATCHING   a miss called the driver: each large request and free is noted
//           PLANNING   half of a second period has matched (core/period.h): the planner works, a
//                      slice at each request and free
//           READY      enough has matched: the next tick makes the plan's arena
//        -> WATCHING   with a plan: requests that follow it are served from it (planned.h)
//   -> none, or a plan without a watch   little is missed: there is nothing to gain
//
// Enough is nine tenths of a period where pages had to move in it. Where none had to, a short
// period has to come more often: it may be but the equal layers of a network, inside a longer one.
// The watch goes on beside a plan, and a plan for a longer period takes the place of a shorter
// one's. A plan that serves less than a quarter of four periods' requests is dropped.
//
// The pool of a stream that has an order, of the default group, learns. Threads keep no large
// blocks of it meanwhile, so that each is seen. Small blocks' slabs are served as usual.
//
// Host memory: 8 bytes a note and what the detector keeps, for at most 2^18 notes; 16 bytes an item
// and the planner's while it works. Time: a slice of at most 1 ms in a request or free, under the
// pool's lock; the arena is made and filled by ticks, after a request or free.
//
// Locks: the pool's; where ticks and misses say so, the device's as well.
#ifndef BERM_POLICY_LEARN_H
#define BERM_POLICY_LEARN_H

#include "core/period.h"
#include "policy/planned.h"

enum {
    BERM_LEARN_NOTES_MAX = BERM_PERIOD_NOTES_DEFAULT,
    // A note costs some 100 ns, a miss that moves pages some 50 us: a watch ends when fewer than so
    // many of so many requests missed, and begins when at least as many of as many did, or with the
    // pool's first miss.
    BERM_LEARN_WINDOW_NOTES = 1 << 15,
    BERM_LEARN_WINDOW_MISSES = 64,
    // Longer periods than this are planned only where one miss in so many requests moved pages.
    BERM_LEARN_LONG_NOTES = 1 << 14,
    BERM_LEARN_LONG_RATE = 1024,
    // Of the last period's requests that a plan should serve.
    BERM_LEARN_GOOD_PERMILLE = 700,
    // Requests that have to match before a period in which nothing moved is planned, or so many
    // periods, whichever is less.
    BERM_LEARN_EVIDENCE_NOTES = 1 << 11,
    BERM_LEARN_EVIDENCE_PERIODS = 32,
};

typedef enum berm_learn_state {
    BERM_LEARN_WATCHING,
    BERM_LEARN_PLANNING,
    BERM_LEARN_READY,
    BERM_LEARN_INSTALLING, // planner and items are the tick's
} berm_learn_state_t;

// What was seen of one request; the last BERM_LEARN_NOTES_MAX are kept.
typedef struct berm_note {
    uint32_t size_units; // of 512 bytes
    uint32_t end;        // notes there were when it was free again; 0: not yet
} berm_note_t;

typedef struct berm_learn {
    berm_learn_state_t state;
    bool wants_drop, wants_rest;
    bool is_over; // only what is live in an ending plan's arena is waited for
    // What is seen.
    berm_period_t *period; // NULL: it does not watch
    berm_note_t *notes;    // note n at n % BERM_LEARN_NOTES_MAX
    uint32_t note_count;
    uint32_t window_misses;           // of the last BERM_LEARN_WINDOW_NOTES
    uint32_t note_moved, moved_count; // at the last miss that moved pages; how many did
    uint32_t retry_note;              // no planning before
    uint64_t live_bytes;              // of noted blocks
    uint64_t outside_bytes;           // of them, outside a plan's arena
    uint64_t moves;                   // of the device, when last looked at
    // Planning, of the period that ended with note plan_note.
    berm_planner_t *planner;
    berm_course_t course;
    uint32_t plan_note, plan_length;
    // The plan in force, if planned.segment is not NULL: for a period of active_length requests,
    // of which `asked` and `served` since the share was last looked at.
    berm_planned_t planned;
    uint32_t active_length, asked, served;
    uint64_t refused; // the request, plus one, that was none of the plan's last: it may come again
    uint64_t freed_bytes; // since the arena was filled last
    // outside_bytes once the blocks are free that the plan would have had: then all memory is there
    // that the arena needs, and one wait for the stream's work fills it.
    uint64_t settled_bytes;
    bool may_wait;
} berm_learn_t;

// A request of the pool called the driver for memory. Locked.
void berm__learn_miss(berm_pool_t *pool);

// Serves a large request of a pool with a plan: see berm__planned_take.
bool berm__learn_take(berm_pool_t *pool, uint64_t occupied_bytes, const berm_request_t *request,
                      berm_place_t *place, berm_status_t *status);
// A large block was allocated, or is about to be free. The pool's lock is held, and
// berm_pool_t.learn is not NULL.
void berm__learn_note(berm_pool_t *pool, berm_range_t *range, bool is_planned);
void berm__learn_give(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range);

// Makes, fills or drops the arena, if that is due: after a request or a free, no lock being held.
// Passes by when the device's is taken. Waits for the stream once a plan at most, when the last of
// the blocks is freed in whose place the plan's will be.
void berm__learn_work(berm_pool_t *pool);
static inline void berm__learn_tick(berm_pool_t *pool) {
    if (BERM_UNLIKELY(atomic_load_explicit(&pool->learn_wants, memory_order_relaxed)))
        berm__learn_work(pool);
}

// Drops the plans of all pools of the device for a request that finds no memory: their arenas serve
// anyone then. False if there was none that could be dropped at once. Locked, in context.
bool berm__learn_yield(berm_device_t *device);
// Whether the pool has a plan whose pages are mapped at several addresses. Locked.
bool berm__learn_is_aliased(const berm_pool_t *pool);
// Drops the plan and all that was seen, at once or when the last block of the plan is free. Locked.
void berm__learn_end(berm_pool_t *pool);
// The same for a pool that is destroyed, and its segments are gone.
void berm__learn_destroy(berm_pool_t *pool);

#endif
