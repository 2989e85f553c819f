// SPDX-License-Identifier: Apache-2.0
// berm: a caching allocator for CUDA device memory.
//
// This header is the manual of the C API: allocate, free, streams, limits, options. Statistics,
// snapshots and questions ("what is this address", "how large a request fits now") are in
// berm_introspect.h; memory shared between processes and devices is in berm_share.h.
//
// WORDS
//   granule    the driver's mapping granularity, 2 MiB in practice, always queried
//   block      what a caller got
//   pool       everything one (device, stream) serves from
//   requested  bytes asked for        allocated  rounded, live
//   active     allocated, plus freed bytes that a stream may still use
//   reserved   physical bytes held from the driver; cached = reserved - active
//   plain      said of memory from cuMemAlloc, which cannot be mapped elsewhere (option backing)
//
// EXAMPLE
//   berm_addr_t block;
//   berm_status_t status = berm_alloc(1 << 20, 0, stream, &block);
//   if (status != BERM_OK)
//       fprintf(stderr, "%s: %s\n", berm_status_name(status), berm_status_text(status));
//   ...launch kernels that use block on stream...
//   berm_free(block, 0, stream);
//
// STREAM ORDER
//   A block belongs to the stream it was allocated on. Work that the caller queues on that stream
//   after berm_alloc returned may use it; berm_free may be called as soon as the last such work is
//   queued: the memory is reused in stream order, with no wait. A block that other streams use
//   needs berm_record_stream for each, or a free that names the other stream.
//
// GUARANTEES
//   Every block is aligned to 512 bytes, or more on request. The library never reads or writes
//   device memory. On failure nothing visible has changed. All functions are thread-safe unless
//   they say otherwise. In a child of fork() every call that returns a status returns
//   BERM_ERROR_FORKED. No driver is linked: libcuda.so.1 is opened on first use.
//
// ERRORS
//   Each function lists what it can return beside BERM_OK, without BERM_ERROR_. Two groups are
//   named there and spelled out here only:
//   START ERRORS   of calls that start berm where it does not run yet: OPTION_VALUE and
//                  OPTION_UNKNOWN (from BERM_CONF or its file), NO_DRIVER, DRIVER,
//                  OUT_OF_HOST_MEMORY.
//   DEVICE ERRORS  of calls that open a device on its first use: NO_VMM, UNSUPPORTED, DRIVER,
//                  DEVICE_LOST, OUT_OF_DEVICE_MEMORY (for its context), OUT_OF_HOST_MEMORY.
//   After either nothing was started or opened, and the next call tries again.
//
// COST LINES
//   Each function says three things: whether it may call the driver, whether it may wait for the
//   device, and its effect on streams. Any call may wait for another thread's call on the same
//   device.
//
// ADDRESS SPACE
//   For each pool berm reserves addresses worth several times the device's memory. Tools that list
//   a process's virtual size show it; it is address space only, and holds no memory.
#ifndef BERM_H
#define BERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BERM_VERSION_MAJOR 0
#define BERM_VERSION_MINOR 1
#define BERM_VERSION_PATCH 0

#if defined(__GNUC__)
#define BERM_API     __attribute__((visibility("default")))
#define BERM_CHECKED __attribute__((warn_unused_result))
#else
#define BERM_API
#define BERM_CHECKED
#endif

// An address of device memory, equal to a CUdeviceptr. 0 is no address.
#ifndef BERM_ADDR_T_DEFINED
#define BERM_ADDR_T_DEFINED
typedef uint64_t berm_addr_t;
#endif

// A CUDA stream: a CUstream or cudaStream_t as it is. NULL and the driver's CU_STREAM_LEGACY (1)
// are the legacy default stream. CU_STREAM_PER_THREAD (2) is another stream in each thread, so it
// counts as no stream.
typedef void *berm_stream_t;

// "No stream": see berm_alloc and berm_free.
#define BERM_STREAM_NONE ((berm_stream_t)(intptr_t)-1)

// The id of a pool, chosen by who makes it (a PyTorch mempool's id is such a pair). Both 0 is the
// default pool.
typedef struct berm_pool_id {
    uint64_t high, low;
} berm_pool_id_t;

