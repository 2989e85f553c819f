// SPDX-License-Identifier: Apache-2.0
// Merging a thread's counts into the device's figures: see counts.h. A device's figure may be below
// zero while the counts of a thread that allocates are not merged and those of one that frees are;
// so it is compared as a signed number.
#include "policy/counts.h"

void berm__counts_number_secure(berm_counts_t *counts, berm_device_t *device) {
    if (counts->number_next != counts->number_end)
        return;
    uint64_t before = atomic_fetch_add(&device->request_count, BERM_COUNTS_NUMBERS);
    counts->number_next = before + 1;
    counts->number_end = counts->number_next + BERM_COUNTS_NUMBERS;
}

static void figure_merge(berm_figure_t *figure, const berm_count_t *count) {
    int64_t peak = (int64_t)figure->current + count->max;
    if (peak > (int64_t)figure->peak)
        figure->peak = (uint64_t)peak;
    figure->current += (uint64_t)count->live;
    figure->total_up += count->up;
    figure->total_down += count->up - (uint64_t)count->live;
}

void berm__counts_merge(berm_counts_t *counts, berm_device_t *device) {
    berm__mutex_lock(&device->figures_lock);
    figure_merge(&device->requested, &counts->requested);
    figure_merge(&device->allocated, &counts->allocated);
    figure_merge(&device->active, &counts->allocated);
    figure_merge(&device->blocks, &counts->blocks);
    berm__mutex_unlock(&device->figures_lock);
    counts->requested = counts->allocated = counts->blocks = (berm_count_t){0};
}

void berm__counts_free_now(berm_device_t *device, uint64_t requested, uint64_t allocated) {
    berm_counts_t counts = {0};
    berm__counts_free(&counts, requested, allocated);
    berm__counts_merge(&counts, device);
}

void berm__counts_await(berm_device_t *device, uint64_t bytes) {
    berm__mutex_lock(&device->figures_lock);
    device->active.current += bytes;
    device->active.total_down -= bytes;
    berm__mutex_unlock(&device->figures_lock);
}

void berm__counts_await_end(berm_device_t *device, uint64_t bytes) {
    berm__mutex_lock(&device->figures_lock);
    device->active.current -= bytes;
    device->active.total_down += bytes;
    berm__mutex_unlock(&device->figures_lock);
}

void berm__counts_requested_read(berm_device_t *device, uint64_t *current, uint64_t *peak) {
    berm__mutex_lock(&device->figures_lock);
    *current = device->requested.current;
    *peak = device->requested.peak;
    berm__mutex_unlock(&device->figures_lock);
}
