// SPDX-License-Identifier: Apache-2.0
// A recording of the running heap, and berm_trace_write: see recording.h.
//
// Locks: one device's after the other, frozen while its blocks and events are copied; what is
// copied is brought in order and written with none. Calls cuMemGetInfo.
#include "front/recording.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "berm_diagnose.h"
#include "front/events.h"
#include "front/heap.h"
#include "front/naming.h"
#include "front/tag.h"
#include "host/clock.h"
#include "host/mem.h"
#include "policy/cache.h"

static int64_t stream_number(berm_stream_t stream) {
    return (int64_t)(intptr_t)stream;
}

// --- blocks --------------------------------------------------------------------------------------

typedef struct copy {
    berm_record_device_t *device;
    bool has_failed;
} copy_t;

static berm_record_state_t state_of(berm_address_kind_t kind) {
    switch (kind) {
    case BERM_ADDRESS_LIVE:
        return BERM_RECORD_LIVE;
    case BERM_ADDRESS_AWAITED:
        return BERM_RECORD_AWAITED;
    case BERM_ADDRESS_HELD:
        return BERM_RECORD_HELD;
    default:
        return BERM_RECORD_FREE_PIECE;
    }
}

static void copy_walked(void *context, const berm_walk_segment_t *segment,
                        const berm_walk_block_t *block) {
    copy_t *copy = context;
    berm_record_device_t *device = copy->device;
    if (copy->has_failed)
        return;
    if (block == NULL) {
        const berm_record_segment_t item = {.addr = segment->addr,
                                            .size_bytes = segment->size_bytes,
                                            .stream = stream_number(segment->stream),
                                            .pool_high = segment->pool.high,
                                            .pool_low = segment->pool.low,
                                            .is_plain = segment->is_plain != 0,
                                            .block_first = device->block_count};
        copy->has_failed = !berm__record_segment_add(device, &item);
        return;
    }
    const berm_record_block_t item = {.addr = block->addr,
                                      .size_bytes = block->size_bytes,
                                      .requested_bytes = block->requested_bytes,
                                      .number = block->allocation_index,
                                      .state = (uint8_t)state_of(block->kind),
                                      .tag = berm__tag_of(block->tag),
                                      .is_small = block->is_small != 0};
    device->segments[device->segment_count - 1].block_count++;
    copy->has_failed = !berm__record_block_add(device, &item);
}

// --- figures -------------------------------------------------------------------------------------

static void figures_copy(berm_record_figures_t *figures, berm_device_t *device) {
    size_t free_now = 0, total = 0;
    bool is_pushed;
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK)
        (void)BERM_DRV_CALL(device->gpu.drv, OTHER, mem_get_info, &free_now, &total);
    berm__gpu_leave(&device->gpu, is_pushed);
    const berm_phys_t *phys = &device->phys;
    *figures = (berm_record_figures_t){
        .memory = device->gpu.memory_bytes,
        .driver_free = free_now,
        .limit = device->limit_bytes,
        .granule = device->gpu.granule_bytes,
        .reserved = phys->reserved_bytes,
        .reserved_peak = phys->reserved_peak_bytes,
        .pinned = berm__pins_bytes(device),
        .exported = phys->exported_bytes,
        .poisoned = device->poisoned_bytes,
        .moves_pages = !device->remap_is_off && !device->gpu.is_plain,
        .requests = atomic_load(&device->request_count),
    };
    berm__mutex_lock(&device->figures_lock);
    figures->requested = device->requested.current;
    figures->requested_peak = device->requested.peak;
    figures->allocated = device->allocated.current;
    figures->active = device->active.current;
    berm__mutex_unlock(&device->figures_lock);
    figures->cached = figures->reserved - figures->active;
}

// --- events --------------------------------------------------------------------------------------

static berm_record_kind_t kind_of(berm_ring_kind_t kind) {
    switch (kind) {
    case BERM_RING_ALLOC:
        return BERM_RECORD_ALLOC;
    case BERM_RING_FREE:
        return BERM_RECORD_FREE;
    case BERM_RING_FAIL:
        return BERM_RECORD_FAIL;
    case BERM_RING_MAP:
        return BERM_RECORD_MAP;
    case BERM_RING_UNMAP:
        return BERM_RECORD_UNMAP;
    case BERM_RING_PLAIN_ALLOC:
        return BERM_RECORD_PLAIN_ALLOC;
    case BERM_RING_PLAIN_FREE:
        return BERM_RECORD_PLAIN_FREE;
    default:
        return BERM_RECORD_MARK;
    }
}

// The last ones: a file of all that the ring may have would be a hundred megabytes.
static bool events_copy(berm_record_device_t *device, const berm_events_t *events,
                        uint64_t events_max) {
    uint64_t first = events->count - berm__min_u64(events->count, events_max);
    device->has_lost = events->has_lost || first > 0;
    for (uint64_t i = first; i < events->count; i++) {
        const berm_ring_event_t *event = &events->at[i];
        const berm_record_event_t item = {.kind = (uint8_t)kind_of(event->kind),
                                          .tag = event->tag,
                                          .thread = event->thread,
                                          .time_ns = event->time_ns,
                                          .addr = event->addr,
                                          .size_bytes = event->size_bytes,
                                          .number = event->number,
                                          .site = event->site,
                                          .stream = stream_number(event->stream),
                                          .pool_high = event->pool.high,
                                          .pool_low = event->pool.low};
        if (!berm__record_event_add(device, &item))
            return false;
    }
    return true;
}

