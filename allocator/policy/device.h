// SPDX-License-Identifier: Apache-2.0
// One device's allocator: its pools, streams, physical memory and figures. One lock protects all of
// it; functions whose comment says "locked" are called with it held, and with the device's context
// current where they may reach the driver (berm__gpu_enter).
//
// Invariants (docs/invariants.md):
//   I16  poisoned_bytes, of the device and of each segment, is the sum of the POISONED ranges
//   I18  active bytes are at most the reserved ones
//   I19  the address directory leads from every address of a segment to it; address_bytes is the
//        sum of the segments' spans
#ifndef BERM_POLICY_DEVICE_H
#define BERM_POLICY_DEVICE_H

#include "core/addr_dir.h"
#include "core/size_class.h"
#include "host/lock.h"
#include "host/node_slab.h"
#include "policy/stream.h"
#include "vmm/phys.h"
#include "vmm/segment.h"

// A figure over time, as berm_introspect.h defines it. While a thread's counts are not merged it
// may be below zero; that is why it is compared as a signed number.
static inline void berm__figure_add(berm_figure_t *figure, uint64_t amount) {
    figure->current += amount;
    figure->total_up += amount;
    if ((int64_t)figure->current > (int64_t)figure->peak)
        figure->peak = figure->current;
}

static inline void berm__figure_sub(berm_figure_t *figure, uint64_t amount) {
    figure->current -= amount;
    figure->total_down += amount;
}

typedef struct berm_device {
    berm_mutex_t lock;
    // Constant after opening.
    berm_gpu_t gpu;
    berm_addr_dir_t *dir;
    // Settable, under the lock.
    double headroom_pct;
    bool remap_is_off;
    uint64_t limit_bytes; // UINT64_MAX: none
    // Under the lock.
    berm_phys_t phys;
    berm_list_t pools;   // berm_pool_t.link
    berm_list_t streams; // berm_stream_ref_t.link
    uint32_t pool_count;
    berm_list_t caches;             // berm_cache_t.link
    berm_stream_ref_t *stream_last; // the stream found last: most callers have one
    uint64_t range_nodes_promised;  // range nodes that an open window may still need
    berm_node_slab_t range_nodes, use_nodes, deferred_nodes;
    // Figures.
    berm_figure_t requested, allocated, active, blocks;
    uint64_t address_bytes, poisoned_bytes;
    uint64_t request_count, moves, host_waits, retries, out_of_memory;
} berm_device_t;

// Opens device `ordinal`. Errors as berm__gpu_open. `dir` is borrowed.
berm_status_t berm__device_open(berm_device_t *device, berm_drv_t *drv, int ordinal,
                                berm_addr_dir_t *dir, uint64_t large_handle_bytes);
// Waits for what is pending, gives everything back, live blocks too; *live_blocks is how many.
// When the device is lost or the driver gone, host records are freed and the driver is let be.
void berm__device_close(berm_device_t *device, uint64_t *live_blocks);

// The record of a stream, made on first sight. BERM_STREAM_NONE is the whole context. Locked; calls
// the driver on first sight (cuStreamGetId). OUT_OF_HOST_MEMORY.
berm_status_t berm__device_stream(berm_device_t *device, berm_stream_t handle,
                                  berm_stream_ref_t **out);
// The same, NULL if never seen.
berm_stream_ref_t *berm__device_stream_find(berm_device_t *device, berm_stream_t handle);

// The stream is about to be destroyed: waits for its work, makes its pool's memory idle, and
// forgets its handle. Locked, in context.
berm_status_t berm__device_stream_retire(berm_device_t *device, berm_stream_ref_t *stream);

// Frees the record of a retired stream once no pool and no use names it. Locked.
void berm__device_stream_drop(berm_device_t *device, berm_stream_ref_t *stream);

// Gives cached memory back until at most keep_bytes of it remain; waits for the work that still
// uses free memory. Locked, in context. *released_bytes counts also on failure.
berm_status_t berm__device_trim(berm_device_t *device, uint64_t keep_bytes,
                                uint64_t *released_bytes);

// Reserved and free. Exact once the caches' counts are merged. Locked.
static inline uint64_t berm__device_cached_bytes(const berm_device_t *device) {
    return device->phys.reserved_bytes - device->active.current;
}

// Physical bytes that may still be created under the limit. Locked.
static inline uint64_t berm__device_growth_bytes(const berm_device_t *device) {
    uint64_t reserved = device->phys.reserved_bytes;
    return device->limit_bytes > reserved ? device->limit_bytes - reserved : 0;
}

#endif
