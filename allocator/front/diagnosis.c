// SPDX-License-Identifier: Apache-2.0
// What a failure came from and what would have made it fit, for its report: see report.h. It takes
// a recording of the device with its last events, and asks the rules of `berm report` about it.
//
// Bounds: 4096 events, so that it takes a few milliseconds; the whole ring is in the file of the
// option recording. Locks: the device's while the recording is taken; then none.
#include <string.h>

#include "base/bits.h"
#include "front/recording.h"
#include "front/report.h"
#include "front/tag.h"
#include "host/mem.h"

enum {
    EVENTS_MAX = 4096,
    LARGEST_MAX = 64, // blocks among which those to be freed are looked for
};

// --- holders by tag ------------------------------------------------------------------------------

static void holder_insert(berm_diagnosis_t *diagnosis, const berm_holder_t *holder) {
    unsigned at = diagnosis->tag_count;
    while (at > 0 && diagnosis->tags[at - 1].live_bytes < holder->live_bytes)
        at--;
    if (holder->blocks == 0 || at == BERM_HOLDERS_MAX)
        return;
    diagnosis->tag_count += diagnosis->tag_count < BERM_HOLDERS_MAX;
    memmove(&diagnosis->tags[at + 1], &diagnosis->tags[at],
            (diagnosis->tag_count - 1 - at) * sizeof *holder);
    diagnosis->tags[at] = *holder;
}

// Nothing where no block has a tag: all would be of none.
static void tags_find(berm_diagnosis_t *diagnosis, const berm_record_device_t *device) {
    berm_holder_t of[BERM_RECORD_TAGS_MAX] = {{0}};
    bool has_any = false;
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        if (block->state != BERM_RECORD_LIVE)
            continue;
        of[block->tag].live_bytes += block->requested_bytes;
        of[block->tag].blocks++;
        has_any |= block->tag != 0;
    }
    for (unsigned tag = 0; tag < BERM_RECORD_TAGS_MAX && has_any; tag++) {
        of[tag].tag = berm__tag_name((uint8_t)tag);
        holder_insert(diagnosis, &of[tag]);
    }
}

// --- what would have been enough -----------------------------------------------------------------

typedef struct large {
    berm_addr_t addr;
    uint64_t bytes; // whole granules
} large_t;

static uint64_t granules_within(uint64_t addr, uint64_t size_bytes, uint64_t granule) {
    uint64_t first = berm__align_up(addr, granule), last = (addr + size_bytes) & ~(granule - 1);
    return last > first ? last - first : 0;
}

// The largest live blocks of the segments whose pages could move, largest first; and the smallest
// that is enough by itself, in *alone.
static unsigned largest_find(const berm_record_device_t *device, const berm_shortage_t *shortage,
                             uint64_t missing, large_t list[LARGEST_MAX], large_t *alone) {
    unsigned count = 0;
    for (uint64_t i = 0; i < device->segment_count; i++) {
        const berm_record_segment_t *segment = &device->segments[i];
        if (segment->is_plain || segment->pool_high != 0 || segment->pool_low != 0)
            continue;
        for (uint64_t k = 0; k < segment->block_count; k++) {
            const berm_record_block_t *block = &device->blocks[segment->block_first + k];
            if (block->state != BERM_RECORD_LIVE || block->is_small)
                continue;
            large_t large = {block->addr, granules_within(block->addr, block->size_bytes,
                                                          shortage->granule_bytes)};
            if (large.bytes >= missing && (alone->bytes == 0 || large.bytes < alone->bytes))
                *alone = large;
            unsigned at = count;
            while (at > 0 && list[at - 1].bytes < large.bytes)
                at--;
            if (large.bytes == 0 || at == LARGEST_MAX)
                continue;
            count += count < LARGEST_MAX;
            memmove(&list[at + 1], &list[at], (count - 1 - at) * sizeof *list);
            list[at] = large;
        }
    }
    return count;
}

static void enough_add(berm_diagnosis_t *diagnosis, const large_t *large) {
    if (diagnosis->enough_blocks < BERM_ENOUGH_MAX)
        diagnosis->enough[diagnosis->enough_blocks] = large->addr;
    diagnosis->enough_blocks++;
    diagnosis->enough_bytes += large->bytes;
}

