// SPDX-License-Identifier: Apache-2.0
// The application's callbacks for when memory is short (berm_pressure_register): a list in the
// order of registration, each with a number that rises.
//
// Locks: one of rank CALLBACK for the list; none while a callback runs. A record is there as long
// as its callback runs, also after it was taken off the list.
#ifndef BERM_FRONT_PRESSURE_H
#define BERM_FRONT_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

// Where a request stands: it calls each callback at most once, and none that came after it began.
typedef struct berm_pressure_walk {
    uint64_t last, end; // numbers
} berm_pressure_walk_t;

// Whether there is a callback for the device. Without a lock.
bool berm__pressure_any(int device);
berm_pressure_walk_t berm__pressure_begin(void);
// Calls the next callbacks until one says that it gave something back; false when none is left. No
// lock is held.
bool berm__pressure_next(berm_pressure_walk_t *walk, int device, uint64_t needed_bytes);

// Forgets all: at the end of the heap.
void berm__pressure_clear(void);

#endif
