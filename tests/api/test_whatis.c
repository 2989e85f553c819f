// SPDX-License-Identifier: Apache-2.0
// berm_whatis: every kind of address, and berm_audit on a heap that is well.
#include "tests/api/api_test.h"

static berm_whatis_t whatis_of(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    return whatis;
}

Test(whatis, live_small_and_large) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    void *stream = heap_stream_create();
    berm_addr_t small = heap_alloc(700, stream), large = heap_alloc(3 * MIB + 5, BERM_STREAM_NONE);
    for (uint64_t offset = 0; offset < 1024; offset += 341) {
        berm_whatis_t whatis = whatis_of(small + offset);
        cr_assert(whatis.kind == BERM_ADDRESS_LIVE && whatis.is_small == 1);
        cr_assert(whatis.block == small && whatis.offset_bytes == offset);
        cr_assert(whatis.block_bytes == 1024 && whatis.requested_bytes == 700);
        cr_assert(whatis.device == 0 && whatis.stream == stream && whatis.allocation_index == 1);
    }
    berm_whatis_t whatis = whatis_of(large + 2 * MIB + 1);
    cr_assert(whatis.kind == BERM_ADDRESS_LIVE && whatis.is_small == 0);
    cr_assert(whatis.block == large && whatis.offset_bytes == 2 * MIB + 1);
    cr_assert(whatis.block_bytes == 3 * MIB + 512 && whatis.requested_bytes == 3 * MIB + 5);
    cr_assert(whatis.stream == BERM_STREAM_NONE && whatis.allocation_index == 2);
    BERM_TEST_END();
}

Test(whatis, foreign) {
    static const uint64_t addrs[] = {0, 1, 4096, (uint64_t)1 << 57, UINT64_MAX};
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    for (size_t i = 0; i < sizeof addrs / sizeof addrs[0]; i++) {
        berm_whatis_t whatis = whatis_of(addrs[i]);
        cr_assert(whatis.kind == BERM_ADDRESS_FOREIGN && whatis.device == -1);
        cr_assert(whatis.block == 0 && whatis.requested_bytes == 0);
    }
    BERM_TEST_END();
}

Test(whatis, from_live_to_awaited_to_free_to_unmapped) {
    uint64_t gate;
    heap_fixture_begin(NULL);
    void *other = heap_stream_create();
    berm_addr_t addr = heap_alloc(6 * MIB, NULL);
    (void)heap_alloc(6 * MIB, NULL);
    cr_assert(whatis_of(addr + 5).kind == BERM_ADDRESS_LIVE);
    cr_assert(simcuda_gate(other, NULL, 0, &gate) == 0);
    heap_free(addr, other);
    berm_whatis_t whatis = whatis_of(addr + 5);
    cr_assert(whatis.kind == BERM_ADDRESS_AWAITED && whatis.block == addr);
    cr_assert(whatis.requested_bytes == 0 && whatis.allocation_index == 0);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(other);
    (void)largest_free_of(NULL);
    whatis = whatis_of(addr + 5);
    cr_assert(whatis.kind == BERM_ADDRESS_FREE && whatis.block <= addr);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    whatis = whatis_of(addr + 5);
    cr_assert(whatis.kind == BERM_ADDRESS_UNMAPPED && whatis.requested_bytes == 0);
    BERM_TEST_END();
}

Test(whatis, poisoned_after_a_driver_error) {
    berm_addr_t out = 7;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 16 * MIB});
    berm_addr_t addr = heap_alloc(6 * MIB, NULL);
    (void)heap_alloc(2 * MIB, NULL);
    heap_free(addr, NULL);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_alloc(14 * MIB, 0, NULL, &out));
    cr_assert(out == 0 && stats_of(0).poisoned_bytes > 0);
    cr_assert(whatis_of(addr + MIB).kind == BERM_ADDRESS_POISONED);
    BERM_TEST_CHECK();
    (void)heap_alloc(2 * MIB, NULL);
    BERM_TEST_END();
}

Test(whatis, audit_of_a_heap_that_is_well) {
    int invariant = 7;
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    (void)heap_alloc(1000, NULL);
    heap_free(addr, BERM_STREAM_NONE);
    EXPECT(BERM_OK, berm_audit(&invariant));
    cr_assert(invariant == 0);
    EXPECT(BERM_OK, berm_audit(NULL));
    BERM_TEST_END();
}
