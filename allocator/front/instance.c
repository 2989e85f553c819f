// SPDX-License-Identifier: Apache-2.0
// The heap from start to stop, its options in force, and its devices: see heap.h for the states.
// The data path is in heap.c.
//
// Locks: the heap's.
#include "front/heap.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"
#include "front/background.h"
#include "front/leaving.h"
#include "front/live.h"
#include "front/prometheus.h"
#include "front/pressure.h"
#include "front/route.h"
#include "front/share.h"
#include "front/thread.h"
#include "host/log.h"
#include "policy/learn.h"
#include "policy/observe.h"
#include "policy/source.h"

// After every change to what it depends on.
static void hit_epoch_set(void) {
    berm_heap_t *heap = &berm__heap;
    bool is_plain = atomic_load(&heap->state) == BERM_HEAP_RUNNING &&
                    !atomic_load(&heap->is_forked) && !atomic_load(&heap->audits) &&
                    !atomic_load(&heap->notes_sites) && !atomic_load(&heap->quotas) &&
                    !berm__route_any();
    atomic_store(&heap->hit_epoch, is_plain ? atomic_load(&heap->epoch) : 0);
}

void berm__heap_hits_update(void) {
    berm__mutex_lock(&berm__heap.lock);
    hit_epoch_set();
    berm__mutex_unlock(&berm__heap.lock);
}

static void forked_mark(void) {
    atomic_store(&berm__heap.is_forked, true);
    hit_epoch_set();
}

static void process_prepare(void) {
    (void)pthread_atfork(NULL, NULL, forked_mark);
    berm__cache_mode_probe();
}

// What the options say of a device, into it.
static void device_options_apply(berm_device_t *device, bool has_new_limit) {
    const berm_options_t *options = &berm__heap.options;
    device->headroom_pct = options->headroom_pct;
    device->remap_is_off = options->remap == BERM_REMAP_OFF;
    device->remap_is_alias = options->remap == BERM_REMAP_ALIAS;
    device->gpu.syncs_edits = options->sync_edits;
    bool is_half_life = options->decay_half_life_ms != UINT64_MAX;
    berm__decay_set(&device->decay, is_half_life ? options->decay_half_life_ms : options->decay_ms,
                    is_half_life);
    device->learns = options->learned_placement;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (!device->learns || (!device->remap_is_alias && berm__learn_is_aliased(pool)))
            berm__learn_end(pool);
    if (!has_new_limit)
        return;
    device->limit_bytes = options->limit_bytes;
    device->limit_source = BERM_LIMIT_OPTION;
    if (options->memory_fraction > 0) {
        double share = options->memory_fraction * (double)device->gpu.memory_bytes;
        if ((uint64_t)share < device->limit_bytes)
            device->limit_source = BERM_LIMIT_FRACTION;
        device->limit_bytes = berm__min_u64(device->limit_bytes, (uint64_t)share);
    }
}

void berm__heap_options_apply(bool has_new_limit) {
    const berm_options_t *options = &berm__heap.options;
    atomic_store(&berm__heap.audits, options->audit || BERM_AUDIT_ON);
    atomic_store(&berm__ring_is_on, options->event_ring);
    atomic_store(&berm__heap.notes_sites, options->call_sites);
    hit_epoch_set();
    berm__log_level_set(options->log);
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL)
            continue;
        berm__mutex_lock(&device->lock);
        device_options_apply(device, has_new_limit);
        berm__caches_ring_update(device);
        berm__mutex_unlock(&device->lock);
    }
    atomic_store(&berm__heap.decay_ms,
                 berm__min_u64(options->decay_ms, options->decay_half_life_ms));
    berm__background_wake();
    berm__leaving_begin();
}

