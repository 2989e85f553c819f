// SPDX-License-Identifier: Apache-2.0
// Work that comes again: what learned placement is for. A period of requests of fixed sizes, each
// block freed a fixed number of requests later, again and again, on one stream. Public functions
// only; a failed check aborts.
#ifndef BERM_TESTS_PERIODIC_H
#define BERM_TESTS_PERIODIC_H

#include "tests/support/heap_fixture.h"

enum {
    PERIODIC_MAX = 512 // requests a period
};

typedef struct periodic {
    void *stream;
    uint32_t count; // requests a period
    uint64_t size_bytes[PERIODIC_MAX];
    uint32_t lifetime[PERIODIC_MAX]; // requests, from 1 to count - 1
    uint64_t use_ns;                 // of the kernel that each block is used by
    uint64_t host_ns;                // that the program takes for one request
    // berm_alloc and heap_free, unless the test puts others there.
    berm_status_t (*alloc)(uint64_t size_bytes, void *stream, berm_addr_t *out);
    void (*free)(berm_addr_t addr, void *stream);
    // May be NULL: used once a block is there, instead of the kernel; told before it is freed.
    void (*on_alloc)(struct periodic *work, uint32_t request);
    void (*on_free)(struct periodic *work, uint32_t request);
    // What it came to.
    uint64_t step;
    berm_addr_t addr[PERIODIC_MAX]; // 0: not live
    uint64_t end[PERIODIC_MAX];     // the step before which it is freed
} periodic_t;

// Sizes from `least` to `most` units of `unit_bytes`, lifetimes up to `lifetime_max` requests, by a
// seed.
void periodic_init(periodic_t *work, void *stream, uint32_t count, uint64_t unit_bytes,
                   uint64_t least, uint64_t most, uint32_t lifetime_max, uint64_t seed);

// All is freed by the end of each period.
void periodic_close(periodic_t *work);

// Frees what is due and makes the next request. A block that is not to be had is missing until its
// turn comes again.
berm_status_t periodic_step(periodic_t *work);
// So many periods, in which nothing fails.
void periodic_run(periodic_t *work, uint32_t periods);
// Frees all that is live.
void periodic_free_all(periodic_t *work);
// The most bytes that are live at one time.
uint64_t periodic_peak_bytes(const periodic_t *work);

#endif