// All zeros but for `size`, without a warning about missing members in either language.
#ifdef __cplusplus
#define BERM_SIZED_INIT(type)                                                                      \
    [] {                                                                                           \
        type made = {};                                                                            \
        made.size = sizeof made;                                                                   \
        return made;                                                                               \
    }()
#else
#define BERM_SIZED_INIT(type)                                                                      \
    { .size = sizeof(type) }
#endif

// In calls that take an address: any device.
#define BERM_DEVICE_ANY (-1)

// ---------------------------------------------------------------------------------------------
// Status
// ---------------------------------------------------------------------------------------------

// One value for each cause. BERM_OK is 0; values are stable and new ones are added at the end.
typedef enum berm_status {
    BERM_OK = 0,
    BERM_ERROR_ARGUMENT,             // a null out parameter, or a value out of its stated range
    BERM_ERROR_SIZE_ZERO,            // a request of 0 bytes
    BERM_ERROR_SIZE_TOO_LARGE,       // a request above 2^62 bytes, or above all addresses
    BERM_ERROR_ALIGNMENT,            // not a power of two, or above 2^32
    BERM_ERROR_DEVICE,               // no such device
    BERM_ERROR_ADDRESS_UNKNOWN,      // not an address that berm handed out
    BERM_ERROR_ADDRESS_INTERIOR,     // inside a live block, not at its start
    BERM_ERROR_ADDRESS_OTHER_DEVICE, // a block of another device than the one named
    BERM_ERROR_DOUBLE_FREE,          // the block was freed already
    BERM_ERROR_OUT_OF_DEVICE_MEMORY, // the device has no more, after all of the reclaim ladder
    BERM_ERROR_LIMIT,                // the limit set for the device stands in the way
    BERM_ERROR_OUT_OF_HOST_MEMORY,   // no memory for berm's own records
    BERM_ERROR_OUT_OF_ADDRESSES,     // no device addresses could be reserved
    BERM_ERROR_CEILING,              // the driver's number of mappings, handles or files is used up
    BERM_ERROR_NO_DRIVER,            // libcuda.so.1 is absent or has no device
    BERM_ERROR_NO_VMM,               // backing:vmm, and no virtual memory management
    BERM_ERROR_DRIVER,               // a driver call failed otherwise: see berm_driver_error_last
    BERM_ERROR_DEVICE_LOST,          // the context is unusable (sticky error or device reset)
    BERM_ERROR_SHUTDOWN,             // called after berm_shutdown
    BERM_ERROR_FORKED,               // called in a child of fork()
    BERM_ERROR_STATE,                // does not go with what was done before, e.g. berm_init twice
    BERM_ERROR_OPTION_UNKNOWN,       // no such option
    BERM_ERROR_OPTION_VALUE,         // a value that the option does not take
    BERM_ERROR_VERSION,              // a struct of a size that this library does not know
    BERM_ERROR_CORRUPTION,           // an invariant does not hold: see berm_audit
    BERM_ERROR_UNSUPPORTED,          // a feature that this build, driver or device does not have
    BERM_ERROR_NOT_EXPORTABLE,       // a block without a handle of its own: see berm_share.h
    BERM_ERROR_ADDRESS_IMPORTED,     // memory of an import, which is closed and not freed
    BERM_ERROR_NOT_IMPORTED,         // no open import begins at the address
    BERM_ERROR_IMPORT_FD,            // a descriptor of no memory that the driver can import
    BERM_ERROR_IMPORT_SIZE,          // more than the exporter's handle has
    BERM_ERROR_PEER_ACCESS,          // one device has no access to the other's memory
    BERM_ERROR_PROTOCOL,             // what came over the socket is no block of berm's
    BERM_ERROR_DISCONNECTED,         // the other end of the socket is gone
    BERM_ERROR_SYSTEM,               // a system call failed: see berm_error_message
    BERM_ERROR_IPC_HANDLE,           // no handle of memory that can be opened here
    BERM_ERROR_IPC_OWN,              // a handle of this process's own memory
    BERM_ERROR_POOL_UNKNOWN,         // no pool in use has this id
    BERM_ERROR_CAPTURE,              // a capture is in the way: not possible before it has ended
    BERM_ERROR_NOT_RESIZABLE,        // a block of a pool without BERM_POOL_RESIZABLE
    BERM_ERROR_TAGS,                 // the names of 255 tags are in use
    BERM_ERROR_QUOTA,                // the quota of the tag stands in the way: berm_quota_set
    BERM_STATUS_COUNT
} berm_status_t;

