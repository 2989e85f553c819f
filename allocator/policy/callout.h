// SPDX-License-Identifier: Apache-2.0
// Threads that are out of berm in callbacks which may give memory back: of pins, and of an
// application (front/pressure.h). Another thread's request that would fail meanwhile waits for
// them, since what they give may be what it needs.
//
// A thread that is in a callback itself waits for nobody: so no two wait for each other.
//
// Locks: the device's, which is given up while a callback runs, and while a thread waits.
#ifndef BERM_POLICY_CALLOUT_H
#define BERM_POLICY_CALLOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "host/lock.h"

struct berm_device;

typedef struct berm_callouts {
    uint32_t count; // threads that are out
    uint64_t ended; // times one has come back
    berm_cond_t cond;
} berm_callouts_t; // of a device

void berm__callouts_init(berm_callouts_t *callouts);
void berm__callouts_destroy(berm_callouts_t *callouts);

// Around callbacks: begin gives the device's lock back, end takes it again.
void berm__callout_begin(struct berm_device *device);
void berm__callout_end(struct berm_device *device);

// Whether the calling thread is in a callback, of whatever device.
bool berm__callout_is_inside(void);

// Waits until a thread that is out has come back; false, at once, if there is none, or the calling
// thread is in a callback.
bool berm__callout_wait(struct berm_device *device);

#endif
