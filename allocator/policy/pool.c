// SPDX-License-Identifier: Apache-2.0
// Pools: see pool.h. This file has their life, the entry to allocation and the free of a block;
// large.c and small.c have the two paths, deferred.c what waits for streams, miss.c and ladder.c
// what happens when nothing fits.
#include "policy/pool.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"
#include "policy/cache.h"

static void stream_attach(berm_pool_t *pool, berm_stream_ref_t *stream) {
    pool->stream = stream;
    stream->pool_count++;
    if (berm__group_is_default(pool->group))
        stream->pool = pool;
}

static void stream_detach(berm_pool_t *pool) {
    berm_stream_ref_t *stream = pool->stream;
    if (stream == NULL) // a spare
        return;
    pool->stream = NULL;
    stream->pool_count--;
    if (stream->pool == pool)
        stream->pool = NULL;
}

// Of the group's stream, and nothing freed into it yet.
static void pool_enlist(berm_pool_t *pool, berm_group_t *group, berm_stream_ref_t *stream) {
    pool->group = group;
    stream_attach(pool, stream);
    pool->used_ticket = BERM_TICKET_NONE;
    pool->capture_id = BERM_CAPTURE_NONE;
    berm_list_t *before = group->device->pools.prev;
    while (before != &group->device->pools &&
           BERM_CONTAINER_OF(before, berm_pool_t, link)->number > pool->number)
        before = before->prev;
    berm__list_insert_after(before, &pool->link);
    berm__list_push_back(&group->pools, &pool->group_link);
    group->device->pool_count++;
}

static berm_pool_t *pool_create(berm_group_t *group, berm_stream_ref_t *stream) {
    berm_device_t *device = group->device;
    berm_pool_t *pool = berm__mem_alloc(sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->is_default = berm__group_is_default(group);
    pool->number = ++device->pools_made;
    berm__mutex_init(&pool->lock, BERM_LOCK_POOL, "pool");
    berm__node_slab_init(&pool->range_nodes, sizeof(berm_range_t));
    berm__node_slab_init(&pool->use_nodes, sizeof(berm_use_t));
    berm__node_slab_init(&pool->deferred_nodes, sizeof(berm_deferred_t));
    berm__list_init(&pool->segments);
    berm__aliased_init(&pool->aliased);
    berm__pins_init(&pool->pins);
    berm__list_init(&pool->deferred);
    for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT; c++) {
        berm__list_init(&pool->empties[c]);
        for (unsigned f = 0; f < BERM_SLAB_FULLNESS; f++)
            berm__list_init(&pool->partial[c][f]);
    }
    pool_enlist(pool, group, stream);
    return pool;
}

// Tickets are numbers of the stream that was; nothing that is free is in use any more.
static void tickets_reset(berm_pool_t *pool) {
    (void)berm__small_flush(pool);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        for (berm_range_t *range = segment->ranges.first; range != NULL; range = range->next)
            if (range->state == BERM_RANGE_FREE || range->state == BERM_RANGE_POISONED)
                berm__segment_ticket_set(segment, range->start_bytes, range->size_bytes,
                                         BERM_TICKET_NONE);
    }
}

// A pool whose stream is gone and that holds no block, taken from that stream; NULL if none.
static berm_pool_t *pool_adopt(berm_group_t *group, berm_stream_ref_t *stream) {
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        if (!pool->stream->is_retired)
            continue;
        berm__mutex_lock(&pool->lock);
        bool is_empty = pool->taken_blocks == 0;
        if (is_empty) {
            tickets_reset(pool);
            pool->used_ticket = BERM_TICKET_NONE;
            stream_detach(pool);
            stream_attach(pool, stream);
        }
        berm__mutex_unlock(&pool->lock);
        if (!is_empty)
            continue;
        berm__device_streams_collect(group->device);
        return pool;
    }
    return NULL;
}

