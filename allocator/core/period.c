// SPDX-License-Identifier: Apache-2.0
// Which lag is the period?
//
// Notice. A hash of the last 8 requests leads to where they stood last. In a long period with loops
// inside, most of these are one turn of a loop back; but what stands only once in the period, at
// its ends or between its loops, is one period back, and that is enough: a few votes in a row for
// one lag and it is watched (period_tracker.c).
//
// Offer. A watched lag is offered when
//   - it explains half of a period (CANDIDATE) or nine tenths (CONFIRMED), three quarters of it
//     exactly;
//   - live bytes are what they were one period before, within 1/24 of the peak; a few periods
//     before where the lag is short, so that layers which each keep a little are found out;
//   - the last period has nearly all of the rise of live bytes that the last 16 periods had (at
//     least 4096 notes): a loop beside which something greater happens is not the period;
//   - if it is short: three periods match, unless live bytes fall to almost nothing in each; and it
//     explains most of what was seen since the last offer ended;
//   - if it was given up before, after several turns: it explains twice as much as then (16384
//     notes are enough). So a loop is offered in the first iteration at most.
// Of two such lags the longer, unless the shorter one explains all of the longer one, and as well:
// that is then some periods, or an accident.
#include "core/period.h"

#include "base/bits.h"
#include "core/period_inside.h"
#include "host/mem.h"

enum {
    VOTES_TO_WATCH = 3,
    LOST_OF_16 = 5, // a tracker with fewer matches takes another lag nearby
    PERMILLE_LEAST = 750,
    PERMILLE_APART = 40,
    SPAN_PERIODS = 16,
    SPAN_NOTES = 4096,
    BROKEN_TURNS = 3, // a lag given up sooner proves nothing
    BROKEN_ENOUGH = 16384,
    FIT_EVERY = 16, // notes between two looks at a tracker
};

// --- memory ------------------------------------------------------------------------------------

static size_t arrays_bytes(uint32_t notes_max) {
    size_t blocks = notes_max >> PERIOD_BLOCK_LG, blocks2 = (notes_max >> PERIOD_BLOCK2_LG) + 1;
    return notes_max * (sizeof(uint64_t) + 3 * sizeof(uint32_t)) +
           (blocks + blocks2) * sizeof(period_extremes_t);
}

static void arrays_set(berm_period_t *period) {
    const uint32_t notes_max = period->notes_max;
    period->live = period->memory;
    period->extremes = (period_extremes_t *)(void *)(period->live + notes_max);
    period->extremes2 = period->extremes + (notes_max >> PERIOD_BLOCK_LG);
    period->keys = (uint32_t *)(void *)(period->extremes2 + (notes_max >> PERIOD_BLOCK2_LG) + 1);
    period->table = period->keys + notes_max; // twice as many
}

berm_period_t *berm__period_create(uint32_t notes_max) {
    if (notes_max == 0)
        notes_max = BERM_PERIOD_NOTES_DEFAULT;
    if (!berm__is_pow2(notes_max) || notes_max < 64 || notes_max > 1u << 24)
        return NULL;
    berm_period_t *period = berm__mem_alloc(sizeof *period);
    if (period == NULL)
        return NULL;
    period->notes_max = notes_max;
    period->mask = notes_max - 1;
    period->memory = berm__mem_reserve(arrays_bytes(notes_max));
    if (period->memory == NULL) {
        berm__mem_free(period, sizeof *period);
        return NULL;
    }
    arrays_set(period);
    return period;
}

void berm__period_destroy(berm_period_t *period) {
    if (period == NULL)
        return;
    berm__mem_unreserve(period->memory, arrays_bytes(period->notes_max));
    berm__mem_free(period, sizeof *period);
}

// What the table still holds is no harm: an entry counts only if the keys there are the same.
void berm__period_reset(berm_period_t *period) {
    berm_period_t fresh = {
        .notes_max = period->notes_max, .mask = period->mask, .memory = period->memory};
    *period = fresh;
    arrays_set(period);
}

// --- notice ------------------------------------------------------------------------------------

