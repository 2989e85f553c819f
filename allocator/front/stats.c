// SPDX-License-Identifier: Apache-2.0
// Statistics, the two largest-block figures, and what is known of drivers and devices: the calls of
// berm_introspect.h that give numbers.
#include <string.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "drv/nvml.h"
#include "front/heap.h"
#include "host/mem.h"
#include "policy/cache.h"

berm_status_t berm__struct_give(void *out, size_t caller_bytes, const void *filled,
                                size_t filled_bytes) {
    if (caller_bytes < sizeof(size_t) || caller_bytes > filled_bytes)
        return berm__error_set(BERM_ERROR_VERSION,
                               "a struct of %zu bytes, this library knows up to %zu: set its size",
                               caller_bytes, filled_bytes);
    memcpy((char *)out + sizeof(size_t), (const char *)filled + sizeof(size_t),
           caller_bytes - sizeof(size_t));
    return BERM_OK;
}

static berm_figure_t reserved_figure(const berm_phys_t *phys) {
    return (berm_figure_t){.current = phys->reserved_bytes,
                           .peak = phys->reserved_peak_bytes,
                           .total_up = phys->created_bytes,
                           .total_down = phys->released_bytes};
}

static void stats_fill(berm_device_t *device, berm_stats_t *stats) {
    berm__mutex_lock(&device->lock);
    berm__caches_merge(device);
    const berm_phys_t *phys = &device->phys;
    stats->pools = device->pool_count;
    berm__mutex_lock(&device->figures_lock);
    stats->requested_bytes = device->requested;
    stats->allocated_bytes = device->allocated;
    stats->active_bytes = device->active;
    stats->blocks = device->blocks;
    berm__mutex_unlock(&device->figures_lock);
    stats->reserved_bytes = reserved_figure(phys);
    stats->cached_bytes = phys->reserved_bytes - stats->active_bytes.current;
    stats->limit_bytes = device->limit_bytes;
    stats->granule_bytes = device->gpu.granule_bytes;
    stats->address_bytes = device->address_bytes;
    stats->mappings = phys->mapping_count + phys->stale_mappings;
    stats->mappings_peak = phys->mapping_peak;
    stats->moved_bytes = phys->moved_bytes;
    stats->moves = device->moves;
    stats->host_waits = device->host_waits;
    stats->retries = device->retries;
    stats->out_of_memory = device->out_of_memory;
    stats->poisoned_bytes = device->poisoned_bytes;
    stats->exported_bytes = phys->exported_bytes;
    stats->imports = device->import_count;
    stats->imported_bytes = device->imported_bytes;
    stats->imported_mappings = device->imported_mappings;
    stats->pinned_bytes = berm__pins_bytes(device);
    const uint64_t *served = device->ladder.served;
    stats->ladder = (berm_ladder_counts_t){.caches = served[BERM_STEP_CACHES],
                                           .frees = served[BERM_STEP_FREES],
                                           .pins = served[BERM_STEP_PINS],
                                           .mapped = served[BERM_STEP_MAP],
                                           .moved = served[BERM_STEP_MOVE],
                                           .released = served[BERM_STEP_RELEASE],
                                           .pressure = served[BERM_STEP_PRESSURE],
                                           .waited = served[BERM_STEP_WAIT],
                                           .others = served[BERM_STEP_OTHERS]};
    stats->decay_ticks = device->decay.ticks;
    stats->decayed_bytes = device->decay.decayed_bytes;
    stats->plans = atomic_load(&device->plans.made);
    stats->plans_dropped = atomic_load(&device->plans.dropped);
    stats->planned_requests = atomic_load(&device->plans.requests);
    stats->planned_bytes = atomic_load(&device->plans.bytes);
    stats->planned_mappings = atomic_load(&device->plans.mappings);
    stats->planning_ns = atomic_load(&device->plans.spent_ns);
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm_stats_read(int ordinal, berm_stats_t *stats) {
    berm_device_t *device;
    bool is_running;
    if (stats == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_stats_read: stats is NULL");
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    berm_stats_t filled = {.size = sizeof filled, .device = ordinal, .limit_bytes = UINT64_MAX};
    if (device != NULL)
        stats_fill(device, &filled);
    filled.host_metadata_bytes = berm__mem_held_bytes();
    if (is_running)
        berm__drv_calls_read(&berm__heap.drv, &filled.driver_calls);
    return berm__struct_give(stats, stats->size, &filled, sizeof filled);
}

berm_status_t berm_stats_peaks_reset(int ordinal) {
    berm_device_t *device;
    bool is_running;
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK || device == NULL)
        return status;
    berm__mutex_lock(&device->lock);
    berm__caches_merge(device);
    berm_figure_t *const figures[] = {&device->requested, &device->allocated, &device->active,
                                      &device->blocks};
    berm__mutex_lock(&device->figures_lock);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(figures); i++)
        figures[i]->peak = figures[i]->current;
    berm__mutex_unlock(&device->figures_lock);
    device->phys.reserved_peak_bytes = device->phys.reserved_bytes;
    device->phys.mapping_peak = device->phys.mapping_count + device->phys.stale_mappings;
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}

