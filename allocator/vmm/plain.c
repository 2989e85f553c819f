// SPDX-License-Identifier: Apache-2.0
// Plain segments: see plain.h. Order under failure: record, handle and range first, then
// cuMemAlloc, then the address directory; what failed is taken back.
#include "vmm/plain.h"

#include <string.h>

#include "base/bits.h"
#include "berm_introspect.h"

// Tables come in powers of two, so that records serve again.
static uint64_t table_bytes_for(const berm_gpu_t *gpu, uint64_t span_bytes) {
    uint64_t bytes = gpu->granule_bytes;
    while (bytes < span_bytes)
        bytes *= 2;
    return bytes;
}

static berm_segment_t *record_take(berm_store_t *store, uint64_t span_bytes) {
    uint64_t table_bytes = table_bytes_for(store->phys->gpu, span_bytes);
    BERM_LIST_EACH (berm_segment_t, segment, &store->spare_segments, link) {
        if (segment->table_bytes != table_bytes)
            continue;
        berm__list_remove(&segment->link);
        return segment;
    }
    berm_segment_t *segment = berm__segment_record_make(store->phys->gpu, table_bytes);
    if (segment == NULL)
        return NULL;
    segment->dir_entry.owner = segment;
    segment->is_plain = true;
    segment->store = store;
    berm__list_init(&segment->link);
    return segment;
}

static berm_status_t memory_free(berm_gpu_t *gpu, berm_addr_t addr) {
    return berm__drv_status(BERM_DRV_CALL(gpu->drv, FREE, mem_free, addr));
}

static void memory_count(berm_phys_t *phys, uint64_t bytes) {
    phys->handle_count++;
    phys->created_bytes += bytes;
    phys->reserved_bytes += bytes;
    if (phys->reserved_bytes > phys->reserved_peak_bytes)
        phys->reserved_peak_bytes = phys->reserved_bytes;
}

// Gives back what does not hold the span. Where the driver refuses, it is kept as a stray, whose
// record was secured before.
static berm_status_t memory_return(berm_segment_t *segment) {
    berm_phys_t *phys = segment->store->phys;
    berm_status_t status = memory_free(segment->gpu, segment->plain_addr);
    if (status == BERM_OK)
        return BERM_OK;
    berm_phys_handle_t *stray = berm__node_slab_take(&phys->nodes);
    *stray = (berm_phys_handle_t){
        .handle = segment->plain_addr, .store = segment->store, .ticket = segment->plain_bytes};
    memory_count(phys, segment->plain_bytes);
    berm__phys_stray_add(phys, stray);
    return status;
}

// Memory that has the span at a multiple of a cell.
static berm_status_t memory_alloc(berm_segment_t *segment) {
    berm_gpu_t *gpu = segment->gpu;
    berm_status_t status = BERM_OK;
    if (!berm__node_slab_reserve(&segment->store->phys->nodes, 1))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    for (uint64_t bytes = segment->span_bytes; status == BERM_OK; bytes += gpu->granule_bytes) {
        berm_addr_t addr = 0;
        status = berm__drv_status(BERM_DRV_CALL(gpu->drv, MALLOC, mem_alloc, &addr, (size_t)bytes));
        if (status != BERM_OK)
            break;
        segment->base = berm__align_up(addr, BERM_CELL_BYTES);
        segment->plain_addr = addr;
        segment->plain_bytes = bytes;
        if (segment->base + segment->span_bytes <= addr + bytes)
            break;
        status = memory_return(segment);
    }
    return status;
}

