// SPDX-License-Identifier: Apache-2.0
// Blocks of a pool, from their address to their free: see pool.h. What other streams may still use
// goes on to deferred.c.
//
// Locks: the pool's; where a free has to wait, the device's.
#include "policy/pool.h"

#include "base/bits.h"

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
    *freed = (berm_freed_t){
        .requested_bytes = block->slab != NULL
                               ? (uint64_t)block->slab->slot[block->slot].requested + 1
                               : block->range->as.block.requested_bytes,
        .occupied_bytes = block->size_bytes,
        .tag = block->slab != NULL ? block->slab->slot[block->slot].tag : block->range->tag};
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

void berm__pool_free_passed(const berm_block_t *block, berm_freed_t *freed) {
    (void)block_claim(block, freed);
    berm_use_t *uses = uses_detach(block);
    for (berm_use_t *next; uses != NULL; uses = next) {
        next = uses->next;
        berm__use_give(block->pool, uses);
    }
    block_give(block);
    berm__pool_touch(block->pool);
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
                                      berm_stream_ref_t *stream, berm_freed_t *freed) {
    berm_block_t block;
    berm_use_t *uses = NULL;
    berm__mutex_lock(&pool->device->lock);
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK && !block_claim(&block, freed))
        status = BERM_ERROR_DOUBLE_FREE;
    if (status == BERM_OK) {
        uses = uses_detach(&block);
        berm_stream_ref_t *own = block_waits_for_own(&block) ? pool->stream : stream;
        bool is_exported =
            block.slab == NULL && berm__range_is_exported(pool, segment, block.range);
        berm__mutex_unlock(&pool->lock);
        if (uses_wait(pool->device, uses, stream) != BERM_OK ||
            (own != stream && uses_wait(pool->device, NULL, own) != BERM_OK) ||
            (is_exported && !berm__device_edits_are_allowed(pool->device)))
            status = BERM_ERROR_OUT_OF_HOST_MEMORY; // better kept than reused under running work
        berm__mutex_lock(&pool->lock);
        if (status != BERM_OK) {
            block_restore(&block, uses);
            uses = NULL;
        } else {
            block_give(&block);
            berm__pool_touch(pool);
            berm__counts_free_now(pool->device, freed->requested_bytes, freed->occupied_bytes);
            berm__tag_free(pool->device, freed->tag, freed->requested_bytes, freed->occupied_bytes);
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
