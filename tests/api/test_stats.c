// SPDX-License-Identifier: Apache-2.0
// Statistics: the definitions of berm_introspect.h hold at every step and agree with the device's
// own ledger; peaks; sizes of structs; devices.
#include "tests/api/api_test.h"

// A small random generator of the test's own: xorshift.
static uint64_t rng_state = 88172645463325252u;

static uint64_t random_below(uint64_t bound) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state % bound;
}

static void figure_check(const berm_figure_t *figure, uint64_t current) {
    cr_assert(figure->current == current);
    cr_assert(figure->total_up - figure->total_down == current);
    cr_assert(figure->peak >= current && figure->peak <= figure->total_up);
}

// What must hold of every device between any two calls.
static void identities_check(int device, uint64_t requested_bytes, uint64_t blocks) {
    berm_stats_t stats = stats_of(device);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(device, &ledger);
    figure_check(&stats.requested_bytes, requested_bytes);
    figure_check(&stats.blocks, blocks);
    figure_check(&stats.allocated_bytes, stats.allocated_bytes.current);
    figure_check(&stats.active_bytes, stats.active_bytes.current);
    figure_check(&stats.reserved_bytes, ledger.handle_bytes);
    cr_assert(stats.device == device && stats.size == sizeof stats);
    cr_assert(stats.allocated_bytes.current >= requested_bytes);
    cr_assert(stats.active_bytes.current >= stats.allocated_bytes.current);
    cr_assert(stats.reserved_bytes.current >= stats.active_bytes.current);
    cr_assert(stats.cached_bytes == stats.reserved_bytes.current - stats.active_bytes.current);
    cr_assert(stats.reserved_bytes.current % stats.granule_bytes == 0);
    cr_assert(stats.mappings == ledger.mappings && stats.mappings_peak >= stats.mappings);
    cr_assert(stats.address_bytes == ledger.reserved_address_bytes);
    cr_assert(stats.poisoned_bytes == 0 && stats.host_metadata_bytes > 0);
}

typedef struct live_block {
    berm_addr_t addr;
    uint64_t size_bytes;
    int device;
    void *stream;
} live_block_t;

static void identities_run(const heap_fixture_options_t *options) {
    enum {
        BLOCKS = 80
    };
    static live_block_t blocks[BLOCKS];
    uint64_t requested[2] = {0, 0}, count[2] = {0, 0};
    heap_fixture_begin(options);
    void *a = heap_stream_create(), *b = heap_stream_create();
    (void)heap_alloc(1, a);
    requested[0] = count[0] = 1;
    berm_addr_t first;
    EXPECT(BERM_OK, berm_alloc(1, 1, NULL, &first));
    requested[1] = count[1] = 1;
    for (int step = 0; step < 3000; step++) {
        live_block_t *block = &blocks[random_below(BLOCKS)];
        if (block->addr == 0) {
            block->size_bytes = 1 + random_below(random_below(2) == 0 ? 64 * KIB : 6 * MIB);
            block->device = random_below(3) == 0;
            void *stream = block->device == 1 ? NULL : random_below(2) == 0 ? a : b;
            block->stream = stream;
            EXPECT(BERM_OK, berm_alloc(block->size_bytes, block->device, stream, &block->addr));
            requested[block->device] += block->size_bytes;
            count[block->device]++;
            if (block->device == 0)
                heap_use(stream, block->addr, block->size_bytes, random_below(50000));
        } else {
            heap_free(block->addr, random_below(2) == 0 ? BERM_STREAM_NONE : block->stream);
            requested[block->device] -= block->size_bytes;
            count[block->device]--;
            block->addr = 0;
        }
        identities_check(step & 1, requested[step & 1], count[step & 1]);
    }
    heap_context_synchronize();
    BERM_TEST_END();
}

Test(stats, identities_hold_at_every_step) {
    identities_run(&(heap_fixture_options_t){.devices = 2, .memory_bytes = 512 * MIB});
}

