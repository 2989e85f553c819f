// SPDX-License-Identifier: Apache-2.0
// Slow side of node slabs: chunks in and out. The fast side is inline in the header.
//
//   chunk   [head, 16 bytes | object | object | ...]
//
// A chunk is 4 KiB at first and then as large as all chunks so far, up to 32 KiB (what host/mem.h
// cuts from its own chunks), or larger when more was asked for at once: at most half of a slab that
// only ever grew is unused.
//
// N1  total_count is the sum of the chunks' counts; free_count the length of the free list
//
// Locks: the owner's. Host memory may fail: reserve returns false and nothing changed.
#include "host/node_slab.h"

#include "base/bits.h"
#include "host/mem.h"

#define CHUNK_LEAST_BYTES ((uint64_t)4096)
#define CHUNK_MOST_BYTES  BERM_KIB(32)
#define OBJECT_MOST_BYTES BERM_KIB(64)

typedef struct berm_node_chunk {
    struct berm_node_chunk *next;
    uint64_t count;     // objects in this chunk
    uint64_t unused[6]; // objects of 64 bytes are cache lines
} berm_node_chunk_t;

_Static_assert(sizeof(berm_node_chunk_t) == 64, "objects after the head stay aligned");

static uint64_t chunk_bytes(const berm_node_slab_t *slab, uint64_t count) {
    return sizeof(berm_node_chunk_t) + count * slab->object_bytes;
}

// How many objects the next chunk has, if nobody asks for more.
static uint64_t chunk_usual_count(const berm_node_slab_t *slab) {
    uint64_t quarter = slab->total_count * slab->object_bytes / 4; // at most a fifth is spare
    uint64_t bytes = berm__max_u64(CHUNK_LEAST_BYTES, berm__min_u64(quarter, CHUNK_MOST_BYTES));
    uint64_t count = (bytes - sizeof(berm_node_chunk_t)) / slab->object_bytes;
    return berm__max_u64(count, 1);
}

void berm__node_slab_init(berm_node_slab_t *slab, size_t object_bytes) {
    BERM_INSIST(object_bytes > 0 && object_bytes <= OBJECT_MOST_BYTES, "node size");
    *slab = (berm_node_slab_t){.object_bytes = berm__align_up(object_bytes, 16)};
}

bool berm__node_slab_grow(berm_node_slab_t *slab, uint64_t count) {
    uint64_t missing = count - slab->free_count;
    if (missing > PTRDIFF_MAX / slab->object_bytes - 1)
        return false;
    uint64_t added = berm__max_u64(missing, chunk_usual_count(slab));
    berm_node_chunk_t *chunk = berm__mem_alloc(chunk_bytes(slab, added));
    if (chunk == NULL)
        return false;
    chunk->next = slab->chunks;
    chunk->count = added;
    slab->chunks = chunk;
    slab->total_count += added;
    slab->free_count += added;
    // Backwards, so that takes go up in address.
    for (uint64_t i = added; i-- > 0;) {
        berm_node_free_t *node = (void *)((char *)(chunk + 1) + i * slab->object_bytes);
        node->next = slab->free;
        slab->free = node;
        BERM_TRACK_POISON(node, slab->object_bytes);
    }
    return true;
}

void berm__node_slab_destroy(berm_node_slab_t *slab) {
    while (slab->chunks != NULL) {
        berm_node_chunk_t *chunk = slab->chunks;
        uint64_t bytes = chunk_bytes(slab, chunk->count);
        slab->chunks = chunk->next;
        BERM_TRACK_UNPOISON(chunk, bytes);
        berm__mem_free(chunk, bytes);
    }
    berm__node_slab_init(slab, slab->object_bytes);
}
