// SPDX-License-Identifier: Apache-2.0
// berm: statistics, snapshots and questions. See berm.h for words and guarantees.
//
// FIGURES, DEFINED ONCE
//   requested  bytes asked for by live blocks
//   allocated  the same, rounded to what each block occupies
//   active     allocated, plus freed bytes that some stream may still use (by record_stream, by a
//              free on another stream or on none)
//   reserved   physical bytes held from the driver, each handle once = active + cached
//   cached     reserved and free
//   largest free block of a stream: an allocation of exactly that size on the stream makes no
//              memory call to the driver; 512 bytes more makes one or fails
//
// THREAD CACHES
//   A thread keeps a little of what it frees, to take it again without a lock. What is kept counts
//   as cached, not as allocated. The calls below that say "empties thread caches" first give all of
//   it back to the pools, from every thread, so that what they report is complete; the next
//   allocations of each thread are slower for it.
//
// Errors called START ERRORS and DEVICE ERRORS are listed in berm.h.
//
// Output structs start with `size`: set it to sizeof the struct before the call (the macros
// BERM_*_INIT do). A size that this library does not know gives BERM_ERROR_VERSION; members are
// only ever added at the end.
#ifndef BERM_INTROSPECT_H
#define BERM_INTROSPECT_H

#include "berm.h"

