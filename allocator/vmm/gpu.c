// SPDX-License-Identifier: Apache-2.0
// Opening a device: see gpu.h. The context is the primary one, the same that the CUDA runtime and
// every framework use, so that events and streams are of one context.
#include "vmm/gpu.h"

#include <string.h>

#include "base/bits.h"
#include "base/insist.h"
#include "host/log.h"

// --- the capture mode of the calling thread ----------------------------------------------------

// In the relaxed mode calls that allocate or unmap break no capture, whoever's.
static _Thread_local struct {
    unsigned depth;   // of those who want it
    bool was_changed; // `mode` is what it was before
    int mode;
} relaxed;

// Each has a restore, also one that fails.
static berm_cu_result_t mode_relax(berm_drv_t *drv) {
    if (relaxed.depth++ > 0 && relaxed.was_changed)
        return BERM_CU_SUCCESS;
    relaxed.mode = BERM_CU_CAPTURE_RELAXED;
    berm_cu_result_t result =
        BERM_DRV_CALL(drv, OTHER, thread_exchange_capture_mode, &relaxed.mode);
    relaxed.was_changed = result == BERM_CU_SUCCESS;
    return result;
}

static void mode_restore(berm_drv_t *drv) {
    BERM_INSIST(relaxed.depth > 0, "each restore has a relax");
    if (--relaxed.depth > 0 || !relaxed.was_changed)
        return;
    relaxed.was_changed = false;
    int mode = relaxed.mode;
    // Once more, if the driver refuses: the mode is the caller's.
    if (BERM_DRV_CALL(drv, OTHER, thread_exchange_capture_mode, &mode) != BERM_CU_SUCCESS)
        (void)BERM_DRV_CALL(drv, OTHER, thread_exchange_capture_mode, &mode);
}

// --- opening -----------------------------------------------------------------------------------

static berm_status_t attribute_read(berm_gpu_t *gpu, int attribute, int *value) {
    *value = 0;
    return berm__drv_status(
        BERM_DRV_CALL(gpu->drv, OTHER, device_get_attribute, value, attribute, gpu->device));
}

berm_status_t berm__gpu_has(berm_gpu_t *gpu, int attribute, bool *has) {
    int value = 0;
    berm_cu_result_t result =
        BERM_DRV_CALL(gpu->drv, OTHER, device_get_attribute, &value, attribute, gpu->device);
    *has = result == BERM_CU_SUCCESS && value != 0;
    return result == BERM_CU_INVALID_VALUE ? BERM_OK : berm__drv_status(result);
}

// Whether memory is mapped or plain.
static berm_status_t backing_choose(berm_gpu_t *gpu, berm_backing_t backing) {
    int has_vmm = 0;
    gpu->is_plain = backing == BERM_BACKING_PLAIN;
    if (gpu->is_plain)
        return BERM_OK;
    berm_status_t status = attribute_read(gpu, BERM_CU_ATTR_VMM_SUPPORTED, &has_vmm);
    if (status != BERM_OK || (has_vmm != 0 && gpu->drv->has_vmm_entries))
        return status;
    if (backing == BERM_BACKING_VMM)
        return BERM_ERROR_NO_VMM;
    BERM_LOG(BERM_LOG_WARN,
             "device %d has no virtual memory management: cuMemAlloc backs its memory, and pages "
             "do not move",
             gpu->ordinal);
    gpu->is_plain = true;
    return BERM_OK;
}

static berm_status_t granule_read(berm_gpu_t *gpu, size_t *granule_bytes) {
    return berm__drv_status(BERM_DRV_CALL(gpu->drv, OTHER, mem_get_granularity, granule_bytes,
                                          &gpu->prop, BERM_CU_MEM_GRANULARITY_MINIMUM));
}

// Whether handles can be made that other processes can be given, where that is wanted.
static berm_status_t sharing_choose(berm_gpu_t *gpu) {
    if (!gpu->shares_pages)
        return BERM_OK;
    berm_status_t status = BERM_OK;
    if (!gpu->is_plain)
        status = berm__gpu_has(gpu, BERM_CU_ATTR_POSIX_FD_SUPPORTED, &gpu->shares_pages);
    if (!gpu->shares_pages) // plain memory has handles of its own kind (berm_ipc_export)
        BERM_LOG(BERM_LOG_WARN, "device %d cannot share memory by descriptor: shareable is off",
                 gpu->ordinal);
    gpu->shares_pages &= !gpu->is_plain && status == BERM_OK;
    if (gpu->shares_pages)
        gpu->prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    return status;
}

static berm_status_t gpu_probe(berm_gpu_t *gpu, berm_backing_t backing) {
    size_t memory_bytes = 0, granule_bytes = BERM_MIB(2);
    gpu->prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    gpu->prop.location = (berm_cu_mem_location_t){BERM_CU_MEM_LOCATION_DEVICE, gpu->ordinal};
    gpu->access[0].location = gpu->prop.location;
    gpu->access[0].flags = BERM_CU_MEM_ACCESS_READWRITE;
    gpu->access_count = 1;
    berm_status_t status = backing_choose(gpu, backing);
    if (status == BERM_OK)
        status = sharing_choose(gpu);
    if (status == BERM_OK)
        status = berm__drv_status(
            BERM_DRV_CALL(gpu->drv, OTHER, device_total_mem, &memory_bytes, gpu->device));
    if (status == BERM_OK && !gpu->is_plain)
        status = granule_read(gpu, &granule_bytes);
    if (status != BERM_OK)
        return status;
    // Slabs and slots need granules of at least one slot; the least seen anywhere is 4 KiB.
    while (granule_bytes != 0 && granule_bytes < BERM_KIB(64))
        granule_bytes *= 2;
    if (!berm__is_pow2(granule_bytes) || memory_bytes < granule_bytes)
        return BERM_ERROR_UNSUPPORTED;
    gpu->memory_bytes = memory_bytes;
    gpu->granule_bytes = granule_bytes;
    gpu->lg_granule = berm__bit_highest(granule_bytes);
    gpu->has_ctx_event = gpu->drv->ctx_record_event != NULL;
    return BERM_OK;
}

