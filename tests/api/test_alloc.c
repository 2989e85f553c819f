// SPDX-License-Identifier: Apache-2.0
// berm_alloc and berm_alloc_aligned: what they give, and each error that berm.h lists for them,
// with the out parameter nulled and nothing else changed.
#include "tests/api/api_test.h"

static berm_whatis_t whatis_of(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    return whatis;
}

// A request that is refused before anything is looked for.
static void refuse(berm_status_t want, uint64_t size_bytes, uint64_t alignment, int device) {
    berm_addr_t out = 7;
    api_state_t before = state_take(1);
    EXPECT(want, berm_alloc_aligned(size_bytes, alignment, device, NULL, &out));
    cr_assert(out == 0);
    state_expect_same(&before, 1);
    if (alignment != 512)
        return;
    out = 7;
    EXPECT(want, berm_alloc(size_bytes, device, NULL, &out));
    cr_assert(out == 0);
    state_expect_same(&before, 1);
}

Test(alloc, blocks_are_aligned_apart_and_usable) {
    static const uint64_t sizes[] = {1,       511,         512,     513,      4096,
                                     65536,   65537,       100000,  MIB,      3 * MIB,
                                     2 * MIB, 2 * MIB + 1, 7 * MIB, 64 * MIB, 5 * MIB - 1};
    enum {
        COUNT = sizeof sizes / sizeof sizes[0]
    };
    berm_addr_t blocks[COUNT];
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = heap_alloc(sizes[i], stream);
        cr_assert(blocks[i] != 0 && blocks[i] % 512 == 0);
        heap_use(stream, blocks[i], sizes[i], 1000);
        berm_whatis_t whatis = whatis_of(blocks[i]);
        cr_assert(whatis.requested_bytes == sizes[i] && whatis.block_bytes >= sizes[i]);
        cr_assert(whatis.allocation_index == (uint64_t)i + 1);
        for (int j = 0; j < i; j++)
            cr_assert(blocks[j] + sizes[j] <= blocks[i] || blocks[i] + sizes[i] <= blocks[j]);
    }
    for (int i = 0; i < COUNT; i++)
        heap_free(blocks[i], stream);
    cr_assert(stats_of(0).blocks.current == 0);
    BERM_TEST_END();
}

Test(alloc, every_alignment_up_to_2_32) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 512 * MIB});
    static const uint64_t sizes[] = {1, 700, 40000, 65536, 100000, 3 * MIB};
    for (unsigned lg = 0; lg <= 32; lg++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            berm_addr_t addr = 0;
            uint64_t alignment = (uint64_t)1 << lg;
            EXPECT(BERM_OK, berm_alloc_aligned(sizes[i], alignment, 0, NULL, &addr));
            cr_assert(addr % alignment == 0 && addr % 512 == 0, "alignment 2^%u", lg);
            cr_assert(whatis_of(addr).requested_bytes == sizes[i]);
            heap_use(NULL, addr, sizes[i], 1);
            heap_free(addr, NULL);
        }
        BERM_TEST_CHECK();
    }
    BERM_TEST_END();
}

Test(alloc, null_out) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_ARGUMENT, berm_alloc(1, 0, NULL, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_alloc_aligned(1, 512, 0, NULL, NULL));
    state_expect_same(&before, 1);
    BERM_TEST_END();
}

Test(alloc, size_0) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    refuse(BERM_ERROR_SIZE_ZERO, 0, 512, 0);
    EXPECT_MESSAGE("0 bytes");
    BERM_TEST_END();
}

Test(alloc, size_beyond_2_62_and_2_63) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    static const uint64_t sizes[] = {((uint64_t)1 << 62) + 1, (uint64_t)1 << 63,
                                     ((uint64_t)1 << 63) + 1, UINT64_MAX - 511, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        refuse(BERM_ERROR_SIZE_TOO_LARGE, sizes[i], 512, 0);
    // Allowed sizes that no device has: refused without growing or waiting.
    refuse(BERM_ERROR_OUT_OF_DEVICE_MEMORY, (uint64_t)1 << 62, 512, 0);
    refuse(BERM_ERROR_OUT_OF_DEVICE_MEMORY, 256 * MIB + 1, 512, 0);
    BERM_TEST_END();
}