#ifdef __cplusplus
extern "C" {
#endif

// A figure over time. total_* count up from the start of berm.
// Peaks of requested, allocated, active and blocks are exact while one thread uses one stream of
// the device; otherwise they are off by at most what thread caches hold: 6 MiB and one large block
// for each thread and pool. Peaks of reserved are always exact.
typedef struct berm_figure {
    uint64_t current;
    uint64_t peak; // since the start or the last berm_stats_peaks_reset
    uint64_t total_up;
    uint64_t total_down;
} berm_figure_t;

// Driver calls by kind.
typedef struct berm_driver_calls {
    uint64_t reserve;      // cuMemAddressReserve
    uint64_t address_free; // cuMemAddressFree
    uint64_t create;       // cuMemCreate
    uint64_t release;      // cuMemRelease
    uint64_t map;          // cuMemMap
    uint64_t set_access;   // cuMemSetAccess
    uint64_t unmap;        // cuMemUnmap
    uint64_t malloc_;      // cuMemAlloc
    uint64_t free_;        // cuMemFree
    uint64_t event_record; // cuEventRecord, cuCtxRecordEvent
    uint64_t event_query;  // cuEventQuery
    uint64_t stream_wait;  // cuStreamWaitEvent
    uint64_t synchronize;  // cuEventSynchronize, cuStreamSynchronize, cuCtxSynchronize
    uint64_t other;
} berm_driver_calls_t;

// Requests that nothing free in their pool served, by the last step of the reclaim ladder that gave
// them something, in the order of the steps (docs/architecture.md). Requests that failed are in
// out_of_memory.
typedef struct berm_ladder_counts {
    uint64_t caches;   // what threads had cached, and empty slabs
    uint64_t frees;    // frees that other streams were done with
    uint64_t pins;     // freed pinned blocks, whose callbacks were told
    uint64_t mapped;   // idle physical memory and new memory, within headroom and limit
    uint64_t moved;    // free pages that were given other addresses
    uint64_t released; // idle memory that went back to the driver and made room
    uint64_t pressure; // what a callback of the application gave (berm_pressure_register)
    uint64_t waited;   // a wait for the device
    uint64_t others;   // a pool that serves others before they fail (BERM_POOL_USE_ON_OOM)
} berm_ladder_counts_t;

typedef struct berm_stats {
    size_t size; // sizeof(berm_stats_t) of the caller
    int device;
    uint32_t pools; // number of pools of the device
    berm_figure_t requested_bytes;
    berm_figure_t allocated_bytes;
    berm_figure_t active_bytes;
    berm_figure_t reserved_bytes;
    berm_figure_t blocks;             // live blocks
    uint64_t cached_bytes;            // reserved - active, now
    uint64_t limit_bytes;             // UINT64_MAX: none
    uint64_t granule_bytes;           // the driver's mapping granularity; 2 MiB where plain is all
    uint64_t address_bytes;           // device addresses reserved
    uint64_t mappings;                // handles mapped now
    uint64_t mappings_peak;           //
    uint64_t moved_bytes;             // physical bytes that were given another address
    uint64_t moves;                   // number of misses that moved pages
    uint64_t host_waits;              // times berm waited for the device
    uint64_t retries;                 // requests that needed the reclaim ladder beyond growth
    uint64_t out_of_memory;           // requests that failed for lack of device memory or a limit
    uint64_t poisoned_bytes;          // addresses never used again after a driver error
    uint64_t host_metadata_bytes;     // host memory of berm's own records, all devices (below)
    berm_driver_calls_t driver_calls; // of the whole process
    uint64_t exported_bytes;          // of reserved: what other processes may have
    uint64_t imports;                 // other processes' memory that is mapped: how many,
    uint64_t imported_bytes;          // and how much; no part of what is above (berm_share.h)
    uint64_t decay_ticks;             // times idle memory was looked at (option decay_ms)
    uint64_t decayed_bytes;           // physical bytes given back by that
    uint64_t pinned_bytes;            // physical bytes of handles under pinned blocks
    uint64_t plans, plans_dropped;    // learned placement: plans made, and dropped as outdated;
    uint64_t planned_requests;        // requests served where a plan has them: how many,
    uint64_t planned_bytes;           // and how much;
    uint64_t planned_mappings;        // granules of all plans' addresses;
    uint64_t planning_ns;             // time spent planning, in requests and frees
    berm_ladder_counts_t ladder;      // what served requests that found nothing free
    uint64_t imported_mappings;       // handles of imports, each mapped once; not in `mappings`
} berm_stats_t;

#define BERM_STATS_INIT BERM_SIZED_INIT(berm_stats_t)

// Fills *stats for `device`. A device not used yet has zeros and no limit, and no driver is called.
// host_metadata_bytes leaves out tables that cost memory only as they fill: 16 bytes a granule and
// 8 bytes per 64 KiB of the device addresses that were ever used, and the address directory.
// Errors: ARGUMENT, VERSION, DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_stats_read(int device, berm_stats_t *stats);

// Sets every peak of `device` to the current value.
// Errors: DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_stats_peaks_reset(int device);

// The largest free block of (device, stream), as defined above. 0 if there is none.
// It empties thread caches of the device.
// Errors: ARGUMENT, DEVICE, SHUTDOWN, FORKED.
// Driver: it records and queries events while freed blocks wait for other streams.
// Waits: only where the driver refuses an event or has no cuCtxRecordEvent.
// Streams: events on them.
BERM_API berm_status_t berm_largest_free_read(int device, berm_stream_t stream,
                                              uint64_t *size_bytes);

// The largest request that (device, stream) could be served now when berm may wait, move pages,
// give back what other pools cache, and grow to the limit or to what the driver says is free.
// It is an estimate from above where pages of other streams have not passed yet.
// It starts berm and opens the device where need be, and empties thread caches of the device.
// Errors: ARGUMENT, DEVICE, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: cuMemGetInfo, and as berm_largest_free_read.
// Waits: as berm_largest_free_read.
// Streams: events on them.
BERM_API berm_status_t berm_largest_obtainable_read(int device, berm_stream_t stream,
                                                    uint64_t *size_bytes);

// What an address is.
typedef enum berm_address_kind {
    BERM_ADDRESS_FOREIGN = 0, // not in any of berm's reservations
    BERM_ADDRESS_LIVE,        // in a live block
    BERM_ADDRESS_AWAITED,     // in a freed block that some stream may still use
    BERM_ADDRESS_FREE,        // mapped and free
    BERM_ADDRESS_UNMAPPED,    // reserved, with no memory behind it
    BERM_ADDRESS_POISONED,    // left alone after a driver error
    BERM_ADDRESS_STALE,       // its pages serve another block; queued work may still use it here
    BERM_ADDRESS_IMPORTED,    // in memory of another process (berm_share.h)
    BERM_ADDRESS_HELD,        // in a freed block that is pinned
} berm_address_kind_t;

typedef struct berm_whatis_s {
    size_t size; // sizeof(berm_whatis_t) of the caller
    berm_address_kind_t kind;
    int device;               // -1 if foreign
    berm_stream_t stream;     // of the pool; BERM_STREAM_NONE for the pool without a stream
    berm_addr_t block;        // start of the block, free range or import; 0 if foreign
    uint64_t offset_bytes;    // of the address within it
    uint64_t block_bytes;     // what the block occupies
    uint64_t requested_bytes; // what was asked for; 0 unless live or imported
    uint64_t
        allocation_index; // the block was the n-th request of its device, from 1; 0 unless live
    uint32_t is_small;    // 1: a slot of a size-class slab
    uint32_t is_released; // 1: of a pool that was released; its id may be in use again
    berm_pool_id_t pool;  // the id of its pool; both 0 for the default pool
    const char *tag;      // berm_tag_push of the block; "": none, or not live
} berm_whatis_t;

#define BERM_WHATIS_INIT BERM_SIZED_INIT(berm_whatis_t)

// Says what `addr` is; a foreign address is BERM_OK. It empties thread caches of the device, so a
// block that a thread has freed and kept shows as free.
// Errors: ARGUMENT, VERSION, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_whatis(berm_addr_t addr, berm_whatis_t *whatis);

// What the live block at `addr` is: the bytes asked for, its device, and the stream of its pool
// (BERM_STREAM_NONE: allocated for none). Any of the three may be NULL. For callers that keep no
// records of their own, before they free it: the block must be theirs, and stay so during the call.
// It costs less than a free and takes no lock. On failure nothing is written.
// Errors: ADDRESS_UNKNOWN (no live block begins at `addr`), SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_block_read(berm_addr_t addr, uint64_t *requested_bytes, int *device,
                                       berm_stream_t *stream);

