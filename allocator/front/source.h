// SPDX-License-Identifier: Apache-2.0
// Getting a segment for a request from the pool's source (policy/source.h).
#ifndef BERM_FRONT_SOURCE_H
#define BERM_FRONT_SOURCE_H

#include "front/heap.h"

// What a request has asked its source for: in this order.
typedef enum berm_source_step {
    BERM_SOURCE_ROOMY,  // a segment with room for more
    BERM_SOURCE_EXACT,  // one that the request just fits in
    BERM_SOURCE_SHRUNK, // the same, when the pool has given back what it could
    BERM_SOURCE_SPENT
} berm_source_step_t;

// For a request that nothing free in the group serves: asks for a segment. BERM_OK: worth another
// attempt; the group may be gone. OUT_OF_DEVICE_MEMORY, LIMIT: there is none; ALIGNMENT,
// OUT_OF_HOST_MEMORY, OUT_OF_ADDRESSES, DRIVER, DEVICE_LOST. The device's lock is held, and given
// back while the source is called.
berm_status_t berm__source_supply(berm_group_t *group, const berm_want_t *want,
                                  berm_source_step_t *step);

#endif
