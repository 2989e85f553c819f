// SPDX-License-Identifier: Apache-2.0
// A recording as PyTorch's memory snapshot: what torch.cuda.memory._dump_snapshot writes, for
// torch.cuda._memory_viz and the viewer on the web. Protocol 2, plain values only: None, bool, int,
// float, text, list, tuple and dict, which is also all that the viewer reads.
//
// The root is {segments, device_traces, allocator_settings, external_annotations}. An event of a
// block that some stream still uses at the end is free_requested alone; every other free is that
// and free_completed. Times are microseconds since 1970.
//
// Locks: none. Cannot fail.
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "host/mem.h"
#include "record/record.h"

typedef struct pickle {
    berm_emit_write_fn write;
    void *context;
    size_t length;
    char buffer[4096];
} pickle_t;

static void flush(pickle_t *pickle) {
    if (pickle->length > 0)
        pickle->write(pickle->context, pickle->buffer, pickle->length);
    pickle->length = 0;
}

static void put(pickle_t *pickle, const void *bytes, size_t length) {
    if (length > sizeof pickle->buffer - pickle->length)
        flush(pickle);
    memcpy(pickle->buffer + pickle->length, bytes, length);
    pickle->length += length;
}

static void op(pickle_t *pickle, char code) {
    put(pickle, &code, 1);
}

static void put_le(pickle_t *pickle, uint64_t value, unsigned bytes) {
    unsigned char out[8];
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
    put(pickle, out, bytes);
}

static void put_int(pickle_t *pickle, uint64_t value) {
    if (value <= INT32_MAX) {
        op(pickle, 'J'); // BININT
        put_le(pickle, value, 4);
        return;
    }
    op(pickle, '\x8a'); // LONG1, signed: a ninth byte where the eighth would read as a sign
    unsigned bytes = value > INT64_MAX ? 9 : 8;
    op(pickle, (char)bytes);
    put_le(pickle, value, 8);
    if (bytes == 9)
        op(pickle, '\0');
}

static void put_signed(pickle_t *pickle, int64_t value) {
    if (value >= 0) {
        put_int(pickle, (uint64_t)value);
        return;
    }
    op(pickle, '\x8a');
    op(pickle, '\x08');
    put_le(pickle, (uint64_t)value, 8);
}

static void put_bool(pickle_t *pickle, bool value) {
    op(pickle, value ? '\x88' : '\x89');
}

static void put_text(pickle_t *pickle, const char *text) {
    size_t length = strlen(text);
    op(pickle, 'X'); // BINUNICODE
    put_le(pickle, length, 4);
    put(pickle, text, length);
}

// Lists and dicts are filled between a mark and their end, however long they are.
static void list_begin(pickle_t *pickle) {
    put(pickle, "](", 2);
}
static void list_end(pickle_t *pickle) {
    op(pickle, 'e');
}
static void dict_begin(pickle_t *pickle) {
    put(pickle, "}(", 2);
}
static void dict_end(pickle_t *pickle) {
    op(pickle, 'u');
}

static void key_int(pickle_t *pickle, const char *key, uint64_t value) {
    put_text(pickle, key);
    put_int(pickle, value);
}

static void key_text(pickle_t *pickle, const char *key, const char *value) {
    put_text(pickle, key);
    put_text(pickle, value);
}

static void key_list_empty(pickle_t *pickle, const char *key) {
    put_text(pickle, key);
    op(pickle, ']');
}

static void key_pool(pickle_t *pickle, const char *key, uint64_t high, uint64_t low) {
    put_text(pickle, key);
    put_int(pickle, high);
    put_int(pickle, low);
    op(pickle, '\x86'); // TUPLE2
}

// PyTorch's default stream is 0; memory of no stream is shown there.
static void key_stream(pickle_t *pickle, int64_t stream) {
    put_text(pickle, "stream");
    put_signed(pickle, stream == -1 ? 0 : stream);
}

// --- segments ------------------------------------------------------------------------------------

