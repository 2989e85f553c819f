// SPDX-License-Identifier: Apache-2.0
// How many requests and frees of the program berm served, and how many went to the driver. With
// the option stats one line at the exit of the process says so.
//
// Locks: none, each count is atomic.
#ifndef PRELOAD_COUNTS_H
#define PRELOAD_COUNTS_H

#include <stdint.h>

typedef enum preload_count {
    COUNT_SERVED,        // requests that berm gave memory
    COUNT_SERVED_BYTES,  // their bytes
    COUNT_REFUSED,       // requests that failed for lack of memory
    COUNT_PASSED,        // requests that the driver was asked for
    COUNT_FREED,         // frees of berm's blocks
    COUNT_FREES_REFUSED, // frees of what is no block any more, or inside of one
    COUNT_FREES_PASSED,  // frees of memory that is not berm's
    COUNT_KINDS
} preload_count_t;

void preload_count(preload_count_t kind, uint64_t by);

#endif
