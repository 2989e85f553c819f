// SPDX-License-Identifier: Apache-2.0
// Segments and primitive blocks of the GMLake model; views over them are gmlake_views.c, the order
// in which things are tried is gmlake.c.
//
// Layout: a segment is one reservation, each granule of it a handle of its own, mapped at its home
// address for as long as the segment lives. Blocks tile a segment by prev and next, in whole
// granules, and are found by address in `blocks`.
// Bounds: search, carve and release O(log n) plus the views that map the granules concerned.
// Locks: none; one thread. May fail: as the driver does; a refused segment leaves nothing behind.
#include "stress/baselines/gmlake_space.h"

#include <stdlib.h>

#include "base/bits.h"

void gmlake_space_init(gmlake_space_t *space) {
    ordered_set_init(&space->segments);
    ordered_set_init(&space->blocks);
    ordered_set_init(&space->free);
    ordered_set_init(&space->views);
    berm__list_init(&space->idle_views);
}

bool gmlake_space_secure(gmlake_space_t *space, size_t count) {
    while (space->spare_count < count) {
        gmlake_block_t *block = calloc(1, sizeof *block);
        if (block == NULL)
            return false;
        block->next = space->spares;
        space->spares = block;
        space->spare_count++;
    }
    return true;
}

static gmlake_block_t *spare_take(gmlake_space_t *space) {
    gmlake_block_t *block = space->spares;
    space->spares = block->next;
    space->spare_count--;
    *block = (gmlake_block_t){0};
    return block;
}

bool gmlake_wait(gmlake_space_t *space, void *stream) {
    space->host_waits++;
    return stress_driver()->stream_synchronize(stream) == BERM_CU_SUCCESS;
}

// --- finding -------------------------------------------------------------------------------------

gmlake_block_t *gmlake_block_at(const gmlake_space_t *space, uint64_t addr) {
    ordered_node_t *node = ordered_set_below(&space->blocks, (ordered_key_t){addr + 1, 0, 0});
    return BERM_CONTAINER_OF(node, gmlake_block_t, where);
}

static gmlake_segment_t *segment_at(const gmlake_space_t *space, uint64_t addr) {
    ordered_node_t *node = ordered_set_below(&space->segments, (ordered_key_t){addr + 1, 0, 0});
    return BERM_CONTAINER_OF(node, gmlake_segment_t, node);
}

gmlake_granule_t *gmlake_granule_at(const gmlake_space_t *space, uint64_t addr) {
    gmlake_segment_t *segment = segment_at(space, addr);
    return &segment->granules[(addr - segment->addr) / space->granule_bytes];
}

static void granules_set_used(gmlake_space_t *space, const gmlake_block_t *block, bool is_used) {
    gmlake_granule_t *granules = gmlake_granule_at(space, block->addr);
    for (uint64_t i = 0; i < block->size_bytes / space->granule_bytes; i++)
        gmlake_granule_set_used(space, &granules[i], is_used);
}

// --- blocks --------------------------------------------------------------------------------------

static void block_insert(gmlake_space_t *space, gmlake_block_t *block) {
    ordered_set_insert(&space->blocks, &block->where, (ordered_key_t){block->addr, 0, 0});
}

static void free_insert(gmlake_space_t *space, gmlake_block_t *block) {
    block->state = GMLAKE_FREE;
    ordered_set_insert(&space->free, &block->node,
                       gmlake_key(block->stream, block->size_bytes, block->addr));
}

// Cuts a block that is not in `free`; the new upper part is in `blocks` and not in `free`.
static gmlake_block_t *block_cut(gmlake_space_t *space, gmlake_block_t *block,
                                 uint64_t size_bytes) {
    gmlake_block_t *high = spare_take(space);
    high->addr = block->addr + size_bytes;
    high->size_bytes = block->size_bytes - size_bytes;
    high->stream = block->stream;
    high->prev = block;
    high->next = block->next;
    if (high->next != NULL)
        high->next->prev = high;
    block->next = high;
    block->size_bytes = size_bytes;
    block_insert(space, high);
    return high;
}