// The name ("BERM_ERROR_LIMIT") and one sentence that says what to do. Static strings, never NULL;
// an unknown value gives "BERM_STATUS_UNKNOWN".
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_status_name(berm_status_t status);
BERM_API const char *berm_status_text(berm_status_t status);

// The last driver call that failed in this thread inside berm: its name ("cuMemCreate", static
// string) and the driver's CUresult, or NULL and 0 if none has. *code may be NULL.
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_driver_error_last(int *code);

// One line about the last failure in this thread: which call, which address or size, which limit.
// Valid until the next berm call of this thread; "" if there was none.
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_error_message(void);

// "0.1.0".
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_version(void);

// ---------------------------------------------------------------------------------------------
// Start and end
// ---------------------------------------------------------------------------------------------

// Optional: the first allocation starts berm with the environment's options. `options` has the
// form of BERM_CONF ("key:value,key:value"; `berm conf` lists them) and wins over the environment
// variable, which wins over the file it may name; NULL is "".
// After berm_shutdown it starts a fresh instance.
// Errors: STATE (berm runs already), FORKED, START ERRORS.
// Driver: yes (cuInit). Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_init(const char *options);

// Gives everything back to the driver: waits for the streams that still use freed memory, unmaps,
// releases. Blocks still live are released as well, and their number is written to *live_blocks if
// that is not NULL. The caller has no work queued that uses them. No other call may run meanwhile;
// every later call returns BERM_ERROR_SHUTDOWN until berm_init. A second call returns
// BERM_ERROR_SHUTDOWN; one before any start returns BERM_OK.
// Errors: SHUTDOWN, FORKED.
// Driver: yes. Waits: yes. Streams: none.
BERM_API berm_status_t berm_shutdown(size_t *live_blocks);

// ---------------------------------------------------------------------------------------------
// Allocate and free
// ---------------------------------------------------------------------------------------------

// Gets `size_bytes` (1 to 2^62) on `device` (ordinal from 0), for use on `stream`.
// With BERM_STREAM_NONE the memory has no pending work at all and may be used on any stream.
// *out is the address, or 0 on failure. What is inside is undefined.
// Errors: ARGUMENT, SIZE_ZERO, SIZE_TOO_LARGE, DEVICE, OUT_OF_DEVICE_MEMORY, LIMIT,
// OUT_OF_HOST_MEMORY, OUT_OF_ADDRESSES, CEILING, CAPTURE (on a miss, only with sync_edits), DRIVER,
// DEVICE_LOST, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: on a miss, on first sight of a stream, and while freed blocks wait for other streams.
// Waits: on a miss that moves pages still in use, or before failing; also, to learn when a freed
// block is done with, where the driver refuses an event or has no cuCtxRecordEvent.
// Streams: events are recorded on them on a miss, and while freed blocks wait for them.
BERM_API BERM_CHECKED berm_status_t berm_alloc(uint64_t size_bytes, int device,
                                               berm_stream_t stream, berm_addr_t *out);

// The same at a multiple of `alignment` (a power of two from 1 to 2^32; below 512 is 512; 0 is
// refused).
// Errors: as berm_alloc, and ALIGNMENT.
// Driver, waits, streams: as berm_alloc.
BERM_API BERM_CHECKED berm_status_t berm_alloc_aligned(uint64_t size_bytes, uint64_t alignment,
                                                       int device, berm_stream_t stream,
                                                       berm_addr_t *out);

// Gives a block back. Address 0 is allowed and does nothing.
//   stream  the stream whose queued work used the block last. Its own stream: the memory can serve
//           that stream at once. Another: it waits for what that stream has queued so far.
//           BERM_STREAM_NONE: it waits for all work queued on the device so far.
//   device  the block's device, or BERM_DEVICE_ANY.
// Errors: ADDRESS_UNKNOWN, ADDRESS_INTERIOR, ADDRESS_OTHER_DEVICE, ADDRESS_IMPORTED, DOUBLE_FREE,
// OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED: nothing was freed. Of a valid block only
// OUT_OF_HOST_MEMORY: there is none to remember who still uses it, and waiting for them instead is
// not possible, since a capture forbids it or the driver fails. A free on the block's own stream
// that no other stream uses needs no memory. Driver: on first sight of a stream, and where host
// memory is short. Waits: only where host memory is short, for the streams that use the block or
// for the device. Streams: none at once; a later allocation records the events that tell when they
// are done.
BERM_API berm_status_t berm_free(berm_addr_t addr, int device, berm_stream_t stream);