// A run of addresses with memory behind all of them, of one pool.
typedef struct berm_walk_segment {
    size_t size; // sizeof(berm_walk_segment_t) of the library
    int device;
    berm_stream_t stream; // of the pool; BERM_STREAM_NONE for the pool without a stream
    berm_pool_id_t pool;  // both 0 for the default pool
    berm_addr_t addr;
    uint64_t size_bytes;
    uint32_t is_plain;    // 1: of cuMemAlloc
    uint32_t is_released; // 1: of a pool that was released; its id may be in use again
    uint32_t is_aliased;  // 1: its pages may be mapped elsewhere too (learned placement)
    uint32_t reserved_;
} berm_walk_segment_t;

// A block or a free piece of it; slots of a slab come one by one.
typedef struct berm_walk_block {
    size_t size; // sizeof(berm_walk_block_t) of the library
    berm_addr_t addr;
    uint64_t size_bytes;      // what it occupies
    uint64_t requested_bytes; // 0 unless live or awaited
    uint64_t
        allocation_index;     // the block was the n-th request of its device, from 1; 0 unless live
    berm_address_kind_t kind; // LIVE, AWAITED, HELD or FREE
    uint32_t is_small;        // 1: a slot of a size-class slab, or what no slot covers of one
    const char *tag;          // of the thread that asked for it (berm_tag_push); "": none
} berm_walk_block_t;

// Receives a segment with a NULL block, and then each of its blocks in address order, which cover
// it without gap. Called with locks held: it must not call berm or the driver, nor wait for a
// thread that may be in berm.
typedef void (*berm_walk_fn)(void *context, const berm_walk_segment_t *segment,
                             const berm_walk_block_t *block);

// Walks all mapped memory of `device`, pool by pool. What is reserved and mapped nowhere (idle
// handles), stale mappings, and addresses left alone after an error are not in it. It empties
// thread caches of the device, and stops all use of it meanwhile. A device not used yet has
// nothing. Errors: ARGUMENT (no callback), DEVICE, SHUTDOWN, FORKED. Driver: never. Waits: never.
// Streams: none.
BERM_API berm_status_t berm_walk(int device, berm_walk_fn walk, void *context);

