// SPDX-License-Identifier: Apache-2.0
// The snapshot: everything berm knows, as one JSON object (docs/snapshot.schema.json). Addresses
// and stream handles are "0x…" strings, since many JSON readers round large numbers; bytes and
// counts are numbers, UINT64_MAX ("none") is null.
//
// Every physical byte is listed once: as a handle that is mapped in a segment, or as an idle one.
// A member that is added raises nothing; one that is removed or changes its meaning raises the
// schema version.
//
// Locks: the heap's while options are copied, then each device's for the walk of that device; the
// callback runs under it. Calls no driver, allocates nothing.
#include <inttypes.h>
#include <stdio.h>

#include "base/emit.h"
#include "berm_introspect.h"
#include "front/heap.h"
#include "policy/cache.h"
#include "policy/share.h"

enum {
    SCHEMA_VERSION = 1
};

static void emit_u64_or_null(berm_emit_t *emit, const char *key, uint64_t value) {
    if (value == UINT64_MAX)
        berm__emit_null(emit, key);
    else
        berm__emit_u64(emit, key, value);
}

static void emit_stream(berm_emit_t *emit, const char *key, berm_stream_t handle) {
    if (handle == BERM_STREAM_NONE)
        berm__emit_null(emit, key);
    else
        berm__emit_addr(emit, key, (berm_addr_t)(uintptr_t)handle);
}

static void emit_figure(berm_emit_t *emit, const char *key, const berm_figure_t *figure) {
    berm__emit_object_begin(emit, key);
    berm__emit_u64(emit, "current", figure->current);
    berm__emit_u64(emit, "peak", figure->peak);
    berm__emit_u64(emit, "total_up", figure->total_up);
    berm__emit_u64(emit, "total_down", figure->total_down);
    berm__emit_object_end(emit);
}

// --- the process -------------------------------------------------------------------------------

static void emit_options(berm_emit_t *emit) {
    berm_options_t options;
    berm__mutex_lock(&berm__heap.lock);
    options = berm__heap.options;
    berm__mutex_unlock(&berm__heap.lock);
    berm__emit_object_begin(emit, "options");
    const berm_option_info_t *info;
    for (size_t i = 0; (info = berm_option_info(i)) != NULL; i++) {
        char value[BERM_OPTION_TEXT_BYTES];
        if (berm__option_get(&options, info->name, value, sizeof value) == BERM_OK)
            berm__emit_string(emit, info->name, value);
    }
    berm__emit_object_end(emit);
}

static void emit_driver(berm_emit_t *emit) {
    berm_drv_t *drv = &berm__heap.drv;
    berm_driver_calls_t calls;
    berm__drv_calls_read(drv, &calls);
    berm__emit_object_begin(emit, "driver");
    berm__emit_u64(emit, "version", (uint64_t)drv->version);
    berm__emit_u64(emit, "devices", (uint64_t)drv->device_count);
    berm__emit_bool(emit, "is_simulated", drv->is_simulated);
    berm__emit_object_begin(emit, "calls");
    const struct {
        const char *name;
        uint64_t count;
    } rows[] = {{"reserve", calls.reserve},
                {"address_free", calls.address_free},
                {"create", calls.create},
                {"release", calls.release},
                {"map", calls.map},
                {"set_access", calls.set_access},
                {"unmap", calls.unmap},
                {"malloc", calls.malloc_},
                {"free", calls.free_},
                {"event_record", calls.event_record},
                {"event_query", calls.event_query},
                {"stream_wait", calls.stream_wait},
                {"synchronize", calls.synchronize},
                {"other", calls.other}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++)
        berm__emit_u64(emit, rows[i].name, rows[i].count);
    berm__emit_object_end(emit);
    berm__emit_object_end(emit);
}

// --- segments ----------------------------------------------------------------------------------

// A bitmap as hexadecimal digits, slot 0 in the lowest bit of the last digit.
static void emit_bits(berm_emit_t *emit, const char *key, const uint64_t *words) {
    char text[2 * 8 * BERM_SLAB_WORDS + 1];
    for (unsigned i = 0; i < BERM_SLAB_WORDS; i++)
        (void)snprintf(text + (size_t)16 * i, 17, "%016" PRIx64, words[BERM_SLAB_WORDS - 1 - i]);
    berm__emit_string(emit, key, text);
}

