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

// The handles that a live block lies in, where all may be exported (option shareable), and the one
// that is number `part`; false if they may not. They stay where they are while the block lives. The
// pool's lock is held.
static bool shown_find(const berm_block_t *block, uint32_t part, berm_exported_t *exported,
                       berm_phys_handle_t **handle) {
    const berm_segment_t *segment = block->segment;
    unsigned lg = segment->gpu->lg_granule;
    if (!segment->gpu->shares_pages || berm__pool_is_plain(block->pool))
        return false;
    uint64_t offset = block->addr - segment->base;
    uint64_t first = berm__segment_granule_of(segment, offset);
    uint64_t last = berm__segment_granule_of(segment, offset + block->size_bytes - 1);
    // The first handle may begin before the block's first granule.
    const berm_phys_handle_t *leading = segment->handle_of[first];
    uint64_t begin = first;
    while (leading->granules > 1 && begin > 0 && segment->handle_of[begin - 1] == leading)
        begin--;
    exported->offset_bytes = offset - (begin << lg);
    for (uint64_t at = begin; at <= last; at += segment->handle_of[at]->granules) {
        if (exported->part_count++ == part)
            *handle = segment->handle_of[at];
        exported->size_bytes += (uint64_t)segment->handle_of[at]->granules << lg;
    }
    return part < exported->part_count;
}

// What was asked for when the block was allocated; of a slot what it has.
static uint64_t requested_bytes_of(const berm_block_t *block) {
    return block->slab != NULL ? block->size_bytes : block->range->as.block.requested_bytes;
}

// The handle of a live block; one that it owns is marked before the driver makes a descriptor: a
// free that comes between must not give it to another block. The device's lock is held.
static berm_status_t handle_find(berm_segment_t *segment, berm_addr_t addr, berm_export_kind_t kind,
                                 uint32_t part, berm_exported_t *exported,
                                 berm_phys_handle_t **handle, bool *is_new) {
    berm_block_t block;
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    *handle = status == BERM_OK && part == 0 ? berm__block_own_handle(&block) : NULL;
    if (*handle != NULL) {
        *is_new = !(*handle)->is_exported;
        berm__handle_exported_set(*handle, true);
        exported->part_count = 1;
        exported->size_bytes = (uint64_t)(*handle)->granules << segment->gpu->lg_granule;
    } else if (status == BERM_OK &&
               (kind == BERM_EXPORT_OWN || !shown_find(&block, part, exported, handle))) {
        status = BERM_ERROR_NOT_EXPORTABLE;
    }
    if (status == BERM_OK) {
        exported->requested_bytes = requested_bytes_of(&block);
        exported->part_bytes = (uint64_t)(*handle)->granules << segment->gpu->lg_granule;
    }
    berm__mutex_unlock(&pool->lock);
    return status;
}

static berm_status_t export_locked(berm_segment_t *segment, berm_addr_t addr,
                                   berm_export_kind_t kind, uint32_t part,
                                   berm_exported_t *exported) {
    berm_phys_handle_t *handle;
    berm_gpu_t *gpu = segment->gpu;
    berm_pool_t *pool = segment->pool;
    bool is_pushed, is_new = false;
    berm_status_t status = handle_find(segment, addr, kind, part, exported, &handle, &is_new);
    if (status != BERM_OK)
        return status;
    exported->device = gpu->ordinal;
    status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__handle_export(gpu, handle->handle, &exported->fd);
    berm__gpu_leave(gpu, is_pushed);
    if (status == BERM_OK || !is_new)
        return status;
    berm__mutex_lock(&pool->lock);
    berm__handle_exported_set(handle, false);
    berm__mutex_unlock(&pool->lock);
    return status;
}

berm_status_t berm__share_export(const char *call, berm_addr_t addr, berm_export_kind_t kind,
                                 uint32_t part, berm_exported_t *exported) {
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
        status = export_locked(segment, addr, kind, part, exported);
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
    berm_status_t status = berm__share_export("berm_export", addr, BERM_EXPORT_OWN, 0, &exported);
    *fd = exported.fd;
    *size_bytes = exported.size_bytes;
    return status;
}

// --- importing ---------------------------------------------------------------------------------