// What happened to a run of device addresses.
typedef enum berm_event_kind {
    BERM_EVENT_MAP,   // memory is behind it now, and accessible
    BERM_EVENT_UNMAP, // it is about to be taken away: still there, and no work uses it
    BERM_EVENT_ALLOC, // the same two of plain memory, from cuMemAlloc or a pool's source
    BERM_EVENT_FREE,
    BERM_EVENT_KIND_COUNT
} berm_event_kind_t;

typedef struct berm_event {
    size_t size; // sizeof(berm_event_t) of the library
    int device;
    berm_event_kind_t kind;
    berm_addr_t addr; // whole granules; of plain memory the allocation
    uint64_t size_bytes;
    berm_stream_t stream; // of the pool; BERM_STREAM_NONE for the pool without a stream
    berm_pool_id_t pool;  // both 0 for the default pool, and for one that was released
} berm_event_t;

// Told of events of a device, by the thread whose call makes it necessary, in the order in which
// they happen, with the device locked. It must not call berm, nor allocate from it by way of others
// (torch, Python), nor wait for a thread that may be in berm; the driver may be called for what
// registers memory. What was told as MAP may be told as UNMAP in parts, and the other way round.
typedef void (*berm_event_fn)(void *arg, const berm_event_t *event);

// Tells `fn` when a run of addresses of `device` is mapped or about to be unmapped: for who
// registers memory with something outside, such as a communication library. Before the pages of a
// run go, whichever way (moved, trimmed, idle, at shutdown), UNMAP or FREE is told. What is mapped
// already is not told: read it with berm_walk after this call, when events come already; a run may
// be seen both ways. Memory of an import is not berm's, and is not told. Opens the device.
// Errors: ARGUMENT (no function), STATE (registered with the same `arg`), DEVICE,
// OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: on first use of the device. Waits: never. Streams: none.
BERM_API berm_status_t berm_observe(int device, berm_event_fn fn, void *arg);

// Ends that. When it returns `fn` does not run and is not called again. Not from within `fn`.
// Errors: ARGUMENT (there is no such registration), DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_unobserve(int device, berm_event_fn fn, void *arg);

// One pool.
typedef struct berm_pool_stats {
    size_t size; // sizeof(berm_pool_stats_t) of the caller
    int device;
    uint32_t traits; // BERM_POOL_*; BERM_POOL_PRIVATE also once a capture has used it
    uint64_t uses;   // creates and begins without a release
    uint64_t routes; // into it, now
    uint64_t parts;  // one for each stream, more where captures needed it
    uint64_t blocks; // live
    uint64_t requested_bytes;
    uint64_t allocated_bytes;
    uint64_t awaited_bytes;  // freed, and still to be waited for
    uint64_t reserved_bytes; // physical bytes mapped in it
} berm_pool_stats_t;

#define BERM_POOL_STATS_INIT BERM_SIZED_INIT(berm_pool_stats_t)

// Fills *stats for the pool `id` of `device`; the default id is the default pool, without memory
// that is mapped nowhere. Starts nothing.
// Errors: ARGUMENT, VERSION, DEVICE, POOL_UNKNOWN, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_pool_stats_read(int device, berm_pool_id_t id,
                                            berm_pool_stats_t *stats);

// Receives the report of a request that failed: NUL-terminated text whose first line says which
// kind of failure it is, what was asked for and why it failed, and whose table has the evidence and
// says where the memory is: the request, its pool, stream, tag and call site, live, cached and
// reserved memory, the largest free block, the largest that could be had and of what, the limit and
// who set it, other processes where NVML is, who holds most by tag, pool and size, and what would
// have made it fit. The text is valid during the call.
//
// It is called by the thread whose request failed, with no lock of berm held, before berm_alloc
// returns; of one call site, device and cause at most once a second. It may call all of berm but
// berm_init and berm_shutdown; requests of its own that fail are not reported to it. Several
// threads may call it at once.
typedef void (*berm_report_fn)(void *context, berm_status_t status, const char *text);

