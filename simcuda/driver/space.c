// SPDX-License-Identifier: Apache-2.0
// Ranges of numbers: addresses, and offsets in the process's file.
//
//   [base, next)   was given out; `free` are the pieces that came back
//   [next, end)    never used
//
// Bound: O(log n); O(free pieces) for a piece that came back. Locks: the state's.
// Invariant: pieces are disjoint, and no two touch. May fail: taking; giving back without host
// memory loses the range until the reset.
#include <stdlib.h>

#include "sim.h"

static sim_free_range_t *range_of(sim_node_t *node) {
    return node != NULL ? BERM_CONTAINER_OF(node, sim_free_range_t, node) : NULL;
}

// Adds [start, start + bytes), joined with its neighbours.
void sim_space_give(sim_space_t *space, uint64_t start, uint64_t bytes) {
    sim_free_range_t *below = range_of(sim_tree_floor(&space->free, start));
    sim_free_range_t *above = range_of(sim_tree_ceil(&space->free, start));
    if (bytes == 0)
        return;
    if (below != NULL && below->node.key + below->size_bytes == start) {
        below->size_bytes += bytes;
    } else {
        below = calloc(1, sizeof(*below));
        if (below == NULL)
            return;
        below->size_bytes = bytes;
        sim_tree_insert(&space->free, &below->node, start);
    }
    if (above != NULL && above->node.key == start + bytes) {
        below->size_bytes += above->size_bytes;
        sim_tree_remove(&space->free, &above->node);
        free(above);
    }
}

// First fit among what came back.
static uint64_t space_take_again(sim_space_t *space, uint64_t bytes, uint64_t alignment) {
    for (sim_node_t *node = sim_tree_first(&space->free); node != NULL;
         node = sim_tree_next(node)) {
        sim_free_range_t *range = range_of(node);
        uint64_t start = range->node.key;
        uint64_t end = start + range->size_bytes;
        uint64_t at = berm__align_up(start, alignment);
        if (at > end || end - at < bytes)
            continue;
        sim_tree_remove(&space->free, &range->node);
        free(range);
        sim_space_give(space, start, at - start);
        sim_space_give(space, at + bytes, end - at - bytes);
        return at;
    }
    return 0;
}

static uint64_t space_take_fresh(sim_space_t *space, uint64_t bytes, uint64_t alignment) {
    uint64_t at = berm__align_up(space->next, alignment);
    if (at > space->end || space->end - at < bytes)
        return 0;
    sim_space_give(space, space->next, at - space->next);
    space->next = at + bytes;
    return at;
}

uint64_t sim_space_take(sim_space_t *space, uint64_t bytes, uint64_t alignment,
                        bool is_fresh_first) {
    uint64_t length = space->end - space->base;
    if (bytes > length || alignment > SIM_ADDRESS_BYTES)
        return 0;
    uint64_t at = is_fresh_first ? space_take_fresh(space, bytes, alignment)
                                 : space_take_again(space, bytes, alignment);
    if (at != 0)
        return at;
    return is_fresh_first ? space_take_again(space, bytes, alignment)
                          : space_take_fresh(space, bytes, alignment);
}

void sim_space_clear(sim_space_t *space) {
    for (sim_node_t *node; (node = space->free.root) != NULL;) {
        sim_tree_remove(&space->free, node);
        free(range_of(node));
    }
}
