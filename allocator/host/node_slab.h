// SPDX-License-Identifier: Apache-2.0
// A supply of equal records: chunks from host/mem.h cut into objects on an intrusive free list.
//
// berm__node_slab_reserve secures objects before anything irreversible, so that the takes after it
// cannot fail; a take or a give is a handful of instructions. Not thread-safe: the owner's lock
// protects it. Chunks go back to host memory only when the slab is destroyed.
// Under AddressSanitizer a free object is poisoned.
#ifndef BERM_HOST_NODE_SLAB_H
#define BERM_HOST_NODE_SLAB_H

#include <stdbool.h>
#include <string.h>

#include "base/defs.h"
#include "base/insist.h"
#include "host/track.h"

typedef struct berm_node_free {
    struct berm_node_free *next;
} berm_node_free_t;

struct berm_node_chunk;

typedef struct berm_node_slab {
    berm_node_free_t *free;         // objects that nobody has
    uint64_t free_count;            // length of `free`
    uint64_t total_count;           // objects in all chunks: total = free + live
    size_t object_bytes;            // as asked, rounded up to 16
    struct berm_node_chunk *chunks; // every chunk, newest first
} berm_node_slab_t;

// An empty slab of objects of object_bytes (1 to 64 KiB); allocates nothing.
void berm__node_slab_init(berm_node_slab_t *slab, size_t object_bytes);

// Adds objects until `count` are free, more than are now. As reserve.
bool berm__node_slab_grow(berm_node_slab_t *slab, uint64_t count);

// Makes sure that the next `count` takes cannot fail (gives in between only help). False, and
// nothing changed, when there is no host memory.
BERM_NODISCARD static inline bool berm__node_slab_reserve(berm_node_slab_t *slab, uint64_t count) {
    return BERM_LIKELY(slab->free_count >= count) || berm__node_slab_grow(slab, count);
}

// Gives all chunks back. Objects still taken become invalid. The slab is as after init.
void berm__node_slab_destroy(berm_node_slab_t *slab);

// Number of objects taken and not given back.
static inline uint64_t berm__node_slab_live(const berm_node_slab_t *slab) {
    return slab->total_count - slab->free_count;
}

// An object, aligned to 16 bytes, NOT zeroed: it holds whatever was there (0xa5 in debug builds).
// NULL only if no object is left and host memory fails.
static inline void *berm__node_slab_take(berm_node_slab_t *slab) {
    if (BERM_UNLIKELY(slab->free == NULL) && !berm__node_slab_reserve(slab, 1))
        return NULL;
    berm_node_free_t *node = slab->free;
    BERM_TRACK_UNPOISON(node, slab->object_bytes);
    slab->free = node->next;
    slab->free_count--;
#if BERM_CHECK_LEVEL >= 1
    memset(node, 0xa5, slab->object_bytes);
#endif
    return node;
}

// Gives an object back to the slab it was taken from. Cannot fail.
static inline void berm__node_slab_give(berm_node_slab_t *slab, void *object) {
    BERM_ASSERT(slab->free_count < slab->total_count, "more nodes given than taken");
#if BERM_CHECK_LEVEL >= 1
    memset(object, 0xde, slab->object_bytes);
#endif
    berm_node_free_t *node = object;
    node->next = slab->free;
    slab->free = node;
    slab->free_count++;
    BERM_TRACK_POISON(node, slab->object_bytes);
}

#endif
