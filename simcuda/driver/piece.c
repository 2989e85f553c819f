// SPDX-License-Identifier: Apache-2.0
// Pieces of memory pools: which free one a stream may have, growth, and giving areas back.
//
// A free piece belongs to the point of the stream where it was freed. A stream may have it if it
// is that stream; if it follows that point; if the point has been passed (opportunistic); or if it
// is made to wait for it (internal dependency, only where nothing else fits). Of those that may be
// had the smallest is taken, the lowest of equals. Pools grow by 32 MiB or more.
//
// Bound: O(free pieces) to take one. Locks: the state's. May fail: taking, with nothing changed.
// Invariants: (1) pieces of an area cover it; (2) no two free neighbours have nothing to wait for.
#include <stdlib.h>

#include "backing.h"
#include "pool.h"

#define PIECE_UNIT_BYTES UINT64_C(512)
#define AREA_BYTES       BERM_MIB(32)

enum {
    FOLLOW_EVENTS,
    OPPORTUNISTIC,
    INTERNAL
};

static sim_piece_t *piece_of(sim_node_t *node) {
    return node != NULL ? BERM_CONTAINER_OF(node, sim_piece_t, node) : NULL;
}

static sim_piece_t *piece_of_free(berm_list_t *node) {
    return BERM_CONTAINER_OF(node, sim_piece_t, free_node);
}

static sim_piece_t *piece_create(sim_pool_t *pool, sim_area_t *area, uint64_t addr,
                                 uint64_t bytes) {
    sim_piece_t *piece = calloc(1, sizeof(*piece));
    if (piece == NULL)
        return NULL;
    piece->pool = pool;
    piece->area = area;
    piece->size_bytes = bytes;
    sim_tree_insert(&pool->pieces, &piece->node, addr);
    berm__list_push_back(&pool->free_pieces, &piece->free_node);
    return piece;
}

static void piece_forget(sim_piece_t *piece) {
    if (piece->freed != NULL)
        sim_mark_drop(piece->freed);
    sim_tree_remove(&piece->pool->pieces, &piece->node);
    berm__list_remove(&piece->free_node);
    free(piece);
}

// --- joining free neighbours ---------------------------------------------------------------------

static void piece_settle(sim_piece_t *piece) {
    if (piece->freed == NULL || sim.host_clock[piece->slot] < piece->count)
        return;
    sim_mark_drop(piece->freed);
    piece->freed = NULL;
}

// Joins the free piece with the next one where they may be had alike.
static bool piece_join_next(sim_piece_t *piece) {
    sim_piece_t *next = piece_of(sim_tree_next(&piece->node));
    if (next == NULL || next->area != piece->area || next->mapping != NULL)
        return false;
    bool is_same =
        (piece->freed == NULL && next->freed == NULL) ||
        (piece->freed != NULL && next->freed != NULL && piece->stream_id == next->stream_id);
    if (!is_same)
        return false;
    piece->size_bytes += next->size_bytes;
    if (next->freed != NULL && next->count > piece->count) { // the later of one stream
        sim_mark_t *later = next->freed;
        next->freed = piece->freed;
        piece->freed = later;
        piece->count = next->count;
    }
    piece_forget(next);
    return true;
}

static void pool_settle(sim_pool_t *pool) {
    for (berm_list_t *at = pool->free_pieces.next; at != &pool->free_pieces; at = at->next)
        piece_settle(piece_of_free(at));
    for (sim_node_t *node = sim_tree_first(&pool->pieces); node != NULL;
         node = sim_tree_next(node)) {
        sim_piece_t *piece = piece_of(node);
        while (piece->mapping == NULL && piece_join_next(piece))
            continue;
    }
}

// --- areas ---------------------------------------------------------------------------------------

static sim_area_t *area_create(sim_pool_t *pool, uint64_t bytes) {
    berm_cu_mem_prop_t prop = sim_device_prop(pool->device);
    int result;
    sim_area_t *area = calloc(1, sizeof(*area));
    if (area == NULL)
        return NULL;
    area->size_bytes = bytes;
    area->memory = sim_memory_create(bytes, &prop, false, NULL, &result);
    if (area->memory != NULL)
        area->addr = sim_address_take(bytes, sim.config.granule_bytes);
    bool is_mapped = area->addr != 0 && sim_backing_map(area->addr, bytes, area->memory, 0,
                                                        BERM_CU_MEM_ACCESS_READWRITE);
    if (is_mapped && piece_create(pool, area, area->addr, bytes) != NULL) {
        area->memory->refs = 1; // the area's
        berm__list_push_back(&pool->areas, &area->node);
        pool->reserved += bytes;
        pool->reserved_high = berm__max_u64(pool->reserved_high, pool->reserved);
        sim_ledger_pool(pool->device, bytes);
        return area;
    }
    if (is_mapped)
        sim_backing_unmap(area->addr, bytes);
    if (area->addr != 0)
        sim_address_give(area->addr, bytes);
    if (area->memory != NULL)
        sim_memory_settle(area->memory);
    free(area);
    return NULL;
}

