// SPDX-License-Identifier: Apache-2.0
// Requests that take the device's lock: what is around the reclaim ladder (policy/ladder.c). The
// ladder works under the lock; what has to be done without it is done here, and then the request
// starts over: telling held pins, asking the application, waiting for other threads that do either.
// At the end stand the pools that serve others before they fail, and the report.
#include "base/bits.h"
#include "front/heap.h"
#include "front/pressure.h"
#include "front/report.h"
#include "front/source.h"
#include "front/thread.h"
#include "policy/source.h"

// Where a request stands between its attempts.
typedef struct climb {
    berm_step_t step;          // the last that gave something
    bool asks;                 // the application's callbacks are still to be asked
    berm_pressure_walk_t walk; // among them
    berm_source_step_t source; // what the pool's source was asked for
} climb_t;

// The group may go, and another come, while callbacks run. NULL: no pool in use has the id.
static berm_group_t *group_find(berm_device_t *device, const berm_want_t *want) {
    berm_group_t *group = berm__group_find(device, want->id);
    return group == NULL && want->is_routed ? &device->group : group; // released just now
}

static berm_status_t attempt(berm_device_t *device, berm_group_t *group, const berm_want_t *want,
                             climb_t *climb, berm_addr_t *out) {
    device->ladder.step = climb->step;
    device->ladder.puts_off_waits = climb->asks;
    berm_status_t status = want->growing != 0
                               ? berm__heap_grow_locked(device, want)
                               : berm__heap_alloc_locked(group, want->size_bytes,
                                                         want->alignment_bytes, want->stream, out);
    device->ladder.puts_off_waits = false;
    climb->step = device->ladder.step;
    return status;
}

// Whether the request is worth another attempt; the lock is given up meanwhile.
static bool climb_on(berm_device_t *device, const berm_want_t *want, berm_status_t status,
                     climb_t *climb) {
    if (status == BERM_ERROR_STATE) {
        climb->step = climb->step > BERM_STEP_PINS ? climb->step : BERM_STEP_PINS;
        return berm__pins_announce_held(device, device->pins_wanted);
    }
    if (!berm__status_is_shortage(status))
        return false;
    if (berm__source_returns_settle_locked(device) || berm__callout_wait(device))
        return true;
    if (!climb->asks)
        return false;
    berm__callout_begin(device);
    bool has_given = berm__pressure_next(&climb->walk, want->ordinal, want->size_bytes);
    berm__callout_end(device);
    device->retries++;
    if (has_given)
        climb->step = BERM_STEP_PRESSURE;
    climb->source = BERM_SOURCE_ROOMY;
    climb->asks = has_given; // when all are asked, the waits that were put off
    return true;
}

// Within a callback nobody is asked again: what a callback needs it must find without.
static climb_t climb_begin(const berm_device_t *device, const berm_want_t *want) {
    climb_t climb = {.step = BERM_STEP_NONE};
    climb.asks = want->size_bytes <= device->gpu.memory_bytes && !berm__callout_is_inside() &&
                 berm__pressure_any(want->ordinal);
    if (climb.asks)
        climb.walk = berm__pressure_begin();
    return climb;
}

static void frees_finish(berm_pool_t *pool) {
    bool is_pushed;
    if (berm__gpu_enter(&pool->device->gpu, &is_pushed) == BERM_OK)
        (void)berm__deferred_process(pool, NULL);
    berm__gpu_leave(&pool->device->gpu, is_pushed);
}

// Before a request for the default pool fails: free memory of pools that were made to serve it
// then, on the request's own stream.
static berm_status_t others_try(berm_device_t *device, const berm_want_t *want,
                                berm_status_t status, berm_addr_t *out) {
    berm_stream_ref_t *stream = berm__device_stream_find(device, want->stream);
    if (stream == NULL || !berm__pool_id_is_default(want->id))
        return status;
    BERM_LIST_EACH (berm_group_t, group, &device->groups, link) {
        berm_pool_t *pool;
        if ((group->traits & BERM_GROUP_USE_ON_OOM) == 0 || group->use_count == 0 ||
            berm__group_is_private(group) || berm__group_pool(group, stream, &pool) != BERM_OK)
            continue;
        frees_finish(pool);
        if (berm__heap_alloc_pool(pool, want->size_bytes, want->alignment_bytes, false, out) !=
            BERM_OK)
            continue;
        device->ladder.step = BERM_STEP_OTHERS;
        return BERM_OK;
    }
    return status;
}

static berm_status_t alloc_climbing(berm_device_t *device, const berm_want_t *want,
                                    berm_addr_t *out) {
    berm_status_t status;
    climb_t climb = climb_begin(device, want);
    bool is_again;
    do {
        berm_group_t *group = group_find(device, want);
        if (BERM_UNLIKELY(group == NULL))
            return BERM_ERROR_POOL_UNKNOWN;
        status = attempt(device, group, want, &climb, out);
        bool is_supplied = false;
        if (BERM_UNLIKELY(status == BERM_ERROR_STATE && group->source != NULL &&
                          want->growing == 0)) {
            status = berm__source_supply(group, want, &climb.source);
            is_supplied = status == BERM_OK;
        }
        is_again = is_supplied ||
                   (BERM_UNLIKELY(status != BERM_OK) && climb_on(device, want, status, &climb));
    } while (is_again);
    if (BERM_UNLIKELY(berm__status_is_shortage(status)))
        status = others_try(device, want, status, out);
    if (status == BERM_OK)
        device->ladder.served[device->ladder.step]++;
    return status;
}

static void failure_note(const berm_want_t *want, berm_status_t status) {
    berm_ring_t *ring = berm__thread_ring(atomic_load(&berm__heap.epoch));
    if (ring == NULL)
        return;
    const berm_ring_where_t where = {want->ordinal, want->stream, want->id};
    berm__ring_once(ring, &where, BERM_RING_FAIL, 0, want->size_bytes, (uint64_t)status);
}

berm_status_t berm__heap_alloc_slow(const berm_want_t *want, berm_addr_t *out) {
    berm_device_t *device;
    berm_shortage_t shortage;
    berm_status_t status = berm__heap_device(want->ordinal, &device);
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    uint64_t errors = berm__drv_error_count();
    berm__mutex_lock(&device->lock);
    berm_work_t before = berm__work_read(device);
    status = alloc_climbing(device, want, out);
    berm_work_t after = berm__work_read(device);
    if (BERM_UNLIKELY(want->growing != 0 && !berm__status_has_report(status))) {
        berm__mutex_unlock(&device->lock);
        return status;
    }
    if (BERM_UNLIKELY(status == BERM_ERROR_POOL_UNKNOWN)) {
        berm__mutex_unlock(&device->lock);
        return berm__pool_unknown("berm_alloc_from", want->ordinal, want->id);
    }
    if (BERM_UNLIKELY(status != BERM_OK))
        status = berm__shortage_take(&shortage, device, want, status, errors);
    berm__mutex_unlock(&device->lock);
    berm__source_returns_settle(device);
    berm__work_log(device, want->size_bytes, before, after);
    if (BERM_UNLIKELY(status != BERM_OK)) {
        failure_note(want, status);
        berm__shortage_report(&shortage);
    }
    return status;
}
