// SPDX-License-Identifier: Apache-2.0
// vmm/segment.h: mapping and unmapping in runs, what is left when a call of either fails, whole
// handles within a range, tickets and slots.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "host/mem.h"
#include "tests/support/heap_inside.h"

enum {
    LARGE = 4,
    GRANULES = 64
};

#define GRANULE BERM_MIB(2)

static gpu_fixture_t fixture;
static berm_phys_t phys;
static berm_addr_dir_t dir;
static berm_node_slab_t nodes;
static berm_aliased_t aliased;
static berm_segment_t *segment;

static void layers_begin(void) {
    gpu_fixture_begin(&fixture, &(heap_fixture_options_t){.memory_bytes = BERM_MIB(64)});
    berm__phys_init(&phys, &fixture.gpu, LARGE * GRANULE);
    berm__node_slab_init(&nodes, sizeof(berm_range_t));
    berm__aliased_init(&aliased);
    cr_assert(berm__addr_dir_init(&dir));
}

static void layers_end(void) {
    (void)berm__phys_release_idle(&phys, 0);
    berm__addr_dir_destroy(&dir);
    berm__node_slab_destroy(&nodes);
    berm__phys_destroy(&phys);
    gpu_fixture_end(&fixture);
}

static berm_status_t segment_create(void) {
    berm_status_t status = berm__segment_create(&fixture.gpu, &phys.stores[0], &dir,
                                                GRANULES * GRANULE, NULL, &segment);
    if (status != BERM_OK)
        return status;
    status = berm__segment_open(segment, &nodes);
    if (status != BERM_OK)
        berm__segment_destroy(segment);
    return status;
}

static void segment_begin(void) {
    layers_begin();
    cr_assert(segment_create() == BERM_OK);
}

static void segment_end(void) {
    berm__segment_destroy(segment);
    layers_end();
}

static void handles_make(unsigned small, unsigned large) {
    for (unsigned i = 0; i < small; i++)
        cr_assert(berm__store_create(&phys.stores[0], 1) == BERM_OK);
    for (unsigned i = 0; i < large; i++)
        cr_assert(berm__store_create(&phys.stores[0], LARGE) == BERM_OK);
}

static void mappings_expect(uint64_t count) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(phys.mapping_count == count && ledger.mappings == count);
}

Test(segment, creation_registers_the_addresses) {
    segment_begin();
    cr_assert(berm__addr_dir_find(&dir, segment->base) == segment);
    cr_assert(berm__addr_dir_find(&dir, segment->base + GRANULES * GRANULE - 1) == segment);
    cr_assert(berm__addr_dir_find(&dir, segment->base + GRANULES * GRANULE) == NULL);
    cr_assert(segment->ranges.first->state == BERM_RANGE_VOID);
    cr_assert(segment->ranges.first->size_bytes == GRANULES * GRANULE);
    segment_end();
}