static uint32_t key_of(uint64_t size_units) {
    uint64_t mixed = (size_units + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

// Do the last PERIOD_GRAM requests stand `lag` before, too?
static bool gram_repeats(const berm_period_t *period, uint64_t lag) {
    const uint64_t last = period->notes - 1;
    if (last < lag + PERIOD_GRAM - 1 || last - lag < period__oldest(period) + PERIOD_GRAM - 1)
        return false;
    for (uint64_t i = 0; i < PERIOD_GRAM; i++)
        if (period__key(period, last - i) != period__key(period, last - lag - i))
            return false;
    return true;
}

// Puts the last requests into the table; the lag to where they stood before, or 0.
static uint32_t gram_lag(berm_period_t *period) {
    const uint64_t last = period->notes - 1;
    if (last < PERIOD_GRAM - 1)
        return 0;
    uint64_t hash = 0;
    for (uint64_t i = 0; i < PERIOD_GRAM; i++)
        hash = (hash ^ period__key(period, last - i)) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t *entry = &period->table[(hash >> 32) & (2 * (uint64_t)period->mask + 1)];
    uint32_t lag = (uint32_t)last - *entry;
    *entry = (uint32_t)last;
    bool is_lag = lag >= BERM_PERIOD_SHORTEST && lag <= period->notes_max / 2;
    return is_lag && gram_repeats(period, lag) ? lag : 0;
}

// A tracker of this lag, or one nearby that has lost its way and is set right. NULL: none.
static period_tracker_t *tracker_near(berm_period_t *period, uint32_t lag) {
    for (int i = 0; i < PERIOD_TRACKERS; i++) {
        period_tracker_t *tracker = &period->trackers[i];
        if (tracker->lag == lag)
            return tracker;
        uint32_t apart = lag > tracker->lag ? lag - tracker->lag : tracker->lag - lag;
        bool is_lost = __builtin_popcountll(tracker->recent & 0xffff) < LOST_OF_16;
        if (tracker->lag < PERIOD_SHORT || apart > tracker->lag / 16 || !is_lost)
            continue;
        period__tracker_shift(period, tracker, lag);
        return tracker;
    }
    return NULL;
}

// A place for a new tracker: one not in use, or the one that explains least and is not offered.
static period_tracker_t *tracker_spare(berm_period_t *period) {
    period_tracker_t *least = NULL;
    uint64_t least_run = UINT64_MAX;
    for (int i = 0; i < PERIOD_TRACKERS; i++) {
        period_tracker_t *tracker = &period->trackers[i];
        if (tracker->lag == 0)
            return tracker;
        uint64_t run = period__tracker_run(period, tracker);
        if (tracker == period->offered || run >= least_run || run > 2 * (uint64_t)tracker->lag)
            continue;
        least = tracker;
        least_run = run;
    }
    return least_run < PERIOD_SHORT ? least : NULL;
}

// One vote for a lag. A lag with enough of them is watched from the next note on.
static void vote(berm_period_t *period, uint32_t lag) {
    if (tracker_near(period, lag) != NULL)
        return;
    period_vote_t *oldest = &period->votes[0];
    for (int i = 0; i < PERIOD_TRACKERS; i++) {
        period_vote_t *entry = &period->votes[i];
        if (entry->lag == lag) {
            oldest = entry;
            break;
        }
        if (entry->last < oldest->last)
            oldest = entry;
    }
    if (oldest->lag != lag || period->notes - oldest->last > PERIOD_GRAM)
        *oldest = (period_vote_t){.lag = lag};
    oldest->count++;
    oldest->last = period->notes;
    period_tracker_t *tracker = oldest->count >= VOTES_TO_WATCH ? tracker_spare(period) : NULL;
    if (tracker != NULL)
        period__tracker_begin(tracker, lag, period->notes);
}

// --- offer -------------------------------------------------------------------------------------

static period_broken_t *broken_find(berm_period_t *period, uint32_t lag) {
    for (int i = 0; i < PERIOD_BROKEN; i++)
        if (period->broken[i].lag == lag)
            return &period->broken[i];
    return NULL;
}

static void broken_note(berm_period_t *period, uint32_t lag, uint64_t run) {
    if (lag > PERIOD_INNER_MAX || run < BROKEN_TURNS * (uint64_t)lag)
        return;
    period_broken_t *entry = broken_find(period, lag);
    if (entry == NULL) {
        entry = &period->broken[period->broken_next++ % PERIOD_BROKEN];
        *entry = (period_broken_t){.lag = lag};
    }
    entry->run = berm__max_u64(entry->run, run);
}

// Live bytes are what they were some periods before, and the last one has the whole rise.
static bool live_fits(const berm_period_t *period, uint32_t lag, uint64_t run, bool *is_clean) {
    const uint64_t last = period->notes - 1, oldest = period__oldest(period);
    uint64_t turns = berm__min_u64(berm__max_u64(run / lag, 1), lag < PERIOD_SHORT ? 8 : 1);
    while (turns > 1 && turns * lag > last - oldest)
        turns--;
    if (period->notes <= turns * lag || period->notes - lag < oldest)
        return false;
    uint64_t now = period->live[last & period->mask];
    uint64_t then = period->live[(last - turns * lag) & period->mask];
    uint64_t apart = now > then ? now - then : then - now;
    period_extremes_t inside = period__live_extremes(period, period->notes - lag);
    uint64_t span = berm__max_u64((uint64_t)lag * SPAN_PERIODS, SPAN_NOTES);
    uint64_t first = period->notes - oldest > span ? period->notes - span : oldest;
    period_extremes_t around = period__live_extremes(period, first);
    *is_clean = inside.low <= inside.high / 16;
    return apart <= inside.high / 24 &&
           inside.high - around.low >= (around.high - around.low) / 10 * 9;
}

static bool is_asked_more(berm_period_t *period, uint32_t lag, uint64_t run, bool is_clean) {
    uint64_t seen = berm__min_u64(period->notes - period->epoch, BROKEN_ENOUGH);
    if (lag < PERIOD_SHORT && (run + lag < seen / 2 || (!is_clean && run < 3 * (uint64_t)lag)))
        return true;
    const period_broken_t *broken = broken_find(period, lag);
    return broken != NULL && run < berm__min_u64(2 * broken->run, BROKEN_ENOUGH);
}

static bool tracker_fits(berm_period_t *period, const period_tracker_t *tracker) {
    const uint64_t run = period__tracker_run(period, tracker);
    bool is_clean = false;
    return run >= tracker->lag / 2 && period__tracker_permille(tracker) >= PERMILLE_LEAST &&
           live_fits(period, tracker->lag, run, &is_clean) &&
           !is_asked_more(period, tracker->lag, run, is_clean);
}

static bool is_confirmed(const berm_period_t *period, const period_tracker_t *tracker) {
    return period__tracker_run(period, tracker) >= (uint64_t)tracker->lag * 9 / 10;
}

// The better of two that fit.
static const period_tracker_t *better(const berm_period_t *period, const period_tracker_t *a,
                                      const period_tracker_t *b) {
    const period_tracker_t *longer = a->lag > b->lag ? a : b, *shorter = longer == a ? b : a;
    bool is_enough =
        period__tracker_run(period, shorter) >= longer->lag &&
        period__tracker_permille(shorter) + PERMILLE_APART >= period__tracker_permille(longer);
    return is_enough ? shorter : longer;
}

// What is offered and confirmed stays, while it matches, until a longer one is confirmed that
// matches better.
static bool stays(const berm_period_t *period, const period_tracker_t *tracker) {
    const period_tracker_t *offered = period->offered;
    uint32_t permille = period__tracker_permille(offered);
    return is_confirmed(period, offered) && permille >= PERMILLE_LEAST &&
           (tracker->lag <= offered->lag || !is_confirmed(period, tracker) ||
            period__tracker_permille(tracker) <= permille + PERMILLE_APART);
}

static void offer_choose(berm_period_t *period) {
    const period_tracker_t *best = period->offered;
    if (best != NULL && !best->is_fit) {
        period->epoch = period->notes;
        best = period->offered = NULL;
    }
    for (int i = 0; i < PERIOD_TRACKERS; i++) {
        const period_tracker_t *tracker = &period->trackers[i];
        if (!tracker->is_fit || tracker == best)
            continue;
        if (best == NULL)
            best = tracker;
        else if (best != period->offered || !stays(period, tracker))
            best = better(period, best, tracker);
    }
    period->offered = best;
    if (best == NULL)
        period->verdict = BERM_PERIOD_NONE;
    else
        period->verdict =
            is_confirmed(period, best) ? BERM_PERIOD_CONFIRMED : BERM_PERIOD_CANDIDATE;
}

static void trackers_note(berm_period_t *period) {
    for (int i = 0; i < PERIOD_TRACKERS; i++) {
        period_tracker_t *tracker = &period->trackers[i];
        if (tracker->lag == 0)
            continue;
        if (!period__tracker_note(period, tracker)) {
            broken_note(period, tracker->home, period__tracker_run(period, tracker));
            tracker->lag = 0;
            tracker->is_fit = false;
        } else if (!tracker->is_fit && (period->notes - tracker->first) % FIT_EVERY == 0) {
            tracker->is_fit = tracker_fits(period, tracker);
        }
    }
}

berm_period_verdict_t berm__period_note(berm_period_t *period, uint64_t size_units,
                                        uint64_t live_bytes_after) {
    period->keys[period->notes & period->mask] = key_of(size_units);
    period__live_note(period, live_bytes_after);
    period->notes++;
    trackers_note(period);
    uint32_t lag = gram_lag(period);
    if (lag != 0)
        vote(period, lag);
    offer_choose(period);
    return period->verdict;
}

berm_period_verdict_t berm__period_verdict(const berm_period_t *period) {
    return period->verdict;
}

uint32_t berm__period_length(const berm_period_t *period) {
    return period->offered == NULL ? 0 : period->offered->lag;
}

uint32_t berm__period_match_permille(const berm_period_t *period) {
    return period->offered == NULL ? 0 : period__tracker_permille(period->offered);
}

uint64_t berm__period_notes(const berm_period_t *period) {
    return period->notes;
}
