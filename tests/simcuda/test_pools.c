// SPDX-License-Identifier: Apache-2.0
// Memory pools: allocation in stream order, the rules of reuse, thresholds, access, misuse.
#include "sim_test.h"

#define POOL_AREA MIB(32)

static berm_cu_mem_pool_t pool;
static berm_cu_stream_t a, b;

static void start_pool(void) {
    start();
    a = stream_new(1);
    b = stream_new(1);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    uint64_t all = UINT64_MAX;
    OK(cuMemPoolSetAttribute(pool, BERM_CU_POOL_RELEASE_THRESHOLD, &all));
}

static uint64_t attribute(int which) {
    uint64_t value = 0;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void reuse_set(int which, int value) {
    OK(cuMemPoolSetAttribute(pool, which, &value));
}

static berm_cu_deviceptr_t alloc(size_t bytes, berm_cu_stream_t stream) {
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAllocAsync(&addr, bytes, stream));
    return addr;
}

Test(pool, a_block_is_used_in_stream_order) {
    start_pool();
    berm_cu_deviceptr_t addr = alloc(1000, a);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.allocations == 1 && ledger.allocation_bytes == 1000);
    cr_assert(ledger.pool_bytes == POOL_AREA && ledger.used_bytes == POOL_AREA);
    OK(launch(a, 1000, addr, 1000, 1));
    OK(cuMemFreeAsync(addr, a));
    HAZARDS(0);
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.allocations == 0 && ledger.used_bytes == POOL_AREA);
    OK(launch(a, 1000, addr, 8, 1));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_UNMAPPED);
}

Test(pool, another_stream_must_be_ordered) {
    start_pool();
    berm_cu_event_t event = event_new();
    berm_cu_deviceptr_t addr = alloc(1000, a);
    OK(launch(b, 1000, addr, 8, 1)); // before the block is there
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_RACE);
    OK(cuCtxSynchronize());
    simcuda_hazards_clear();
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(launch(b, 1000, addr, 8, 1));
    HAZARDS(0);
    OK(cuMemFreeAsync(addr, a)); // while b may use it
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_RACE);
}

Test(pool, one_stream_reuses_at_once) {
    start_pool();
    uint64_t gate;
    OK(simcuda_gate(a, NULL, 0, &gate)); // nothing ends meanwhile
    berm_cu_deviceptr_t first = alloc(MIB(1), a);
    OK(cuMemFreeAsync(first, a));
    cr_assert(alloc(MIB(1), a) == first);
    OK(simcuda_gate_open(gate));
    HAZARDS(0);
}

// A block freed on a, behind a gate; what b gets.
static int b_reuses(int is_done, int has_event, uint64_t *ns) {
    uint64_t gate = 0;
    berm_cu_event_t event = event_new();
    OK(cuCtxSynchronize());
    if (!is_done)
        OK(simcuda_gate(a, NULL, 0, &gate));
    berm_cu_deviceptr_t first = alloc(MIB(1), a);
    OK(cuMemFreeAsync(first, a));
    OK(cuEventRecord(event, a));
    if (has_event)
        OK(cuStreamWaitEvent(b, event, 0));
    simcuda_advance_ns(1000);
    berm_cu_deviceptr_t second = alloc(MIB(1), b);
    OK(launch(b, 1000, second, 8, 1));
    OK(cuMemFreeAsync(second, b));
    if (!is_done) {
        simcuda_advance_ns(1000000);
        OK(simcuda_gate_open(gate));
    }
    uint64_t before = simcuda_now_ns();
    OK(cuStreamSynchronize(b));
    *ns = simcuda_now_ns() - before;
    OK(cuCtxSynchronize());
    HAZARDS(0);
    return first == second;
}