// Says that work queued on `stream`, so far or until the block is freed, uses the block: after the
// free it waits for that stream too. The block's own stream is ignored.
// Errors: ARGUMENT (BERM_STREAM_NONE), ADDRESS_UNKNOWN, ADDRESS_INTERIOR, ADDRESS_IMPORTED,
// DOUBLE_FREE, OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED.
// Driver: on first sight of a stream. Waits: never. Streams: none; see berm_free.
BERM_API berm_status_t berm_record_stream(berm_addr_t addr, berm_stream_t stream);

// Announces that the caller is about to destroy `stream` of `device`: freed memory that belongs to
// it is made free for every stream. Live blocks stay valid; they are freed later with a stream that
// exists then, or with none. A stream that berm has not seen is allowed.
// Errors: ARGUMENT, DEVICE, CAPTURE (the stream is captured: it is not retired), DRIVER,
// DEVICE_LOST, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: yes. Waits: for the work queued on the stream. Streams: an event on it.
BERM_API berm_status_t berm_stream_retire(int device, berm_stream_t stream);

// ---------------------------------------------------------------------------------------------
// Pins
// ---------------------------------------------------------------------------------------------

// Told that a pin ends: the memory of the block at `addr` (`size_bytes`, what it occupies) is about
// to serve other blocks, or to go. When it returns, the memory may be another block's: whatever was
// registered must be deregistered, and what the device outside does with it must be over.
//
// It is called by the thread whose call makes it necessary, with no lock of berm held, and that
// call waits for it:
//   - berm_alloc, when the pinned block was freed and nothing else that is free in its pool serves
//     the request, or the request would fail while freed pinned blocks exist on the device;
//   - berm_shutdown, for every pin, of live blocks too, before anything is given back.
// When it is called the pin has ended: berm_unpin of it gives ADDRESS_UNKNOWN. Each pin is told
// once, or not at all if berm_unpin was first. It may call all of berm but berm_init, berm_shutdown
// and, when berm_shutdown calls it, berm_pin. It must not wait for a thread that may be in
// berm_alloc, and callers of berm_alloc must not hold a lock that it takes.
typedef void (*berm_pin_fn)(void *arg, berm_addr_t addr, uint64_t size_bytes);

// Pins a live block: its memory is about to be registered with something outside, such as a
// network card or a communication library. Until the pin ends the physical memory under the block
// stays where it is, also after the block is freed: it is not moved, not given back by berm_trim or
// decay, not given to other blocks, and counts as cached, not as obtainable. Physical memory comes
// in whole granules, so what else lies in the first and the last one stays too, but serves requests
// as usual. A block may be pinned by several, each with another callback or `arg`.
// Errors: ARGUMENT (no callback), ADDRESS_UNKNOWN, ADDRESS_INTERIOR, DOUBLE_FREE, STATE (pinned
// with the same callback and `arg`), OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_pin(berm_addr_t addr, berm_pin_fn callback, void *arg);

// Ends the pin of the block at `addr`, live or freed, without telling its callback.
// Errors: ADDRESS_UNKNOWN (there is no such pin, or it is being told), SHUTDOWN, FORKED.
// Driver: when it was the last pin of a freed block that was exported. Waits: never. Streams: none.
BERM_API berm_status_t berm_unpin(berm_addr_t addr, berm_pin_fn callback, void *arg);

