// SPDX-License-Identifier: Apache-2.0
// Legacy IPC: handles of 64 bytes for cuMemAlloc blocks and for events, opened in other processes.
//
// A handle names the process's file by process and descriptor, so opening one fails once that
// process is gone; what is open stays. A handle opened again in a process gives the same address.
// Clocks are each process's own: an opened event is complete until the opener records it.
//
// Locks: the state's, by sim_enter. May fail: no memory, descriptors or access to the process.
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backing.h"

#define IPC_MAGIC_MEMORY UINT32_C(0x6d69636d)
#define IPC_MAGIC_EVENT  UINT32_C(0x6d696365)

// What is in a handle: a block [block_offset, + block_bytes) of a memory, that is memory_bytes from
// file_offset on in the process's file.
typedef struct ipc_memory {
    uint32_t magic;
    int32_t process;
    int32_t fd;
    int32_t device;
    uint64_t process_identity;
    uint64_t memory;
    uint64_t file_offset;
    uint64_t memory_bytes;
    uint64_t block_offset;
    uint64_t block_bytes;
} ipc_memory_t;

typedef struct ipc_event {
    uint32_t magic;
    int32_t process;
    uint64_t process_identity;
    uint64_t event;
    uint64_t unused[5];
} ipc_event_t;

_Static_assert(sizeof(ipc_memory_t) == sizeof(berm_cu_ipc_mem_handle_t), "64 bytes");
_Static_assert(sizeof(ipc_event_t) == sizeof(berm_cu_ipc_event_handle_t), "64 bytes");

struct sim_opened {
    berm_list_t node; // in sim.opened
    ipc_memory_t from;
    uint64_t refs;
    sim_mapping_t *mapping;
    uint64_t addr; // of the memory
};

// --- memory --------------------------------------------------------------------------------------

static int ipc_get(berm_cu_ipc_mem_handle_t *handle, uint64_t addr) {
    const sim_mapping_t *mapping = sim_mapping_at(addr);
    sim_charge(&sim.config.costs.other, 0, 0);
    // Blocks of VMM handles, of pools and of other processes are not for these handles.
    if (handle == NULL || mapping == NULL || mapping->node.key != addr || !mapping->is_plain ||
        mapping->piece != NULL || mapping->opened != NULL)
        return BERM_CU_INVALID_VALUE;
    const sim_memory_t *memory = mapping->memory;
    int fd = sim_process_file();
    if (fd < 0)
        return BERM_CU_OPERATING_SYSTEM;
    ipc_memory_t made = {.magic = IPC_MAGIC_MEMORY,
                         .process = getpid(),
                         .fd = fd,
                         .device = memory->device,
                         .process_identity = memory->identity[0],
                         .memory = memory->identity[1],
                         .file_offset = memory->file_offset,
                         .memory_bytes = memory->size_bytes,
                         .block_offset = mapping->memory_offset,
                         .block_bytes = mapping->size_bytes};
    memcpy(handle, &made, sizeof(made));
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuIpcGetMemHandle(berm_cu_ipc_mem_handle_t *handle, berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuIpcGetMemHandle);
    if (result == BERM_CU_SUCCESS)
        result = ipc_get(handle, addr);
    return sim_leave(result);
}

static sim_opened_t *opened_find(const ipc_memory_t *from) {
    for (berm_list_t *at = sim.opened.next; at != &sim.opened; at = at->next) {
        sim_opened_t *opened = BERM_CONTAINER_OF(at, sim_opened_t, node);
        if (memcmp(&opened->from, from, sizeof(*from)) == 0 &&
            opened->mapping->context == sim_context_current())
            return opened;
    }
    return NULL;
}

// The file a handle names, if it is what the handle says; -1: it is not, or is gone.
static int ipc_file(const ipc_memory_t *from) {
    char path[64];
    sim_ticket_t ticket;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)from->process, (int)from->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    uint64_t end;
    if (sim_ticket_read(fd, &ticket) && ticket.identity[0] == from->process_identity &&
        ticket.identity[1] == 0 && from->memory_bytes != 0 && sim_is_granular(from->memory_bytes) &&
        sim_is_granular(from->file_offset) &&
        berm__add_checked(from->block_offset, from->block_bytes, &end) &&
        end <= from->memory_bytes &&
        berm__add_checked(from->file_offset, from->memory_bytes, &end) &&
        (ticket.contents_bytes == 0 || end <= ticket.contents_bytes))
        return fd;
    (void)close(fd);
    return -1;
}

void sim_opened_destroy(sim_opened_t *opened) {
    uint64_t bytes = opened->mapping->memory->size_bytes;
    sim_backing_unmap(opened->addr, bytes);
    sim_mapping_destroy(opened->mapping);
    sim_address_give(opened->addr, bytes);
    berm__list_remove(&opened->node);
    free(opened);
}

