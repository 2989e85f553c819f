// SPDX-License-Identifier: Apache-2.0
// Handles of a device: see phys.h for invariants I10 and I11. Metadata is secured before the driver
// is called, so a handle that exists is always accounted for.
#include "vmm/phys.h"

#include <string.h>

#include "base/bits.h"

void berm__phys_init(berm_phys_t *phys, berm_gpu_t *gpu, uint64_t large_bytes) {
    memset(phys, 0, sizeof *phys);
    phys->gpu = gpu;
    uint64_t granules = large_bytes >> gpu->lg_granule;
    phys->large_granules = granules < 1 ? 1 : (uint32_t)granules;
    berm__list_init(&phys->idle_small);
    berm__list_init(&phys->idle_large);
    berm__node_slab_init(&phys->nodes, sizeof(berm_phys_handle_t));
}

void berm__phys_destroy(berm_phys_t *phys) {
    berm__node_slab_destroy(&phys->nodes);
}

static uint64_t handle_bytes(const berm_phys_t *phys, const berm_phys_handle_t *handle) {
    return (uint64_t)handle->granules << phys->gpu->lg_granule;
}

berm_status_t berm__phys_create(berm_phys_t *phys, uint32_t granules) {
    berm_phys_handle_t *handle = berm__node_slab_take(&phys->nodes);
    if (handle == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t size_bytes = (uint64_t)granules << phys->gpu->lg_granule;
    berm_cu_mem_handle_t created = 0;
    berm_cu_result_t result = BERM_DRV_CALL(phys->gpu->drv, CREATE, mem_create, &created,
                                            size_bytes, &phys->gpu->prop, 0);
    if (result != BERM_CU_SUCCESS) {
        berm__node_slab_give(&phys->nodes, handle);
        return berm__drv_status(result);
    }
    *handle = (berm_phys_handle_t){.handle = created, .granules = granules};
    berm__list_init(&handle->link);
    phys->handle_count++;
    phys->created_bytes += size_bytes;
    phys->reserved_bytes += size_bytes;
    if (phys->reserved_bytes > phys->reserved_peak_bytes)
        phys->reserved_peak_bytes = phys->reserved_bytes;
    berm__phys_give(phys, handle);
    return BERM_OK;
}

berm_phys_handle_t *berm__phys_take(berm_phys_t *phys, uint32_t granules) {
    bool is_small = granules == 1;
    berm_list_t *idle = is_small ? &phys->idle_small : &phys->idle_large;
    if (berm__list_is_empty(idle))
        return NULL;
    berm_phys_handle_t *handle = BERM_CONTAINER_OF(idle->next, berm_phys_handle_t, link);
    berm__list_remove(&handle->link);
    *(is_small ? &phys->idle_small_count : &phys->idle_large_count) -= 1;
    return handle;
}

void berm__phys_give(berm_phys_t *phys, berm_phys_handle_t *handle) {
    bool is_small = handle->granules == 1;
    handle->is_mapped = false;
    berm__list_push_front(is_small ? &phys->idle_small : &phys->idle_large, &handle->link);
    *(is_small ? &phys->idle_small_count : &phys->idle_large_count) += 1;
}

berm_status_t berm__phys_release(berm_phys_t *phys, berm_phys_handle_t *handle) {
    berm_cu_result_t result = BERM_DRV_CALL(phys->gpu->drv, RELEASE, mem_release, handle->handle);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    berm__list_remove(&handle->link);
    *(handle->granules == 1 ? &phys->idle_small_count : &phys->idle_large_count) -= 1;
    phys->handle_count--;
    phys->reserved_bytes -= handle_bytes(phys, handle);
    phys->released_bytes += handle_bytes(phys, handle);
    berm__node_slab_give(&phys->nodes, handle);
    return BERM_OK;
}

berm_status_t berm__phys_split_large(berm_phys_t *phys) {
    if (berm__list_is_empty(&phys->idle_large))
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    if (!berm__node_slab_reserve(&phys->nodes, phys->large_granules))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm_status_t status = berm__phys_release(
        phys, BERM_CONTAINER_OF(phys->idle_large.next, berm_phys_handle_t, link));
    for (uint32_t i = 0; i < phys->large_granules && status == BERM_OK; i++)
        status = berm__phys_create(phys, 1);
    return status;
}

// Releases the newest idle handles of one size while `may_go` of them are left to go and reserved
// is above keep_bytes.
static berm_status_t idle_release(berm_phys_t *phys, berm_list_t *idle, uint64_t may_go,
                                  uint64_t keep_bytes) {
    while (may_go-- > 0 && !berm__list_is_empty(idle) && phys->reserved_bytes > keep_bytes) {
        berm_status_t status =
            berm__phys_release(phys, BERM_CONTAINER_OF(idle->next, berm_phys_handle_t, link));
        if (status != BERM_OK)
            return status;
    }
    return BERM_OK;
}

berm_status_t berm__phys_release_idle(berm_phys_t *phys, uint64_t keep_bytes) {
    uint64_t large_bytes = (uint64_t)phys->large_granules << phys->gpu->lg_granule;
    uint64_t excess = phys->reserved_bytes - berm__min_u64(phys->reserved_bytes, keep_bytes);
    // Large ones where they fit in the excess, then small ones, then a large one if it takes one.
    berm_status_t status = idle_release(phys, &phys->idle_large, excess / large_bytes, keep_bytes);
    if (status == BERM_OK)
        status = idle_release(phys, &phys->idle_small, UINT64_MAX, keep_bytes);
    return status == BERM_OK ? idle_release(phys, &phys->idle_large, UINT64_MAX, keep_bytes)
                             : status;
}

berm_status_t berm__phys_release_newest(berm_phys_t *phys, uint64_t small, uint64_t large) {
    berm_status_t status = idle_release(phys, &phys->idle_small, small, 0);
    return status == BERM_OK ? idle_release(phys, &phys->idle_large, large, 0) : status;
}
