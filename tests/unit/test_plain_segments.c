// SPDX-License-Identifier: Apache-2.0
// Plain segments between berm and the driver (vmm/plain.c): what is known of an address while its
// memory goes, and memory that the driver does not take back. The test stands in for two of the
// driver's functions.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

static berm_cu_mem_alloc_fn alloc_before;
static berm_cu_mem_free_fn free_before;
static unsigned frees, frees_to_fail, allocs, allocs_to_shift;

enum {
    SHIFT = 512
};

static void driver_stand_in(berm_cu_mem_alloc_fn alloc, berm_cu_mem_free_fn free) {
    alloc_before = berm__heap.drv.mem_alloc;
    free_before = berm__heap.drv.mem_free;
    if (alloc != NULL)
        berm__heap.drv.mem_alloc = alloc;
    berm__heap.drv.mem_free = free;
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

// From the moment the driver has it, an address may be another allocation's.
static berm_cu_result_t free_looking(berm_cu_deviceptr_t addr) {
    frees++;
    cr_assert(berm__addr_dir_find(&berm__heap.dir, addr) == NULL, "still known");
    return frees_to_fail >= frees ? BERM_CU_UNKNOWN : free_before(addr);
}

Test(plain_segments, leave_the_directory_before_their_memory_goes) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "backing:plain"});
    berm_addr_t block = heap_alloc(BERM_MIB(4), NULL);
    heap_free(block, NULL);
    driver_stand_in(NULL, free_looking);
    cr_assert(berm_trim(0, 0, NULL) == BERM_OK && frees == 1);
    cr_assert(berm__addr_dir_find(&berm__heap.dir, block) == NULL);
    berm__heap.drv.mem_free = free_before;
    BERM_TEST_END_INSIDE();
}

// One that the driver does not take is known again, as poisoned.
Test(plain_segments, come_back_when_the_driver_refuses) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "backing:plain"});
    berm_addr_t block = heap_alloc(BERM_MIB(4), NULL);
    heap_free(block, NULL);
    driver_stand_in(NULL, free_looking);
    frees_to_fail = 1;
    cr_assert(berm_trim(0, 0, NULL) == BERM_ERROR_DRIVER && frees == 1);
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    cr_assert(berm_whatis(block, &whatis) == BERM_OK && whatis.kind == BERM_ADDRESS_POISONED);
    cr_assert(stats_read().poisoned_bytes == BERM_MIB(4));
    BERM_TEST_CHECK();
    berm__heap.drv.mem_free = free_before;
    BERM_TEST_END_INSIDE();
}

// Addresses that are no multiple of a cell, so that more is asked for.
static berm_cu_result_t alloc_shifted(berm_cu_deviceptr_t *addr, size_t bytes) {
    berm_cu_result_t result = alloc_before(addr, bytes);
    if (result == BERM_CU_SUCCESS && allocs++ < allocs_to_shift)
        *addr += SHIFT;
    return result;
}

static berm_cu_result_t free_shifted(berm_cu_deviceptr_t addr) {
    return frees++ < frees_to_fail ? BERM_CU_UNKNOWN : free_before(addr / 65536 * 65536);
}

// What does not hold the segment is given back; where the driver does not take it, it is kept,
// counted and tried again.
Test(plain_segments, what_is_refused_while_realigning_is_kept) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "backing:plain"});
    heap_free(heap_alloc(512, NULL), NULL);
    cr_assert(berm_trim(0, 0, NULL) == BERM_OK && stats_read().reserved_bytes.current == 0);
    driver_stand_in(alloc_shifted, free_shifted);
    frees_to_fail = allocs_to_shift = 1;
    cr_assert(berm_alloc(BERM_MIB(4), 0, NULL, &out) == BERM_ERROR_DRIVER);
    cr_assert(stats_read().reserved_bytes.current == BERM_MIB(4), "kept");
    BERM_TEST_CHECK();
    berm_addr_t block = heap_alloc(BERM_MIB(4), NULL);
    cr_assert(stats_read().reserved_bytes.current == BERM_MIB(8));
    heap_free(block, NULL);
    uint64_t released_bytes = 0;
    cr_assert(berm_trim(0, 0, &released_bytes) == BERM_OK && released_bytes == BERM_MIB(8));
    cr_assert(heap_device()->phys.stray_count == 0);
    // And at the end.
    allocs = frees = 0;
    cr_assert(berm_alloc(BERM_MIB(4), 0, NULL, &out) == BERM_ERROR_DRIVER);
    cr_assert(heap_device()->phys.stray_count == 1);
    BERM_TEST_END_INSIDE();
}
