// SPDX-License-Identifier: Apache-2.0
// Physical memory of one device: the handles berm holds, and those of them that are idle (mapped
// nowhere). A handle is the unit of mapping: one granule, `large_granules` of them, or, for a block
// that owns its handle, as many as the block has.
//
// A handle has the properties it was created with for ever (can it be exported, may a network card
// reach it), so idle ones are kept in stores, one for each set of properties in use: memory moves
// only between segments of one store.
//
// Plain memory (cuMemAlloc, for devices without virtual memory management and for legacy IPC) is
// never idle: a handle of the plain store is one allocation, stands in the one segment it makes up,
// and goes with it.
//
//   phys    device-wide totals
//    └ stores[]   [0] has the properties of the default group; others are added and stay
//       └ idle handles: small (1 granule), large (large_granules), odd (any other size)
//
// Invariants (docs/invariants.md):
//   I10  reserved_bytes is the sum over all handles, strays too; handle_count their number
//   I11  the idle lists of a store hold exactly its handles that are not mapped, by size
//   I17  mapping_count is the number of handles that stand in segments, plain ones apart
//   I22  a handle that stands in a segment is of its store; mapped_bytes of a segment is the sum of
//        its handles
//
// Locks: the device's. Calls the driver where said.
#ifndef BERM_VMM_PHYS_H
#define BERM_VMM_PHYS_H

#include "base/list.h"
#include "host/node_slab.h"
#include "vmm/gpu.h"

enum {
    BERM_STORES_MAX = 8
};

typedef struct berm_phys_handle {
    berm_list_t link; // idle: in its list
    berm_cu_mem_handle_t handle;
    struct berm_store *store;     // constant
    struct berm_segment *segment; // it stands there; NULL: idle
    struct berm_aliased *aliased; // of the only pool that may use it yet; NULL: anyone may
    uint64_t ticket;              // up to which that pool's stream may use it elsewhere
    uint32_t granules;
    uint32_t views;   // how often it stands in its segment: 1, but in arenas of aliased plans
    bool is_exported; // other processes may have it: it is never mapped for another block
    uint32_t pins;    // blocks over it that something outside has registered: it stays where it is
} berm_phys_handle_t;

// Idle handles that work of one stream may still use at their old addresses (remap:alias).
typedef struct berm_aliased {
    berm_list_t small, large;
    uint64_t small_count, large_count;
} berm_aliased_t;

typedef struct berm_store {
    // Constant after it was added.
    struct berm_phys *phys;
    berm_cu_mem_prop_t prop; // of every handle of it
    bool is_plain;           // the handles are allocations; `prop` has no meaning
    bool is_whole; // of blocks that own their handles though nothing in `prop` asks for it
    // Under the device's lock.
    berm_list_t spare_segments; // of the plain store: records of segments that are gone (plain.c)
    berm_list_t idle_small, idle_large, idle_odd;
    uint64_t idle_small_count, idle_large_count, idle_odd_count;
    uint64_t idle_odd_granules;
} berm_store_t;

typedef struct berm_phys {
    berm_gpu_t *gpu;
    uint32_t large_granules; // of a large handle; 1 when there are none
    uint64_t reserved_bytes, reserved_peak_bytes, created_bytes, released_bytes;
    uint64_t handle_count;
    uint64_t mapping_count, mapping_peak;
    uint64_t stale_mappings; // of addresses whose pages have moved on; not in mapping_count
    uint64_t stale_bytes;    // of those addresses
    uint64_t moved_bytes, split_bytes; // given another address; released and created in pieces
    uint64_t exported_bytes;           // of handles that were exported
    // Exported handles that are mapped nowhere: idle for nobody, they go back to the driver.
    berm_list_t leaving;
    uint64_t leaving_count, leaving_granules;
    // Allocations that nobody uses and that the driver did not take back: tried again (plain.c).
    berm_list_t strays;
    uint64_t stray_count, stray_bytes;
    unsigned store_count;
    berm_store_t stores[BERM_STORES_MAX];
    berm_node_slab_t nodes;
} berm_phys_t;

// With one store, of the device's usual properties, or the plain one where that is all it has.
void berm__phys_init(berm_phys_t *phys, berm_gpu_t *gpu, uint64_t large_bytes);
// Every handle must have been released.
void berm__phys_destroy(berm_phys_t *phys);

// The store for handles of these properties, made on first use; `is_whole`: for blocks that each
// own one, whose sizes serve no other request. UNSUPPORTED where the driver maps them in larger
// granules than the device's, or when there are too many stores; DRIVER, DEVICE_LOST. Calls the
// driver.
berm_status_t berm__phys_store(berm_phys_t *phys, const berm_cu_mem_prop_t *prop, bool is_whole,
                               berm_store_t **out);

// The store for plain memory, made on first use. UNSUPPORTED: there are too many.
berm_status_t berm__phys_store_plain(berm_phys_t *phys, berm_store_t **out);

static inline uint64_t berm__store_idle_granules(const berm_store_t *store) {
    return store->idle_small_count + store->idle_large_count * store->phys->large_granules +
           store->idle_odd_granules;
}
// Of all stores.
uint64_t berm__phys_idle_granules(const berm_phys_t *phys);

// Makes an idle handle of `granules`. OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, CEILING, DRIVER,
// DEVICE_LOST. Calls the driver. Knows no limit: the caller keeps it.
berm_status_t berm__store_create(berm_store_t *store, uint32_t granules);

bool berm__store_has(berm_store_t *store, uint32_t granules);
// Takes an idle handle of exactly `granules`, or NULL; the caller maps it or gives it back.
berm_phys_handle_t *berm__store_take(berm_store_t *store, uint32_t granules);
// Makes a handle that is mapped nowhere any more idle, in its own store, or in the lists it names;
// one that was exported leaves.
void berm__store_give(berm_phys_handle_t *handle);

void berm__aliased_init(berm_aliased_t *aliased);
// Takes one of `granules`, or NULL.
berm_phys_handle_t *berm__aliased_take(berm_aliased_t *aliased, uint32_t granules);
static inline uint64_t berm__aliased_granules(const berm_aliased_t *aliased,
                                              uint32_t large_granules) {
    return aliased->small_count + aliased->large_count * large_granules;
}

// Gives back the handles that leave. On failure what is left is left. Calls the driver.
berm_status_t berm__phys_release_leaving(berm_phys_t *phys);
// Gives one idle or leaving handle back to the driver. On failure it stays so. Calls the driver.
berm_status_t berm__phys_release(berm_phys_t *phys, berm_phys_handle_t *handle);

// Turns an idle large handle into idle small ones (release, then create, so that the sum is never
// above what it was). On failure what could not be created is gone from reserved. Calls the driver.
berm_status_t berm__store_split_large(berm_store_t *store);

// Keeps an allocation that the driver did not take back: a handle of plain memory without a
// segment, its bytes in `ticket`; it is counted as reserved already. Every release of idle memory
// tries again.
void berm__phys_stray_add(berm_phys_t *phys, berm_phys_handle_t *stray);

// Releases handles that leave, then idle ones until reserved is at most `keep_bytes` or none is
// idle; the usual store's last, since they serve most. Calls the driver.
berm_status_t berm__phys_release_idle(berm_phys_t *phys, uint64_t keep_bytes);
// The same of one store.
berm_status_t berm__store_release_idle(berm_store_t *store, uint64_t keep_bytes);
// Releases the handles that became idle last, so many of each size. Calls the driver.
berm_status_t berm__store_release_newest(berm_store_t *store, uint64_t small, uint64_t large);

#endif
