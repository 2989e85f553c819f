// SPDX-License-Identifier: Apache-2.0
// berm: who holds the memory, and why a request failed: tags and events. See berm.h for words,
// guarantees and the cost lines, berm_introspect.h for figures and questions.
#ifndef BERM_DIAGNOSE_H
#define BERM_DIAGNOSE_H

#include "berm_introspect.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------
// Tags
// ---------------------------------------------------------------------------------------------

enum {
    BERM_TAG_BYTES = 48,      // of a name, with its NUL
    BERM_TAG_COUNT_MAX = 255, // names in a process
    BERM_TAG_DEPTH_MAX = 32,  // tags of a thread at one time
};

// From now on, until the matching berm_tag_pop, each block that the calling thread asks for has
// this tag: berm_whatis and berm_walk tell it, reports and exports sort by it. Tags nest, and the
// innermost one counts. A tag belongs to its thread; it starts nothing, and stays over
// berm_shutdown.
//   name  1 to 47 bytes of UTF-8, copied; equal names are one tag
// Errors: ARGUMENT (NULL, empty, too long, or a control character in it), TAGS, STATE (32 tags of
// the thread are pushed). In a child of fork() it works.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_push(const char *name);

// Ends the innermost tag of the calling thread.
// Errors: STATE (the thread has none).
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_pop(void);

// Of a tag over time; both totals count up from the start of berm.
typedef struct berm_tag_figure {
    uint64_t current, total_up, total_down;
} berm_tag_figure_t;

// What was allocated under a tag on one device.
typedef struct berm_tag_stats {
    size_t size; // sizeof(berm_tag_stats_t) of the caller
    int device;
    uint32_t reserved_;
    berm_tag_figure_t blocks;          // live; requests; frees
    berm_tag_figure_t requested_bytes; //
    berm_tag_figure_t allocated_bytes; // what the blocks occupy
} berm_tag_stats_t;

#define BERM_TAG_STATS_INIT BERM_SIZED_INIT(berm_tag_stats_t)

// Fills *stats for the tag `name`; a name that was never pushed has zeros. Blocks are counted down
// when they are freed, also where a stream may still use them. Starts nothing.
// Errors: ARGUMENT, VERSION, DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_stats_read(int device, const char *name, berm_tag_stats_t *stats);

// Every tag that was ever pushed, in the order of first use: index from 0; NULL past the end.
// Static strings. Starts nothing.
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_tag_name(size_t index);

// ---------------------------------------------------------------------------------------------
// Quotas, and what would fit
// ---------------------------------------------------------------------------------------------

// The most bytes, as requested, that blocks with the tag `name` may have of `device` at a time;
// UINT64_MAX: no quota. A request over it gives BERM_ERROR_QUOTA at once: nothing is moved, waited
// for or given back for it, no callback is called, and no other request is touched. Threads never
// exceed it together. What lives already stays, also above a new quota. It starts berm and opens
// the device, and ends with berm_shutdown. While any quota is set no request is a hit of a thread's
// cache (some 100 ns more). Requests that other threads have begun when it is set may not be seen.
// A block that grows (berm_block_grow) is not looked at again.
//   name  as berm_tag_push has it
// Errors: ARGUMENT, TAGS, STATE (32 tags of the thread are pushed), DEVICE, SHUTDOWN, FORKED, START
// ERRORS, DEVICE ERRORS.
// Driver: when it starts berm or opens the device. Waits: never. Streams: none.
BERM_API berm_status_t berm_quota_set(int device, const char *name, uint64_t quota_bytes);

typedef struct berm_quota {
    size_t size;          // sizeof(berm_quota_t) of the caller
    uint64_t quota_bytes; // UINT64_MAX: none
    uint64_t live_bytes;  // of the tag, as requested
    uint64_t refused;     // requests, since berm was started
} berm_quota_t;

#define BERM_QUOTA_INIT BERM_SIZED_INIT(berm_quota_t)

// Fills *quota for a tag; one that was never pushed has none. Starts nothing.
// Errors: ARGUMENT, VERSION, DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_quota_get(int device, const char *name, berm_quota_t *quota);

// The cheapest step of berm_prices_t (below) that has room.
typedef enum berm_fit_step {
    BERM_FIT_NOW,
    BERM_FIT_WAITED,
    BERM_FIT_MOVED,
    BERM_FIT_TRIMMED,
    BERM_FIT_GROWN,
    BERM_FIT_NOT,   // the device, or its limit, has too little
    BERM_FIT_QUOTA, // the quota of the calling thread's tag has
} berm_fit_step_t;

typedef struct berm_fit {
    size_t size; // sizeof(berm_fit_t) of the caller
    berm_fit_step_t step;
    uint64_t missing_bytes;           // of NOT and QUOTA
    uint64_t modelled_us, learned_us; // of the step, as of berm_price_t
} berm_fit_t;

#define BERM_FIT_INIT BERM_SIZED_INIT(berm_fit_t)

// Whether requests of `sizes_bytes[0 .. count)`, all live together, would be served on (device,
// stream), and by what; nothing is allocated. Of one request it says what berm_obtainable_read
// says; of several it takes each in whole granules, so that what is said to fit does. It is of now,
// and no promise: other threads take what is free.
//   count  1 to 2^20
// Errors: ARGUMENT (NULL, count, a size of 0), SIZE_TOO_LARGE, VERSION, DEVICE, SHUTDOWN, FORKED,
// START ERRORS, DEVICE ERRORS.
// Driver, waits, streams: as berm_obtainable_read.
BERM_API berm_status_t berm_would_fit(int device, berm_stream_t stream, const uint64_t *sizes_bytes,
                                      size_t count, berm_fit_t *fit);

