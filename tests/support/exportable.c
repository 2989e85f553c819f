// SPDX-License-Identifier: Apache-2.0
#include "tests/support/exportable.h"

#include "policy/counts.h"
#include "tests/support/heap_inside.h"

static berm_status_t pool_alloc(berm_pool_t *pool, uint64_t size_bytes, berm_addr_t *addr) {
    berm_device_t *device = pool->device;
    const berm_request_t request = {.size_bytes = size_bytes,
                                    .alignment_bytes = 512,
                                    .number = atomic_fetch_add(&device->request_count, 1) + 1,
                                    .may_map = true};
    berm_counts_t counts = {0};
    uint64_t occupied;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_alloc(pool, &request, addr, &occupied);
    if (status == BERM_OK) {
        berm__counts_alloc(&counts, size_bytes, occupied);
        berm__counts_merge(&counts, device);
    }
    berm__mutex_unlock(&pool->lock);
    return status;
}

berm_addr_t exportable_alloc(uint64_t size_bytes, void *stream, berm_status_t *status) {
    static const berm_pool_id_t id = {0, 4711};
    berm_device_t *device;
    berm_pool_t *pool;
    berm_stream_ref_t *ref;
    berm_addr_t addr = 0;
    bool is_pushed;
    berm_status_t done = berm__heap_device_enter(0, &device, &is_pushed);
    if (done == BERM_OK) {
        berm_group_t *group = berm__group_find(device, id);
        if (group == NULL)
            done = berm__group_create(device, id, BERM_GROUP_EXPORTABLE, &group);
        if (done == BERM_OK)
            done = berm__device_stream(device, stream, &ref);
        if (done == BERM_OK)
            done = berm__group_pool(group, ref, &pool);
        if (done == BERM_OK)
            done = pool_alloc(pool, size_bytes, &addr);
        done = berm__heap_device_leave(device, is_pushed, done, "exportable_alloc");
    }
    HEAP_INSIST(status != NULL || done == BERM_OK);
    if (status != NULL)
        *status = done;
    return addr;
}
