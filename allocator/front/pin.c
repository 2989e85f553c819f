// SPDX-License-Identifier: Apache-2.0
// The calls for pins (berm.h): from an address to its block; policy/pin.c does the rest.
#include "front/heap.h"

static berm_status_t pin_error(berm_status_t status, const char *call, berm_addr_t addr) {
    if (status == BERM_OK)
        return BERM_OK;
    return berm__error_set(status, "%s, address 0x%llx: %s", call, (unsigned long long)addr,
                           berm_status_text(status));
}

// The pool of an address, locked, and its device, locked before; NULL: foreign, nothing is locked.
static berm_segment_t *address_enter(berm_addr_t addr, berm_device_t **device) {
    berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, addr);
    if (segment == NULL)
        return NULL;
    *device = BERM_CONTAINER_OF(segment->gpu, berm_device_t, gpu);
    berm__mutex_lock(&(*device)->lock);
    segment = berm__addr_dir_find(&berm__heap.dir, addr); // it may have gone meanwhile
    if (segment != NULL && segment->gpu == &(*device)->gpu) {
        berm__mutex_lock(&((berm_pool_t *)segment->pool)->lock);
        return segment;
    }
    berm__mutex_unlock(&(*device)->lock);
    return NULL;
}

static void address_leave(berm_device_t *device, berm_segment_t *segment) {
    berm__mutex_unlock(&((berm_pool_t *)segment->pool)->lock);
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm_pin(berm_addr_t addr, berm_pin_fn callback, void *arg) {
    berm_device_t *device;
    bool is_running;
    if (callback == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pin: callback is NULL");
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_segment_t *segment = is_running ? address_enter(addr, &device) : NULL;
    if (segment == NULL)
        return pin_error(BERM_ERROR_ADDRESS_UNKNOWN, "berm_pin", addr);
    berm_block_t block;
    status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK)
        status = berm__pin_add(&block, callback, arg);
    address_leave(device, segment);
    return pin_error(status, "berm_pin", addr);
}

berm_status_t berm_unpin(berm_addr_t addr, berm_pin_fn callback, void *arg) {
    berm_device_t *device;
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    berm_segment_t *segment = is_running ? address_enter(addr, &device) : NULL;
    if (segment == NULL)
        return pin_error(BERM_ERROR_ADDRESS_UNKNOWN, "berm_unpin", addr);
    status = berm__pin_remove(segment->pool, addr, callback, arg);
    address_leave(device, segment);
    return pin_error(status, "berm_unpin", addr);
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
