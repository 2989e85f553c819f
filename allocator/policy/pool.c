// SPDX-License-Identifier: Apache-2.0
// Pools: see pool.h. This file has their life, their segments and the entry to allocation; large.c
// and small.c have the two paths, miss.c and ladder.c what happens when nothing fits, block.c what
// becomes of a block, deferred.c what waits for streams.
#include "policy/pool.h"

#include "base/bits.h"
#include "host/mem.h"
#include "policy/cache.h"
#include "policy/learn.h"

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
    berm__learn_destroy(pool);
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
// of streams must not use up what a process has (47 bits on most machines; half of it here). A pool
// that needs more adds segments. Room between blocks saves moves (miss.c).
static uint64_t segment_span(const berm_device_t *device) {
    const uint64_t budget = BERM_GIB(65536), least = BERM_GIB(2);
    uint64_t full = berm__max_u64(32 * device->gpu.memory_bytes, BERM_GIB(16));
    uint64_t left = budget - berm__min_u64(budget, device->address_bytes);
    return berm__min_u64(full, berm__max_u64(left / 16, least));
}

static void arena_set(berm_pool_t *pool, berm_segment_t *segment, berm_planned_t *planned) {
    segment->planned = planned;
    segment->was_planned = true;
    segment->has_views = berm__pages_are_on(&planned->pages);
    planned->segment = segment;
    pool->is_planned = true;
}

// `planned`: of the plan whose arena it is to be, or NULL.
static berm_status_t segment_add(berm_pool_t *pool, uint64_t span_bytes, berm_planned_t *planned) {
    berm_device_t *device = pool->device;
    berm_segment_t *segment;
    berm_status_t status = berm__segment_create(&device->gpu, pool->group->store, device->dir,
                                                span_bytes, pool, &segment);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&pool->lock);
    status = berm__segment_open(segment, &pool->range_nodes);
    if (status == BERM_OK && planned != NULL)
        arena_set(pool, segment, planned);
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
    return berm__pool_room_add(pool, size_bytes, UINT64_MAX);
}

berm_status_t berm__pool_room_add(berm_pool_t *pool, uint64_t least_bytes, uint64_t most_bytes) {
    berm_device_t *device = pool->device;
    uint64_t granule = device->gpu.granule_bytes;
    uint64_t least = berm__align_up(least_bytes, granule) + granule;
    uint64_t most = berm__min_u64(segment_span(device), most_bytes);
    uint64_t span = berm__align_up(berm__max_u64(most, least), granule);
    for (;;) {
        berm_status_t status = segment_add(pool, span, NULL);
        if (status == BERM_OK)
            return BERM_OK;
        // vGPUs and full address spaces: a smaller range serves as well, a little less freely.
        if (status != BERM_ERROR_OUT_OF_ADDRESSES || span == least)
            return status;
        span = berm__max_u64(berm__align_down(span / 2, granule), least);
    }
}

enum {
    ARENAS_MAX = 4 // earlier ones that still have blocks or memory
};

berm_status_t berm__pool_arena_add(berm_pool_t *pool, uint64_t size_bytes,
                                   berm_planned_t *planned) {
    const berm_device_t *device = pool->device;
    unsigned count = 0;
    berm__mutex_lock(&pool->lock);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        const berm_range_t *first = segment->ranges.first;
        count += segment->was_planned;
        if (!segment->was_planned || segment->span_bytes < size_bytes ||
            first->state != BERM_RANGE_VOID || first->next != NULL)
            continue;
        arena_set(pool, segment, planned);
        break;
    }
    berm__mutex_unlock(&pool->lock);
    if (planned->segment != NULL)
        return BERM_OK;
    // With some room, so that the next plan finds place there too.
    uint64_t span =
        berm__max_u64(size_bytes, berm__min_u64(device->gpu.memory_bytes, segment_span(device)));
    span = berm__align_up(span, device->gpu.granule_bytes);
    return count < ARENAS_MAX ? segment_add(pool, span, planned) : BERM_ERROR_OUT_OF_ADDRESSES;
}

static berm_status_t large_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                                 uint64_t *occupied_bytes) {
    berm_place_t place;
    // A small request with a large alignment takes more than a slot too: one block starts in a
    // slot.
    uint64_t least = berm__max_u64(request->size_bytes, BERM_SMALL_MAX_BYTES + 1);
    *occupied_bytes = berm__align_up(
        least, berm__pool_is_owned(pool) ? pool->device->gpu.granule_bytes : BERM_RANGE_UNIT_BYTES);
    berm_status_t status = BERM_OK;
    bool is_planned = BERM_UNLIKELY(pool->is_planned) &&
                      berm__learn_take(pool, *occupied_bytes, request, &place, &status);
    if (BERM_LIKELY(!is_planned))
        status = berm__large_take(pool, *occupied_bytes, request->alignment_bytes, request->may_map,
                                  &place);
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    berm_range_t *range = place.range;
    range->mappings = 0;
    if (BERM_UNLIKELY(pool->learn != NULL))
        berm__learn_note(pool, range, is_planned);
    range->as.block.requested_bytes = request->size_bytes;
    range->as.block.index = request->number;
    range->tag = request->tag;
    range->owner = NULL;
    berm__segment_cell_write(place.segment, range->start_bytes, (uintptr_t)range);
    pool->taken_blocks++;
    *out = place.segment->base + range->start_bytes;
    return BERM_OK;
}

berm_status_t berm__pool_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                               uint64_t *occupied_bytes) {
    return berm__align_up(request->size_bytes, request->alignment_bytes) <= BERM_SMALL_MAX_BYTES &&
                   !berm__pool_is_apart(pool)
               ? berm__small_alloc(pool, request, out, occupied_bytes)
               : large_alloc(pool, request, out, occupied_bytes);
}
