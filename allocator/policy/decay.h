// SPDX-License-Identifier: Apache-2.0
// Giving idle physical memory back over time. Idle is what no block needs: handles that are mapped
// nowhere, and whole handles in free ranges.
//
// The curve is jemalloc's: time is cut into BERM_DECAY_STEPS steps of decay_ms / BERM_DECAY_STEPS;
// the backlog says how many bytes became idle in each. Of the bytes of a step that is x of the
// whole time old (0 to 1), 1 - (6x^5 - 15x^4 + 10x^3) may be kept: all at first, half at x = 1/2, a
// tenth at 3/4, none from 1 on. What is idle beyond the sum of that goes back to the driver.
//
//   kept   1 |''--..                      half-life: half of decay_ms
//            |      '.
//            |        '-.._
//          0 +--------------''--  x       after three half-lives nothing of it is held
//
// With a half-life instead (decay_half_life_ms) the curve is exponential: of what is idle, half
// goes in one half-life, half of the rest in the next, whatever its age; after three an eighth is
// held. What is left when that is less than a granule goes at once.
//
// Age counts from the first tick that sees the bytes idle, so a bound on what is held is kept as
// long as ticks come about once a step: those of the background thread do. A tick never waits for
// the device (but where cuMemFree of plain memory, or sync_edits, does), and takes only what no
// queued work uses; what it cannot take yet, the next one does.
//
// Locks: the device's; its context is current in a tick.
#ifndef BERM_POLICY_DECAY_H
#define BERM_POLICY_DECAY_H

#include <stdbool.h>

#include "base/defs.h"
#include "berm.h"

enum {
    BERM_DECAY_STEPS = 200
};

#define BERM_DECAY_NEVER UINT64_MAX

typedef struct berm_decay {
    uint64_t time_ms;    // as set: 0: at once; BERM_DECAY_NEVER
    bool is_half_life;   // the time is a half-life
    double kept_bytes;   // with a half-life: how many may be kept
    uint64_t time_ns;    // the same
    uint64_t step_ns;    // at least 1
    bool has_begun;      // there was a tick
    uint64_t epoch_ns;   // when the newest step began
    uint64_t seen_bytes; // idle bytes whose age is known; those above it are new
    uint64_t activity;   // of the device at the last tick: allocations and frees so far
    uint64_t backlog[BERM_DECAY_STEPS]; // bytes that became idle in each step; the newest is last
    uint64_t ticks, decayed_bytes;      // statistics
} berm_decay_t;

struct berm_device;

// Sets the time, in milliseconds (BERM_DECAY_NEVER: never), or the half-life. Unless that is what
// it has already, all that is idle counts as idle from the next tick.
void berm__decay_set(berm_decay_t *decay, uint64_t time_ms, bool is_half_life);

// Whether a step has begun since the last tick.
bool berm__decay_is_due(const berm_decay_t *decay, uint64_t now_ns);
// Moves the curve to `now_ns`, when `idle_bytes` are idle; returns how many of them may be kept.
uint64_t berm__decay_advance(berm_decay_t *decay, uint64_t now_ns, uint64_t idle_bytes);

// Gives back what is due: one round of unmapping and releasing. At most a share of the handles when
// `is_short`, for callers that have somebody waiting; the next ticks do the rest. Free where
// nothing is due. Errors: DRIVER, DEVICE_LOST, OUT_OF_HOST_MEMORY.
berm_status_t berm__decay_tick(struct berm_device *device, bool is_short);

#endif