Test(alloc, alignment_not_a_power_of_two) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    static const uint64_t alignments[] = {0, 3, 513, 1000, 3 * MIB, UINT64_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        refuse(BERM_ERROR_ALIGNMENT, 4096, alignments[i], 0);
    EXPECT_MESSAGE("power of two");
    BERM_TEST_END();
}

Test(alloc, alignment_too_large) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    refuse(BERM_ERROR_ALIGNMENT, 4096, (uint64_t)1 << 33, 0);
    refuse(BERM_ERROR_ALIGNMENT, 4096, (uint64_t)1 << 63, 0);
    BERM_TEST_END();
}

Test(alloc, no_such_device) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    (void)heap_alloc(1000, NULL);
    static const int devices[] = {-1, 2, 63, 64, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        refuse(BERM_ERROR_DEVICE, 4096, 512, devices[i]);
    EXPECT_MESSAGE("the driver has 2");
    BERM_TEST_END();
}

Test(alloc, two_devices_are_apart) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    berm_addr_t first = heap_alloc(3 * MIB, NULL), second = 0;
    EXPECT(BERM_OK, berm_alloc(5 * MIB, 1, NULL, &second));
    cr_assert(whatis_of(first).device == 0 && whatis_of(second).device == 1);
    cr_assert(stats_of(0).requested_bytes.current == 3 * MIB);
    cr_assert(stats_of(1).requested_bytes.current == 5 * MIB);
    EXPECT(BERM_OK, berm_limit_set(1, 0)); // of one device only
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(50 * MIB, 1, NULL, &second));
    (void)heap_alloc(50 * MIB, NULL);
    heap_free(first, NULL);
    cr_assert(stats_of(1).blocks.current == 1);
    BERM_TEST_END();
}

// --- out of something --------------------------------------------------------------------------

Test(alloc, out_of_device_memory) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    berm_addr_t held = heap_alloc(40 * MIB, NULL), out = 7;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(30 * MIB, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT_MESSAGE("30.0 MiB wanted on device 0");
    EXPECT_MESSAGE("largest obtainable 24.0 MiB");
    EXPECT_MESSAGE("free 24.0 MiB");
    EXPECT_MESSAGE("out of device memory");
    EXPECT_MESSAGE("live 40.0 MiB");
    EXPECT_MESSAGE("device 64.0 MiB");
    EXPECT_MESSAGE("no limit");
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.out_of_memory == 1 && stats.retries >= 1);
    cr_assert(stats.blocks.current == 1 && stats.requested_bytes.current == 40 * MIB);
    heap_use(NULL, held, 40 * MIB, 1000);
    BERM_TEST_CHECK();
    heap_free(held, NULL);
    heap_free(heap_alloc(60 * MIB, NULL), NULL);
    BERM_TEST_END();
}

Test(alloc, other_processes_hold_the_memory) {
    berm_addr_t out = 7;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    cr_assert(simcuda_outside_set(0, 60 * MIB) == 0);
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(10 * MIB, 0, NULL, &out));
    cr_assert(out == 0);
    cr_assert(simcuda_outside_set(0, 0) == 0);
    (void)heap_alloc(10 * MIB, NULL);
    BERM_TEST_END();
}

// A device whose driver has a ceiling or few addresses: made by hand, after the fixture's.
static void device_remake(void (*change)(simcuda_config_t *config)) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = 256 * MIB;
    config.is_strict = 1;
    change(&config);
    cr_assert(simcuda_reset(&config) == 0);
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
}

static void has_few_handles(simcuda_config_t *config) {
    config->handles_max = 4;
}

static void has_few_addresses(simcuda_config_t *config) {
    config->address_bytes = 32 * MIB;
}

