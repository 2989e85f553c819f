// SPDX-License-Identifier: Apache-2.0
// The calls for pins (berm.h): from an address to its block; policy/pin.c does the rest.
#include "front/heap.h"

static berm_status_t pin_error(berm_status_t status, const char *call, berm_addr_t addr) {
    if (status == BERM_OK)
        return BERM_OK;
    return berm__error_set(status, "%s, address 0x%llx: %s", call, (unsigned long long)addr,
                           berm_status_text(status));
}

berm_status_t berm_pin(berm_addr_t addr, berm_pin_fn callback, void *arg) {
    berm_device_t *device;
    bool is_running;
    if (callback == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pin: callback is NULL");
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL)
        return pin_error(BERM_ERROR_ADDRESS_UNKNOWN, "berm_pin", addr);
    berm_block_t block;
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK)
        status = berm__pin_add(&block, callback, arg);
    berm__mutex_unlock(&pool->lock);
    berm__mutex_unlock(&device->lock);
    if (status == BERM_ERROR_STATE)
        return berm__error_set(status,
                               "berm_pin, address 0x%llx: it has a pin with this callback and arg "
                               "already",
                               (unsigned long long)addr);
    return pin_error(status, "berm_pin", addr);
}

static berm_status_t pin_unknown(berm_addr_t addr) {
    return berm__error_set(BERM_ERROR_ADDRESS_UNKNOWN,
                           "berm_unpin, address 0x%llx: there is no pin with this callback and "
                           "arg: it has ended, or was never made",
                           (unsigned long long)addr);
}

berm_status_t berm_unpin(berm_addr_t addr, berm_pin_fn callback, void *arg) {
    berm_device_t *device;
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL)
        return pin_unknown(addr);
    berm_pool_t *pool = segment->pool;
    status = berm__pin_remove(pool, addr, callback, arg);
    berm__mutex_unlock(&device->lock);
    return status == BERM_OK ? status : pin_unknown(addr);
}

void berm__heap_pins_announce(void) {
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL)
            continue;
        berm__mutex_lock(&device->lock);
        (void)berm__pins_announce_all(device);
        berm__mutex_unlock(&device->lock);
    }
}
