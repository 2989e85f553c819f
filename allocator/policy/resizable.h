// SPDX-License-Identifier: Apache-2.0
// Blocks that can grow where they are (resizable.c), of groups with BERM_GROUP_RESIZABLE.
//
// Invariant (docs/invariants.md):
//   I37  in a segment of such a group at most one range is LIVE, AWAITED or HELD, and none is a
//        slab
//
// Locks: the device's for all that maps; the pool's where it says so.
#ifndef BERM_POLICY_RESIZABLE_H
#define BERM_POLICY_RESIZABLE_H

#include "policy/pool.h"

// As berm__large_hit and berm__miss_map, of such a pool. While the pool's `growing` names a block
// the place is the `size_bytes` behind it: ADDRESS_UNKNOWN, DOUBLE_FREE where it is not live any
// more, OUT_OF_ADDRESSES where its addresses end.
berm_status_t berm__resizable_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place);
berm_status_t berm__resizable_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                                  berm_place_t *place);

// Makes the live block at an address `size_bytes` large, and counts that; what is smaller than it
// was stays as it is. STATE: held pins are to be announced first (pool.h). CAPTURE: its stream is
// being captured, and what is free behind the block may be in use by what was queued before.
// Otherwise as berm__resizable_map. Both locks are taken: the device's is held already.
berm_status_t berm__resizable_grow(berm_segment_t *segment, berm_addr_t addr, uint64_t size_bytes);

// What a block of `size_bytes` occupies.
uint64_t berm__resizable_occupied(uint64_t size_bytes);

#endif
