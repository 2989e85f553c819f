// SPDX-License-Identifier: Apache-2.0
// A device's allocator from opening to closing, and its streams: see device.h.
#include "policy/device.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"
#include "berm_introspect.h"
#include "policy/cache.h"
#include "policy/observe.h"
#include "policy/pool.h"
#include "policy/source.h"
#include "policy/share.h"
#include "vmm/plain.h"

berm_status_t berm__device_open(berm_device_t *device, berm_drv_t *drv, int ordinal,
                                berm_addr_dir_t *dir, uint64_t large_handle_bytes,
                                berm_backing_t backing, bool shares_pages) {
    memset(device, 0, sizeof *device);
    berm_status_t status = berm__gpu_open(&device->gpu, drv, ordinal, backing, shares_pages);
    if (status != BERM_OK)
        return status;
    device->dir = dir;
    device->limit_bytes = UINT64_MAX;
    berm__mutex_init(&device->lock, BERM_LOCK_DEVICE, "device");
    berm__mutex_init(&device->streams_lock, BERM_LOCK_STREAM, "streams");
    berm__mutex_init(&device->figures_lock, BERM_LOCK_FIGURES, "figures");
    berm__list_init(&device->pools);
    berm__list_init(&device->streams);
    berm__list_init(&device->caches);
    berm__list_init(&device->imports);
    berm__decay_set(&device->decay, BERM_DECAY_NEVER, false);
    berm__list_init(&device->spares);
    device->watch.device = device;
    berm__callouts_init(&device->callouts);
    berm__list_init(&device->observers);
    berm__phys_init(&device->phys, &device->gpu, large_handle_bytes);
    berm__group_init_default(&device->group, device);
    return BERM_OK;
}

// Reserved bytes that a figure does not have. While threads' counts are not merged it may be off
// either way, below zero and above what is reserved.
static uint64_t reserved_beyond(berm_device_t *device, const berm_figure_t *figure) {
    uint64_t reserved = device->phys.reserved_bytes;
    berm__mutex_lock(&device->figures_lock);
    int64_t used = (int64_t)figure->current;
    berm__mutex_unlock(&device->figures_lock);
    return used < 0 ? reserved : reserved - berm__min_u64(reserved, (uint64_t)used);
}

uint64_t berm__device_cached_bytes(berm_device_t *device) {
    return reserved_beyond(device, &device->active);
}

uint64_t berm__device_unallocated_bytes(berm_device_t *device) {
    return reserved_beyond(device, &device->allocated);
}

// --- streams -----------------------------------------------------------------------------------

static berm_stream_ref_t *stream_find_locked(berm_device_t *device, berm_stream_t handle) {
    berm_stream_ref_t *last = device->stream_last;
    if (BERM_LIKELY(last != NULL && last->handle == handle))
        return last;
    BERM_LIST_EACH (berm_stream_ref_t, stream, &device->streams, link) {
        if (stream->handle == handle && !stream->is_retired) {
            device->stream_last = stream;
            return stream;
        }
    }
    return NULL;
}

// What the driver says of a stream: its id, and its context where that is not the device's.
static void stream_ask(berm_stream_ref_t *stream) {
    berm_drv_t *drv = stream->gpu->drv;
    berm_cu_stream_t handle = (berm_cu_stream_t)stream->handle;
    bool is_pushed;
    unsigned long long id = 0;
    uint64_t capture;
    berm_cu_context_t context = NULL;
    if (stream->handle == BERM_STREAM_NONE)
        return;
    stream->is_elsewhere = handle != NULL;
    if (berm__gpu_enter(stream->gpu, &is_pushed) == BERM_OK) {
        // Asking a stream that is being captured for its id would break the capture.
        bool is_free = berm__capture_read(stream->gpu, stream->handle, &capture) == BERM_OK &&
                       capture == BERM_CAPTURE_NONE;
        if (is_free && drv->stream_get_id != NULL &&
            BERM_DRV_CALL(drv, OTHER, stream_get_id, handle, &id) == BERM_CU_SUCCESS)
            stream->id = id;
        if (handle != NULL && drv->stream_get_ctx != NULL &&
            BERM_DRV_CALL(drv, OTHER, stream_get_ctx, handle, &context) == BERM_CU_SUCCESS) {
            stream->is_elsewhere = context != stream->gpu->context;
            stream->context = stream->is_elsewhere ? context : NULL;
        }
    }
    berm__gpu_leave(stream->gpu, is_pushed);
}

