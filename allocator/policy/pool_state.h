// SPDX-License-Identifier: Apache-2.0
// What lives in a private group at one time, and making it so again: berm_pool_state_take and
// berm_pool_state_restore of berm.h. A private group keeps its addresses and its pages until it is
// released, and its pools and segments with them, so a state is a list of blocks.
//
// Invariant of a state: its blocks are in the order of the group's pools, of their segments, and of
// addresses; none overlaps another.
//
// Locks: a state is constant. To take and to restore one holds the device's lock.
#ifndef BERM_POLICY_POOL_STATE_H
#define BERM_POLICY_POOL_STATE_H

#include "policy/pool.h"

typedef struct berm_state_block {
    berm_segment_t *segment; // never looked into after the group is gone
    berm_addr_t addr;
    uint64_t start_bytes, size_bytes; // in the segment, what it occupies
    uint64_t requested_bytes;
    uint64_t index;      // n-th request of the device; of a small block modulo 2^32
    uint64_t home_bytes; // of a small block: where its slab begins
    uint32_t slot;
    uint8_t size_class, tag;
    bool is_small;
} berm_state_block_t;

struct berm_pool_state {
    uint64_t serial; // of the group
    int ordinal;
    size_t count;
    berm_state_block_t blocks[];
};

// A block that was freed.
typedef struct berm_state_freed {
    berm_addr_t addr;
    uint64_t requested_bytes, occupied_bytes;
    uint8_t tag;
} berm_state_freed_t;

typedef struct berm_state_delta {
    size_t count, capacity;
    berm_state_freed_t *freed;
} berm_state_delta_t;

// The state of a private group; OUT_OF_HOST_MEMORY. Locked.
berm_status_t berm__pool_state_take(berm_group_t *group, berm_pool_state_t **out);
void berm__pool_state_destroy(berm_pool_state_t *state);

// Makes the group what it was; the state is one of it. On success *delta is what lived before, the
// caller's to give to berm__state_delta_destroy; on failure nothing has changed. STATE: addresses
// cannot be had; CAPTURE, OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST. Locked, in context.
berm_status_t berm__pool_state_restore(berm_group_t *group, const berm_pool_state_t *state,
                                       berm_state_delta_t *delta);
void berm__state_delta_destroy(berm_state_delta_t *delta);

#endif
