// SPDX-License-Identifier: Apache-2.0
// The heap and the data path: start here to see how a request is served.
//
//   allocate: thread's cache (policy/cache.h) -> its pool (policy/pool.c): slot of a slab, or good
//             fit -> device -> stream's record -> pool -> on a miss policy/ladder.c: finished
//             frees, mapping, moving, waiting
//   free:     address -> core/addr_dir.h -> segment -> thread's cache -> policy/block.c
//
// Most requests end in the cache, without a lock: hit.h. The rest take their pool's lock. What
// finds nothing free takes the device's first, under which the driver is called (slow.c); no pool's
// is held then. The start and the end are in instance.c.
#include "front/heap.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/bits.h"
#include "front/quota.h"
#include "front/route.h"
#include "front/share.h"
#include "front/tag.h"
#include "front/thread.h"
#include "policy/learn.h"
#include "policy/source.h"
#include "host/log.h"

berm_heap_t berm__heap = {
    .lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_INSTANCE, "heap"),
    .epoch = 1,
};

static _Thread_local char error_text[384];
static _Thread_local const void *call_site;

berm_status_t berm__error_set(berm_status_t status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return status;
}

const char *berm__error_text(void) {
    return error_text;
}

void berm__call_site_set(const void *site) {
    call_site = site;
    berm_thread_t *thread = berm__thread;
    bool notes = atomic_load_explicit(&berm__heap.notes_sites, memory_order_relaxed);
    if (BERM_LIKELY(thread == NULL || (!notes && thread->ring.site == 0)))
        return;
    thread->ring.site = notes ? (uint64_t)(uintptr_t)site : 0;
    thread->ring.limit = NULL; // the next event has it before it
}

const void *berm__call_site(void) {
    return call_site;
}

// --- the data path -----------------------------------------------------------------------------

berm_status_t berm__audit_after(berm_status_t status) {
    if (BERM_LIKELY(!atomic_load_explicit(&berm__heap.audits, memory_order_relaxed)))
        return status;
    char error[200];
    int invariant = berm__audit_run(error, sizeof error);
    BERM_INSIST(invariant == 0, error);
    return status;
}

static uint64_t epoch_now(void) {
    return atomic_load_explicit(&berm__heap.epoch, memory_order_relaxed);
}

// The calling thread's cache of a pool, made by the first call that has to take the device's lock,
// which is held. The pool without a stream has one that keeps nothing, since every free into it
// waits; pools of other groups than the default have none, since a cache is found by its stream.
// NULL: no room in the thread's table, no memory, or the pool is not the handle's.
static berm_cache_t *cache_of_thread(berm_pool_t *pool, berm_stream_t handle) {
    if (!pool->is_default || pool->stream->handle != handle || pool->stream->is_retired)
        return NULL;
    berm_cache_t *cache = berm__thread_cache(epoch_now(), pool->device->gpu.ordinal, handle);
    if (cache != NULL && (cache->pool != pool || cache->is_retired)) {
        berm__thread_cache_drop(cache); // of an earlier stream with the same handle
        cache = NULL;
    }
    bool is_keeping = berm__heap.options.thread_cache && handle != BERM_STREAM_NONE;
    return cache != NULL ? cache : berm__thread_cache_make(epoch_now(), pool, is_keeping);
}

// Notes an event of a pool for which the thread has no cache.
static void event_note(const berm_pool_t *pool, berm_ring_kind_t kind, berm_addr_t addr,
                       uint64_t size_bytes) {
    berm_ring_t *ring = berm__thread_ring(epoch_now());
    if (ring == NULL)
        return;
    const berm_ring_where_t where = {pool->device->gpu.ordinal, pool->stream->handle,
                                     pool->group->id};
    berm__ring_once(ring, &where, kind, addr, size_bytes, 0);
}

