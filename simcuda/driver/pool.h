// SPDX-License-Identifier: Apache-2.0
// Memory pools: what cuMemAllocAsync takes from.
//
//   pool    of one device; named by a handle
//   area    memory the pool holds, taken from the device as a whole and given back as a whole
//   piece   a part of an area: in use (it has a mapping), or free since a point of some stream
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "sim.h"

typedef struct sim_area {
    berm_list_t node;
    sim_memory_t *memory;
    uint64_t addr, size_bytes;
    uint64_t live; // pieces in use
} sim_area_t;

struct sim_piece {
    sim_node_t node; // in pool->pieces, by address
    berm_list_t free_node;
    sim_pool_t *pool;
    sim_area_t *area;
    uint64_t size_bytes;
    sim_mapping_t *mapping; // NULL: free
    // of a free one: since when; `freed` NULL: nothing to wait for
    sim_mark_t *freed;
    uint64_t stream_id, count;
    uint32_t slot;
};

struct sim_pool {
    berm_list_t node; // in sim.pool_list
    uint64_t handle;  // 0: destroyed, but not empty yet
    int device;
    bool is_default;
    uint64_t bytes_max; // 0: none
    uint64_t release_threshold;
    int reuse[3]; // follow event dependencies, opportunistic, internal dependencies
    uint64_t used, used_high, reserved, reserved_high;
    uint8_t access[SIMCUDA_DEVICE_MAX];
    sim_tree_t pieces;
    berm_list_t free_pieces, areas;
};

// A piece of `bytes` for use from the next work of `stream` on; *wait is what that must wait for,
// or NULL. NULL with *result set.
sim_piece_t *sim_piece_take(sim_pool_t *pool, uint64_t bytes, sim_stream_t *stream,
                            sim_mark_t **wait, int *result);
// The piece is free once `freed`, a mark in `stream`, is reached; both NULL: now. Its mapping goes.
void sim_piece_free(sim_piece_t *piece, const sim_stream_t *stream, sim_mark_t *freed);
// Gives areas back while the pool holds more than `bytes`: those whose pieces are all free.
void sim_pool_trim(sim_pool_t *pool, uint64_t bytes);

// The end of the free piece that holds `addr`; `addr` where there is none.
uint64_t sim_pools_reach(uint64_t addr);
sim_pool_t *sim_pool_default(int device); // made when first asked for; NULL: no host memory
void sim_pools_release(void);             // what a call that waits does: trims to the thresholds
void sim_pools_clear(void);               // at reset

#endif