static void area_destroy(sim_pool_t *pool, sim_area_t *area) {
    sim_node_t *node;
    sim_effects_run();
    while ((node = sim_tree_ceil(&pool->pieces, area->addr)) != NULL &&
           piece_of(node)->area == area)
        piece_forget(piece_of(node));
    pool->reserved -= area->size_bytes;
    sim_ledger_pool(pool->device, 0 - area->size_bytes);
    sim_backing_unmap(area->addr, area->size_bytes);
    sim_address_give(area->addr, area->size_bytes);
    berm__list_remove(&area->node);
    area->memory->refs = 0;
    sim_memory_settle(area->memory);
    free(area);
}

// Whether all its pieces are free and their points passed.
static bool area_is_idle(const sim_pool_t *pool, const sim_area_t *area) {
    if (area->live > 0)
        return false;
    for (sim_node_t *node = sim_tree_ceil(&pool->pieces, area->addr);
         node != NULL && piece_of(node)->area == area; node = sim_tree_next(node)) {
        if (piece_of(node)->freed != NULL && !sim_mark_is_done(piece_of(node)->freed))
            return false;
    }
    return true;
}

void sim_pool_trim(sim_pool_t *pool, uint64_t bytes) {
    for (berm_list_t *at = pool->areas.next, *next; at != &pool->areas && pool->reserved > bytes;
         at = next) {
        sim_area_t *area = BERM_CONTAINER_OF(at, sim_area_t, node);
        next = at->next;
        if (area_is_idle(pool, area))
            area_destroy(pool, area);
    }
}

static void pool_destroy(sim_pool_t *pool) {
    berm__list_remove(&pool->node);
    free(pool);
}

uint64_t sim_pools_reach(uint64_t addr) {
    for (berm_list_t *at = sim.pool_list.next; at != &sim.pool_list; at = at->next) {
        const sim_pool_t *pool = BERM_CONTAINER_OF(at, sim_pool_t, node);
        const sim_piece_t *piece = piece_of(sim_tree_floor(&pool->pieces, addr));
        if (piece != NULL && piece->mapping == NULL && addr - piece->node.key < piece->size_bytes)
            return piece->node.key + piece->size_bytes;
    }
    return addr;
}

void sim_pools_release(void) {
    for (berm_list_t *at = sim.pool_list.next, *next; at != &sim.pool_list; at = next) {
        sim_pool_t *pool = BERM_CONTAINER_OF(at, sim_pool_t, node);
        next = at->next;
        sim_pool_trim(pool, pool->handle != 0 ? pool->release_threshold : 0);
        if (pool->handle == 0 && berm__list_is_empty(&pool->areas))
            pool_destroy(pool);
    }
}

void sim_pools_clear(void) {
    while (!berm__list_is_empty(&sim.pool_list)) {
        sim_pool_t *pool = BERM_CONTAINER_OF(sim.pool_list.next, sim_pool_t, node);
        sim_node_t *node = sim_tree_first(&pool->pieces);
        while (node != NULL) { // freeing joins pieces: go on by address
            uint64_t addr = node->key;
            if (piece_of(node)->mapping != NULL)
                sim_piece_free(piece_of(node), NULL, NULL);
            node = sim_tree_ceil(&pool->pieces, addr + 1);
        }
        while (!berm__list_is_empty(&pool->areas))
            area_destroy(pool, BERM_CONTAINER_OF(pool->areas.next, sim_area_t, node));
        pool_destroy(pool);
    }
}

// Takes an area for `bytes` from the device: a large one, or else one just large enough.
static bool pool_grow(sim_pool_t *pool, uint64_t bytes) {
    uint64_t large = berm__align_up(bytes, berm__max_u64(AREA_BYTES, sim.config.granule_bytes));
    uint64_t least = berm__align_up(bytes, sim.config.granule_bytes);
    uint64_t room = pool->bytes_max != 0 ? pool->bytes_max - pool->reserved : UINT64_MAX;
    uint64_t taken = large;
    sim_area_t *area = large <= room ? area_create(pool, large) : NULL;
    if (area == NULL && least <= room && least < large) {
        taken = least;
        area = area_create(pool, least);
    }
    if (area == NULL)
        return false;
    sim_charge(&sim.config.costs.create, 0, taken);
    sim_charge(&sim.config.costs.map, 1, taken);
    sim_charge(&sim.config.costs.set_access, 1, taken);
    return true;
}

// --- taking --------------------------------------------------------------------------------------

typedef enum reach {
    REACH_NONE,
    REACH_BY_WAIT,
    REACH_FREE
} reach_t;