// A spare pool whose addresses the group can use: plain memory has none of its own.
static berm_pool_t *spare_find(const berm_group_t *group) {
    BERM_LIST_EACH (berm_pool_t, pool, &group->device->spares, link)
        if (!group->store->is_plain || berm__list_is_empty(&pool->segments))
            return pool;
    return NULL;
}

// A spare pool, made one of a caller's group; NULL if there is none.
static berm_pool_t *pool_unpark(berm_group_t *group, berm_stream_ref_t *stream) {
    berm_pool_t *pool = berm__group_is_default(group) ? NULL : spare_find(group);
    if (pool == NULL)
        return NULL;
    berm__list_remove(&pool->link);
    berm__mutex_lock(&pool->lock);
    pool_enlist(pool, group, stream);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        segment->store = group->store;
    berm__mutex_unlock(&pool->lock);
    return pool;
}

bool berm__pool_park(berm_pool_t *pool) {
    berm_device_t *device = pool->device;
    berm__mutex_lock(&pool->lock);
    (void)berm__small_flush(pool);
    bool is_empty =
        pool->taken_blocks == 0 && pool->aliased.small_count == 0 && pool->aliased.large_count == 0;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        is_empty = is_empty && segment->mapped_bytes == 0 && segment->poisoned_bytes == 0 &&
                   segment->stale == NULL;
    if (is_empty) {
        berm__list_remove(&pool->link);
        berm__list_remove(&pool->group_link);
        device->pool_count--;
        stream_detach(pool);
        pool->group = NULL;
        berm__list_push_back(&device->spares, &pool->link);
    }
    berm__mutex_unlock(&pool->lock);
    if (is_empty)
        berm__device_streams_collect(device);
    return is_empty;
}

berm_status_t berm__pool_make(berm_group_t *group, berm_stream_ref_t *stream, berm_pool_t **out) {
    *out = pool_adopt(group, stream);
    if (*out == NULL)
        *out = pool_unpark(group, stream);
    if (*out == NULL)
        *out = pool_create(group, stream);
    return *out != NULL ? BERM_OK : BERM_ERROR_OUT_OF_HOST_MEMORY;
}

void berm__pool_destroy(berm_pool_t *pool) {
    berm__list_remove(&pool->link);
    berm__list_remove(&pool->group_link);
    pool->device->pool_count -= pool->group != NULL;
    stream_detach(pool);
    if (pool->exchange != NULL)
        berm__mem_free(pool->exchange, sizeof *pool->exchange);
    berm__node_slab_destroy(&pool->range_nodes);
    berm__node_slab_destroy(&pool->use_nodes);
    berm__node_slab_destroy(&pool->deferred_nodes);
    berm__pins_destroy(&pool->pins);
    berm__mutex_destroy(&pool->lock);
    berm__mem_free(pool, sizeof *pool);
}

static void slab_live_add(const berm_slab_t *slab, berm_pool_live_t *live) {
    for (uint32_t slot = 0; slot < slab->slots; slot++) {
        if (!berm__slot_is_live(slab, slot))
            continue;
        live->requested_bytes += (uint64_t)slab->slot[slot].requested + 1;
        live->allocated_bytes += berm__size_class_bytes(slab->size_class);
        live->blocks++;
    }
}

berm_pool_live_t berm__pool_live_read(const berm_pool_t *pool) {
    berm_pool_live_t live = {0};
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link) {
        for (const berm_range_t *range = segment->ranges.first; range != NULL;
             range = range->next) {
            if (range->state != BERM_RANGE_LIVE)
                continue;
            if (range->is_slab) {
                slab_live_add(range->owner, &live);
                continue;
            }
            live.requested_bytes += range->as.block.requested_bytes;
            live.allocated_bytes += range->size_bytes;
            live.blocks++;
        }
    }
    return live;
}

void berm__range_poison(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range) {
    berm__ranges_lift(&segment->ranges, range, BERM_RANGE_POISONED);
    segment->poisoned_bytes += range->size_bytes;
    pool->device->poisoned_bytes += range->size_bytes;
}

