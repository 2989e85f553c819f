// SPDX-License-Identifier: Apache-2.0
// Restoring the state of a private group: see pool_state.h.
//
// Restoring has three parts. What is awaited, and the streams recorded for blocks that go, are
// waited for. Then, with all pools of the group locked, everything is looked at and all host memory
// is secured. From there on nothing can fail: blocks that go are freed, slabs and large blocks that
// come are cut out of free ranges at their addresses. A block that lives before and after in the
// same place is left alone.
//
//   unit   a large block of the state, or a slab with the state's slots in it: [start, start +
//   size)
//
// In each part a range is walked once, and a block of the state once for each segment of its pool.
#include "policy/pool_state.h"

#include "host/mem.h"

// --- what stays, goes and comes ----------------------------------------------------------------

// The state's blocks of one segment: [first, end) of its list.
typedef struct part {
    const berm_state_block_t *first, *end;
} part_t;

static part_t part_of(const berm_pool_state_t *state, const berm_segment_t *segment) {
    const berm_state_block_t *all = state->blocks + state->count;
    part_t part = {state->blocks, all};
    while (part.first < all && part.first->segment != segment)
        part.first++;
    for (part.end = part.first; part.end < all && part.end->segment == segment;)
        part.end++;
    return part;
}

// A unit of the state and the blocks in it.
typedef struct unit {
    const berm_state_block_t *first, *end;
    uint64_t start_bytes, size_bytes;
} unit_t;

// The next unit of a part, which begins after it then; false at the end.
static bool unit_next(part_t *part, unit_t *unit) {
    const berm_state_block_t *block = part->first;
    if (block == part->end)
        return false;
    *unit = (unit_t){block, block + 1, block->start_bytes, block->size_bytes};
    if (block->is_small) {
        unit->start_bytes = block->home_bytes;
        unit->size_bytes = berm__size_class_slab_bytes(block->size_class);
        while (unit->end < part->end && unit->end->is_small &&
               unit->end->home_bytes == block->home_bytes)
            unit->end++;
    }
    part->first = unit->end;
    return true;
}

// Whether the range is the unit's by now: the same block, or a slab of the same class.
static bool unit_is_at(const unit_t *unit, const berm_range_t *range) {
    if (berm__range_state(range) != BERM_RANGE_LIVE || range->start_bytes != unit->start_bytes ||
        range->size_bytes != unit->size_bytes || range->is_slab != unit->first->is_small)
        return false;
    return !range->is_slab ||
           ((const berm_slab_t *)range->owner)->size_class == unit->first->size_class;
}

// The block of the state that a live block is in the place of, NULL if it goes. Ranges and blocks
// come in the same order, so `part` moves on with them.
static const berm_state_block_t *block_kept(part_t *part, const berm_block_t *block) {
    uint64_t start = block->addr - block->segment->base;
    while (part->first < part->end && part->first->start_bytes < start)
        part->first++;
    const berm_state_block_t *kept = part->first;
    if (kept == part->end || kept->start_bytes != start || kept->size_bytes != block->size_bytes ||
        kept->is_small != (block->slab != NULL))
        return NULL;
    bool is_home = block->slab == NULL || (block->slab->size_class == kept->size_class &&
                                           block->range->start_bytes == kept->home_bytes);
    return is_home ? kept : NULL;
}

typedef void (*block_fn)(void *context, const berm_block_t *block, const berm_state_block_t *kept);

static void slots_each(part_t *part, const berm_block_t *home, block_fn fn, void *context) {
    berm_slab_t *slab = home->slab;
    // The slab may go with its last block.
    uint32_t live[BERM_SLAB_SLOTS_MAX], count = 0;
    for (uint32_t slot = 0; slot < slab->slots; slot++)
        if (berm__slot_is_live(slab, slot))
            live[count++] = slot;
    berm_block_t block = *home;
    block.size_bytes = berm__size_class_bytes(slab->size_class);
    berm_addr_t base = slab->base;
    for (uint32_t i = 0; i < count; i++) {
        block.slot = live[i];
        block.addr = base + live[i] * block.size_bytes;
        fn(context, &block, block_kept(part, &block));
    }
}

