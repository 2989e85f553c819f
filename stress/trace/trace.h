// SPDX-License-Identifier: Apache-2.0
// A trace in memory: the allocations and frees of one program, whatever file they came from.
//
// Blocks are numbered from 0 in the order of their alloc events; `block` of an event indexes
// `blocks`. Blocks that were live before the recording began come first, in address order, as
// ordinary alloc events. Streams are numbered from 0 in order of appearance; 0 is the first seen.
//
// Invariants (trace_check): every free names a live block; a FREE of a block with `is_deferred` is
// followed by exactly one FREE_DONE, every other FREE by none; sizes are 1 to 2^62.
#ifndef STRESS_TRACE_TRACE_H
#define STRESS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_op {
    TRACE_ALLOC,
    TRACE_FREE,      // the program let go of the block
    TRACE_FREE_DONE, // the last other stream was done with it (PyTorch's free_completed, where it
                     // did not directly follow free_requested)
    TRACE_OOM,       // the recorded program's own allocation of size_bytes failed here
} trace_op_t;

typedef struct trace_event {
    uint8_t op; // trace_op_t
    uint32_t block;
    uint64_t time_us; // since the first event; 0 where the source has no time
} trace_event_t;

typedef struct trace_block {
    uint64_t size_bytes; // requested
    uint32_t stream;     // index into streams
    bool is_deferred;
} trace_block_t;

typedef struct trace {
    char *path;         // as given
    const char *format; // "pytorch-snapshot", "rmm-csv", "event-csv", "lifetimes-csv", "generated"
    trace_event_t *events;
    size_t event_count;
    trace_block_t *blocks;
    size_t block_count;
    uint64_t *streams; // the source's stream values
    size_t stream_count;
    size_t live_before; // number of blocks live before the recording
    int device;         // of the source
    // Counted by the reader from the events:
    size_t alloc_count, free_count, live_at_end;
    uint64_t peak_live_bytes; // requested bytes of live blocks (deferred ones until FREE)
    // What the source's own allocator had reserved, 0 where unknown: at the live peak, at most.
    uint64_t source_reserved_at_peak_bytes, source_reserved_peak_bytes;
} trace_t;

typedef struct trace_read_options {
    uint64_t scale; // lifetimes CSV: bytes per unit of size; 0 is 1
    int device;     // PyTorch snapshot: which device's trace; -1 the one with most events
} trace_read_options_t;

// Reads a trace; the format is found by content, gzip or not. Returns NULL with one line in
// `error` ("FILE:LINE: what" or "FILE: at byte OFFSET: what") on bad input or no memory.
// A file that claims more than it holds is refused before memory is taken for it.
trace_t *trace_read(const char *path, const trace_read_options_t *options, char *error,
                    size_t error_capacity);
void trace_destroy(trace_t *trace);

uint64_t trace_live_end_bytes(const trace_t *trace); // of blocks that no event frees

// Writes event CSV ("event_index,op,id,size_bytes,stream"), gzip if the path ends in ".gz".
// 0, or -1 with a line in `error`.
int trace_write_csv(const trace_t *trace, const char *path, char *error, size_t error_capacity);

#endif