// ---------------------------------------------------------------------------------------------
// Pools
// ---------------------------------------------------------------------------------------------
//
// A pool of the caller's has memory of its own, apart from the default pool's: for a CUDA graph, or
// for what must have other properties. It is known by an id that the caller chooses, on each device
// by itself. Requests reach it by name (berm_alloc_from), or, for a while, by a route. Blocks are
// freed like any other; each stream has its own part of the pool, as in the default one.
//
// A pool is counted: create and route begin add one use, release takes one. With the last use the
// pool is gone as a place to allocate from, and its id is free. What it has free goes back to the
// device, where it serves every pool; blocks that still live stay valid, and their memory follows
// when they are freed.
//
// CUDA GRAPHS
//   id = {n, 0}; berm_pool_route_begin(device, id, filter, ...); cuStreamBeginCapture(stream, ...);
//   ...work that allocates and frees on stream...; cuStreamEndCapture; berm_pool_route_end; and
//   when the graph is destroyed, berm_pool_release. Until then its memory is nobody else's and
//   keeps its addresses; the same id may be begun again, to share it with another graph.
//   Memory that a captured request gets is not in use by any queued work: a graph may be launched
//   on any stream. berm records no event on a stream that is captured, asks nothing about it, and
//   does not touch the context meanwhile, in any capture mode, the thread's or another's; frees
//   that need it wait until the capture has ended. It knows of captures of streams that it has
//   seen, of those that wait for the legacy stream, and of routes into private pools; another one
//   that begins unseen while a block is freed with BERM_STREAM_NONE is not protected.

// What a pool's memory is like.
enum {
    BERM_POOL_PRIVATE = 1,     // never given to another pool before the release, nor moved within;
                               // a pool becomes private when a captured stream allocates from it
    BERM_POOL_EXPORTABLE = 2,  // each block is one handle, a multiple of the granule, that can be
                               // exported as a file descriptor
    BERM_POOL_PINNED = 4,      // keeps its physical memory until the release
    BERM_POOL_PLAIN = 8,       // backed by cuMemAlloc: no page moves; not with EXPORTABLE
    BERM_POOL_RDMA = 16,       // network cards can reach it, where the device says so
    BERM_POOL_USE_ON_OOM = 32, // before a request for the default pool fails, what is free here
                               // serves it, on the stream that it was freed on; not with PRIVATE
    BERM_POOL_NO_SPLIT = 64,   // each block has memory of its own, whole granules: what is free
                               // serves only requests of exactly its number of granules; with
                               // PLAIN or a source aligned to 64 KiB at most (ALIGNMENT)
    BERM_POOL_RESIZABLE = 128, // each block has addresses behind it to grow into
                               // (berm_block_grow); with PINNED and RDMA only
};

// Where a pool gets its memory from instead of the driver; for allocators that the caller has
// already, such as the library of a network.
//
// All three are called by the thread whose call needs them, with no lock of berm's held, and that
// call waits for them. They may call the driver, also while a stream is captured (the thread's
// capture mode is relaxed), but of berm only what takes no memory of this pool. They must not wait
// for a thread that may be in berm, and callers of berm must not hold a lock that they take. Memory
// that several threads ask for at once is asked of `alloc` by each.
typedef struct berm_pool_source {
    // A new segment, for blocks on `stream` (BERM_STREAM_NONE: on any). 0: there is none, and the
    // request goes on as it does when the device is full. The address is best a multiple of 64 KiB;
    // where it is not, it is given back and a granule more is asked for.
    berm_addr_t (*alloc)(void *context, uint64_t size_bytes, int device, berm_stream_t stream);
    // Gives a segment back: nothing uses it any more.
    void (*free)(void *context, berm_addr_t addr, uint64_t size_bytes, int device,
                 berm_stream_t stream);
    // Called once, when neither of the two will be called again: the pool was released and its last
    // segment has gone back. May be NULL.
    void (*done)(void *context);
    void *context;
} berm_pool_source_t;

typedef struct berm_pool_options {
    size_t size;               // sizeof(berm_pool_options_t) of the caller
    uint32_t traits;           // BERM_POOL_*, or-ed; 0: memory that free pages may leave and enter
    uint32_t reserved_;        // 0
    berm_pool_source_t source; // alloc NULL: the driver
} berm_pool_options_t;

#define BERM_POOL_OPTIONS_INIT BERM_SIZED_INIT(berm_pool_options_t)

