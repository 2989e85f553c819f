// SPDX-License-Identifier: Apache-2.0
// Freed blocks that other streams may still use. The uses' tickets are sealed together, with one
// event for each stream however many blocks wait, and asked for in rounds: see stream.h.
//
// Locks: the device's in process, tick and wait, with its context current; of the pool's only what
// the queue needs. Entries leave under both, so who holds the device's may read one that is there.
// Invariant I15 of pool.h.
#include "policy/pool.h"
#include "policy/share.h"

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

// Both locks are held.
static void entry_finish(berm_pool_t *pool, berm_deferred_t *entry) {
    berm__list_remove(&entry->link);
    pool->deferred_bytes -= entry->size_bytes;
    berm__counts_await_end(pool->device, entry->size_bytes);
    for (berm_use_t *use = entry->uses, *next; use != NULL; use = next) {
        next = use->next;
        berm__use_give(pool, use);
    }
    if (entry->slab != NULL)
        berm__small_give(pool, entry->slab, entry->slot);
    else
        berm__large_give(pool, entry->segment, entry->range);
    berm__pool_touch(pool);
    berm__node_slab_give(&pool->deferred_nodes, entry);
}

// Seals the streams that freed blocks wait for, and asks them which tickets have passed. A stream
// that cannot be asked keeps its blocks waiting; the first error is returned.
// New streams may join the list meanwhile, at its head.
static berm_status_t streams_refresh(berm_device_t *device) {
    berm_status_t first_error = BERM_OK;
    berm_stream_ref_t *stream = NULL;
    while ((stream = berm__device_stream_next(device, stream)) != NULL) {
        if (atomic_load(&stream->await_count) == 0)
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

// What was exported is unmapped when it is done with, which may have to wait for a capture's end.
static bool entry_needs_edit(const berm_pool_t *pool, const berm_deferred_t *entry) {
    return entry->slab == NULL && berm__range_is_exported(pool, entry->segment, entry->range);
}

// Frees what has passed among the oldest `most` entries.
static bool entries_sweep(berm_pool_t *pool, uint64_t most) {
    bool has_freed = false, may_edit = berm__device_edits_check(pool->device) == BERM_OK;
    berm__mutex_lock(&pool->lock);
    for (berm_list_t *link = pool->deferred.next, *next; link != &pool->deferred && most-- > 0;
         link = next) {
        next = link->next;
        if (!entry_has_passed(entry_of(link)) ||
            (!may_edit && entry_needs_edit(pool, entry_of(link))))
            continue;
        entry_finish(pool, entry_of(link));
        has_freed = true;
    }
    berm__mutex_unlock(&pool->lock);
    return has_freed;
}

berm_status_t berm__deferred_process(berm_pool_t *pool, bool *freed) {
    if (freed != NULL)
        *freed = false;
    berm__pins_settle(pool);
    if (atomic_load(&pool->deferred_bytes) == 0)
        return BERM_OK;
    berm_status_t status = streams_refresh(pool->device);
    bool has_freed = entries_sweep(pool, UINT64_MAX);
    if (freed != NULL)
        *freed = has_freed;
    return status;
}

static bool tick_is_due(berm_pool_t *pool) {
    if (atomic_load_explicit(&pool->deferred_bytes, memory_order_relaxed) == 0)
        return false;
    return atomic_load_explicit(&pool->has_unsealed, memory_order_relaxed) ||
           atomic_fetch_add(&pool->deferred_polls, 1) + 1 >= TICK_PERIOD;
}

static void tick(berm_pool_t *pool) {
    berm_device_t *device = pool->device;
    bool is_pushed;
    atomic_store(&pool->deferred_polls, 0);
    atomic_store(&pool->has_unsealed, false); // before the seals: what comes later is seen later
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK && streams_refresh(device) != BERM_OK)
        atomic_store(&pool->has_unsealed, true);
    (void)entries_sweep(pool, TICK_ENTRIES);
    berm__gpu_leave(&device->gpu, is_pushed);
}

void berm__deferred_tick(berm_pool_t *pool) {
    if (!tick_is_due(pool) || !berm__mutex_trylock(&pool->device->lock))
        return;
    tick(pool);
    berm__mutex_unlock(&pool->device->lock);
}

void berm__deferred_tick_locked(berm_pool_t *pool) {
    if (tick_is_due(pool))
        tick(pool);
}

// The entry after one that is there, the oldest for NULL; NULL at the end.
static berm_deferred_t *entry_next(berm_pool_t *pool, berm_deferred_t *entry) {
    berm__mutex_lock(&pool->lock);
    berm_list_t *link = entry != NULL ? entry->link.next : pool->deferred.next;
    berm__mutex_unlock(&pool->lock);
    return link != &pool->deferred ? entry_of(link) : NULL;
}

static berm_status_t entry_wait(const berm_deferred_t *entry) {
    berm_status_t status = BERM_OK;
    for (berm_use_t *use = entry->uses; use != NULL && status == BERM_OK; use = use->next)
        status = berm__stream_wait(use->stream, use->ticket);
    return status;
}

// What a capture holds back is passed by.
berm_status_t berm__deferred_wait_oldest(berm_pool_t *pool, bool *waited) {
    berm_deferred_t *entry = NULL;
    bool may_edit = berm__device_edits_check(pool->device) == BERM_OK;
    *waited = false;
    while ((entry = entry_next(pool, entry)) != NULL) {
        if (!may_edit && entry_needs_edit(pool, entry))
            continue;
        berm_status_t status = entry_wait(entry);
        if (status == BERM_ERROR_CAPTURE)
            continue;
        if (status != BERM_OK)
            return status;
        berm__mutex_lock(&pool->lock);
        entry_finish(pool, entry);
        berm__mutex_unlock(&pool->lock);
        *waited = true;
        return BERM_OK;
    }
    return BERM_OK;
}
