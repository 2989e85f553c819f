// SPDX-License-Identifier: Apache-2.0
// Limits and giving back: berm_limit_set, berm_limit_get, berm_trim.
#include "tests/api/api_test.h"

Test(limit, default_is_none_and_set_is_read_back) {
    uint64_t limit_bytes = 7;
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    EXPECT(BERM_OK, berm_limit_get(0, &limit_bytes));
    cr_assert(limit_bytes == UINT64_MAX && stats_of(0).limit_bytes == UINT64_MAX);
    EXPECT(BERM_OK, berm_limit_set(0, 100 * MIB));
    EXPECT(BERM_OK, berm_limit_get(0, &limit_bytes));
    cr_assert(limit_bytes == 100 * MIB && stats_of(0).limit_bytes == 100 * MIB);
    EXPECT(BERM_OK, berm_limit_get(1, &limit_bytes));
    cr_assert(limit_bytes == UINT64_MAX);
    BERM_TEST_END();
}

Test(limit, refuses_bad_arguments) {
    uint64_t limit_bytes = 7;
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_limit_get(0, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_limit_get(1, &limit_bytes));
    EXPECT(BERM_ERROR_DEVICE, berm_limit_get(-1, &limit_bytes));
    EXPECT(BERM_ERROR_DEVICE, berm_limit_set(1, 5));
    EXPECT(BERM_ERROR_DEVICE, berm_limit_set(BERM_DEVICE_ANY, 5));
    BERM_TEST_END();
}

Test(limit, is_kept_to_the_byte) {
    berm_addr_t out = 7, first, second;
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_limit_set(0, 64 * MIB));
    first = heap_alloc(32 * MIB, NULL);
    second = heap_alloc(32 * MIB, NULL);
    cr_assert(stats_of(0).reserved_bytes.peak == 64 * MIB);
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(512, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT_MESSAGE("512 bytes wanted on device 0");
    EXPECT_MESSAGE("the limit stands in the way");
    EXPECT_MESSAGE("limit 64.0 MiB");
    cr_assert(stats_of(0).out_of_memory == 1);
    heap_free(first, NULL);
    (void)heap_alloc(31 * MIB, NULL);
    (void)heap_alloc(MIB, NULL);
    heap_free(second, NULL);
    cr_assert(stats_of(0).reserved_bytes.peak == 64 * MIB);
    BERM_TEST_END();
}

Test(limit, below_what_is_reserved) {
    berm_addr_t out = 7;
    heap_fixture_begin(NULL);
    void *other = heap_stream_create();
    berm_addr_t live = heap_alloc(40 * MIB, NULL), freed = heap_alloc(60 * MIB, NULL);
    heap_free(freed, NULL);
    uint64_t reserved_bytes = stats_of(0).reserved_bytes.current;
    EXPECT(BERM_OK, berm_limit_set(0, 20 * MIB));
    cr_assert(stats_of(0).reserved_bytes.current == reserved_bytes); // nothing is taken away
    heap_free(heap_alloc(60 * MIB, NULL), NULL);                     // what is held still serves
    heap_context_synchronize();
    heap_free(heap_alloc(20 * MIB, other), other); // by moving pages, too
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(100 * MIB, 0, NULL, &out));
    cr_assert(stats_of(0).reserved_bytes.current == reserved_bytes && out == 0);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 40 * MIB);
    heap_free(live, NULL);
    BERM_TEST_END();
}

Test(limit, zero) {
    berm_addr_t out = 7;
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_limit_set(0, 0));
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(1, 0, NULL, &out));
    cr_assert(out == 0);
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(10 * MIB, 0, NULL, &out));
    cr_assert(stats_of(0).reserved_bytes.total_up == 0);
    EXPECT(BERM_OK, berm_limit_set(0, UINT64_MAX));
    (void)heap_alloc(1, NULL);
    BERM_TEST_END();
}

Test(limit, a_request_that_fails_takes_no_memory) {
    berm_addr_t out = 7;
    heap_fixture_begin(NULL);
    (void)heap_alloc(2 * MIB, NULL);
    EXPECT(BERM_OK, berm_limit_set(0, 64 * MIB));
    uint64_t reserved_bytes = stats_of(0).reserved_bytes.current;
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(100 * MIB, 0, NULL, &out));
    cr_assert(stats_of(0).reserved_bytes.current == reserved_bytes,
              "a request that cannot be served took %llu bytes of new memory",
              (unsigned long long)(stats_of(0).reserved_bytes.current - reserved_bytes));
    BERM_TEST_END();
}

