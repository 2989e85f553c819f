// SPDX-License-Identifier: Apache-2.0
// The entry points of berm_share.h, but for those by socket (share_socket.c).
#include "front/share.h"

#include <fcntl.h>

#include "base/bits.h"
#include "berm_share.h"
#include "policy/pool.h"

static const uint64_t size_max_bytes = UINT64_C(1) << 62;

// --- looking up --------------------------------------------------------------------------------

berm_device_t *berm__import_find(berm_addr_t addr, berm_import_t **import) {
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL || atomic_load(&device->import_records) == 0)
            continue;
        berm__mutex_lock(&device->lock);
        *import = berm__device_import_at(device, addr);
        if (*import != NULL)
            return device;
        berm__mutex_unlock(&device->lock);
    }
    return NULL;
}

berm_status_t berm__import_or_unknown(berm_addr_t addr) {
    berm_import_t *import;
    berm_device_t *device = berm__import_find(addr, &import);
    if (device == NULL)
        return BERM_ERROR_ADDRESS_UNKNOWN;
    berm__mutex_unlock(&device->lock);
    return BERM_ERROR_ADDRESS_IMPORTED;
}

// --- exporting ---------------------------------------------------------------------------------

// The handle of a live block, marked before the driver makes a descriptor: a free that comes
// between must not give it to another block. The device's lock is held.
static berm_status_t handle_mark(berm_segment_t *segment, berm_addr_t addr,
                                 berm_phys_handle_t **handle, bool *was_exported,
                                 uint64_t *requested_bytes) {
    berm_block_t block;
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    *handle = status == BERM_OK ? berm__block_own_handle(&block) : NULL;
    if (*handle != NULL) {
        *was_exported = (*handle)->is_exported;
        *requested_bytes = block.range->as.block.requested_bytes;
        berm__handle_exported_set(*handle, true);
    }
    berm__mutex_unlock(&pool->lock);
    return status == BERM_OK && *handle == NULL ? BERM_ERROR_NOT_EXPORTABLE : status;
}

static berm_status_t export_locked(berm_segment_t *segment, berm_addr_t addr,
                                   berm_exported_t *exported) {
    berm_phys_handle_t *handle;
    berm_gpu_t *gpu = segment->gpu;
    berm_pool_t *pool = segment->pool;
    bool is_pushed, was_exported;
    berm_status_t status =
        handle_mark(segment, addr, &handle, &was_exported, &exported->requested_bytes);
    if (status != BERM_OK)
        return status;
    status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__handle_export(gpu, handle->handle, &exported->fd);
    berm__gpu_leave(gpu, is_pushed);
    if (status != BERM_OK) {
        berm__mutex_lock(&pool->lock);
        berm__handle_exported_set(handle, was_exported);
        berm__mutex_unlock(&pool->lock);
        return status;
    }
    exported->device = gpu->ordinal;
    exported->size_bytes = (uint64_t)handle->granules << gpu->lg_granule;
    return BERM_OK;
}

berm_status_t berm__share_export(const char *call, berm_addr_t addr, berm_exported_t *exported) {
    bool is_running;
    *exported = (berm_exported_t){.fd = -1};
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_device_t *device;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL) {
        status = berm__import_or_unknown(addr);
    } else {
        status = export_locked(segment, addr, exported);
        berm__mutex_unlock(&device->lock);
    }
    if (status != BERM_OK)
        return berm__error_set(status, "%s, address 0x%llx: %s", call, (unsigned long long)addr,
                               berm_status_text(status));
    return BERM_OK;
}