// Puts the memory at fresh addresses; NULL with *result set. The file stays the caller's then.
static sim_opened_t *opened_create(const ipc_memory_t *from, int fd, int *result) {
    berm_cu_mem_prop_t prop = sim_device_prop(from->device);
    sim_import_t import = {.identity = {from->process_identity, from->memory},
                           .fd = fd,
                           .file_offset = from->file_offset};
    sim_opened_t *opened = calloc(1, sizeof(*opened));
    *result = BERM_CU_OUT_OF_MEMORY;
    if (opened == NULL)
        return NULL;
    uint64_t bytes = from->memory_bytes;
    sim_memory_t *memory = NULL;
    opened->addr = sim_address_take(bytes, sim.config.granule_bytes);
    if (opened->addr != 0)
        memory = sim_memory_create(bytes, &prop, false, &import, result);
    if (memory != NULL &&
        sim_backing_map(opened->addr, bytes, memory, 0, BERM_CU_MEM_ACCESS_READWRITE))
        opened->mapping =
            sim_mapping_create(opened->addr + from->block_offset, from->block_bytes, memory);
    if (opened->mapping != NULL) {
        opened->from = *from;
        berm__list_push_back(&sim.opened, &opened->node);
        return opened;
    }
    if (memory != NULL) {
        *result = BERM_CU_OUT_OF_MEMORY;
        sim_backing_unmap(opened->addr, bytes);
        memory->has_file = false; // the caller closes it
        memory->fd = -1;
        sim_memory_settle(memory);
    }
    if (opened->addr != 0)
        sim_address_give(opened->addr, bytes);
    free(opened);
    return NULL;
}

static int ipc_open(berm_cu_deviceptr_t *addr, const berm_cu_ipc_mem_handle_t *handle,
                    unsigned flags) {
    int result;
    ipc_memory_t from;
    memcpy(&from, handle, sizeof(from));
    sim_charge(&sim.config.costs.other, 0, 0);
    if (addr == NULL || flags != BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        from.magic != IPC_MAGIC_MEMORY)
        return BERM_CU_INVALID_VALUE;
    if (from.process_identity == sim_process_identity()) // not in the process it is from
        return BERM_CU_INVALID_CONTEXT;
    if (!sim_device_is_valid(from.device))
        return BERM_CU_INVALID_DEVICE;
    sim_opened_t *opened = opened_find(&from);
    if (opened == NULL) {
        int fd = ipc_file(&from);
        if (fd < 0)
            return BERM_CU_INVALID_VALUE;
        opened = opened_create(&from, fd, &result);
        if (opened == NULL) {
            (void)close(fd);
            return result;
        }
        opened->mapping->is_plain = true;
        opened->mapping->opened = opened;
        opened->mapping->context = sim_context_current();
        opened->mapping->memory_offset = from.block_offset;
        opened->mapping->access[from.device] = BERM_CU_MEM_ACCESS_READWRITE;
        opened->mapping->access[sim_context_current()->device] = BERM_CU_MEM_ACCESS_READWRITE;
    }
    opened->refs++;
    *addr = opened->mapping->node.key;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuIpcOpenMemHandle_v2(berm_cu_deviceptr_t *addr, berm_cu_ipc_mem_handle_t handle,
                                       unsigned flags) {
    int result = sim_enter(SIM_FN_cuIpcOpenMemHandle_v2);
    if (result == BERM_CU_SUCCESS)
        result = ipc_open(addr, &handle, flags);
    return sim_leave(result);
}

berm_cu_result_t cuIpcCloseMemHandle(berm_cu_deviceptr_t addr) {
    int result = sim_enter(SIM_FN_cuIpcCloseMemHandle);
    if (result == BERM_CU_SUCCESS) {
        sim_mapping_t *mapping = sim_mapping_at(addr);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (mapping == NULL || mapping->opened == NULL || mapping->node.key != addr) {
            result = BERM_CU_INVALID_VALUE;
        } else if (--mapping->opened->refs == 0) {
            sim_effects_run();
            sim_mapping_check_idle(mapping, "cuIpcCloseMemHandle");
            sim_opened_destroy(mapping->opened);
        }
    }
    return sim_leave(result);
}

// --- events --------------------------------------------------------------------------------------

berm_cu_result_t cuIpcGetEventHandle(berm_cu_ipc_event_handle_t *handle, berm_cu_event_t event) {
    int result = sim_enter(SIM_FN_cuIpcGetEventHandle);
    if (result == BERM_CU_SUCCESS) {
        const sim_event_t *from = sim_table_get(&sim.events, (uint64_t)(uintptr_t)event);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (from == NULL || (from->flags & BERM_CU_EVENT_INTERPROCESS) == 0) {
            result = BERM_CU_INVALID_HANDLE;
        } else if (handle == NULL) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            ipc_event_t made = {.magic = IPC_MAGIC_EVENT,
                                .process = getpid(),
                                .process_identity = sim_process_identity(),
                                .event = from->handle};
            memcpy(handle, &made, sizeof(made));
        }
    }
    return sim_leave(result);
}

static int ipc_open_event(berm_cu_event_t *event, const berm_cu_ipc_event_handle_t *handle) {
    int result;
    ipc_event_t from;
    memcpy(&from, handle, sizeof(from));
    sim_charge(&sim.config.costs.other, 0, 0);
    if (event == NULL || from.magic != IPC_MAGIC_EVENT || from.process <= 0)
        return BERM_CU_INVALID_VALUE;
    if (from.process_identity == sim_process_identity())
        return BERM_CU_INVALID_CONTEXT;
    if (kill(from.process, 0) != 0 && errno != EPERM) // its process is gone
        return BERM_CU_INVALID_VALUE;
    const sim_event_t *made =
        sim_event_create(BERM_CU_EVENT_DISABLE_TIMING | BERM_CU_EVENT_INTERPROCESS, &result);
    if (made != NULL)
        *event = (berm_cu_event_t)(uintptr_t)made->handle;
    return result;
}

berm_cu_result_t cuIpcOpenEventHandle(berm_cu_event_t *event, berm_cu_ipc_event_handle_t handle) {
    int result = sim_enter(SIM_FN_cuIpcOpenEventHandle);
    if (result == BERM_CU_SUCCESS)
        result = ipc_open_event(event, &handle);
    return sim_leave(result);
}
