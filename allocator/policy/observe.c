// SPDX-License-Identifier: Apache-2.0
// Observers of a device's addresses: see observe.h.
#include "policy/observe.h"

#include "host/mem.h"
#include "policy/pool.h"

typedef struct berm_observer {
    berm_list_t link;
    berm_event_fn fn;
    void *arg;
} berm_observer_t;

static void tell(const berm_segment_t *segment, int kind, berm_addr_t addr, uint64_t size_bytes) {
    const berm_pool_t *pool = segment->pool;
    berm_device_t *device = pool->device;
    bool is_in_use = pool->group != NULL && pool->group->use_count > 0;
    const berm_event_t event = {
        .size = sizeof event,
        .device = device->gpu.ordinal,
        .kind = (berm_event_kind_t)kind,
        .addr = addr,
        .size_bytes = size_bytes,
        .stream = pool->stream != NULL ? pool->stream->handle : BERM_STREAM_NONE,
        .pool = is_in_use ? pool->group->id : (berm_pool_id_t){0, 0},
    };
    if (atomic_load_explicit(&berm__ring_is_on, memory_order_relaxed)) {
        const berm_ring_where_t where = {event.device, event.stream, event.pool};
        berm__ring_once(&device->ring, &where, (berm_ring_kind_t)(BERM_RING_MAP + kind), addr,
                        size_bytes, 0);
    }
    BERM_LIST_EACH (const berm_observer_t, observer, &device->observers, link)
        observer->fn(observer->arg, &event);
}

void berm__observe_begin(berm_device_t *device) {
    device->gpu.tell = tell;
}

static berm_observer_t *observer_find(berm_device_t *device, berm_event_fn fn, const void *arg) {
    BERM_LIST_EACH (berm_observer_t, observer, &device->observers, link)
        if (observer->fn == fn && observer->arg == arg)
            return observer;
    return NULL;
}

berm_status_t berm__observer_add(berm_device_t *device, berm_event_fn fn, void *arg) {
    if (observer_find(device, fn, arg) != NULL)
        return BERM_ERROR_STATE;
    berm_observer_t *observer = berm__mem_alloc(sizeof *observer);
    if (observer == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    observer->fn = fn;
    observer->arg = arg;
    berm__list_push_back(&device->observers, &observer->link);
    return BERM_OK;
}

static void observer_drop(berm_observer_t *observer) {
    berm__list_remove(&observer->link);
    berm__mem_free(observer, sizeof *observer);
}

berm_status_t berm__observer_remove(berm_device_t *device, berm_event_fn fn, void *arg) {
    berm_observer_t *observer = observer_find(device, fn, arg);
    if (observer == NULL)
        return BERM_ERROR_ARGUMENT;
    observer_drop(observer);
    return BERM_OK;
}

void berm__observers_destroy(berm_device_t *device) {
    while (!berm__list_is_empty(&device->observers))
        observer_drop(BERM_CONTAINER_OF(device->observers.next, berm_observer_t, link));
}