static void emit_slab(berm_emit_t *emit, const berm_slab_t *slab) {
    uint64_t requested_bytes = 0, live[BERM_SLAB_WORDS] = {0};
    for (uint32_t slot = 0; slot < slab->slots; slot++) {
        if (!berm__slot_is_live(slab, slot))
            continue;
        requested_bytes += (uint64_t)slab->slot[slot].requested + 1;
        live[slot / 64] |= UINT64_C(1) << (slot % 64);
    }
    berm__emit_object_begin(emit, "slab");
    berm__emit_u64(emit, "class_bytes", berm__size_class_bytes(slab->size_class));
    berm__emit_u64(emit, "slots", slab->slots);
    berm__emit_u64(emit, "used", slab->used);
    berm__emit_u64(emit, "requested_bytes", requested_bytes);
    emit_bits(emit, "live", live);
    emit_bits(emit, "taken", slab->taken);
    berm__emit_object_end(emit);
}

static void emit_range(berm_emit_t *emit, const berm_range_t *range) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "state", berm__range_state_name((berm_range_state_t)range->state));
    berm__emit_u64(emit, "start_bytes", range->start_bytes);
    berm__emit_u64(emit, "size_bytes", range->size_bytes);
    bool is_block = range->state == BERM_RANGE_LIVE || range->state == BERM_RANGE_AWAITED ||
                    range->state == BERM_RANGE_HELD;
    if (range->is_slab) {
        emit_slab(emit, range->owner);
    } else if (is_block) {
        berm__emit_u64(emit, "requested_bytes", range->as.block.requested_bytes);
        berm__emit_u64(emit, "index", range->as.block.index);
    }
    berm__emit_object_end(emit);
}

// Granules of equal handles side by side make one item.
static void emit_handles(berm_emit_t *emit, const berm_segment_t *segment, uint64_t at,
                         uint64_t end) {
    while (at < end) {
        const berm_phys_handle_t *handle = segment->handle_of[at];
        if (handle == NULL) {
            at++;
            continue;
        }
        uint64_t first = at, count = 0;
        uint32_t granules = handle->granules;
        bool is_exported = handle->is_exported;
        for (; at < end && handle != NULL && handle->granules == granules &&
               handle->is_exported == is_exported;
             count++) {
            at += granules;
            handle = at < end ? segment->handle_of[at] : NULL;
        }
        berm__emit_object_begin(emit, NULL);
        berm__emit_u64(emit, "first_granule", first);
        berm__emit_u64(emit, "granules", granules);
        berm__emit_u64(emit, "count", count);
        berm__emit_bool(emit, "is_exported", is_exported);
        berm__emit_object_end(emit);
    }
}

// Runs of ranges that are not VOID: nothing else is mapped, and most of a segment is VOID.
static void emit_mapped(berm_emit_t *emit, const berm_segment_t *segment) {
    const berm_range_t *range = segment->ranges.first;
    while (range != NULL) {
        uint64_t first = berm__segment_granule_of(segment, range->start_bytes), end = first;
        for (; range != NULL && range->state != BERM_RANGE_VOID; range = range->next)
            end = berm__segment_granule_of(segment, range->start_bytes + range->size_bytes - 1) + 1;
        emit_handles(emit, segment, first, end);
        if (range != NULL)
            range = range->next;
    }
}

static void emit_segment(berm_emit_t *emit, const berm_segment_t *segment) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_addr(emit, "base", segment->base);
    berm__emit_u64(emit, "span_bytes", segment->span_bytes);
    berm__emit_bool(emit, "is_plain", segment->is_plain);
    berm__emit_u64(emit, "free_bytes", segment->ranges.free_bytes);
    berm__emit_u64(emit, "poisoned_bytes", segment->poisoned_bytes);
    berm__emit_array_begin(emit, "ranges");
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next)
        emit_range(emit, range);
    berm__emit_array_end(emit);
    berm__emit_array_begin(emit, "handles");
    emit_mapped(emit, segment);
    berm__emit_array_end(emit);
    berm__emit_object_end(emit);
}

// --- pools -------------------------------------------------------------------------------------

