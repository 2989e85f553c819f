// SPDX-License-Identifier: Apache-2.0
// berm_free with what was never, or is no longer, a block: each mistake by name. It gets a status
// of its own, and changes nothing.
#include "tests/api/api_test.h"

// Each mistake without and with thread caches, which find it on another path.
#define TEST_BOTH(name)                                                                            \
    static void name(const heap_fixture_options_t *options);                                       \
    Test(free, name) {                                                                             \
        name(&(heap_fixture_options_t){.devices = 2});                                             \
    }                                                                                              \
    Test(free, name##_with_thread_caches) {                                                        \
        name(&(heap_fixture_options_t){.devices = 2, .has_caches = 1});                            \
    }                                                                                              \
    static void name(const heap_fixture_options_t *options)

// A free, and a recorded stream, of `addr` are refused the same way.
static void refuse(berm_status_t want, berm_addr_t addr, void *other) {
    api_state_t before = state_take(1);
    EXPECT(want, berm_free(addr, 0, NULL));
    EXPECT(want, berm_free(addr, BERM_DEVICE_ANY, other));
    EXPECT(want, berm_free(addr, BERM_DEVICE_ANY, BERM_STREAM_NONE));
    EXPECT(want, berm_record_stream(addr, other));
    EXPECT_MESSAGE("address 0x");
    state_expect_same(&before, 1);
    BERM_TEST_CHECK();
}

Test(free, address_0_does_nothing) {
    EXPECT(BERM_OK, berm_free(0, 0, NULL)); // before any start, too
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    api_state_t before = state_take(1);
    EXPECT(BERM_OK, berm_free(0, 0, NULL));
    EXPECT(BERM_OK, berm_free(0, BERM_DEVICE_ANY, BERM_STREAM_NONE));
    EXPECT(BERM_OK, berm_free(0, 99, NULL));
    state_expect_same(&before, 1);
    BERM_TEST_END();
}

Test(free, before_the_first_use) {
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_free(4096, 0, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_record_stream(4096, NULL));
}

TEST_BOTH(foreign_pointer) {
    int on_the_stack = 0;
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    (void)heap_alloc(1000, NULL);
    static const uint64_t addrs[] = {1,         512, 4096, (uint64_t)1 << 40, (uint64_t)1 << 63,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof addrs / sizeof addrs[0]; i++)
        refuse(BERM_ERROR_ADDRESS_UNKNOWN, addrs[i], stream);
    refuse(BERM_ERROR_ADDRESS_UNKNOWN, (berm_addr_t)(uintptr_t)&on_the_stack, stream);
    BERM_TEST_END();
}

// In one of berm's reservations, where nothing was ever mapped.
TEST_BOTH(pointer_into_unused_addresses) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    refuse(BERM_ERROR_ADDRESS_UNKNOWN, addr + 600 * MIB, stream);
    BERM_TEST_END();
}

TEST_BOTH(interior_pointer) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t large = heap_alloc(5 * MIB + 100, NULL), small = heap_alloc(3000, NULL);
    static const uint64_t offsets[] = {1, 511, 512, 65536, 2 * MIB, 5 * MIB + 99};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        refuse(BERM_ERROR_ADDRESS_INTERIOR, large + offsets[i], stream);
    refuse(BERM_ERROR_ADDRESS_INTERIOR, small + 1, stream);
    refuse(BERM_ERROR_ADDRESS_INTERIOR, small + 2999, stream);
    EXPECT_MESSAGE("inside a block");
    heap_free(large, NULL);
    heap_free(small, NULL);
    BERM_TEST_END();
}

TEST_BOTH(double_free_of_a_small_block) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t kept = heap_alloc(700, NULL), freed = heap_alloc(700, NULL);
    heap_free(freed, NULL);
    refuse(BERM_ERROR_DOUBLE_FREE, freed, stream);
    heap_free(kept, NULL); // its slab is now empty, and kept
    refuse(BERM_ERROR_DOUBLE_FREE, freed, stream);
    refuse(BERM_ERROR_DOUBLE_FREE, kept, stream);
    BERM_TEST_END();
}

TEST_BOTH(double_free_of_a_large_block) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t freed = heap_alloc(5 * MIB, NULL);
    (void)heap_alloc(5 * MIB, NULL);
    heap_free(freed, NULL);
    refuse(BERM_ERROR_DOUBLE_FREE, freed, stream);
    EXPECT_MESSAGE("freed already");
    BERM_TEST_END();
}

TEST_BOTH(double_free_after_coalescing) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = heap_alloc(700 * KIB, NULL);
    heap_free(blocks[0], NULL);
    heap_free(blocks[2], NULL);
    heap_free(blocks[1], NULL); // joins the three
    for (int i = 0; i < 3; i++)
        refuse(BERM_ERROR_DOUBLE_FREE, blocks[i], stream);
    heap_free(blocks[3], NULL);
    BERM_TEST_END();
}

// The second block begins where the first one did, or before it: the first's owner frees it.
TEST_BOTH(double_free_after_reuse) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t first = heap_alloc(4 * MIB, NULL), second = heap_alloc(4 * MIB, NULL);
    heap_free(first, NULL);
    heap_free(second, NULL);
    berm_addr_t both = heap_alloc(8 * MIB, NULL);
    berm_addr_t inside = both == first ? second : first;
    cr_assert(inside > both && inside < both + 8 * MIB);
    refuse(BERM_ERROR_ADDRESS_INTERIOR, inside, stream);
    BERM_TEST_END();
}

TEST_BOTH(double_free_while_awaited) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t large = heap_alloc(3 * MIB, NULL), small = heap_alloc(700, NULL);
    uint64_t gate;
    cr_assert(simcuda_gate(stream, NULL, 0, &gate) == 0);
    heap_free(large, stream);
    heap_free(small, stream);
    refuse(BERM_ERROR_DOUBLE_FREE, large, stream);
    refuse(BERM_ERROR_DOUBLE_FREE, small, stream);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.allocated_bytes.current == 0 && stats.active_bytes.current > 3 * MIB);
    cr_assert(simcuda_gate_open(gate) == 0);
    BERM_TEST_END();
}

TEST_BOTH(double_free_after_the_pages_went_back) {
    heap_fixture_begin(options);
    void *stream = heap_stream_create();
    berm_addr_t freed = heap_alloc(6 * MIB, NULL);
    (void)heap_alloc(1000, NULL);
    heap_free(freed, NULL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    refuse(BERM_ERROR_DOUBLE_FREE, freed, stream);
    BERM_TEST_END();
}

TEST_BOTH(on_another_device) {
    heap_fixture_begin(options);
    berm_addr_t first = heap_alloc(3 * MIB, NULL), second = 0;
    EXPECT(BERM_OK, berm_alloc(700, 1, NULL, &second));
    api_state_t before = state_take(2);
    EXPECT(BERM_ERROR_ADDRESS_OTHER_DEVICE, berm_free(first, 1, NULL));
    EXPECT(BERM_ERROR_ADDRESS_OTHER_DEVICE, berm_free(second, 0, NULL));
    EXPECT(BERM_ERROR_ADDRESS_OTHER_DEVICE, berm_free(first, 2, NULL));
    EXPECT(BERM_ERROR_ADDRESS_OTHER_DEVICE, berm_free(first, -2, NULL));
    state_expect_same(&before, 2);
    EXPECT(BERM_OK, berm_free(first, 0, NULL));
    EXPECT(BERM_OK, berm_free(second, BERM_DEVICE_ANY, NULL));
    BERM_TEST_END();
}
