// SPDX-License-Identifier: Apache-2.0
// Freed blocks that other streams may still use. The uses' tickets are sealed together, with one
// event for each stream however many blocks wait, and asked for in rounds: see stream.h.
//
// Locks: the device's; its context is current in process and wait. Invariant I15 of pool.h.
#include "policy/pool.h"

void berm__deferred_add(berm_pool_t *pool, berm_deferred_t *entry) {
    berm__list_push_back(&pool->deferred, &entry->link);
    pool->deferred_bytes += entry->size_bytes;
    pool->has_unsealed = true;
}

static berm_deferred_t *entry_of(berm_list_t *link) {
    return BERM_CONTAINER_OF(link, berm_deferred_t, link);
}

static void entry_finish(berm_pool_t *pool, berm_deferred_t *entry) {
    berm_device_t *device = pool->device;
    berm__list_remove(&entry->link);
    pool->deferred_bytes -= entry->size_bytes;
    berm__figure_sub(&device->active, entry->size_bytes);
    for (berm_use_t *use = entry->uses, *next; use != NULL; use = next) {
        next = use->next;
        berm__use_give(device, use);
    }
    if (entry->slab != NULL)
        berm__small_give(pool, entry->slab, entry->slot);
    else
        berm__large_give(pool, entry->segment, entry->range);
    berm__node_slab_give(&device->deferred_nodes, entry);
}

// Seals the ticket of a use if it is still open.
static berm_status_t use_seal(berm_device_t *device, berm_use_t *use) {
    (void)device;
    return use->ticket == use->stream->open_ticket ? berm__stream_seal(use->stream) : BERM_OK;
}

// Asks the use's stream which tickets have passed, once in a round.
static berm_status_t use_poll(berm_device_t *device, berm_use_t *use) {
    if (use->stream->poll_round == device->poll_round)
        return BERM_OK;
    use->stream->poll_round = device->poll_round;
    return berm__stream_poll(use->stream);
}

// Does it for every use that has not passed. A stream that cannot be asked keeps its blocks
// waiting; the first error is returned.
static berm_status_t uses_each(berm_pool_t *pool,
                               berm_status_t (*act)(berm_device_t *, berm_use_t *)) {
    berm_status_t first_error = BERM_OK;
    BERM_LIST_EACH(berm_deferred_t, entry, &pool->deferred, link) {
        for (berm_use_t *use = entry->uses; use != NULL; use = use->next) {
            berm_status_t status = BERM_OK;
            if (!berm__stream_has_passed(use->stream, use->ticket))
                status = act(pool->device, use);
            if (first_error == BERM_OK)
                first_error = status;
        }
    }
    return first_error;
}

// All tickets are sealed before any stream is asked, so that one question covers them.
static berm_status_t streams_refresh(berm_pool_t *pool) {
    berm_status_t sealed = uses_each(pool, use_seal);
    pool->device->poll_round++;
    berm_status_t polled = uses_each(pool, use_poll);
    return sealed != BERM_OK ? sealed : polled;
}

static bool entry_has_passed(const berm_deferred_t *entry) {
    for (const berm_use_t *use = entry->uses; use != NULL; use = use->next)
        if (!berm__stream_has_passed(use->stream, use->ticket))
            return false;
    return true;
}

berm_status_t berm__deferred_process(berm_pool_t *pool, bool *freed) {
    if (freed != NULL)
        *freed = false;
    if (berm__list_is_empty(&pool->deferred))
        return BERM_OK;
    berm_status_t status = streams_refresh(pool);
    pool->deferred_polls = 0;
    pool->has_unsealed = status != BERM_OK;
    for (berm_list_t *link = pool->deferred.next, *next; link != &pool->deferred; link = next) {
        next = link->next;
        if (!entry_has_passed(entry_of(link)))
            continue;
        entry_finish(pool, entry_of(link));
        if (freed != NULL)
            *freed = true;
    }
    return status;
}

berm_status_t berm__deferred_wait_oldest(berm_pool_t *pool, bool *waited) {
    *waited = false;
    if (berm__list_is_empty(&pool->deferred))
        return BERM_OK;
    berm_deferred_t *oldest = entry_of(pool->deferred.next);
    for (berm_use_t *use = oldest->uses; use != NULL; use = use->next) {
        berm_status_t status = berm__stream_wait(use->stream, use->ticket);
        if (status != BERM_OK)
            return status;
    }
    entry_finish(pool, oldest);
    *waited = true;
    return BERM_OK;
}
