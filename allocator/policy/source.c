// SPDX-License-Identifier: Apache-2.0
// Sources of pools: see source.h.
#include "policy/source.h"

#include "berm_introspect.h"
#include "host/mem.h"
#include "vmm/plain.h"

berm_source_t *berm__source_make(const berm_pool_source_t *calls, int ordinal,
                                 berm_source_return_t **last) {
    berm_source_t *source = berm__mem_alloc(sizeof *source);
    if (source == NULL)
        return NULL;
    *source = (berm_source_t){.calls = *calls, .ordinal = ordinal};
    *last = berm__source_use(source);
    if (*last != NULL)
        return source;
    berm__mem_free(source, sizeof *source);
    return NULL;
}

berm_source_return_t *berm__source_use(berm_source_t *source) {
    berm_source_return_t *last = berm__mem_alloc(sizeof *last);
    if (last == NULL)
        return NULL;
    last->source = source;
    atomic_fetch_add(&source->users, 1);
    return last;
}

bool berm__source_is(const berm_source_t *source, const berm_pool_source_t *calls) {
    if (source == NULL)
        return calls->alloc == NULL;
    return source->calls.alloc == calls->alloc && source->calls.free == calls->free &&
           source->calls.done == calls->done && source->calls.context == calls->context;
}

void berm__source_return_add(berm_device_t *device, berm_source_return_t *last) {
    last->next = atomic_load_explicit(&device->returns, memory_order_relaxed);
    atomic_store_explicit(&device->returns, last, memory_order_relaxed);
}

berm_source_return_t *berm__source_returns_take(berm_device_t *device) {
    return atomic_exchange_explicit(&device->returns, NULL, memory_order_relaxed);
}

void berm__source_returns_call(berm_source_return_t *list, berm_gpu_t *gpu) {
    bool is_pushed = false;
    if (gpu != NULL)
        (void)berm__gpu_enter(gpu, &is_pushed);
    for (berm_source_return_t *next; list != NULL; list = next) {
        berm_source_t *source = list->source;
        const berm_pool_source_t *calls = &source->calls;
        next = list->next;
        if (list->addr != 0)
            calls->free(calls->context, list->addr, list->size_bytes, source->ordinal,
                        list->stream);
        berm__mem_free(list, sizeof *list);
        if (atomic_fetch_sub(&source->users, 1) > 1)
            continue;
        if (calls->done != NULL)
            calls->done(calls->context);
        berm__mem_free(source, sizeof *source);
    }
    if (gpu != NULL)
        berm__gpu_leave(gpu, is_pushed);
}

bool berm__source_returns_settle_locked(berm_device_t *device) {
    berm_source_return_t *list = berm__source_returns_take(device);
    if (list == NULL)
        return false;
    berm__callout_begin(device);
    berm__source_returns_call(list, &device->gpu);
    berm__callout_end(device);
    return true;
}

void berm__source_returns_settle(berm_device_t *device) {
    if (BERM_LIKELY(atomic_load_explicit(&device->returns, memory_order_relaxed) == NULL))
        return;
    berm__mutex_lock(&device->lock);
    (void)berm__source_returns_settle_locked(device);
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm__source_or_plain_free(berm_device_t *device, berm_segment_t *segment) {
    berm__segment_tell(segment, BERM_EVENT_FREE, segment->plain_addr, segment->plain_bytes);
    if (BERM_LIKELY(segment->source_return == NULL))
        return berm__plain_free(segment);
    berm__source_return_add(device, segment->source_return);
    segment->source_return = NULL;
    return BERM_OK;
}
