// SPDX-License-Identifier: Apache-2.0
// What one thread has allocated and freed on one device since its counts were last merged into the
// device's figures. So a hit writes memory of its own thread only, and yet, with one thread, every
// peak is exact; with several, a figure read without a merge is off by at most
// BERM_COUNTS_MERGE_BYTES and what fits in caches for each thread.
//
// Locks: who may touch the caches of the thread may touch its counts (cache.h).
#ifndef BERM_POLICY_COUNTS_H
#define BERM_POLICY_COUNTS_H

#include "policy/device.h"

#define BERM_COUNTS_MERGE_BYTES BERM_MIB(32)

enum {
    BERM_COUNTS_NUMBERS = 64, // request numbers taken at a time
};

typedef struct berm_count {
    uint64_t up;       // all that was added
    int64_t live, max; // added less taken away, and the highest that was
} berm_count_t;

typedef struct berm_counts {
    const void *owner; // the thread's mark
    uint32_t users;    // caches that share it
    berm_count_t requested, allocated, blocks;
    uint64_t number_next, number_end; // of requests
    uint8_t tag;                      // of the thread's requests; the owner's alone
} berm_counts_t;

static inline void berm__count_add(berm_count_t *count, uint64_t amount) {
    count->up += amount;
    count->live += (int64_t)amount;
    if (count->live > count->max)
        count->max = count->live;
}

static inline void berm__counts_alloc(berm_counts_t *counts, uint64_t requested,
                                      uint64_t allocated) {
    berm__count_add(&counts->requested, requested);
    berm__count_add(&counts->allocated, allocated);
    berm__count_add(&counts->blocks, 1);
}

static inline void berm__counts_free(berm_counts_t *counts, uint64_t requested,
                                     uint64_t allocated) {
    counts->requested.live -= (int64_t)requested;
    counts->allocated.live -= (int64_t)allocated;
    counts->blocks.live--;
}

// Counts a request or a free by its block's tag, if it has one. The pool's lock is held, or the
// caller is inside a cache.
static inline void berm__tag_alloc(berm_device_t *device, uint8_t tag, uint64_t requested,
                                   uint64_t allocated) {
    if (BERM_LIKELY(tag == 0))
        return;
    berm_tag_count_t *count = &device->tags[tag];
    atomic_fetch_add_explicit(&count->blocks_up, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->requested_up, requested, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->allocated_up, allocated, memory_order_relaxed);
}

static inline void berm__tag_free(berm_device_t *device, uint8_t tag, uint64_t requested,
                                  uint64_t allocated) {
    if (BERM_LIKELY(tag == 0))
        return;
    berm_tag_count_t *count = &device->tags[tag];
    atomic_fetch_add_explicit(&count->blocks_down, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->requested_down, requested, memory_order_relaxed);
    atomic_fetch_add_explicit(&count->allocated_down, allocated, memory_order_relaxed);
}

// Whether so much was counted that it is time to merge.
static inline bool berm__counts_are_large(const berm_counts_t *counts) {
    const int64_t most = (int64_t)BERM_COUNTS_MERGE_BYTES;
    return counts->allocated.live > most || counts->allocated.live < -most;
}

// Makes sure that number_next is a number; whoever uses it adds one to it.
void berm__counts_number_secure(berm_counts_t *counts, berm_device_t *device);

void berm__counts_merge(berm_counts_t *counts, berm_device_t *device);
// A free that no thread's counts have.
void berm__counts_free_now(berm_device_t *device, uint64_t requested, uint64_t allocated);

// Freed bytes of a block that some stream still uses: they stay active until they have passed. The
// counts with the free in them are merged before, so that no peak is taken from between the two.
void berm__counts_await(berm_device_t *device, uint64_t bytes);
void berm__counts_await_end(berm_device_t *device, uint64_t bytes);

// Requested bytes of live blocks, merged ones: now, and the highest.
void berm__counts_requested_read(berm_device_t *device, uint64_t *current, uint64_t *peak);

#endif
