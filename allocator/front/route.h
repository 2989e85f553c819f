// SPDX-License-Identifier: Apache-2.0
// Routes: for a while, requests whose stream passes a caller's filter go to a pool of the caller's.
//
// A request without any route in the process pays one relaxed load. With routes it walks them,
// newest first, and calls their filters, with no lock held: readers mark themselves in one of two
// counters, by the parity of the phase, and who takes a route off the list waits until the readers
// of the phase before are gone. So a filter and its context may go as soon as the end returns.
//
// Locks: its own (rank ROUTE) for the writers. A filter must not call berm.
#ifndef BERM_FRONT_ROUTE_H
#define BERM_FRONT_ROUTE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "berm.h"

// How many routes there are, of all devices.
extern atomic_uint berm__route_count;

static inline bool berm__route_any(void) {
    return atomic_load_explicit(&berm__route_count, memory_order_relaxed) != 0;
}

// The pool of the newest route of the device that takes the stream: false if none does.
bool berm__route_find(int device, berm_stream_t stream, berm_pool_id_t *id);

// Adds a route to a group, by its serial number and id. OUT_OF_HOST_MEMORY.
berm_status_t berm__route_add(int device, uint64_t serial, berm_pool_id_t id,
                              berm_pool_filter_fn filter, void *context);
// Takes the newest route to the group off, or all of them.
void berm__route_remove(uint64_t serial, bool all);
// All routes of all devices: the heap ends.
void berm__route_clear(void);

#endif