// Calls `fn`, which may free it, for each live block of a segment. The pool's lock is held.
static void blocks_each(const berm_pool_state_t *state, berm_segment_t *segment, block_fn fn,
                        void *context) {
    part_t part = part_of(state, segment);
    berm_range_t *before = NULL, *range = segment->ranges.first;
    while (range != NULL) {
        bool is_live = berm__range_state(range) == BERM_RANGE_LIVE;
        uint64_t end = range->start_bytes + range->size_bytes;
        berm_block_t block = {.segment = segment,
                              .pool = segment->pool,
                              .slab = range->is_slab ? range->owner : NULL,
                              .range = range,
                              .size_bytes = range->size_bytes,
                              .addr = segment->base + range->start_bytes};
        if (is_live && range->is_slab)
            slots_each(&part, &block, fn, context);
        else if (is_live)
            fn(context, &block, block_kept(&part, &block));
        // What is freed joins its neighbours: the one before stays, whatever becomes of the range.
        range = before != NULL ? before->next : segment->ranges.first;
        if (range != NULL && range->start_bytes < end) {
            before = range;
            range = range->next;
        }
    }
}

// --- before: waiting ---------------------------------------------------------------------------

static berm_status_t awaited_finish(berm_pool_t *pool) {
    berm_status_t status = berm__deferred_process(pool, NULL);
    while (status == BERM_OK && atomic_load(&pool->deferred_bytes) > 0) {
        bool waited;
        status = berm__deferred_wait_oldest(pool, &waited);
        if (status == BERM_OK && !waited)
            status = BERM_ERROR_CAPTURE;
    }
    return status;
}

typedef struct use_look {
    const berm_stream_ref_t *stream;
    bool is_used;
} use_look_t;

static void use_look(void *context, const berm_block_t *block, const berm_state_block_t *kept) {
    use_look_t *look = context;
    if (kept != NULL)
        return;
    const berm_use_t *use = block->slab != NULL ? block->slab->uses : block->range->owner;
    for (; use != NULL; use = use->next)
        look->is_used |= use->slot == block->slot && use->stream == look->stream;
}

// Whether a block that goes was used on the stream.
static bool stream_is_used(const berm_group_t *group, const berm_pool_state_t *state,
                           const berm_stream_ref_t *stream) {
    use_look_t look = {stream, false};
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        berm__mutex_lock(&pool->lock);
        BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
            blocks_each(state, segment, use_look, &look);
        berm__mutex_unlock(&pool->lock);
    }
    return look.is_used;
}

// A pool without an order of its own has nothing free that is in use: its blocks that go wait for
// all work.
static berm_status_t uses_wait(berm_group_t *group, const berm_pool_state_t *state) {
    berm_device_t *device = group->device;
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
        if (status == BERM_OK && !berm__pool_has_order(pool) && pool->taken_blocks > 0)
            status = berm__device_synchronize(device);
    berm_stream_ref_t *stream = NULL;
    while (status == BERM_OK && (stream = berm__device_stream_next(device, stream)) != NULL)
        if (atomic_load(&stream->use_count) > 0 && stream_is_used(group, state, stream))
            status = berm__stream_wait(stream, berm__stream_ticket(stream));
    return status;
}

static berm_status_t quiesce(berm_group_t *group, const berm_pool_state_t *state) {
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        uint64_t capture = BERM_CAPTURE_NONE;
        berm_status_t status = BERM_OK;
        if (!pool->stream->is_retired)
            status = berm__capture_read(&group->device->gpu, pool->stream->handle, &capture);
        if (status != BERM_OK || capture != BERM_CAPTURE_NONE)
            return status != BERM_OK ? status : BERM_ERROR_CAPTURE;
    }
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        berm_status_t status = awaited_finish(pool);
        if (status != BERM_OK)
            return status;
    }
    return uses_wait(group, state);
}

// --- before: looking, and securing host memory -------------------------------------------------

// A restore under way. All pools of the group are locked.
typedef struct restore {
    const berm_pool_state_t *state;
    berm_state_delta_t *delta;
    berm_counts_t counts;
    berm_list_t slabs; // berm_slab_t.link: made, to be opened in this order
    size_t seen;       // blocks of the state whose segment was found
} restore_t;

// Whether a range may be cut: what is free, and what can be freed.
static bool range_can_go(const berm_range_t *range) {
    berm_range_state_t state = berm__range_state(range);
    if (state != BERM_RANGE_LIVE)
        return state == BERM_RANGE_FREE;
    return range->is_slab ? ((const berm_slab_t *)range->owner)->pins == 0 : !range->is_pinned;
}

// A slot that the state wants is live, or free.
static bool slots_can_come(const unit_t *unit, const berm_slab_t *slab) {
    for (const berm_state_block_t *block = unit->first; block < unit->end; block++)
        if (berm__slot_is_taken(slab, block->slot) && !berm__slot_is_live(slab, block->slot))
            return false;
    return true;
}

