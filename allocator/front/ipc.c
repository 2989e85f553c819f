// SPDX-License-Identifier: Apache-2.0
// Legacy IPC (berm_share.h): blocks of plain memory by the driver's 64-byte handles.
//
// A handle is the driver's for a whole cuMemAlloc, which is a segment here, so an export is a
// handle and an offset, and the segment stays until the heap ends: to free memory that another
// process has open is undefined. The driver lets a process open a handle once, so what is open is
// kept by handle, with a count of its uses, and by address, with a count of how often that was
// given out. What a stop cannot close, since a capture goes on, is kept for the next run as long as
// the context lives: the driver would not open it twice.
//
// Locks: the heap's, for what is open; a segment's device's, for an export.
#include <string.h>

#include "base/list.h"
#include "berm_share.h"
#include "front/heap.h"
#include "front/share.h"
#include "host/mem.h"

// A handle that is open.
typedef struct ipc_memory {
    berm_list_t link;
    unsigned char handle[BERM_IPC_HANDLE_BYTES];
    int ordinal; // of the device
    berm_addr_t base;
    uint64_t uses; // by addresses; 0: of an earlier run, and not closed then
} ipc_memory_t;

// An address in it that was given out.
typedef struct ipc_address {
    berm_list_t link;
    ipc_memory_t *memory;
    berm_addr_t addr;
    uint64_t opens;
} ipc_address_t;

// Under the heap's lock.
static berm_list_t memories = {&memories, &memories};
static berm_list_t addresses = {&addresses, &addresses};

// --- exporting ---------------------------------------------------------------------------------

static berm_status_t export_locked(berm_segment_t *segment, berm_addr_t addr, unsigned char *handle,
                                   uint64_t *offset_bytes) {
    berm_gpu_t *gpu = segment->gpu;
    berm_block_t block;
    berm_cu_ipc_mem_handle_t made;
    bool is_pushed;
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    berm__mutex_unlock(&pool->lock);
    if (status != BERM_OK)
        return status;
    if (!segment->is_plain)
        return BERM_ERROR_NOT_EXPORTABLE;
    if (gpu->drv->ipc_get_mem_handle == NULL)
        return BERM_ERROR_UNSUPPORTED;
    status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__drv_status(
            BERM_DRV_CALL(gpu->drv, OTHER, ipc_get_mem_handle, &made, segment->plain_addr));
    berm__gpu_leave(gpu, is_pushed);
    if (status != BERM_OK)
        return status;
    segment->is_exported = true;
    memcpy(handle, &made, sizeof made);
    *offset_bytes = addr - segment->plain_addr;
    return BERM_OK;
}

_Static_assert(sizeof(berm_cu_ipc_mem_handle_t) == BERM_IPC_HANDLE_BYTES, "the driver's handle");

berm_status_t berm_ipc_export(berm_addr_t addr, unsigned char handle[BERM_IPC_HANDLE_BYTES],
                              uint64_t *offset_bytes) {
    bool is_running;
    if (handle == NULL || offset_bytes == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_ipc_export: a NULL pointer");
    memset(handle, 0, BERM_IPC_HANDLE_BYTES);
    *offset_bytes = 0;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_device_t *device;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL) {
        status = berm__import_or_unknown(addr);
    } else {
        status = export_locked(segment, addr, handle, offset_bytes);
        berm__mutex_unlock(&device->lock);
    }
    if (status == BERM_OK)
        return BERM_OK;
    return berm__error_set(status, "berm_ipc_export, address 0x%llx: %s", (unsigned long long)addr,
                           status == BERM_ERROR_NOT_EXPORTABLE
                               ? "no plain memory: the option backing and plain pools give that"
                               : berm_status_text(status));
}

// --- opening -----------------------------------------------------------------------------------

static ipc_memory_t *memory_find(const unsigned char *handle, int ordinal) {
    BERM_LIST_EACH (ipc_memory_t, memory, &memories, link)
        if (memory->ordinal == ordinal &&
            memcmp(memory->handle, handle, BERM_IPC_HANDLE_BYTES) == 0)
            return memory;
    return NULL;
}

static ipc_address_t *address_find(berm_addr_t addr) {
    BERM_LIST_EACH (ipc_address_t, address, &addresses, link)
        if (address->addr == addr)
            return address;
    return NULL;
}

static berm_status_t open_status(berm_cu_result_t result) {
    switch (result) {
    case BERM_CU_INVALID_VALUE:
    case BERM_CU_INVALID_HANDLE:
        return BERM_ERROR_IPC_HANDLE;
    case BERM_CU_INVALID_CONTEXT:
        return BERM_ERROR_IPC_OWN;
    default:
        return berm__drv_status(result);
    }
}

// The driver's calls take the context of the device that is to use the memory.
static berm_status_t memory_open(ipc_memory_t *memory, berm_gpu_t *gpu) {
    berm_cu_ipc_mem_handle_t handle;
    bool is_pushed;
    if (gpu->drv->ipc_open_mem_handle == NULL || gpu->drv->ipc_close_mem_handle == NULL)
        return BERM_ERROR_UNSUPPORTED;
    memcpy(&handle, memory->handle, sizeof handle);
    berm_status_t status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK)
        status = open_status(BERM_DRV_CALL(gpu->drv, OTHER, ipc_open_mem_handle, &memory->base,
                                           handle, BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    berm__gpu_leave(gpu, is_pushed);
    return status;
}

// Nothing that runs may use the memory when it goes.
static berm_status_t memory_close(const ipc_memory_t *memory) {
    berm_device_t *device;
    bool is_pushed;
    device = berm__heap_device_opened(memory->ordinal);
    if (device == NULL) // of an earlier run, and not used in this one
        return BERM_ERROR_CAPTURE;
    berm_gpu_t *gpu = &device->gpu;
    berm_status_t status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK) {
        berm__mutex_lock(&device->lock);
        status = berm__device_synchronize(device);
        berm__mutex_unlock(&device->lock);
    }
    if (status == BERM_OK)
        status =
            berm__drv_status(BERM_DRV_CALL(gpu->drv, OTHER, ipc_close_mem_handle, memory->base));
    berm__gpu_leave(gpu, is_pushed);
    return status;
}