void berm__range_unmapped(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                          berm_status_t status) {
    if (status == BERM_OK)
        (void)berm__ranges_settle(&segment->ranges, range, BERM_RANGE_VOID);
    else
        berm__range_poison(pool, segment, range);
}

// Addresses are given out generously while there are few pools, and ever more sparingly: thousands
// of streams must not use up what a process has (47 bits on most machines). A pool that needs more
// adds segments.
static uint64_t segment_span(const berm_device_t *device) {
    const uint64_t budget = BERM_GIB(8192), least = BERM_GIB(2);
    uint64_t full = berm__max_u64(4 * device->gpu.memory_bytes, BERM_GIB(16));
    uint64_t left = budget - berm__min_u64(budget, device->address_bytes);
    return berm__min_u64(full, berm__max_u64(left / 16, least));
}

static berm_status_t segment_add(berm_pool_t *pool, uint64_t span_bytes) {
    berm_device_t *device = pool->device;
    berm_segment_t *segment;
    berm_status_t status = berm__segment_create(&device->gpu, pool->group->store, device->dir,
                                                span_bytes, pool, &segment);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&pool->lock);
    status = berm__segment_open(segment, &pool->range_nodes);
    if (status == BERM_OK)
        berm__list_push_back(&pool->segments, &segment->link);
    berm__mutex_unlock(&pool->lock);
    if (status != BERM_OK) {
        berm__segment_destroy(segment);
        return status;
    }
    device->address_bytes += span_bytes;
    return BERM_OK;
}

berm_status_t berm__pool_segment_add(berm_pool_t *pool, uint64_t size_bytes) {
    berm_device_t *device = pool->device;
    uint64_t granule = device->gpu.granule_bytes;
    uint64_t least = berm__align_up(size_bytes, granule) + granule;
    uint64_t span = berm__align_up(berm__max_u64(segment_span(device), least), granule);
    for (;;) {
        berm_status_t status = segment_add(pool, span);
        if (status == BERM_OK)
            return BERM_OK;
        // vGPUs and full address spaces: a smaller range serves as well, a little less freely.
        if (status != BERM_ERROR_OUT_OF_ADDRESSES || span == least)
            return status;
        span = berm__max_u64(berm__align_down(span / 2, granule), least);
    }
}

static berm_status_t large_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                                 uint64_t *occupied_bytes) {
    berm_place_t place;
    // A small request with a large alignment takes more than a slot too: one block starts in a
    // slot.
    uint64_t least = berm__max_u64(request->size_bytes, BERM_SMALL_MAX_BYTES + 1);
    *occupied_bytes = berm__align_up(
        least, berm__pool_is_owned(pool) ? pool->device->gpu.granule_bytes : BERM_RANGE_UNIT_BYTES);
    berm_status_t status =
        berm__large_take(pool, *occupied_bytes, request->alignment_bytes, request->may_map, &place);
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    berm_range_t *range = place.range;
    range->as.block.requested_bytes = request->size_bytes;
    range->as.block.index = request->number;
    range->owner = NULL;
    berm__segment_cell_write(place.segment, range->start_bytes, (uintptr_t)range);
    pool->taken_blocks++;
    *out = place.segment->base + range->start_bytes;
    return BERM_OK;
}

berm_status_t berm__pool_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                               uint64_t *occupied_bytes) {
    return berm__align_up(request->size_bytes, request->alignment_bytes) <= BERM_SMALL_MAX_BYTES &&
                   !berm__pool_is_owned(pool)
               ? berm__small_alloc(pool, request, out, occupied_bytes)
               : large_alloc(pool, request, out, occupied_bytes);
}

// What an address is that is no live block's start: walks, for messages only.
static berm_status_t block_explain(berm_segment_t *segment, uint64_t offset) {
    const berm_range_t *range = berm__ranges_at(&segment->ranges, offset);
    bool is_void = berm__range_state(range) == BERM_RANGE_VOID;
    if (is_void && segment->ticket_of[berm__segment_granule_of(segment, offset)] == 0)
        return BERM_ERROR_ADDRESS_UNKNOWN;
    if (berm__range_state(range) == BERM_RANGE_LIVE)
        return range->is_slab ? BERM_ERROR_ADDRESS_UNKNOWN : BERM_ERROR_ADDRESS_INTERIOR;
    return berm__is_aligned(offset, BERM_RANGE_UNIT_BYTES) ? BERM_ERROR_DOUBLE_FREE
                                                           : BERM_ERROR_ADDRESS_UNKNOWN;
}

