// SPDX-License-Identifier: Apache-2.0
// The events of all threads in one order: what the ring has (policy/ring.h), as a list.
//
// A thread's events are in its order; times between threads are bounds only. So where two threads
// share an address the list follows what must have been: a block is freed before another begins at
// its address, and is free only after it was allocated, as far as the ring has both.
#ifndef BERM_FRONT_EVENTS_H
#define BERM_FRONT_EVENTS_H

#include <stdbool.h>

#include "policy/ring.h"

typedef struct berm_events {
    uint64_t count, capacity;
    bool has_lost; // events before the first are lost
    berm_ring_event_t *at;
    const void **rings; // whose each is; until they are in order
} berm_events_t;

// A device's events by now, thread by thread, or those of the ring's last
// `words_max` words. With the device frozen they agree with its blocks. OUT_OF_HOST_MEMORY.
berm_status_t berm__events_collect(berm_events_t *events, int ordinal, uint64_t words_max);
// Drops all but the last `count` where they are of one thread, and so in their order.
void berm__events_trim(berm_events_t *events, uint64_t count);
// Brings them into one order; no lock is needed. OUT_OF_HOST_MEMORY.
berm_status_t berm__events_order(berm_events_t *events);
void berm__events_destroy(berm_events_t *events);

#endif
