// SPDX-License-Identifier: Apache-2.0
// The calls that edit the page table: map, unmap, set access, and the question about access.
//
// Strict: everything a call names is checked before anything changes, so a refused call has no
// effect and costs nothing. Neither unmap nor release waits for work, as on hardware; taking
// memory away under work is a hazard and an illegal access.
// Locks: the state's, by sim_enter.
#include <string.h>

#include "backing.h"

static bool range_is_granular(uint64_t addr, uint64_t bytes) {
    return bytes != 0 && sim_is_granular(addr) && sim_is_granular(bytes) && addr + bytes > addr;
}

// Counts the mappings that make up [addr, addr + bytes) without a hole, none of them cut; 0 if
// they do not. *device is that of the first one's memory.
static uint64_t range_count_whole(uint64_t addr, uint64_t bytes, int *device) {
    uint64_t count = 0;
    uint64_t at = addr;
    const sim_mapping_t *mapping = sim_mapping_at(addr);
    for (; mapping != NULL && at < addr + bytes; mapping = sim_mapping_next(mapping)) {
        if (mapping->node.key != at || mapping->is_plain)
            return 0;
        if (count == 0)
            *device = mapping->memory->device;
        at += mapping->size_bytes;
        count++;
    }
    return at == addr + bytes ? count : 0;
}

void sim_page_edit(int device, uint64_t addr, const char *what) {
    if (device < 0)
        return;
    if (sim.config.drains_map)
        sim_wait_device(device);
    if (!sim.config.faults_page_edits || !sim_device_is_busy(device))
        return;
    sim_hazard(SIMCUDA_HAZARD_EDIT_UNDER_WORK, addr,
               "%s at 0x%llx edits the page table of device %d while work runs on it, until %llu "
               "ns or a gate opens",
               what, (unsigned long long)addr, device,
               (unsigned long long)sim.devices[device].tail_ns);
    sim_device_fault(device);
}

// --- map -----------------------------------------------------------------------------------------

