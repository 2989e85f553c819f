// SPDX-License-Identifier: Apache-2.0
// Sources: allocators of the caller's that pools get their segments from (berm_pool_source_t of
// berm.h). Their functions are called with no lock held, so the slow path asks for a segment when
// it has given the device's lock back, and starts over (front/source.c); and what goes back is put
// on a list of the device, whose entries were made with what they give back, and called out at the
// end of a call that may do so.
//
// A source is used by its group, by each of its segments, and by calls that are out in it. With the
// last user it is done.
//
// Invariant (docs/invariants.md):
//   I36  a plain segment of a pool with a source, and no other, has an entry that gives it back to
//        that source, as it came
//
// Locks: the list is under the device's; `users` is atomic.
#ifndef BERM_POLICY_SOURCE_H
#define BERM_POLICY_SOURCE_H

#include <stdatomic.h>

#include "policy/device.h"

typedef struct berm_source {
    berm_pool_source_t calls;
    int ordinal;
    atomic_uint_fast64_t users;
} berm_source_t;

// A segment to be given back, and a use of its source; without an address only the use.
typedef struct berm_source_return {
    struct berm_source_return *next;
    berm_source_t *source;
    berm_addr_t addr;
    uint64_t size_bytes;
    berm_stream_t stream;
} berm_source_return_t;

// A source with one user, which *last is the end of; NULL without host memory.
berm_source_t *berm__source_make(const berm_pool_source_t *calls, int ordinal,
                                 berm_source_return_t **last);
// One user more, with its end; NULL without host memory.
berm_source_return_t *berm__source_use(berm_source_t *source);
// Whether they are its functions and context.
bool berm__source_is(const berm_source_t *source, const berm_pool_source_t *calls);

// To be called out later. The device's lock is held.
void berm__source_return_add(berm_device_t *device, berm_source_return_t *last);
// Takes all there is. The device's lock is held.
berm_source_return_t *berm__source_returns_take(berm_device_t *device);
// Calls them out; no lock is held. `gpu`: whose context is to be current; NULL: none's.
void berm__source_returns_call(berm_source_return_t *list, berm_gpu_t *gpu);
// Both, giving the device's lock back meanwhile, so that other requests wait for what comes of it;
// false if there was nothing.
bool berm__source_returns_settle_locked(berm_device_t *device);
// The same with no lock held; looks without one.
void berm__source_returns_settle(berm_device_t *device);

// Where plain memory goes: its source, or the driver. The device's lock is held.
berm_status_t berm__source_or_plain_free(berm_device_t *device, berm_segment_t *segment);

#endif