static berm_status_t start_locked(const char *options) {
    berm_heap_t *heap = &berm__heap;
    berm_status_t status = berm__options_load(&heap->options, options);
    if (status != BERM_OK)
        return berm__error_set(status, "%s", heap->options.error);
    berm__log_level_set(heap->options.log);
    // Records kept from an earlier start hold the backend; that matters only if another was named.
    if (!berm__mem_backend_select(heap->options.host_memory) &&
        heap->options.host_memory != BERM_MEM_AUTO)
        return berm__error_set(BERM_ERROR_OPTION_VALUE,
                               "host_memory: this process has no such backend, or uses another");
    char error[200];
    status = berm__drv_open(&heap->drv, heap->options.driver, error, sizeof error);
    if (status != BERM_OK)
        return berm__error_set(status, "%s", error);
    if (!berm__addr_dir_init(&heap->dir)) {
        berm__drv_close(&heap->drv);
        return berm__error_set(BERM_ERROR_OUT_OF_HOST_MEMORY, "no host memory to start");
    }
    atomic_store(&heap->audits, heap->options.audit || BERM_AUDIT_ON);
    atomic_store(&berm__ring_is_on, heap->options.event_ring);
    atomic_store(&heap->notes_sites, heap->options.call_sites);
    atomic_store(&heap->decay_ms,
                 berm__min_u64(heap->options.decay_ms, heap->options.decay_half_life_ms));
    atomic_store(&heap->state, BERM_HEAP_RUNNING);
    hit_epoch_set();
    berm__background_start();
    berm__live_start();
    berm__prometheus_start();
    berm__leaving_begin();
    return BERM_OK;
}

berm_status_t berm__heap_start(const char *options) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (atomic_load(&berm__heap.is_forked))
        return berm__error_set(BERM_ERROR_FORKED, "called in a child of fork()");
    (void)pthread_once(&once, process_prepare);
    berm__mutex_lock(&berm__heap.lock);
    berm_status_t status = BERM_ERROR_STATE;
    if (atomic_load(&berm__heap.state) != BERM_HEAP_RUNNING)
        status = start_locked(options);
    berm__mutex_unlock(&berm__heap.lock);
    return status;
}

berm_status_t berm__heap_ready(void) {
    if (BERM_UNLIKELY(atomic_load_explicit(&berm__heap.is_forked, memory_order_relaxed)))
        return berm__error_set(BERM_ERROR_FORKED, "called in a child of fork()");
    int state = atomic_load_explicit(&berm__heap.state, memory_order_acquire);
    if (BERM_LIKELY(state == BERM_HEAP_RUNNING))
        return BERM_OK;
    if (state == BERM_HEAP_SHUT_DOWN)
        return berm__error_set(BERM_ERROR_SHUTDOWN, "called after berm_shutdown");
    berm_status_t status = berm__heap_start(NULL);
    return status == BERM_ERROR_STATE ? BERM_OK : status; // another thread was first
}

berm_status_t berm__heap_peek(bool *is_running) {
    int state = atomic_load_explicit(&berm__heap.state, memory_order_acquire);
    *is_running = state == BERM_HEAP_RUNNING;
    bool is_forked = atomic_load_explicit(&berm__heap.is_forked, memory_order_relaxed);
    return state == BERM_HEAP_NONE && !is_forked ? BERM_OK : berm__heap_ready();
}