// From the pool of the thread's cache. The caller is inside the cache, or holds the device's lock.
static berm_status_t alloc_by_pool(berm_cache_t *cache, uint64_t size_bytes,
                                   uint64_t alignment_bytes, bool may_map, berm_addr_t *out) {
    berm_pool_t *pool = cache->pool;
    berm_counts_t *counts = cache->counts;
    uint64_t occupied;
    bool may_hit = counts->number_next == counts->number_end; // and so no hit was tried
    berm__counts_number_secure(counts, pool->device);
    (void)berm__cache_room(cache);
    berm__mutex_lock(&pool->lock);
    may_hit |= berm__cache_exchange(cache, size_bytes);
    if (may_hit && alignment_bytes == BERM_RANGE_UNIT_BYTES &&
        berm__cache_alloc(cache, size_bytes, out)) {
        berm__mutex_unlock(&pool->lock);
        return BERM_OK;
    }
    const berm_request_t request = {.size_bytes = size_bytes,
                                    .alignment_bytes = alignment_bytes,
                                    .number = counts->number_next,
                                    .user = cache->is_keeping ? cache : NULL,
                                    .tag = counts->tag,
                                    .may_map = may_map};
    berm_status_t status = berm__pool_alloc(pool, &request, out, &occupied);
    // Before the ladder calls for what all threads have: what this one has.
    if (BERM_UNLIKELY(status == BERM_ERROR_STATE) && !may_map && berm__cache_spill(cache))
        status = berm__pool_alloc(pool, &request, out, &occupied);
    if (BERM_LIKELY(status == BERM_OK)) {
        counts->number_next++;
        berm__counts_alloc(counts, size_bytes, occupied);
        berm__tag_alloc(pool->device, request.tag, size_bytes, occupied);
        if (BERM_LIKELY(cache->ring != NULL))
            berm__ring_turn(cache->ring, &cache->where, BERM_RING_ALLOC, *out, size_bytes, 0,
                            may_map);
        berm__cache_refill(cache, size_bytes);
    }
    berm__mutex_unlock(&pool->lock);
    if (BERM_UNLIKELY(berm__counts_are_large(counts)))
        berm__counts_merge(counts, pool->device);
    return status;
}

berm_status_t berm__heap_alloc_pool(berm_pool_t *pool, uint64_t size_bytes,
                                    uint64_t alignment_bytes, bool may_map, berm_addr_t *out) {
    berm_device_t *device = pool->device;
    berm_counts_t counts = {0};
    uint64_t occupied;
    const berm_request_t request = {.size_bytes = size_bytes,
                                    .alignment_bytes = alignment_bytes,
                                    .number = atomic_fetch_add(&device->request_count, 1) + 1,
                                    .tag = berm__tag_top(),
                                    .may_map = may_map};
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_alloc(pool, &request, out, &occupied);
    if (status == BERM_OK) {
        berm__counts_alloc(&counts, size_bytes, occupied);
        berm__tag_alloc(device, request.tag, size_bytes, occupied);
        berm__counts_merge(&counts, device);
        event_note(pool, BERM_RING_ALLOC, *out, size_bytes);
    }
    berm__mutex_unlock(&pool->lock);
    return status;
}

berm_status_t berm__heap_alloc_locked(berm_group_t *group, uint64_t size_bytes,
                                      uint64_t alignment_bytes, berm_stream_t handle,
                                      berm_addr_t *out) {
    berm_device_t *device = group->device;
    berm_stream_ref_t *stream;
    berm_pool_t *pool;
    if (BERM_UNLIKELY(size_bytes > device->gpu.memory_bytes))
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    if (BERM_UNLIKELY(size_bytes > device->limit_bytes && size_bytes > device->phys.reserved_bytes))
        return BERM_ERROR_LIMIT;
    berm_status_t status = berm__device_stream(device, handle, &stream);
    if (status == BERM_OK)
        status = berm__group_pool(group, stream, &pool);
    if (status != BERM_OK)
        return status;
    berm_cache_t *cache = cache_of_thread(pool, handle);
    if (cache == NULL) // who has one looked at what waits before it came here
        berm__deferred_tick_locked(pool);
    bool may_map = group->source == NULL; // else slow.c asks for a segment, without the lock
    return cache != NULL ? alloc_by_pool(cache, size_bytes, alignment_bytes, true, out)
                         : berm__heap_alloc_pool(pool, size_bytes, alignment_bytes, may_map, out);
}

static const berm_pool_id_t id_default = {0, 0};

// What the cache does not have.
static berm_status_t alloc_miss(berm_cache_t *cache, uint64_t size_bytes, uint64_t alignment_bytes,
                                int ordinal, berm_stream_t stream, berm_addr_t *out) {
    if (BERM_LIKELY(cache != NULL)) {
        berm__deferred_tick(cache->pool);
        if (BERM_LIKELY(berm__cache_enter(cache))) {
            berm_status_t status = alloc_by_pool(cache, size_bytes, alignment_bytes, false, out);
            berm__cache_leave(cache);
            if (BERM_LIKELY(status == BERM_OK)) {
                berm__learn_tick(cache->pool);
                return berm__audit_after(BERM_OK);
            }
        }
    }
    const berm_want_t want = {.id = id_default,
                              .size_bytes = size_bytes,
                              .alignment_bytes = alignment_bytes,
                              .ordinal = ordinal,
                              .stream = stream};
    berm_status_t status = berm__heap_alloc_slow(&want, out);
    cache = berm__thread_cache(epoch_now(), ordinal, stream); // it may be another now
    if (cache != NULL)
        berm__learn_tick(cache->pool);
    return berm__audit_after(status);
}

