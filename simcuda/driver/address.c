// SPDX-License-Identifier: Apache-2.0
// Addresses: what is given to reservations and to cuMemAlloc, and the calls that reserve.
//
//   [SIM_ADDRESS_BASE, address_next)   was given out; free_ranges are the pieces that came back
//   [address_next, end)                never used
//
// Addresses come back into use only when fresh ones have run out, so that a use of a freed address
// meets nothing. Every range is followed by one granule that nobody gets. Hints are ignored.
// Bound: O(log n); once fresh addresses have run out, O(free pieces). Locks: the state's.
// May fail: taking; giving back without host memory loses the range until the reset.
#include <stdlib.h>

#include "sim.h"

static sim_free_range_t *range_of(sim_node_t *node) {
    return node != NULL ? BERM_CONTAINER_OF(node, sim_free_range_t, node) : NULL;
}

// Adds [addr, addr + bytes), joined with its neighbours.
static void range_add(uint64_t addr, uint64_t bytes) {
    sim_free_range_t *below = range_of(sim_tree_floor(&sim.free_ranges, addr));
    sim_free_range_t *above = range_of(sim_tree_ceil(&sim.free_ranges, addr));
    if (bytes == 0)
        return;
    if (below != NULL && below->node.key + below->size_bytes == addr) {
        below->size_bytes += bytes;
    } else {
        below = calloc(1, sizeof(*below));
        if (below == NULL)
            return;
        below->size_bytes = bytes;
        sim_tree_insert(&sim.free_ranges, &below->node, addr);
    }
    if (above != NULL && above->node.key == addr + bytes) {
        below->size_bytes += above->size_bytes;
        sim_tree_remove(&sim.free_ranges, &above->node);
        free(above);
    }
}

// First fit among what came back.
static uint64_t range_take(uint64_t bytes, uint64_t alignment) {
    for (sim_node_t *node = sim_tree_first(&sim.free_ranges); node != NULL;
         node = sim_tree_next(node)) {
        sim_free_range_t *range = range_of(node);
        uint64_t start = range->node.key;
        uint64_t end = start + range->size_bytes;
        uint64_t addr = berm__align_up(start, alignment);
        if (addr > end || end - addr < bytes)
            continue;
        sim_tree_remove(&sim.free_ranges, &range->node);
        free(range);
        range_add(start, addr - start);
        range_add(addr + bytes, end - addr - bytes);
        return addr;
    }
    return 0;
}

uint64_t sim_address_take(uint64_t bytes, uint64_t alignment) {
    uint64_t end = SIM_ADDRESS_BASE + SIM_ADDRESS_BYTES;
    if (bytes > SIM_ADDRESS_BYTES || alignment > SIM_ADDRESS_BYTES)
        return 0;
    uint64_t with_guard = bytes + sim.config.granule_bytes;
    uint64_t addr = berm__align_up(sim.address_next, alignment);
    if (addr > end || end - addr < with_guard)
        return range_take(with_guard, alignment);
    range_add(sim.address_next, addr - sim.address_next);
    sim.address_next = addr + with_guard;
    return addr;
}

void sim_address_give(uint64_t addr, uint64_t bytes) {
    range_add(addr, bytes + sim.config.granule_bytes);
}

void sim_address_clear(void) {
    for (sim_node_t *node; (node = sim.free_ranges.root) != NULL;) {
        sim_tree_remove(&sim.free_ranges, node);
        free(range_of(node));
    }
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
