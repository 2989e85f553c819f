// SPDX-License-Identifier: Apache-2.0
// remap:alias: pages that move at once, within the order of one stream (alias.c).
//
// Invariants (docs/invariants.md):
//   I30  a STALE range is whole granules without handles, in its segment's list once, under a
//        ticket its stream gave out; stale_mappings and stale_bytes of the device are the sums of
//        theirs and of those that could not be unmapped; a handle is in the `aliased` lists of a
//        pool exactly if it names them
#ifndef BERM_POLICY_ALIAS_H
#define BERM_POLICY_ALIAS_H

#include "policy/pool.h"

// Whether free pages of the pool may be mapped a second time before their work is done.
bool berm__alias_is_allowed(const berm_pool_t *pool);
// Takes whole free handles of the pool, smallest free run first, up to `granules`, into its aliased
// ones, whether their tickets have passed or not; their addresses are stale. Fewer at the bounds on
// what is stale, which one handle may exceed. Handles of more than
// `handle_granules` are left, and those of plans' arenas unless it `takes_planned`, last of all.
// *taken is how many granules. OUT_OF_HOST_MEMORY. Locked; calls no driver.
berm_status_t berm__alias_take(berm_pool_t *pool, uint32_t handle_granules, uint64_t granules,
                               bool takes_planned, uint64_t *taken);
// Unmaps the stale addresses of the pool whose tickets have passed, and lets go the aliased handles
// that nobody mapped anew. DRIVER, DEVICE_LOST: those that failed are poisoned. Locked.
berm_status_t berm__alias_retire(berm_pool_t *pool);

#endif
