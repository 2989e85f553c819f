// SPDX-License-Identifier: Apache-2.0
// Plain memory, from outside: a device without virtual memory management, and backing:plain on one
// that has it.
#include "tests/api/api_test.h"
#include "tests/support/capture.h"

static void plain_begin(uint64_t memory_bytes) {
    heap_fixture_begin(
        &(heap_fixture_options_t){.berm = "backing:plain", .memory_bytes = memory_bytes});
}

static uint64_t mallocs(void) {
    return stats_of(0).driver_calls.malloc_;
}

// All of the API on a device that has nothing but cuMemAlloc.
Test(plain, a_device_without_vmm) {
    heap_fixture_begin(&(heap_fixture_options_t){.lacks_vmm = 1, .has_caches = 1});
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t blocks[6] = {heap_alloc(100, stream),    heap_alloc(50000, stream),
                             heap_alloc(MIB, stream),    heap_alloc(30 * MIB, stream),
                             heap_alloc(5 * MIB, other), heap_alloc(3 * MIB, BERM_STREAM_NONE)};
    static const uint64_t sizes[6] = {100, 50000, MIB, 30 * MIB, 5 * MIB, 3 * MIB};
    for (size_t i = 0; i < 6; i++)
        heap_use(i < 4 ? stream : other, blocks[i], sizes[i], 1000);
    BERM_TEST_CHECK();
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.granule_bytes == 2 * MIB && stats.address_bytes == 0 && stats.mappings == 0);
    cr_assert(stats.driver_calls.create == 0 && stats.driver_calls.malloc_ > 0);
    EXPECT(BERM_OK, berm_record_stream(blocks[2], other));
    for (size_t i = 0; i < 4; i++)
        heap_free(blocks[i], stream);
    heap_free(blocks[4], BERM_STREAM_NONE);
    heap_free(blocks[5], other);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_free(blocks[3], 0, stream));
    BERM_TEST_CHECK();
    uint64_t obtainable, released;
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, stream, &obtainable));
    cr_assert(obtainable > 200 * MIB);
    EXPECT(BERM_OK, berm_stream_retire(0, other));
    EXPECT(BERM_OK, berm_trim(0, 0, &released));
    cr_assert(released > 0 && stats_of(0).reserved_bytes.current == 0);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(blocks[3], 0, stream));
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(blocks[3], &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_FOREIGN);
    BERM_TEST_END();
}

Test(plain, vmm_can_be_insisted_on) {
    berm_addr_t out;
    heap_fixture_begin(&(heap_fixture_options_t){.lacks_vmm = 1, .berm = "backing:vmm"});
    EXPECT(BERM_ERROR_NO_VMM, berm_alloc(1000, 0, NULL, &out));
    BERM_TEST_END();
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "backing:auto"});
    heap_free(heap_alloc(1000, NULL), NULL);
    cr_assert(mallocs() == 0 && stats_of(0).driver_calls.create > 0);
    EXPECT(BERM_ERROR_STATE, berm_option_set("backing", "plain"));
    BERM_TEST_END();
}

// All pools are plain there: traits are compared without that, and a descriptor is not to be had.
Test(plain, pools_of_the_callers) {
    const berm_pool_id_t id = {0, 7};
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    plain_begin(0);
    options.traits = BERM_POOL_EXPORTABLE;
    EXPECT(BERM_ERROR_UNSUPPORTED, berm_pool_create(0, id, &options));
    EXPECT_MESSAGE("the option backing is plain");
    options.traits = BERM_POOL_PRIVATE;
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    options.traits = BERM_POOL_PINNED;
    EXPECT(BERM_ERROR_STATE, berm_pool_create(0, id, &options));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
    heap_fixture_begin(&(heap_fixture_options_t){.lacks_vmm = 1});
    options.traits = BERM_POOL_EXPORTABLE;
    EXPECT(BERM_ERROR_UNSUPPORTED, berm_pool_create(0, id, &options));
    EXPECT_MESSAGE("no virtual memory management");
    BERM_TEST_END();
}

Test(plain, segments_grow_with_the_pool) {
    plain_begin((uint64_t)8 << 30);
    for (int i = 0; i < 2000; i++)
        (void)heap_alloc(3 * MIB / 2, NULL);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.driver_calls.malloc_ < 100, "%llu segments",
              (unsigned long long)stats.driver_calls.malloc_);
    cr_assert(stats.reserved_bytes.current <= stats.allocated_bytes.current / 8 * 9);
    BERM_TEST_END();
}

