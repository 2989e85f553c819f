// SPDX-License-Identifier: Apache-2.0
// berm_mark and berm_diff: what lives now and did not at a mark, by the number of its request. A
// mark ends the batches of numbers that threads hold, so that what is asked for later has a higher
// number than all before.
//
// Locks: each device's, its caches claimed, while the mark is set; a recording is taken for a diff.
#include <stdlib.h>
#include <string.h>

#include "berm_diagnose.h"
#include "front/heap.h"
#include "front/recording.h"
#include "front/tag.h"
#include "front/thread.h"
#include "host/mem.h"
#include "policy/cache.h"

enum {
    MARKS_MAX = 64
};

static struct {
    berm_mutex_t lock;
    uint64_t count;                                // set so far; the n-th is n
    uint64_t numbers[MARKS_MAX][BERM_DEVICES_MAX]; // of each device, by n modulo MARKS_MAX
    uint64_t epoch[MARKS_MAX];                     // of the heap that it is of
} marks = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_CALLBACK, "marks")};

// The number that all later requests of the device are above.
static uint64_t device_mark(berm_device_t *device) {
    berm__mutex_lock(&device->lock);
    berm__caches_claim(device);
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        cache->counts->number_next = cache->counts->number_end;
    uint64_t number = atomic_load(&device->request_count);
    berm__caches_release(device);
    berm__mutex_unlock(&device->lock);
    return number;
}

static void mark_note(int ordinal, uint64_t mark) {
    berm_ring_t *ring = berm__thread_ring(atomic_load(&berm__heap.epoch));
    const berm_ring_where_t where = {ordinal, BERM_STREAM_NONE, {0, 0}};
    if (ring != NULL)
        berm__ring_once(ring, &where, BERM_RING_MARK, 0, 0, mark);
}

berm_status_t berm_mark(uint64_t *mark) {
    bool is_running;
    uint64_t numbers[BERM_DEVICES_MAX] = {0};
    if (mark == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_mark: mark is NULL");
    *mark = 0;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    for (int i = 0; i < BERM_DEVICES_MAX; i++) {
        berm_device_t *device = berm__heap_device_opened(i);
        if (device != NULL)
            numbers[i] = device_mark(device);
    }
    berm__mutex_lock(&marks.lock);
    *mark = ++marks.count;
    memcpy(marks.numbers[*mark % MARKS_MAX], numbers, sizeof numbers);
    marks.epoch[*mark % MARKS_MAX] = atomic_load(&berm__heap.epoch);
    berm__mutex_unlock(&marks.lock);
    for (int i = 0; i < BERM_DEVICES_MAX; i++)
        if (berm__heap_device_opened(i) != NULL)
            mark_note(i, *mark);
    return BERM_OK;
}

uint64_t berm__mark_last(void) {
    berm__mutex_lock(&marks.lock);
    uint64_t last = marks.count;
    if (last > 0 && marks.epoch[last % MARKS_MAX] != atomic_load(&berm__heap.epoch))
        last = 0;
    berm__mutex_unlock(&marks.lock);
    return last;
}

// The numbers of a mark; those of mark 0 are all 0. False: it is none, or too old.
static bool mark_read(uint64_t mark, uint64_t numbers[BERM_DEVICES_MAX]) {
    memset(numbers, 0, BERM_DEVICES_MAX * sizeof *numbers);
    if (mark == 0)
        return true;
    berm__mutex_lock(&marks.lock);
    bool is_kept = mark <= marks.count && marks.count - mark < MARKS_MAX &&
                   marks.epoch[mark % MARKS_MAX] == atomic_load(&berm__heap.epoch);
    if (is_kept)
        memcpy(numbers, marks.numbers[mark % MARKS_MAX], BERM_DEVICES_MAX * sizeof *numbers);
    berm__mutex_unlock(&marks.lock);
    return is_kept;
}

// --- the difference ------------------------------------------------------------------------------

static bool is_newer(const berm_record_block_t *block, uint64_t number) {
    if (block->state != BERM_RECORD_LIVE)
        return false;
    if (block->is_small) // modulo 2^32
        return number == 0 || (int32_t)((uint32_t)block->number - (uint32_t)number) > 0;
    return block->number > number;
}

static int compare_groups(const void *one, const void *other) {
    const berm_record_block_t *a = one, *b = other;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->requested_bytes != b->requested_bytes)
        return a->requested_bytes < b->requested_bytes ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_bytes(const void *one, const void *other) {
    const berm_diff_t *a = one, *b = other;
    uint64_t a_bytes = a->blocks * a->each_bytes, b_bytes = b->blocks * b->each_bytes;
    return a_bytes > b_bytes ? -1 : a_bytes < b_bytes;
}

// Puts the blocks that are newer first, sorted by tag and size; how many there are.
static uint64_t newer_sort(berm_record_device_t *device, uint64_t number) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (is_newer(&device->blocks[i], number))
            device->blocks[count++] = device->blocks[i];
    if (count > 0)
        qsort(device->blocks, count, sizeof *device->blocks, compare_groups);
    return count;
}

// The groups, in the room of as many.
static uint64_t groups_make(const berm_record_device_t *device, uint64_t count,
                            berm_diff_t *groups) {
    uint64_t group_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        bool is_first = i == 0 || block->tag != block[-1].tag ||
                        block->requested_bytes != block[-1].requested_bytes;
        if (is_first)
            groups[group_count++] = (berm_diff_t){.size = sizeof *groups,
                                                  .device = device->ordinal,
                                                  .tag = berm__tag_name(block->tag),
                                                  .each_bytes = block->requested_bytes,
                                                  .first_index = block->number};
        groups[group_count - 1].blocks++;
        groups[group_count - 1].last_index = block->number;
    }
    if (group_count > 0)
        qsort(groups, group_count, sizeof *groups, compare_bytes);
    return group_count;
}

static berm_status_t device_diff(berm_record_device_t *device, uint64_t number, berm_diff_fn fn,
                                 void *context, bool *goes_on) {
    uint64_t count = newer_sort(device, number);
    berm_diff_t *groups = berm__mem_alloc((count + 1) * sizeof *groups);
    if (groups == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t group_count = groups_make(device, count, groups);
    for (uint64_t i = 0; i < group_count && *goes_on; i++)
        *goes_on = fn(context, &groups[i]);
    berm__mem_free(groups, (count + 1) * sizeof *groups);
    return BERM_OK;
}

berm_status_t berm_diff(int ordinal, uint64_t mark, berm_diff_fn fn, void *context) {
    bool is_running, goes_on = true;
    uint64_t numbers[BERM_DEVICES_MAX];
    berm_device_t *device = NULL;
    berm_status_t status = ordinal == BERM_DEVICE_ANY
                               ? berm__heap_peek(&is_running)
                               : berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    if (fn == NULL || !mark_read(mark, numbers))
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_diff: %s",
                               fn == NULL ? "no callback"
                                          : "there is no such mark, or it is not kept any more");
    berm_record_t *record = is_running ? berm__mem_alloc(sizeof *record) : NULL;
    if (is_running)
        status = record != NULL ? berm__recording_take(record, ordinal, 0)
                                : BERM_ERROR_OUT_OF_HOST_MEMORY;
    for (unsigned i = 0; record != NULL && status == BERM_OK && i < record->device_count; i++)
        status = device_diff(&record->devices[i], numbers[record->devices[i].ordinal], fn, context,
                             &goes_on);
    if (record != NULL)
        berm__record_destroy(record);
    berm__mem_free(record, sizeof *record);
    return status == BERM_OK ? BERM_OK
                             : berm__error_set(status, "berm_diff: %s", berm_status_text(status));
}