// Sets the callback for reports, NULL: none. It stays over berm_shutdown; one that is running in
// another thread may still run when this returns. The option oom_report names a file that gets the
// reports too, and with log:info the log has them.
// Errors: FORKED. Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_report_set(berm_report_fn callback, void *context);

// Whether requests of the calling thread that fail are reported: with a line of the log, and to
// berm_report_set, oom_report and the log as said above. True unless set; for callers to whom a
// failed request is nothing unusual, such as a search for the fastest way that fits. The request
// fails as it would, is counted, and berm_error_message has its line. Returns what it was before.
// Driver: never. Waits: never. Streams: none.
BERM_API bool berm_report_enable(bool is_enabled);

// Receives `length` bytes of output; must not call berm.
typedef void (*berm_write_fn)(void *context, const char *text, size_t length);

// Writes the state of all devices as one JSON object, described by docs/snapshot.schema.json:
// options, statistics, pools, segments, blocks, free ranges, handles. A full walk under the lock
// of one device after the other, `write` included. It empties thread caches.
// Errors: ARGUMENT, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_snapshot_write(berm_write_fn write, void *context);

// Walks everything and checks the numbered invariants of docs/invariants.md. BERM_OK if all hold;
// otherwise BERM_ERROR_CORRUPTION, the number in *invariant (may be NULL; 0 when all hold), and
// berm_error_message says where. It empties thread caches.
// Errors: CORRUPTION, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_audit(int *invariant);

// What berm knows about the driver and a device; no memory is allocated on it.
typedef struct berm_device_info {
    size_t size; // sizeof(berm_device_info_t) of the caller
    int device;
    int driver_version;     // 13000 is 13.0
    char name[128];         //
    uint64_t memory_bytes;  // of the device
    uint64_t free_bytes;    // as the driver or, without a context, NVML says; 0: not known
    uint64_t granule_bytes; // 0 without VMM
    uint32_t has_vmm;       // 1: virtual memory management
    uint32_t has_ctx_event; // 1: cuCtxRecordEvent
    uint32_t has_rdma;      // 1: the device says that VMM memory can be RDMA-capable
    uint32_t is_simulated;  // 1: berm's simulated device
} berm_device_info_t;

#define BERM_DEVICE_INFO_INIT BERM_SIZED_INIT(berm_device_info_t)

// Replaces the clock that berm reads for decay_ms: nanoseconds that never run backwards. NULL
// brings the system's monotonic clock back. For simulations and tests, whose time is their own. It
// may be called before berm starts, by one thread, while no other is in berm. `now_ns` is called
// with locks held and must not call berm. Errors: FORKED. Driver: never. Waits: never. Streams:
// none.
BERM_API berm_status_t berm_clock_set(uint64_t (*now_ns)(void *context), void *context);

// The number of devices; 0 with BERM_ERROR_NO_DRIVER where there is no driver.
// It starts berm where it does not run yet.
// Errors: ARGUMENT, SHUTDOWN, FORKED, START ERRORS.
// Driver: when it starts berm. Waits: never. Streams: none.
BERM_API berm_status_t berm_device_count(int *count);

// Fills *info. It starts berm where it does not run yet; the device need not be usable by berm.
// Errors: ARGUMENT, VERSION, DEVICE, DRIVER, DEVICE_LOST, UNSUPPORTED, SHUTDOWN, FORKED, START
// ERRORS.
// Driver: yes. Waits: never. Streams: none.
BERM_API berm_status_t berm_device_info_read(int device, berm_device_info_t *info);

// What an option is. Static strings.
typedef struct berm_option_info_s {
    const char *name;
    const char *kind;          // "bytes", "ms", "percent", "fraction", "bool", "choice", "text"
    const char *default_value; //
    const char *range;         // "0..100", "passed|off", …
    const char *text;          // one sentence
    int is_runtime;            // 1: can be set after start
} berm_option_info_t;

// Every option, in a fixed order: index from 0; returns NULL past the end. It starts nothing.
// Driver: never. Waits: never. Streams: none.
BERM_API const berm_option_info_t *berm_option_info(size_t index);

#ifdef __cplusplus
}
#endif

#endif