static berm_status_t unit_check(restore_t *restore, const unit_t *unit, const berm_range_t *range,
                                uint64_t *nodes) {
    if (unit_is_at(unit, range))
        return !range->is_slab || slots_can_come(unit, range->owner) ? BERM_OK : BERM_ERROR_STATE;
    uint64_t end = unit->start_bytes + unit->size_bytes;
    for (; range != NULL && range->start_bytes < end; range = range->next)
        if (!range_can_go(range))
            return BERM_ERROR_STATE;
    *nodes += 2;
    if (!unit->first->is_small)
        return BERM_OK;
    berm_slab_t *slab = berm__slab_record_make(unit->first->size_class);
    if (slab == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm__list_push_back(&restore->slabs, &slab->link);
    return BERM_OK;
}

static const berm_range_t *range_seek(const berm_range_t *range, uint64_t start_bytes) {
    while (range != NULL && range->start_bytes + range->size_bytes <= start_bytes)
        range = range->next;
    return range;
}

static berm_status_t pool_check(restore_t *restore, berm_pool_t *pool) {
    uint64_t nodes = 0;
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
        part_t part = part_of(restore->state, segment);
        restore->seen += (size_t)(part.end - part.first);
        const berm_range_t *range = segment->ranges.first;
        for (unit_t unit; unit_next(&part, &unit);) {
            range = range_seek(range, unit.start_bytes);
            berm_status_t status = unit_check(restore, &unit, range, &nodes);
            if (status != BERM_OK)
                return status;
        }
    }
    return berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + nodes)
               ? BERM_OK
               : BERM_ERROR_OUT_OF_HOST_MEMORY;
}

static berm_status_t delta_make(restore_t *restore, const berm_group_t *group) {
    size_t capacity = 0;
    BERM_LIST_EACH (const berm_pool_t, pool, &group->pools, group_link)
        capacity += pool->taken_blocks; // held ones too
    restore->delta->capacity = capacity;
    restore->delta->freed = berm__mem_alloc(capacity * sizeof *restore->delta->freed);
    return restore->delta->freed != NULL ? BERM_OK : BERM_ERROR_OUT_OF_HOST_MEMORY;
}

// --- then: changing ----------------------------------------------------------------------------

static void block_count_in(restore_t *restore, berm_device_t *device,
                           const berm_state_block_t *block) {
    berm__counts_alloc(&restore->counts, block->requested_bytes, block->size_bytes);
    berm__tag_alloc(device, block->tag, block->requested_bytes, block->size_bytes);
}

// The records of a block that is in its place.
static void block_write(const berm_state_block_t *block, berm_range_t *range) {
    if (block->is_small) {
        berm_slab_t *slab = range->owner;
        slab->slot[block->slot].requested = (uint16_t)(block->requested_bytes - 1);
        slab->slot[block->slot].index = (uint32_t)block->index;
        slab->slot[block->slot].tag = block->tag;
        return;
    }
    range->as.block.requested_bytes = block->requested_bytes;
    range->as.block.index = block->index;
    range->tag = block->tag;
}

// Frees a block that goes; notes every one.
static void block_go(void *context, const berm_block_t *block, const berm_state_block_t *kept) {
    restore_t *restore = context;
    berm_state_freed_t *to = &restore->delta->freed[restore->delta->count++];
    *to = (berm_state_freed_t){.addr = block->addr, .occupied_bytes = block->size_bytes};
    if (kept != NULL) {
        to->requested_bytes = block->slab != NULL
                                  ? (uint64_t)block->slab->slot[block->slot].requested + 1
                                  : block->range->as.block.requested_bytes;
        to->tag = block->slab != NULL ? block->slab->slot[block->slot].tag : block->range->tag;
        return;
    }
    berm_freed_t freed;
    berm__pool_free_passed(block, &freed);
    to->requested_bytes = freed.requested_bytes;
    to->tag = freed.tag;
}

// The slots that come in slabs which are there, before others go, so that none of them empties.
static void slots_come(const restore_t *restore, berm_pool_t *pool, berm_segment_t *segment) {
    part_t part = part_of(restore->state, segment);
    const berm_range_t *range = segment->ranges.first;
    for (unit_t unit; unit_next(&part, &unit);) {
        range = range_seek(range, unit.start_bytes);
        if (!unit.first->is_small || !unit_is_at(&unit, range))
            continue;
        berm_slab_t *slab = range->owner;
        for (const berm_state_block_t *block = unit.first; block < unit.end; block++)
            if (!berm__slot_is_taken(slab, block->slot))
                berm__slot_take(pool, slab, block->slot, NULL, BERM_SLOT_CACHED);
    }
}

