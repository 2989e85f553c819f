// SPDX-License-Identifier: Apache-2.0
// What is counted by tag: the calls of berm_diagnose.h that read it. Locks: none.
#include "berm_diagnose.h"
#include "front/heap.h"
#include "front/tag.h"

_Static_assert(BERM_TAG_COUNT_MAX + 1 == (int)BERM_TAG_NUMBERS, "a count for each number");

const char *berm_tag_name(size_t index) {
    return index < berm__tag_count() ? berm__tag_name((uint8_t)(index + 1)) : NULL;
}

// Down before up, so that no free is seen without its request.
static berm_tag_figure_t figure(const atomic_uint_fast64_t *up, const atomic_uint_fast64_t *down) {
    berm_tag_figure_t read;
    read.total_down = atomic_load(down);
    read.total_up = atomic_load(up);
    read.current = read.total_up - read.total_down;
    return read;
}

berm_status_t berm_tag_stats_read(int ordinal, const char *name, berm_tag_stats_t *stats) {
    berm_device_t *device;
    bool is_running;
    if (stats == NULL || name == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_tag_stats_read: %s is NULL",
                               stats == NULL ? "stats" : "name");
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    berm_tag_stats_t filled = {.size = sizeof filled, .device = ordinal};
    uint8_t tag = berm__tag_find(name);
    if (device != NULL && tag != 0) {
        const berm_tag_count_t *count = &device->tags[tag];
        filled.blocks = figure(&count->blocks_up, &count->blocks_down);
        filled.requested_bytes = figure(&count->requested_up, &count->requested_down);
        filled.allocated_bytes = figure(&count->allocated_up, &count->allocated_down);
    }
    return berm__struct_give(stats, stats->size, &filled, sizeof filled);
}
