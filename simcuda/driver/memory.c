// SPDX-License-Identifier: Apache-2.0
// Physical memory: handles of cuMemCreate, their references, and passing them on. What is behind
// cuMemAlloc is the same thing without a handle.
//
// A memory lives while the program holds a reference or it is mapped somewhere. Device memory is
// taken in whole granules from what the device has left beside other processes.
// Locks: the state's, by sim_enter. May fail: creation.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu.h"
#include "backing.h"

static sim_memory_t *memory_get(berm_cu_mem_handle_t handle) {
    return sim_table_get(&sim.memories, handle);
}

// A handle the program may still use: one it has released is dead even while mapped.
static sim_memory_t *memory_get_live(berm_cu_mem_handle_t handle) {
    sim_memory_t *memory = memory_get(handle);
    return memory != NULL && memory->refs > 0 ? memory : NULL;
}

static bool memory_fits(int device, uint64_t bytes) {
    if (device < 0)
        return true;
    return bytes <= sim_device_free_bytes(&sim.devices[device]);
}

// Gives the memory its identity and its contents.
static bool memory_place(sim_memory_t *memory, const sim_import_t *import) {
    static uint64_t identities; // of the process, resets of the device notwithstanding
    memory->fd = -1;
    if (import == NULL) {
        memory->identity[0] = sim_process_identity();
        memory->identity[1] = ++identities;
        return sim_backing_take(memory);
    }
    memory->identity[0] = import->identity[0];
    memory->identity[1] = import->identity[1];
    memory->is_imported = true;
    memory->has_file = true;
    memory->fd = import->fd;
    memory->file_offset = import->file_offset;
    return true;
}

sim_memory_t *sim_memory_create(uint64_t bytes, const berm_cu_mem_prop_t *prop, bool has_handle,
                                const sim_import_t *import, int *result) {
    int device = prop->location.type == BERM_CU_MEM_LOCATION_DEVICE ? prop->location.id : -1;
    *result = BERM_CU_OUT_OF_MEMORY;
    if (!memory_fits(device, bytes))
        return NULL;
    sim_memory_t *memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return NULL;
    memory->size_bytes = bytes;
    memory->device = device;
    memory->prop = *prop;
    if (!memory_place(memory, import)) {
        free(memory);
        return NULL;
    }
    if (has_handle && (memory->handle = sim_table_add(&sim.memories, memory)) == 0) {
        if (import == NULL)
            sim_backing_give(memory);
        free(memory);
        return NULL;
    }
    memory->id = sim_id_next();
    if (device >= 0)
        sim.devices[device].used_bytes += bytes;
    sim_ledger_used(device, bytes);
    if (has_handle)
        sim_ledger_handle(device, 1, bytes);
    if (memory->is_imported)
        sim_ledger_import(device, 1, bytes);
    *result = BERM_CU_SUCCESS;
    return memory;
}

void sim_memory_clear(sim_memory_t *memory) {
    sim_used_clear(memory);
    sim_backing_give(memory);
    free(memory);
}

void sim_memory_settle(sim_memory_t *memory) {
    if (memory->refs > 0 || memory->mappings > 0)
        return;
    if (memory->device >= 0)
        sim.devices[memory->device].used_bytes -= memory->size_bytes;
    sim_ledger_used(memory->device, 0 - memory->size_bytes);
    if (memory->is_imported)
        sim_ledger_import(memory->device, (uint64_t)-1, 0 - memory->size_bytes);
    if (memory->handle != 0) {
        sim_ledger_handle(memory->device, (uint64_t)-1, 0 - memory->size_bytes);
        sim_table_remove(&sim.memories, memory->handle);
    }
    sim_memory_clear(memory);
}

// --- create and release --------------------------------------------------------------------------

static bool prop_is_host(const berm_cu_mem_prop_t *prop) {
    return prop->location.type == BERM_CU_MEM_LOCATION_HOST ||
           prop->location.type == BERM_CU_MEM_LOCATION_HOST_NUMA;
}