gmlake_block_t *gmlake_block_carve(gmlake_space_t *space, uint64_t addr, uint64_t size_bytes,
                                   gmlake_state_t state) {
    gmlake_block_t *block = gmlake_block_at(space, addr);
    ordered_set_remove(&space->free, &block->node);
    if (addr > block->addr) {
        gmlake_block_t *high = block_cut(space, block, addr - block->addr);
        free_insert(space, block);
        block = high;
    }
    if (size_bytes < block->size_bytes)
        free_insert(space, block_cut(space, block, size_bytes));
    block->state = state;
    granules_set_used(space, block, true);
    return block;
}

// Takes the block above into `block`; neither is in `free`.
static void block_join(gmlake_space_t *space, gmlake_block_t *block, gmlake_block_t *above) {
    ordered_set_remove(&space->blocks, &above->where);
    block->size_bytes += above->size_bytes;
    block->next = above->next;
    if (block->next != NULL)
        block->next->prev = block;
    free(above);
}

void gmlake_block_release(gmlake_space_t *space, gmlake_block_t *block) {
    granules_set_used(space, block, false);
    if (block->next != NULL && block->next->state == GMLAKE_FREE) {
        ordered_set_remove(&space->free, &block->next->node);
        block_join(space, block, block->next);
    }
    if (block->prev != NULL && block->prev->state == GMLAKE_FREE) {
        gmlake_block_t *prev = block->prev;
        ordered_set_remove(&space->free, &prev->node);
        block_join(space, prev, block);
        block = prev;
    }
    block->requested_bytes = 0;
    free_insert(space, block);
}

// --- segments ------------------------------------------------------------------------------------

static void segment_undo(gmlake_space_t *space, gmlake_segment_t *segment, size_t created,
                         size_t mapped) {
    const stress_driver_t *d = stress_driver();
    if (mapped > 0)
        (void)d->mem_unmap(segment->addr, mapped * space->granule_bytes);
    for (size_t i = 0; i < created; i++) {
        (void)d->mem_release(segment->granules[i].handle);
        free(segment->granules[i].views);
    }
    if (segment->addr != 0)
        (void)d->address_free(segment->addr, segment->granule_count * space->granule_bytes);
    free(segment->granules);
    free(segment);
}