static berm_status_t memory_of(const unsigned char *handle, berm_device_t *device,
                               ipc_memory_t **out) {
    *out = memory_find(handle, device->gpu.ordinal);
    if (*out != NULL)
        return BERM_OK;
    ipc_memory_t *memory = berm__mem_alloc(sizeof *memory);
    if (memory == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(memory->handle, handle, BERM_IPC_HANDLE_BYTES);
    memory->ordinal = device->gpu.ordinal;
    berm_status_t status = memory_open(memory, &device->gpu);
    if (status != BERM_OK) {
        berm__mem_free(memory, sizeof *memory);
        return status;
    }
    berm__list_push_back(&memories, &memory->link);
    *out = memory;
    return BERM_OK;
}

static berm_status_t open_locked(const unsigned char *handle, berm_device_t *device,
                                 uint64_t offset_bytes, berm_addr_t *addr) {
    ipc_memory_t *memory;
    ipc_address_t *spare = berm__mem_alloc(sizeof *spare);
    if (spare == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm_status_t status = memory_of(handle, device, &memory);
    ipc_address_t *known = status == BERM_OK ? address_find(memory->base + offset_bytes) : NULL;
    if (status != BERM_OK || known != NULL)
        berm__mem_free(spare, sizeof *spare);
    if (status != BERM_OK)
        return status;
    *addr = memory->base + offset_bytes;
    if (known != NULL) {
        known->opens++;
        return BERM_OK;
    }
    *spare = (ipc_address_t){.memory = memory, .addr = *addr, .opens = 1};
    berm__list_push_back(&addresses, &spare->link);
    memory->uses++;
    return BERM_OK;
}

berm_status_t berm_ipc_open(const unsigned char handle[BERM_IPC_HANDLE_BYTES], int ordinal,
                            uint64_t offset_bytes, berm_addr_t *addr) {
    berm_device_t *device;
    if (handle == NULL || addr == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_ipc_open: a NULL pointer");
    *addr = 0;
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&berm__heap.lock);
    status = open_locked(handle, device, offset_bytes, addr);
    berm__mutex_unlock(&berm__heap.lock);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_ipc_open, device %d: %s", ordinal,
                               berm_status_text(status));
    return BERM_OK;
}

static void memory_forget(ipc_memory_t *memory) {
    berm__list_remove(&memory->link);
    berm__mem_free(memory, sizeof *memory);
}

// The last use of the last address closes the handle; on failure nothing has changed.
static berm_status_t close_locked(berm_addr_t addr) {
    ipc_address_t *address = address_find(addr);
    if (address == NULL)
        return BERM_ERROR_NOT_IMPORTED;
    ipc_memory_t *memory = address->memory;
    if (address->opens > 1) {
        address->opens--;
        return BERM_OK;
    }
    berm_status_t status = memory->uses == 1 ? memory_close(memory) : BERM_OK;
    if (status != BERM_OK)
        return status;
    berm__list_remove(&address->link);
    berm__mem_free(address, sizeof *address);
    if (--memory->uses == 0)
        memory_forget(memory);
    return BERM_OK;
}

berm_status_t berm_ipc_close(berm_addr_t addr) {
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&berm__heap.lock);
    status = close_locked(addr);
    berm__mutex_unlock(&berm__heap.lock);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_ipc_close, address 0x%llx: %s",
                               (unsigned long long)addr, berm_status_text(status));
    return BERM_OK;
}

void berm__ipc_close_all(void) {
    while (!berm__list_is_empty(&addresses)) {
        ipc_address_t *address = BERM_CONTAINER_OF(addresses.next, ipc_address_t, link);
        berm__list_remove(&address->link);
        berm__mem_free(address, sizeof *address);
    }
    for (berm_list_t *link = memories.next, *next; link != &memories; link = next) {
        ipc_memory_t *memory = BERM_CONTAINER_OF(link, ipc_memory_t, link);
        next = link->next;
        berm_status_t status = memory_close(memory);
        if (status != BERM_OK && status != BERM_ERROR_CAPTURE) // once more: a passing error
            status = memory_close(memory);
        memory->uses = 0;
        if (status != BERM_ERROR_CAPTURE)
            memory_forget(memory);
    }
}

void berm__ipc_contexts_check(void) {
    for (berm_list_t *link = memories.next, *next; link != &memories; link = next) {
        ipc_memory_t *memory = BERM_CONTAINER_OF(link, ipc_memory_t, link);
        berm_drv_t *drv = &berm__heap.drv;
        berm_cu_device_t device = 0;
        unsigned flags = 0;
        int is_active = 0;
        next = link->next;
        berm_cu_result_t result = BERM_DRV_CALL(drv, OTHER, device_get, &device, memory->ordinal);
        if (result == BERM_CU_SUCCESS)
            result = BERM_DRV_CALL(drv, OTHER, primary_ctx_get_state, device, &flags, &is_active);
        if (result != BERM_CU_SUCCESS || !is_active)
            memory_forget(memory);
    }
}