Test(stats, identities_hold_at_every_step_with_thread_caches) {
    identities_run(
        &(heap_fixture_options_t){.devices = 2, .memory_bytes = 512 * MIB, .has_caches = 1});
}

Test(stats, what_each_figure_counts) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t small = heap_alloc(600, stream), large = heap_alloc(3 * MIB + 1, stream);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.requested_bytes.current == 600 + 3 * MIB + 1);
    cr_assert(stats.allocated_bytes.current == 1024 + 3 * MIB + 512);
    cr_assert(stats.blocks.current == 2 && stats.pools == 1);
    uint64_t gate;
    cr_assert(simcuda_gate(other, NULL, 0, &gate) == 0);
    heap_free(large, other);
    stats = stats_of(0);
    cr_assert(stats.requested_bytes.current == 600 && stats.allocated_bytes.current == 1024);
    cr_assert(stats.active_bytes.current == 1024 + 3 * MIB + 512);
    cr_assert(stats.blocks.current == 1);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(other);
    (void)largest_free_of(stream);
    cr_assert(stats_of(0).active_bytes.current == 1024);
    heap_free(small, stream);
    stats = stats_of(0);
    cr_assert(stats.active_bytes.current == 0 &&
              stats.active_bytes.total_down == 1024 + 3 * MIB + 512);
    cr_assert(stats.cached_bytes == stats.reserved_bytes.current && stats.cached_bytes > 3 * MIB);
    BERM_TEST_END();
}

Test(stats, peaks_reset) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(100 * MIB, NULL);
    (void)heap_alloc(10 * MIB, NULL);
    heap_free(addr, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    berm_stats_t before = stats_of(0);
    cr_assert(before.requested_bytes.peak == 110 * MIB && before.reserved_bytes.peak >= 110 * MIB);
    EXPECT(BERM_OK, berm_stats_peaks_reset(0));
    berm_stats_t after = stats_of(0);
    cr_assert(after.requested_bytes.peak == 10 * MIB && after.allocated_bytes.peak == 10 * MIB);
    cr_assert(after.active_bytes.peak == 10 * MIB && after.blocks.peak == 1);
    cr_assert(after.reserved_bytes.peak == after.reserved_bytes.current);
    cr_assert(after.mappings_peak == after.mappings);
    cr_assert(after.requested_bytes.total_up == before.requested_bytes.total_up);
    (void)heap_alloc(5 * MIB, NULL);
    cr_assert(stats_of(0).requested_bytes.peak == 15 * MIB);
    EXPECT(BERM_ERROR_DEVICE, berm_stats_peaks_reset(1));
    EXPECT(BERM_ERROR_DEVICE, berm_stats_peaks_reset(-1));
    BERM_TEST_END();
}

Test(stats, driver_calls_are_those_of_the_device) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(70 * MIB, NULL);
    (void)heap_alloc(1000, NULL);
    heap_free(addr, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    berm_driver_calls_t calls = stats_of(0).driver_calls;
    cr_assert(calls.reserve == simcuda_calls("cuMemAddressReserve") && calls.reserve > 0);
    cr_assert(calls.create == simcuda_calls("cuMemCreate") && calls.create > 0);
    cr_assert(calls.map == simcuda_calls("cuMemMap") && calls.map > 0);
    cr_assert(calls.set_access == simcuda_calls("cuMemSetAccess") && calls.set_access > 0);
    cr_assert(calls.unmap == simcuda_calls("cuMemUnmap") && calls.unmap > 0);
    cr_assert(calls.release == simcuda_calls("cuMemRelease") && calls.release > 0);
    cr_assert(calls.malloc_ == 0 && calls.free_ == 0);
    BERM_TEST_END();
}

Test(stats, a_device_not_used_yet) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    uint64_t before = simcuda_calls(NULL);
    berm_stats_t stats = stats_of(1);
    cr_assert(stats.pools == 0 && stats.reserved_bytes.total_up == 0 && stats.address_bytes == 0);
    uint64_t size_bytes = 7;
    EXPECT(BERM_OK, berm_largest_free_read(1, NULL, &size_bytes));
    cr_assert(size_bytes == 0 && simcuda_calls(NULL) == before);
    BERM_TEST_END();
}