static int prop_check(const berm_cu_mem_prop_t *prop) {
    if (prop == NULL || prop->type != BERM_CU_MEM_ALLOCATION_PINNED ||
        prop->win32_handle_metadata != NULL)
        return BERM_CU_INVALID_VALUE;
    if (prop->location.type == BERM_CU_MEM_LOCATION_DEVICE) {
        if (!sim_device_is_valid(prop->location.id))
            return BERM_CU_INVALID_DEVICE;
    } else if (!prop_is_host(prop) || prop->requested_handle_types != BERM_CU_MEM_HANDLE_NONE) {
        return BERM_CU_INVALID_VALUE;
    }
    int types = prop->requested_handle_types;
    if ((types & ~(BERM_CU_MEM_HANDLE_POSIX_FD | BERM_CU_MEM_HANDLE_WIN32 |
                   BERM_CU_MEM_HANDLE_WIN32_KMT | BERM_CU_MEM_HANDLE_FABRIC)) != 0)
        return BERM_CU_INVALID_VALUE;
    if ((types & BERM_CU_MEM_HANDLE_FABRIC) != 0) // there is no IMEX channel
        return BERM_CU_NOT_PERMITTED;
    if ((types & (BERM_CU_MEM_HANDLE_WIN32 | BERM_CU_MEM_HANDLE_WIN32_KMT)) != 0)
        return BERM_CU_NOT_SUPPORTED;
    return BERM_CU_SUCCESS;
}