// Addresses and memory of a segment; destroys it when refused.
static bool segment_back(gmlake_space_t *space, gmlake_segment_t *segment) {
    const stress_driver_t *d = stress_driver();
    const berm_cu_mem_access_t access = {space->prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    uint64_t bytes = space->granule_bytes;
    size_t count = segment->granule_count, created = 0, mapped = 0;
    berm_cu_result_t result = d->address_reserve(&segment->addr, count * bytes, 0, 0, 0);
    if (result != BERM_CU_SUCCESS)
        segment->addr = 0;
    for (; created < count && result == BERM_CU_SUCCESS; created += result == BERM_CU_SUCCESS)
        result = d->mem_create(&segment->granules[created].handle, bytes, &space->prop, 0);
    for (; mapped < count && result == BERM_CU_SUCCESS; mapped += result == BERM_CU_SUCCESS) {
        segment->granules[mapped].home = segment->addr + mapped * bytes;
        result = d->mem_map(segment->granules[mapped].home, bytes, 0,
                            segment->granules[mapped].handle, 0);
    }
    if (result == BERM_CU_SUCCESS)
        result = d->set_access(segment->addr, count * bytes, &access, 1);
    space->is_driver_failing = result != BERM_CU_SUCCESS && result != BERM_CU_OUT_OF_MEMORY;
    if (result == BERM_CU_SUCCESS)
        return true;
    segment_undo(space, segment, created, mapped);
    return false;
}

gmlake_block_t *gmlake_segment_create(gmlake_space_t *space, uint64_t size_bytes, void *stream) {
    uint64_t bytes = berm__align_up(size_bytes, space->granule_bytes);
    if (bytes > space->limit_bytes || space->reserved_bytes > space->limit_bytes - bytes ||
        !gmlake_space_secure(space, 1))
        return NULL;
    gmlake_segment_t *segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->granule_count = bytes / space->granule_bytes;
    segment->granules = calloc(segment->granule_count, sizeof *segment->granules);
    if (segment->granules == NULL) {
        free(segment);
        return NULL;
    }
    if (!segment_back(space, segment))
        return NULL;
    ordered_set_insert(&space->segments, &segment->node, (ordered_key_t){segment->addr, 0, 0});
    gmlake_block_t *block = spare_take(space);
    block->addr = segment->addr;
    block->size_bytes = bytes;
    block->stream = stream;
    block_insert(space, block);
    free_insert(space, block);
    space->reserved_bytes += bytes;
    return block;
}

static void segment_destroy(gmlake_space_t *space, gmlake_segment_t *segment) {
    for (size_t i = 0; i < segment->granule_count; i++)
        gmlake_views_forget(space, &segment->granules[i]);
    ordered_set_remove(&space->segments, &segment->node);
    space->reserved_bytes -= segment->granule_count * space->granule_bytes;
    segment_undo(space, segment, segment->granule_count, segment->granule_count);
}

static bool block_is_segment(const gmlake_block_t *block) {
    return block->prev == NULL && block->next == NULL;
}

void gmlake_segments_release(gmlake_space_t *space) {
    for (ordered_node_t *at = ordered_set_first(&space->free); at != NULL;) {
        gmlake_block_t *block = BERM_CONTAINER_OF(at, gmlake_block_t, node);
        at = ordered_node_next(at);
        if (!block_is_segment(block) || !gmlake_wait(space, block->stream))
            continue;
        ordered_set_remove(&space->free, &block->node);
        ordered_set_remove(&space->blocks, &block->where);
        segment_destroy(space, segment_at(space, block->addr));
        free(block);
    }
}

uint64_t gmlake_segments_releasable(const gmlake_space_t *space) {
    uint64_t sum_bytes = 0;
    for (ordered_node_t *at = ordered_set_first(&space->free); at != NULL;
         at = ordered_node_next(at)) {
        const gmlake_block_t *block = BERM_CONTAINER_OF(at, gmlake_block_t, node);
        sum_bytes += block_is_segment(block) ? block->size_bytes : 0;
    }
    return sum_bytes;
}

void gmlake_space_destroy(gmlake_space_t *space) {
    for (ordered_node_t *at = ordered_set_first(&space->blocks); at != NULL;
         at = ordered_node_next(at))
        (void)gmlake_wait(space, BERM_CONTAINER_OF(at, gmlake_block_t, where)->stream);
    for (ordered_node_t *at; (at = ordered_set_first(&space->segments)) != NULL;)
        segment_destroy(space, BERM_CONTAINER_OF(at, gmlake_segment_t, node));
    for (ordered_node_t *at; (at = ordered_set_first(&space->blocks)) != NULL;) {
        ordered_set_remove(&space->blocks, at);
        free(BERM_CONTAINER_OF(at, gmlake_block_t, where));
    }
    while (space->spares != NULL)
        free(spare_take(space));
}

// --- audit ---------------------------------------------------------------------------------------

static int block_audit(const gmlake_space_t *space, const gmlake_block_t *block) {
    const gmlake_block_t *next = block->next;
    if (next != NULL && (next->prev != block || block->addr + block->size_bytes != next->addr))
        return 1;
    if (next != NULL && block->state == GMLAKE_FREE && next->state == GMLAKE_FREE)
        return 2;
    if (block->node.is_member != (block->state == GMLAKE_FREE))
        return 3;
    const gmlake_granule_t *granules = gmlake_granule_at(space, block->addr);
    for (uint64_t i = 0; i < block->size_bytes / space->granule_bytes; i++)
        if (granules[i].is_used != (block->state != GMLAKE_FREE) ||
            granules[i].home != block->addr + i * space->granule_bytes)
            return 4;
    return 0;
}

int gmlake_space_audit(const gmlake_space_t *space, stress_figures_t *sums) {
    if (!ordered_set_is_valid(&space->blocks) || !ordered_set_is_valid(&space->free))
        return 3;
    for (ordered_node_t *at = ordered_set_first(&space->blocks); at != NULL;
         at = ordered_node_next(at)) {
        const gmlake_block_t *block = BERM_CONTAINER_OF(at, gmlake_block_t, where);
        int fault = block_audit(space, block);
        if (fault != 0)
            return fault;
        sums->reserved_bytes += block->size_bytes;
        sums->allocated_bytes += block->state == GMLAKE_FREE ? 0 : block->size_bytes;
    }
    return 0;
}