static berm_status_t slot_find(berm_segment_t *segment, berm_slab_t *slab, uint64_t offset,
                               berm_block_t *block) {
    uint64_t class_bytes = berm__size_class_bytes(slab->size_class);
    uint64_t inside = offset - slab->range->start_bytes;
    uint32_t slot = berm__size_class_slot_of(slab->size_class, inside);
    if (slot >= slab->slots)
        return BERM_ERROR_ADDRESS_UNKNOWN;
    bool is_live = berm__slot_is_live(slab, slot);
    if (inside % class_bytes != 0)
        return is_live ? BERM_ERROR_ADDRESS_INTERIOR : BERM_ERROR_ADDRESS_UNKNOWN;
    if (!is_live)
        return BERM_ERROR_DOUBLE_FREE;
    *block = (berm_block_t){.segment = segment,
                            .pool = segment->pool,
                            .slab = slab,
                            .range = slab->range,
                            .slot = slot,
                            .size_bytes = class_bytes,
                            .addr = segment->base + offset};
    return BERM_OK;
}

berm_status_t berm__pool_block_find(berm_segment_t *segment, berm_addr_t addr,
                                    berm_block_t *block) {
    uint64_t offset = addr - segment->base;
    if (BERM_UNLIKELY(segment->is_plain) && berm__addr_dir_find(segment->dir, addr) != segment)
        return BERM_ERROR_ADDRESS_UNKNOWN; // it went before the lock was the caller's
    uintptr_t value = berm__segment_cell_read(segment, offset);
    if ((value & BERM_CELL_IS_SLAB) != 0)
        return slot_find(segment, (berm_slab_t *)(value - BERM_CELL_IS_SLAB), offset, block);
    berm_range_t *range = (berm_range_t *)value;
    if (range == NULL || range->start_bytes != offset ||
        berm__range_state(range) != BERM_RANGE_LIVE)
        return block_explain(segment, offset);
    *block = (berm_block_t){.segment = segment,
                            .pool = segment->pool,
                            .range = range,
                            .size_bytes = range->size_bytes,
                            .addr = addr};
    return BERM_OK;
}

static berm_use_t **uses_of(const berm_block_t *block) {
    return block->slab != NULL ? &block->slab->uses : (berm_use_t **)&block->range->owner;
}

berm_use_t *berm__use_take(berm_pool_t *pool, berm_stream_ref_t *stream, uint32_t slot) {
    berm_use_t *use = berm__node_slab_take(&pool->use_nodes);
    if (use == NULL)
        return NULL;
    *use = (berm_use_t){.stream = stream, .slot = slot};
    atomic_fetch_add(&stream->use_count, 1);
    return use;
}

void berm__use_give(berm_pool_t *pool, berm_use_t *use) {
    berm_stream_ref_t *stream = use->stream;
    if (use->ticket != 0)
        atomic_fetch_sub(&stream->await_count, 1);
    atomic_fetch_sub(&stream->use_count, 1);
    berm__node_slab_give(&pool->use_nodes, use);
}