static berm_slab_t *slab_pop(restore_t *restore) {
    berm_slab_t *slab = BERM_CONTAINER_OF(restore->slabs.next, berm_slab_t, link);
    berm__list_remove(&slab->link);
    return slab;
}

static void slab_come(restore_t *restore, berm_pool_t *pool, const unit_t *unit,
                      const berm_place_t *place) {
    berm_slab_t *slab = slab_pop(restore);
    berm__slab_open(slab, place);
    for (const berm_state_block_t *block = unit->first; block < unit->end; block++)
        berm__slot_take(pool, slab, block->slot, NULL, BERM_SLOT_LIVE);
}

static void large_come(berm_pool_t *pool, const berm_place_t *place) {
    place->range->owner = NULL;
    place->range->mappings = 0;
    berm__segment_cell_write(place->segment, place->range->start_bytes, (uintptr_t)place->range);
    pool->taken_blocks++;
}

// Units that are not there yet, cut out of what is free by now; and the records of all.
static void units_come(restore_t *restore, berm_pool_t *pool, berm_segment_t *segment) {
    part_t part = part_of(restore->state, segment);
    berm_range_t *range = segment->ranges.first;
    for (unit_t unit; unit_next(&part, &unit);) {
        range = (berm_range_t *)range_seek(range, unit.start_bytes);
        if (!unit_is_at(&unit, range)) {
            range = berm__ranges_carve(&segment->ranges, range, unit.start_bytes, unit.size_bytes,
                                       BERM_RANGE_LIVE);
            const berm_place_t place = {segment, range};
            if (unit.first->is_small)
                slab_come(restore, pool, &unit, &place);
            else
                large_come(pool, &place);
        }
        for (const berm_state_block_t *block = unit.first; block < unit.end; block++) {
            block_write(block, range);
            block_count_in(restore, pool->device, block);
            if (block->is_small)
                __atomic_store_n(&((berm_slab_t *)range->owner)->slot[block->slot].state,
                                 BERM_SLOT_LIVE, __ATOMIC_RELEASE);
        }
    }
}

static void pool_change(restore_t *restore, berm_pool_t *pool) {
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        slots_come(restore, pool, segment);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        blocks_each(restore->state, segment, block_go, restore);
    (void)berm__small_flush(pool);
    BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link)
        units_come(restore, pool, segment);
}

static berm_status_t locked_restore(restore_t *restore, berm_group_t *group) {
    berm_status_t status = BERM_OK;
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
        if (status == BERM_OK)
            status = pool_check(restore, pool);
    if (status == BERM_OK && restore->seen != restore->state->count)
        status = BERM_ERROR_STATE;
    if (status == BERM_OK)
        status = delta_make(restore, group);
    if (status != BERM_OK)
        return status;
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
        pool_change(restore, pool);
    BERM_INSIST(restore->delta->count <= restore->delta->capacity,
                "no more blocks live than are taken");
    return BERM_OK;
}

// All frees first, so that peaks are those of the states before and after.
static void counts_merge(restore_t *restore, berm_device_t *device) {
    for (size_t i = 0; i < restore->delta->count; i++) {
        const berm_state_freed_t *freed = &restore->delta->freed[i];
        berm__counts_free_now(device, freed->requested_bytes, freed->occupied_bytes);
        berm__tag_free(device, freed->tag, freed->requested_bytes, freed->occupied_bytes);
    }
    berm__counts_merge(&restore->counts, device);
}

berm_status_t berm__pool_state_restore(berm_group_t *group, const berm_pool_state_t *state,
                                       berm_state_delta_t *delta) {
    berm_device_t *device = group->device;
    restore_t restore = {.state = state, .delta = delta};
    berm__list_init(&restore.slabs);
    *delta = (berm_state_delta_t){0};
    berm_status_t status = quiesce(group, state);
    if (status != BERM_OK)
        return status;
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) // by number
        if (pool->group == group)
            berm__mutex_lock_also(&pool->lock);
    status = locked_restore(&restore, group);
    if (status == BERM_OK)
        counts_merge(&restore, device);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        if (pool->group == group)
            berm__mutex_unlock_also(&pool->lock);
    while (!berm__list_is_empty(&restore.slabs))
        berm__slab_record_free(slab_pop(&restore));
    return status;
}

void berm__state_delta_destroy(berm_state_delta_t *delta) {
    berm__mem_free(delta->freed, delta->capacity * sizeof *delta->freed);
}