berm_status_t berm__heap_alloc_miss(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out) {
    *out = 0;
    return alloc_miss(cache, size_bytes, BERM_RANGE_UNIT_BYTES, cache->ordinal, cache->handle, out);
}

static berm_status_t alloc_default(uint64_t size_bytes, uint64_t alignment_bytes, int ordinal,
                                   berm_stream_t stream, berm_addr_t *out) {
    stream = berm__stream_normalize(stream);
    berm_cache_t *cache = berm__thread_cache(epoch_now(), ordinal, stream);
    if (cache != NULL && alignment_bytes == BERM_RANGE_UNIT_BYTES && berm__cache_enter(cache)) {
        (void)berm__cache_room(cache);
        bool is_hit = berm__cache_alloc(cache, size_bytes, out);
        berm__cache_leave(cache);
        if (BERM_LIKELY(is_hit))
            return berm__audit_after(BERM_OK);
    }
    return alloc_miss(cache, size_bytes, alignment_bytes, ordinal, stream, out);
}

static berm_status_t alloc_any(uint64_t size_bytes, uint64_t alignment_bytes, int ordinal,
                               berm_stream_t stream, berm_addr_t *out) {
    berm_pool_id_t id;
    if (BERM_UNLIKELY(berm__route_any()) && stream != BERM_STREAM_NONE &&
        berm__route_find(ordinal, stream, &id)) {
        const berm_want_t want = {.id = id,
                                  .is_routed = true,
                                  .size_bytes = size_bytes,
                                  .alignment_bytes = alignment_bytes,
                                  .ordinal = ordinal,
                                  .stream = berm__stream_normalize(stream)};
        return berm__audit_after(berm__heap_alloc_slow(&want, out));
    }
    return alloc_default(size_bytes, alignment_bytes, ordinal, stream, out);
}

static berm_status_t alloc_from(berm_pool_id_t id, uint64_t size_bytes, uint64_t alignment_bytes,
                                int ordinal, berm_stream_t stream, berm_addr_t *out) {
    if (berm__pool_id_is_default(id))
        return alloc_default(size_bytes, alignment_bytes, ordinal, stream, out);
    const berm_want_t want = {.id = id,
                              .size_bytes = size_bytes,
                              .alignment_bytes = alignment_bytes,
                              .ordinal = ordinal,
                              .stream = berm__stream_normalize(stream)};
    return berm__audit_after(berm__heap_alloc_slow(&want, out));
}

berm_status_t berm__heap_alloc(uint64_t size_bytes, uint64_t alignment_bytes, int ordinal,
                               berm_stream_t stream, berm_addr_t *out) {
    if (BERM_LIKELY(!berm__quota_any()))
        return alloc_any(size_bytes, alignment_bytes, ordinal, stream, out);
    berm_booking_t booking;
    berm_status_t status = berm__quota_book(ordinal, size_bytes, &booking);
    if (status == BERM_OK)
        status = alloc_any(size_bytes, alignment_bytes, ordinal, stream, out);
    berm__quota_unbook(&booking);
    return status;
}

berm_status_t berm__heap_alloc_from(berm_pool_id_t id, uint64_t size_bytes,
                                    uint64_t alignment_bytes, int ordinal, berm_stream_t stream,
                                    berm_addr_t *out) {
    if (BERM_LIKELY(!berm__quota_any()))
        return alloc_from(id, size_bytes, alignment_bytes, ordinal, stream, out);
    berm_booking_t booking;
    berm_status_t status = berm__quota_book(ordinal, size_bytes, &booking);
    if (status == BERM_OK)
        status = alloc_from(id, size_bytes, alignment_bytes, ordinal, stream, out);
    berm__quota_unbook(&booking);
    return status;
}

static berm_status_t address_error(berm_status_t status, berm_addr_t addr) {
    return berm__error_set(status, "address 0x%llx: %s", (unsigned long long)addr,
                           berm_status_text(status));
}

// The segment that holds an address, and its device; NULL if the address is foreign.
static berm_segment_t *segment_find(berm_addr_t addr, berm_device_t **device) {
    berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, addr);
    if (segment != NULL)
        *device = ((berm_pool_t *)segment->pool)->device;
    return segment;
}