berm_stream_ref_t *berm__device_stream_find(berm_device_t *device, berm_stream_t handle) {
    handle = berm__stream_normalize(handle);
    berm__mutex_lock(&device->streams_lock);
    berm_stream_ref_t *stream = stream_find_locked(device, handle);
    berm__mutex_unlock(&device->streams_lock);
    return stream;
}

berm_stream_ref_t *berm__device_stream_next(berm_device_t *device, berm_stream_ref_t *stream) {
    berm__mutex_lock(&device->streams_lock);
    berm_list_t *link = stream != NULL ? stream->link.next : device->streams.next;
    berm__mutex_unlock(&device->streams_lock);
    return link != &device->streams ? BERM_CONTAINER_OF(link, berm_stream_ref_t, link) : NULL;
}

// First sight. The driver is asked with no lock of ours held but the caller's; two threads may do
// so at once, and the first to be done is the record.
static berm_status_t stream_add(berm_device_t *device, berm_stream_t handle, uint64_t uses,
                                berm_stream_ref_t **out) {
    berm_stream_ref_t *stream = berm__mem_alloc(sizeof *stream);
    if (stream == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm__stream_init(stream, &device->gpu, handle, &device->host_waits);
    stream->watch = &device->watch;
    stream_ask(stream);
    berm__mutex_lock(&device->streams_lock);
    *out = stream_find_locked(device, handle);
    bool is_first = *out == NULL;
    if (is_first) {
        berm__list_push_front(&device->streams, &stream->link);
        device->stream_last = stream;
        *out = stream;
    }
    atomic_fetch_add(&(*out)->use_count, uses);
    berm__mutex_unlock(&device->streams_lock);
    if (!is_first)
        berm__mem_free(stream, sizeof *stream);
    return BERM_OK;
}

static berm_status_t stream_get(berm_device_t *device, berm_stream_t handle, uint64_t uses,
                                berm_stream_ref_t **out) {
    handle = berm__stream_normalize(handle);
    berm__mutex_lock(&device->streams_lock);
    *out = stream_find_locked(device, handle);
    if (BERM_LIKELY(*out != NULL))
        atomic_fetch_add(&(*out)->use_count, uses);
    berm__mutex_unlock(&device->streams_lock);
    return BERM_LIKELY(*out != NULL) ? BERM_OK : stream_add(device, handle, uses, out);
}

berm_status_t berm__device_stream(berm_device_t *device, berm_stream_t handle,
                                  berm_stream_ref_t **out) {
    return stream_get(device, handle, 0, out);
}

berm_status_t berm__device_stream_take(berm_device_t *device, berm_stream_t handle,
                                       berm_stream_ref_t **out) {
    return stream_get(device, handle, 1, out);
}

berm_status_t berm__device_edits_check(berm_device_t *device) {
    bool is_any = false;
    if (BERM_LIKELY(!device->gpu.syncs_edits))
        return BERM_OK;
    berm_status_t status = berm__capture_any(&device->gpu, &device->watch, &is_any);
    return status == BERM_OK && is_any ? BERM_ERROR_CAPTURE : status;
}

bool berm__device_edits_are_allowed(berm_device_t *device) {
    bool is_pushed;
    if (BERM_LIKELY(!device->gpu.syncs_edits))
        return true;
    bool is_allowed = berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK &&
                      berm__device_edits_check(device) == BERM_OK;
    berm__gpu_leave(&device->gpu, is_pushed);
    return is_allowed;
}

berm_status_t berm__device_synchronize(berm_device_t *device) {
    bool is_any;
    berm_status_t status = berm__capture_any(&device->gpu, &device->watch, &is_any);
    if (status == BERM_OK && is_any)
        status = BERM_ERROR_CAPTURE;
    return status == BERM_OK ? berm__drv_status(berm__gpu_synchronize(&device->gpu)) : status;
}

static void streams_destroy(berm_list_t *streams) {
    while (!berm__list_is_empty(streams)) {
        berm_stream_ref_t *stream = BERM_CONTAINER_OF(streams->next, berm_stream_ref_t, link);
        berm__list_remove(&stream->link);
        berm__stream_destroy(stream);
        berm__mem_free(stream, sizeof *stream);
    }
}

void berm__device_streams_collect(berm_device_t *device) {
    berm_list_t gone;
    berm__list_init(&gone);
    berm__mutex_lock(&device->streams_lock);
    for (berm_list_t *link = device->streams.next, *next; link != &device->streams; link = next) {
        berm_stream_ref_t *stream = BERM_CONTAINER_OF(link, berm_stream_ref_t, link);
        next = link->next;
        if (!stream->is_retired || stream->pool_count > 0 || atomic_load(&stream->use_count) > 0)
            continue;
        if (device->stream_last == stream)
            device->stream_last = NULL;
        berm__list_remove(&stream->link);
        berm__list_push_back(&gone, &stream->link);
    }
    berm__mutex_unlock(&device->streams_lock);
    streams_destroy(&gone);
}

// --- closing -----------------------------------------------------------------------------------

// Unmaps one run of mapped granules, handle by handle if it does not go in one call.
static void run_unmap(berm_segment_t *segment, uint64_t first, uint64_t end) {
    if (berm__segment_unmap(segment, first, end - first) == BERM_OK)
        return;
    for (uint64_t at = first; at < end;) {
        berm_phys_handle_t *handle = segment->handle_of[at];
        uint64_t granules = handle->granules;
        if (berm__segment_unmap(segment, at, granules) != BERM_OK) {
            // It may be unmapped already, if the failure before this one was only in the answer.
            for (uint64_t i = 0; i < granules; i++)
                segment->handle_of[at + i] = NULL;
            berm__segment_forget(segment, handle);
        }
        at += granules;
    }
}

// What is mapped a second time, and its pages, which others may have by now.
static void stale_unmap(berm_device_t *device, berm_segment_t *segment) {
    for (berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        // Of a block `mappings` is a note of what was learned.
        bool is_stale = range->state == BERM_RANGE_STALE || range->state == BERM_RANGE_POISONED;
        if (!is_stale || range->mappings == 0)
            continue;
        berm__segment_tell(segment, BERM_EVENT_UNMAP, segment->base + range->start_bytes,
                           range->size_bytes);
        for (int attempt = 0, result = -1; attempt < 2 && result != BERM_CU_SUCCESS; attempt++)
            result = BERM_DRV_CALL(device->gpu.drv, UNMAP, mem_unmap,
                                   segment->base + range->start_bytes, range->size_bytes);
        device->phys.stale_mappings -= range->mappings;
        device->phys.stale_bytes -= range->size_bytes;
    }
    segment->stale = NULL;
}

static void aliased_give(berm_list_t *idle) {
    while (!berm__list_is_empty(idle)) {
        berm_phys_handle_t *handle = BERM_CONTAINER_OF(idle->next, berm_phys_handle_t, link);
        berm__list_remove(&handle->link);
        handle->aliased = NULL;
        berm__store_give(handle);
    }
}

static void plain_close(berm_device_t *device, berm_segment_t *segment, bool is_quiet) {
    berm_source_return_t *last = segment->source_return;
    if (last != NULL) {
        last->addr = is_quiet ? last->addr : 0; // what may be in use is left to the source
        (void)berm__source_or_plain_free(device, segment);
    } else if (is_quiet && berm__source_or_plain_free(device, segment) != BERM_OK) {
        // Once more: there is no later chance.
        (void)berm__plain_free(segment);
    }
    berm__plain_forget(segment);
}

static void segment_close(berm_device_t *device, berm_segment_t *segment, bool is_quiet) {
    if (segment->is_plain) {
        plain_close(device, segment, is_quiet);
        return;
    }
    uint64_t granules = segment->span_bytes >> segment->gpu->lg_granule;
    const berm_range_t *range = is_quiet ? segment->ranges.first : NULL;
    for (; range != NULL; range = range->next) {
        uint64_t at = berm__segment_granule_of(segment, range->start_bytes);
        uint64_t end = range->start_bytes + range->size_bytes;
        end = (end + segment->gpu->granule_bytes - 1) >> segment->gpu->lg_granule;
        while (at < end) {
            uint64_t stop = at;
            while (stop < granules && segment->handle_of[stop] != NULL)
                stop++;
            if (stop > at)
                run_unmap(segment, at, stop);
            at = stop > at ? stop : at + 1;
            if (range->state == BERM_RANGE_VOID)
                break;
        }
    }
    if (is_quiet)
        stale_unmap(device, segment);
    berm__list_remove(&segment->link);
    device->address_bytes -= segment->span_bytes;
    berm__segment_destroy(segment);
}

static void slabs_drop(berm_list_t *head) {
    while (!berm__list_is_empty(head)) {
        berm_slab_t *slab = BERM_CONTAINER_OF(head->next, berm_slab_t, link);
        berm__list_remove(&slab->link);
        berm__mem_free(slab, slab->size_bytes);
    }
}

static void pool_close(berm_device_t *device, berm_pool_t *pool, bool is_quiet) {
    // Full slabs are in no list: find every slab by its range.
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        for (berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
            berm_slab_t *slab = range->is_slab ? range->owner : NULL;
            if (slab != NULL && slab->used == slab->slots)
                berm__mem_free(slab, slab->size_bytes);
        }
    }
    for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT; c++) {
        slabs_drop(&pool->empties[c]);
        for (unsigned f = 0; f < BERM_SLAB_FULLNESS; f++)
            slabs_drop(&pool->partial[c][f]);
    }
    while (!berm__list_is_empty(&pool->segments))
        segment_close(device, BERM_CONTAINER_OF(pool->segments.next, berm_segment_t, link),
                      is_quiet);
    aliased_give(&pool->aliased.small);
    aliased_give(&pool->aliased.large);
    berm__pool_destroy(pool);
}

