// SPDX-License-Identifier: Apache-2.0
// berm_observe and berm_unobserve: see policy/observe.h. Locks: the device's.
#include "policy/observe.h"

#include "front/heap.h"

berm_status_t berm_observe(int ordinal, berm_event_fn fn, void *arg) {
    berm_device_t *device;
    if (fn == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_observe: no function");
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&device->lock);
    status = berm__observer_add(device, fn, arg);
    berm__mutex_unlock(&device->lock);
    if (status != BERM_OK)
        return berm__error_set(status, "berm_observe, device %d: %s", ordinal,
                               status == BERM_ERROR_STATE
                                   ? "the function is registered with this argument"
                                   : berm_status_text(status));
    return BERM_OK;
}

berm_status_t berm_unobserve(int ordinal, berm_event_fn fn, void *arg) {
    berm_device_t *device;
    bool is_running;
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    status = BERM_ERROR_ARGUMENT;
    if (device != NULL) {
        berm__mutex_lock(&device->lock);
        status = berm__observer_remove(device, fn, arg);
        berm__mutex_unlock(&device->lock);
    }
    if (status != BERM_OK)
        return berm__error_set(status, "berm_unobserve, device %d: there is no such registration",
                               ordinal);
    return BERM_OK;
}
