// SPDX-License-Identifier: Apache-2.0
// Peers: devices that may use this device's memory. They stand in gpu.access behind the device
// itself, which is what every new mapping is given; here it is also given to what is mapped
// already, one cuMemSetAccess for each run of mapped granules, that names the peer alone.
//
// Locks: the device's, so nothing is mapped or unmapped meanwhile, in its context; a pool's while
// its ranges are looked at.
#include "base/insist.h"
#include "policy/pool.h"
#include "policy/share.h"

enum {
    RUNS_MAX = 64 // looked for at once
};

typedef struct run {
    uint64_t first, end; // granules
} run_t;

// Of poisoned ranges nobody knows what is there; stale ones are for work that is queued already.
static bool range_is_mapped(const berm_range_t *range) {
    berm_range_state_t state = berm__range_state(range);
    return state != BERM_RANGE_VOID && state != BERM_RANGE_POISONED && state != BERM_RANGE_STALE;
}

// The next runs of mapped granules from `granule` on; returns how many, 0 at the end.
static unsigned mapped_runs(const berm_segment_t *segment, uint64_t granule, run_t *runs) {
    unsigned count = 0;
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    const berm_range_t *range = segment->ranges.first;
    while (range != NULL && count < RUNS_MAX) {
        uint64_t first = berm__segment_granule_of(segment, range->start_bytes), end = first;
        for (; range != NULL && range_is_mapped(range); range = range->next)
            end = berm__segment_granule_of(segment, range->start_bytes + range->size_bytes - 1) + 1;
        if (end > first && first >= granule)
            runs[count++] = (run_t){first, end};
        while (range != NULL && !range_is_mapped(range))
            range = range->next;
    }
    berm__mutex_unlock(&pool->lock);
    return count;
}

static berm_status_t access_set(berm_gpu_t *gpu, berm_addr_t addr, uint64_t size_bytes,
                                const berm_cu_mem_access_t *access) {
    berm_cu_result_t result = berm__gpu_edit_begin(gpu);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(gpu->drv, SET_ACCESS, mem_set_access, addr, size_bytes, access, 1);
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_CEILING : status;
}

static berm_status_t segment_access_set(berm_segment_t *segment,
                                        const berm_cu_mem_access_t *access) {
    unsigned lg = segment->gpu->lg_granule;
    run_t runs[RUNS_MAX];
    unsigned count;
    if (segment->is_plain) // cuCtxEnablePeerAccess is for that
        return BERM_OK;
    for (uint64_t at = 0; (count = mapped_runs(segment, at, runs)) > 0; at = runs[count - 1].end) {
        for (unsigned i = 0; i < count; i++) {
            berm_status_t status = access_set(segment->gpu, segment->base + (runs[i].first << lg),
                                              (runs[i].end - runs[i].first) << lg, access);
            if (status != BERM_OK)
                return status;
        }
    }
    return BERM_OK;
}

// Gives all that is mapped for the device `access`; stops at the first failure.
static berm_status_t device_access_set(berm_device_t *device, const berm_cu_mem_access_t *access) {
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
            if (status == BERM_OK)
                status = segment_access_set(segment, access);
    BERM_LIST_EACH (berm_import_t, import, &device->imports, link)
        if (status == BERM_OK && import->is_mapped && import->is_home)
            status = access_set(&device->gpu, import->base, import->size_bytes, access);
    return status;
}

static berm_cu_mem_access_t access_of(int peer, int flags) {
    return (berm_cu_mem_access_t){.location = {BERM_CU_MEM_LOCATION_DEVICE, peer}, .flags = flags};
}

static unsigned peer_index(const berm_device_t *device, int peer) {
    unsigned index = 1;
    while (index < device->gpu.access_count && device->gpu.access[index].location.id != peer)
        index++;
    return index;
}

bool berm__device_peer_is_enabled(const berm_device_t *device, int peer) {
    return peer_index(device, peer) < device->gpu.access_count;
}

// Changes what is mapped, or nothing: where the driver refuses, what was done is undone, when no
// work can be using it. If it refuses that too, the peer may use what it should not, or must not
// use what it could: the first harms nobody, the second is a fault that shows at once.
static berm_status_t device_access_change(berm_device_t *device, int peer, int before, int after) {
    berm_cu_mem_access_t access = access_of(peer, after);
    berm_status_t status = berm__device_edits_check(device);
    if (status != BERM_OK)
        return status;
    status = device_access_set(device, &access);
    if (status == BERM_OK)
        return BERM_OK;
    access.flags = before;
    (void)berm__device_synchronize(device); // during a capture it cannot be waited for
    (void)device_access_set(device, &access);
    return status;
}

berm_status_t berm__device_peer_enable(berm_device_t *device, int peer) {
    berm_gpu_t *gpu = &device->gpu;
    if (gpu->is_plain)
        return BERM_ERROR_UNSUPPORTED;
    if (berm__device_peer_is_enabled(device, peer))
        return BERM_OK;
    BERM_INSIST(gpu->access_count < BERM_GPU_ACCESS_MAX, "there is a place for every device");
    berm_status_t status =
        device_access_change(device, peer, BERM_CU_MEM_ACCESS_NONE, BERM_CU_MEM_ACCESS_READWRITE);
    if (status == BERM_OK)
        gpu->access[gpu->access_count++] = access_of(peer, BERM_CU_MEM_ACCESS_READWRITE);
    return status;
}

berm_status_t berm__device_peer_disable(berm_device_t *device, int peer) {
    berm_gpu_t *gpu = &device->gpu;
    unsigned index = peer_index(device, peer);
    if (index == gpu->access_count)
        return BERM_OK;
    berm_status_t status =
        device_access_change(device, peer, BERM_CU_MEM_ACCESS_READWRITE, BERM_CU_MEM_ACCESS_NONE);
    if (status == BERM_OK)
        gpu->access[index] = gpu->access[--gpu->access_count];
    return status;
}
