// SPDX-License-Identifier: Apache-2.0
// The end of a group: see group.h. What is free goes back as soon as the work that may use it has
// passed; blocks that live on keep their pages, and the pool and its addresses, until they are
// freed.
//
// Handles of ordinary properties become idle and serve any pool; others go back to the driver.
//
// Locks: the device's; its context is current.
#include "policy/pool.h"

#include "base/bits.h"

// Graphs of a private group may have been launched on any stream.
static berm_status_t context_await(berm_group_t *group) {
    berm_status_t status = berm__device_stream(group->device, BERM_STREAM_NONE, &group->context);
    if (status != BERM_OK)
        return status;
    group->context_ticket = berm__stream_ticket(group->context);
    group->context->await_count++;
    return BERM_OK;
}

static void context_forget(berm_group_t *group) {
    group->context->await_count--;
    group->context = NULL;
}

berm_status_t berm__group_release(berm_group_t *group) {
    if (group->use_count == 1 && berm__group_is_private(group)) {
        berm_status_t status = context_await(group);
        if (status != BERM_OK)
            return status;
    }
    if (--group->use_count > 0)
        return BERM_OK;
    group->device->released_count++;
    (void)berm__groups_reap(group->device, false); // later, if it cannot be known now
    return BERM_OK;
}

static berm_status_t context_poll(berm_group_t *group, bool waits) {
    berm_stream_ref_t *context = group->context;
    if (context == NULL)
        return BERM_OK;
    berm_status_t status =
        waits ? berm__stream_wait(context, group->context_ticket) : berm__stream_seal(context);
    if (status == BERM_OK && !waits)
        status = berm__stream_poll(context);
    if (berm__stream_has_passed(context, group->context_ticket))
        context_forget(group);
    return status == BERM_ERROR_CAPTURE ? BERM_OK : status;
}

static berm_status_t pool_reap(berm_pool_t *pool) {
    uint64_t taken = 0;
    berm_status_t status = berm__deferred_process(pool, NULL);
    if (status == BERM_OK && berm__pool_has_order(pool))
        status = berm__stream_seal(pool->stream);
    if (status == BERM_OK)
        status = berm__steal_pool(pool, UINT64_MAX, &taken);
    if (pool->group->store != &pool->device->phys.stores[0] && taken > 0) {
        uint64_t reserved = pool->device->phys.reserved_bytes;
        uint64_t bytes = taken << pool->device->gpu.lg_granule;
        berm_status_t released =
            berm__store_release_idle(pool->group->store, reserved - berm__min_u64(reserved, bytes));
        status = status == BERM_OK ? released : status;
    }
    return status;
}

static berm_status_t group_reap(berm_group_t *group, bool waits) {
    berm_status_t status = context_poll(group, waits);
    if (group->context != NULL)
        return status;
    for (berm_list_t *link = group->pools.next, *next; link != &group->pools; link = next) {
        next = link->next;
        berm_pool_t *pool = BERM_CONTAINER_OF(link, berm_pool_t, group_link);
        berm_status_t reaped = pool_reap(pool);
        status = status == BERM_OK ? reaped : status;
        (void)berm__pool_park(pool);
    }
    return status;
}

berm_status_t berm__groups_wait(berm_device_t *device, bool *waited) {
    *waited = false;
    BERM_LIST_EACH (berm_group_t, group, &device->groups, link) {
        if (group->context == NULL)
            continue;
        berm_status_t status = context_poll(group, true);
        *waited = group->context == NULL;
        if (status != BERM_OK || *waited)
            return status;
    }
    return BERM_OK;
}

berm_status_t berm__groups_reap(berm_device_t *device, bool waits) {
    berm_status_t status = BERM_OK;
    for (berm_list_t *link = device->groups.next, *next; link != &device->groups; link = next) {
        next = link->next;
        berm_group_t *group = BERM_CONTAINER_OF(link, berm_group_t, link);
        if (group->use_count > 0)
            continue;
        berm_status_t reaped = group_reap(group, waits);
        status = status == BERM_OK ? reaped : status;
        if (group->context != NULL || !berm__list_is_empty(&group->pools))
            continue;
        device->released_count--;
        berm__group_destroy(group);
    }
    return status;
}