static int page_map(uint64_t addr, uint64_t bytes, uint64_t offset, berm_cu_mem_handle_t handle,
                    unsigned long long flags) {
    if (!range_is_granular(addr, bytes) || offset != 0 || flags != 0)
        return BERM_CU_INVALID_VALUE;
    sim_memory_t *memory = sim_table_get(&sim.memories, handle);
    sim_reservation_t *reservation = sim_reservation_at(addr);
    if (memory == NULL || memory->refs == 0 || bytes > memory->size_bytes || reservation == NULL ||
        bytes > reservation->size_bytes - (addr - reservation->node.key))
        return BERM_CU_INVALID_VALUE;
    const sim_mapping_t *above = sim_mapping_from(addr);
    if (above != NULL && above->node.key < addr + bytes)
        return BERM_CU_INVALID_VALUE;
    if (sim.config.mappings_max != 0 && sim.ledger_all.mappings >= sim.config.mappings_max)
        return BERM_CU_OUT_OF_MEMORY;
    sim_effects_run();
    if (!sim_backing_map(addr, bytes, memory, 0, BERM_CU_MEM_ACCESS_NONE))
        return BERM_CU_OUT_OF_MEMORY;
    sim_mapping_t *mapping = sim_mapping_create(addr, bytes, memory);
    if (mapping == NULL) {
        sim_backing_unmap(addr, bytes);
        return BERM_CU_OUT_OF_MEMORY;
    }
    sim_page_edit(memory->device, addr, "cuMemMap");
    mapping->reservation = reservation;
    reservation->mappings++;
    sim_ledger_mapping(memory->device, 1, bytes);
    sim_charge(&sim.config.costs.map, 1, bytes);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemMap(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
                          berm_cu_mem_handle_t handle, unsigned long long flags) {
    int result = sim_enter(SIM_FN_cuMemMap);
    if (result == BERM_CU_SUCCESS)
        result = page_map(addr, bytes, offset, handle, flags);
    return sim_leave(result);
}

// --- unmap ---------------------------------------------------------------------------------------

void sim_mapping_check_idle(sim_mapping_t *mapping, const char *what) {
    char words[128];
    if (!sim_mapping_is_busy(mapping, words, sizeof(words)))
        return;
    sim_hazard(SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK, mapping->node.key,
               "%s of [0x%llx, +%llu) while %s", what, (unsigned long long)mapping->node.key,
               (unsigned long long)mapping->size_bytes, words);
    sim_device_fault(mapping->busy_device);
}

static int page_unmap(uint64_t addr, uint64_t bytes) {
    int device = -1;
    if (!range_is_granular(addr, bytes))
        return BERM_CU_INVALID_VALUE;
    uint64_t count = range_count_whole(addr, bytes, &device);
    if (count == 0)
        return BERM_CU_INVALID_VALUE;
    sim_page_edit(device, addr, "cuMemUnmap");
    sim_effects_run();
    sim_mapping_t *mapping = sim_mapping_at(addr);
    for (uint64_t i = 0; i < count; i++) {
        sim_mapping_t *next = sim_mapping_next(mapping);
        sim_mapping_check_idle(mapping, "cuMemUnmap");
        sim_backing_unmap(mapping->node.key, mapping->size_bytes);
        mapping->reservation->mappings--;
        sim_ledger_mapping(mapping->memory->device, (uint64_t)-1, 0 - mapping->size_bytes);
        sim_mapping_destroy(mapping);
        mapping = next;
    }
    sim_charge(&sim.config.costs.unmap, count, bytes);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemUnmap(berm_cu_deviceptr_t addr, size_t bytes) {
    int result = sim_enter(SIM_FN_cuMemUnmap);
    if (result == BERM_CU_SUCCESS)
        result = page_unmap(addr, bytes);
    return sim_leave(result);
}

// --- access --------------------------------------------------------------------------------------

int sim_access_check(const berm_cu_mem_access_t *access, size_t count) {
    if (access == NULL || count == 0)
        return BERM_CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const berm_cu_mem_access_t *each = &access[i];
        if (each->flags != BERM_CU_MEM_ACCESS_NONE && each->flags != BERM_CU_MEM_ACCESS_READ &&
            each->flags != BERM_CU_MEM_ACCESS_READWRITE)
            return BERM_CU_INVALID_VALUE;
        if (each->location.type == BERM_CU_MEM_LOCATION_HOST ||
            each->location.type == BERM_CU_MEM_LOCATION_HOST_NUMA)
            continue; // the host's own access is not modelled
        if (each->location.type != BERM_CU_MEM_LOCATION_DEVICE)
            return BERM_CU_INVALID_VALUE;
        if (!sim_device_is_valid(each->location.id))
            return BERM_CU_INVALID_DEVICE;
    }
    return BERM_CU_SUCCESS;
}

static void mapping_set_access(sim_mapping_t *mapping, const berm_cu_mem_access_t *access) {
    char words[128];
    if (access->location.type != BERM_CU_MEM_LOCATION_DEVICE)
        return;
    uint8_t *now = &mapping->access[access->location.id];
    uint8_t after = (uint8_t)access->flags;
    if ((*now & ~after) != 0 && sim_mapping_is_busy(mapping, words, sizeof(words))) {
        sim_hazard(SIMCUDA_HAZARD_USE_NO_ACCESS, mapping->node.key,
                   "cuMemSetAccess takes access to [0x%llx, +%llu) from device %d while %s",
                   (unsigned long long)mapping->node.key, (unsigned long long)mapping->size_bytes,
                   access->location.id, words);
        sim_device_fault(mapping->busy_device);
    }
    if (*now == BERM_CU_MEM_ACCESS_NONE && after != BERM_CU_MEM_ACCESS_NONE)
        mapping->visible_ns = sim_time_add(sim.now_ns, sim.config.stale_map_ns);
    *now = after;
}

// What the host may do at the mapping's addresses: what any device may. With `change`, after it.
static unsigned mapping_access_union(const sim_mapping_t *mapping,
                                     const berm_cu_mem_access_t *change, size_t count) {
    uint8_t access[SIMCUDA_DEVICE_MAX];
    unsigned all = 0;
    memcpy(access, mapping->access, sizeof(access));
    for (size_t i = 0; i < count; i++) {
        if (change[i].location.type == BERM_CU_MEM_LOCATION_DEVICE)
            access[change[i].location.id] = (uint8_t)change[i].flags;
    }
    for (int i = 0; i < sim.config.devices; i++)
        all |= access[i];
    return all;
}

// Changes what the host may do; on failure all is put back.
static bool mappings_protect(sim_mapping_t *first, uint64_t count,
                             const berm_cu_mem_access_t *change, size_t change_count) {
    sim_mapping_t *mapping = first;
    uint64_t done = 0;
    for (; sim.config.is_backed && done < count; done++, mapping = sim_mapping_next(mapping)) {
        if (!sim_backing_protect(mapping->node.key, mapping->size_bytes,
                                 mapping_access_union(mapping, change, change_count)))
            break;
    }
    if (!sim.config.is_backed || done == count)
        return true;
    for (mapping = first; done > 0; done--, mapping = sim_mapping_next(mapping))
        (void)sim_backing_protect(mapping->node.key, mapping->size_bytes,
                                  mapping_access_union(mapping, NULL, 0));
    return false;
}

// Without peers a device's memory is for that device only.
static bool mappings_may_open(const sim_mapping_t *mapping, uint64_t count,
                              const berm_cu_mem_access_t *access, size_t access_count) {
    for (uint64_t i = 0; sim.config.lacks_peers && i < count; i++) {
        for (size_t j = 0; j < access_count; j++) {
            if (access[j].location.type == BERM_CU_MEM_LOCATION_DEVICE &&
                access[j].location.id != mapping->memory->device && mapping->memory->device >= 0 &&
                access[j].flags != BERM_CU_MEM_ACCESS_NONE)
                return false;
        }
        mapping = sim_mapping_next(mapping);
    }
    return true;
}

static int page_set_access(uint64_t addr, uint64_t bytes, const berm_cu_mem_access_t *access,
                           size_t access_count) {
    int device = -1;
    int result = sim_access_check(access, access_count);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (!range_is_granular(addr, bytes))
        return BERM_CU_INVALID_VALUE;
    uint64_t count = range_count_whole(addr, bytes, &device);
    if (count == 0)
        return BERM_CU_INVALID_VALUE;
    sim_mapping_t *mapping = sim_mapping_at(addr);
    if (!mappings_may_open(mapping, count, access, access_count))
        return BERM_CU_INVALID_DEVICE;
    sim_effects_run();
    sim_page_edit(device, addr, "cuMemSetAccess");
    sim_effects_run();
    if (!mappings_protect(mapping, count, access, access_count))
        return BERM_CU_OUT_OF_MEMORY;
    sim_charge(&sim.config.costs.set_access, count, bytes);
    for (uint64_t i = 0; i < count; i++, mapping = sim_mapping_next(mapping)) {
        for (size_t j = 0; j < access_count; j++)
            mapping_set_access(mapping, &access[j]);
    }
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemSetAccess(berm_cu_deviceptr_t addr, size_t bytes,
                                const berm_cu_mem_access_t *access, size_t count) {
    int result = sim_enter(SIM_FN_cuMemSetAccess);
    if (result == BERM_CU_SUCCESS)
        result = page_set_access(addr, bytes, access, count);
    return sim_leave(result);
}

berm_cu_result_t cuMemGetAccess(unsigned long long *flags, const berm_cu_mem_location_t *location,
                                berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuMemGetAccess);
    if (result == BERM_CU_SUCCESS) {
        const sim_mapping_t *mapping = sim_mapping_at(addr);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (flags == NULL || location == NULL || mapping == NULL ||
            location->type != BERM_CU_MEM_LOCATION_DEVICE)
            result = BERM_CU_INVALID_VALUE;
        else if (!sim_device_is_valid(location->id))
            result = BERM_CU_INVALID_DEVICE;
        else
            *flags = mapping->access[location->id];
    }
    return sim_leave(result);
}
