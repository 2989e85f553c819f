// SPDX-License-Identifier: Apache-2.0
// Lowest and highest live bytes over any of the last notes, in a bounded number of steps: extremes
// are kept of each block of notes and of each block of blocks.
#include "base/bits.h"
#include "core/period_inside.h"

static void extremes_add(period_extremes_t *extremes, uint64_t low, uint64_t high) {
    extremes->low = berm__min_u64(extremes->low, low);
    extremes->high = berm__max_u64(extremes->high, high);
}

static period_extremes_t *block_of(const berm_period_t *period, uint64_t note) {
    return &period->extremes[(note & period->mask) >> PERIOD_BLOCK_LG];
}

static period_extremes_t *block2_of(const berm_period_t *period, uint64_t note) {
    return &period->extremes2[(note & period->mask) >> PERIOD_BLOCK2_LG];
}

void period__live_note(berm_period_t *period, uint64_t live_bytes) {
    const uint64_t note = period->notes;
    period_extremes_t *block = block_of(period, note), *block2 = block2_of(period, note);
    period->live[note & period->mask] = live_bytes;
    if (note % (1u << PERIOD_BLOCK_LG) == 0)
        *block = (period_extremes_t){UINT64_MAX, 0};
    if (note % (1u << PERIOD_BLOCK2_LG) == 0)
        *block2 = (period_extremes_t){UINT64_MAX, 0};
    extremes_add(block, live_bytes, live_bytes);
    extremes_add(block2, live_bytes, live_bytes);
}

period_extremes_t period__live_extremes(const berm_period_t *period, uint64_t first) {
    period_extremes_t all = {UINT64_MAX, 0};
    const uint64_t block = 1u << PERIOD_BLOCK_LG, block2 = 1u << PERIOD_BLOCK2_LG;
    for (uint64_t note = first; note < period->notes;) {
        const period_extremes_t *part;
        if (note % block2 == 0) {
            part = block2_of(period, note);
            extremes_add(&all, part->low, part->high);
            note += block2;
        } else if (note % block == 0) {
            part = block_of(period, note);
            extremes_add(&all, part->low, part->high);
            note += block;
        } else {
            uint64_t live_bytes = period->live[note & period->mask];
            extremes_add(&all, live_bytes, live_bytes);
            note++;
        }
    }
    return all;
}