// A record without memory, and a handle for it in *handle.
static berm_status_t segment_prepare(berm_store_t *store, berm_addr_dir_t *dir, uint64_t span_bytes,
                                     void *pool, berm_segment_t **out,
                                     berm_phys_handle_t **handle) {
    *out = NULL;
    if (span_bytes >> store->phys->gpu->lg_granule > UINT32_MAX)
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    berm_segment_t *segment = record_take(store, span_bytes);
    if (segment == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    segment->pool = pool;
    segment->dir = dir;
    segment->span_bytes = span_bytes;
    segment->is_exported = segment->is_hidden = false;
    segment->poisoned_bytes = 0;
    segment->source_return = NULL;
    *handle = berm__node_slab_take(&store->phys->nodes);
    if (*handle == NULL) {
        berm__list_push_front(&store->spare_segments, &segment->link);
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = segment;
    return BERM_OK;
}

// The record of memory that the segment has by now.
static void segment_back(berm_segment_t *segment, berm_phys_handle_t *handle) {
    uint64_t granules = segment->span_bytes >> segment->gpu->lg_granule;
    *handle = (berm_phys_handle_t){.handle = segment->plain_addr,
                                   .store = segment->store,
                                   .segment = segment,
                                   .granules = (uint32_t)granules};
    berm__list_init(&handle->link);
    handle->views = 1;
    for (uint64_t i = 0; i < granules; i++) {
        segment->handle_of[i] = handle;
        segment->ticket_of[i] = BERM_TICKET_NONE;
    }
    segment->mapped_bytes = segment->span_bytes;
    memory_count(segment->store->phys, segment->plain_bytes);
}

berm_status_t berm__plain_create(berm_store_t *store, berm_addr_dir_t *dir, uint64_t span_bytes,
                                 void *pool, berm_segment_t **out) {
    berm_phys_handle_t *handle;
    berm_segment_t *segment;
    *out = NULL;
    berm_status_t status = segment_prepare(store, dir, span_bytes, pool, &segment, &handle);
    if (status != BERM_OK)
        return status;
    status = memory_alloc(segment);
    if (status != BERM_OK) {
        berm__node_slab_give(&store->phys->nodes, handle);
        berm__list_push_front(&store->spare_segments, &segment->link);
        return status;
    }
    segment_back(segment, handle);
    *out = segment;
    return BERM_OK;
}

berm_status_t berm__plain_adopt(berm_store_t *store, berm_addr_dir_t *dir, uint64_t span_bytes,
                                void *pool, berm_addr_t addr, uint64_t bytes,
                                berm_segment_t **out) {
    berm_phys_handle_t *handle;
    berm_status_t status = segment_prepare(store, dir, span_bytes, pool, out, &handle);
    if (status != BERM_OK)
        return status;
    (*out)->base = berm__align_up(addr, BERM_CELL_BYTES);
    (*out)->plain_addr = addr;
    (*out)->plain_bytes = bytes;
    segment_back(*out, handle);
    return BERM_OK;
}

berm_status_t berm__plain_open(berm_segment_t *segment, berm_node_slab_t *nodes) {
    berm_status_t status = berm__segment_open(segment, nodes);
    if (status != BERM_OK)
        return status;
    (void)berm__ranges_settle(&segment->ranges, segment->ranges.first, BERM_RANGE_FREE);
    berm__segment_tell(segment, BERM_EVENT_ALLOC, segment->plain_addr, segment->plain_bytes);
    return BERM_OK;
}

void berm__plain_hide(berm_segment_t *segment) {
    berm__addr_dir_remove(segment->dir, &segment->dir_entry);
    segment->is_hidden = true;
}

bool berm__plain_show(berm_segment_t *segment) {
    segment->is_hidden = !berm__addr_dir_insert(segment->dir, segment->base, segment->span_bytes,
                                                &segment->dir_entry);
    return !segment->is_hidden;
}

berm_status_t berm__plain_free(berm_segment_t *segment) {
    return memory_free(segment->gpu, segment->plain_addr);
}

void berm__plain_forget(berm_segment_t *segment) {
    berm_phys_t *phys = segment->store->phys;
    uint64_t granules = segment->span_bytes >> segment->gpu->lg_granule;
    if (segment->ranges.first != NULL) {
        if (!segment->is_hidden)
            berm__addr_dir_remove(segment->dir, &segment->dir_entry);
        berm__segment_cells_write(segment, 0, segment->span_bytes, 0);
        berm__ranges_destroy(&segment->ranges);
    }
    berm__list_remove(&segment->link);
    berm__node_slab_give(&phys->nodes, segment->handle_of[0]);
    memset(segment->handle_of, 0, granules * sizeof *segment->handle_of);
    phys->handle_count--;
    phys->reserved_bytes -= segment->plain_bytes;
    phys->released_bytes += segment->plain_bytes;
    segment->mapped_bytes = 0;
    berm__list_push_front(&segment->store->spare_segments, &segment->link);
}

void berm__plain_spares_free(berm_store_t *store) {
    while (!berm__list_is_empty(&store->spare_segments)) {
        berm_segment_t *segment =
            BERM_CONTAINER_OF(store->spare_segments.next, berm_segment_t, link);
        berm__list_remove(&segment->link);
        berm__segment_record_free(segment);
    }
}