// --- largest blocks ----------------------------------------------------------------------------

static berm_pool_t *pool_look(berm_device_t *device, berm_stream_t handle) {
    berm_stream_ref_t *stream = berm__device_stream_find(device, handle);
    return stream != NULL ? stream->pool : NULL;
}

// What a request does before it calls for memory: frees that have finished come back.
static void pool_refresh(berm_pool_t *pool) {
    bool is_pushed;
    if (berm__gpu_enter(&pool->device->gpu, &is_pushed) == BERM_OK)
        (void)berm__deferred_process(pool, NULL);
    berm__gpu_leave(&pool->device->gpu, is_pushed);
}

berm_status_t berm_largest_free_read(int ordinal, berm_stream_t stream, uint64_t *size_bytes) {
    berm_device_t *device;
    bool is_running;
    if (size_bytes == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_largest_free_read: size_bytes is NULL");
    *size_bytes = 0;
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK || device == NULL)
        return status;
    berm__mutex_lock(&device->lock);
    berm_pool_t *pool = pool_look(device, stream);
    if (pool != NULL) {
        pool_refresh(pool);
        *size_bytes = berm__pool_largest_free(pool);
    }
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}

berm_status_t berm_largest_obtainable_read(int ordinal, berm_stream_t stream,
                                           uint64_t *size_bytes) {
    berm_device_t *device;
    if (size_bytes == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_largest_obtainable_read: size_bytes is NULL");
    *size_bytes = 0;
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&device->lock);
    bool is_pushed;
    size_t free_bytes = 0, total_bytes = 0;
    status = berm__gpu_enter(&device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__drv_status(
            BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_bytes, &total_bytes));
    if (status == BERM_OK)
        *size_bytes = berm__device_obtainable(device, pool_look(device, stream), free_bytes).bytes;
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_largest_obtainable_read, device %d: %s", ordinal,
                               berm_status_text(status));
    return BERM_OK;
}

// --- devices -----------------------------------------------------------------------------------

