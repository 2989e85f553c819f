// SPDX-License-Identifier: Apache-2.0
// Ticks of the decay that no request pays for: berm_decay_tick, the clock they go by, and the
// background thread. policy/decay.c says what a tick does.
//
// Locks: a device's for each of its ticks.
#include "front/background.h"

#include "base/bits.h"
#include "front/heap.h"
#include "host/clock.h"
#include "host/log.h"
#include "host/ticker.h"
#include "policy/source.h"

static const uint64_t sleep_min_ns = 10000000, sleep_max_ns = 1000000000;

// Under the heap's lock, but for what ticker.h says of a running one.
static berm_ticker_t ticker;

static berm_status_t device_tick(berm_device_t *device) {
    bool is_pushed;
    berm__mutex_lock(&device->lock);
    berm_status_t status = berm__gpu_enter(&device->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__decay_tick(device, false);
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    berm__source_returns_settle(device);
    return status;
}

berm_status_t berm_decay_tick(int ordinal) {
    bool is_running;
    berm_device_t *device;
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK || device == NULL)
        return status;
    status = device_tick(device);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_decay_tick, device %d: %s", ordinal,
                               berm_status_text(status));
    return BERM_OK;
}

berm_status_t berm_clock_set(uint64_t (*now_ns)(void *context), void *context) {
    if (atomic_load(&berm__heap.is_forked))
        return berm__error_set(BERM_ERROR_FORKED, "called in a child of fork()");
    berm__clock_set(now_ns, context);
    return BERM_OK;
}

// One round over all devices. A device that cannot be asked now is asked again in the next.
static uint64_t background_tick(void *context) {
    (void)context;
    uint64_t sleep_ns = UINT64_MAX;
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device != NULL)
            (void)device_tick(device);
    }
    uint64_t time_ms = atomic_load(&berm__heap.decay_ms);
    if (time_ms != UINT64_MAX)
        sleep_ns = berm__min_u64(berm__max_u64(time_ms * 1000000 / BERM_DECAY_STEPS, sleep_min_ns),
                                 sleep_max_ns);
    return sleep_ns;
}

void berm__background_start(void) {
    if (!berm__heap.options.background_thread)
        return;
    if (!berm__ticker_start(&ticker, "berm", background_tick, NULL))
        BERM_LOG(BERM_LOG_WARN, "background_thread: the system has no thread to give; idle memory "
                                "goes back in berm_decay_tick and with misses only");
}

void berm__background_wake(void) {
    berm__ticker_wake(&ticker);
}

void berm__background_stop(void) {
    berm__ticker_stop(&ticker);
}
