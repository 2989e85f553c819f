// SPDX-License-Identifier: Apache-2.0
// "What is this address": for people and debuggers. It empties the threads' caches and may walk a
// segment's ranges.
#include <string.h>

#include "berm_introspect.h"
#include "front/share.h"
#include "front/tag.h"
#include "policy/cache.h"

berm_address_kind_t berm__range_kind(const berm_range_t *range) {
    switch ((berm_range_state_t)range->state) {
    case BERM_RANGE_LIVE:
        return BERM_ADDRESS_LIVE;
    case BERM_RANGE_AWAITED:
        return BERM_ADDRESS_AWAITED;
    case BERM_RANGE_HELD:
        return BERM_ADDRESS_HELD;
    case BERM_RANGE_FREE:
        return BERM_ADDRESS_FREE;
    case BERM_RANGE_POISONED:
        return BERM_ADDRESS_POISONED;
    case BERM_RANGE_STALE:
        return BERM_ADDRESS_STALE;
    default:
        return BERM_ADDRESS_UNMAPPED;
    }
}

static void slot_describe(const berm_slab_t *slab, uint64_t offset, berm_whatis_t *whatis) {
    uint64_t class_bytes = berm__size_class_bytes(slab->size_class);
    uint64_t inside = offset - slab->range->start_bytes;
    uint32_t slot = (uint32_t)(inside / class_bytes);
    whatis->is_small = 1;
    whatis->kind = BERM_ADDRESS_FREE;
    whatis->block = berm__slot_addr(slab, slot);
    whatis->offset_bytes = inside % class_bytes;
    whatis->block_bytes = class_bytes;
    if (slot >= slab->slots) { // the tail that no slot covers
        whatis->block_bytes = slab->range->size_bytes - slot * class_bytes;
        return;
    }
    bool is_live = berm__slot_is_live(slab, slot);
    if (is_live) {
        whatis->kind = BERM_ADDRESS_LIVE;
        whatis->requested_bytes = (uint64_t)slab->slot[slot].requested + 1;
        whatis->allocation_index = slab->slot[slot].index;
        whatis->tag = berm__tag_name(slab->slot[slot].tag);
    } else if (berm__slot_is_taken(slab, slot)) {
        bool is_held = slab->slot[slot].state == BERM_SLOT_HELD;
        whatis->kind = is_held ? BERM_ADDRESS_HELD : BERM_ADDRESS_AWAITED;
    }
}

static void address_describe(const berm_segment_t *segment, berm_addr_t addr,
                             berm_whatis_t *whatis) {
    uint64_t offset = addr - segment->base;
    const berm_pool_t *pool = segment->pool;
    const berm_range_t *range = berm__ranges_at(&segment->ranges, offset);
    whatis->device = pool->device->gpu.ordinal;
    if (pool->group != NULL) { // else a spare one, which has no block
        whatis->stream = pool->stream->handle;
        whatis->pool = pool->group->id;
        whatis->is_released = pool->group->use_count == 0;
    }
    whatis->kind = berm__range_kind(range);
    whatis->block = segment->base + range->start_bytes;
    whatis->offset_bytes = offset - range->start_bytes;
    whatis->block_bytes = range->size_bytes;
    if (range->is_slab) {
        slot_describe(range->owner, offset, whatis);
    } else if (range->state == BERM_RANGE_LIVE) {
        whatis->requested_bytes = range->as.block.requested_bytes;
        whatis->allocation_index = range->as.block.index;
        whatis->tag = berm__tag_name(range->tag);
    }
}

static void import_describe(berm_addr_t addr, berm_whatis_t *whatis) {
    berm_import_t *import;
    berm_device_t *device = berm__import_find(addr, &import);
    if (device == NULL)
        return;
    whatis->kind = BERM_ADDRESS_IMPORTED;
    whatis->device = device->gpu.ordinal;
    // In front of the block there may be what else lies in its first page.
    whatis->block = import->addr != 0 && addr >= import->addr ? import->addr : import->base;
    whatis->offset_bytes = addr - whatis->block;
    whatis->block_bytes = import->size_bytes - (whatis->block - import->base);
    whatis->requested_bytes = import->requested_bytes;
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm_whatis(berm_addr_t addr, berm_whatis_t *whatis) {
    bool is_running;
    if (whatis == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_whatis: whatis is NULL");
    if (whatis->size != sizeof *whatis)
        return berm__error_set(BERM_ERROR_VERSION,
                               "berm_whatis: a struct of %zu bytes, this library knows %zu",
                               whatis->size, sizeof *whatis);
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK)
        return status;
    *whatis = (berm_whatis_t){
        .size = sizeof *whatis, .device = -1, .stream = BERM_STREAM_NONE, .tag = berm__tag_name(0)};
    berm_device_t *device;
    berm_segment_t *segment = berm__heap_segment_enter(addr, &device);
    if (segment == NULL) {
        import_describe(addr, whatis);
        return BERM_OK;
    }
    berm__device_freeze(device);
    address_describe(segment, addr, whatis);
    berm__device_thaw(device);
    berm__mutex_unlock(&device->lock);
    return BERM_OK;
}

// The request of the live block that begins at the offset; 0: there is none. No lock: the block is
// the caller's, so what is looked at stays.
static uint64_t requested_at(const berm_segment_t *segment, uint64_t offset) {
    uintptr_t value = berm__segment_cell_read(segment, offset);
    if ((value & BERM_CELL_IS_SLAB) == 0) {
        const berm_range_t *range = (const berm_range_t *)value;
        bool is_block = range != NULL && range->start_bytes == offset &&
                        berm__range_state(range) == BERM_RANGE_LIVE;
        return is_block ? range->as.block.requested_bytes : 0;
    }
    const berm_slab_t *slab = (const berm_slab_t *)(value - BERM_CELL_IS_SLAB);
    berm_addr_t addr = segment->base + offset;
    uint32_t slot = berm__size_class_slot_of(slab->size_class, addr - slab->base);
    bool is_block =
        slot < slab->slots && berm__slot_addr(slab, slot) == addr && berm__slot_is_live(slab, slot);
    return is_block ? (uint64_t)slab->slot[slot].requested + 1 : 0;
}

berm_status_t berm_block_read(berm_addr_t addr, uint64_t *requested_bytes, int *device,
                              berm_stream_t *stream) {
    bool is_running;
    berm_status_t status = berm__heap_peek(&is_running);
    if (BERM_UNLIKELY(status != BERM_OK))
        return status;
    const berm_segment_t *segment = is_running ? berm__addr_dir_find(&berm__heap.dir, addr) : NULL;
    uint64_t bytes = BERM_LIKELY(segment != NULL) ? requested_at(segment, addr - segment->base) : 0;
    if (BERM_UNLIKELY(bytes == 0))
        return berm__error_set(BERM_ERROR_ADDRESS_UNKNOWN,
                               "berm_block_read: no live block begins at 0x%llx",
                               (unsigned long long)addr);
    const berm_pool_t *pool = segment->pool;
    if (requested_bytes != NULL)
        *requested_bytes = bytes;
    if (device != NULL)
        *device = pool->device->gpu.ordinal;
    if (stream != NULL)
        *stream = pool->stream->handle;
    return BERM_OK;
}