static reach_t piece_reach(const sim_piece_t *piece, const sim_stream_t *stream) {
    const int *reuse = piece->pool->reuse;
    if (piece->freed == NULL || piece->stream_id == stream->id ||
        sim.host_clock[piece->slot] >= piece->count)
        return REACH_FREE;
    if (reuse[FOLLOW_EVENTS] != 0 && stream->clock[piece->slot] >= piece->count)
        return REACH_FREE;
    if (reuse[OPPORTUNISTIC] != 0 && sim_mark_is_done(piece->freed))
        return REACH_FREE;
    return reuse[INTERNAL] != 0 ? REACH_BY_WAIT : REACH_NONE;
}

static sim_piece_t *pool_find(sim_pool_t *pool, uint64_t bytes, const sim_stream_t *stream,
                              reach_t least) {
    sim_piece_t *best = NULL;
    for (berm_list_t *at = pool->free_pieces.next; at != &pool->free_pieces; at = at->next) {
        sim_piece_t *piece = piece_of_free(at);
        if (piece->size_bytes < bytes || piece_reach(piece, stream) < least)
            continue;
        if (best == NULL || piece->size_bytes < best->size_bytes ||
            (piece->size_bytes == best->size_bytes && piece->node.key < best->node.key))
            best = piece;
    }
    return best;
}

// Leaves the piece `bytes` long, and what is beyond as a piece of the same standing.
static bool piece_split(sim_piece_t *piece, uint64_t bytes) {
    if (piece->size_bytes == bytes)
        return true;
    sim_piece_t *rest =
        piece_create(piece->pool, piece->area, piece->node.key + bytes, piece->size_bytes - bytes);
    if (rest == NULL)
        return false;
    piece->size_bytes = bytes;
    rest->stream_id = piece->stream_id;
    rest->count = piece->count;
    rest->slot = piece->slot;
    rest->freed = piece->freed;
    if (rest->freed != NULL)
        rest->freed->refs++;
    return true;
}

static sim_piece_t *pool_search(sim_pool_t *pool, uint64_t bytes, const sim_stream_t *stream) {
    sim_piece_t *piece = pool_find(pool, bytes, stream, REACH_FREE);
    if (piece == NULL) {
        pool_settle(pool);
        piece = pool_find(pool, bytes, stream, REACH_FREE);
    }
    if (piece == NULL)
        piece = pool_find(pool, bytes, stream, REACH_BY_WAIT);
    if (piece != NULL)
        return piece;
    if (!pool_grow(pool, bytes)) {
        sim_pool_trim(pool, 0); // small areas may make room for a large one
        if (!pool_grow(pool, bytes))
            return NULL;
    }
    return pool_find(pool, bytes, stream, REACH_FREE);
}

sim_piece_t *sim_piece_take(sim_pool_t *pool, uint64_t bytes, sim_stream_t *stream,
                            sim_mark_t **wait, int *result) {
    uint64_t rounded = berm__align_up(bytes, PIECE_UNIT_BYTES);
    sim_piece_t *piece = pool_search(pool, rounded, stream);
    *result = BERM_CU_OUT_OF_MEMORY;
    if (piece == NULL || !piece_split(piece, rounded))
        return NULL;
    sim_mapping_t *mapping = sim_mapping_create(piece->node.key, bytes, piece->area->memory);
    if (mapping == NULL)
        return NULL;
    *wait = piece->freed; // the reference goes along
    if (piece->freed != NULL && piece_reach(piece, stream) == REACH_FREE) {
        sim_clock_join(stream->clock, piece->freed->clock, piece->freed->clock_count);
        sim_mark_drop(piece->freed);
        *wait = NULL;
    }
    piece->freed = NULL;
    piece->mapping = mapping;
    mapping->memory_offset = piece->node.key - piece->area->addr;
    mapping->is_plain = true;
    mapping->piece = piece;
    for (int i = 0; i < SIMCUDA_DEVICE_MAX; i++)
        mapping->access[i] = pool->access[i];
    berm__list_remove(&piece->free_node);
    piece->area->live++;
    pool->used += rounded;
    pool->used_high = berm__max_u64(pool->used_high, pool->used);
    sim_ledger_allocation(pool->device, 1, bytes);
    *result = BERM_CU_SUCCESS;
    return piece;
}

void sim_piece_free(sim_piece_t *piece, const sim_stream_t *stream, sim_mark_t *freed) {
    sim_pool_t *pool = piece->pool;
    sim_effects_run();
    sim_ledger_allocation(pool->device, (uint64_t)-1, 0 - piece->mapping->size_bytes);
    sim_mapping_destroy(piece->mapping);
    piece->mapping = NULL;
    piece->freed = freed;
    if (stream != NULL) {
        piece->stream_id = stream->id;
        piece->slot = stream->slot;
        piece->count = stream->clock[stream->slot];
    }
    piece->area->live--;
    pool->used -= piece->size_bytes;
    berm__list_push_back(&pool->free_pieces, &piece->free_node);
    while (piece_join_next(piece))
        continue;
    sim_piece_t *before = piece_of(sim_tree_floor(&pool->pieces, piece->node.key - 1));
    if (before != NULL && before->mapping == NULL)
        (void)piece_join_next(before);
}