static const char *state_text(berm_record_state_t state) {
    return state == BERM_RECORD_LIVE      ? "active_allocated"
           : state == BERM_RECORD_AWAITED ? "active_pending_free"
                                          : "inactive";
}

static void put_block(pickle_t *pickle, const berm_record_block_t *block) {
    bool is_active = block->state == BERM_RECORD_LIVE || block->state == BERM_RECORD_AWAITED;
    dict_begin(pickle);
    key_int(pickle, "address", block->addr);
    key_int(pickle, "size", block->size_bytes);
    key_int(pickle, "requested_size", is_active ? block->requested_bytes : 0);
    key_text(pickle, "state", state_text((berm_record_state_t)block->state));
    key_list_empty(pickle, "frames");
    dict_end(pickle);
}

static void put_segment(pickle_t *pickle, const berm_record_device_t *device,
                        const berm_record_segment_t *segment) {
    uint64_t allocated = 0, active = 0, requested = 0;
    const berm_record_block_t *blocks = device->blocks + segment->block_first;
    for (uint64_t i = 0; i < segment->block_count; i++) {
        bool is_live = blocks[i].state == BERM_RECORD_LIVE;
        allocated += is_live ? blocks[i].size_bytes : 0;
        active += is_live || blocks[i].state == BERM_RECORD_AWAITED ? blocks[i].size_bytes : 0;
        requested += blocks[i].requested_bytes;
    }
    dict_begin(pickle);
    key_int(pickle, "device", (uint64_t)device->ordinal);
    key_int(pickle, "address", segment->addr);
    key_int(pickle, "total_size", segment->size_bytes);
    key_int(pickle, "allocated_size", allocated);
    key_int(pickle, "active_size", active);
    key_int(pickle, "requested_size", requested);
    key_stream(pickle, segment->stream);
    key_text(pickle, "segment_type", "large");
    key_pool(pickle, "segment_pool_id", segment->pool_high, segment->pool_low);
    put_text(pickle, "is_expandable");
    put_bool(pickle, !segment->is_plain);
    key_list_empty(pickle, "frames");
    put_text(pickle, "blocks");
    list_begin(pickle);
    for (uint64_t i = 0; i < segment->block_count; i++)
        put_block(pickle, &blocks[i]);
    list_end(pickle);
    dict_end(pickle);
}

// --- traces --------------------------------------------------------------------------------------

static const char *action_text(berm_record_kind_t kind) {
    static const char *const actions[] = {"alloc",       "free_requested", "oom",
                                          "segment_map", "segment_unmap",  "segment_alloc",
                                          "segment_free"};
    return kind < BERM_ARRAY_LENGTH(actions) ? actions[kind] : "snapshot";
}

static void put_event(pickle_t *pickle, const berm_record_t *record,
                      const berm_record_device_t *device, const berm_record_event_t *event,
                      const char *action) {
    uint64_t wall_ns = event->time_ns + (uint64_t)record->wall_ns;
    dict_begin(pickle);
    key_text(pickle, "action", action);
    if (event->kind == BERM_RECORD_FAIL)
        key_int(pickle, "device_free", device->figures.driver_free);
    else
        key_int(pickle, "addr", event->addr);
    key_int(pickle, "size", event->kind == BERM_RECORD_MARK ? 0 : event->size_bytes);
    key_stream(pickle, event->stream);
    key_int(pickle, "time_us", wall_ns / 1000);
    put_text(pickle, "compile_context");
    put_text(pickle, "N/A");
    key_text(pickle, "user_metadata", record->tags[event->tag]);
    key_pool(pickle, "pool_id", event->pool_high, event->pool_low);
    key_list_empty(pickle, "frames");
    dict_end(pickle);
}

// The awaited blocks at the end, sorted by address.
typedef struct awaited {
    uint64_t *addrs;
    uint64_t count, capacity;
} awaited_t;