static void emit_deferred(berm_emit_t *emit, const berm_deferred_t *entry) {
    berm_addr_t addr = entry->segment->base;
    addr += entry->slab != NULL ? entry->slab->range->start_bytes +
                                      entry->slot * berm__size_class_bytes(entry->slab->size_class)
                                : entry->range->start_bytes;
    berm__emit_object_begin(emit, NULL);
    berm__emit_addr(emit, "address", addr);
    berm__emit_u64(emit, "size_bytes", entry->size_bytes);
    berm__emit_array_begin(emit, "waits_for");
    for (const berm_use_t *use = entry->uses; use != NULL; use = use->next) {
        berm__emit_object_begin(emit, NULL);
        emit_stream(emit, "stream", use->stream->handle);
        berm__emit_u64(emit, "stream_id", use->stream->id);
        berm__emit_u64(emit, "ticket", use->ticket);
        berm__emit_bool(emit, "has_passed", berm__stream_has_passed(use->stream, use->ticket));
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
    berm__emit_object_end(emit);
}

// The pool's group: its id as the caller chose it, and what its memory is like.
static void emit_group(berm_emit_t *emit, const berm_group_t *group) {
    berm__emit_object_begin(emit, "group");
    berm__emit_addr(emit, "high", group->id.high);
    berm__emit_addr(emit, "low", group->id.low);
    berm__emit_u64(emit, "serial", group->serial);
    berm__emit_u64(emit, "uses", group->use_count);
    berm__emit_u64(emit, "routes", group->routes);
    berm__emit_bool(emit, "is_private", berm__group_is_private(group));
    berm__emit_bool(emit, "is_exportable", (group->traits & BERM_GROUP_EXPORTABLE) != 0);
    berm__emit_bool(emit, "is_pinned", (group->traits & BERM_GROUP_PINNED) != 0);
    berm__emit_bool(emit, "is_plain", (group->traits & BERM_GROUP_PLAIN) != 0);
    berm__emit_bool(emit, "is_rdma", (group->traits & BERM_GROUP_RDMA) != 0);
    berm__emit_bool(emit, "is_resizable", (group->traits & BERM_GROUP_RESIZABLE) != 0);
    berm__emit_object_end(emit);
}

static void emit_pool(berm_emit_t *emit, const berm_pool_t *pool) {
    berm__emit_object_begin(emit, NULL);
    emit_stream(emit, "stream", pool->stream->handle);
    berm__emit_u64(emit, "stream_id", pool->stream->id);
    berm__emit_bool(emit, "is_retired", pool->stream->is_retired);
    emit_group(emit, pool->group);
    berm__emit_u64(emit, "open_ticket", pool->stream->open_ticket);
    berm__emit_u64(emit, "passed_ticket", pool->stream->passed_ticket);
    const berm_pool_live_t live = berm__pool_live_read(pool);
    berm__emit_u64(emit, "requested_bytes", live.requested_bytes);
    berm__emit_u64(emit, "allocated_bytes", live.allocated_bytes);
    berm__emit_u64(emit, "deferred_bytes", pool->deferred_bytes);
    berm__emit_u64(emit, "blocks", live.blocks);
    berm__emit_array_begin(emit, "segments");
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
        emit_segment(emit, segment);
    berm__emit_array_end(emit);
    berm__emit_array_begin(emit, "deferred");
    BERM_LIST_EACH (const berm_deferred_t, entry, &pool->deferred, link)
        emit_deferred(emit, entry);
    berm__emit_array_end(emit);
    berm__emit_object_end(emit);
}

// --- devices -----------------------------------------------------------------------------------

static void emit_idle(berm_emit_t *emit, const berm_store_t *store, uint64_t granules,
                      uint64_t count) {
    if (count == 0)
        return;
    berm__emit_object_begin(emit, NULL);
    berm__emit_u64(emit, "granules", granules);
    berm__emit_u64(emit, "count", count);
    berm__emit_bool(emit, "is_exportable", store->prop.requested_handle_types != 0);
    berm__emit_bool(emit, "is_rdma", store->prop.alloc_flags.gpu_direct_rdma_capable != 0);
    berm__emit_object_end(emit);
}

static void emit_store(berm_emit_t *emit, const berm_store_t *store) {
    emit_idle(emit, store, 1, store->idle_small_count);
    emit_idle(emit, store, store->phys->large_granules, store->idle_large_count);
    BERM_LIST_EACH (const berm_phys_handle_t, handle, &store->idle_odd, link)
        emit_idle(emit, store, handle->granules, 1);
}

static void emit_statistics(berm_emit_t *emit, const berm_device_t *device) {
    const berm_phys_t *phys = &device->phys;
    const berm_figure_t reserved = {phys->reserved_bytes, phys->reserved_peak_bytes,
                                    phys->created_bytes, phys->released_bytes};
    berm__emit_object_begin(emit, "statistics");
    emit_figure(emit, "requested_bytes", &device->requested);
    emit_figure(emit, "allocated_bytes", &device->allocated);
    emit_figure(emit, "active_bytes", &device->active);
    emit_figure(emit, "reserved_bytes", &reserved);
    emit_figure(emit, "blocks", &device->blocks);
    berm__emit_u64(emit, "cached_bytes", phys->reserved_bytes - device->active.current);
    berm__emit_u64(emit, "address_bytes", device->address_bytes);
    berm__emit_u64(emit, "handles", phys->handle_count);
    berm__emit_u64(emit, "mappings", phys->mapping_count + phys->stale_mappings);
    berm__emit_u64(emit, "mappings_peak", phys->mapping_peak);
    berm__emit_u64(emit, "moved_bytes", phys->moved_bytes);
    berm__emit_u64(emit, "moves", device->moves);
    berm__emit_u64(emit, "host_waits", device->host_waits);
    berm__emit_u64(emit, "retries", device->retries);
    berm__emit_u64(emit, "out_of_memory", device->out_of_memory);
    berm__emit_u64(emit, "poisoned_bytes", device->poisoned_bytes);
    berm__emit_u64(emit, "requests", device->request_count);
    berm__emit_u64(emit, "exported_bytes", phys->exported_bytes);
    berm__emit_u64(emit, "imports", device->import_count);
    berm__emit_u64(emit, "imported_bytes", device->imported_bytes);
    berm__emit_u64(emit, "pinned_bytes", berm__pins_bytes(device));
    berm__emit_u64(emit, "decay_ticks", device->decay.ticks);
    berm__emit_u64(emit, "decayed_bytes", device->decay.decayed_bytes);
    berm__emit_u64(emit, "plans", atomic_load(&device->plans.made));
    berm__emit_u64(emit, "plans_dropped", atomic_load(&device->plans.dropped));
    berm__emit_u64(emit, "planned_requests", atomic_load(&device->plans.requests));
    berm__emit_u64(emit, "planned_bytes", atomic_load(&device->plans.bytes));
    berm__emit_object_end(emit);
}

static void emit_imports(berm_emit_t *emit, const berm_device_t *device) {
    berm__emit_array_begin(emit, "imports");
    BERM_LIST_EACH (const berm_import_t, import, &device->imports, link) {
        berm__emit_object_begin(emit, NULL);
        berm__emit_addr(emit, "address", import->base);
        berm__emit_u64(emit, "size_bytes", import->size_bytes);
        berm__emit_bool(emit, "is_mapped", import->is_mapped);
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
}

static void emit_peers(berm_emit_t *emit, const berm_gpu_t *gpu) {
    berm__emit_array_begin(emit, "peers");
    for (unsigned i = 1; i < gpu->access_count; i++)
        berm__emit_u64(emit, NULL, (uint64_t)gpu->access[i].location.id);
    berm__emit_array_end(emit);
}

static void emit_device(berm_emit_t *emit, const berm_device_t *device) {
    const berm_phys_t *phys = &device->phys;
    berm__emit_object_begin(emit, NULL);
    berm__emit_u64(emit, "device", (uint64_t)device->gpu.ordinal);
    berm__emit_u64(emit, "memory_bytes", device->gpu.memory_bytes);
    berm__emit_u64(emit, "granule_bytes", device->gpu.granule_bytes);
    berm__emit_u64(emit, "large_handle_granules", phys->large_granules);
    emit_u64_or_null(emit, "limit_bytes", device->limit_bytes);
    berm__emit_double(emit, "headroom_pct", device->headroom_pct, 3);
    berm__emit_bool(emit, "remap", !device->remap_is_off);
    berm__emit_string(emit, "remap_mode",
                      device->remap_is_off     ? "off"
                      : device->remap_is_alias ? "alias"
                                               : "passed");
    emit_statistics(emit, device);
    berm__emit_array_begin(emit, "idle_handles");
    for (unsigned i = 0; i < phys->store_count; i++)
        emit_store(emit, &phys->stores[i]);
    berm__emit_array_end(emit);
    berm__emit_array_begin(emit, "leaving_handles");
    BERM_LIST_EACH (const berm_phys_handle_t, handle, &phys->leaving, link) {
        berm__emit_object_begin(emit, NULL);
        berm__emit_u64(emit, "granules", handle->granules);
        berm__emit_object_end(emit);
    }
    berm__emit_array_end(emit);
    berm__emit_array_begin(emit, "pools");
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link)
        emit_pool(emit, pool);
    berm__emit_array_end(emit);
    emit_imports(emit, device);
    emit_peers(emit, &device->gpu);
    berm__emit_object_end(emit);
}

static void emit_devices(berm_emit_t *emit) {
    berm__emit_array_begin(emit, "devices");
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL)
            continue;
        berm__mutex_lock(&device->lock);
        berm__device_freeze(device);
        emit_device(emit, device);
        berm__device_thaw(device);
        berm__mutex_unlock(&device->lock);
    }
    berm__emit_array_end(emit);
}

berm_status_t berm_snapshot_write(berm_write_fn write, void *context) {
    bool is_running;
    if (write == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_snapshot_write: write is NULL");
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, write, context);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_u64(&emit, "schema", SCHEMA_VERSION);
    berm__emit_string(&emit, "berm", berm_version());
    berm__emit_bool(&emit, "is_running", is_running);
    berm__emit_u64(&emit, "host_metadata_bytes", berm__mem_held_bytes());
    if (is_running) {
        emit_driver(&emit);
        emit_options(&emit);
        emit_devices(&emit);
    }
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
    return BERM_OK;
}
