// SPDX-License-Identifier: Apache-2.0
// Kernels that write and verify patterns: see kernels.h. Which blocks and when is left to
// contents.c.
//
// They are host functions that the simulated device runs when their time has come, inside whichever
// driver call moved the clock; they call nothing of the driver's.
// Bounds: a small allocation each, two bytes of traffic for one of a block. Locks: none; one
// thread. May fail: for want of host memory, and as launches do.
#include "stress/contents/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defs.h"
#include "stress/device.h"

#define STEP UINT64_C(0x9e3779b97f4a7c15)

typedef struct launch {
    berm_list_t node;
    contents_kernels_t *kernels;
    contents_kernel_t kernel;
} launch_t;

// --- patterns ------------------------------------------------------------------------------------

// splitmix64: neighbouring blocks and versions have seeds far apart.
uint64_t contents_seed(uint64_t block, uint64_t version) {
    uint64_t value = (block * 65599 + version + 1) * STEP;
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void contents_write(void *to, uint64_t size_bytes, uint64_t seed) {
    unsigned char *at = to;
    uint64_t words = size_bytes / sizeof(uint64_t), rest = size_bytes % sizeof(uint64_t);
    for (uint64_t i = 0; i < words; i++, seed += STEP)
        memcpy(at + i * sizeof seed, &seed, sizeof seed);
    memcpy(at + words * sizeof seed, &seed, rest);
}

static uint64_t wrong_in(const unsigned char *found, uint64_t wanted, uint64_t count,
                         uint64_t *first) {
    unsigned char bytes[sizeof wanted];
    uint64_t wrong = 0;
    memcpy(bytes, &wanted, sizeof bytes);
    for (uint64_t i = 0; i < count; i++) {
        if (found[i] == bytes[i])
            continue;
        if (wrong++ == 0)
            *first = i;
    }
    return wrong;
}

uint64_t contents_wrong_bytes(const void *from, uint64_t size_bytes, uint64_t seed,
                              uint64_t *first) {
    const unsigned char *at = from;
    uint64_t words = size_bytes / sizeof(uint64_t), rest = size_bytes % sizeof(uint64_t);
    uint64_t differs = 0, expected = seed, word;
    for (uint64_t i = 0; i < words; i++, expected += STEP) {
        memcpy(&word, at + i * sizeof word, sizeof word);
        differs |= word ^ expected;
    }
    uint64_t in_word = 0, tail = wrong_in(at + words * sizeof word, expected, rest, &in_word);
    if (BERM_LIKELY(differs == 0 && tail == 0))
        return 0;
    uint64_t wrong = 0;
    *first = words * sizeof word + in_word;
    for (uint64_t i = 0; i < words; i++, seed += STEP) {
        uint64_t found = wrong_in(at + i * sizeof word, seed, sizeof word, &in_word);
        if (found != 0 && wrong == 0)
            *first = i * sizeof word + in_word;
        wrong += found;
    }
    return wrong + tail;
}

// --- launches ------------------------------------------------------------------------------------

static void kernel_run(void *argument) {
    launch_t *launch = argument;
    contents_kernels_t *k = launch->kernels;
    const contents_kernel_t *kernel = &launch->kernel;
    void *memory = (void *)(uintptr_t)kernel->addr;
    uint64_t first = 0;
    if (kernel->verifies) {
        uint64_t wrong = contents_wrong_bytes(memory, kernel->size_bytes, kernel->old_seed, &first);
        if (wrong != 0 && k->wrong_bytes == 0)
            (void)snprintf(k->first_wrong, sizeof k->first_wrong,
                           "block %" PRIu64 " of %" PRIu64 " byte%s at 0x%" PRIx64 ": %" PRIu64
                           " wrong byte%s from offset %" PRIu64,
                           kernel->block, kernel->size_bytes, BERM_PLURAL(kernel->size_bytes),
                           kernel->addr, wrong, BERM_PLURAL(wrong), first);
        k->wrong_bytes += wrong;
        k->verified_bytes += kernel->size_bytes;
    }
    if (kernel->writes) {
        contents_write(memory, kernel->size_bytes, kernel->new_seed);
        k->written_bytes += kernel->size_bytes;
    }
    if (kernel->spoils)
        ((unsigned char *)memory)[kernel->size_bytes / 2] ^= 0x55;
    k->run++;
    berm__list_remove(&launch->node);
    free(launch);
}

void contents_kernels_init(contents_kernels_t *k) {
    *k = (contents_kernels_t){0};
    berm__list_init(&k->waiting);
}

void contents_kernels_destroy(contents_kernels_t *k) {
    while (!berm__list_is_empty(&k->waiting)) {
        launch_t *launch = BERM_CONTAINER_OF(k->waiting.next, launch_t, node);
        berm__list_remove(&launch->node);
        free(launch);
    }
}

int contents_kernels_queue(contents_kernels_t *k, void *stream, uint64_t duration_ns,
                           const contents_kernel_t *kernel) {
    launch_t *launch = malloc(sizeof *launch);
    if (launch == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    launch->kernels = k;
    launch->kernel = *kernel;
    berm__list_push_back(&k->waiting, &launch->node);
    const simcuda_access_t access = {kernel->addr, kernel->size_bytes,
                                     kernel->writes || kernel->spoils};
    k->queued++;
    // It may be queued even where the call fails: what waits is freed at the end.
    return stress_simcuda()->launch_fn(stream, duration_ns, &access, 1, kernel_run, launch);
}