Test(plain, free_segments_go_back_at_the_limit) {
    plain_begin(0);
    EXPECT(BERM_OK, berm_limit_set(0, 64 * MIB));
    berm_addr_t blocks[3], out;
    for (size_t i = 0; i < 3; i++)
        blocks[i] = heap_alloc(20 * MIB, NULL);
    cr_assert(stats_of(0).reserved_bytes.current == 60 * MIB);
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(24 * MIB, 0, NULL, &out));
    heap_free(blocks[0], NULL);
    heap_free(blocks[1], NULL);
    heap_use(NULL, blocks[2], MIB, 1000);
    EXPECT(BERM_OK, berm_alloc(24 * MIB, 0, NULL, &out));
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.reserved_bytes.peak <= 64 * MIB && stats.driver_calls.free_ == 1);
    cr_assert(stats.moved_bytes == 0);
    BERM_TEST_END();
}

Test(plain, memory_that_is_in_use_is_waited_for) {
    plain_begin(64 * MIB);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(40 * MIB, stream), out;
    heap_use(stream, block, 40 * MIB, 1000000);
    heap_free(block, stream);
    EXPECT(BERM_OK, berm_alloc(40 * MIB, 0, NULL, &out)); // strict: a hazard would abort
    cr_assert(stats_of(0).host_waits > 0);
    BERM_TEST_END();
}

// A segment that a capture holds back is passed by, and another one is waited for.
Test(plain, memory_of_a_captured_stream_is_passed_by) {
    plain_begin(64 * MIB);
    void *streams[2] = {heap_stream_create(), heap_stream_create()}, *third = heap_stream_create();
    for (size_t i = 0; i < 2; i++) {
        berm_addr_t block = heap_alloc(20 * MIB, streams[i]);
        heap_use(streams[i], block, 20 * MIB, 50000000);
        heap_free(block, streams[i]);
    }
    (void)heap_alloc(20 * MIB, third);
    heap_capture_begin(streams[0], HEAP_CAPTURE_GLOBAL);
    (void)heap_alloc(20 * MIB, third);
    berm_addr_t out;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(20 * MIB, 0, third, &out));
    cr_assert(heap_capture_is_whole(streams[0]));
    heap_capture_drop(streams[0]);
    EXPECT(BERM_OK, berm_alloc(20 * MIB, 0, third, &out));
    BERM_TEST_END();
}

Test(plain, largest_free_and_obtainable) {
    plain_begin(64 * MIB);
    berm_addr_t a = heap_alloc(10 * MIB, NULL), b = heap_alloc(10 * MIB, NULL), out;
    heap_free(a, NULL);
    cr_assert(largest_free_of(NULL) == 10 * MIB);
    uint64_t before = mallocs(), obtainable;
    heap_free(heap_alloc(10 * MIB, NULL), NULL);
    cr_assert(mallocs() == before);
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, NULL, &obtainable));
    cr_assert(obtainable == 54 * MIB);
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(54 * MIB + 512, 0, NULL, &out));
    EXPECT(BERM_OK, berm_alloc(54 * MIB, 0, NULL, &out));
    heap_free(b, NULL);
    BERM_TEST_END();
}

Test(plain, alignment) {
    plain_begin(0);
    for (uint64_t alignment = 512; alignment <= 16 * MIB; alignment *= 2) {
        berm_addr_t out;
        EXPECT(BERM_OK, berm_alloc_aligned(5000 + alignment / 2, alignment, 0, NULL, &out));
        cr_assert(out % alignment == 0);
    }
    BERM_TEST_END();
}

Test(plain, an_address_that_no_slab_could_use) {
    // Small allocations of the driver share a granule in units of 512 bytes; this one is in the
    // way.
    heap_fixture_begin(&(heap_fixture_options_t){
        .lacks_vmm = 1, .granule_bytes = 16 * MIB, .memory_bytes = 128 * MIB});
    heap_plain_alloc(512);
    berm_addr_t small = heap_alloc(3000, NULL), large = heap_alloc(3 * MIB, NULL);
    heap_use(NULL, small, 3000, 10);
    heap_use(NULL, large, 3 * MIB, 10);
    BERM_TEST_CHECK();
    cr_assert(stats_of(0).reserved_bytes.current % (2 * MIB) == 0);
    heap_free(small, NULL);
    heap_free(large, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    BERM_TEST_CHECK();
    heap_plain_free();
    BERM_TEST_END();
}

Test(plain, what_cannot_be_freed_is_poisoned) {
    plain_begin(64 * MIB);
    heap_free(heap_alloc(40 * MIB, NULL), NULL);
    cr_assert(simcuda_fault_nth("cuMemFree", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_trim(0, 0, NULL));
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.poisoned_bytes == 40 * MIB && stats.reserved_bytes.current == 40 * MIB);
    BERM_TEST_CHECK();
    berm_addr_t out;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(40 * MIB, 0, NULL, &out));
    heap_free(heap_alloc(20 * MIB, NULL), NULL);
    BERM_TEST_END(); // which frees it after all
}
