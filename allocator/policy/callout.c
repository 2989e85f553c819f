// SPDX-License-Identifier: Apache-2.0
// Threads in callbacks: see callout.h.
#include "policy/callout.h"

#include "policy/device.h"

static _Thread_local unsigned inside; // callbacks within callbacks

void berm__callouts_init(berm_callouts_t *callouts) {
    callouts->count = 0;
    callouts->ended = 0;
    berm__cond_init(&callouts->cond);
}

void berm__callouts_destroy(berm_callouts_t *callouts) {
    berm__cond_destroy(&callouts->cond);
}

void berm__callout_begin(berm_device_t *device) {
    device->callouts.count++;
    inside++;
    berm__mutex_unlock(&device->lock);
}

void berm__callout_end(berm_device_t *device) {
    berm__mutex_lock(&device->lock);
    inside--;
    device->callouts.count--;
    device->callouts.ended++;
    berm__cond_broadcast(&device->callouts.cond);
}

bool berm__callout_is_inside(void) {
    return inside > 0;
}

bool berm__callout_wait(berm_device_t *device) {
    berm_callouts_t *callouts = &device->callouts;
    uint64_t ended = callouts->ended;
    if (callouts->count == 0 || inside > 0)
        return false;
    while (callouts->ended == ended)
        berm__cond_wait(&callouts->cond, &device->lock, UINT64_MAX);
    return true;
}
