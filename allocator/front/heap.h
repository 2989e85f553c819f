// SPDX-License-Identifier: Apache-2.0
// The process's heap: options, driver, one allocator a device, and the data path. api.c checks
// arguments and calls it; statistics, snapshot, questions and audit read it.
//
// States: none -> running (first use or berm_init) -> shut down -> running (berm_init only). In a
// child of fork() nothing works any more: `is_forked` is set by a fork handler and no lock is
// taken.
//
// Locks: `lock` (rank INSTANCE) for starting, ending, opening devices and options; each device's
// own for the rest. A device's pointer is set once, and read without a lock.
#ifndef BERM_FRONT_HEAP_H
#define BERM_FRONT_HEAP_H

#include "berm_introspect.h"
#include "front/options.h"
#include "policy/cache.h"

enum {
    BERM_DEVICES_MAX = 64
};

typedef enum berm_heap_state {
    BERM_HEAP_NONE,
    BERM_HEAP_RUNNING,
    BERM_HEAP_SHUT_DOWN,
} berm_heap_state_t;

typedef struct berm_heap {
    berm_mutex_t lock;
    _Atomic(int) state;         // berm_heap_state_t
    atomic_uint_fast64_t epoch; // from 1, raised by every stop: what threads kept before is stale
    atomic_uint_fast64_t hit_epoch; // the same where hits need no second look (hit.h), else 0
    atomic_bool is_forked;
    atomic_bool audits;            // options.audit, read on every call
    atomic_bool notes_sites;       // options.call_sites: no request is a hit then
    atomic_uint_fast64_t quotas;   // that are set: likewise
    atomic_uint_fast64_t decay_ms; // the shorter of the options', for the background thread
    // Under the lock; constant while running, but for what can be set at run time.
    berm_options_t options;
    // Constant while running.
    berm_drv_t drv;
    berm_addr_dir_t dir;
    _Atomic(berm_device_t *) devices[BERM_DEVICES_MAX]; // NULL: not used yet
} berm_heap_t;

extern berm_heap_t berm__heap;

// BERM_OK when calls may go on, starting the heap if it never ran; FORKED, SHUTDOWN, or why it does
// not start.
berm_status_t berm__heap_ready(void);
// The same, but a heap that never ran stays so (*is_running false): for questions.
berm_status_t berm__heap_peek(bool *is_running);

berm_status_t berm__heap_start(const char *options);
berm_status_t berm__heap_stop(size_t *live_blocks);
// Closes what legacy IPC has open, before the devices are closed. Under the heap's lock.
void berm__ipc_close_all(void);
// Forgets what could not be closed and went with its context, after the devices are closed.
void berm__ipc_contexts_check(void);
// Tells every pin that it ends: before a stop, with no lock held.
void berm__heap_pins_announce(void);

// The allocator of a device, opened on first use. DEVICE, NO_VMM, DRIVER, DEVICE_LOST.
berm_status_t berm__heap_device(int ordinal, berm_device_t **out);
// The same, NULL if it was not used yet.
static inline berm_device_t *berm__heap_device_opened(int ordinal) {
    return ordinal >= 0 && ordinal < BERM_DEVICES_MAX
               ? atomic_load_explicit(&berm__heap.devices[ordinal], memory_order_acquire)
               : NULL;
}

// The same for questions: BERM_OK for a device that exists, or may when berm has not started, but
// *device is NULL where it was not used yet. DEVICE.
berm_status_t berm__heap_device_look(int ordinal, berm_device_t **device, bool *is_running);

// Opens a device on first use, locks it and makes its context current, for calls that are not on
// the data path; leave undoes that, and gives a failed call its message.
berm_status_t berm__heap_device_enter(int ordinal, berm_device_t **device, bool *is_pushed);
berm_status_t berm__heap_device_leave(berm_device_t *device, bool is_pushed, berm_status_t status,
                                      const char *call);

// What the addresses of a range are, for whoever asks (whatis.c).
berm_address_kind_t berm__range_kind(const berm_range_t *range);

// The newest mark of this heap (mark.c); 0: there is none.
uint64_t berm__mark_last(void);

// berm_walk of a device that is locked and frozen.
void berm__walk_frozen(const berm_device_t *device, berm_walk_fn fn, void *context);

// The segment of an address, whose device is locked until the caller unlocks it; NULL, and nothing
// locked, if it is in no segment.
berm_segment_t *berm__heap_segment_enter(berm_addr_t addr, berm_device_t **device);

// A request that the thread's cache does not serve.
typedef struct berm_want {
    berm_pool_id_t id;
    bool is_routed; // the id is a route's: where its pool is gone, the default one serves
    uint64_t size_bytes, alignment_bytes;
    int ordinal;
    berm_stream_t stream; // normalised
    // The block that is to grow to `grown_bytes`, by about size_bytes; 0: a new one is wanted.
    berm_addr_t growing;
    uint64_t grown_bytes;
} berm_want_t;