static berm_status_t context_retain(berm_gpu_t *gpu, berm_drv_t *drv, int ordinal,
                                    berm_backing_t backing) {
    berm_status_t status =
        berm__drv_status(BERM_DRV_CALL(drv, OTHER, device_get, &gpu->device, ordinal));
    if (status != BERM_OK)
        return status;
    status = gpu_probe(gpu, backing);
    if (status != BERM_OK)
        return status;
    return berm__drv_status(
        BERM_DRV_CALL(drv, OTHER, primary_ctx_retain, &gpu->context, gpu->device));
}

berm_status_t berm__gpu_open(berm_gpu_t *gpu, berm_drv_t *drv, int ordinal, berm_backing_t backing,
                             bool shares_pages) {
    memset(gpu, 0, sizeof *gpu);
    gpu->drv = drv;
    gpu->shares_pages = shares_pages;
    gpu->ordinal = ordinal;
    if (ordinal < 0 || ordinal >= drv->device_count)
        return BERM_ERROR_DEVICE;
    berm_status_t status = berm__drv_status(mode_relax(drv));
    if (status == BERM_OK)
        status = context_retain(gpu, drv, ordinal, backing);
    mode_restore(drv);
    return status;
}

// What is not given back now never is: once more, if the driver refuses.
void berm__gpu_event_destroy(berm_gpu_t *gpu, berm_cu_event_t event) {
    if (BERM_DRV_CALL(gpu->drv, OTHER, event_destroy, event) != BERM_CU_SUCCESS)
        (void)BERM_DRV_CALL(gpu->drv, OTHER, event_destroy, event);
}

void berm__gpu_close(berm_gpu_t *gpu) {
    (void)mode_relax(gpu->drv);
    while (gpu->event_count > 0)
        berm__gpu_event_destroy(gpu, gpu->events[--gpu->event_count]);
    if (BERM_DRV_CALL(gpu->drv, OTHER, primary_ctx_release, gpu->device) != BERM_CU_SUCCESS)
        (void)BERM_DRV_CALL(gpu->drv, OTHER, primary_ctx_release, gpu->device);
    mode_restore(gpu->drv);
}

// --- inside ------------------------------------------------------------------------------------

berm_cu_result_t berm__gpu_push(berm_gpu_t *gpu, berm_cu_context_t context) {
    return BERM_DRV_CALL(gpu->drv, OTHER, ctx_push_current, context);
}

// Once more, if the driver refuses: the caller's own context is to be current again.
void berm__gpu_pop(berm_gpu_t *gpu) {
    berm_cu_context_t popped = NULL;
    if (BERM_DRV_CALL(gpu->drv, OTHER, ctx_pop_current, &popped) != BERM_CU_SUCCESS)
        (void)BERM_DRV_CALL(gpu->drv, OTHER, ctx_pop_current, &popped);
}

berm_status_t berm__gpu_enter(berm_gpu_t *gpu, bool *is_pushed) {
    *is_pushed = false;
    berm_cu_context_t current = NULL;
    berm_cu_result_t result =
        mode_relax(gpu->drv); // without it, what follows could break a capture
    if (atomic_load(&gpu->drv->is_gone))
        return BERM_ERROR_DEVICE_LOST;
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(gpu->drv, OTHER, ctx_get_current, &current);
    if (result == BERM_CU_SUCCESS && current != gpu->context) {
        result = berm__gpu_push(gpu, gpu->context);
        *is_pushed = result == BERM_CU_SUCCESS;
    }
    return berm__drv_status(result);
}

void berm__gpu_leave(berm_gpu_t *gpu, bool is_pushed) {
    if (is_pushed)
        berm__gpu_pop(gpu);
    mode_restore(gpu->drv);
}

berm_cu_result_t berm__gpu_edit_begin(berm_gpu_t *gpu) {
    return gpu->syncs_edits ? berm__gpu_synchronize(gpu) : BERM_CU_SUCCESS;
}

berm_cu_result_t berm__gpu_synchronize(berm_gpu_t *gpu) {
    return BERM_DRV_CALL(gpu->drv, SYNCHRONIZE, ctx_synchronize);
}

berm_status_t berm__gpu_event_take(berm_gpu_t *gpu, berm_cu_event_t *event) {
    if (gpu->event_count > 0) {
        *event = gpu->events[--gpu->event_count];
        return BERM_OK;
    }
    return berm__drv_status(
        BERM_DRV_CALL(gpu->drv, OTHER, event_create, event, BERM_CU_EVENT_DISABLE_TIMING));
}

void berm__gpu_event_give(berm_gpu_t *gpu, berm_cu_event_t event) {
    if (gpu->event_count < BERM_GPU_EVENTS_MAX)
        gpu->events[gpu->event_count++] = event;
    else
        berm__gpu_event_destroy(gpu, event);
}