// Into the pool of the thread's cache, inside it: into the cache after all, if making room there is
// enough. BERM_ERROR_STATE: other streams use the block.
static berm_status_t free_by_pool(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr) {
    berm_block_t block;
    berm_freed_t freed;
    berm_pool_t *pool = cache->pool;
    (void)berm__cache_room(cache);
    berm__mutex_lock(&pool->lock);
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    // A large block that was refused for want of room goes to the pool, with the one in its way.
    if (status == BERM_OK && !(berm__cache_make_room(cache, block.size_bytes) &&
                               berm__cache_free(cache, segment, addr) == BERM_OK)) {
        status = berm__pool_free_own(&block, &freed);
        if (status == BERM_OK) {
            berm__counts_free(cache->counts, freed.requested_bytes, freed.occupied_bytes);
            berm__tag_free(pool->device, freed.tag, freed.requested_bytes, freed.occupied_bytes);
            if (BERM_LIKELY(cache->ring != NULL))
                berm__ring_note(cache->ring, &cache->where, BERM_RING_FREE, addr,
                                freed.requested_bytes);
        }
    }
    berm__mutex_unlock(&pool->lock);
    if (BERM_UNLIKELY(berm__counts_are_large(cache->counts)))
        berm__counts_merge(cache->counts, pool->device);
    return status;
}

// Counts a free that went by no cache of its pool: with what the thread has counted so far, so that
// peaks are right. The pool's lock is held, so that no audit comes between the free and its count.
static void freed_count(berm_device_t *device, const berm_freed_t *freed) {
    berm_cache_t *cache = berm__thread_cache_any(epoch_now(), device);
    if (cache != NULL && berm__cache_enter(cache)) {
        berm__counts_free(cache->counts, freed->requested_bytes, freed->occupied_bytes);
        berm__counts_merge(cache->counts, device);
        berm__cache_leave(cache);
    } else {
        berm__counts_free_now(device, freed->requested_bytes, freed->occupied_bytes);
    }
    berm__tag_free(device, freed->tag, freed->requested_bytes, freed->occupied_bytes);
    if (freed->is_awaited)
        berm__counts_await(device, freed->occupied_bytes);
}

// Waits for a stream of which there is no record.
static bool stream_is_done(berm_device_t *device, berm_stream_t handle) {
    bool is_pushed;
    berm_cu_result_t result = BERM_CU_UNKNOWN;
    uint64_t capture;
    if (handle == BERM_STREAM_NONE)
        return true;
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK &&
        berm__capture_read(&device->gpu, handle, &capture) == BERM_OK &&
        capture == BERM_CAPTURE_NONE)
        result = BERM_DRV_CALL(device->gpu.drv, SYNCHRONIZE, stream_synchronize,
                               (berm_cu_stream_t)handle);
    berm__gpu_leave(&device->gpu, is_pushed);
    return result == BERM_CU_SUCCESS;
}

// Finds and frees a block, and counts it. The pool's lock is held.
static berm_status_t free_counted(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                                  berm_stream_ref_t *stream, bool is_captured) {
    berm_block_t block;
    berm_freed_t freed;
    berm_status_t status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK)
        status = berm__pool_free(&block, stream, is_captured, &freed);
    if (status == BERM_OK) {
        freed_count(pool->device, &freed);
        event_note(pool, BERM_RING_FREE, addr, freed.requested_bytes);
    }
    return status;
}

// Frees a block that there is no memory to defer, and notes it.
static berm_status_t free_waiting(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                                  berm_stream_ref_t *stream) {
    berm_freed_t freed;
    berm_status_t status = berm__pool_free_waiting(pool, segment, addr, stream, &freed);
    if (status == BERM_OK)
        event_note(pool, BERM_RING_FREE, addr, freed.requested_bytes);
    return status;
}

// Gives back what the pools that are released have free by now.
static void groups_reap(berm_device_t *device) {
    bool is_pushed;
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK)
        (void)berm__groups_reap(device, false);
    berm__gpu_leave(&device->gpu, is_pushed);
}

// Into a pool of the caller's, with the device's lock: a capture may go on, and the last free into
// a pool that was released ends it.
static berm_status_t free_of_group(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                                   berm_stream_ref_t *stream) {
    berm_device_t *device = pool->device;
    berm__mutex_lock(&device->lock);
    bool is_captured = pool->group != NULL && berm__pool_is_captured(pool);
    berm__mutex_lock(&pool->lock);
    berm_status_t status = free_counted(pool, segment, addr, stream, is_captured);
    bool is_last = pool->taken_blocks == 0 || atomic_load(&pool->deferred_bytes) > 0;
    berm__mutex_unlock(&pool->lock);
    if (status == BERM_OK && pool->group->use_count == 0 && is_last)
        groups_reap(device);
    berm__mutex_unlock(&device->lock);
    berm__source_returns_settle(device);
    return status;
}