// Makes the pool `id` of `device`, or adds a use to it. NULL options: one of no traits, or whatever
// it is already.
//
// A pool with a source is PLAIN, whether it says so or not: its segments count as reserved, also
// against the limit, nothing in them moves, and whole ones go back to the source, by berm_trim, by
// decay, where memory is short, and after the release. A segment is asked for in 2 MiB for requests
// up to 1 MiB, in 20 MiB below 10 MiB (in what the request needs where that much is not to be had),
// and in multiples of 2 MiB above; with NO_SPLIT always in what the request needs. Memory that goes
// back is given to `free` at the end of the call that decided it, or of a later one. The source is
// the pool's from the time the call has succeeded; another use of the pool must name the same.
// Errors: ARGUMENT (the default id, an unknown trait, EXPORTABLE with PLAIN or a source, PRIVATE
// with USE_ON_OOM, a source with only one of alloc and free), VERSION, STATE (it exists with other
// traits or another source), UNSUPPORTED (a trait that the device does not have; EXPORTABLE where
// the option backing makes all memory plain), DEVICE, DRIVER, DEVICE_LOST, OUT_OF_HOST_MEMORY,
// SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: on first use of a trait. Waits: never. Streams: none.
BERM_API BERM_CHECKED berm_status_t berm_pool_create(int device, berm_pool_id_t id,
                                                     const berm_pool_options_t *options);

// Takes one use away. With the last one, routes to the pool end, and its memory goes back: what is
// free at once where no work uses it any more, the rest later. The memory of a private pool waits
// for all work queued on the device by now, which may be launches of its graphs.
// Errors: ARGUMENT (the default id), POOL_UNKNOWN (nothing was done), DEVICE, OUT_OF_HOST_MEMORY
// (nothing was done), SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: yes. Waits: only where the driver refuses an event or has no cuCtxRecordEvent.
// Streams: events on them.
BERM_API berm_status_t berm_pool_release(int device, berm_pool_id_t id);

// Whether a request on `stream` is to be routed. Called by whoever allocates on the device, from
// any thread, with no lock of berm's held; must be quick, and must not call berm.
typedef bool (*berm_pool_filter_fn)(berm_stream_t stream, void *context);

// From now on requests on `device` whose stream passes the filter go to the pool `id`: the newest
// route that takes a stream wins. A pool that does not exist is made, a private one; in either case
// a use is added. Requests that name no stream (BERM_STREAM_NONE) are not routed.
// To be called before the capture begins: then memory that was freed into the pool before, and is
// no longer in use, can serve it.
// Errors: ARGUMENT (the default id, a NULL filter), DEVICE, DRIVER, DEVICE_LOST,
// OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: events, where the pool has been used before. Waits: for work that uses memory freed into
// a pool that was captured before. Streams: events on them.
BERM_API BERM_CHECKED berm_status_t berm_pool_route_begin(int device, berm_pool_id_t id,
                                                          berm_pool_filter_fn filter,
                                                          void *context);

// Ends the newest route to the pool; the pool keeps its uses. When it returns the filter is not
// running and will not be called again.
// Errors: ARGUMENT (the default id), POOL_UNKNOWN (no route to such a pool: nothing was done),
// DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: for filters that run. Streams: none.
BERM_API berm_status_t berm_pool_route_end(int device, berm_pool_id_t id);

// As berm_alloc_aligned (pass 1 where alignment does not matter; 0 is refused), from the pool `id`;
// the default id is the default pool, whatever routes there are.
// Errors: as berm_alloc_aligned, and POOL_UNKNOWN.
// Driver: as berm_alloc_aligned, and asks whether the stream is captured. Waits, streams: as
// berm_alloc_aligned.
BERM_API BERM_CHECKED berm_status_t berm_alloc_from(berm_pool_id_t id, uint64_t size_bytes,
                                                    uint64_t alignment, int device,
                                                    berm_stream_t stream, berm_addr_t *out);