// ---------------------------------------------------------------------------------------------
// Events
// ---------------------------------------------------------------------------------------------
//
// With the option event_ring (on by default) berm keeps the last things that each thread allocated
// and freed, failures, and what was mapped and unmapped: at least 100,000 events of a process with
// few threads, in at most 8 MiB. An event has the time before which it cannot have been: exact
// where more than 3 microseconds lie between events of a thread, else right to 256 events of it.

typedef enum berm_trace_form {
    BERM_TRACE_RECORDING, // berm's own, JSON: for `berm export` and `berm report`
    BERM_TRACE_PYTORCH,   // a PyTorch memory snapshot: for torch.cuda._memory_viz and its viewer
    BERM_TRACE_RMM,       // RMM's log, of one device
    BERM_TRACE_REPLAY,    // event CSV of one device: for `berm replay` (docs/trace-format.md)
    BERM_TRACE_CSV,       // a line for each event with all that is known of it
    BERM_TRACE_CHROME,    // JSON for Perfetto: live and mapped bytes over time
    BERM_TRACE_FORM_COUNT
} berm_trace_form_t;

// Writes the events that are kept, and the blocks at their end, in one of the forms. Of `device`,
// or of all (BERM_DEVICE_ANY). A device that was not used yet has nothing. All of a device is of
// one moment, for which it is stopped; it empties its thread caches. It is put in order and written
// with no lock held; `write` must not call berm.
// Errors: ARGUMENT (no callback, no such form, BERM_DEVICE_ANY for a form of one device), DEVICE,
// OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED.
// Driver: cuMemGetInfo. Waits: never. Streams: none.
BERM_API berm_status_t berm_trace_write(int device, berm_trace_form_t form, berm_write_fn write,
                                        void *context);

// ---------------------------------------------------------------------------------------------
// What could be had
// ---------------------------------------------------------------------------------------------

// How large a request could be, at a price. `modelled` is the time in driver calls by the figures
// of published measurements (those of simcuda's latency `typical`), one call a page; `learned` the
// same by what the calls of this process took in the mean, UINT64_MAX where it has made none of a
// kind. How long the device's own work takes is not known: a wait is one call here.
typedef struct berm_price {
    uint64_t size_bytes; // of the largest request
    uint64_t pages;      // granules to be mapped for it
    uint64_t modelled_us, learned_us;
} berm_price_t;

typedef struct berm_prices {
    size_t size;          // sizeof(berm_prices_t) of the caller
    berm_price_t now;     // free now: no driver call for memory (berm_largest_free_read)
    berm_price_t waited;  // the same when streams have been waited for that use freed blocks
    berm_price_t moved;   // mapping at most as many pages as were asked about, free elsewhere
    berm_price_t trimmed; // all pages that are free, or will be after waits, wherever they are
    berm_price_t grown;   // and new memory, to the limit or to what the driver has
} berm_prices_t;

#define BERM_PRICES_INIT BERM_SIZED_INIT(berm_prices_t)

// Fills *prices for a request on (device, stream), each with all that is cheaper: they rise. They
// are of now, and no promise: other threads take what is free. `grown` is what
// berm_largest_obtainable_read says.
//   pages_max  of `moved`
// It starts berm and opens the device where need be, and empties thread caches of the device.
// Errors: ARGUMENT, VERSION, DEVICE, SHUTDOWN, FORKED, START ERRORS, DEVICE ERRORS.
// Driver: cuMemGetInfo, and as berm_largest_free_read. Waits: as berm_largest_free_read.
// Streams: events on them.
BERM_API berm_status_t berm_obtainable_read(int device, berm_stream_t stream, uint64_t pages_max,
                                            berm_prices_t *prices);

// ---------------------------------------------------------------------------------------------
// What grows
// ---------------------------------------------------------------------------------------------

// Sets a mark: berm_diff tells what lives later and did not now. The last 64 marks are kept, until
// berm_shutdown. It does not start berm.
//   mark  a number from 1, for berm_diff
// Errors: ARGUMENT, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_mark(uint64_t *mark);

// Blocks of one tag and one size.
typedef struct berm_diff_s {
    size_t size; // sizeof(berm_diff_t) of the library
    int device;
    const char *tag;                  // "": none
    uint64_t each_bytes;              // asked for
    uint64_t blocks;                  // how many
    uint64_t first_index, last_index; // the n-th requests of the device, oldest and newest
} berm_diff_t;

// Called with no lock held; may call all of berm but berm_init and berm_shutdown. False: enough.
typedef bool (*berm_diff_fn)(void *context, const berm_diff_t *diff);

// What lives on `device`, or on any (BERM_DEVICE_ANY), and was asked for after the mark; mark 0 is
// before all. Most bytes first, one device after the other. It empties thread caches, and stops
// each device while it looks.
// Errors: ARGUMENT (no callback, no such mark), DEVICE, OUT_OF_HOST_MEMORY, SHUTDOWN, FORKED.
// Driver: cuMemGetInfo. Waits: never. Streams: none.
BERM_API berm_status_t berm_diff(int device, uint64_t mark, berm_diff_fn fn, void *context);

#ifdef __cplusplus
}
#endif

#endif
