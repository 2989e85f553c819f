// SPDX-License-Identifier: Apache-2.0
// Adversaries: programs that see where an allocator puts blocks and choose by that what to free,
// so that what is free is of least use. They draw no numbers: a run is the same each time.
#ifndef STRESS_ADVERSARY_ADVERSARY_H
#define STRESS_ADVERSARY_ADVERSARY_H

#include "stress/allocator.h"
#include "stress/device.h"

typedef struct stress_adversary_options {
    const char *kind;
    const stress_allocator_ops_t *ops;
    const char *conf;        // of the allocator; "" for none
    double headroom_pct;     // < 0: the allocator's default
    uint64_t unit_bytes;     // of the smallest block, a multiple of 512
    uint64_t live_bytes;     // budget of live bytes, a multiple of unit_bytes, at least 64 of them
    uint64_t capacity_bytes; // of the device; 0: 16 times live_bytes
} stress_adversary_options_t;

typedef struct stress_adversary_result {
    const char *kind, *allocator;
    uint64_t unit_bytes, capacity_bytes;
    uint64_t allocs, frees, served_bytes;
    uint64_t peak_live_bytes, peak_reserved_bytes;
    uint64_t peak_pinned_bytes; // of granules that held a live byte, at most at once
    uint64_t peak_beside_bytes; // of berm's large handles, all but a granule of each
    double reserved_over_live;
    bool has_bound;       // berm only
    uint64_t bound_bytes; // on peak_reserved_bytes, by docs/stress.md
    uint64_t moved_bytes, host_waits, driver_ns;
    bool is_refused; // a request was, at this live, with this size
    uint64_t refused_live_bytes, refused_size_bytes;
    uint64_t hazards, leaked;
    char first_hazard[256];
    char failure[256]; // what ended the run early or did not agree, or ""
} stress_adversary_result_t;

// Names and summaries, for --help; NULL after the last.
const char *stress_adversary_name(size_t index);
const char *stress_adversary_summary(size_t index);

// On the simulated device that stress_device_open has opened; it is made anew. 0 when it ran, to
// the end, a refusal or a failure; -1 with a line in `error` when it could not start.
int stress_adversary_run(const stress_adversary_options_t *options,
                         stress_adversary_result_t *result, char *error, size_t error_capacity);

// No hazard, no leak, no failure, nothing refused, and the bound held where there is one.
bool stress_adversary_is_good(const stress_adversary_result_t *result);
void stress_adversary_emit(berm_emit_t *emit, const stress_adversary_result_t *result);

#endif
