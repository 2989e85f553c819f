// SPDX-License-Identifier: Apache-2.0
// berm_block_grow: from an address to a request for the bytes behind its block. Where pages are
// missing it is served like any other that finds nothing free (slow.c); policy/resizable.c does the
// rest. Locks: the device's, and the pool's where its blocks are looked at.
#include "base/bits.h"
#include "front/heap.h"
#include "front/share.h"
#include "policy/resizable.h"

// A pinned block; nothing else here gives it, the driver least of all.
#define STATUS_PINNED BERM_ERROR_NOT_EXPORTABLE

static berm_status_t grow_fail(berm_status_t status, berm_addr_t addr, uint64_t size_bytes) {
    const char *text = berm_status_text(status);
    if (status == STATUS_PINNED) { // block_check
        status = BERM_ERROR_STATE;
        text = "it is pinned, and what it is registered with does not grow: unpin it first";
    } else if (status == BERM_ERROR_OUT_OF_ADDRESSES) {
        text = "there are no addresses left behind it: allocate a larger one, and copy";
    } else if (status == BERM_ERROR_POOL_UNKNOWN) {
        text = "its pool was released";
    }
    return berm__error_set(status, "berm_block_grow, address 0x%llx to %llu bytes: %s",
                           (unsigned long long)addr, (unsigned long long)size_bytes, text);
}

// Whether a live block may grow; STATUS_PINNED: it is pinned. The pool's lock is held.
static berm_status_t block_check(const berm_block_t *block) {
    const berm_pool_t *pool = block->pool;
    if (!berm__pool_is_resizable(pool))
        return BERM_ERROR_NOT_RESIZABLE;
    if (pool->group->use_count == 0)
        return BERM_ERROR_POOL_UNKNOWN;
    return block->range->is_pinned ? STATUS_PINNED : BERM_OK;
}

static berm_status_t block_look(berm_segment_t *segment, berm_addr_t addr, berm_block_t *block) {
    berm_pool_t *pool = segment->pool;
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, block);
    if (status == BERM_OK)
        status = block_check(block);
    berm__mutex_unlock(&pool->lock);
    return status;
}

berm_status_t berm__heap_grow_locked(berm_device_t *device, const berm_want_t *want) {
    berm_block_t block;
    if (want->grown_bytes > device->gpu.memory_bytes)
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    if (want->grown_bytes > device->limit_bytes && want->grown_bytes > device->phys.reserved_bytes)
        return BERM_ERROR_LIMIT;
    // The lock was given back since: the segment stays, the block may be another.
    berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, want->growing);
    if (segment == NULL)
        return BERM_ERROR_ADDRESS_UNKNOWN;
    berm_status_t status = block_look(segment, want->growing, &block);
    return status == BERM_OK ? berm__resizable_grow(segment, want->growing, want->grown_bytes)
                             : status;
}

// The request; its size_bytes is 0 where there is nothing to do. The device's lock is held.
static berm_status_t want_fill(berm_segment_t *segment, berm_addr_t addr, uint64_t size_bytes,
                               berm_want_t *want) {
    berm_block_t block;
    const berm_pool_t *pool = segment->pool;
    berm_status_t status = block_look(segment, addr, &block);
    if (status != BERM_OK)
        return status;
    uint64_t start = addr - segment->base, requested = block.range->as.block.requested_bytes;
    *want = (berm_want_t){.id = pool->group->id,
                          .size_bytes = size_bytes > requested ? size_bytes - requested : 0,
                          .alignment_bytes = BERM_RANGE_UNIT_BYTES,
                          .ordinal = pool->device->gpu.ordinal,
                          .stream = pool->stream->handle,
                          .growing = addr,
                          .grown_bytes = size_bytes};
    // More than the device has is named so, whatever addresses there are.
    bool has_room = start + berm__resizable_occupied(size_bytes) <= segment->span_bytes;
    return has_room || size_bytes > pool->device->gpu.memory_bytes ? BERM_OK
                                                                   : BERM_ERROR_OUT_OF_ADDRESSES;
}

berm_status_t berm__heap_grow(berm_addr_t addr, uint64_t size_bytes) {
    berm_device_t *device;
    berm_want_t want;
    berm_addr_t unused;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL)
        return grow_fail(berm__import_or_unknown(addr), addr, size_bytes);
    berm_status_t status = want_fill(segment, addr, size_bytes, &want);
    berm__mutex_unlock(&device->lock);
    if (status != BERM_OK)
        return grow_fail(status, addr, size_bytes);
    if (want.size_bytes == 0)
        return BERM_OK;
    status = berm__heap_alloc_slow(&want, &unused);
    if (status != BERM_OK && !berm__status_has_report(status))
        status = grow_fail(status, addr, size_bytes);
    return berm__audit_after(status);
}