Test(pool, rules_of_reuse) {
    uint64_t ns;
    start_pool();
    cr_assert(b_reuses(1, 0, &ns), "opportunistic");
    cr_assert(b_reuses(0, 1, &ns), "follows an event");
    cr_assert(b_reuses(0, 0, &ns) == 0, "there is other memory: it need not wait");
    reuse_set(BERM_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC, 0);
    cr_assert(!b_reuses(1, 0, &ns));
    reuse_set(BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
    cr_assert(!b_reuses(0, 1, &ns));
}

Test(pool, internal_dependencies_wait_where_nothing_else_fits) {
    for (int is_allowed = 0; is_allowed < 2; is_allowed++) {
        OK(simcuda_reset(NULL));
        start_pool();
        reuse_set(BERM_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, is_allowed);
        uint64_t gate;
        OK(simcuda_gate(a, NULL, 0, &gate));
        berm_cu_deviceptr_t first = alloc(POOL_AREA, a);
        OK(cuMemFreeAsync(first, a));
        berm_cu_deviceptr_t second = alloc(POOL_AREA, b);
        cr_assert((first == second) == is_allowed);
        cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) ==
                  (is_allowed ? POOL_AREA : 2 * POOL_AREA));
        OK(launch(b, 1000, second, 8, 1));
        simcuda_advance_ns(10000000);
        FAILS(cuStreamQuery(b), is_allowed ? BERM_CU_NOT_READY : BERM_CU_SUCCESS);
        OK(simcuda_gate_open(gate));
        OK(cuCtxSynchronize());
        HAZARDS(0);
    }
}

Test(pool, threshold_and_trim) {
    start_pool();
    uint64_t threshold = POOL_AREA;
    berm_cu_deviceptr_t blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = alloc(POOL_AREA, a);
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == 3 * POOL_AREA);
    cr_assert(attribute(BERM_CU_POOL_USED_MEM_CURRENT) == 3 * POOL_AREA);
    for (int i = 0; i < 3; i++)
        OK(cuMemFreeAsync(blocks[i], a));
    cr_assert(attribute(BERM_CU_POOL_USED_MEM_CURRENT) == 0);
    OK(cuStreamSynchronize(a));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == 3 * POOL_AREA);
    OK(cuMemPoolSetAttribute(pool, BERM_CU_POOL_RELEASE_THRESHOLD, &threshold));
    OK(cuStreamSynchronize(a));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == POOL_AREA);
    OK(cuMemPoolTrimTo(pool, POOL_AREA));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == POOL_AREA);
    blocks[0] = alloc(100, a);
    OK(cuMemPoolTrimTo(pool, 0)); // a block is in use
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == POOL_AREA);
    OK(cuMemFreeAsync(blocks[0], a));
    OK(cuStreamSynchronize(a));
    OK(cuMemPoolTrimTo(pool, 0));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == 0);
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_HIGH) == 3 * POOL_AREA);
    uint64_t zero = 0;
    OK(cuMemPoolSetAttribute(pool, BERM_CU_POOL_RESERVED_MEM_HIGH, &zero));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_HIGH) == 0);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.used_bytes == 0 && ledger.pool_bytes == 0);
}

Test(pool, trim_waits_for_the_frees) {
    start_pool();
    uint64_t gate;
    berm_cu_deviceptr_t addr = alloc(100, a);
    OK(simcuda_gate(a, NULL, 0, &gate));
    OK(cuMemFreeAsync(addr, a));
    OK(cuMemPoolTrimTo(pool, 0));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == POOL_AREA);
    OK(simcuda_gate_open(gate));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == 0);
}

Test(pool, out_of_memory) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = MIB(100);
    OK(simcuda_reset(&config));
    start_pool();
    berm_cu_deviceptr_t addr = 0, blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = alloc(POOL_AREA, a);
    FAILS(cuMemAllocAsync(&addr, MIB(5), a), BERM_CU_OUT_OF_MEMORY);
    cr_assert(alloc(MIB(4), a) != 0, "a smaller area fits");
    FAILS(cuMemAllocAsync(&addr, MIB(200), a), BERM_CU_OUT_OF_MEMORY);
    for (int i = 0; i < 3; i++)
        OK(cuMemFreeAsync(blocks[i], a));
    OK(cuStreamSynchronize(a));
    cr_assert(alloc(MIB(96), a) != 0, "idle areas make room for a large one");
    HAZARDS(0);
}