berm_status_t berm_device_count(int *count) {
    if (count == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_device_count: count is NULL");
    *count = 0;
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        *count = berm__heap.drv.device_count;
    return status;
}

// Without a context: what NVML says, or nothing.
static void free_bytes_ask_nvml(berm_drv_t *drv, berm_cu_device_t cu_device, uint64_t *free_bytes) {
    berm_nvml_t nvml = {0};
    berm_cu_uuid_t uuid;
    if (drv->device_get_uuid == NULL ||
        BERM_DRV_CALL(drv, OTHER, device_get_uuid, &uuid, cu_device) != BERM_CU_SUCCESS)
        return;
    berm__nvml_open(&nvml, berm__heap.options.driver);
    (void)berm__nvml_free(&nvml, (const unsigned char *)uuid.bytes, free_bytes);
    berm__nvml_close(&nvml);
}

// The driver is asked for free memory only where a context exists: making one would take memory.
static berm_cu_result_t free_bytes_read(berm_drv_t *drv, berm_cu_device_t cu_device,
                                        uint64_t *free_bytes) {
    unsigned flags = 0;
    int is_active = 0;
    berm_cu_context_t context = NULL, popped = NULL;
    size_t free_now = 0, total = 0;
    berm_cu_result_t result =
        BERM_DRV_CALL(drv, OTHER, primary_ctx_get_state, cu_device, &flags, &is_active);
    if (result == BERM_CU_SUCCESS && !is_active)
        free_bytes_ask_nvml(drv, cu_device, free_bytes);
    if (result != BERM_CU_SUCCESS || !is_active)
        return result;
    result = BERM_DRV_CALL(drv, OTHER, primary_ctx_retain, &context, cu_device);
    if (result != BERM_CU_SUCCESS)
        return result;
    result = BERM_DRV_CALL(drv, OTHER, ctx_push_current, context);
    if (result == BERM_CU_SUCCESS) {
        result = BERM_DRV_CALL(drv, OTHER, mem_get_info, &free_now, &total);
        (void)BERM_DRV_CALL(drv, OTHER, ctx_pop_current, &popped);
    }
    (void)BERM_DRV_CALL(drv, OTHER, primary_ctx_release, cu_device);
    *free_bytes = free_now;
    return result;
}

static berm_cu_result_t info_fill(berm_drv_t *drv, berm_device_info_t *info) {
    berm_cu_device_t cu_device = 0;
    int has_vmm = 0, has_rdma = 0;
    size_t memory_bytes = 0, granule_bytes = 0;
    berm_cu_result_t result = BERM_DRV_CALL(drv, OTHER, device_get, &cu_device, info->device);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, device_get_name, info->name, (int)sizeof info->name,
                               cu_device);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, device_total_mem, &memory_bytes, cu_device);
    if (result == BERM_CU_SUCCESS)
        result = free_bytes_read(drv, cu_device, &info->free_bytes);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(drv, OTHER, device_get_attribute, &has_vmm,
                               BERM_CU_ATTR_VMM_SUPPORTED, cu_device);
    if (result != BERM_CU_SUCCESS)
        return result;
    // Old drivers do not know this attribute; that is a no.
    (void)BERM_DRV_CALL(drv, OTHER, device_get_attribute, &has_rdma,
                        BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED, cu_device);
    info->memory_bytes = memory_bytes;
    info->has_vmm = has_vmm != 0 && drv->has_vmm_entries;
    info->has_rdma = has_rdma != 0;
    if (info->has_vmm) {
        berm_cu_mem_prop_t prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                   .location = {BERM_CU_MEM_LOCATION_DEVICE, info->device}};
        result = BERM_DRV_CALL(drv, OTHER, mem_get_granularity, &granule_bytes, &prop,
                               BERM_CU_MEM_GRANULARITY_MINIMUM);
        info->granule_bytes = granule_bytes;
    }
    return result;
}

berm_status_t berm_device_info_read(int ordinal, berm_device_info_t *info) {
    if (info == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_device_info_read: info is NULL");
    berm_status_t status = berm__heap_ready();
    if (status != BERM_OK)
        return status;
    berm_drv_t *drv = &berm__heap.drv;
    if (ordinal < 0 || ordinal >= drv->device_count)
        return berm__error_set(BERM_ERROR_DEVICE, "no device %d: the driver has %d", ordinal,
                               drv->device_count);
    berm_device_info_t filled = {.size = sizeof filled,
                                 .device = ordinal,
                                 .driver_version = drv->version,
                                 .has_ctx_event = drv->ctx_record_event != NULL,
                                 .is_simulated = drv->is_simulated};
    status = berm__drv_status(info_fill(drv, &filled));
    if (status != BERM_OK)
        return berm__error_set(status, "device %d: %s", ordinal, berm_status_text(status));
    return berm__struct_give(info, info->size, &filled, sizeof filled);
}
