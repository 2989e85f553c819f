// SPDX-License-Identifier: Apache-2.0
// The table of a thread's caches: see thread.h. The key's destructor may run before or after those
// of other libraries: frees that come later find a sentinel and take the slow path.
//
// Locks: make with the device's held; the destructor takes the heap's and each device's.
#include "front/thread.h"

#include <pthread.h>

#include "front/heap.h"
#include "front/tag.h"
#include "host/mem.h"

_Thread_local berm_thread_t *berm__thread;

static pthread_key_t key;
static bool has_key;
static _Thread_local bool is_ending; // the sentinel

static void table_free(berm_thread_t *thread) {
    bool is_current = atomic_load(&berm__heap.state) == BERM_HEAP_RUNNING &&
                      thread->epoch == atomic_load(&berm__heap.epoch);
    for (uint32_t i = 0; is_current && i < thread->count; i++) {
        berm_device_t *device = thread->caches[i]->pool->device;
        berm__mutex_lock(&device->lock);
        berm__cache_destroy(thread->caches[i]);
        berm__mutex_unlock(&device->lock);
    }
    if (is_current)
        berm__ring_end(&thread->ring);
    berm__mem_free(thread, sizeof *thread);
    berm__thread = NULL;
}

static void thread_end(void *table) {
    is_ending = true;
    if (atomic_load(&berm__heap.is_forked))
        return;
    berm__mutex_lock(&berm__heap.lock); // the heap does not stop meanwhile
    table_free(table);
    berm__mutex_unlock(&berm__heap.lock);
}

void berm__thread_end(void) {
    if (berm__thread == NULL)
        return;
    table_free(berm__thread);
    (void)pthread_setspecific(key, NULL);
}

static void key_create(void) {
    has_key = pthread_key_create(&key, thread_end) == 0;
}

static berm_thread_t *thread_make(uint64_t epoch) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, key_create);
    berm_thread_t *thread = berm__thread;
    if (thread == NULL && has_key && !is_ending) {
        thread = berm__mem_alloc(sizeof *thread);
        if (thread == NULL)
            return NULL;
        if (pthread_setspecific(key, thread) != 0) {
            berm__mem_free(thread, sizeof *thread);
            return NULL;
        }
        thread->epoch = epoch;
        thread->ring.tag = berm__tag_top();
        berm__thread = thread;
    }
    if (thread != NULL && thread->epoch != epoch)
        // Its caches and chunks went with the heap they were of.
        *thread = (berm_thread_t){.epoch = epoch, .ring = {.tag = berm__tag_top()}};
    return thread;
}

berm_ring_t *berm__thread_ring(uint64_t epoch) {
    if (!atomic_load_explicit(&berm__ring_is_on, memory_order_relaxed))
        return NULL;
    berm_thread_t *thread = thread_make(epoch);
    return thread != NULL ? &thread->ring : NULL;
}

void berm__thread_cache_drop(berm_cache_t *cache) {
    berm_thread_t *thread = berm__thread;
    uint32_t i = 0;
    while (thread->caches[i] != cache)
        i++;
    thread->caches[i] = thread->caches[--thread->count];
    thread->last = NULL;
    berm__ring_part(&thread->ring);
    berm__cache_destroy(cache);
}

berm_cache_t *berm__thread_cache_any(uint64_t epoch, const berm_device_t *device) {
    berm_thread_t *thread = berm__thread;
    if (thread == NULL || thread->epoch != epoch)
        return NULL;
    for (uint32_t i = 0; i < thread->count; i++)
        if (thread->caches[i]->pool->device == device)
            return thread->caches[i];
    return NULL;
}

bool berm__thread_has_room(uint64_t epoch) {
    berm_thread_t *thread = berm__thread;
    if (thread == NULL)
        return !is_ending;
    return thread->epoch != epoch || thread->count < BERM_THREAD_CACHES_MAX;
}

berm_cache_t *berm__thread_cache_make(uint64_t epoch, berm_pool_t *pool, bool is_keeping) {
    berm_thread_t *thread = thread_make(epoch);
    for (uint32_t i = 0; thread != NULL && i < thread->count;) {
        berm_cache_t *cache = thread->caches[i];
        if (cache->pool->device == pool->device && cache->is_retired)
            berm__thread_cache_drop(cache); // another takes its place in the table
        else
            i++;
    }
    if (thread == NULL || thread->count == BERM_THREAD_CACHES_MAX)
        return NULL;
    berm_cache_t *cache = berm__cache_create(pool, is_keeping, &thread->ring);
    if (cache != NULL) {
        cache->counts->tag = berm__tag_top();
        thread->caches[thread->count++] = cache;
        thread->last = cache;
        berm__ring_part(&thread->ring);
    }
    return cache;
}
