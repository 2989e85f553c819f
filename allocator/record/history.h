// SPDX-License-Identifier: Apache-2.0
// What a recording's events say of the past: how many bytes lived when, and which kinds of blocks
// come and go or stay. A kind is a tag and a size up to a power of two.
#ifndef BERM_RECORD_HISTORY_H
#define BERM_RECORD_HISTORY_H

#include "record/record.h"

enum {
    BERM_HISTORY_PARTS = 8, // of the events, by number
    BERM_HISTORY_SIZES = 64,
};

typedef struct berm_history_kind {
    uint64_t allocs, frees;           // among the events
    uint64_t lifetimes;               // of the blocks that were freed, in events, in sum
    uint64_t live_blocks, live_bytes; // at the end
    uint64_t old_blocks, old_bytes;   // of those, from before the first event
    uint64_t born_blocks[BERM_HISTORY_PARTS], born_bytes[BERM_HISTORY_PARTS]; // the others, by part
} berm_history_kind_t;

typedef struct berm_history {
    uint64_t *live; // bytes before each event, and at the end: event_count + 1
    uint64_t live_count;
    berm_history_kind_t *kinds; // [tag * BERM_HISTORY_SIZES + size]
    uint64_t kind_count;
    uint64_t allocs, frees;
} berm_history_t;

// False without host memory; nothing is to be destroyed then.
bool berm__history_make(berm_history_t *history, const berm_record_device_t *device);
void berm__history_destroy(berm_history_t *history);

// The median of live bytes over the events.
uint64_t berm__history_median(const berm_history_t *history);
static inline unsigned berm__history_tag(uint64_t kind) {
    return (unsigned)(kind / BERM_HISTORY_SIZES);
}
// Blocks of a kind have at most this many bytes, and more than half.
static inline uint64_t berm__history_size(uint64_t kind) {
    return UINT64_C(1) << kind % BERM_HISTORY_SIZES;
}

#endif