// Makes the live block at `addr`, of a pool with BERM_POOL_RESIZABLE, `size_bytes` large, where it
// is: pages are mapped behind it, nothing is copied, the address and what is in it stay. A size
// that is not above the present one does nothing. The new bytes may be used on the block's own
// stream, as those of a new block; streams that berm_record_stream named keep the whole block. On
// failure the block is as it was.
//
// Behind each block there are as many addresses as the device has memory, or fewer where those of
// the process are short. A pool's blocks have whole granules of memory each, which they share with
// no other block; what one leaves free behind its end serves it as it grows, and other pools when
// they need pages. Each growth costs a driver call for access and at most two for each granule, so
// many small steps cost more than few large ones.
// Errors: ADDRESS_UNKNOWN, ADDRESS_INTERIOR, ADDRESS_IMPORTED, DOUBLE_FREE, SIZE_ZERO,
// SIZE_TOO_LARGE, NOT_RESIZABLE, STATE (the block is pinned), POOL_UNKNOWN (the pool was released),
// OUT_OF_ADDRESSES (nothing is left behind the block), CAPTURE (its stream is being captured, and
// earlier work may still use what is free behind it), OUT_OF_DEVICE_MEMORY, LIMIT,
// OUT_OF_HOST_MEMORY, CEILING, DRIVER, DEVICE_LOST, SHUTDOWN, FORKED.
// Driver: where pages are missing. Waits, streams: as berm_alloc.
BERM_API BERM_CHECKED berm_status_t berm_block_grow(berm_addr_t addr, uint64_t size_bytes);

// What lives in a private pool at one time, to be made so again: for graphs that run one after the
// other in one pool, each of which finds its inputs where it found them when it was captured.
typedef struct berm_pool_state berm_pool_state_t;

// Takes the state of the pool `id`: its live blocks, their addresses, sizes and streams. *state is
// the caller's, to be given to berm_pool_state_destroy; NULL on failure. The memory is not touched
// and not kept from anybody: a state is a list. Blocks that were freed and are still awaited are
// not in it.
// Errors: ARGUMENT (the default id, NULL), POOL_UNKNOWN, STATE (the pool is not private, neither by
// its trait nor by a capture: its memory may leave it), UNSUPPORTED (EXPORTABLE, NO_SPLIT or
// RESIZABLE), DEVICE, OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED. Driver: never. Waits: never. Streams:
// none.
BERM_API BERM_CHECKED berm_status_t berm_pool_state_take(int device, berm_pool_id_t id,
                                                         berm_pool_state_t **state);

// A block that berm_pool_state_restore freed, or allocated. Called when the pool is restored, with
// no lock of berm's held; may call all of berm.
typedef void (*berm_pool_change_fn)(void *context, berm_addr_t addr, uint64_t requested_bytes);

// Makes the pool that `state` was taken from what it was then: of all its blocks exactly those of
// the state live, at their addresses, for their streams, with the sizes that were asked for. First
// `freed` is called for each block that lived before, then `allocated` for each block of the state;
// one that lives before and after is in both. Either may be NULL. A state may be restored any
// number of times, until its pool is released.
//
// All of it happens in the streams' order: work that is queued afterwards on a block's own stream
// may use it, and what other streams were recorded for a block that is freed is waited for. A block
// that lives before and after, in the same place, stays untouched, with its recorded streams. On
// failure nothing has changed.
// Errors: ARGUMENT (NULL), POOL_UNKNOWN (the pool was released since), STATE (addresses of the
// state are pinned, or were lost to an error of the driver), CAPTURE (a stream that uses the pool
// is being captured, or one that is to be waited for), DRIVER, DEVICE_LOST, OUT_OF_HOST_MEMORY,
// SHUTDOWN, FORKED.
// Driver: asks about captures, and where blocks are awaited. Waits: for other streams that use what
// is freed. Streams: events on them.
BERM_API BERM_CHECKED berm_status_t berm_pool_state_restore(const berm_pool_state_t *state,
                                                            berm_pool_change_fn freed,
                                                            berm_pool_change_fn allocated,
                                                            void *context);

// Forgets a state; the pool stays as it is. NULL is allowed, and so is a state whose pool or berm
// is gone.
// Driver: never. Waits: never. Streams: none.
BERM_API void berm_pool_state_destroy(berm_pool_state_t *state);

// ---------------------------------------------------------------------------------------------
// Limits and giving back
// ---------------------------------------------------------------------------------------------

// The most bytes berm may hold reserved on `device`; UINT64_MAX (the default) is no limit. A limit
// below what is reserved now is allowed: nothing grows until it fits again; berm_trim helps.
// It is the limit of this device only, and what berm_limit_get reads. The option `limit` is where
// every device begins, which this call does not change: berm_option_get("limit") reads that option
// still. berm_option_set("limit") sets it on all devices, over what this call has set before; the
// option per_process_memory_fraction may make it lower there.
// Errors: ARGUMENT (null out), DEVICE, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: on first use of the device. Waits: never. Streams: none.
BERM_API berm_status_t berm_limit_set(int device, uint64_t limit_bytes);
BERM_API berm_status_t berm_limit_get(int device, uint64_t *limit_bytes);

