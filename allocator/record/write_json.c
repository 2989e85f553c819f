// SPDX-License-Identifier: Apache-2.0
// A recording as JSON: its own form, which loses nothing and which `berm export` and `berm report`
// read (docs/recording.md), and as a trace for Perfetto and chrome://tracing. See record.h.
//
// Integers are signed, as most readers take them: streams, and ids of pools.
// Locks: none. Cannot fail.
#include <stdio.h>

#include "record/record.h"

enum {
    FORM_VERSION = 1
};

static void put_figures(berm_emit_t *emit, const berm_record_figures_t *figures) {
    berm__emit_object_begin(emit, "figures");
    berm__emit_u64(emit, "memory_bytes", figures->memory);
    berm__emit_u64(emit, "driver_free_bytes", figures->driver_free);
    if (figures->limit == UINT64_MAX)
        berm__emit_null(emit, "limit_bytes");
    else
        berm__emit_u64(emit, "limit_bytes", figures->limit);
    berm__emit_u64(emit, "granule_bytes", figures->granule);
    berm__emit_u64(emit, "requested_bytes", figures->requested);
    berm__emit_u64(emit, "requested_peak_bytes", figures->requested_peak);
    berm__emit_u64(emit, "allocated_bytes", figures->allocated);
    berm__emit_u64(emit, "active_bytes", figures->active);
    berm__emit_u64(emit, "reserved_bytes", figures->reserved);
    berm__emit_u64(emit, "reserved_peak_bytes", figures->reserved_peak);
    berm__emit_u64(emit, "cached_bytes", figures->cached);
    berm__emit_u64(emit, "pinned_bytes", figures->pinned);
    berm__emit_u64(emit, "exported_bytes", figures->exported);
    berm__emit_u64(emit, "poisoned_bytes", figures->poisoned);
    berm__emit_u64(emit, "moves_pages", figures->moves_pages);
    berm__emit_u64(emit, "requests", figures->requests);
    berm__emit_object_end(emit);
}

static void put_segments(berm_emit_t *emit, const berm_record_device_t *device) {
    berm__emit_array_begin(emit, "segments");
    for (uint64_t i = 0; i < device->segment_count; i++) {
        const berm_record_segment_t *segment = &device->segments[i];
        berm__emit_array_begin(emit, NULL);
        berm__emit_u64(emit, NULL, segment->addr);
        berm__emit_u64(emit, NULL, segment->size_bytes);
        berm__emit_i64(emit, NULL, segment->stream);
        berm__emit_i64(emit, NULL, (int64_t)segment->pool_high);
        berm__emit_i64(emit, NULL, (int64_t)segment->pool_low);
        berm__emit_u64(emit, NULL, segment->is_plain);
        berm__emit_u64(emit, NULL, segment->block_count);
        berm__emit_array_end(emit);
    }
    berm__emit_array_end(emit);
    berm__emit_array_begin(emit, "blocks");
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        berm__emit_array_begin(emit, NULL);
        berm__emit_u64(emit, NULL, block->addr);
        berm__emit_u64(emit, NULL, block->size_bytes);
        berm__emit_u64(emit, NULL, block->requested_bytes);
        berm__emit_u64(emit, NULL, block->state);
        berm__emit_u64(emit, NULL, block->number);
        berm__emit_u64(emit, NULL, block->tag);
        berm__emit_u64(emit, NULL, block->is_small);
        berm__emit_array_end(emit);
    }
    berm__emit_array_end(emit);
}

static void put_events(berm_emit_t *emit, const berm_record_device_t *device) {
    berm__emit_bool(emit, "has_lost_events", device->has_lost);
    berm__emit_array_begin(emit, "events");
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        berm__emit_array_begin(emit, NULL);
        berm__emit_u64(emit, NULL, event->kind);
        berm__emit_u64(emit, NULL, event->time_ns);
        berm__emit_u64(emit, NULL, event->thread);
        berm__emit_u64(emit, NULL, event->addr);
        berm__emit_u64(emit, NULL, event->size_bytes);
        berm__emit_i64(emit, NULL, event->stream);
        berm__emit_i64(emit, NULL, (int64_t)event->pool_high);
        berm__emit_i64(emit, NULL, (int64_t)event->pool_low);
        berm__emit_u64(emit, NULL, event->tag);
        berm__emit_u64(emit, NULL, event->number);
        berm__emit_u64(emit, NULL, event->site);
        berm__emit_array_end(emit);
    }
    berm__emit_array_end(emit);
}