static int memory_create(berm_cu_mem_handle_t *handle, size_t bytes, const berm_cu_mem_prop_t *prop,
                         unsigned long long flags) {
    if (handle == NULL || flags != 0 || bytes == 0 || !sim_is_granular(bytes))
        return BERM_CU_INVALID_VALUE;
    int result = prop_check(prop);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (prop->location.type == BERM_CU_MEM_LOCATION_DEVICE &&
        sim.devices[prop->location.id].is_lost)
        return BERM_CU_DEVICE_UNAVAILABLE;
    sim_charge(&sim.config.costs.create, 0, bytes);
    if (sim.config.handles_max != 0 && sim.memories.live >= sim.config.handles_max)
        return BERM_CU_OUT_OF_MEMORY;
    sim_memory_t *memory = sim_memory_create(bytes, prop, true, NULL, &result);
    if (memory == NULL)
        return result;
    memory->prop.alloc_flags.compression_type = BERM_CU_MEM_COMPRESSION_NONE; // never granted
    memory->refs = 1;
    *handle = memory->handle;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemCreate(berm_cu_mem_handle_t *handle, size_t bytes,
                             const berm_cu_mem_prop_t *prop, unsigned long long flags) {
    int result = sim_enter(SIM_FN_cuMemCreate);
    if (result == BERM_CU_SUCCESS)
        result = memory_create(handle, bytes, prop, flags);
    return sim_leave(result);
}

berm_cu_result_t cuMemRelease(berm_cu_mem_handle_t handle) {
    int result = sim_enter(SIM_FN_cuMemRelease);
    if (result == BERM_CU_SUCCESS) {
        sim_memory_t *memory = memory_get_live(handle);
        if (memory == NULL) {
            sim_hazard(SIMCUDA_HAZARD_DOUBLE_RELEASE, 0,
                       "cuMemRelease of handle 0x%llx, which the program does not hold",
                       (unsigned long long)handle);
            result = BERM_CU_INVALID_VALUE;
        } else {
            sim_charge(&sim.config.costs.release, 0, memory->size_bytes);
            memory->refs--;
            sim_memory_settle(memory);
        }
    }
    return sim_leave(result);
}

static int memory_retain(berm_cu_mem_handle_t *handle, uint64_t addr) {
    sim_charge(&sim.config.costs.other, 0, 0);
    if (handle == NULL)
        return BERM_CU_INVALID_VALUE;
    const sim_mapping_t *mapping = sim_mapping_at(addr);
    if (mapping == NULL) {
        sim_hazard(SIMCUDA_HAZARD_RETAIN_UNMAPPED, addr,
                   "cuMemRetainAllocationHandle of 0x%llx, where nothing is mapped",
                   (unsigned long long)addr);
        return BERM_CU_INVALID_VALUE;
    }
    if (mapping->is_plain)
        return BERM_CU_INVALID_VALUE;
    mapping->memory->refs++;
    *handle = mapping->memory->handle;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemRetainAllocationHandle(berm_cu_mem_handle_t *handle, void *addr) {
    int result = sim_enter(SIM_FN_cuMemRetainAllocationHandle);
    if (result == BERM_CU_SUCCESS)
        result = memory_retain(handle, (uint64_t)(uintptr_t)addr);
    return sim_leave(result);
}

// --- properties ----------------------------------------------------------------------------------

berm_cu_result_t cuMemGetAllocationGranularity(size_t *granularity, const berm_cu_mem_prop_t *prop,
                                               int option) {
    int result = sim_enter(SIM_FN_cuMemGetAllocationGranularity);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        if (granularity == NULL || option < BERM_CU_MEM_GRANULARITY_MINIMUM ||
            option > BERM_CU_MEM_GRANULARITY_RECOMMENDED)
            result = BERM_CU_INVALID_VALUE;
        else
            result = prop_check(prop);
        if (result == BERM_CU_SUCCESS)
            *granularity = sim.config.granule_bytes;
    }
    return sim_leave(result);
}

berm_cu_result_t cuMemGetAllocationPropertiesFromHandle(berm_cu_mem_prop_t *prop,
                                                        berm_cu_mem_handle_t handle) {
    int result = sim_enter(SIM_FN_cuMemGetAllocationPropertiesFromHandle);
    if (result == BERM_CU_SUCCESS) {
        const sim_memory_t *memory = memory_get_live(handle);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (prop == NULL || memory == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *prop = memory->prop;
    }
    return sim_leave(result);
}

// --- export and import ---------------------------------------------------------------------------

static int memory_export(void *shareable, berm_cu_mem_handle_t handle, int type,
                         unsigned long long flags) {
    sim_memory_t *memory = memory_get_live(handle);
    sim_charge(&sim.config.costs.other, 0, 0);
    if (shareable == NULL || flags != 0 || memory == NULL)
        return BERM_CU_INVALID_VALUE;
    if (type == BERM_CU_MEM_HANDLE_FABRIC)
        return BERM_CU_NOT_PERMITTED;
    if (type != BERM_CU_MEM_HANDLE_POSIX_FD ||
        (memory->prop.requested_handle_types & BERM_CU_MEM_HANDLE_POSIX_FD) == 0)
        return BERM_CU_INVALID_VALUE;
    int fd = sim_memory_file(memory) ? fcntl(memory->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0)
        return BERM_CU_OPERATING_SYSTEM;
    *(int *)shareable = fd;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemExportToShareableHandle(void *shareable, berm_cu_mem_handle_t handle,
                                              int type, unsigned long long flags) {
    int result = sim_enter(SIM_FN_cuMemExportToShareableHandle);
    if (result == BERM_CU_SUCCESS)
        result = memory_export(shareable, handle, type, flags);
    return sim_leave(result);
}

static sim_memory_t *memory_find(const uint64_t identity[2]) {
    uint32_t index = 0;
    sim_memory_t *memory;
    while ((memory = sim_table_each(&sim.memories, &index)) != NULL) {
        if (memory->identity[0] == identity[0] && memory->identity[1] == identity[1])
            break;
    }
    return memory;
}

// Memory this process does not have: a handle of its own, charged to its device.
static sim_memory_t *memory_import_new(const sim_ticket_t *ticket, int fd, int *result) {
    berm_cu_mem_prop_t prop = sim_device_prop(ticket->device);
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    prop.alloc_flags.gpu_direct_rdma_capable = ticket->is_rdma_capable != 0;
    sim_import_t import = {.identity = {ticket->identity[0], ticket->identity[1]},
                           .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    *result = BERM_CU_OPERATING_SYSTEM;
    if (import.fd < 0)
        return NULL;
    *result = BERM_CU_OUT_OF_MEMORY;
    bool is_full = sim.config.handles_max != 0 && sim.memories.live >= sim.config.handles_max;
    sim_memory_t *memory =
        is_full ? NULL : sim_memory_create(ticket->memory_bytes, &prop, true, &import, result);
    if (memory == NULL)
        (void)close(import.fd);
    return memory;
}

// The same memory twice in one process is one handle, with two references.
static int memory_import(berm_cu_mem_handle_t *handle, void *os_handle, int type) {
    sim_ticket_t ticket;
    int result = BERM_CU_SUCCESS;
    int fd = (int)(intptr_t)os_handle;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (handle == NULL)
        return BERM_CU_INVALID_VALUE;
    if (type == BERM_CU_MEM_HANDLE_FABRIC)
        return BERM_CU_NOT_PERMITTED;
    if (type != BERM_CU_MEM_HANDLE_POSIX_FD)
        return BERM_CU_NOT_SUPPORTED;
    if (!sim_ticket_read(fd, &ticket) || ticket.identity[1] == 0 || ticket.memory_bytes == 0)
        return BERM_CU_INVALID_VALUE;
    if (!sim_device_is_valid(ticket.device))
        return BERM_CU_INVALID_DEVICE;
    sim_memory_t *memory = memory_find(ticket.identity);
    if (memory == NULL)
        memory = memory_import_new(&ticket, fd, &result);
    if (memory == NULL)
        return result;
    memory->refs++;
    *handle = memory->handle;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemImportFromShareableHandle(berm_cu_mem_handle_t *handle, void *os_handle,
                                                int type) {
    int result = sim_enter(SIM_FN_cuMemImportFromShareableHandle);
    if (result == BERM_CU_SUCCESS)
        result = memory_import(handle, os_handle, type);
    return sim_leave(result);
}
