// SPDX-License-Identifier: Apache-2.0
// Freed blocks that other streams may still use. The uses' tickets are sealed together, with one
// event for each stream however many blocks wait, and asked for in rounds: see stream.h.
//
// Locks: the device's; its context is current in process and wait. Invariant I15 of pool.h.
#include "policy/pool.h"

// While frees wait, every so many allocations look at so many of them.
enum {
    TICK_PERIOD = 8,
    TICK_ENTRIES = 64
};

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

// Seals the streams that freed blocks wait for, and asks them which tickets have passed. A stream
// that cannot be asked keeps its blocks waiting; the first error is returned.
static berm_status_t streams_refresh(berm_device_t *device) {
    berm_status_t first_error = BERM_OK;
    BERM_LIST_EACH (berm_stream_ref_t, stream, &device->streams, link) {
        if (stream->await_count == 0)
            continue;
        berm_status_t status = berm__stream_seal(stream);
        if (status == BERM_OK)
            status = berm__stream_poll(stream);
        if (first_error == BERM_OK)
            first_error = status;
    }
    return first_error;
}

static bool entry_has_passed(const berm_deferred_t *entry) {
    for (const berm_use_t *use = entry->uses; use != NULL; use = use->next)
        if (!berm__stream_has_passed(use->stream, use->ticket))
            return false;
    return true;
}

// Frees what has passed among the oldest `most` entries.
static bool entries_sweep(berm_pool_t *pool, uint64_t most) {
    bool has_freed = false;
    for (berm_list_t *link = pool->deferred.next, *next; link != &pool->deferred && most-- > 0;
         link = next) {
        next = link->next;
        if (!entry_has_passed(entry_of(link)))
            continue;
        entry_finish(pool, entry_of(link));
        has_freed = true;
    }
    return has_freed;
}

berm_status_t berm__deferred_process(berm_pool_t *pool, bool *freed) {
    if (freed != NULL)
        *freed = false;
    if (berm__list_is_empty(&pool->deferred))
        return BERM_OK;
    berm_status_t status = streams_refresh(pool->device);
    bool has_freed = entries_sweep(pool, UINT64_MAX);
    if (freed != NULL)
        *freed = has_freed;
    return status;
}

void berm__deferred_tick(berm_pool_t *pool) {
    if (!pool->has_unsealed && ++pool->deferred_polls < TICK_PERIOD)
        return;
    bool is_pushed;
    pool->deferred_polls = 0;
    if (berm__gpu_enter(&pool->device->gpu, &is_pushed) == BERM_OK)
        pool->has_unsealed = streams_refresh(pool->device) != BERM_OK;
    berm__gpu_leave(&pool->device->gpu, is_pushed);
    (void)entries_sweep(pool, TICK_ENTRIES);
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
