// SPDX-License-Identifier: Apache-2.0
// Addresses: what is given to reservations and to cuMemAlloc, and the calls that reserve.
//
// Addresses come back into use only when fresh ones have run out, so that a use of a freed address
// meets nothing. Every range is followed by one granule that nobody gets. Hints are ignored.
// Bound: as space.c. Locks: the state's. May fail: taking.
#include <stdlib.h>

#include "sim.h"

uint64_t sim_address_take(uint64_t bytes, uint64_t alignment) {
    if (bytes > SIM_ADDRESS_BYTES)
        return 0;
    return sim_space_take(&sim.addresses, bytes + sim.config.granule_bytes, alignment, true);
}

void sim_address_give(uint64_t addr, uint64_t bytes) {
    sim_space_give(&sim.addresses, addr, bytes + sim.config.granule_bytes);
}

// --- reservations --------------------------------------------------------------------------------

sim_reservation_t *sim_reservation_at(uint64_t addr) {
    sim_node_t *node = sim_tree_floor(&sim.reservations, addr);
    if (node == NULL)
        return NULL;
    sim_reservation_t *reservation = BERM_CONTAINER_OF(node, sim_reservation_t, node);
    return addr - node->key < reservation->size_bytes ? reservation : NULL;
}

static int address_reserve(berm_cu_deviceptr_t *out, size_t bytes, size_t alignment,
                           unsigned long long flags) {
    if (out == NULL || flags != 0 || bytes == 0 || !sim_is_granular(bytes) ||
        (alignment != 0 && !berm__is_pow2(alignment)))
        return BERM_CU_INVALID_VALUE;
    uint64_t reserved = sim.ledger_all.reserved_address_bytes;
    sim_charge(&sim.config.costs.reserve, 0, bytes);
    if (bytes > sim.config.address_bytes - reserved)
        return BERM_CU_OUT_OF_MEMORY;
    sim_reservation_t *reservation = calloc(1, sizeof(*reservation));
    if (reservation == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    uint64_t addr = sim_address_take(bytes, berm__max_u64(alignment, sim.config.granule_bytes));
    if (addr == 0) {
        free(reservation);
        return BERM_CU_OUT_OF_MEMORY;
    }
    const sim_context_t *context = sim_context_current();
    reservation->size_bytes = bytes;
    reservation->device = context != NULL ? context->device : 0;
    sim_tree_insert(&sim.reservations, &reservation->node, addr);
    sim_ledger_reservation(reservation->device, 1, bytes);
    *out = addr;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemAddressReserve(berm_cu_deviceptr_t *addr, size_t bytes, size_t alignment,
                                     berm_cu_deviceptr_t hint, unsigned long long flags) {
    int result = sim_enter(SIM_FN_cuMemAddressReserve);
    (void)hint;
    if (result == BERM_CU_SUCCESS)
        result = address_reserve(addr, bytes, alignment, flags);
    return sim_leave(result);
}

// Names exactly one whole reservation with nothing mapped inside.
static int address_free(uint64_t addr, uint64_t bytes) {
    sim_reservation_t *reservation = sim_reservation_at(addr);
    if (reservation == NULL || reservation->node.key != addr || reservation->size_bytes != bytes ||
        reservation->mappings != 0)
        return BERM_CU_INVALID_VALUE;
    sim_charge(&sim.config.costs.address_free, 0, bytes);
    sim_tree_remove(&sim.reservations, &reservation->node);
    sim_ledger_reservation(reservation->device, (uint64_t)-1, 0 - bytes);
    sim_address_give(addr, bytes);
    free(reservation);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemAddressFree(berm_cu_deviceptr_t addr, size_t bytes) {
    int result = sim_enter(SIM_FN_cuMemAddressFree);
    if (result == BERM_CU_SUCCESS)
        result = address_free(addr, bytes);
    return sim_leave(result);
}
