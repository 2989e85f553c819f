// SPDX-License-Identifier: Apache-2.0
// Verifies every byte of libberm's blocks on a simulated device whose memory has contents.
//
// Random operations over four streams on a device that is nearly full: allocate, kernels that write
// a pattern into a block and kernels that verify it, on the block's own stream and on others behind
// an event, record_stream, frees on the own stream, on another, on none, trims. Each block is
// verified by a queued kernel before its free, so a page that moves too early, or memory that is
// given out too early, shows as wrong bytes, as a hazard of the device, or as both.
#ifndef STRESS_CONTENTS_CONTENTS_H
#define STRESS_CONTENTS_CONTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/emit.h"

enum {
    STRESS_CONTENTS_STREAMS = 4,
};

// What is done wrong on purpose, to see that it is found.
typedef enum stress_contents_mistake {
    STRESS_CONTENTS_RIGHT,
    STRESS_CONTENTS_WRONG_BYTE,  // half way, one byte of one block is changed
    STRESS_CONTENTS_WRONG_ORDER, // from half way on, other streams use blocks that berm is not told
                                 // about
} stress_contents_mistake_t;

typedef struct stress_contents_options {
    const char *conf; // of libberm; "" for none
    uint64_t operations;
    uint64_t seed;
    uint64_t audit_every; // operations; 0: never
    stress_contents_mistake_t mistake;
    void (*progress)(void *context, uint64_t done, uint64_t total); // or NULL
    void *progress_context;
} stress_contents_options_t;

typedef struct stress_contents_result {
    uint64_t operations;
    uint64_t allocs, refused;                        // refused: no memory, another block was freed
    uint64_t frees, frees_elsewhere, frees_on_none;  // the last two of `frees`
    uint64_t uses, uses_elsewhere, recorded_streams; // kernels but for those of alloc and free
    uint64_t trims, audits;
    uint64_t kernels, kernels_not_run; // not run: its memory was gone, or a fault
    uint64_t written_bytes, verified_bytes, wrong_bytes;
    uint64_t hazards;
    uint64_t moves, moved_bytes, host_waits;
    uint64_t live_peak_bytes, reserved_peak_bytes, capacity_bytes;
    uint64_t leaked; // reservations, handles and mappings left after the end
    uint64_t device_ns;
    char first_wrong[160], first_hazard[256];
    char failure[256]; // what ended the run early, or ""
} stress_contents_result_t;

void stress_contents_options_default(stress_contents_options_t *options);

// On the device that stress_device_open has opened with is_backed; it is made anew. 0 when it ran,
// to the end or to a failure; -1 with a line in `error` when it could not start.
int stress_contents_run(const stress_contents_options_t *options, stress_contents_result_t *result,
                        char *error, size_t error_capacity);

// No wrong byte, no hazard, all kernels run, nothing leaked, no failure.
bool stress_contents_is_good(const stress_contents_result_t *result);
void stress_contents_emit(berm_emit_t *emit, const stress_contents_result_t *result);

#endif