// --- trim --------------------------------------------------------------------------------------

// A heap with `cached` MiB free in blocks of 4 MiB between live ones.
static void heap_comb(unsigned cached) {
    berm_addr_t blocks[64];
    for (unsigned i = 0; i < cached / 2; i++)
        blocks[i] = heap_alloc(4 * MIB, NULL);
    for (unsigned i = 0; i < cached / 2; i += 2)
        heap_free(blocks[i], NULL);
}

Test(trim, keeps_what_it_is_told_to_keep) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "growth_handle:2M"});
    heap_comb(40);
    static const uint64_t keeps[] = {40, 39, 20, 11, 4, 1, 0};
    for (size_t i = 0; i < sizeof keeps / sizeof keeps[0]; i++) {
        uint64_t released_bytes = 7;
        berm_stats_t before = stats_of(0);
        EXPECT(BERM_OK, berm_trim(0, keeps[i] * MIB, &released_bytes));
        berm_stats_t after = stats_of(0);
        cr_assert(after.cached_bytes <= keeps[i] * MIB, "%llu bytes cached, %llu MiB to keep",
                  (unsigned long long)after.cached_bytes, (unsigned long long)keeps[i]);
        cr_assert(after.cached_bytes + 2 * MIB > keeps[i] * MIB); // and no more than needed
        cr_assert(before.reserved_bytes.current - after.reserved_bytes.current == released_bytes);
        cr_assert(before.requested_bytes.current == after.requested_bytes.current);
        cr_assert(before.moved_bytes == after.moved_bytes);
        BERM_TEST_CHECK();
    }
    BERM_TEST_END();
}

Test(trim, waits_for_queued_work) {
    uint64_t released_bytes = 7;
    heap_fixture_begin(NULL);
    void *a = heap_stream_create(), *b = heap_stream_create();
    berm_addr_t own = heap_alloc(6 * MIB, a), shared = heap_alloc(6 * MIB, a);
    heap_use(a, own, 6 * MIB, 3000000);
    heap_use(b, shared, 6 * MIB, 5000000);
    heap_free(own, a);
    heap_free(shared, b);
    uint64_t began_ns = simcuda_now_ns();
    EXPECT(BERM_OK, berm_trim(0, 0, &released_bytes));
    cr_assert(simcuda_now_ns() - began_ns > 4000000); // unmapping under work aborts a strict device
    cr_assert(released_bytes == 12 * MIB && stats_of(0).reserved_bytes.current == 0);
    cr_assert(stats_of(0).host_waits > 0);
    BERM_TEST_END();
}

Test(trim, with_nothing_to_give) {
    uint64_t released_bytes = 7;
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, &released_bytes)); // a device not used yet
    cr_assert(released_bytes == 0);
    (void)heap_alloc(4 * MIB, NULL);
    released_bytes = 7;
    EXPECT(BERM_OK, berm_trim(0, 0, &released_bytes));
    cr_assert(released_bytes == 0);
    EXPECT(BERM_OK, berm_trim(0, UINT64_MAX, NULL));
    BERM_TEST_END();
}

Test(trim, refuses_bad_devices) {
    uint64_t released_bytes = 7;
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_DEVICE, berm_trim(1, 0, &released_bytes));
    cr_assert(released_bytes == 0);
    EXPECT(BERM_ERROR_DEVICE, berm_trim(BERM_DEVICE_ANY, 0, NULL));
    BERM_TEST_END();
}

Test(trim, driver_error) {
    uint64_t released_bytes = 7;
    int code;
    heap_fixture_begin(NULL);
    berm_addr_t freed = heap_alloc(6 * MIB, NULL);
    heap_free(freed, NULL);
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 0, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_trim(0, 0, &released_bytes));
    EXPECT_MESSAGE("berm_trim");
    cr_assert(released_bytes == 0);
    cr_assert(strcmp(berm_driver_error_last(&code), "cuMemRelease") == 0 && code == 999);
    simcuda_faults_clear();
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_trim(0, 0, &released_bytes));
    cr_assert(released_bytes == 6 * MIB);
    BERM_TEST_END();
}
