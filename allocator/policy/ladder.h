// SPDX-License-Identifier: Apache-2.0
// The steps of the reclaim ladder, as they are counted: a request that nothing free in its pool
// served counts for the last step that gave it something.
//
// Locks: the device's.
#ifndef BERM_POLICY_LADDER_H
#define BERM_POLICY_LADDER_H

#include <stdbool.h>
#include <stdint.h>

#include "berm.h"

// What more memory, of whatever kind, would end: the ladder goes on.
static inline bool berm__status_is_shortage(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
           status == BERM_ERROR_CEILING || status == BERM_ERROR_OUT_OF_ADDRESSES;
}

// In the order in which they are tried.
typedef enum berm_step {
    BERM_STEP_NONE,     // what was free in the pool
    BERM_STEP_CACHES,   // what threads had cached, and empty slabs
    BERM_STEP_FREES,    // frees that other streams were done with
    BERM_STEP_PINS,     // freed pinned blocks
    BERM_STEP_MAP,      // idle handles, and new memory
    BERM_STEP_MOVE,     // free pages with other addresses
    BERM_STEP_RELEASE,  // idle memory that went back to the driver and made room
    BERM_STEP_PRESSURE, // the application's callbacks
    BERM_STEP_WAIT,     // a wait for the device
    BERM_STEP_OTHERS,   // a pool that serves others before they fail
    BERM_STEP_COUNT
} berm_step_t;

typedef struct berm_ladder {
    berm_step_t step;    // of the request that is being served; only ever raised
    bool puts_off_waits; // waits for other streams come after the application's callbacks
    uint64_t served[BERM_STEP_COUNT];
} berm_ladder_t; // of a device

static inline void berm__ladder_raise(berm_ladder_t *ladder, berm_step_t step) {
    if (step > ladder->step)
        ladder->step = step;
}

#endif
