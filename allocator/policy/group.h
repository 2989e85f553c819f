// SPDX-License-Identifier: Apache-2.0
// A group: the pools, one a stream, that serve one purpose. Each device has a default group, which
// serves every request that names none; users and graph captures add others. A group says by its
// traits what its memory is like, by its store where its handles come from, and by its use count
// how long its memory is its own.
//
//   device
//    ├ group (default)   pools, each the `pool` of its stream
//    └ groups            the default one first, then what users made
//       └ pools          one a stream, made on first use
//
// A group whose use count has come to 0 is released: nobody gets memory from it any more, its free
// pages may serve others, and when its last block is free it is gone. Its id may then be taken
// anew, while blocks of the old group still live.
//
// Invariants (docs/invariants.md):
//   I23  every pool is in the list of its group once, a group has one pool a stream, the pool of a
//        stream in the default group is its `pool`; pool_count of a stream counts all of them;
//        segments of a pool use the store of its group
//
// Locks: the device's.
#ifndef BERM_POLICY_GROUP_H
#define BERM_POLICY_GROUP_H

#include "base/list.h"
#include "berm.h"
#include "vmm/phys.h"

struct berm_device;
struct berm_pool;
struct berm_stream;

// What a group's memory is like; bits, constant for its life.
enum {
    // Nobody else's until the release: its pages never move, neither away nor within the group,
    // since a graph that was captured reads and writes them at every launch.
    BERM_GROUP_PRIVATE = 1 << 0,
    // Each block owns its handles, which can be exported as file descriptors.
    BERM_GROUP_EXPORTABLE = 1 << 1,
    // Never moved, retired or counted as obtainable: registered with other hardware.
    BERM_GROUP_PINNED = 1 << 2,
    // Backed by cuMemAlloc instead of handles.
    BERM_GROUP_PLAIN = 1 << 3,
    // A network card may reach it, where the device can do that.
    BERM_GROUP_RDMA = 1 << 4,
};

typedef struct berm_group {
    berm_list_t link; // of the device's list
    struct berm_device *device;
    // Constant.
    berm_pool_id_t id; // both 0: the default group
    uint32_t traits;
    berm_store_t *store;
    // Under the device's lock.
    uint64_t use_count; // 0: released
    berm_list_t pools;  // berm_pool_t.group_link
} berm_group_t;

static inline bool berm__pool_id_is_default(berm_pool_id_t id) {
    return id.high == 0 && id.low == 0;
}

static inline bool berm__group_is_default(const berm_group_t *group) {
    return berm__pool_id_is_default(group->id);
}

// Whether free pages of the group may be taken from it.
static inline bool berm__group_may_move(const berm_group_t *group) {
    return group->use_count == 0 || (group->traits & (BERM_GROUP_PRIVATE | BERM_GROUP_PINNED)) == 0;
}

// Prepares the device's default group; its store is the first one.
void berm__group_init_default(berm_group_t *group, struct berm_device *device);

// Adds a group, with a use count of 1; no group that is in use has the id. UNSUPPORTED for traits
// that the device does not have, OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST. Its context is current.
berm_status_t berm__group_create(struct berm_device *device, berm_pool_id_t id, uint32_t traits,
                                 berm_group_t **out);
// The group in use with this id, or NULL.
berm_group_t *berm__group_find(struct berm_device *device, berm_pool_id_t id);
// Forgets a group that has no pool.
void berm__group_destroy(berm_group_t *group);

// The group's pool of a stream, made on first use (pool.h). OUT_OF_HOST_MEMORY.
berm_status_t berm__group_pool(berm_group_t *group, struct berm_stream *stream,
                               struct berm_pool **out);
// The same, NULL if there is none.
struct berm_pool *berm__group_pool_find(const berm_group_t *group,
                                        const struct berm_stream *stream);

#endif