static berm_status_t device_open_locked(int ordinal, berm_device_t **out) {
    berm_heap_t *heap = &berm__heap;
    *out = berm__heap_device_opened(ordinal);
    if (*out != NULL)
        return BERM_OK;
    berm_device_t *device = berm__mem_alloc(sizeof *device);
    if (device == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    const berm_options_t *options = &heap->options;
    berm_status_t status =
        berm__device_open(device, &heap->drv, ordinal, &heap->dir, options->handle_bytes,
                          options->backing, options->shares_pages);
    if (status != BERM_OK) {
        berm__mem_free(device, sizeof *device);
        return status;
    }
    device_options_apply(device, true);
    berm__observe_begin(device);
    atomic_store_explicit(&heap->devices[ordinal], device, memory_order_release);
    *out = device;
    return BERM_OK;
}

berm_status_t berm__heap_device(int ordinal, berm_device_t **out) {
    *out = berm__heap_device_opened(ordinal);
    if (BERM_LIKELY(*out != NULL))
        return BERM_OK;
    if (ordinal < 0 || ordinal >= BERM_DEVICES_MAX || ordinal >= berm__heap.drv.device_count)
        return berm__error_set(BERM_ERROR_DEVICE, "no device %d: the driver has %d", ordinal,
                               berm__heap.drv.device_count);
    berm__mutex_lock(&berm__heap.lock);
    berm_status_t status = device_open_locked(ordinal, out);
    berm__mutex_unlock(&berm__heap.lock);
    if (status != BERM_OK)
        return berm__error_set(status, "device %d cannot be used: %s", ordinal,
                               berm_status_text(status));
    return BERM_OK;
}

berm_status_t berm__heap_device_look(int ordinal, berm_device_t **device, bool *is_running) {
    *device = NULL;
    berm_status_t status = berm__heap_peek(is_running);
    if (status != BERM_OK)
        return status;
    *device = berm__heap_device_opened(ordinal);
    bool is_unknown = ordinal < 0 || ordinal >= BERM_DEVICES_MAX ||
                      (*is_running && ordinal >= berm__heap.drv.device_count);
    if (is_unknown)
        return berm__error_set(BERM_ERROR_DEVICE, "no device %d", ordinal);
    return BERM_OK;
}

berm_status_t berm__heap_device_enter(int ordinal, berm_device_t **device, bool *is_pushed) {
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&(*device)->lock);
    status = berm__gpu_enter(&(*device)->gpu, is_pushed);
    if (status == BERM_OK)
        return BERM_OK;
    berm__gpu_leave(&(*device)->gpu, *is_pushed);
    berm__mutex_unlock(&(*device)->lock);
    return berm__error_set(status, "device %d: %s", ordinal, berm_status_text(status));
}

berm_status_t berm__heap_device_leave(berm_device_t *device, bool is_pushed, berm_status_t status,
                                      const char *call) {
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    berm__source_returns_settle(device);
    if (status != BERM_OK)
        return berm__error_set(status, "%s, device %d: %s", call, device->gpu.ordinal,
                               berm_status_text(status));
    return BERM_OK;
}

berm_segment_t *berm__heap_segment_enter(berm_addr_t addr, berm_device_t **device) {
    bool is_running = atomic_load(&berm__heap.state) == BERM_HEAP_RUNNING;
    berm_segment_t *segment = is_running ? berm__addr_dir_find(&berm__heap.dir, addr) : NULL;
    if (segment == NULL)
        return NULL;
    // A plain segment may go meanwhile, and its record be another's; its device's it stays.
    *device = BERM_CONTAINER_OF(segment->gpu, berm_device_t, gpu);
    berm__mutex_lock(&(*device)->lock);
    segment = berm__addr_dir_find(&berm__heap.dir, addr);
    if (segment != NULL && segment->gpu == &(*device)->gpu)
        return segment;
    berm__mutex_unlock(&(*device)->lock);
    return NULL;
}

berm_status_t berm__heap_stop(size_t *live_blocks) {
    berm_heap_t *heap = &berm__heap;
    berm__mutex_lock(&heap->lock);
    if (atomic_load(&heap->state) != BERM_HEAP_RUNNING) {
        berm__mutex_unlock(&heap->lock);
        return BERM_OK;
    }
    berm__background_stop();
    berm__live_stop();
    berm__prometheus_stop();
    berm__ipc_close_all();
    atomic_store(&heap->state, BERM_HEAP_SHUT_DOWN);
    berm__route_clear();
    berm__pressure_clear();
    atomic_store(&heap->quotas, 0); // they are the devices', which go
    hit_epoch_set();
    uint64_t live_total = 0;
    berm_source_return_t *returns = NULL;
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL)
            continue;
        uint64_t live = 0;
        berm__device_close(device, &live);
        live_total += live;
        berm_source_return_t **end = &returns;
        while (*end != NULL)
            end = &(*end)->next;
        *end = berm__source_returns_take(device);
        atomic_store(&heap->devices[ordinal], NULL);
        berm__ring_end(&device->ring);
        berm__mem_free(device, sizeof *device);
    }
    berm__ring_clear();
    berm__ipc_contexts_check();
    berm__reports_end();
    berm__addr_dir_destroy(&heap->dir);
    atomic_fetch_add(&heap->epoch, 1);
    berm__thread_end();
    berm__mutex_unlock(&heap->lock);
    berm__source_returns_call(returns, NULL);
    if (live_blocks != NULL)
        *live_blocks = (size_t)live_total;
    return BERM_OK;
}
