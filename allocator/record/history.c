// SPDX-License-Identifier: Apache-2.0
// One pass back over the events for the bytes that lived, one forward for the kinds of blocks: see
// history.h.
//
// Bounds: 8 bytes an event, 24 bytes an address, 12 KiB a tag. Locks: none.
#include "record/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "host/mem.h"

// The ALLOC of a live block. Open addressing.
typedef struct birth {
    uint64_t addr;  // 0: empty
    uint64_t event; // 1 + its number; 0: not live
    uint8_t tag;
} birth_t;

typedef struct births {
    birth_t *at;
    uint64_t count; // a power of two
} births_t;

static birth_t *birth_of(const births_t *births, uint64_t addr) {
    uint64_t at = addr * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; at++) {
        birth_t *birth = &births->at[at & (births->count - 1)];
        if (birth->addr == 0)
            birth->addr = addr;
        if (birth->addr == addr)
            return birth;
    }
}

static berm_history_kind_t *kind_of(const berm_history_t *history, uint8_t tag,
                                    uint64_t size_bytes) {
    unsigned lg = berm__bit_highest(size_bytes);
    if (!berm__is_pow2(size_bytes) && lg < BERM_HISTORY_SIZES - 1)
        lg++;
    return &history->kinds[(uint64_t)tag * BERM_HISTORY_SIZES + lg];
}

static void live_fill(berm_history_t *history, const berm_record_device_t *device) {
    uint64_t live = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            live += device->blocks[i].requested_bytes;
    history->live[device->event_count] = live;
    for (uint64_t i = device->event_count; i-- > 0;) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind == BERM_RECORD_ALLOC)
            live -= event->size_bytes;
        else if (event->kind == BERM_RECORD_FREE)
            live += event->size_bytes;
        history->live[i] = live;
    }
}

// Lifetimes of what was freed; what is left in `births` lives.
static void events_count(berm_history_t *history, const berm_record_device_t *device,
                         const births_t *births) {
    for (uint64_t i = 0; i < device->event_count; i++) {
        const berm_record_event_t *event = &device->events[i];
        if (event->kind > BERM_RECORD_FREE)
            continue;
        birth_t *birth = birth_of(births, event->addr);
        if (event->kind == BERM_RECORD_ALLOC) {
            birth->event = i + 1;
            birth->tag = event->tag;
            kind_of(history, event->tag, event->size_bytes)->allocs++;
            history->allocs++;
            continue;
        }
        history->frees++;
        if (birth->event != 0) {
            berm_history_kind_t *kind = kind_of(history, birth->tag, event->size_bytes);
            kind->frees++;
            kind->lifetimes += i + 1 - birth->event;
        }
        birth->event = 0;
    }
}

static void blocks_count(berm_history_t *history, const berm_record_device_t *device,
                         const births_t *births) {
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        if (block->state != BERM_RECORD_LIVE)
            continue;
        berm_history_kind_t *kind = kind_of(history, block->tag, block->requested_bytes);
        const birth_t *birth = birth_of(births, block->addr);
        kind->live_blocks++;
        kind->live_bytes += block->requested_bytes;
        if (birth->event == 0) {
            kind->old_blocks++;
            kind->old_bytes += block->requested_bytes;
            continue;
        }
        uint64_t part = (birth->event - 1) * BERM_HISTORY_PARTS / device->event_count;
        kind->born_blocks[part]++;
        kind->born_bytes[part] += block->requested_bytes;
    }
}

// How many tags the events and blocks have, with that of none: kinds are read one by one, and no
// page of those of tags that are not there is touched.
static uint64_t tags_count(const berm_record_device_t *device) {
    uint8_t most = 0;
    for (uint64_t i = 0; i < device->event_count; i++)
        most = device->events[i].tag > most ? device->events[i].tag : most;
    for (uint64_t i = 0; i < device->block_count; i++)
        most = device->blocks[i].tag > most ? device->blocks[i].tag : most;
    return (uint64_t)most + 1;
}

bool berm__history_make(berm_history_t *history, const berm_record_device_t *device) {
    uint64_t keys = device->event_count + device->block_count + 1;
    births_t births = {.count = UINT64_C(4) << berm__bit_highest(keys)};
    *history = (berm_history_t){
        .live_count = device->event_count + 1,
        .kind_count = tags_count(device) * BERM_HISTORY_SIZES,
    };
    history->live = berm__mem_reserve(history->live_count * sizeof *history->live);
    history->kinds = berm__mem_reserve(history->kind_count * sizeof *history->kinds);
    births.at = berm__mem_reserve(births.count * sizeof *births.at);
    bool is_good = history->live != NULL && history->kinds != NULL && births.at != NULL;
    if (is_good) {
        live_fill(history, device);
        events_count(history, device, &births);
        blocks_count(history, device, &births);
    }
    berm__mem_unreserve(births.at, births.count * sizeof *births.at);
    if (!is_good)
        berm__history_destroy(history);
    return is_good;
}

void berm__history_destroy(berm_history_t *history) {
    berm__mem_unreserve(history->live, history->live_count * sizeof *history->live);
    berm__mem_unreserve(history->kinds, history->kind_count * sizeof *history->kinds);
    *history = (berm_history_t){0};
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

uint64_t berm__history_median(const berm_history_t *history) {
    size_t bytes = history->live_count * sizeof *history->live;
    uint64_t *sorted = berm__mem_reserve(bytes);
    if (sorted == NULL)
        return history->live[history->live_count / 2];
    memcpy(sorted, history->live, bytes);
    qsort(sorted, history->live_count, sizeof *sorted, compare);
    uint64_t median = sorted[history->live_count / 2];
    berm__mem_unreserve(sorted, bytes);
    return median;
}
