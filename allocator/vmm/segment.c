// SPDX-License-Identifier: Apache-2.0
// Segments: see segment.h for the layout and for its invariants.
//
// The per-granule and per-cell tables cover all of the span and are host address space only until
// they are written: 16 bytes a granule and 8 bytes a cell of what was ever used.
#include "vmm/segment.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"
#include "berm_introspect.h"

static uint64_t granule_count(const berm_segment_t *segment) {
    return segment->span_bytes >> segment->gpu->lg_granule;
}

void berm__segment_record_free(berm_segment_t *segment) {
    uint64_t granules = segment->table_bytes >> segment->gpu->lg_granule;
    berm__mem_unreserve(segment->handle_of, granules * sizeof *segment->handle_of);
    berm__mem_unreserve(segment->ticket_of, granules * sizeof *segment->ticket_of);
    berm__mem_unreserve((void *)segment->cells,
                        segment->table_bytes / BERM_CELL_BYTES * sizeof *segment->cells);
    berm__mem_free(segment, sizeof *segment);
}

berm_segment_t *berm__segment_record_make(berm_gpu_t *gpu, uint64_t table_bytes) {
    berm_segment_t *segment = berm__mem_alloc(sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->gpu = gpu;
    segment->table_bytes = table_bytes;
    uint64_t granules = table_bytes >> gpu->lg_granule;
    segment->handle_of = berm__mem_reserve(granules * sizeof *segment->handle_of);
    segment->ticket_of = berm__mem_reserve(granules * sizeof *segment->ticket_of);
    segment->cells = berm__mem_reserve(table_bytes / BERM_CELL_BYTES * sizeof *segment->cells);
    if (segment->handle_of != NULL && segment->ticket_of != NULL && segment->cells != NULL)
        return segment;
    berm__segment_record_free(segment);
    return NULL;
}

// Aligned to a granule, so that cells are aligned as slabs need them where granules are small.
static berm_status_t addresses_reserve(berm_segment_t *segment) {
    berm_drv_t *drv = segment->gpu->drv;
    uint64_t alignment = segment->gpu->granule_bytes;
    berm_cu_result_t result = BERM_DRV_CALL(drv, RESERVE, mem_address_reserve, &segment->base,
                                            segment->span_bytes, alignment, 0, 0);
    if (result == BERM_CU_SUCCESS && !berm__is_aligned(segment->base, alignment)) {
        (void)BERM_DRV_CALL(drv, ADDRESS_FREE, mem_address_free, segment->base,
                            segment->span_bytes);
        return BERM_ERROR_OUT_OF_ADDRESSES;
    }
    berm_status_t status = berm__drv_status(result);
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_OUT_OF_ADDRESSES : status;
}

berm_status_t berm__segment_create(berm_gpu_t *gpu, berm_store_t *store, berm_addr_dir_t *dir,
                                   uint64_t span_bytes, void *pool, berm_segment_t **out) {
    *out = NULL;
    berm_segment_t *segment = berm__segment_record_make(gpu, span_bytes);
    if (segment == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    segment->span_bytes = span_bytes;
    segment->store = store;
    segment->pool = pool;
    segment->dir = dir;
    segment->dir_entry.owner = segment;
    berm__list_init(&segment->link);
    berm_status_t status = addresses_reserve(segment);
    if (status != BERM_OK) {
        berm__segment_record_free(segment);
        return status;
    }
    *out = segment;
    return BERM_OK;
}

berm_status_t berm__segment_open(berm_segment_t *segment, berm_node_slab_t *nodes) {
    if (!berm__ranges_init(&segment->ranges, segment->span_bytes, nodes))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    if (berm__addr_dir_insert(segment->dir, segment->base, segment->span_bytes,
                              &segment->dir_entry))
        return BERM_OK;
    berm__ranges_destroy(&segment->ranges);
    segment->ranges.first = NULL;
    return BERM_ERROR_OUT_OF_ADDRESSES;
}

void berm__segment_destroy(berm_segment_t *segment) {
    bool is_open = segment->ranges.first != NULL;
    if (is_open)
        berm__addr_dir_remove(segment->dir, &segment->dir_entry);
    berm_cu_result_t result = BERM_DRV_CALL(segment->gpu->drv, ADDRESS_FREE, mem_address_free,
                                            segment->base, segment->span_bytes);
    if (result != BERM_CU_SUCCESS) // once more: there is no later chance
        (void)BERM_DRV_CALL(segment->gpu->drv, ADDRESS_FREE, mem_address_free, segment->base,
                            segment->span_bytes);
    if (is_open)
        berm__ranges_destroy(&segment->ranges);
    berm__segment_record_free(segment);
}

static berm_status_t granules_unmap(berm_segment_t *segment, uint64_t first, uint64_t count) {
    unsigned lg = segment->gpu->lg_granule;
    berm_cu_result_t result = berm__gpu_edit_begin(segment->gpu);
    if (result == BERM_CU_SUCCESS)
        result = BERM_DRV_CALL(segment->gpu->drv, UNMAP, mem_unmap, segment->base + (first << lg),
                               count << lg);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    for (uint64_t at = first; at < first + count;) {
        berm_phys_handle_t *handle = segment->handle_of[at];
        for (uint64_t i = 0; i < handle->granules; i++)
            segment->handle_of[at + i] = NULL;
        at += handle->granules;
        berm__segment_forget(segment, handle);
    }
    return BERM_OK;
}

// Takes back what a failed map did: granules [first, end) of it are mapped.
berm_status_t berm__segment_map_undo(berm_segment_t *segment, uint64_t first, uint64_t end,
                                     berm_status_t status) {
    if (end > first && granules_unmap(segment, first, end - first) != BERM_OK)
        return BERM_ERROR_CORRUPTION;
    return status;
}

berm_status_t berm__segment_map_one(berm_segment_t *segment, uint64_t granule,
                                    berm_phys_handle_t *handle) {
    berm_phys_t *phys = segment->store->phys;
    unsigned lg = segment->gpu->lg_granule;
    berm_cu_result_t result =
        BERM_DRV_CALL(segment->gpu->drv, MAP, mem_map, segment->base + (granule << lg),
                      (uint64_t)handle->granules << lg, 0, handle->handle, 0);
    if (result != BERM_CU_SUCCESS) {
        if (handle->views == 0)
            berm__store_give(handle);
        berm_status_t status = berm__drv_status(result);
        return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ? BERM_ERROR_CEILING : status;
    }
    handle->segment = segment;
    segment->mapped_bytes += handle->views++ == 0 ? (uint64_t)handle->granules << lg : 0;
    for (uint64_t i = 0; i < handle->granules; i++) {
        segment->handle_of[granule + i] = handle;
        segment->ticket_of[granule + i] =
            handle->aliased != NULL ? handle->ticket : BERM_TICKET_NONE;
    }
    uint64_t mappings = ++phys->mapping_count + phys->stale_mappings;
    phys->mapping_peak = berm__max_u64(phys->mapping_peak, mappings);
    return BERM_OK;
}

// Makes what was just mapped accessible, or takes it back.
static berm_status_t access_set(berm_segment_t *segment, uint64_t first, uint64_t count) {
    unsigned lg = segment->gpu->lg_granule;
    berm_cu_result_t result =
        BERM_DRV_CALL(segment->gpu->drv, SET_ACCESS, mem_set_access, segment->base + (first << lg),
                      count << lg, segment->gpu->access, segment->gpu->access_count);
    if (result == BERM_CU_SUCCESS) {
        berm__segment_tell(segment, BERM_EVENT_MAP, segment->base + (first << lg), count << lg);
        return BERM_OK;
    }
    berm_status_t status = berm__drv_status(result);
    if (status == BERM_ERROR_OUT_OF_DEVICE_MEMORY)
        status = BERM_ERROR_CEILING;
    return berm__segment_map_undo(segment, first, first + count, status);
}

// What is mapped for good is like any other handle: its granules have the ticket.
static void aliased_settle(berm_segment_t *segment, uint64_t first, uint64_t count) {
    for (uint64_t at = first; at < first + count; at++)
        segment->handle_of[at]->aliased = NULL;
}

berm_status_t berm__segment_map(berm_segment_t *segment, uint64_t first, uint64_t count,
                                uint64_t large, berm_aliased_t *aliased) {
    uint64_t at = first, end = first + count;
    berm_status_t begun = berm__segment_edit_begin(segment);
    if (begun != BERM_OK)
        return begun;
    while (at < end) {
        uint32_t granules = large > 0 ? segment->store->phys->large_granules : 1;
        large -= large > 0;
        berm_phys_handle_t *handle = berm__aliased_take(aliased, granules);
        if (handle == NULL)
            handle = berm__store_take(segment->store, granules);
        BERM_INSIST(handle != NULL, "idle handles fill the range to map");
        berm_status_t status = berm__segment_map_one(segment, at, handle);
        if (status != BERM_OK)
            return berm__segment_map_undo(segment, first, at, status);
        at += granules;
    }
    return berm__segment_access(segment, first, count);
}

berm_status_t berm__segment_edit_begin(berm_segment_t *segment) {
    return berm__drv_status(berm__gpu_edit_begin(segment->gpu));
}

berm_status_t berm__segment_access(berm_segment_t *segment, uint64_t first, uint64_t count) {
    berm_status_t status = access_set(segment, first, count);
    if (status == BERM_OK)
        aliased_settle(segment, first, count);
    return status;
}

berm_status_t berm__segment_map_whole(berm_segment_t *segment, uint64_t first, uint32_t granules) {
    berm_status_t begun = berm__segment_edit_begin(segment);
    if (begun != BERM_OK)
        return begun;
    berm_phys_handle_t *handle = berm__store_take(segment->store, granules);
    BERM_INSIST(handle != NULL, "a handle of the size is idle");
    berm_status_t status = berm__segment_map_one(segment, first, handle);
    return status == BERM_OK ? access_set(segment, first, granules) : status;
}

void berm__segment_forget(berm_segment_t *segment, berm_phys_handle_t *handle) {
    segment->store->phys->mapping_count--;
    if (--handle->views > 0)
        return;
    segment->mapped_bytes -= (uint64_t)handle->granules << segment->gpu->lg_granule;
    berm__store_give(handle);
}

berm_status_t berm__segment_unmap(berm_segment_t *segment, uint64_t first, uint64_t count) {
    unsigned lg = segment->gpu->lg_granule;
    berm__segment_tell(segment, BERM_EVENT_UNMAP, segment->base + (first << lg), count << lg);
    return granules_unmap(segment, first, count);
}

bool berm__segment_whole_handles(const berm_segment_t *segment, uint64_t start_bytes,
                                 uint64_t size_bytes, uint64_t *first, uint64_t *count) {
    unsigned lg = segment->gpu->lg_granule;
    uint64_t low = (start_bytes + segment->gpu->granule_bytes - 1) >> lg;
    uint64_t high = (start_bytes + size_bytes) >> lg;
    // A handle that begins before or ends after is not whole here.
    while (low < high && low > 0 && segment->handle_of[low - 1] == segment->handle_of[low])
        low++;
    uint64_t end = granule_count(segment);
    while (high > low && high < end && segment->handle_of[high - 1] == segment->handle_of[high])
        high--;
    *first = low;
    *count = high > low ? high - low : 0;
    return high > low;
}

void berm__segment_ticket_set(berm_segment_t *segment, uint64_t start_bytes, uint64_t size_bytes,
                              uint64_t ticket) {
    uint64_t first = berm__segment_granule_of(segment, start_bytes);
    uint64_t last = berm__segment_granule_of(segment, start_bytes + size_bytes - 1);
    for (uint64_t granule = first; granule <= last; granule++)
        segment->ticket_of[granule] = ticket;
}

void berm__segment_cells_write(berm_segment_t *segment, uint64_t start_bytes, uint64_t size_bytes,
                               uintptr_t value) {
    uint64_t first = start_bytes / BERM_CELL_BYTES;
    uint64_t last = (start_bytes + size_bytes - 1) / BERM_CELL_BYTES;
    for (uint64_t cell = first; cell <= last; cell++)
        atomic_store_explicit(&segment->cells[cell], value, memory_order_release);
}
