// SPDX-License-Identifier: Apache-2.0
// Blocks that grow, with the internals: I37 broken by hand, the audit must give the number; and a
// growth that fails half way leaves the block as it was.
#include <criterion/criterion.h>

#include "base/cuda_abi.h"
#include "policy/resizable.h"
#include "tests/support/heap_inside.h"

static const berm_pool_id_t id = {0, 37};

static void audit_expect(int number) {
    char error[200] = "";
    int found = berm__audit_run(error, sizeof error);
    cr_assert(found == number, "expected I%d, the audit says I%d: %s", number, found, error);
}

static berm_addr_t block_make(uint64_t size_bytes) {
    berm_addr_t addr = 0;
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_RESIZABLE};
    cr_assert(berm_pool_create(0, id, &options) == BERM_OK);
    cr_assert(berm_alloc_from(id, size_bytes, 512, 0, NULL, &addr) == BERM_OK);
    return addr;
}

Test(resizable, I37_a_block_that_grows_is_alone) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = block_make(BERM_MIB(3));
    berm_addr_t one = heap_alloc(BERM_MIB(1), NULL), two = heap_alloc(BERM_MIB(1), NULL);
    uint32_t *traits = &heap_device()->group.traits, before = *traits;
    audit_expect(0);
    *traits |= BERM_GROUP_RESIZABLE; // two blocks in one segment
    audit_expect(37);
    heap_free(two, NULL);
    audit_expect(0);
    *traits = before;
    heap_free(one, NULL);
    one = heap_alloc(100, NULL);
    *traits |= BERM_GROUP_RESIZABLE; // a slab
    audit_expect(37);
    *traits = before;
    audit_expect(0);
    heap_free(one, NULL);
    heap_free(addr, NULL);
    BERM_TEST_END_INSIDE();
}

Test(resizable, each_block_has_a_segment_as_large_as_the_device) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = block_make(BERM_MIB(3)), other = 0;
    const berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, addr);
    cr_assert(segment->base == addr && segment->span_bytes >= heap_device()->gpu.memory_bytes);
    cr_assert(berm_alloc_from(id, BERM_MIB(3), 512, 0, NULL, &other) == BERM_OK);
    cr_assert(berm__addr_dir_find(&berm__heap.dir, other) != segment);
    heap_free(addr, NULL);
    heap_free(other, NULL);
    BERM_TEST_END_INSIDE();
}

// What the driver refuses of a growth is as if it had not been asked.
Test(resizable, a_growth_that_is_refused_leaves_no_trace) {
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    heap_fixture_begin(NULL);
    berm_addr_t addr = block_make(BERM_MIB(3));
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(calls); i++) {
        const berm_range_t *range =
            heap_range(((berm_segment_t *)berm__addr_dir_find(&berm__heap.dir, addr))->pool, addr);
        uint64_t held = heap_device()->phys.reserved_bytes;
        cr_assert(simcuda_fault_nth(calls[i], 2 - (i == 2), 1, BERM_CU_INVALID_VALUE) == 0);
        cr_assert(berm_block_grow(addr, BERM_MIB(9)) == BERM_ERROR_DRIVER, "%s", calls[i]);
        simcuda_faults_clear();
        cr_assert(range->size_bytes == BERM_MIB(3) && range->state == BERM_RANGE_LIVE);
        cr_assert(heap_device()->phys.reserved_bytes == held, "%s", calls[i]);
        audit_expect(0);
    }
    cr_assert(berm_block_grow(addr, BERM_MIB(9)) == BERM_OK);
    heap_free(addr, NULL);
    BERM_TEST_END_INSIDE();
}
