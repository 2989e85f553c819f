// SPDX-License-Identifier: Apache-2.0
// Callbacks for when memory is short: see pressure.h.
#include "front/pressure.h"

#include "base/bits.h"
#include "base/list.h"
#include "front/heap.h"
#include "host/mem.h"

typedef struct pressure {
    berm_list_t link;
    uint64_t number;
    int device; // BERM_DEVICE_ANY: each
    berm_pressure_fn callback;
    void *arg;
    uint32_t running; // calls of it under way
    bool is_gone;     // off the list: who ends its last call frees it
} pressure_t;

// A callback that this thread is in.
typedef struct frame {
    const pressure_t *pressure;
    struct frame *outer;
} frame_t;

static _Thread_local frame_t *frames;

static struct {
    berm_mutex_t lock;
    berm_cond_t ended; // a call has
    berm_list_t list;
    uint64_t number; // of the last registration
    atomic_uint count;
} pressures = {
    .lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_CALLBACK, "callbacks"),
    .ended = {PTHREAD_COND_INITIALIZER},
    .list = {&pressures.list, &pressures.list},
};

bool berm__pressure_any(int device) {
    if (BERM_LIKELY(atomic_load(&pressures.count) == 0))
        return false;
    bool is_any = false;
    berm__mutex_lock(&pressures.lock);
    BERM_LIST_EACH (const pressure_t, pressure, &pressures.list, link)
        is_any |= pressure->device == BERM_DEVICE_ANY || pressure->device == device;
    berm__mutex_unlock(&pressures.lock);
    return is_any;
}

berm_pressure_walk_t berm__pressure_begin(void) {
    berm__mutex_lock(&pressures.lock);
    berm_pressure_walk_t walk = {.last = 0, .end = pressures.number};
    berm__mutex_unlock(&pressures.lock);
    return walk;
}

static void pressure_free(pressure_t *pressure) {
    berm__mem_free(pressure, sizeof *pressure);
}

// The next one of the walk, marked as running; NULL at the end.
static pressure_t *pressure_take(berm_pressure_walk_t *walk, int device) {
    pressure_t *taken = NULL;
    berm__mutex_lock(&pressures.lock);
    BERM_LIST_EACH (pressure_t, pressure, &pressures.list, link) {
        if (pressure->number <= walk->last || pressure->number > walk->end ||
            (pressure->device != BERM_DEVICE_ANY && pressure->device != device))
            continue;
        taken = pressure;
        walk->last = pressure->number;
        pressure->running++;
        break;
    }
    berm__mutex_unlock(&pressures.lock);
    return taken;
}

static void pressure_give(pressure_t *pressure) {
    berm__mutex_lock(&pressures.lock);
    bool is_last = --pressure->running == 0 && pressure->is_gone;
    berm__cond_broadcast(&pressures.ended);
    berm__mutex_unlock(&pressures.lock);
    if (is_last)
        pressure_free(pressure);
}

bool berm__pressure_next(berm_pressure_walk_t *walk, int device, uint64_t needed_bytes) {
    bool has_given = false;
    pressure_t *pressure;
    while (!has_given && (pressure = pressure_take(walk, device)) != NULL) {
        frame_t frame = {pressure, frames};
        frames = &frame;
        has_given = pressure->callback(pressure->arg, device, needed_bytes);
        frames = frame.outer;
        pressure_give(pressure);
    }
    return has_given;
}

void berm__pressure_clear(void) {
    berm__mutex_lock(&pressures.lock);
    while (!berm__list_is_empty(&pressures.list)) {
        pressure_t *pressure = BERM_CONTAINER_OF(pressures.list.next, pressure_t, link);
        berm__list_remove(&pressure->link);
        atomic_fetch_sub(&pressures.count, 1);
        pressure_free(pressure);
    }
    berm__mutex_unlock(&pressures.lock);
}

static pressure_t *pressure_find(int device, berm_pressure_fn callback, const void *arg) {
    BERM_LIST_EACH (pressure_t, pressure, &pressures.list, link)
        if (pressure->device == device && pressure->callback == callback && pressure->arg == arg)
            return pressure;
    return NULL;
}

static berm_status_t device_check(const char *call, int device) {
    if (device == BERM_DEVICE_ANY || (device >= 0 && device < berm__heap.drv.device_count))
        return BERM_OK;
    return berm__error_set(BERM_ERROR_DEVICE, "%s: no device %d: the driver has %d", call, device,
                           berm__heap.drv.device_count);
}

berm_status_t berm_pressure_register(int device, berm_pressure_fn callback, void *arg) {
    if (callback == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pressure_register: callback is NULL");
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = device_check("berm_pressure_register", device);
    if (status != BERM_OK)
        return status;
    pressure_t *made = berm__mem_alloc(sizeof *made);
    if (made == NULL)
        return berm__error_set(BERM_ERROR_OUT_OF_HOST_MEMORY,
                               "berm_pressure_register: no host memory");
    berm__mutex_lock(&pressures.lock);
    bool is_known = pressure_find(device, callback, arg) != NULL;
    if (!is_known) {
        *made = (pressure_t){
            .number = ++pressures.number, .device = device, .callback = callback, .arg = arg};
        berm__list_push_back(&pressures.list, &made->link);
        atomic_fetch_add(&pressures.count, 1);
    }
    berm__mutex_unlock(&pressures.lock);
    if (!is_known)
        return BERM_OK;
    pressure_free(made);
    return berm__error_set(BERM_ERROR_STATE, "berm_pressure_register: this callback and arg are "
                                             "registered for the device already");
}

// Calls of it that this thread is in.
static uint32_t running_here(const pressure_t *pressure) {
    uint32_t count = 0;
    for (const frame_t *frame = frames; frame != NULL; frame = frame->outer)
        count += frame->pressure == pressure;
    return count;
}

berm_status_t berm_pressure_unregister(int device, berm_pressure_fn callback, void *arg) {
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&pressures.lock);
    pressure_t *pressure = pressure_find(device, callback, arg);
    bool is_found = pressure != NULL, is_free = false;
    if (is_found) {
        uint32_t here = running_here(pressure);
        berm__list_remove(&pressure->link);
        atomic_fetch_sub(&pressures.count, 1);
        pressure->running++; // not to be freed by another's end
        pressure->is_gone = true;
        while (pressure->running > here + 1)
            berm__cond_wait(&pressures.ended, &pressures.lock, UINT64_MAX);
        is_free = --pressure->running == 0;
    }
    berm__mutex_unlock(&pressures.lock);
    if (is_free)
        pressure_free(pressure);
    if (is_found)
        return BERM_OK;
    return berm__error_set(BERM_ERROR_ARGUMENT,
                           "berm_pressure_unregister: this callback and arg are not registered "
                           "for device %d",
                           device);
}
