// SPDX-License-Identifier: Apache-2.0
// See heap_inside.h. Takes no locks: one thread at a time.
#include "tests/support/heap_inside.h"

#include <stdio.h>
#include <stdlib.h>

#include "host/mem.h"

berm_device_t *heap_device(void) {
    berm_device_t *device = berm__heap_device_opened(0);
    HEAP_INSIST(device != NULL);
    return device;
}

berm_pool_t *heap_pool(void *stream) {
    berm_stream_ref_t *ref = berm__device_stream_find(heap_device(), stream);
    HEAP_INSIST(ref != NULL && ref->pool != NULL);
    return ref->pool;
}

berm_segment_t *heap_segment(const berm_pool_t *pool) {
    HEAP_INSIST(!berm__list_is_empty(&pool->segments));
    return BERM_CONTAINER_OF(pool->segments.next, berm_segment_t, link);
}

berm_range_t *heap_range(const berm_pool_t *pool, berm_addr_t addr) {
    berm_segment_t *segment = heap_segment(pool);
    HEAP_INSIST(addr >= segment->base && addr - segment->base < segment->span_bytes);
    berm_range_t *range = berm__ranges_at(&segment->ranges, addr - segment->base);
    HEAP_INSIST(range != NULL && range->start_bytes == addr - segment->base);
    return range;
}

static uint64_t segment_pinned_bytes(const berm_segment_t *segment) {
    unsigned lg = segment->gpu->lg_granule;
    uint64_t bytes = 0;
    const berm_phys_handle_t *last = NULL; // a handle stands in a row: counted once
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        if (range->state != BERM_RANGE_LIVE && range->state != BERM_RANGE_POISONED)
            continue;
        uint64_t end = (range->start_bytes + range->size_bytes - 1) >> lg;
        for (uint64_t at = range->start_bytes >> lg; at <= end; at++) {
            const berm_phys_handle_t *handle = segment->handle_of[at];
            if (handle != NULL && handle != last)
                bytes += (uint64_t)handle->granules << lg;
            last = handle != NULL ? handle : last;
        }
    }
    return bytes;
}

uint64_t heap_pinned_bytes(void) {
    berm_device_t *device = heap_device();
    uint64_t bytes = 0;
    for (berm_list_t *at = device->pools.next; at != &device->pools; at = at->next) {
        berm_pool_t *pool = BERM_CONTAINER_OF(at, berm_pool_t, link);
        // All that a private or pinned pool has, until it is released.
        bool stays = pool->group->use_count > 0 && !berm__group_may_move(pool->group);
        for (berm_list_t *link = pool->segments.next; link != &pool->segments; link = link->next) {
            berm_segment_t *segment = BERM_CONTAINER_OF(link, berm_segment_t, link);
            bytes += stays ? segment->mapped_bytes : segment_pinned_bytes(segment);
        }
    }
    return bytes;
}

void heap_inside_end(const char *file, int line) {
    heap_fixture_end(file, line);
    uint64_t held_bytes = berm__mem_held_bytes() + berm__mem_reserved_bytes();
    if (held_bytes == 0)
        return;
    (void)fprintf(stderr, "%s:%d: berm holds %llu bytes of host memory after its end\n", file, line,
                  (unsigned long long)held_bytes);
    abort();
}

void gpu_fixture_begin(gpu_fixture_t *fixture, const heap_fixture_options_t *options) {
    heap_fixture_options_t stopped = options != NULL ? *options : (heap_fixture_options_t){0};
    stopped.stays_stopped = 1;
    heap_fixture_begin(&stopped);
    char error[200] = "";
    const char *path = getenv("BERM_LIBCUDA_SIM");
    berm_status_t status =
        berm__drv_open(&fixture->drv, path != NULL ? path : "", error, sizeof error);
    if (status != BERM_OK)
        (void)fprintf(stderr, "%s\n", error);
    HEAP_INSIST(status == BERM_OK);
    HEAP_INSIST(berm__gpu_open(&fixture->gpu, &fixture->drv, 0, BERM_BACKING_AUTO, false) ==
                BERM_OK);
    HEAP_INSIST(berm__gpu_enter(&fixture->gpu, &fixture->is_pushed) == BERM_OK);
}

void gpu_fixture_end(gpu_fixture_t *fixture) {
    berm__gpu_leave(&fixture->gpu, fixture->is_pushed);
    berm__gpu_close(&fixture->gpu);
    berm__drv_close(&fixture->drv);
    BERM_TEST_END_INSIDE();
}