// The data path.
berm_status_t berm__heap_alloc(uint64_t size_bytes, uint64_t alignment_bytes, int ordinal,
                               berm_stream_t stream, berm_addr_t *out);
// The same from a pool of the caller's, or from the default one whatever routes there are.
// POOL_UNKNOWN.
berm_status_t berm__heap_alloc_from(berm_pool_id_t id, uint64_t size_bytes,
                                    uint64_t alignment_bytes, int ordinal, berm_stream_t stream,
                                    berm_addr_t *out);
berm_status_t berm__heap_free(berm_addr_t addr, int ordinal, berm_stream_t handle);
// The same where the calling thread's cache, which is the stream's and of no earlier run, has no
// hit for them: a plain request of at most 2^62 bytes; an address of `segment`, of the cache's
// pool.
berm_status_t berm__heap_alloc_miss(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out);
berm_status_t berm__heap_free_miss(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr);
berm_status_t berm__heap_record_stream(berm_addr_t addr, berm_stream_t handle);

// Makes a block larger where it is (grow.c): a request for the bytes behind it. Errors as
// berm_block_grow.
berm_status_t berm__heap_grow(berm_addr_t addr, uint64_t size_bytes);
// One attempt at that; the device's lock is held. STATE as berm__heap_alloc_locked.
berm_status_t berm__heap_grow_locked(berm_device_t *device, const berm_want_t *want);
// Whether a request that fails so is reported: with a line that says where the memory is, instead
// of one about the address.
static inline bool berm__status_has_report(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
           status == BERM_ERROR_CEILING || status == BERM_ERROR_OUT_OF_HOST_MEMORY ||
           status == BERM_ERROR_DRIVER || status == BERM_ERROR_DEVICE_LOST;
}

// With the device's lock (slow.c): the first request on a stream, those that find nothing free, and
// those from a pool of the caller's. Callbacks are called, and a failure is reported, with no lock
// held.
berm_status_t berm__heap_alloc_slow(const berm_want_t *want, berm_addr_t *out);
// From a pool, without a thread's cache: for a thread that has no room for another one, and for
// pools of callers. The device's lock is held. STATE, if it may not map: nothing that is free fits.
berm_status_t berm__heap_alloc_pool(berm_pool_t *pool, uint64_t size_bytes,
                                    uint64_t alignment_bytes, bool may_map, berm_addr_t *out);
// One attempt, from a group. The device's lock is held. STATE: held pins are to be announced first,
// or the group's source is to be asked for a segment.
berm_status_t berm__heap_alloc_locked(berm_group_t *group, uint64_t size_bytes,
                                      uint64_t alignment_bytes, berm_stream_t handle,
                                      berm_addr_t *out);

// Routes came or went: with one, no request is a hit that looks at nothing else (hit.h).
void berm__heap_hits_update(void);

// Puts the options that can change into every open device; the limit only if it was set anew, since
// berm_limit_set may have overruled it for one device. The heap's lock is held.
void berm__heap_options_apply(bool has_new_limit);

// Where the program called berm for the request that this thread makes; NULL: it is no request.
// With call_sites its events have it.
void berm__call_site_set(const void *site);
const void *berm__call_site(void);

// The end of the heap: NVML is let go (report_text.c). Under the heap's lock.
void berm__reports_end(void);

// What a slow request did, for the log: read before and after under the device's lock, and written
// when no lock is held.
typedef struct berm_work {
    uint64_t created_bytes, moved_bytes, host_waits;
} berm_work_t;
berm_work_t berm__work_read(const berm_device_t *device);
void berm__work_log(const berm_device_t *device, uint64_t size_bytes, berm_work_t before,
                    berm_work_t after);

// Checks every invariant of docs/invariants.md (audit.c): 0, or the number of the first that fails
// and a line in `error`. Takes the devices' locks.
int berm__audit_run(char *error, size_t error_capacity);

// Runs it where the option audit is on, and aborts if it fails; returns `status`.
berm_status_t berm__audit_after(berm_status_t status);

// Writes this thread's message for an id that no pool in use has; POOL_UNKNOWN.
berm_status_t berm__pool_unknown(const char *call, int ordinal, berm_pool_id_t id);

// Copies a filled struct to a caller whose own may be older and shorter. VERSION.
berm_status_t berm__struct_give(void *out, size_t caller_bytes, const void *filled,
                                size_t filled_bytes);

// This thread's message for berm_error_message; returns `status`, so that a failure is one line.
berm_status_t berm__error_set(berm_status_t status, const char *format, ...) BERM_PRINTF(2, 3);
const char *berm__error_text(void);

#endif
