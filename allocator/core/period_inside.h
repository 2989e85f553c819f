// SPDX-License-Identifier: Apache-2.0
// Internal to period*.c. Notes are numbered from 0; those numbered notes - notes_max and up are
// remembered.
#ifndef BERM_CORE_PERIOD_INSIDE_H
#define BERM_CORE_PERIOD_INSIDE_H

#include "core/period.h"

enum {
    PERIOD_GRAM = 8,        // requests in a row that a lag must repeat to be noticed
    PERIOD_TRACKERS = 8,    // lags watched at one time
    PERIOD_BUCKETS = 8,     // of a tracker's matches in the last `lag` notes
    PERIOD_BROKEN = 16,     // lags remembered for having been given up
    PERIOD_BLOCK_LG = 6,    // notes in a block of extremes
    PERIOD_BLOCK2_LG = 12,  // in a block of those
    PERIOD_SHORT = 512,     // lags below are asked for more
    PERIOD_INNER_MAX = 2048 // lags below may be loops inside a period
};

// The lowest and highest live bytes of some notes.
typedef struct period_extremes {
    uint64_t low, high;
} period_extremes_t;

// A lag that is being watched: how well each note equals the one `lag` before.
typedef struct period_tracker {
    uint32_t lag;                          // now; 0: not in use
    uint32_t home;                         // with which the watch began
    uint32_t misfit;                       // a leaky count of mismatches; too many end the watch
    uint64_t first;                        // the note at which watching began
    uint64_t recent;                       // last 64 notes, the latest in bit 0: 1 is a match
    uint64_t shifted_at;                   // the note of the last change of lag by a few
    uint32_t bucket_notes, bucket_matches; // of the bucket being filled
    uint16_t bucket_at;
    uint16_t buckets_full; // full buckets that count, PERIOD_BUCKETS at most
    uint32_t bucket_full_matches[PERIOD_BUCKETS];
    // Backwards from `first`, a few notes at a time.
    uint32_t back_notes, back_matches;
    uint64_t back_recent;
    bool is_back_over;
    bool is_fit; // has passed all that is asked of an offered lag
} period_tracker_t;

typedef struct period_vote {
    uint32_t lag, count;
    uint64_t last; // note
} period_vote_t;

typedef struct period_broken {
    uint32_t lag;
    uint64_t run; // the longest stretch it explained before it failed
} period_broken_t;

struct berm_period {
    uint32_t notes_max, mask;
    uint64_t notes;
    uint32_t *keys;               // ring, by note
    uint64_t *live;               // ring, by note
    period_extremes_t *extremes;  // ring, by block of notes
    period_extremes_t *extremes2; // ring, by block of blocks
    uint32_t *table;              // by hash of PERIOD_GRAM keys: note of the last one, truncated
    void *memory;
    uint64_t epoch; // where the last offered period ended
    period_tracker_t trackers[PERIOD_TRACKERS];
    period_vote_t votes[PERIOD_TRACKERS];
    period_broken_t broken[PERIOD_BROKEN];
    uint32_t broken_next;
    berm_period_verdict_t verdict;
    const period_tracker_t *offered;
};

static inline uint32_t period__key(const berm_period_t *period, uint64_t note) {
    return period->keys[note & period->mask];
}

// The oldest note that is remembered.
static inline uint64_t period__oldest(const berm_period_t *period) {
    return period->notes > period->notes_max ? period->notes - period->notes_max : 0;
}

// period_tracker.c
void period__tracker_begin(period_tracker_t *tracker, uint32_t lag, uint64_t first);
void period__tracker_shift(const berm_period_t *period, period_tracker_t *tracker, uint32_t lag);
// Takes the newest note. False: the lag explains too little, and the watch is over.
bool period__tracker_note(const berm_period_t *period, period_tracker_t *tracker);
// Notes that it explains, and the share of those in the last `lag`, in thousandths.
uint64_t period__tracker_run(const berm_period_t *period, const period_tracker_t *tracker);
uint32_t period__tracker_permille(const period_tracker_t *tracker);

// period_live.c
void period__live_note(berm_period_t *period, uint64_t live_bytes);
// Of notes [first, notes); first is remembered.
period_extremes_t period__live_extremes(const berm_period_t *period, uint64_t first);

#endif