// Nothing is unmapped while the device may still use it: false if that cannot be known, and then
// what is mapped is left to the end of the process. One error that passes does not stop a closing.
// Where nothing is held there is nothing to wait for, which a capture would be broken by.
static bool device_quiesce(berm_device_t *device) {
    berm_cu_result_t result = BERM_CU_UNKNOWN;
    if (device->phys.handle_count == 0 && berm__list_is_empty(&device->imports))
        return true;
    for (int attempt = 0; attempt < 2 && result != BERM_CU_SUCCESS; attempt++)
        result = berm__gpu_synchronize(&device->gpu);
    return result == BERM_CU_SUCCESS || berm__drv_status(result) == BERM_ERROR_DEVICE_LOST;
}

void berm__device_close(berm_device_t *device, uint64_t *live_blocks) {
    bool is_pushed;
    (void)berm__caches_hold(device);
    while (!berm__list_is_empty(&device->caches))
        berm__cache_destroy(BERM_CONTAINER_OF(device->caches.next, berm_cache_t, link));
    *live_blocks = device->blocks.current;
    berm_status_t entered = berm__gpu_enter(&device->gpu, &is_pushed);
    if (entered != BERM_OK) {
        berm__gpu_leave(&device->gpu, is_pushed);
        entered = berm__gpu_enter(&device->gpu, &is_pushed);
    }
    bool is_quiet =
        entered == BERM_ERROR_DEVICE_LOST || (entered == BERM_OK && device_quiesce(device));
    berm__device_imports_close(device, is_quiet);
    while (!berm__list_is_empty(&device->pools))
        pool_close(device, BERM_CONTAINER_OF(device->pools.next, berm_pool_t, link), is_quiet);
    while (!berm__list_is_empty(&device->spares))
        pool_close(device, BERM_CONTAINER_OF(device->spares.next, berm_pool_t, link), is_quiet);
    while (!berm__list_is_empty(&device->groups))
        berm__group_destroy(BERM_CONTAINER_OF(device->groups.next, berm_group_t, link));
    for (int attempt = 0; attempt < 2 && device->phys.handle_count > 0; attempt++)
        (void)berm__phys_release_idle(&device->phys, 0);
    berm__observers_destroy(device);
    streams_destroy(&device->streams);
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__gpu_close(&device->gpu);
    for (unsigned i = 0; i < device->phys.store_count; i++)
        berm__plain_spares_free(&device->phys.stores[i]);
    berm__phys_destroy(&device->phys);
    berm__callouts_destroy(&device->callouts);
    berm__mutex_destroy(&device->figures_lock);
    berm__mutex_destroy(&device->streams_lock);
    berm__mutex_destroy(&device->lock);
}