Test(segment, creation_that_fails_leaves_nothing) {
    layers_begin();
    cr_assert(simcuda_fault_nth("cuMemAddressReserve", 1, 1, BERM_CU_OUT_OF_MEMORY) == 0);
    cr_assert(segment_create() == BERM_ERROR_OUT_OF_ADDRESSES && segment == NULL);
    cr_assert(simcuda_fault_nth("cuMemAddressReserve", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(segment_create() == BERM_ERROR_DRIVER && segment == NULL);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        berm__mem_fault_nth(nth, 1);
        cr_assert(segment_create() == BERM_ERROR_OUT_OF_HOST_MEMORY);
        cr_assert(segment == NULL);
    }
    berm__mem_fault_nth(0, 0);
    cr_assert(berm__node_slab_live(&nodes) == 0);
    layers_end();
}

Test(segment, maps_large_handles_first_with_one_set_access) {
    segment_begin();
    handles_make(2, 1);
    uint64_t set_access = simcuda_calls("cuMemSetAccess");
    cr_assert(berm__segment_map(segment, 10, LARGE + 2, 1, &aliased) == BERM_OK);
    cr_assert(simcuda_calls("cuMemSetAccess") == set_access + 1);
    cr_assert(segment->handle_of[9] == NULL && segment->handle_of[16] == NULL);
    cr_assert(segment->handle_of[10]->granules == LARGE);
    cr_assert(segment->handle_of[13] == segment->handle_of[10]);
    cr_assert(segment->handle_of[14]->granules == 1 && segment->handle_of[14]->segment == segment);
    for (uint64_t granule = 10; granule < 16; granule++)
        cr_assert(segment->ticket_of[granule] == BERM_TICKET_NONE);
    mappings_expect(3);
    cr_assert(phys.mapping_peak == 3 && berm__phys_idle_granules(&phys) == 0);
    // The device can use all of it.
    heap_use(NULL, segment->base + 10 * GRANULE, (LARGE + 2) * GRANULE, 1000);
    heap_context_synchronize();
    uint64_t unmaps = simcuda_calls("cuMemUnmap");
    cr_assert(berm__segment_unmap(segment, 10, LARGE + 2) == BERM_OK);
    cr_assert(simcuda_calls("cuMemUnmap") == unmaps + 1, "one call for the run");
    cr_assert(phys.stores[0].idle_small_count == 2 && phys.stores[0].idle_large_count == 1);
    for (uint64_t granule = 10; granule < 16; granule++)
        cr_assert(segment->handle_of[granule] == NULL);
    mappings_expect(0);
    segment_end();
}

// Whichever call of a map fails, nothing is mapped and the handles are idle again.
Test(segment, a_map_that_fails_is_undone) {
    segment_begin();
    handles_make(3, 0);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        cr_assert(simcuda_fault_nth("cuMemMap", nth, 1, BERM_CU_UNKNOWN) == 0);
        cr_assert(berm__segment_map(segment, 5, 3, 0, &aliased) == BERM_ERROR_DRIVER);
        simcuda_faults_clear();
        cr_assert(phys.stores[0].idle_small_count == 3 && segment->handle_of[5] == NULL);
        mappings_expect(0);
    }
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, BERM_CU_OUT_OF_MEMORY) == 0);
    cr_assert(berm__segment_map(segment, 5, 3, 0, &aliased) == BERM_ERROR_CEILING);
    cr_assert(simcuda_fault_nth("cuMemMap", 2, 1, BERM_CU_OUT_OF_MEMORY) == 0);
    cr_assert(berm__segment_map(segment, 5, 3, 0, &aliased) == BERM_ERROR_CEILING);
    mappings_expect(0);
    cr_assert(phys.stores[0].idle_small_count == 3);
    segment_end();
}

// When it cannot be undone the caller is told to poison the range; handles stay where they are.
Test(segment, a_map_that_cannot_be_undone) {
    segment_begin();
    handles_make(3, 0);
    cr_assert(simcuda_fault_nth("cuMemMap", 3, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__segment_map(segment, 5, 3, 0, &aliased) == BERM_ERROR_CORRUPTION);
    cr_assert(phys.stores[0].idle_small_count == 1);
    cr_assert(segment->handle_of[5] != NULL && segment->handle_of[5]->segment == segment);
    cr_assert(segment->handle_of[7] == NULL);
    mappings_expect(2);
    cr_assert(berm__segment_unmap(segment, 5, 2) == BERM_OK);
    segment_end();
}

Test(segment, an_unmap_that_fails_changes_nothing) {
    segment_begin();
    handles_make(2, 0);
    cr_assert(berm__segment_map(segment, 0, 2, 0, &aliased) == BERM_OK);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm__segment_unmap(segment, 0, 2) == BERM_ERROR_DRIVER);
    cr_assert(segment->handle_of[0] != NULL && phys.stores[0].idle_small_count == 0);
    mappings_expect(2);
    cr_assert(berm__segment_unmap(segment, 0, 2) == BERM_OK);
    segment_end();
}