static awaited_t awaited_make(const berm_record_device_t *device) {
    awaited_t awaited = {.capacity = 1};
    for (uint64_t i = 0; i < device->block_count; i++)
        awaited.capacity += device->blocks[i].state == BERM_RECORD_AWAITED;
    awaited.addrs = berm__mem_alloc(awaited.capacity * sizeof *awaited.addrs);
    for (uint64_t i = 0; awaited.addrs != NULL && i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_AWAITED)
            awaited.addrs[awaited.count++] = device->blocks[i].addr;
    return awaited;
}

// Takes an address off the list; false if it is not there.
static bool awaited_take(awaited_t *awaited, uint64_t addr) {
    for (uint64_t i = 0; i < awaited->count; i++) {
        if (awaited->addrs[i] != addr)
            continue;
        awaited->addrs[i] = awaited->addrs[--awaited->count];
        return true;
    }
    return false;
}

// Which frees are not completed: the last one of each awaited address. One bit an event; NULL
// where there is no memory: all are shown as completed.
static uint8_t *pending_make(const berm_record_device_t *device) {
    awaited_t awaited = awaited_make(device);
    uint8_t *pending = awaited.count > 0 ? berm__mem_alloc(device->event_count / 8 + 1) : NULL;
    for (uint64_t i = device->event_count; pending != NULL && awaited.count > 0 && i-- > 0;)
        if (device->events[i].kind == BERM_RECORD_FREE &&
            awaited_take(&awaited, device->events[i].addr))
            pending[i / 8] |= (uint8_t)(1 << i % 8);
    berm__mem_free(awaited.addrs, awaited.capacity * sizeof *awaited.addrs);
    return pending;
}

static void put_trace(pickle_t *pickle, const berm_record_t *record,
                      const berm_record_device_t *device) {
    uint8_t *pending = pending_make(device);
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        put_event(pickle, record, device, event, action_text((berm_record_kind_t)event->kind));
        bool is_pending = pending != NULL && (pending[i / 8] >> i % 8 & 1) != 0;
        if (event->kind == BERM_RECORD_FREE && !is_pending)
            put_event(pickle, record, device, event, "free_completed");
    }
    if (pending != NULL)
        berm__mem_free(pending, device->event_count / 8 + 1);
}

// Lists are indexed by ordinal: devices that were not used have empty ones.
static void put_traces(pickle_t *pickle, const berm_record_t *record) {
    int next = 0;
    list_begin(pickle);
    for (unsigned i = 0; i < record->device_count; i++) {
        const berm_record_device_t *device = &record->devices[i];
        for (; next < device->ordinal; next++)
            op(pickle, ']');
        list_begin(pickle);
        put_trace(pickle, record, device);
        list_end(pickle);
        next++;
    }
    list_end(pickle);
}

static void put_settings(pickle_t *pickle) {
    dict_begin(pickle);
    key_text(pickle, "PYTORCH_CUDA_ALLOC_CONF", "");
    put_text(pickle, "max_split_size");
    put_signed(pickle, -1);
    put_text(pickle, "garbage_collection_threshold");
    put(pickle, "G\0\0\0\0\0\0\0\0", 9); // BINFLOAT 0
    put_text(pickle, "expandable_segments");
    put_bool(pickle, true);
    dict_end(pickle);
}

void berm__record_write_pytorch(const berm_record_t *record, berm_emit_write_fn write,
                                void *context) {
    pickle_t pickle = {.write = write, .context = context};
    put(&pickle, "\x80\x02", 2); // PROTO 2
    dict_begin(&pickle);
    put_text(&pickle, "segments");
    list_begin(&pickle);
    for (unsigned i = 0; i < record->device_count; i++)
        for (uint64_t at = 0; at < record->devices[i].segment_count; at++)
            put_segment(&pickle, &record->devices[i], &record->devices[i].segments[at]);
    list_end(&pickle);
    put_text(&pickle, "device_traces");
    put_traces(&pickle, record);
    put_text(&pickle, "allocator_settings");
    put_settings(&pickle);
    key_list_empty(&pickle, "external_annotations");
    dict_end(&pickle);
    op(&pickle, '.'); // STOP
    flush(&pickle);
}
