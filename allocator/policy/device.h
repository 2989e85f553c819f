// SPDX-License-Identifier: Apache-2.0
// One device's allocator: its groups of pools, streams, physical memory and figures.
//
// Locks. `lock` is that of the slow path: whoever calls the driver, for memory or about events,
// holds it meanwhile; it protects physical memory and the lists of pools, segments and caches. Each
// pool has a lock of its own (pool.h), taken after it and never held over a driver call: so hits go
// on while a miss waits for the driver. Functions whose comment says "locked" are called with
// `lock` held and no pool's, and with the device's context current where they may reach the driver
// (berm__gpu_enter).
//
// Invariants (docs/invariants.md):
//   I16  poisoned_bytes, of the device and of each segment, is the sum of the POISONED ranges
//   I18  active bytes are at most the reserved ones
//   I19  the address directory leads from every address of a segment to it; address_bytes is the
//        sum of the segments' spans
//   I39  of each tag but 0, what was counted up less what was counted down is what its live blocks
//        sum to
#ifndef BERM_POLICY_DEVICE_H
#define BERM_POLICY_DEVICE_H

#include "core/addr_dir.h"
#include "core/size_class.h"
#include "host/lock.h"
#include "policy/callout.h"
#include "policy/decay.h"
#include "policy/group.h"
#include "policy/ladder.h"
#include "policy/ring.h"
#include "policy/stream.h"
#include "vmm/phys.h"
#include "vmm/segment.h"

// Who set the limit.
typedef enum berm_limit_source {
    BERM_LIMIT_NONE,
    BERM_LIMIT_OPTION,   // limit
    BERM_LIMIT_FRACTION, // per_process_memory_fraction
    BERM_LIMIT_CALL      // berm_limit_set
} berm_limit_source_t;

// What one tag (front/tag.h) has on the device; up: of all requests, down: of all frees.
typedef struct berm_tag_count {
    atomic_uint_fast64_t blocks_up, blocks_down;
    atomic_uint_fast64_t requested_up, requested_down;
    atomic_uint_fast64_t allocated_up, allocated_down;
    atomic_uint_fast64_t quota;           // and one; 0: none (front/quota.h)
    atomic_uint_fast64_t booked, refused; // bytes of requests under way; requests over the quota
} berm_tag_count_t;

enum {
    BERM_TAG_NUMBERS = 256 // with 0, which is no tag
};

// Reports about failed requests, of one device, one call site and one cause.
typedef struct berm_warned {
    const void *site; // where the program called berm; NULL: not known
    berm_status_t status;
    bool is_used;
    uint64_t line_ns;  // when the last was written
    uint64_t left_out; // failures since then without one
} berm_warned_t;

// What learned placement did (policy/learn.h); atomic.
typedef struct berm_plans {
    atomic_uint_fast64_t made, dropped, requests, bytes, mappings, spent_ns;
} berm_plans_t;

enum {
    BERM_WARNED_MAX = 16 // call sites; the one that is quiet longest makes room
};

typedef struct berm_device {
    berm_mutex_t lock;
    // Constant after opening.
    berm_gpu_t gpu;
    berm_addr_dir_t *dir;
    // Settable, under the lock.
    double headroom_pct;
    bool remap_is_off, remap_is_alias;
    bool learns;
    uint64_t limit_bytes; // UINT64_MAX: none
    berm_limit_source_t limit_source;
    // Under the lock.
    berm_phys_t phys;
    berm_group_t group;      // the default one
    berm_list_t groups;      // berm_group_t.link
    uint32_t released_count; // of them, those that are released
    berm_list_t spares; // berm_pool_t.link: without stream and memory, kept for their addresses
    berm_watch_t watch;
    berm_list_t pools; // berm_pool_t.link, by number: the order in which all are locked
    uint32_t pool_count;
    uint64_t pools_made;
    berm_list_t caches; // berm_cache_t.link
    berm_decay_t decay;
    berm_ladder_t ladder;
    berm_callouts_t callouts;
    struct berm_pool *pins_wanted; // a request wants its held pins announced; NULL: all pools'
    berm_list_t imports;           // berm_import_t.link (share.h)
    uint64_t import_count, imported_bytes, imported_mappings;
    uint64_t address_bytes, poisoned_bytes;
    uint64_t moves, host_waits, retries, out_of_memory;
    berm_list_t observers;                        // berm_observer_t.link (observe.h)
    berm_ring_t ring;                             // of maps and unmaps
    _Atomic(struct berm_source_return *) returns; // to sources of pools (source.h)
    berm_warned_t warned[BERM_WARNED_MAX];
    // Under streams_lock, which is held to look a stream up or to change the list.
    berm_mutex_t streams_lock;
    berm_list_t streams;            // berm_stream_ref_t.link; removed with `lock` held as well
    berm_stream_ref_t *stream_last; // the stream found last: most callers have one
    // Under figures_lock. Threads merge their counts into them (counts.h).
    berm_mutex_t figures_lock;
    berm_figure_t requested, allocated, active, blocks;
    // Atomic.
    berm_plans_t plans;
    berm_tag_count_t tags[BERM_TAG_NUMBERS]; // by tag; of 0 nothing is counted
    atomic_uint_fast64_t request_count;      // numbers of requests given out
    atomic_uint_fast64_t import_records;     // in `imports`, so that most need not look there
} berm_device_t;