static void whole_expect(uint64_t start_bytes, uint64_t size_bytes, uint64_t first,
                         uint64_t count) {
    uint64_t found_first = 77, found_count = 77;
    bool is_found =
        berm__segment_whole_handles(segment, start_bytes, size_bytes, &found_first, &found_count);
    cr_assert(is_found == (count > 0));
    cr_assert(found_count == count && (count == 0 || found_first == first),
              "%llu granules from %llu", (unsigned long long)found_count,
              (unsigned long long)found_first);
}

// Granules 0 and 1: small; 2 to 5: one large; 6: small.
Test(segment, whole_handles_lie_inside_the_range) {
    segment_begin();
    handles_make(2, 0);
    cr_assert(berm__segment_map(segment, 0, 2, 0, &aliased) == BERM_OK);
    handles_make(1, 1);
    cr_assert(berm__segment_map(segment, 2, LARGE + 1, 1, &aliased) == BERM_OK);
    whole_expect(0, 7 * GRANULE, 0, 7);
    whole_expect(512, 7 * GRANULE - 512, 1, 6);
    whole_expect(0, 7 * GRANULE - 512, 0, 6);
    whole_expect(0, 6 * GRANULE - 512, 0, 2);
    whole_expect(GRANULE, 4 * GRANULE, 1, 1);
    whole_expect(3 * GRANULE, 4 * GRANULE, 6, 1);
    whole_expect(2 * GRANULE, 4 * GRANULE, 2, 4);
    whole_expect(2 * GRANULE + 512, 4 * GRANULE - 512, 0, 0);
    whole_expect(3 * GRANULE, 2 * GRANULE, 0, 0);
    whole_expect(512, GRANULE, 0, 0);
    whole_expect(512, 512, 0, 0);
    cr_assert(berm__segment_unmap(segment, 0, 7) == BERM_OK);
    segment_end();
}

Test(segment, a_ticket_goes_to_every_granule_that_is_touched) {
    segment_begin();
    berm__segment_ticket_set(segment, 3 * GRANULE - 512, 2 * GRANULE + 1024, 9);
    cr_assert(segment->ticket_of[1] == 0 && segment->ticket_of[6] == 0);
    for (uint64_t granule = 2; granule <= 5; granule++)
        cr_assert(segment->ticket_of[granule] == 9);
    berm__segment_ticket_set(segment, 7 * GRANULE, GRANULE, 3);
    cr_assert(segment->ticket_of[7] == 3 && segment->ticket_of[8] == 0);
    segment_end();
}

Test(segment, slots_cover_what_they_are_written_for) {
    segment_begin();
    berm__segment_cells_write(segment, BERM_CELL_BYTES - 512, 1024, 5);
    cr_assert(berm__segment_cell_read(segment, 0) == 5);
    cr_assert(berm__segment_cell_read(segment, BERM_CELL_BYTES) == 5);
    cr_assert(berm__segment_cell_read(segment, 2 * BERM_CELL_BYTES) == 0);
    berm__segment_cells_write(segment, 4 * BERM_CELL_BYTES, 2 * BERM_CELL_BYTES, 6);
    cr_assert(berm__segment_cell_read(segment, 6 * BERM_CELL_BYTES - 1) == 6);
    cr_assert(berm__segment_cell_read(segment, 6 * BERM_CELL_BYTES) == 0);
    cr_assert(berm__segment_cell_read(segment, GRANULES * GRANULE - 1) == 0);
    segment_end();
}

// The addresses go back on the second try; after that they are the driver's matter.
Test(segment, destruction_tries_twice) {
    segment_begin();
    cr_assert(simcuda_fault_nth("cuMemAddressFree", 1, 1, BERM_CU_UNKNOWN) == 0);
    segment_end();
}
