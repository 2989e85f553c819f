// SPDX-License-Identifier: Apache-2.0
// Quotas by tag: see quota.h and berm_diagnose.h.
#include "front/quota.h"

#include <inttypes.h>

#include "berm_diagnose.h"
#include "front/tag.h"

// Down before up: what was freed meanwhile counts as live, never the other way.
static uint64_t live_bytes(const berm_tag_count_t *count) {
    uint64_t down = atomic_load(&count->requested_down);
    return atomic_load(&count->requested_up) - down;
}

berm_status_t berm__quota_book(int ordinal, uint64_t size_bytes, berm_booking_t *booking) {
    uint8_t tag = berm__tag_top();
    berm_device_t *device = berm__heap_device_opened(ordinal);
    *booking = (berm_booking_t){0};
    if (tag == 0 || device == NULL)
        return BERM_OK;
    berm_tag_count_t *count = &device->tags[tag];
    uint64_t quota = atomic_load(&count->quota);
    if (quota == 0)
        return BERM_OK;
    quota--; // it is kept above by one, so that 0 is none
    // Booked first: a request that is served meanwhile is seen here or there.
    uint64_t booked = atomic_fetch_add(&count->booked, size_bytes);
    uint64_t live = live_bytes(count);
    if (size_bytes <= quota && booked <= quota - size_bytes &&
        live <= quota - size_bytes - booked) {
        *booking = (berm_booking_t){count, size_bytes};
        return BERM_OK;
    }
    atomic_fetch_sub(&count->booked, size_bytes);
    atomic_fetch_add(&count->refused, 1);
    return berm__error_set(BERM_ERROR_QUOTA,
                           "%" PRIu64 " bytes wanted on device %d under the tag '%s': its quota is "
                           "%" PRIu64 " bytes, of which %" PRIu64 " are live",
                           size_bytes, ordinal, berm__tag_name(tag), quota, live);
}

uint64_t berm__quota_short(int ordinal, uint64_t size_bytes) {
    uint8_t tag = berm__tag_top();
    berm_device_t *device = berm__heap_device_opened(ordinal);
    if (tag == 0 || device == NULL)
        return 0;
    const berm_tag_count_t *count = &device->tags[tag];
    uint64_t quota = atomic_load(&count->quota);
    if (quota == 0)
        return 0;
    uint64_t wanted = size_bytes + live_bytes(count) + atomic_load(&count->booked);
    return wanted > quota - 1 ? wanted - (quota - 1) : 0;
}

// The tag's number, given out where the name is new.
static berm_status_t tag_make(const char *name, uint8_t *tag) {
    berm_status_t status = berm_tag_push(name);
    if (status != BERM_OK)
        return status;
    status = berm_tag_pop();
    *tag = berm__tag_find(name);
    return status;
}

berm_status_t berm_quota_set(int ordinal, const char *name, uint64_t quota_bytes) {
    berm_device_t *device;
    uint8_t tag = 0;
    berm_status_t status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status == BERM_OK)
        status = tag_make(name, &tag);
    if (status != BERM_OK)
        return status;
    bool is_set = quota_bytes != UINT64_MAX;
    uint64_t before = atomic_exchange(&device->tags[tag].quota, is_set ? quota_bytes + 1 : 0);
    if (is_set && before == 0)
        atomic_fetch_add(&berm__heap.quotas, 1);
    else if (!is_set && before != 0)
        atomic_fetch_sub(&berm__heap.quotas, 1);
    berm__heap_hits_update();
    return BERM_OK;
}

berm_status_t berm_quota_get(int ordinal, const char *name, berm_quota_t *quota) {
    berm_device_t *device;
    bool is_running;
    if (quota == NULL || name == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_quota_get: %s is NULL",
                               quota == NULL ? "quota" : "name");
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    berm_quota_t filled = {.size = sizeof filled, .quota_bytes = UINT64_MAX};
    uint8_t tag = berm__tag_find(name);
    if (device != NULL && tag != 0) {
        const berm_tag_count_t *count = &device->tags[tag];
        filled.quota_bytes = atomic_load(&count->quota) - 1; // of none: all ones
        filled.live_bytes = live_bytes(count);
        filled.refused = atomic_load(&count->refused);
    }
    return berm__struct_give(quota, quota->size, &filled, sizeof filled);
}
