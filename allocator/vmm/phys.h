// SPDX-License-Identifier: Apache-2.0
// Physical memory of one device: the handles berm holds, and those of them that are idle (mapped
// nowhere). A handle is the unit of mapping: one granule, or `large_granules` of them.
//
// Invariants (docs/invariants.md):
//   I10  reserved_bytes is the sum over all handles; handle_count their number
//   I11  idle lists hold exactly the handles that are not mapped; idle_granules is their sum
//   I17  mapping_count is the number of handles that stand in segments
//
// Locks: the device's. Calls the driver where said.
#ifndef BERM_VMM_PHYS_H
#define BERM_VMM_PHYS_H

#include "base/list.h"
#include "host/node_slab.h"
#include "vmm/gpu.h"

typedef struct berm_phys_handle {
    berm_list_t link; // idle: in its list
    berm_cu_mem_handle_t handle;
    uint32_t granules;
    bool is_mapped;
} berm_phys_handle_t;

typedef struct berm_phys {
    berm_gpu_t *gpu;
    uint32_t large_granules; // of a large handle; 1 when there are none
    uint64_t reserved_bytes, reserved_peak_bytes, created_bytes, released_bytes;
    uint64_t handle_count;
    uint64_t mapping_count, mapping_peak;
    uint64_t moved_bytes;
    berm_list_t idle_small, idle_large;
    uint64_t idle_small_count, idle_large_count;
    berm_node_slab_t nodes;
} berm_phys_t;

void berm__phys_init(berm_phys_t *phys, berm_gpu_t *gpu, uint64_t large_bytes);
// Every handle must have been released.
void berm__phys_destroy(berm_phys_t *phys);

static inline uint64_t berm__phys_idle_granules(const berm_phys_t *phys) {
    return phys->idle_small_count + phys->idle_large_count * phys->large_granules;
}

// Makes an idle handle of 1 or large_granules granules. OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY,
// CEILING, DRIVER, DEVICE_LOST. Calls the driver. Knows no limit: the caller keeps it.
berm_status_t berm__phys_create(berm_phys_t *phys, uint32_t granules);

// Takes an idle handle of exactly `granules`, or NULL; the caller maps it or gives it back.
berm_phys_handle_t *berm__phys_take(berm_phys_t *phys, uint32_t granules);
void berm__phys_give(berm_phys_t *phys, berm_phys_handle_t *handle);

// Gives one idle handle back to the driver. On failure it stays idle. Calls the driver.
berm_status_t berm__phys_release(berm_phys_t *phys, berm_phys_handle_t *handle);

// Turns an idle large handle into idle small ones (release, then create, so that the sum is never
// above what it was). On failure what could not be created is gone from reserved. Calls the driver.
berm_status_t berm__phys_split_large(berm_phys_t *phys);

// Releases idle handles until reserved is at most `keep_bytes` or none is idle. Calls the driver.
berm_status_t berm__phys_release_idle(berm_phys_t *phys, uint64_t keep_bytes);
// Releases the handles that became idle last, so many of each size. Calls the driver.
berm_status_t berm__phys_release_newest(berm_phys_t *phys, uint64_t small, uint64_t large);

#endif
