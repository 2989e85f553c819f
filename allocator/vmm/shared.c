// SPDX-License-Identifier: Apache-2.0
// Exporting and importing handles: see shared.h.
#include "vmm/shared.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

bool berm__files_are_used_up(void) {
    int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd < 0)
        return true;
    (void)close(fd);
    return false;
}

// The driver's word for a descriptor that it could not have.
static berm_status_t status_of_files(berm_cu_result_t result) {
    if (result == BERM_CU_OPERATING_SYSTEM && berm__files_are_used_up())
        return BERM_ERROR_CEILING;
    return result == BERM_CU_NOT_PERMITTED ? BERM_ERROR_UNSUPPORTED : berm__drv_status(result);
}

berm_status_t berm__handle_export(berm_gpu_t *gpu, berm_cu_mem_handle_t handle, int *fd) {
    *fd = -1;
    if (gpu->drv->mem_export == NULL)
        return BERM_ERROR_UNSUPPORTED;
    berm_cu_result_t result =
        BERM_DRV_CALL(gpu->drv, OTHER, mem_export, fd, handle, BERM_CU_MEM_HANDLE_POSIX_FD, 0);
    if (result != BERM_CU_SUCCESS) {
        *fd = -1;
        return status_of_files(result);
    }
    (void)fcntl(*fd, F_SETFD, FD_CLOEXEC); // what the driver does of it is not said anywhere
    return BERM_OK;
}

// --- importing ---------------------------------------------------------------------------------

static berm_status_t handle_take(berm_import_t *import, int fd) {
    berm_drv_t *drv = import->gpu->drv;
    if (drv->mem_import == NULL || drv->mem_get_prop == NULL)
        return BERM_ERROR_UNSUPPORTED;
    berm_cu_result_t result =
        BERM_DRV_CALL(drv, OTHER, mem_import, &import->parts[import->held_count],
                      (void *)(intptr_t)fd, BERM_CU_MEM_HANDLE_POSIX_FD);
    if (result == BERM_CU_INVALID_VALUE || result == BERM_CU_INVALID_HANDLE)
        return BERM_ERROR_IMPORT_FD;
    if (result != BERM_CU_SUCCESS)
        return status_of_files(result);
    import->held_count++;
    return BERM_OK;
}

// Where the memory lies, and whether the device may have access to it.
static berm_status_t location_check(berm_import_t *import) {
    berm_gpu_t *gpu = import->gpu;
    berm_cu_mem_prop_t prop = {0};
    int can = 0;
    berm_cu_result_t result =
        BERM_DRV_CALL(gpu->drv, OTHER, mem_get_prop, &prop, import->parts[import->held_count - 1]);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    bool is_device = prop.location.type == BERM_CU_MEM_LOCATION_DEVICE;
    bool is_home = is_device && prop.location.id == gpu->ordinal;
    import->is_home &= is_home;
    if (is_home || !is_device || gpu->drv->device_can_access_peer == NULL)
        return BERM_OK;
    berm_cu_device_t owner = 0;
    result = BERM_DRV_CALL(gpu->drv, OTHER, device_get, &owner, prop.location.id);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(gpu->drv, OTHER, device_can_access_peer, &can, gpu->device, owner);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    return can != 0 ? BERM_OK : BERM_ERROR_PEER_ACCESS;
}

static berm_status_t addresses_take(berm_import_t *import) {
    berm_gpu_t *gpu = import->gpu;
    berm_addr_t base = 0;
    berm_cu_result_t result = BERM_DRV_CALL(gpu->drv, RESERVE, mem_address_reserve, &base,
                                            import->size_bytes, gpu->granule_bytes, 0, 0);
    if (result == BERM_CU_SUCCESS)
        import->base = base;
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_OUT_OF_ADDRESSES : status;
}

// Maps the part that was taken last.
static berm_status_t part_map(berm_import_t *import, uint64_t part_bytes) {
    berm_gpu_t *gpu = import->gpu;
    berm_status_t begun = berm__drv_status(berm__gpu_edit_begin(gpu));
    if (begun != BERM_OK)
        return begun;
    berm_cu_result_t result =
        BERM_DRV_CALL(gpu->drv, MAP, mem_map, import->base + import->mapped_bytes, part_bytes, 0,
                      import->parts[import->held_count - 1], 0);
    if (result == BERM_CU_INVALID_VALUE)
        return BERM_ERROR_IMPORT_SIZE;
    if (result == BERM_CU_SUCCESS)
        import->mapped_bytes += part_bytes;
    import->is_mapped = import->mapped_bytes == import->size_bytes;
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_CEILING : status;
}

void berm__import_init(berm_import_t *import, berm_gpu_t *gpu, uint64_t size_bytes,
                       uint32_t part_count) {
    memset(import, 0, sizeof *import);
    berm__list_init(&import->link);
    import->gpu = gpu;
    import->size_bytes = size_bytes;
    import->part_count = part_count;
    import->is_home = true;
}

berm_status_t berm__import_part(berm_import_t *import, int fd, uint64_t part_bytes) {
    if (import->held_count == import->part_count ||
        part_bytes > import->size_bytes - import->mapped_bytes)
        return BERM_ERROR_IMPORT_SIZE;
    berm_status_t status = handle_take(import, fd);
    if (status == BERM_OK)
        status = location_check(import);
    if (status == BERM_OK && import->base == 0)
        status = addresses_take(import);
    if (status == BERM_OK)
        status = part_map(import, part_bytes);
    return status;
}

berm_status_t berm__import_finish(berm_import_t *import) {
    berm_gpu_t *gpu = import->gpu;
    if (!import->is_mapped)
        return BERM_ERROR_IMPORT_SIZE;
    berm_cu_result_t result =
        BERM_DRV_CALL(gpu->drv, SET_ACCESS, mem_set_access, import->base, import->size_bytes,
                      gpu->access, import->is_home ? gpu->access_count : 1);
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_CEILING : status;
}

berm_status_t berm__import_undo(berm_import_t *import) {
    berm_drv_t *drv = import->gpu->drv;
    berm_cu_result_t result = BERM_CU_SUCCESS;
    if (import->mapped_bytes > 0)
        result = berm__gpu_edit_begin(import->gpu);
    if (import->mapped_bytes > 0 && result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, UNMAP, mem_unmap, import->base, import->mapped_bytes);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    import->mapped_bytes = 0;
    import->is_mapped = false;
    for (; import->held_count > 0; import->held_count--) {
        result = BERM_DRV_CALL(drv, RELEASE, mem_release, import->parts[import->held_count - 1]);
        if (result != BERM_CU_SUCCESS)
            return berm__drv_status(result);
    }
    if (import->base != 0)
        result =
            BERM_DRV_CALL(drv, ADDRESS_FREE, mem_address_free, import->base, import->size_bytes);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    import->base = 0;
    return BERM_OK;
}