void berm__record_write_json(const berm_record_t *record, berm_emit_write_fn write, void *context) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, write, context);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_u64(&emit, "berm_recording", FORM_VERSION);
    berm__emit_u64(&emit, "pid", record->pid);
    berm__emit_string(&emit, "rank", record->rank);
    berm__emit_string(&emit, "host", record->host);
    berm__emit_i64(&emit, "wall_ns", record->wall_ns);
    berm__emit_u64(&emit, "now_ns", record->now_ns);
    berm__emit_array_begin(&emit, "tags");
    for (unsigned i = 0; i < record->tag_count; i++)
        berm__emit_string(&emit, NULL, record->tags[i]);
    berm__emit_array_end(&emit);
    berm__emit_array_begin(&emit, "modules");
    for (unsigned i = 0; i < record->module_count; i++) {
        berm__emit_object_begin(&emit, NULL);
        berm__emit_string(&emit, "path", record->modules[i].path);
        berm__emit_u64(&emit, "base", record->modules[i].base);
        berm__emit_u64(&emit, "first", record->modules[i].first);
        berm__emit_u64(&emit, "end", record->modules[i].end);
        berm__emit_object_end(&emit);
    }
    berm__emit_array_end(&emit);
    berm__emit_array_begin(&emit, "devices");
    for (unsigned i = 0; i < record->device_count; i++) {
        const berm_record_device_t *device = &record->devices[i];
        berm__emit_object_begin(&emit, NULL);
        berm__emit_u64(&emit, "device", (uint64_t)device->ordinal);
        put_figures(&emit, &device->figures);
        put_segments(&emit, device);
        put_events(&emit, device);
        berm__emit_object_end(&emit);
    }
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}

// --- Perfetto ------------------------------------------------------------------------------------

// What the events begin with: what is live at the end less what they added.
static void totals_before(const berm_record_device_t *device, uint64_t *live, uint64_t *reserved) {
    *live = *reserved = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            *live += device->blocks[i].requested_bytes;
    for (uint64_t i = 0; i < device->segment_count; i++)
        *reserved += device->segments[i].size_bytes;
    for (uint64_t i = device->event_count; i-- > 0;) {
        const berm_record_event_t *event = &device->events[i];
        bool is_up = event->kind == BERM_RECORD_ALLOC || event->kind == BERM_RECORD_MAP ||
                     event->kind == BERM_RECORD_PLAIN_ALLOC;
        uint64_t *total = event->kind <= BERM_RECORD_FREE ? live : reserved;
        if (event->kind != BERM_RECORD_FAIL && event->kind != BERM_RECORD_MARK)
            *total += is_up ? -event->size_bytes : event->size_bytes;
    }
}

static void put_common(berm_emit_t *emit, const berm_record_t *record,
                       const berm_record_device_t *device, const char *phase, uint64_t time_ns) {
    berm__emit_string(emit, "ph", phase);
    berm__emit_u64(emit, "pid", record->pid);
    berm__emit_double(emit, "ts", (double)(int64_t)(time_ns) / 1000.0, 3);
    (void)device;
}

static void put_counter(berm_emit_t *emit, const berm_record_t *record,
                        const berm_record_device_t *device, uint64_t time_ns, uint64_t live,
                        uint64_t reserved) {
    char name[32];
    (void)snprintf(name, sizeof name, "device %d bytes", device->ordinal);
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "name", name);
    put_common(emit, record, device, "C", time_ns);
    berm__emit_object_begin(emit, "args");
    berm__emit_u64(emit, "live", live);
    berm__emit_u64(emit, "mapped", reserved);
    berm__emit_object_end(emit);
    berm__emit_object_end(emit);
}

// A failure or a mark: a point in time of its thread.
static void put_instant(berm_emit_t *emit, const berm_record_t *record,
                        const berm_record_device_t *device, const berm_record_event_t *event) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "name", event->kind == BERM_RECORD_FAIL ? "allocation failed" : "mark");
    put_common(emit, record, device, "i", event->time_ns);
    berm__emit_u64(emit, "tid", event->thread);
    berm__emit_string(emit, "s", "p");
    berm__emit_object_begin(emit, "args");
    berm__emit_u64(emit, event->kind == BERM_RECORD_FAIL ? "wanted_bytes" : "mark",
                   event->kind == BERM_RECORD_FAIL ? event->size_bytes : event->number);
    berm__emit_string(emit, "tag", record->tags[event->tag]);
    berm__emit_object_end(emit);
    berm__emit_object_end(emit);
}

static void put_device(berm_emit_t *emit, const berm_record_t *record,
                       const berm_record_device_t *device) {
    uint64_t live, reserved;
    totals_before(device, &live, &reserved);
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind == BERM_RECORD_FAIL || event->kind == BERM_RECORD_MARK) {
            put_instant(emit, record, device, event);
            continue;
        }
        bool is_up = event->kind == BERM_RECORD_ALLOC || event->kind == BERM_RECORD_MAP ||
                     event->kind == BERM_RECORD_PLAIN_ALLOC;
        uint64_t *total = event->kind <= BERM_RECORD_FREE ? &live : &reserved;
        *total += is_up ? event->size_bytes : -event->size_bytes;
        bool is_last =
            i + 1 == device->event_count || device->events[i + 1].time_ns != event->time_ns;
        if (is_last) // of one time the last value counts
            put_counter(emit, record, device, event->time_ns, live, reserved);
    }
}

void berm__record_write_chrome(const berm_record_t *record, berm_emit_write_fn write,
                               void *context) {
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, write, context);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_array_begin(&emit, "traceEvents");
    for (unsigned i = 0; i < record->device_count; i++)
        put_device(&emit, record, &record->devices[i]);
    berm__emit_array_end(&emit);
    berm__emit_string(&emit, "displayTimeUnit", "ns");
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}
