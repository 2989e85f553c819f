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
// pages serve others, and when its last block is free it is gone (release.c). Its id may then be
// taken anew, while blocks of the old group still live. The last launches of its graphs may still
// run when it is released, on any stream: so the pages of a private group wait for a ticket of the
// whole context first.
//
// Captures. What a graph captured on one stream uses is used whenever and wherever it is launched,
// so a captured request gets no memory that queued work may still use, not even work of its own
// stream: its pool is one where all that was freed has passed, and what is freed meanwhile comes
// back after the capture, unless it was allocated in it.
//
// Invariants (docs/invariants.md):
//   I23  every pool is in the list of its group once; the default group has one pool a stream,
//        which is the stream's `pool`, other groups have one, but for captures (above); pool_count
//        of a stream counts all of them; segments of a pool use the store of its group
//   I24  a spare pool has no group, no stream, no block and no memory
//   I25  released_count of the device is the number of groups with a use count of 0; one of them
//        waits for a ticket that the context gave out, or for none; a group in use waits for none
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
    // Its free memory serves a request for the default pool before that fails.
    BERM_GROUP_USE_ON_OOM = 1 << 5,
    // Each block owns its memory: a handle, or of plain memory a segment.
    BERM_GROUP_NO_SPLIT = 1 << 6,
    // Each block has addresses behind it that it can grow into (resizable.h).
    BERM_GROUP_RESIZABLE = 1 << 7,
};

typedef struct berm_group {
    berm_list_t link; // of the device's list
    struct berm_device *device;
    // Constant.
    berm_pool_id_t id; // both 0: the default group
    uint32_t traits;
    berm_store_t *store;
    uint64_t serial;                        // of the process, from 1: ids come again
    struct berm_source *source;             // of its segments (source.h); NULL: the driver
    struct berm_source_return *source_last; // the end of the group's use of it
    // Under the device's lock.
    uint64_t use_count; // 0: released
    uint32_t routes;    // into it
    bool is_captured;   // a graph has used it: as private from then on
    berm_list_t pools;  // berm_pool_t.group_link
    // Released, and not free of its graphs' work before: the context's stream and its ticket.
    struct berm_stream *context; // NULL: nothing to wait for
    uint64_t context_ticket;
} berm_group_t;

static inline bool berm__pool_id_is_default(berm_pool_id_t id) {
    return id.high == 0 && id.low == 0;
}

static inline bool berm__group_is_default(const berm_group_t *group) {
    return berm__pool_id_is_default(group->id);
}

static inline bool berm__group_is_private(const berm_group_t *group) {
    return (group->traits & BERM_GROUP_PRIVATE) != 0 || group->is_captured;
}

// Whether free pages of the group may be taken from it.
static inline bool berm__group_may_move(const berm_group_t *group) {
    if (group->use_count == 0)
        return group->context == NULL;
    return !berm__group_is_private(group) && (group->traits & BERM_GROUP_PINNED) == 0;
}

// Prepares the device's default group; its store is the first one.
void berm__group_init_default(berm_group_t *group, struct berm_device *device);

// Adds a group, with a use count of 1; no group that is in use has the id. UNSUPPORTED for traits
// that the device does not have, OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST. Its context is current.
berm_status_t berm__group_create(struct berm_device *device, berm_pool_id_t id, uint32_t traits,
                                 berm_group_t **out);
// Gives a group that has no pool yet a source for its segments. OUT_OF_HOST_MEMORY.
berm_status_t berm__group_source_set(berm_group_t *group, const berm_pool_source_t *source);
// The group in use with this id, or NULL.
berm_group_t *berm__group_find(struct berm_device *device, berm_pool_id_t id);
// Forgets a group that has no pool.
void berm__group_destroy(berm_group_t *group);

// The group's pool that serves a request of a stream now, made on first use (pool.h); when the
// stream is captured, one that a graph may have. OUT_OF_HOST_MEMORY; and for other groups than the
// default DRIVER, DEVICE_LOST, and it calls the driver.
berm_status_t berm__group_pool(berm_group_t *group, struct berm_stream *stream,
                               struct berm_pool **out);
// The same for one pool of a caller's group that is to give more memory now: CAPTURE if its stream
// is being captured and it is none that a graph may have.
berm_status_t berm__pool_capture_join(struct berm_pool *pool);
// The first one, NULL if there is none.
struct berm_pool *berm__group_pool_find(const berm_group_t *group,
                                        const struct berm_stream *stream);

// Whether the capture that allocates from a pool of a caller's group, if any is known, goes on. In
// doubt it does. Locked; calls the driver.
bool berm__pool_is_captured(struct berm_pool *pool);

// Routes into the group come and go; those into private ones are a hint of captures (capture.h).
void berm__group_routes_set(berm_group_t *group, uint32_t routes);

// A capture is about to begin, perhaps: lets the group's pools learn what has passed, while the
// driver may still be asked. The context is current.
void berm__group_refresh(berm_group_t *group);

// One use less (release.c); at 0 the group is released, and what it has free goes back to the
// device. OUT_OF_HOST_MEMORY, and nothing changed. The context is current.
berm_status_t berm__group_release(berm_group_t *group);
// Waits for the last work of the graphs of one released group, whose pages then serve others;
// *waited false if there is none, or a capture is in the way. The context is current.
berm_status_t berm__groups_wait(struct berm_device *device, bool *waited);
// Takes back what released groups have free by now, and forgets those that have nothing left; waits
// for the last work of their graphs if `waits`. The context is current.
berm_status_t berm__groups_reap(struct berm_device *device, bool waits);

#endif
