// SPDX-License-Identifier: Apache-2.0
// Gathering idle handles for the holes of a window.
#ifndef BERM_POLICY_SUPPLY_H
#define BERM_POLICY_SUPPLY_H

#include "policy/pool.h"

typedef struct berm_demand {
    uint64_t granules;      // in all holes
    uint64_t large_max;     // large handles that the holes have room for
    uint32_t whole;         // granules of the one handle that is wanted instead; 0: none
    uint64_t request_bytes; // what the caller asked for, for the headroom rule
    // Only what nobody else needs: what is free, in arenas of plans for a request only, and for one
    // growth within the headroom; no wait, and pages whose work is not done, by alias, only if it
    // takes_unpassed.
    bool is_spare, takes_unpassed;
    uint64_t created_bytes; // out: what was created for it
} berm_demand_t;

// Makes enough handles idle. In this order: create within the headroom; take pages whose work is
// done; finish frees of other streams; wait for the cheapest page; create up to the limit; wait for
// other pools' pages. Memory of other stores is released where that makes room.
// OUT_OF_DEVICE_MEMORY, LIMIT, OUT_OF_HOST_MEMORY, CEILING, DRIVER,
// DEVICE_LOST; what was gathered stays idle. Locks: the device's, in its context, and no pool's.
berm_status_t berm__supply_gather(berm_pool_t *pool, berm_demand_t *demand);
// Gives back what was created, as far as it is still idle: a request that fails leaves no more
// reserved than there was.
void berm__supply_undo(berm_pool_t *pool, const berm_demand_t *demand);

#endif