Test(pool, of_the_programs_own) {
    start_pool();
    berm_cu_mem_pool_props_t props = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                      .location = {BERM_CU_MEM_LOCATION_DEVICE, 0},
                                      .max_size = MIB(64)};
    berm_cu_mem_pool_t own = NULL, current = NULL, by_default = pool;
    berm_cu_deviceptr_t addr = 0, more = 0;
    OK(cuMemPoolCreate(&own, &props));
    OK(cuMemAllocFromPoolAsync(&addr, MIB(40), own, a));
    uint64_t of_addr = 0;
    OK(cuPointerGetAttribute(&of_addr, BERM_CU_POINTER_MEMPOOL_HANDLE, addr));
    cr_assert(of_addr == (uint64_t)(uintptr_t)own);
    FAILS(cuMemAllocFromPoolAsync(&more, MIB(40), own, a), BERM_CU_OUT_OF_MEMORY);
    OK(cuDeviceSetMemPool(0, own));
    OK(cuDeviceGetMemPool(&current, 0));
    cr_assert(current == own);
    FAILS(cuMemAllocAsync(&more, MIB(40), a), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemPoolDestroy(own)); // a block is in use: it stays
    FAILS(cuMemPoolDestroy(own), BERM_CU_INVALID_VALUE);
    OK(cuDeviceGetMemPool(&current, 0));
    cr_assert(current == by_default);
    OK(launch(a, 1000, addr, 8, 1));
    OK(cuMemFreeAsync(addr, a));
    OK(cuStreamSynchronize(a));
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.used_bytes == 0, "the last free was the end of it");
    HAZARDS(0);
}

Test(pool, misuse) {
    start_pool();
    berm_cu_mem_pool_props_t props = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                      .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
    berm_cu_mem_pool_t other;
    berm_cu_deviceptr_t addr = 0, plain = 0;
    uint64_t value = 1;
    props.location.id = 9;
    FAILS(cuMemPoolCreate(&other, &props), BERM_CU_INVALID_DEVICE);
    props.location.id = 0;
    props.reserved[50] = 1;
    FAILS(cuMemPoolCreate(&other, &props), BERM_CU_INVALID_VALUE);
    FAILS(cuMemPoolDestroy(pool), BERM_CU_INVALID_VALUE); // the default one
    FAILS(cuMemPoolSetAttribute(pool, BERM_CU_POOL_USED_MEM_CURRENT, &value),
          BERM_CU_INVALID_VALUE);
    FAILS(cuMemPoolSetAttribute(pool, BERM_CU_POOL_USED_MEM_HIGH, &value), BERM_CU_INVALID_VALUE);
    FAILS(cuMemPoolGetAttribute(pool, 99, &value), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAllocAsync(NULL, 8, a), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAllocAsync(&addr, 0, a), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAllocFromPoolAsync(&addr, 8, NULL, a), BERM_CU_INVALID_VALUE);
    HAZARDS(0);
    OK(cuMemAlloc_v2(&plain, 8));
    FAILS(cuMemFreeAsync(plain, a), BERM_CU_INVALID_VALUE);
    addr = alloc(1024, a);
    FAILS(cuMemFreeAsync(addr + 512, a), BERM_CU_INVALID_VALUE);
    OK(cuMemFreeAsync(addr, a));
    FAILS(cuMemFreeAsync(addr, a), BERM_CU_INVALID_VALUE);
    HAZARDS(3);
    cr_assert(hazard_kind(2) == SIMCUDA_HAZARD_DOUBLE_FREE);
    addr = alloc(1024, a);
    OK(cuMemFree_v2(addr)); // waits for the device, as for any block
    OK(cuStreamBeginCapture_v2(a, BERM_CU_CAPTURE_RELAXED));
    FAILS(cuMemAllocAsync(&addr, 8, a), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
}

Test(pool, access_of_other_devices) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 2;
    OK(simcuda_reset(&config));
    start_pool();
    berm_cu_deviceptr_t addr = alloc(1024, a);
    OK(cuStreamSynchronize(a));
    berm_cu_mem_access_t access = {{BERM_CU_MEM_LOCATION_DEVICE, 1}, BERM_CU_MEM_ACCESS_READWRITE};
    OK(cuMemPoolSetAccess(pool, &access, 1));
    int flags = -1;
    OK(cuMemPoolGetAccess(&flags, pool, &access.location));
    cr_assert(flags == BERM_CU_MEM_ACCESS_READWRITE);
    berm_cu_deviceptr_t later = alloc(1024, a);
    OK(cuStreamSynchronize(a));
    make_current(1);
    OK(launch(NULL, 1000, addr, 8, 1));
    OK(launch(NULL, 1000, later, 8, 1));
    HAZARDS(0);
    access.flags = BERM_CU_MEM_ACCESS_NONE;
    OK(cuCtxSynchronize());
    OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(launch(NULL, 1000, addr, 8, 1));
    HAZARDS(1);
    access.location.id = 0;
    FAILS(cuMemPoolSetAccess(pool, &access, 1), BERM_CU_INVALID_VALUE); // its own device's
}

