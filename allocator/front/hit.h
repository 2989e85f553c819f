// SPDX-License-Identifier: Apache-2.0
// The hit: an allocation or a free that ends in the calling thread's cache. Everything else, and
// every check of arguments, is in heap.c and api.c, which a call that is no hit goes on to: nothing
// has changed then.
//
// One comparison stands for "berm runs, this is no child of fork(), no audit is due, and what the
// thread keeps is of this run": the thread's epoch is the heap's hit_epoch, which is 0 otherwise.
//
// Locks: none. At most one atomic read-modify-write, in a free.
#ifndef BERM_FRONT_HIT_H
#define BERM_FRONT_HIT_H

#include "front/heap.h"
#include "front/thread.h"

// The cache that the thread used last, if it is the stream's. A handle that stands for another one
// (1 for NULL) is none of a cache.
static inline berm_cache_t *berm__hit_cache(berm_stream_t handle) {
    berm_thread_t *thread = berm__thread;
    uint64_t epoch = atomic_load_explicit(&berm__heap.hit_epoch, memory_order_relaxed);
    if (BERM_UNLIKELY(thread == NULL || thread->epoch != epoch))
        return NULL;
    berm_cache_t *cache = thread->last;
    return BERM_LIKELY(cache != NULL && cache->handle == handle) ? cache : NULL;
}

static inline bool berm__hit_alloc(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out) {
    if (BERM_UNLIKELY(!berm__cache_enter(cache)))
        return false;
    bool is_hit = berm__cache_alloc(cache, size_bytes, out);
    berm__cache_leave(cache);
    return is_hit;
}

// The same after a hit that was none, where it was for want of room for its event; out of the way,
// so that a hit needs no stack.
static inline bool berm__hit_alloc_again(berm_cache_t *cache, uint64_t size_bytes,
                                         berm_addr_t *out) {
    if (berm__ring_has_room(cache->ring, berm__ring_place(cache->ring)) ||
        !berm__cache_enter(cache))
        return false;
    berm__cache_room(cache);
    bool is_hit = berm__cache_alloc(cache, size_bytes, out);
    berm__cache_leave(cache);
    return is_hit;
}

// The segment of an address, if it is of the cache's pool: mostly the one of the last free.
static inline berm_segment_t *berm__hit_segment(berm_cache_t *cache, berm_addr_t addr) {
    if (BERM_LIKELY(addr - cache->home_base < cache->home_bytes))
        return cache->home;
    berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, addr);
    if (segment == NULL || segment->pool != cache->pool)
        return NULL;
    if (!segment->is_plain) {
        cache->home = segment;
        cache->home_base = segment->base;
        cache->home_bytes = segment->span_bytes;
    }
    return segment;
}

static inline bool berm__hit_free(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr) {
    if (BERM_UNLIKELY(!berm__cache_enter(cache)))
        return false;
    bool is_hit = berm__cache_free(cache, segment, addr) == BERM_OK;
    berm__cache_leave(cache);
    return is_hit;
}

static inline bool berm__hit_free_again(berm_cache_t *cache, berm_segment_t *segment,
                                        berm_addr_t addr) {
    if (berm__ring_has_room(cache->ring, berm__ring_place(cache->ring)) ||
        !berm__cache_enter(cache))
        return false;
    berm__cache_room(cache);
    bool is_hit = berm__cache_free(cache, segment, addr) == BERM_OK;
    berm__cache_leave(cache);
    return is_hit;
}

#endif
