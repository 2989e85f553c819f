// SPDX-License-Identifier: Apache-2.0
// Blocks, pools and segments of the PyTorch model: shared by pytorch.c (the policy) and
// pytorch_blocks.c (the structures).
#ifndef STRESS_BASELINES_PYTORCH_BLOCKS_H
#define STRESS_BASELINES_PYTORCH_BLOCKS_H

#include "base/list.h"
#include "stress/allocator.h"
#include "stress/baselines/addr_map.h"
#include "stress/baselines/ordered_set.h"
#include "stress/baselines/pytorch_sizes.h"
#include "stress/device.h"

typedef struct pytorch_block {
    ordered_node_t node;               // in its pool while free: (stream, size, address)
    berm_list_t all;                   // of the allocator's blocks
    struct pytorch_block *prev, *next; // neighbours in the segment
    uint64_t addr, size_bytes, requested_bytes;
    void *stream;
    void **uses; // streams of record_stream, each once
    size_t use_count, use_capacity;
    size_t event_count; // events of its free that have not completed
    bool is_allocated, is_small;
} pytorch_block_t;

// One recorded event of a freed block.
typedef struct pytorch_event {
    struct pytorch_event *next;
    berm_cu_event_t event;
    pytorch_block_t *block;
} pytorch_event_t;

// The events recorded on one stream, oldest first: one slow stream does not hold up the others.
typedef struct pytorch_queue {
    struct pytorch_queue *next;
    void *stream;
    pytorch_event_t *first, **last;
} pytorch_queue_t;

struct stress_allocator {
    pytorch_sizes_t sizes;
    uint64_t limit_bytes;
    ordered_set_t small, large;
    addr_map_t live;
    berm_list_t all;
    pytorch_block_t *spare; // secured before a split
    pytorch_queue_t *queues;
    pytorch_event_t *events_idle; // with their driver events
    stress_figures_t figures;
    uint64_t live_blocks, retries;
    bool is_driver_failing; // the last cuMemAlloc failed with anything but out of memory
};

// A block node, or NULL without memory.
pytorch_block_t *pytorch_block_create(stress_allocator_t *a);
void pytorch_block_destroy(pytorch_block_t *block);

ordered_set_t *pytorch_pool(stress_allocator_t *a, bool is_small);
void pytorch_pool_insert(stress_allocator_t *a, pytorch_block_t *block);
void pytorch_pool_remove(stress_allocator_t *a, pytorch_block_t *block);
// The best fit for a rounded size on the stream, out of its pool; NULL if there is none.
pytorch_block_t *pytorch_pool_take(stress_allocator_t *a, uint64_t size_bytes, void *stream);
// The largest free block of the stream in one pool, or NULL.
pytorch_block_t *pytorch_pool_largest(stress_allocator_t *a, bool is_small, void *stream);

// Cuts `size_bytes` off the low end of a block that is in no pool; the rest goes to the pool. Uses
// a->spare. Returns the low block.
pytorch_block_t *pytorch_block_split(stress_allocator_t *a, pytorch_block_t *block,
                                     uint64_t size_bytes);
// Joins a free block with its free neighbours and puts it into its pool.
void pytorch_block_release(stress_allocator_t *a, pytorch_block_t *block);

// A new segment as one block in no pool, or NULL where limit or device refuse it.
pytorch_block_t *pytorch_segment_create(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                        bool is_small);
// Gives a whole free segment, in its pool, back to the driver.
void pytorch_segment_destroy(stress_allocator_t *a, pytorch_block_t *block);
// Gives back every unsplit free segment.
void pytorch_segments_release(stress_allocator_t *a);
// With max_split_size: gives back oversize segments until one of `size_bytes` could be had.
bool pytorch_segments_release_oversize(stress_allocator_t *a, uint64_t size_bytes, void *stream);
// The bytes that pytorch_segments_release would give back.
uint64_t pytorch_segments_releasable(const stress_allocator_t *a);

// Events of a freed block (pytorch_events.c). The block's uses become events.
stress_result_t pytorch_events_insert(stress_allocator_t *a, pytorch_block_t *block);
void pytorch_events_process(stress_allocator_t *a);     // frees what has completed
void pytorch_events_synchronize(stress_allocator_t *a); // waits for all, then frees
void pytorch_events_destroy(stress_allocator_t *a);

#endif