// Whatever stream is named, if any.
static berm_status_t free_slow(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                               berm_stream_t handle) {
    berm_device_t *device = pool->device;
    berm_stream_ref_t *stream;
    if (berm__device_stream_take(device, handle, &stream) != BERM_OK) {
        // When all work is done it does not matter which stream was named; it may be a peer's.
        if (!stream_is_done(device, handle))
            return BERM_ERROR_OUT_OF_HOST_MEMORY;
        return free_waiting(pool, segment, addr, NULL);
    }
    berm_status_t status;
    if (BERM_LIKELY(pool->is_default)) {
        berm__mutex_lock(&pool->lock);
        status = free_counted(pool, segment, addr, stream, false);
        berm__mutex_unlock(&pool->lock);
    } else {
        status = free_of_group(pool, segment, addr, stream);
    }
    if (BERM_UNLIKELY(status == BERM_ERROR_OUT_OF_HOST_MEMORY))
        status = free_waiting(pool, segment, addr, stream);
    berm__device_stream_give(stream);
    return status;
}

// For a thread that has no cache of the pool yet; NULL if it cannot have one.
static berm_cache_t *cache_make(berm_pool_t *pool, berm_stream_t handle) {
    if (!pool->is_default || !berm__thread_has_room(epoch_now()))
        return NULL;
    berm__mutex_lock(&pool->device->lock);
    berm_cache_t *cache = cache_of_thread(pool, handle);
    berm__mutex_unlock(&pool->device->lock);
    return cache;
}

// What the cache has no room for, or may not take.
static berm_status_t free_miss(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr,
                               berm_stream_t handle) {
    berm_pool_t *pool = segment->pool;
    berm_status_t status = BERM_ERROR_STATE;
    if (cache == NULL)
        cache = cache_make(pool, handle);
    if (cache != NULL && cache->pool == pool && berm__cache_enter(cache)) {
        status = free_by_pool(cache, segment, addr);
        berm__cache_leave(cache);
    }
    if (status == BERM_ERROR_STATE)
        status = free_slow(pool, segment, addr, handle);
    if (pool->is_default) // others may be gone
        berm__learn_tick(pool);
    if (BERM_UNLIKELY(status != BERM_OK))
        status = address_error(status, addr);
    return berm__audit_after(status);
}

berm_status_t berm__heap_free_miss(berm_cache_t *cache, berm_segment_t *segment, berm_addr_t addr) {
    return free_miss(cache, segment, addr, cache->handle);
}

berm_status_t berm__heap_free(berm_addr_t addr, int ordinal, berm_stream_t handle) {
    handle = berm__stream_normalize(handle);
    berm_device_t *device;
    berm_segment_t *segment = segment_find(addr, &device);
    if (BERM_UNLIKELY(segment == NULL))
        return address_error(berm__import_or_unknown(addr), addr);
    if (BERM_UNLIKELY(ordinal != BERM_DEVICE_ANY && ordinal != device->gpu.ordinal))
        return address_error(BERM_ERROR_ADDRESS_OTHER_DEVICE, addr);
    berm_cache_t *cache = berm__thread_cache(epoch_now(), device->gpu.ordinal, handle);
    if (cache != NULL && cache->pool == segment->pool && berm__cache_enter(cache)) {
        (void)berm__cache_room(cache);
        berm_status_t cached = berm__cache_free(cache, segment, addr);
        berm__cache_leave(cache);
        if (BERM_LIKELY(cached == BERM_OK))
            return berm__audit_after(BERM_OK);
    }
    return free_miss(cache, segment, addr, handle);
}

berm_status_t berm__heap_record_stream(berm_addr_t addr, berm_stream_t handle) {
    berm_device_t *device;
    berm_segment_t *segment = segment_find(addr, &device);
    if (segment == NULL)
        return address_error(berm__import_or_unknown(addr), addr);
    berm_block_t block;
    berm_stream_ref_t *stream;
    berm_pool_t *pool = segment->pool;
    berm_status_t status = berm__device_stream_take(device, handle, &stream);
    if (status != BERM_OK)
        return address_error(status, addr);
    berm__mutex_lock(&pool->lock);
    status = berm__pool_block_find(segment, addr, &block);
    if (status == BERM_OK)
        status = berm__pool_use_add(&block, stream);
    berm__mutex_unlock(&pool->lock);
    berm__device_stream_give(stream);
    if (status != BERM_OK)
        status = address_error(status, addr);
    return berm__audit_after(status);
}
