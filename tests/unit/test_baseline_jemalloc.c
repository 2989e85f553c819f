// SPDX-License-Identifier: Apache-2.0
// jemalloc over device addresses. The simulated device's addresses are no host memory: any touch of
// them would end the test.
#include <string.h>

#include "base/rng.h"
#include "stress/baselines/jemalloc_extents.h"

#define BASELINE_OPS stress_jemalloc_ops
#include "tests/unit/baseline_helpers.h"

Test(baseline_jemalloc, has_jemalloc_size_classes) {
    open_device(BERM_GIB(1), "");
    (void)alloc_on(BERM_MIB(1) + 1, 0);
    cr_assert(figures().allocated_bytes == BERM_KIB(1280), "four classes a doubling");
    cr_assert(figures().requested_bytes == BERM_MIB(1) + 1);
    (void)alloc_on(1, 0);
    cr_assert(figures().allocated_bytes == BERM_KIB(1280) + 512);
    close_device();
}

Test(baseline_jemalloc, reuses_what_it_keeps) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc_on(BERM_MIB(64), 0);
    uint64_t reserved_bytes = figures().reserved_bytes;
    release(addr);
    cr_assert(figures().reserved_bytes == reserved_bytes, "dirty extents stay");
    stress_calls_t before = stress_device_calls();
    (void)alloc_on(BERM_MIB(64), 0);
    stress_calls_t after = stress_device_calls();
    cr_assert(stress_calls_memory(&after) == stress_calls_memory(&before));
    close_device();
}

Test(baseline_jemalloc, has_an_arena_for_each_stream) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc_on(BERM_MIB(20), 0);
    release(addr);
    uint64_t reserved_bytes = figures().reserved_bytes;
    cr_assert(alloc_on(BERM_MIB(20), 1) != addr);
    cr_assert(figures().reserved_bytes >= reserved_bytes + BERM_MIB(20));
    close_device();
}

Test(baseline_jemalloc, purges_when_the_device_is_full) {
    open_device(BERM_MIB(64), "");
    uint64_t addr = alloc_on(BERM_MIB(40), 0);
    release(addr);
    (void)alloc_on(BERM_MIB(40), 1);
    cr_assert(figures().reserved_bytes <= BERM_MIB(64) && figures().host_waits > 0);
    uint64_t other = 0;
    cr_assert(ops->alloc(a, BERM_MIB(40), stress_work_stream(work, 0), &other) ==
              STRESS_OUT_OF_MEMORY);
    check();
    close_device();
}

Test(baseline_jemalloc, never_touches_device_memory) {
    open_device(BERM_GIB(4), "");
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    uint64_t live[64] = {0};
    for (int i = 0; i < 4000; i++) {
        uint64_t *slot = &live[berm__rng_below(&rng, 64)];
        if (*slot != 0)
            release(*slot);
        uint64_t size_bytes = UINT64_C(1) << (9 + berm__rng_below(&rng, 17));
        *slot = alloc_on(size_bytes + berm__rng_below(&rng, size_bytes), (uint32_t)i % 2);
    }
    close_device();
}

Test(baseline_jemalloc, refuses_bad_calls) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, 0, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->alloc(a, UINT64_C(1) << 60, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->alloc(a, BERM_GIB(2), stress_work_stream(work, 0), &addr) ==
              STRESS_OUT_OF_MEMORY);
    cr_assert(ops->free(a, 0x1234, 0, NULL) == STRESS_ERROR);
    const stress_allocator_options_t options = {.conf = "x", .limit_bytes = UINT64_MAX};
    cr_assert(ops->create(&options, error, sizeof error) == NULL);
    close_device();
}