Test(stats, wrong_struct_size_and_null) {
    static const size_t wrong[] = {0, 1, 7, sizeof(berm_stats_t) + 8, SIZE_MAX};
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        berm_stats_t stats = {.size = wrong[i], .pools = 77};
        EXPECT(BERM_ERROR_VERSION, berm_stats_read(0, &stats));
        cr_assert(stats.pools == 77 && stats.size == wrong[i]);
        berm_whatis_t whatis = {.size = wrong[i], .device = 77};
        EXPECT(BERM_ERROR_VERSION, berm_whatis(4096, &whatis));
        cr_assert(whatis.device == 77);
        berm_device_info_t info = {.size = wrong[i], .device = 77};
        EXPECT(BERM_ERROR_VERSION, berm_device_info_read(0, &info));
        cr_assert(info.device == 77);
    }
    EXPECT_MESSAGE("size");
    EXPECT(BERM_ERROR_ARGUMENT, berm_stats_read(0, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_whatis(4096, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_device_info_read(0, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_device_count(NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_largest_free_read(0, NULL, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_largest_obtainable_read(0, NULL, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_snapshot_write(NULL, NULL));
    BERM_TEST_END();
}

// A program compiled against an older header has a shorter struct: nothing past it is written.
Test(stats, an_older_and_shorter_struct) {
    struct {
        berm_stats_t stats;
        unsigned char after[64];
    } both;
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    memset(&both, 0xa5, sizeof both);
    both.stats.size = offsetof(berm_stats_t, driver_calls);
    EXPECT(BERM_OK, berm_stats_read(0, &both.stats));
    cr_assert(both.stats.requested_bytes.current == 1000);
    const unsigned char *bytes = (const unsigned char *)&both;
    for (size_t at = offsetof(berm_stats_t, driver_calls); at < sizeof both; at++)
        cr_assert(bytes[at] == 0xa5);
    BERM_TEST_END();
}

Test(stats, refuses_devices) {
    static const int devices[] = {-1, 1, 63, 64, INT32_MAX, INT32_MIN};
    heap_fixture_begin(NULL);
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        berm_stats_t stats = BERM_STATS_INIT;
        berm_device_info_t info = BERM_DEVICE_INFO_INIT;
        uint64_t bytes = 7;
        EXPECT(BERM_ERROR_DEVICE, berm_stats_read(devices[i], &stats));
        EXPECT(BERM_ERROR_DEVICE, berm_device_info_read(devices[i], &info));
        EXPECT(BERM_ERROR_DEVICE, berm_largest_free_read(devices[i], NULL, &bytes));
        cr_assert(bytes == 0);
        bytes = 7;
        EXPECT(BERM_ERROR_DEVICE, berm_largest_obtainable_read(devices[i], NULL, &bytes));
        cr_assert(bytes == 0);
    }
    BERM_TEST_END();
}

Test(stats, devices) {
    int count = 7;
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2, .memory_bytes = 128 * MIB});
    EXPECT(BERM_OK, berm_device_count(&count));
    cr_assert(count == 2);
    (void)heap_alloc(20 * MIB, NULL);
    EXPECT(BERM_OK, berm_device_info_read(0, &info));
    cr_assert(info.device == 0 && info.memory_bytes == 128 * MIB && info.name[0] != '\0');
    cr_assert(info.free_bytes == 128 * MIB - stats_of(0).reserved_bytes.current);
    cr_assert(info.granule_bytes == 2 * MIB && info.has_vmm == 1 && info.has_ctx_event == 1);
    cr_assert(info.is_simulated == 1 && info.driver_version == 13000);
    EXPECT(BERM_OK, berm_device_info_read(1, &info));
    cr_assert(info.device == 1);
    BERM_TEST_END();
}
