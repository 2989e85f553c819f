// SPDX-License-Identifier: Apache-2.0
// What replay, fit, bench and stress ask of any allocator: berm and the baselines alike. Each runs
// on the driver that is loaded (simulated or real); none gets anything the others do not.
#ifndef STRESS_ALLOCATOR_H
#define STRESS_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stress_allocator stress_allocator_t; // the allocator's own

typedef enum stress_result {
    STRESS_OK = 0,
    STRESS_OUT_OF_MEMORY,
    STRESS_ERROR, // anything else; message says what
} stress_result_t;

typedef struct stress_allocator_options {
    int device;
    const char *conf;     // options string of the allocator itself, "" for none
    double headroom_pct;  // < 0: the allocator's default
    uint64_t limit_bytes; // UINT64_MAX: none; the device's own capacity is simcuda's business
} stress_allocator_options_t;

typedef struct stress_figures {
    uint64_t requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
    uint64_t reserved_peak_bytes; // exact, since creation or the last peaks_reset
    uint64_t allocated_peak_bytes;
    uint64_t moved_bytes; // physical bytes given another address, since creation
    uint64_t host_waits;
    uint64_t planned_requests; // served where a plan made beforehand has them
} stress_figures_t;

typedef struct stress_allocator_ops {
    const char *name;
    const char *summary; // one line for --help
    // Creates one; NULL with a line in `error`. Streams are CUstreams of the device's primary
    // context.
    stress_allocator_t *(*create)(const stress_allocator_options_t *options, char *error,
                                  size_t error_capacity);
    // Frees everything, live blocks included; *live_blocks is how many there were by its own count.
    void (*destroy)(stress_allocator_t *allocator, uint64_t *live_blocks);
    stress_result_t (*alloc)(stress_allocator_t *allocator, uint64_t size_bytes, void *stream,
                             uint64_t *addr);
    // `stream` is the block's own. Returns STRESS_ERROR for an address it does not know.
    stress_result_t (*free)(stress_allocator_t *allocator, uint64_t addr, uint64_t size_bytes,
                            void *stream);
    // NULL where the allocator has none: the harness then waits for the stream before the free.
    stress_result_t (*record_stream)(stress_allocator_t *allocator, uint64_t addr, void *stream);
    void (*figures)(stress_allocator_t *allocator, stress_figures_t *figures);
    void (*peaks_reset)(stress_allocator_t *allocator);
    // As design 8 defines it; 0 where nothing is free.
    uint64_t (*largest_free)(stress_allocator_t *allocator, void *stream);
    uint64_t (*largest_obtainable)(stress_allocator_t *allocator, void *stream); // or NULL
    // Why the last alloc failed, in its own words, or ""; NULL where it has none.
    const char *(*message)(stress_allocator_t *allocator);
    // Can be made once a process: each replay runs in one of its own (stress/child.h), which also
    // keeps what the allocator never gives back but memory (events, contexts).
    bool is_per_process;
    bool takes_headroom;      // the option of the harness means something to it
    uint32_t alignment_bytes; // that every address has; 0: 512
    // 0 when consistent; otherwise a non-zero number and a line. NULL where there is no audit.
    int (*audit)(stress_allocator_t *allocator, char *error, size_t error_capacity);
} stress_allocator_ops_t;

// NULL-terminated, in the order of --help.
extern const stress_allocator_ops_t *const stress_allocators[];
const stress_allocator_ops_t *stress_allocator_find(const char *name); // NULL if unknown

#endif