static void run_mark(void *argument) {
    berm_cu_deviceptr_t addr = *(berm_cu_deviceptr_t *)argument;
    ++*(volatile unsigned char *)(uintptr_t)addr;
}

Test(pool, work_before_a_free_is_done) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_backed = 1;
    OK(simcuda_reset(&config));
    start_pool();
    uint64_t none = 0; // the memory goes as soon as the host has waited
    OK(cuMemPoolSetAttribute(pool, BERM_CU_POOL_RELEASE_THRESHOLD, &none));
    berm_cu_deviceptr_t plain = 0, addr = alloc(1024, a);
    OK(cuMemAlloc_v2(&plain, 8));
    simcuda_access_t access = {addr, 1, 1};
    OK(cuMemsetD8Async(addr, 4, 1, a));
    OK(simcuda_launch_fn(a, 100000, &access, 1, run_mark, &addr));
    OK(cuMemcpyDtoDAsync_v2(plain, addr, 1, a));
    OK(cuMemFreeAsync(addr, a)); // after all that, in the stream
    berm_cu_deviceptr_t again = alloc(1024, a);
    cr_assert(again == addr);
    OK(cuMemsetD8Async(again, 9, 1, a));
    OK(cuMemcpyDtoDAsync_v2(plain + 1, again, 1, a));
    OK(cuMemFreeAsync(again, a));
    OK(cuStreamSynchronize(a));
    cr_assert(*(volatile unsigned char *)(uintptr_t)plain == 5);
    cr_assert(*(volatile unsigned char *)(uintptr_t)(plain + 1) == 9);
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_CURRENT) == 0);
    HAZARDS(0);
}

Test(pool, random_use_against_the_rules) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_backed = 1;
    OK(simcuda_reset(&config));
    start_pool();
    enum {
        LIVE = 64
    };
    struct {
        berm_cu_deviceptr_t addr;
        size_t bytes;
        berm_cu_stream_t stream;
    } live[LIVE] = {0};
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    uint64_t bytes_live = 0;
    for (int step = 0; step < 20000; step++) {
        size_t i = berm__rng_below(&rng, LIVE);
        if (live[i].addr != 0) {
            OK(cuMemFreeAsync(live[i].addr, live[i].stream));
            bytes_live -= (live[i].bytes + 511) / 512 * 512;
            live[i].addr = 0;
        } else {
            live[i].bytes = 1 + berm__rng_below(&rng, MIB(4));
            live[i].stream = berm__rng_below(&rng, 2) ? a : b;
            OK(cuMemAllocAsync(&live[i].addr, live[i].bytes, live[i].stream));
            OK(launch(live[i].stream, berm__rng_below(&rng, 20000), live[i].addr, live[i].bytes,
                      1));
            bytes_live += (live[i].bytes + 511) / 512 * 512;
        }
        if (berm__rng_below(&rng, 500) == 0)
            OK(cuStreamSynchronize(a));
        cr_assert(attribute(BERM_CU_POOL_USED_MEM_CURRENT) == bytes_live);
    }
    HAZARDS(0);
    cr_assert(attribute(BERM_CU_POOL_RESERVED_MEM_HIGH) < 2 * (uint64_t)LIVE * MIB(4));
}