// What an application has to give when memory is short: it frees blocks, trims, empties caches of
// its own, and says whether it gave anything. `needed_bytes` is the size of the request that would
// fail on `device`.
//
// It is called by the thread whose request it is, with no lock of berm held, after pages were
// moved, idle memory was given back and pins were told, and before berm waits for other streams.
// When it says true the request is tried again; otherwise the next callback is called, in the order
// of registration, each once for a request. So a callback that keeps something can give a little at
// every request. Requests of other threads that would fail meanwhile wait for it.
//
// It may call all of berm but berm_init and berm_shutdown. A request that it makes itself, and that
// cannot be served, fails: no callback is called for it. It must not wait for a thread that may be
// in berm_alloc, and callers of berm_alloc must not hold a lock that it takes. While a stream is
// captured what it may do with the device is what the capture allows. One registered for several
// devices may be called for each of them at once.
typedef bool (*berm_pressure_fn)(void *arg, int device, uint64_t needed_bytes);

// Registers a callback for `device`, or for each (BERM_DEVICE_ANY). berm_shutdown ends it.
// Errors: ARGUMENT (no callback), STATE (registered with the same `device` and `arg`), DEVICE,
// OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED, START ERRORS.
// Driver: when it starts berm. Waits: never. Streams: none.
BERM_API berm_status_t berm_pressure_register(int device, berm_pressure_fn callback, void *arg);

// Ends a registration. When it returns the callback is not called any more and runs in no other
// thread; it may be called from within the callback itself, but not while holding a lock that the
// callback takes.
// Errors: ARGUMENT (there is no such registration), SHUTDOWN, FORKED.
// Driver: never. Waits: for the callback, where another thread is in it. Streams: none.
BERM_API berm_status_t berm_pressure_unregister(int device, berm_pressure_fn callback, void *arg);

// Gives cached physical memory of `device` back to the driver until at most `keep_bytes` of cached
// memory remain (0: all that is possible; whole handles only). *released_bytes (may be NULL) is
// what went back, also on failure. It empties thread caches of the device.
// Errors: DEVICE, CAPTURE (only with sync_edits), DRIVER, DEVICE_LOST, SHUTDOWN, FORKED, START
// ERRORS, DEVICE ERRORS.
// Driver: yes. Waits: for streams that still use freed memory. Streams: events on them.
BERM_API berm_status_t berm_trim(int device, uint64_t keep_bytes, uint64_t *released_bytes);

// Looks at the idle memory of `device` and gives back what the option decay_ms says is due: half of
// what became idle together is gone after half of that time, 90 % after three quarters, all after
// the whole. Idle is physical memory that no block needs and whose work is done. Age counts from
// the first tick that sees it; ticks are these calls, requests that nothing free could serve,
// trims, and the thread of the option background_thread. Between ticks nothing is given back. A
// tick in which no step (a 200th of the time) has begun does nothing, and so does one on a device
// that was not used yet. In a heap where nothing was allocated or freed since the last tick, what
// threads have cached counts as idle too.
// Errors: DEVICE, DRIVER, DEVICE_LOST, OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED.
// Driver: yes, when a tick is due. Waits: never, but that cuMemFree of plain memory does.
// Streams: events on them.
BERM_API berm_status_t berm_decay_tick(int device);

// ---------------------------------------------------------------------------------------------
// Options
// ---------------------------------------------------------------------------------------------

// Reads or sets one option by name (`berm conf` lists them). Setting an option after
// start works where the option says so, and returns BERM_ERROR_STATE where it does not. The text
// of a value is written to `value` (NUL-terminated, cut at `capacity` bytes).
// Starts berm where it does not run yet. "limit" is what all devices begin with; what
// berm_limit_set has set on one device since is not read here, and setting the option overrules it.
// Errors: ARGUMENT, OPTION_UNKNOWN, OPTION_VALUE, STATE, SHUTDOWN, FORKED, START ERRORS.
// Driver: when it starts berm. Waits: never. Streams: none.
BERM_API berm_status_t berm_option_set(const char *name, const char *value);
BERM_API berm_status_t berm_option_get(const char *name, char *value, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
