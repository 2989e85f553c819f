// SPDX-License-Identifier: Apache-2.0
// Finds out, request by request, whether a sequence of requests repeats itself, and how long its
// period is. Tolerates requests that are replaced, extra or missing.
//
// A short period inside a long one (the equal layers of a network) is not one: see period.c for
// what is asked of a lag before it is offered. Constant time a note; memory bounded by notes_max.
// Deterministic, no clock. Locks: the owner's.
#ifndef BERM_CORE_PERIOD_H
#define BERM_CORE_PERIOD_H

#include <stdbool.h>

#include "base/defs.h"

enum {
    BERM_PERIOD_SHORTEST = 16,            // requests; shorter ones are ignored
    BERM_PERIOD_NOTES_DEFAULT = 1u << 18, // the longest period found is half of it
};

typedef enum berm_period_verdict {
    BERM_PERIOD_NONE,
    BERM_PERIOD_CANDIDATE, // half of a second pass has matched: worth planning ahead
    BERM_PERIOD_CONFIRMED, // nine tenths of a pass or more have matched
} berm_period_verdict_t;

typedef struct berm_period berm_period_t;

// notes_max: a power of two from 64 to 2^24, the number of requests remembered; 0 is
// BERM_PERIOD_NOTES_DEFAULT. NULL without host memory. Memory is touched only as notes come.
BERM_NODISCARD berm_period_t *berm__period_create(uint32_t notes_max);
void berm__period_destroy(berm_period_t *period); // NULL is allowed

// Forgets everything; the count of notes starts at 0 again.
void berm__period_reset(berm_period_t *period);

// The next request: its size in any unit, and the live bytes once it is served.
berm_period_verdict_t berm__period_note(berm_period_t *period, uint64_t size_units,
                                        uint64_t live_bytes_after);

// What the last note returned.
berm_period_verdict_t berm__period_verdict(const berm_period_t *period);

// Of the period offered; 0 without one. The last `length` notes are one period, at any phase: note
// number n - length was where note number n is now. It may change by a few when requests were
// missing or extra, and becomes another altogether when a better one is found.
uint32_t berm__period_length(const berm_period_t *period);

// How many of the last (at most `length`) notes matched their counterpart one period before, in
// thousandths.
uint32_t berm__period_match_permille(const berm_period_t *period);

// Notes since the start or the last reset.
uint64_t berm__period_notes(const berm_period_t *period);

#endif