// Only where freeing a block gives pages that the request can have: they move, and nothing is
// pinned that would keep them.
static void enough_find(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage,
                        const berm_record_device_t *device) {
    large_t list[LARGEST_MAX], alone = {0};
    bool is_default = berm__pool_id_is_default(shortage->want.id);
    if (!shortage->moves_pages || shortage->is_plain || !is_default ||
        shortage->pinned_bytes + shortage->exported_bytes > 0)
        return;
    const berm_obtainable_t *obtainable = &shortage->obtainable;
    uint64_t pages = obtainable->idle_bytes + obtainable->free_bytes + obtainable->awaited_bytes +
                     obtainable->growth_bytes;
    uint64_t wanted = berm__align_up(shortage->want.size_bytes, shortage->granule_bytes);
    uint64_t missing = wanted > pages ? wanted - pages : shortage->granule_bytes;
    unsigned count = largest_find(device, shortage, missing, list, &alone);
    if (alone.bytes != 0) {
        enough_add(diagnosis, &alone);
        return;
    }
    for (unsigned i = 0; i < count && diagnosis->enough_bytes < missing; i++)
        enough_add(diagnosis, &list[i]);
    if (diagnosis->enough_bytes < missing)
        diagnosis->enough_blocks = 0;
}

// While a stream is captured pages may not move: would it do if they could?
static void moves_find(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage) {
    const berm_obtainable_t *obtainable = &shortage->obtainable;
    uint64_t bytes = obtainable->idle_bytes + obtainable->free_bytes + obtainable->awaited_bytes;
    uint64_t granule = shortage->granule_bytes;
    uint64_t pages = (shortage->want.size_bytes + granule - 1) / granule;
    if (shortage->status != BERM_ERROR_CAPTURE || !shortage->moves_pages || shortage->is_plain ||
        bytes < pages * granule)
        return;
    diagnosis->move_pages = pages;
    diagnosis->move_us = berm__move_modelled_us(pages);
}

static void scales_find(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage) {
    double wanted = (double)shortage->want.size_bytes;
    double obtainable = (double)shortage->obtainable.bytes;
    double live = (double)shortage->allocated_bytes;
    diagnosis->scale_request = obtainable / wanted;
    diagnosis->scale_all = (live + obtainable) / (live + wanted);
}

// --- all -----------------------------------------------------------------------------------------

// With the ring off, or where its event was lost, the failure is added to what was recorded.
static bool failure_ensure(berm_record_device_t *device, const berm_shortage_t *shortage) {
    for (uint64_t i = device->event_count; i-- > 0;)
        if (device->events[i].kind == BERM_RECORD_FAIL &&
            device->events[i].size_bytes == shortage->want.size_bytes)
            return true;
    const berm_record_event_t event = {
        .kind = BERM_RECORD_FAIL,
        .tag = shortage->tag,
        .time_ns = device->event_count > 0 ? device->events[device->event_count - 1].time_ns : 0,
        .size_bytes = shortage->want.size_bytes,
        .number = (uint64_t)shortage->status,
        .stream = (int64_t)(intptr_t)shortage->want.stream,
        .pool_high = shortage->want.id.high,
        .pool_low = shortage->want.id.low};
    return berm__record_event_add(device, &event);
}

static bool record_ask(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage,
                       berm_record_t *record) {
    berm_record_device_t *device = &record->devices[0];
    if (record->device_count != 1 || !failure_ensure(device, shortage) ||
        !berm__verdict_find(record, &diagnosis->verdict))
        return false;
    diagnosis->events = device->event_count;
    // What came before those events could tell a leak, which only the whole recording has.
    if (device->has_lost && diagnosis->verdict.kind == BERM_VERDICT_REAL_SHORTAGE)
        diagnosis->verdict.is_high = false;
    tags_find(diagnosis, device);
    moves_find(diagnosis, shortage);
    bool is_short =
        shortage->status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || shortage->status == BERM_ERROR_LIMIT;
    if (!is_short || shortage->obtainable.bytes >= shortage->want.size_bytes)
        return true;
    scales_find(diagnosis, shortage);
    if (shortage->want.size_bytes <= shortage->memory_bytes)
        enough_find(diagnosis, shortage, device);
    return true;
}

void berm__diagnosis_make(berm_diagnosis_t *diagnosis, const berm_shortage_t *shortage) {
    memset(diagnosis, 0, sizeof *diagnosis);
    berm_record_t *record = berm__mem_alloc(sizeof *record);
    if (record == NULL)
        return;
    if (berm__recording_take(record, shortage->want.ordinal, EVENTS_MAX) == BERM_OK) {
        diagnosis->is_known = record_ask(diagnosis, shortage, record);
        berm__record_destroy(record);
    }
    berm__mem_free(record, sizeof *record);
}