static berm_status_t request_check(const char *call, const berm_import_request_t *request) {
    if (request->size_bytes == 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: a size of 0 bytes", call);
    if (request->size_bytes > size_max_bytes)
        return berm__error_set(BERM_ERROR_SIZE_TOO_LARGE, "%s: a size of %llu bytes", call,
                               (unsigned long long)request->size_bytes);
    return BERM_OK;
}

static berm_status_t granules_check(const char *call, uint64_t bytes, const berm_device_t *device) {
    if (bytes != 0 && berm__is_aligned(bytes, device->gpu.granule_bytes))
        return BERM_OK;
    return berm__error_set(
        BERM_ERROR_ARGUMENT, "%s: a size of %llu is not whole granules of %llu bytes", call,
        (unsigned long long)bytes, (unsigned long long)device->gpu.granule_bytes);
}

berm_status_t berm__incoming_begin(berm_incoming_t *incoming, const char *call,
                                   const berm_import_request_t *request, int ordinal) {
    berm_device_t *device;
    bool is_pushed;
    *incoming = (berm_incoming_t){.call = call, .request = request, .ordinal = ordinal};
    berm_status_t status = request_check(call, request);
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    bool is_whole = berm__is_aligned(request->size_bytes, device->gpu.granule_bytes);
    if (is_whole)
        status = berm__device_import_begin(device, request, &incoming->import);
    status = berm__heap_device_leave(device, is_pushed, status, call);
    return is_whole ? status : granules_check(call, request->size_bytes, device);
}

berm_status_t berm__incoming_part(berm_incoming_t *incoming, int fd, uint64_t part_bytes) {
    const char *call = incoming->call;
    berm_device_t *device;
    bool is_pushed;
    if (fd < 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "%s: the descriptor %d", call, fd);
    if (fcntl(fd, F_GETFD) < 0)
        return berm__error_set(BERM_ERROR_IMPORT_FD, "%s: the descriptor %d is not open", call, fd);
    berm_status_t status = berm__heap_device_enter(incoming->ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    bool is_whole = berm__is_aligned(part_bytes, device->gpu.granule_bytes) && part_bytes != 0;
    if (is_whole)
        status = berm__device_import_part(device, incoming->import, fd, part_bytes);
    status = berm__heap_device_leave(device, is_pushed, status, call);
    if (!is_whole)
        return granules_check(call, part_bytes, device);
    if (status != BERM_ERROR_IMPORT_SIZE)
        return status;
    return berm__error_set(status,
                           "%s: %llu bytes were named, and the memory behind descriptor %d is "
                           "smaller (the driver does not say its size): name what berm_export gave",
                           call, (unsigned long long)part_bytes, fd);
}

berm_status_t berm__incoming_finish(berm_incoming_t *incoming, berm_addr_t *addr) {
    berm_device_t *device;
    bool is_pushed;
    berm_status_t status = berm__heap_device_enter(incoming->ordinal, &device, &is_pushed);
    if (status == BERM_OK) {
        status = berm__device_import_finish(incoming->import, incoming->request);
        if (status == BERM_OK)
            *addr = incoming->import->addr;
        status = berm__heap_device_leave(device, is_pushed, status, incoming->call);
    }
    if (status != BERM_OK)
        berm__incoming_drop(incoming);
    return status;
}

void berm__incoming_drop(berm_incoming_t *incoming) {
    berm_device_t *device;
    bool is_pushed;
    if (berm__heap_ready() != BERM_OK || berm__heap_device(incoming->ordinal, &device) != BERM_OK)
        return; // the heap is gone, and it with it
    berm__mutex_lock(&device->lock);
    (void)berm__gpu_enter(&device->gpu, &is_pushed); // what fails without it is tried again later
    berm__device_import_drop(device, incoming->import);
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm_import(int fd, uint64_t size_bytes, int device, berm_addr_t *addr) {
    if (addr == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_import: addr is NULL");
    *addr = 0;
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    berm_import_request_t request = {
        .size_bytes = size_bytes, .part_count = 1, .requested_bytes = size_bytes};
    berm_incoming_t incoming;
    status = berm__incoming_begin(&incoming, "berm_import", &request, device);
    if (status != BERM_OK)
        return status;
    status = berm__incoming_part(&incoming, fd, size_bytes);
    if (status == BERM_OK)
        return berm__incoming_finish(&incoming, addr);
    berm__incoming_drop(&incoming);
    return status;
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
    bool is_its = device != NULL && import->addr == addr && !import->is_busy;
    if (is_its)
        import->is_busy = true;
    if (device != NULL)
        berm__mutex_unlock(&device->lock);
    if (!is_its)
        return berm__error_set(BERM_ERROR_NOT_IMPORTED, "berm_import_close, address 0x%llx: %s",
                               (unsigned long long)addr, berm_status_text(BERM_ERROR_NOT_IMPORTED));
    status = stream_wait(device, berm__stream_normalize(stream));
    berm__mutex_lock(&device->lock);
    device->host_waits += status == BERM_OK;
    import->is_busy = false;
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
