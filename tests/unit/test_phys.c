// SPDX-License-Identifier: Apache-2.0
// vmm/phys.h: handles are counted while they exist, idle ones are found by size, and what the
// driver or the host refuses changes nothing.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "host/mem.h"
#include "tests/support/heap_inside.h"

enum {
    LARGE = 4 // granules of a large handle in these tests
};

static gpu_fixture_t fixture;
static berm_phys_t phys;

#define GRANULE BERM_MIB(2)

static void phys_begin(uint64_t large_bytes) {
    gpu_fixture_begin(&fixture, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(64)});
    berm__phys_init(&phys, &fixture.gpu, large_bytes);
}

static void phys_end(void) {
    cr_assert(berm__phys_release_idle(&phys, 0) == BERM_OK);
    cr_assert(phys.reserved_bytes == 0 && phys.handle_count == 0);
    cr_assert(phys.created_bytes == phys.released_bytes);
    berm__phys_destroy(&phys);
    gpu_fixture_end(&fixture);
}

static void figures_expect(uint64_t small, uint64_t large) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(phys.stores[0].idle_small_count == small && phys.stores[0].idle_large_count == large);
    cr_assert(berm__phys_idle_granules(&phys) == small + large * LARGE);
    cr_assert(phys.handle_count == ledger.handles);
    cr_assert(phys.reserved_bytes == ledger.handle_bytes);
}

Test(phys, large_handles_are_at_least_a_granule) {
    phys_begin(4096);
    cr_assert(phys.large_granules == 1);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
    cr_assert(phys.stores[0].idle_small_count == 1 && phys.stores[0].idle_large_count == 0);
    phys_end();
}

Test(phys, create_take_give_release) {
    phys_begin(LARGE * GRANULE);
    cr_assert(phys.large_granules == LARGE);
    cr_assert(berm__store_take(&phys.stores[0], 1) == NULL &&
              berm__store_take(&phys.stores[0], LARGE) == NULL);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
    cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    figures_expect(1, 1);
    berm_phys_handle_t *large = berm__store_take(&phys.stores[0], LARGE);
    cr_assert(large != NULL && large->granules == LARGE);
    figures_expect(1, 0);
    cr_assert(berm__store_take(&phys.stores[0], LARGE) == NULL);
    berm__store_give(large);
    figures_expect(1, 1);
    cr_assert(phys.reserved_peak_bytes == (LARGE + 1) * GRANULE);
    cr_assert(berm__phys_release(&phys, large) == BERM_OK);
    figures_expect(1, 0);
    cr_assert(phys.reserved_peak_bytes == (LARGE + 1) * GRANULE);
    phys_end();
}

Test(phys, the_device_is_full) {
    phys_begin(LARGE * GRANULE);
    unsigned count = 0;
    while (berm__store_create(&phys.stores[0], LARGE) == BERM_OK)
        count++;
    cr_assert(count == 8);
    figures_expect(0, 8);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    figures_expect(0, 8);
    phys_end();
}

Test(phys, what_is_refused_changes_nothing) {
    phys_begin(LARGE * GRANULE);
    cr_assert(simcuda_fault_nth("cuMemCreate", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_ERROR_DRIVER);
    figures_expect(0, 0);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 1, BERM_CU_INVALID_VALUE) == 0);
    cr_assert(berm__phys_release_idle(&phys, 0) == BERM_ERROR_DRIVER);
    figures_expect(1, 0);
    phys_end();
}

Test(phys, no_host_memory_no_driver_call) {
    phys_begin(LARGE * GRANULE);
    uint64_t calls = simcuda_calls(NULL);
    berm__mem_fault_nth(1, 0);
    cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_ERROR_OUT_OF_HOST_MEMORY);
    berm__mem_fault_nth(0, 0);
    cr_assert(simcuda_calls(NULL) == calls);
    figures_expect(0, 0);
    phys_end();
}

Test(phys, a_large_handle_is_split) {
    phys_begin(LARGE * GRANULE);
    cr_assert(berm__store_split_large(&phys.stores[0]) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    cr_assert(berm__store_split_large(&phys.stores[0]) == BERM_OK);
    figures_expect(LARGE, 0);
    cr_assert(phys.reserved_peak_bytes == LARGE * GRANULE, "never more than it was");
    phys_end();
}

Test(phys, a_split_that_stops_half_way) {
    phys_begin(LARGE * GRANULE);
    cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemCreate", 3, 1, BERM_CU_OUT_OF_MEMORY) == 0);
    cr_assert(berm__store_split_large(&phys.stores[0]) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    figures_expect(2, 0);
    phys_end();
}

Test(phys, a_split_that_cannot_begin) {
    phys_begin(LARGE * GRANULE);
    cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemRelease", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__store_split_large(&phys.stores[0]) == BERM_ERROR_DRIVER);
    figures_expect(0, 1);
    phys_end();
}

// Large ones go first where they fit in the excess, then small ones; a large one goes beyond it
// only when no small one is left.
Test(phys, releasing_stops_at_what_is_to_be_kept) {
    phys_begin(LARGE * GRANULE);
    for (int i = 0; i < 3; i++) {
        cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
        cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    }
    cr_assert(berm__phys_release_idle(&phys, UINT64_MAX / 2) == BERM_OK);
    figures_expect(3, 3);
    cr_assert(berm__phys_release_idle(&phys, 6 * GRANULE) == BERM_OK);
    figures_expect(2, 1);
    cr_assert(berm__phys_release_idle(&phys, 5 * GRANULE + 1) == BERM_OK);
    figures_expect(1, 1);
    cr_assert(berm__phys_release_idle(&phys, GRANULE) == BERM_OK);
    figures_expect(1, 0);
    phys_end();
}

// The ones that became idle last, and no others.
Test(phys, releasing_the_newest) {
    phys_begin(LARGE * GRANULE);
    for (int i = 0; i < 3; i++) {
        cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
        cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
    }
    berm_phys_handle_t *newest = berm__store_take(&phys.stores[0], 1);
    berm__store_give(newest);
    berm_cu_mem_handle_t gone = newest->handle;
    cr_assert(berm__store_release_newest(&phys.stores[0], 1, 0) == BERM_OK);
    figures_expect(2, 3);
    for (int i = 0; i < 2; i++) {
        berm_phys_handle_t *left = berm__store_take(&phys.stores[0], 1);
        cr_assert(left->handle != gone);
        cr_assert(berm__store_release_newest(&phys.stores[0], 0, 1) == BERM_OK);
        berm__store_give(left);
    }
    figures_expect(2, 1);
    phys_end();
}