static void shutdown_clean(void) {
    simcuda_ledger_t ledger;
    EXPECT(BERM_OK, berm_audit(NULL));
    EXPECT(BERM_OK, berm_shutdown(NULL));
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.handles == 0 && ledger.mappings == 0 && ledger.reservations == 0);
    cr_assert(simcuda_hazard_count() == 0);
}

static void has_few_mappings(simcuda_config_t *config) {
    config->mappings_max = 4;
}

// Mapping needs no memory, so a driver that says OUT_OF_MEMORY means the number of mappings.
Test(alloc, ceiling_of_mappings) {
    berm_addr_t out = 7;
    device_remake(has_few_mappings);
    EXPECT(BERM_ERROR_CEILING, berm_alloc(14 * MIB, 0, NULL, &out)); // seven small handles
    cr_assert(out == 0 && stats_of(0).blocks.current == 0);
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    EXPECT(BERM_OK, berm_alloc(8 * MIB, 0, NULL, &out));
    shutdown_clean();
}

// Of creation the driver says the same for memory and for handles that are used up.
Test(alloc, ceiling_of_handles) {
    berm_addr_t out = 7;
    device_remake(has_few_handles);
    berm_status_t status = berm_alloc(14 * MIB, 0, NULL, &out);
    cr_assert(status == BERM_ERROR_CEILING || status == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    cr_assert(out == 0 && stats_of(0).blocks.current == 0);
    EXPECT(BERM_OK, berm_alloc(8 * MIB, 0, NULL, &out));
    shutdown_clean();
}

Test(alloc, out_of_addresses) {
    berm_addr_t out = 7;
    device_remake(has_few_addresses);
    EXPECT(BERM_ERROR_OUT_OF_ADDRESSES, berm_alloc(64 * MIB, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT(BERM_OK, berm_alloc(8 * MIB, 0, NULL, &out));
    EXPECT(BERM_ERROR_OUT_OF_ADDRESSES, berm_alloc(64 * MIB, 0, NULL, &out));
    shutdown_clean();
}

Test(alloc, driver_error_is_told_and_nothing_is_lost) {
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    int code = 0;
    heap_fixture_begin(NULL);
    cr_assert(berm_driver_error_last(NULL) == NULL);
    cr_assert(berm_driver_error_last(&code) == NULL && code == 0);
    (void)heap_alloc(1000, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        berm_addr_t out = 7;
        cr_assert(simcuda_fault_nth(calls[i], 1, 1, 999) == 0); // CUDA_ERROR_UNKNOWN
        EXPECT(BERM_ERROR_DRIVER, berm_alloc((9 + 20 * i) * MIB, 0, NULL, &out));
        cr_assert(out == 0);
        cr_assert(strcmp(berm_driver_error_last(&code), calls[i]) == 0 && code == 999);
        cr_assert(stats_of(0).blocks.current == 1 && stats_of(0).requested_bytes.current == 1000);
        BERM_TEST_CHECK();
        simcuda_faults_clear();
    }
    (void)heap_alloc(20 * MIB, NULL);
    BERM_TEST_END();
}

Test(alloc, lost_device) {
    berm_addr_t held, out = 7;
    uint64_t size_bytes;
    heap_fixture_begin(NULL);
    held = heap_alloc(3 * MIB, NULL);
    heap_free(heap_alloc(20 * MIB, NULL), NULL);
    simcuda_device_lose(0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_alloc(100 * MIB, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_trim(0, 0, NULL));
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_stream_retire(0, NULL));
    EXPECT(BERM_ERROR_DEVICE_LOST, berm_largest_obtainable_read(0, NULL, &size_bytes));
    EXPECT_MESSAGE("berm_largest_obtainable_read");
    EXPECT(BERM_OK, berm_free(held, 0, NULL)); // records only
    EXPECT(BERM_OK, berm_audit(NULL));
    EXPECT(BERM_OK, berm_shutdown(NULL));
}