static bool device_take(berm_record_device_t *out, berm_device_t *device, uint64_t events_max) {
    berm_events_t events = {0};
    copy_t copy = {.device = out};
    bool is_good = true;
    uint64_t words = events_max < BERM_RECORD_EVENTS_MAX ? 2 * events_max : UINT64_MAX;
    out->ordinal = device->gpu.ordinal;
    berm__mutex_lock(&device->lock);
    berm__caches_merge(device);
    figures_copy(&out->figures, device);
    berm__device_freeze(device);
    berm__walk_frozen(device, copy_walked, &copy);
    if (events_max > 0)
        is_good = berm__events_collect(&events, out->ordinal, words) == BERM_OK;
    berm__device_thaw(device);
    berm__mutex_unlock(&device->lock);
    berm__events_trim(&events, events_max);
    is_good =
        is_good && !copy.has_failed && (events_max == 0 || berm__events_order(&events) == BERM_OK);
    is_good = is_good && events_copy(out, &events, events_max);
    berm__events_destroy(&events);
    return is_good && berm__record_settle(out);
}

// The process's own program has no name there.
static int module_copy(struct dl_phdr_info *info, size_t size, void *context) {
    berm_record_t *record = context;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0 ||
            record->module_count == BERM_RECORD_MODULES_MAX)
            continue;
        berm_record_module_t *module = &record->modules[record->module_count++];
        module->base = info->dlpi_addr;
        module->first = info->dlpi_addr + part->p_vaddr;
        module->end = module->first + part->p_memsz;
        ssize_t length = -1;
        if (info->dlpi_name == NULL || *info->dlpi_name == '\0')
            length = readlink("/proc/self/exe", module->path, sizeof module->path - 1);
        else if (strlen(info->dlpi_name) < sizeof module->path)
            length = (ssize_t)strlen(strcpy(module->path, info->dlpi_name));
        module->path[length > 0 ? length : 0] = '\0';
    }
    return 0;
}

static void tags_copy(berm_record_t *record) {
    record->tag_count = berm__tag_count() + 1;
    for (unsigned tag = 0; tag < record->tag_count; tag++)
        memcpy(record->tags[tag], berm__tag_name((uint8_t)tag),
               strlen(berm__tag_name((uint8_t)tag)) + 1);
}

berm_status_t berm__recording_take(berm_record_t *record, int ordinal, uint64_t events_max) {
    struct timespec wall;
    bool is_good = true;
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    record->now_ns = berm__clock_ns();
    record->wall_ns =
        (int64_t)wall.tv_sec * 1000000000 + (int64_t)wall.tv_nsec - (int64_t)record->now_ns;
    record->pid = (uint64_t)getpid();
    (void)snprintf(record->rank, sizeof record->rank, "%s", berm__rank_text());
    berm__host_text(record->host, sizeof record->host);
    for (int i = 0; i < BERM_DEVICES_MAX && is_good; i++) {
        berm_device_t *device = berm__heap_device_opened(i);
        if (device == NULL || (ordinal != BERM_DEVICE_ANY && ordinal != i))
            continue;
        is_good = device_take(&record->devices[record->device_count++], device, events_max);
    }
    tags_copy(record);
    if (events_max > 0 && atomic_load(&berm__heap.notes_sites))
        (void)dl_iterate_phdr(module_copy, record);
    if (is_good)
        return BERM_OK;
    berm__record_destroy(record);
    return BERM_ERROR_OUT_OF_HOST_MEMORY;
}

// --- the call ------------------------------------------------------------------------------------

static void form_write(const berm_record_t *record, berm_trace_form_t form, berm_write_fn write,
                       void *context) {
    static const berm_record_device_t none;
    const berm_record_device_t *first = record->device_count > 0 ? &record->devices[0] : &none;
    switch (form) {
    case BERM_TRACE_RECORDING:
        berm__record_write_json(record, write, context);
        return;
    case BERM_TRACE_PYTORCH:
        berm__record_write_pytorch(record, write, context);
        return;
    case BERM_TRACE_RMM:
        berm__record_write_rmm(record, first, write, context);
        return;
    case BERM_TRACE_REPLAY:
        berm__record_write_replay(record, first, write, context);
        return;
    case BERM_TRACE_CSV:
        berm__record_write_csv(record, write, context);
        return;
    default:
        berm__record_write_chrome(record, write, context);
    }
}

berm_status_t berm_trace_write(int ordinal, berm_trace_form_t form, berm_write_fn write,
                               void *context) {
    bool is_running;
    berm_device_t *device = NULL;
    if (write == NULL || form < 0 || form >= BERM_TRACE_FORM_COUNT)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_trace_write: no callback, or no form %d",
                               (int)form);
    if (ordinal == BERM_DEVICE_ANY && (form == BERM_TRACE_RMM || form == BERM_TRACE_REPLAY))
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_trace_write: this form has the events of one device: name it");
    berm_status_t status = ordinal == BERM_DEVICE_ANY
                               ? berm__heap_peek(&is_running)
                               : berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    berm_record_t *record = berm__mem_alloc(sizeof *record);
    status = record != NULL ? BERM_OK : BERM_ERROR_OUT_OF_HOST_MEMORY;
    if (status == BERM_OK && is_running)
        status = berm__recording_take(record, ordinal, BERM_RECORD_EVENTS_MAX);
    if (status == BERM_OK) {
        form_write(record, form, write, context);
        berm__record_destroy(record);
    }
    berm__mem_free(record, sizeof *record);
    return status == BERM_OK
               ? BERM_OK
               : berm__error_set(status, "berm_trace_write: %s", berm_status_text(status));
}
