// SPDX-License-Identifier: Apache-2.0
// The address space of the naive allocator: nodes that tile one reservation. Shared by naive.c (the
// policy) and naive_space.c (the structures).
#ifndef STRESS_BASELINES_NAIVE_SPACE_H
#define STRESS_BASELINES_NAIVE_SPACE_H

#include "stress/allocator.h"
#include "stress/baselines/addr_map.h"
#include "stress/baselines/ordered_set.h"
#include "stress/device.h"

typedef enum naive_state {
    NAIVE_UNMAPPED, // whole pages with no memory behind them
    NAIVE_MAPPING,  // whole pages about to get memory
    NAIVE_FREE,     // mapped, belongs to `stream`
    NAIVE_LIVE,
} naive_state_t;

typedef struct naive_node {
    ordered_node_t fit;   // FREE: (stream, size, address) in `fits`; UNMAPPED: (address) in `gaps`
    ordered_node_t whole; // FREE with whole pages in it: (pages, address) in `victims`
    struct naive_node *prev, *next; // neighbours by address
    uint64_t addr, size_bytes, requested_bytes;
    void *stream;
    naive_state_t state;
} naive_node_t;

typedef struct naive_space {
    uint64_t base, size_bytes, page_bytes;
    berm_cu_mem_handle_t *handles; // of each page that is mapped
    naive_node_t *first;
    ordered_set_t fits, gaps, victims;
    uint64_t whole_pages; // sum over victims
    naive_node_t *spares; // linked by next
    size_t spare_count;
} naive_space_t;

// Reserves addresses; false when the driver or the host refuse.
bool naive_space_create(naive_space_t *space, uint64_t page_bytes, uint64_t wanted_bytes);
// Unmaps and releases everything.
void naive_space_destroy(naive_space_t *space);
// Secures nodes for the functions below; false without memory.
bool naive_space_secure(naive_space_t *space, size_t count);

naive_node_t *naive_space_best_fit(const naive_space_t *space, uint64_t size_bytes, void *stream);
naive_node_t *naive_space_largest(const naive_space_t *space, void *stream); // FREE, or NULL
uint64_t naive_node_whole_pages(const naive_space_t *space, const naive_node_t *node);

// The node leaves the set it is in (by state) and enters the one of `state`.
void naive_node_set_state(naive_space_t *space, naive_node_t *node, naive_state_t state);
// Cuts a node at an offset inside it; both parts keep state and stream. Returns the high part. Uses
// one spare.
naive_node_t *naive_node_split(naive_space_t *space, naive_node_t *node, uint64_t offset_bytes);
// Joins neighbours of equal state (FREE: and stream, UNMAPPED). Returns the joined node.
naive_node_t *naive_node_join(naive_space_t *space, naive_node_t *node);

berm_cu_mem_handle_t *naive_space_handle(naive_space_t *space, uint64_t addr);

// 0, or the number of the invariant that does not hold (naive_space.c).
int naive_space_audit(const naive_space_t *space, stress_figures_t *sums);

#endif
