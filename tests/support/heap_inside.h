// SPDX-License-Identifier: Apache-2.0
// For tests that are linked with the allocator's internals (unit, model, fault): from the fixture's
// heap to its structs, and a device opened without a heap.
#ifndef BERM_TESTS_HEAP_INSIDE_H
#define BERM_TESTS_HEAP_INSIDE_H

#include "front/heap.h"
#include "tests/support/heap_fixture.h"

// The open device 0; aborts if it was not used yet.
berm_device_t *heap_device(void);
// The pool of a stream of device 0; aborts if there is none.
berm_pool_t *heap_pool(void *stream);
// A pool's first segment.
berm_segment_t *heap_segment(const berm_pool_t *pool);
// The range that begins at an address of the pool's first segment; aborts if none does.
berm_range_t *heap_range(const berm_pool_t *pool, berm_addr_t addr);

// Physical bytes that no reclaiming can free now: handles of device 0 with a live byte, and those
// of pools whose pages stay.
uint64_t heap_pinned_bytes(void);

// BERM_TEST_END, and that berm then holds no host memory either.
void heap_inside_end(const char *file, int line);
#define BERM_TEST_END_INSIDE() heap_inside_end(__FILE__, __LINE__)

// A device of the fixture without a heap: the layers below policy, driven by hand.
typedef struct gpu_fixture {
    berm_drv_t drv;
    berm_gpu_t gpu;
    bool is_pushed;
} gpu_fixture_t;

void gpu_fixture_begin(gpu_fixture_t *fixture, const heap_fixture_options_t *options);
void gpu_fixture_end(gpu_fixture_t *fixture);

#endif