berm_status_t berm_export(berm_addr_t addr, int *fd, uint64_t *size_bytes) {
    if (fd == NULL || size_bytes == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_export: a NULL pointer");
    berm_exported_t exported;
    berm_status_t status = berm__share_export("berm_export", addr, &exported);
    *fd = exported.fd;
    *size_bytes = exported.size_bytes;
    return status;
}

// --- importing ---------------------------------------------------------------------------------

static berm_status_t request_check(const char *call, const berm_import_request_t *request) {
    if (request->fd < 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: the descriptor %d", call, request->fd);
    if (request->size_bytes == 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: a size of 0 bytes", call);
    if (request->size_bytes > size_max_bytes)
        return berm__error_set(BERM_ERROR_SIZE_TOO_LARGE, "%s: a size of %llu bytes", call,
                               (unsigned long long)request->size_bytes);
    if (fcntl(request->fd, F_GETFD) < 0)
        return berm__error_set(BERM_ERROR_IMPORT_FD, "%s: the descriptor %d is not open", call,
                               request->fd);
    return BERM_OK;
}

berm_status_t berm__share_import(const char *call, const berm_import_request_t *request,
                                 int ordinal, berm_addr_t *addr) {
    berm_device_t *device;
    berm_import_t *import = NULL;
    bool is_pushed;
    berm_status_t status = request_check(call, request);
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    bool is_whole = berm__is_aligned(request->size_bytes, device->gpu.granule_bytes);
    if (is_whole)
        status = berm__device_import(device, request, &import);
    if (import != NULL)
        *addr = import->addr;
    uint64_t granule_bytes = device->gpu.granule_bytes;
    status = berm__heap_device_leave(device, is_pushed, status, call);
    if (status == BERM_ERROR_IMPORT_SIZE)
        return berm__error_set(status,
                               "%s: %llu bytes were named, and the memory behind descriptor %d is "
                               "smaller (the driver does not say its size): name what berm_export "
                               "gave",
                               call, (unsigned long long)request->size_bytes, request->fd);
    if (!is_whole)
        return berm__error_set(
            BERM_ERROR_ARGUMENT, "%s: a size of %llu is not whole granules of %llu bytes", call,
            (unsigned long long)request->size_bytes, (unsigned long long)granule_bytes);
    return status;
}

berm_status_t berm_import(int fd, uint64_t size_bytes, int device, berm_addr_t *addr) {
    if (addr == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_import: addr is NULL");
    *addr = 0;
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    berm_import_request_t request = {
        .fd = fd, .size_bytes = size_bytes, .requested_bytes = size_bytes};
    return berm__share_import("berm_import", &request, device, addr);
}

// CAPTURE where waiting would break a capture.
static berm_status_t wait_check(berm_device_t *device, berm_stream_t handle) {
    uint64_t capture = BERM_CAPTURE_NONE;
    bool is_any = false;
    berm_status_t status;
    berm__mutex_lock(&device->lock);
    status = handle == BERM_STREAM_NONE ? berm__capture_any(&device->gpu, &device->watch, &is_any)
                                        : berm__capture_read(&device->gpu, handle, &capture);
    berm__mutex_unlock(&device->lock);
    bool is_captured = is_any || capture != BERM_CAPTURE_NONE;
    return status == BERM_OK && is_captured ? BERM_ERROR_CAPTURE : status;
}

// Waits for what uses an import, with no lock held: nobody else ends it meanwhile.
static berm_status_t stream_wait(berm_device_t *device, berm_stream_t handle) {
    berm_drv_t *drv = device->gpu.drv;
    bool is_pushed;
    berm_status_t status = berm__gpu_enter(&device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = wait_check(device, handle);
    if (status == BERM_OK && handle == BERM_STREAM_NONE)
        status = berm__drv_status(berm__gpu_synchronize(&device->gpu));
    else if (status == BERM_OK)
        status = berm__drv_status(
            BERM_DRV_CALL(drv, SYNCHRONIZE, stream_synchronize, (berm_cu_stream_t)handle));
    berm__gpu_leave(&device->gpu, is_pushed);
    return status;
}

static berm_status_t import_end(berm_device_t *device, berm_import_t *import) {
    bool is_pushed;
    berm_status_t status = berm__gpu_enter(&device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__device_import_end(device, import);
    berm__gpu_leave(&device->gpu, is_pushed);
    return status;
}

berm_status_t berm_import_close(berm_addr_t addr, berm_stream_t stream) {
    berm_import_t *import = NULL;
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_device_t *device = is_running && addr != 0 ? berm__import_find(addr, &import) : NULL;
    bool is_its = device != NULL && import->addr == addr && !import->is_closing;
    if (is_its)
        import->is_closing = true;
    if (device != NULL)
        berm__mutex_unlock(&device->lock);
    if (!is_its)
        return berm__error_set(BERM_ERROR_NOT_IMPORTED, "berm_import_close, address 0x%llx: %s",
                               (unsigned long long)addr, berm_status_text(BERM_ERROR_NOT_IMPORTED));
    status = stream_wait(device, berm__stream_normalize(stream));
    berm__mutex_lock(&device->lock);
    device->host_waits += status == BERM_OK;
    import->is_closing = false;
    if (status == BERM_OK)
        status = import_end(device, import);
    berm__mutex_unlock(&device->lock);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_import_close, address 0x%llx: %s",
                               (unsigned long long)addr, berm_status_text(status));
    return BERM_OK;
}

// --- peers -------------------------------------------------------------------------------------

static berm_status_t peers_check(const char *call, int ordinal, int peer, berm_device_t **device,
                                 berm_device_t **peer_device) {
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, device);
    if (status == BERM_OK)
        status = berm__heap_device(peer, peer_device);
    if (status == BERM_OK && ordinal == peer)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: device %d is no peer of itself", call,
                               peer);
    if (status == BERM_OK && (*device)->gpu.drv->device_can_access_peer == NULL)
        return berm__error_set(BERM_ERROR_UNSUPPORTED, "%s: the driver has no peers", call);
    return status;
}

berm_status_t berm_peer_enable(int ordinal, int peer) {
    berm_device_t *device, *peer_device;
    bool is_pushed;
    int can = 0;
    berm_status_t status = peers_check("berm_peer_enable", ordinal, peer, &device, &peer_device);
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = berm__drv_status(BERM_DRV_CALL(device->gpu.drv, OTHER, device_can_access_peer, &can,
                                            peer_device->gpu.device, device->gpu.device));
    if (status == BERM_OK)
        status = can ? berm__device_peer_enable(device, peer) : BERM_ERROR_PEER_ACCESS;
    return berm__heap_device_leave(device, is_pushed, status, "berm_peer_enable");
}

berm_status_t berm_peer_disable(int ordinal, int peer) {
    berm_device_t *device, *peer_device;
    bool is_pushed;
    berm_status_t status = peers_check("berm_peer_disable", ordinal, peer, &device, &peer_device);
    if (status != BERM_OK)
        return status;
    status = stream_wait(peer_device, BERM_STREAM_NONE);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_peer_disable, device %d: %s", peer,
                               berm_status_text(status));
    status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = berm__device_synchronize(device);
    if (status == BERM_OK)
        status = berm__device_peer_disable(device, peer);
    return berm__heap_device_leave(device, is_pushed, status, "berm_peer_disable");
}
