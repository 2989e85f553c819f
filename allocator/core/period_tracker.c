// SPDX-License-Identifier: Apache-2.0
// One lag under watch: matches forwards note by note and backwards from where the watch began, and
// a change of lag by a few when requests were extra or missing.
#include "base/bits.h"
#include "core/period_inside.h"

enum {
    BACK_STEPS = 4, // notes backwards for each note forwards
    BACK_WINDOW = 32,
    SHIFT_MAX = 16,   // extra or missing requests in a row that a tracker follows
    SHIFT_WINDOW = 8, // notes that decide about it:
    SHIFT_LOST = 2,   // so few match at the lag as it is,
    SHIFT_FOUND = 7,  // so many at the new one
    MISFIT_MIN = 24,
    MISFIT_MAX = 1024,
};

void period__tracker_begin(period_tracker_t *tracker, uint32_t lag, uint64_t first) {
    *tracker = (period_tracker_t){

        .lag = lag, .home = lag, .first = first, .recent = UINT64_MAX, .back_recent = UINT64_MAX};
}

static bool note_matches(const berm_period_t *period, uint64_t note, uint32_t lag) {
    return note >= lag && note - lag >= period__oldest(period) &&
           period__key(period, note) == period__key(period, note - lag);
}

static void bucket_add(period_tracker_t *tracker, bool is_match) {
    tracker->bucket_notes++;
    tracker->bucket_matches += is_match;
    if (tracker->bucket_notes < tracker->lag / PERIOD_BUCKETS)
        return;
    tracker->bucket_full_matches[tracker->bucket_at] = tracker->bucket_matches;
    tracker->bucket_at = (uint16_t)((tracker->bucket_at + 1) % PERIOD_BUCKETS);
    if (tracker->buckets_full < PERIOD_BUCKETS)
        tracker->buckets_full++;
    tracker->bucket_notes = tracker->bucket_matches = 0;
}

// Goes on backwards, up to one period, until half of what is met does not match.
static void back_step(const berm_period_t *period, period_tracker_t *tracker) {
    for (uint32_t i = 0; i < BACK_STEPS && !tracker->is_back_over; i++) {
        uint64_t reach = (uint64_t)tracker->back_notes + tracker->lag + 1;
        if (tracker->back_notes >= tracker->lag || reach > tracker->first ||
            tracker->first - reach < period__oldest(period)) {
            tracker->is_back_over = true;
            return;
        }
        uint64_t note = tracker->first - tracker->back_notes - 1;
        bool is_match = note_matches(period, note, tracker->lag);
        tracker->back_recent = tracker->back_recent << 1 | is_match;
        tracker->back_notes++;
        tracker->back_matches += is_match;
        uint32_t hits = (uint32_t)__builtin_popcountll(tracker->back_recent & UINT32_MAX);
        if (hits < BACK_WINDOW / 2) {
            uint32_t tail = tracker->back_notes < BACK_WINDOW ? tracker->back_notes : BACK_WINDOW;
            tracker->back_notes -= tail;
            tracker->back_matches -= hits < tail ? hits : tail;
            tracker->is_back_over = true;
        }
    }
}

static bool shift_fits(const berm_period_t *period, uint32_t lag) {
    uint32_t matches = 0;
    if (lag < BERM_PERIOD_SHORTEST || lag > period->notes_max / 2)
        return false;
    for (uint32_t i = 1; i <= SHIFT_WINDOW && matches + SHIFT_WINDOW + 1 - i >= SHIFT_FOUND; i++)
        matches += note_matches(period, period->notes - i, lag);
    return matches >= SHIFT_FOUND;
}

// After many mismatches: do the last notes match the lag that the watch began with, or one a little
// longer or shorter than now?
static void shift_try(const berm_period_t *period, period_tracker_t *tracker) {
    uint32_t to = shift_fits(period, tracker->home) ? tracker->home : 0;
    for (uint32_t shift = 1; shift <= SHIFT_MAX && to == 0; shift++) {
        if (shift_fits(period, tracker->lag + shift))
            to = tracker->lag + shift;
        else if (shift_fits(period, tracker->lag - shift))
            to = tracker->lag - shift;
    }
    if (to != 0)
        period__tracker_shift(period, tracker, to);
}

void period__tracker_shift(const berm_period_t *period, period_tracker_t *tracker, uint32_t lag) {
    tracker->lag = lag;
    tracker->recent |= (1u << SHIFT_WINDOW) - 1;
    tracker->is_back_over = true;
    tracker->shifted_at = period->notes;
}

bool period__tracker_note(const berm_period_t *period, period_tracker_t *tracker) {
    bool is_match = note_matches(period, period->notes - 1, tracker->lag);
    tracker->recent = tracker->recent << 1 | is_match;
    bucket_add(tracker, is_match);
    if (!is_match)
        tracker->misfit += 2;
    else if (tracker->misfit > 0)
        tracker->misfit--;
    back_step(period, tracker);
    int hits = __builtin_popcountll(tracker->recent & ((1u << SHIFT_WINDOW) - 1));
    const uint64_t run = period__tracker_run(period, tracker);
    if (hits <= SHIFT_LOST && run >= tracker->lag / 4 &&
        period->notes - tracker->shifted_at > SHIFT_WINDOW)
        shift_try(period, tracker);
    // The more it has explained, the more it is forgiven.
    uint64_t limit = MISFIT_MIN + berm__min_u64(run, tracker->lag) / 8;
    return tracker->misfit <= berm__min_u64(limit, MISFIT_MAX);
}

uint64_t period__tracker_run(const berm_period_t *period, const period_tracker_t *tracker) {
    return period->notes - tracker->first + tracker->back_notes;
}

uint32_t period__tracker_permille(const period_tracker_t *tracker) {
    const uint32_t bucket = tracker->lag / PERIOD_BUCKETS;
    uint64_t notes = tracker->bucket_notes, matches = tracker->bucket_matches;
    for (uint32_t i = 0; i < tracker->buckets_full; i++) {
        uint32_t at = (tracker->bucket_at + (uint32_t)PERIOD_BUCKETS - 1 - i) % PERIOD_BUCKETS;
        notes += bucket;
        matches += tracker->bucket_full_matches[at];
    }
    if (tracker->buckets_full < PERIOD_BUCKETS) {
        notes += tracker->back_notes;
        matches += tracker->back_matches;
    }
    matches = berm__min_u64(matches, notes);
    return notes == 0 ? 0 : (uint32_t)(matches * 1000 / notes);
}
