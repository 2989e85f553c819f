// SPDX-License-Identifier: Apache-2.0
// What one thread keeps: a small table of its caches. One pointer of
// thread-local storage; a pthread key gives everything back when the thread ends, after which the
// thread's calls go to the pools directly.
//
// A restart of the heap (berm_shutdown, berm_init) makes the table stale: its epoch tells.
#ifndef BERM_FRONT_THREAD_H
#define BERM_FRONT_THREAD_H

#include "policy/cache.h"

enum {
    BERM_THREAD_CACHES_MAX = 16
};

typedef struct berm_thread {
    uint64_t epoch; // of the heap, when the table was made
    uint32_t count;
    berm_cache_t *last;
    berm_cache_t *caches[BERM_THREAD_CACHES_MAX];
    berm_ring_t ring; // of all its events
} berm_thread_t;

// NULL: none yet, or none any more. Initial-exec: one word, which every loader has room for.
extern _Thread_local berm_thread_t *berm__thread __attribute__((tls_model("initial-exec")));

// The calling thread's cache of (device, stream), or NULL. Never takes a lock.
static inline berm_cache_t *berm__thread_cache(uint64_t epoch, int ordinal, berm_stream_t handle) {
    berm_thread_t *thread = berm__thread;
    if (BERM_UNLIKELY(thread == NULL || thread->epoch != epoch))
        return NULL;
    berm_cache_t *cache = thread->last;
    if (BERM_LIKELY(cache != NULL && cache->handle == handle && cache->ordinal == ordinal))
        return cache;
    for (uint32_t i = 0; i < thread->count; i++) {
        cache = thread->caches[i];
        if (cache->handle == handle && cache->ordinal == ordinal) {
            berm__ring_part(&thread->ring);
            return thread->last = cache;
        }
    }
    return NULL;
}

// A cache of the calling thread on the device, or NULL. Never takes a lock.
berm_cache_t *berm__thread_cache_any(uint64_t epoch, const berm_device_t *device);
// Whether another cache would find room.
bool berm__thread_has_room(uint64_t epoch);
// The calling thread's ring, if events are noted; NULL if not, or without host memory.
berm_ring_t *berm__thread_ring(uint64_t epoch);
// One for a pool, made if there is room; NULL if not, or after the thread's end began. The device's
// lock is held.
berm_cache_t *berm__thread_cache_make(uint64_t epoch, berm_pool_t *pool, bool is_keeping);
// Frees the calling thread's table, whose caches are gone or are given back. No lock is held but
// the heap's.
void berm__thread_end(void);
// Destroys one of the calling thread's caches. The device's lock is held.
void berm__thread_cache_drop(berm_cache_t *cache);

#endif
