// SPDX-License-Identifier: Apache-2.0
// jemalloc over device addresses. The simulated device's addresses are no host memory: any touch of
// them would end the test.
#include <criterion/criterion.h>
#include <string.h>

#include "base/defs.h"
#include "base/rng.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/jemalloc_extents.h"
#include "stress/work.h"

static const stress_allocator_ops_t *const ops = &stress_jemalloc_ops;
static stress_allocator_t *a;
static stress_work_t *work;
static char error[512];

static void open_device(uint64_t capacity_bytes) {
    const stress_device_options_t device = {
        .name = "sim", .capacity_bytes = capacity_bytes, .is_strict = true};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    const stress_work_options_t modelled = {5000, 4000, 200000};
    work = stress_work_create(2, &modelled, error, sizeof error);
    cr_assert(work != NULL, "%s", error);
    const stress_allocator_options_t options = {
        .conf = "", .headroom_pct = -1, .limit_bytes = UINT64_MAX};
    a = ops->create(&options, error, sizeof error);
    cr_assert(a != NULL, "%s", error);
}

static void close_device(void) {
    uint64_t live_blocks = 0;
    ops->destroy(a, &live_blocks);
    stress_work_destroy(work);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.used_bytes == 0 && ledger.reservations == 0);
    cr_assert(stress_simcuda()->hazard_count() == 0);
    stress_device_close();
}

static stress_figures_t figures(void) {
    stress_figures_t f;
    ops->figures(a, &f);
    return f;
}

static void check(void) {
    cr_assert(ops->audit(a, error, sizeof error) == 0, "%s", error);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(figures().reserved_bytes == ledger.used_bytes);
}

static uint64_t alloc_on(uint64_t size_bytes, uint32_t stream) {
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, size_bytes, stress_work_stream(work, stream), &addr) == STRESS_OK);
    cr_assert(addr % 512 == 0);
    check();
    cr_assert(stress_work_use(work, stream, addr, size_bytes, true) == 0);
    return addr;
}

static void release(uint64_t addr) {
    cr_assert(ops->free(a, addr, 0, NULL) == STRESS_OK);
    check();
}

Test(baseline_jemalloc, has_jemalloc_size_classes) {
    open_device(BERM_GIB(1));
    (void)alloc_on(BERM_MIB(1) + 1, 0);
    cr_assert(figures().allocated_bytes == BERM_KIB(1280), "four classes a doubling");
    cr_assert(figures().requested_bytes == BERM_MIB(1) + 1);
    (void)alloc_on(1, 0);
    cr_assert(figures().allocated_bytes == BERM_KIB(1280) + 512);
    close_device();
}

Test(baseline_jemalloc, reuses_what_it_keeps) {
    open_device(BERM_GIB(1));
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
    open_device(BERM_GIB(1));
    uint64_t addr = alloc_on(BERM_MIB(20), 0);
    release(addr);
    uint64_t reserved_bytes = figures().reserved_bytes;
    cr_assert(alloc_on(BERM_MIB(20), 1) != addr);
    cr_assert(figures().reserved_bytes >= reserved_bytes + BERM_MIB(20));
    close_device();
}

Test(baseline_jemalloc, purges_when_the_device_is_full) {
    open_device(BERM_MIB(64));
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
    open_device(BERM_GIB(4));
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
    open_device(BERM_GIB(1));
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
