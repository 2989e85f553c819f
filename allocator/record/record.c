// SPDX-License-Identifier: Apache-2.0
// The lists of a recording, and making its events agree with its blocks: see record.h.
//
// Bounds: lists double as they grow; to settle takes 16 bytes for each address. Locks: none.
#include "record/record.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"

// Makes room in a list of `count` items; false without memory.
static bool grow(void **list, uint64_t count, uint64_t *capacity, size_t item_bytes) {
    if (count < *capacity)
        return true;
    uint64_t larger = *capacity == 0 ? 64 : 2 * *capacity;
    void *moved = berm__mem_alloc(larger * item_bytes);
    if (moved == NULL)
        return false;
    if (count > 0)
        memcpy(moved, *list, count * item_bytes);
    berm__mem_free(*list, *capacity * item_bytes);
    *list = moved;
    *capacity = larger;
    return true;
}

bool berm__record_segment_add(berm_record_device_t *device, const berm_record_segment_t *segment) {
    if (!grow((void **)&device->segments, device->segment_count, &device->segment_capacity,
              sizeof *segment))
        return false;
    device->segments[device->segment_count++] = *segment;
    return true;
}

bool berm__record_block_add(berm_record_device_t *device, const berm_record_block_t *block) {
    if (!grow((void **)&device->blocks, device->block_count, &device->block_capacity,
              sizeof *block))
        return false;
    device->blocks[device->block_count++] = *block;
    return true;
}

bool berm__record_event_add(berm_record_device_t *device, const berm_record_event_t *event) {
    if (!grow((void **)&device->events, device->event_count, &device->event_capacity,
              sizeof *event))
        return false;
    device->events[device->event_count++] = *event;
    return true;
}

void berm__record_destroy(berm_record_t *record) {
    for (unsigned i = 0; i < record->device_count; i++) {
        berm_record_device_t *device = &record->devices[i];
        berm__mem_free(device->segments, device->segment_capacity * sizeof *device->segments);
        berm__mem_free(device->blocks, device->block_capacity * sizeof *device->blocks);
        berm__mem_free(device->events, device->event_capacity * sizeof *device->events);
    }
    record->device_count = 0;
}

const char *berm__record_kind_name(berm_record_kind_t kind) {
    static const char *const names[] = {"alloc", "free",        "fail",       "map",
                                        "unmap", "plain_alloc", "plain_free", "mark"};
    _Static_assert(BERM_ARRAY_LENGTH(names) == BERM_RECORD_KIND_COUNT, "a name for each kind");
    return kind < BERM_RECORD_KIND_COUNT ? names[kind] : "unknown";
}

// --- settling ------------------------------------------------------------------------------------

// What is live at an address, from the end of the recording backwards. Open addressing.
typedef struct spot {
    uint64_t addr;       // 0: empty
    uint64_t size_bytes; // of the live block; 0: none
} spot_t;

typedef struct spots {
    spot_t *at;
    uint64_t count; // a power of two
} spots_t;

static spot_t *spot_of(const spots_t *spots, uint64_t addr) {
    uint64_t at = addr * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; at++) {
        spot_t *spot = &spots->at[at & (spots->count - 1)];
        if (spot->addr == 0)
            spot->addr = addr;
        if (spot->addr == addr)
            return spot;
    }
}

// Takes an event back; false: it does not fit.
static bool take_back(const spots_t *spots, const berm_record_event_t *event) {
    if (event->kind != BERM_RECORD_ALLOC && event->kind != BERM_RECORD_FREE)
        return true;
    spot_t *spot = spot_of(spots, event->addr);
    bool is_alloc = event->kind == BERM_RECORD_ALLOC;
    if (is_alloc ? spot->size_bytes != event->size_bytes : spot->size_bytes != 0)
        return false;
    spot->size_bytes = is_alloc ? 0 : event->size_bytes;
    return true;
}

bool berm__record_settle(berm_record_device_t *device) {
    uint64_t keys = device->event_count + device->block_count + 1;
    spots_t spots = {.count = UINT64_C(4) << berm__bit_highest(keys)};
    size_t bytes = spots.count * sizeof *spots.at;
    spots.at = berm__mem_reserve(bytes);
    if (spots.at == NULL)
        return false;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            spot_of(&spots, device->blocks[i].addr)->size_bytes = device->blocks[i].requested_bytes;
    // Backwards into the end of the list, and then to its front.
    uint64_t kept = device->event_count;
    for (uint64_t i = device->event_count; i-- > 0;)
        if (take_back(&spots, &device->events[i]))
            device->events[--kept] = device->events[i];
    device->has_lost |= kept > 0;
    device->event_count -= kept;
    if (device->event_count > 0) // without any there is no list
        memmove(device->events, device->events + kept,
                device->event_count * sizeof *device->events);
    berm__mem_unreserve(spots.at, bytes);
    return true;
}
