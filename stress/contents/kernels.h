// SPDX-License-Identifier: Apache-2.0
// Internal to stress/contents: kernels of the simulated device that write and verify patterns.
#ifndef STRESS_CONTENTS_KERNELS_H
#define STRESS_CONTENTS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

// What one kernel does, at the moment it ends. A pattern is the words seed, seed + K, seed + 2 K,
// ..., so that each byte of a block depends on the block and on where it is.
typedef struct contents_kernel {
    uint64_t addr, size_bytes;
    bool verifies, writes, spoils; // in this order; spoiling changes one byte
    uint64_t old_seed, new_seed;   // what is verified, what is written
    uint64_t block;                // for messages
} contents_kernel_t;

typedef struct contents_kernels {
    uint64_t queued, run;
    uint64_t written_bytes, verified_bytes, wrong_bytes;
    char first_wrong[160];
    berm_list_t waiting; // queued and not run
} contents_kernels_t;

void contents_kernels_init(contents_kernels_t *kernels);
// To be called when nothing that is queued can run any more: the device was reset.
void contents_kernels_destroy(contents_kernels_t *kernels);
// Queues a kernel that takes `duration_ns`; 0 or a CUresult.
int contents_kernels_queue(contents_kernels_t *kernels, void *stream, uint64_t duration_ns,
                           const contents_kernel_t *kernel);

// The seed of a block's n-th contents.
uint64_t contents_seed(uint64_t block, uint64_t version);
void contents_write(void *to, uint64_t size_bytes, uint64_t seed);
// How many bytes differ from the pattern; *first is the offset of the first that does.
uint64_t contents_wrong_bytes(const void *from, uint64_t size_bytes, uint64_t seed,
                              uint64_t *first);

#endif