berm_status_t berm__pool_use_add(const berm_block_t *block, berm_stream_ref_t *stream) {
    // The own stream's order needs no record; the pool without a stream has none.
    if (stream == block->pool->stream && stream->handle != BERM_STREAM_NONE)
        return BERM_OK;
    berm_use_t **uses = uses_of(block);
    for (berm_use_t *use = *uses; use != NULL; use = use->next)
        if (use->slot == block->slot && use->stream == stream)
            return BERM_OK;
    berm_use_t *use = berm__use_take(block->pool, stream, block->slot);
    if (use == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    use->next = *uses;
    // Atomic: threads that free other slots of the slab look whether it has any uses, without a
    // lock.
    __atomic_store_n(uses, use, __ATOMIC_RELAXED);
    return BERM_OK;
}

// Takes the block's uses off their list.
static berm_use_t *uses_detach(const berm_block_t *block) {
    berm_use_t *detached = NULL;
    for (berm_use_t **at = uses_of(block); *at != NULL;) {
        berm_use_t *use = *at;
        if (use->slot != block->slot) {
            at = &use->next;
            continue;
        }
        __atomic_store_n(at, use->next, __ATOMIC_RELAXED);
        use->next = detached;
        detached = use;
    }
    return detached;
}

static bool block_has_uses(const berm_block_t *block) {
    for (berm_use_t *use = *uses_of(block); use != NULL; use = use->next)
        if (use->slot == block->slot)
            return true;
    return false;
}

// An exported block is not reused in its stream's order but unmapped: it waits for that stream too.
static bool block_waits_for_own(const berm_block_t *block) {
    return block->slab == NULL && berm__pool_has_order(block->pool) &&
           berm__range_is_exported(block->pool, block->segment, block->range);
}

static void block_give(const berm_block_t *block) {
    if (block->slab != NULL)
        berm__small_give(block->pool, block->slab, block->slot);
    else
        berm__large_give(block->pool, block->segment, block->range);
}

// From live to awaited: nothing finds the block any more, and its uses have their tickets.
static void block_defer(const berm_block_t *block, berm_stream_ref_t *stream, bool waits_own) {
    berm_pool_t *pool = block->pool;
    berm_deferred_t *entry = berm__node_slab_take(&pool->deferred_nodes);
    // A free on the own stream waits for the recorded streams only; the pool without a stream has
    // no own order, and waits for the stream that was named.
    bool waits_for_stream =
        waits_own || stream != pool->stream || stream->handle == BERM_STREAM_NONE;
    if (waits_for_stream && stream != pool->stream)
        (void)berm__pool_use_add(block, stream);
    berm_use_t *uses = uses_detach(block);
    bool waits_for_own = waits_for_stream && stream == pool->stream;
    if (waits_for_own || block_waits_for_own(block)) {
        berm_use_t *own = berm__use_take(pool, pool->stream, block->slot);
        own->next = uses;
        uses = own;
    }
    for (berm_use_t *use = uses; use != NULL; use = use->next) {
        use->ticket = berm__stream_ticket(use->stream);
        atomic_fetch_add(&use->stream->await_count, 1);
    }
    *entry = (berm_deferred_t){.uses = uses,
                               .segment = block->segment,
                               .slab = block->slab,
                               .range = block->slab == NULL ? block->range : NULL,
                               .slot = block->slot,
                               .size_bytes = block->size_bytes};
    if (block->slab == NULL) {
        berm__segment_cell_write(block->segment, block->range->start_bytes, 0);
        berm__ranges_lift(&block->segment->ranges, block->range, BERM_RANGE_AWAITED);
    }
    berm__deferred_add(pool, entry);
}

static bool block_claim(const berm_block_t *block, berm_freed_t *freed) {
    *freed = (berm_freed_t){.requested_bytes =
                                block->slab != NULL
                                    ? (uint64_t)block->slab->slot[block->slot].requested + 1
                                    : block->range->as.block.requested_bytes,
                            .occupied_bytes = block->size_bytes};
    return block->slab != NULL ? berm__slot_claim(block->slab, block->slot)
                               : berm__range_claim(block->range);
}

berm_status_t berm__pool_free_own(const berm_block_t *block, berm_freed_t *freed) {
    if (block_has_uses(block) || block->pool->stream->handle == BERM_STREAM_NONE ||
        block_waits_for_own(block))
        return BERM_ERROR_STATE;
    if (!block_claim(block, freed))
        return BERM_ERROR_DOUBLE_FREE;
    block_give(block);
    return BERM_OK;
}

// Was it allocated after the request of that number?
static bool block_is_newer(const berm_block_t *block, uint64_t number) {
    if (block->slab != NULL) // modulo 2^32
        return (int32_t)(block->slab->slot[block->slot].index - (uint32_t)number) > 0;
    return block->range->as.block.index > number;
}

berm_status_t berm__pool_free(const berm_block_t *block, berm_stream_ref_t *stream,
                              bool is_captured, berm_freed_t *freed) {
    berm_pool_t *pool = block->pool;
    bool is_own = stream == pool->stream;
    bool waits_own = is_own && is_captured && !block_is_newer(block, pool->capture_index);
    if (is_own && !waits_own) {
        berm_status_t status = berm__pool_free_own(block, freed);
        if (status == BERM_OK && !is_captured)
            berm__pool_touch(pool);
        if (status != BERM_ERROR_STATE)
            return status;
    }
    if (!berm__node_slab_reserve(&pool->deferred_nodes, 1) ||
        !berm__node_slab_reserve(&pool->use_nodes, 2))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    if (!block_claim(block, freed))
        return BERM_ERROR_DOUBLE_FREE;
    freed->is_awaited = true;
    block_defer(block, stream, waits_own);
    return BERM_OK;
}

// --- freeing without host memory ---------------------------------------------------------------

// Gives a block back to its user, with its uses.
static void block_restore(const berm_block_t *block, berm_use_t *uses) {
    berm_use_t **head = uses_of(block);
    while (uses != NULL) {
        berm_use_t *next = uses->next;
        uses->next = *head;
        __atomic_store_n(head, uses, __ATOMIC_RELAXED);
        uses = next;
    }
    if (block->slab != NULL)
        __atomic_store_n(&block->slab->slot[block->slot].state, BERM_SLOT_LIVE, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&block->range->state, BERM_RANGE_LIVE, __ATOMIC_RELEASE);
}

// Waits for everything that may use a block. Locked.
static berm_status_t uses_wait(berm_device_t *device, const berm_use_t *uses,
                               berm_stream_ref_t *stream) {
    berm_gpu_t *gpu = &device->gpu;
    bool is_pushed;
    berm_status_t status = berm__gpu_enter(gpu, &is_pushed);
    if (status == BERM_OK)
        status = stream != NULL ? berm__stream_wait(stream, berm__stream_ticket(stream))
                                : berm__device_synchronize(device);
    for (; uses != NULL && status == BERM_OK; uses = uses->next)
        status = berm__stream_wait(uses->stream, berm__stream_ticket(uses->stream));
    berm__gpu_leave(gpu, is_pushed);
    return status;
}

berm_status_t berm__pool_free_waiting(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                                      berm_stream_ref_t *stream) {
    berm_block_t block;
    berm_freed_t freed;
    berm_use_t *uses = NULL;
    berm__mutex_lock(&pool->device->lock);
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK && !block_claim(&block, &freed))
        status = BERM_ERROR_DOUBLE_FREE;
    if (status == BERM_OK) {
        uses = uses_detach(&block);
        berm_stream_ref_t *own = block_waits_for_own(&block) ? pool->stream : stream;
        berm__mutex_unlock(&pool->lock);
        if (uses_wait(pool->device, uses, stream) != BERM_OK ||
            (own != stream && uses_wait(pool->device, NULL, own) != BERM_OK))
            status = BERM_ERROR_OUT_OF_HOST_MEMORY; // better kept than reused under running work
        berm__mutex_lock(&pool->lock);
        if (status != BERM_OK) {
            block_restore(&block, uses);
            uses = NULL;
        } else {
            block_give(&block);
            berm__pool_touch(pool);
            berm__counts_free_now(pool->device, freed.requested_bytes, freed.occupied_bytes);
        }
    }
    for (berm_use_t *next; uses != NULL; uses = next) {
        next = uses->next;
        berm__use_give(pool, uses);
    }
    berm__mutex_unlock(&pool->lock);
    berm__mutex_unlock(&pool->device->lock);
    return status;
}