// Opens device `ordinal`. Errors as berm__gpu_open. `dir` is borrowed.
berm_status_t berm__device_open(berm_device_t *device, berm_drv_t *drv, int ordinal,
                                berm_addr_dir_t *dir, uint64_t large_handle_bytes,
                                berm_backing_t backing, bool shares_pages);
// Waits for what is pending, gives everything back, live blocks too; *live_blocks is how many.
// When the device is lost or the driver gone, host records are freed and the driver is let be.
void berm__device_close(berm_device_t *device, uint64_t *live_blocks);

// The record of a stream, made on first sight. BERM_STREAM_NONE is the whole context. No pool's
// lock is held; calls the driver on first sight (cuStreamGetId). The record stays while the caller
// holds `lock`, or until it gives it back. OUT_OF_HOST_MEMORY.
berm_status_t berm__device_stream(berm_device_t *device, berm_stream_t handle,
                                  berm_stream_ref_t **out);
// The same, kept until berm__device_stream_give. Without `lock`.
berm_status_t berm__device_stream_take(berm_device_t *device, berm_stream_t handle,
                                       berm_stream_ref_t **out);
static inline void berm__device_stream_give(berm_stream_ref_t *stream) {
    atomic_fetch_sub(&stream->use_count, 1);
}
// The one after `stream`, the first for NULL; NULL at the end. Locked.
berm_stream_ref_t *berm__device_stream_next(berm_device_t *device, berm_stream_ref_t *stream);
// The record, NULL if never seen. Locked.
berm_stream_ref_t *berm__device_stream_find(berm_device_t *device, berm_stream_t handle);

// The stream is about to be destroyed: waits for its work, makes its pool's memory idle, and
// forgets its handle. Locked, in context.
berm_status_t berm__device_stream_retire(berm_device_t *device, berm_stream_ref_t *stream);

// Whether mappings may change now: CAPTURE with sync_edits while a stream may be being captured,
// since the device cannot be waited for then. Locked, in context.
berm_status_t berm__device_edits_check(berm_device_t *device);
// The same as a yes or no, in doubt no, for who is not in the context. Locked.
bool berm__device_edits_are_allowed(berm_device_t *device);

// Waits for all work of the device. CAPTURE while a stream of it may be being captured, which that
// would break. Locked, in context.
berm_status_t berm__device_synchronize(berm_device_t *device);

// Frees the records of retired streams that no pool and no use names any more. Locked.
void berm__device_streams_collect(berm_device_t *device);

// Gives cached memory back until at most keep_bytes of it remain; waits for the work that still
// uses free memory. Locked, in context. *released_bytes counts also on failure.
berm_status_t berm__device_trim(berm_device_t *device, uint64_t keep_bytes,
                                uint64_t *released_bytes);

// Reserved and free, exact once the threads' counts are merged. Locked.
uint64_t berm__device_cached_bytes(berm_device_t *device);
// The same, with what is awaited: it is cached once it has been waited for.
uint64_t berm__device_unallocated_bytes(berm_device_t *device);

// Physical bytes that may still be created under the limit. Locked.
static inline uint64_t berm__device_growth_bytes(const berm_device_t *device) {
    uint64_t reserved = device->phys.reserved_bytes;
    return device->limit_bytes > reserved ? device->limit_bytes - reserved : 0;
}

#endif
