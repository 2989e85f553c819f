// SPDX-License-Identifier: Apache-2.0
// Segments of the expandable model: shared by expandable.c (the policy) and expandable_space.c (the
// structures). Blocks, pools, sizes and events are those of the PyTorch model.
#ifndef STRESS_BASELINES_EXPANDABLE_SPACE_H
#define STRESS_BASELINES_EXPANDABLE_SPACE_H

#include "stress/baselines/pytorch_blocks.h"

// What a block's requested_bytes says while it has no memory behind it.
#define EXPANDABLE_UNMAPPED UINT64_MAX

// One growing segment: a reservation and the handles of its pages.
typedef struct expandable_segment {
    ordered_node_t node; // by address
    uint64_t addr, page_bytes, page_count;
    void *stream;
    berm_cu_mem_handle_t *handles; // 0: the page has no memory
    bool is_small;
} expandable_segment_t;

// A block without memory, in the set of its pool.
typedef struct expandable_gap {
    ordered_node_t node; // (stream, address)
    pytorch_block_t *block;
} expandable_gap_t;

typedef struct expandable {
    stress_allocator_t base; // first: the functions of the PyTorch model take it
    ordered_set_t segments;
    ordered_set_t gaps[2]; // of the large and of the small pool
    berm_cu_mem_prop_t prop;
    uint64_t device_bytes;
} expandable_t;

static inline expandable_t *expandable_of(stress_allocator_t *a) {
    return (expandable_t *)a;
}

bool expandable_is_unmapped(const pytorch_block_t *block);

// The block, free or unmapped, where `size_bytes` fit into free and unmapped addresses, lowest
// first; in a new segment if need be. NULL without addresses or memory.
pytorch_block_t *expandable_place_find(expandable_t *x, uint64_t size_bytes, void *stream,
                                       bool is_small);
// Gives memory to the first `size_bytes` of an unmapped block, in whole pages, joins it with its
// free neighbours and puts it into its pool. False where limit, device or host refuse.
bool expandable_block_map(expandable_t *x, pytorch_block_t *block, uint64_t size_bytes);
// Takes the whole pages of every free block back to the driver, after waiting for its stream; a
// segment that has none left goes.
void expandable_pages_release(expandable_t *x);
// The bytes that expandable_pages_release would give back.
uint64_t expandable_pages_releasable(const expandable_t *x);
// Waits for the streams, then gives everything back to the driver.
void expandable_segments_destroy(expandable_t *x);

// NULL, or what is wrong, with the invariant's number first.
const char *expandable_space_fault(expandable_t *x);

#endif
