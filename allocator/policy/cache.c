// SPDX-License-Identifier: Apache-2.0
// Thread caches: see cache.h for who may touch what, and for invariant I21.
//
// A bin holds at most 32 slots and 256 KiB; a fill takes half of that from one slab, a bin that is
// full passes half on, to the exchange or back. Of large blocks the last one is kept: what a loop
// frees and asks for again.
#include "policy/cache.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "host/mem.h"

bool berm__cache_is_asymmetric;

// Marks the thread whose caches need no barrier: its own.
static _Thread_local char thread_mark;

static int membarrier_call(int command) {
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

// What membarrier does, where a sandbox has come to forbid it: taking access to a page away makes
// the kernel interrupt every processor that runs this process.
static void process_serialize(void) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BERM_INSIST(page != MAP_FAILED, "a page to order the threads' caches with");
    *page = 1;
    BERM_INSIST(mprotect(page, page_bytes, PROT_READ) == 0, "order between threads' caches");
    (void)munmap(page, page_bytes);
}

void berm__cache_mode_probe(void) {
    berm__cache_is_asymmetric = membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

static uint32_t bin_capacity(unsigned size_class) {
    uint64_t by_bytes = BERM_CACHE_CLASS_BYTES / berm__size_class_bytes(size_class);
    return (uint32_t)berm__min_u64(BERM_CACHE_SLOTS_MAX, by_bytes);
}

// --- the owner's side --------------------------------------------------------------------------

bool berm__cache_large_alloc(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out) {
    uint64_t occupied = berm__align_up(size_bytes, BERM_RANGE_UNIT_BYTES);
    const berm_cache_large_t entry = cache->large;
    berm_ring_t *ring = cache->ring;
    uint64_t *place = berm__ring_place(ring);
    if (entry.size_bytes != occupied || !berm__ring_has_room(ring, place))
        return false;
    cache->large = (berm_cache_large_t){0};
    berm_range_t *range = entry.range;
    range->as.block.requested_bytes = size_bytes;
    range->as.block.index = cache->counts->number_next++;
    range->tag = cache->counts->tag;
    __atomic_store_n(&range->state, BERM_RANGE_LIVE, __ATOMIC_RELEASE);
    cache->bytes -= occupied;
    berm__counts_alloc(cache->counts, size_bytes, occupied);
    berm__tag_alloc(cache->pool->device, range->tag, size_bytes, occupied);
    *out = entry.segment->base + range->start_bytes;
    if (BERM_LIKELY(ring != NULL))
        berm__ring_put_any(ring, place, BERM_RING_ALLOC, *out, size_bytes);
    return true;
}

berm_status_t berm__cache_large_free(berm_cache_t *cache, berm_segment_t *segment,
                                     berm_range_t *range, berm_addr_t addr) {
    berm_ring_t *ring = cache->ring;
    uint64_t *place = berm__ring_place(ring);
    if (range == NULL || range->start_bytes != addr - segment->base)
        return BERM_ERROR_STATE; // the pool says what is wrong
    if (__atomic_load_n(&range->owner, __ATOMIC_RELAXED) != NULL || range->is_pinned ||
        cache->large.range != NULL || !cache->is_keeping || !berm__ring_has_room(ring, place) ||
        atomic_load_explicit(&cache->pool->is_learning, memory_order_relaxed))
        return BERM_ERROR_STATE;
    uint64_t requested = range->as.block.requested_bytes, occupied = range->size_bytes;
    uint8_t tag = range->tag;
    if (!berm__range_claim(range))
        return BERM_ERROR_DOUBLE_FREE;
    cache->large = (berm_cache_large_t){segment, range, occupied};
    cache->bytes += occupied;
    berm__counts_free(cache->counts, requested, occupied);
    berm__tag_free(cache->pool->device, tag, requested, occupied);
    if (BERM_LIKELY(ring != NULL))
        berm__ring_put_any(ring, place, BERM_RING_FREE, addr, requested);
    return BERM_OK;
}

// --- with locks --------------------------------------------------------------------------------

// The counts of the calling thread on the device, made for its first cache there.
static berm_counts_t *counts_share(berm_device_t *device) {
    berm_counts_t *counts = NULL;
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        if (cache->counts->owner == &thread_mark)
            counts = cache->counts;
    if (counts == NULL) {
        counts = berm__mem_alloc(sizeof *counts);
        if (counts == NULL)
            return NULL;
        counts->owner = &thread_mark;
    }
    counts->users++;
    return counts;
}

static void counts_unshare(berm_counts_t *counts) {
    if (--counts->users == 0)
        berm__mem_free(counts, sizeof *counts);
}

berm_cache_t *berm__cache_create(berm_pool_t *pool, bool is_keeping, berm_ring_t *ring) {
    berm_cache_t *cache = berm__mem_alloc(sizeof *cache);
    if (cache == NULL)
        return NULL;
    cache->counts = counts_share(pool->device);
    if (cache->counts == NULL) {
        berm__mem_free(cache, sizeof *cache);
        return NULL;
    }
    cache->pool = pool;
    cache->handle = pool->stream->handle;
    cache->ordinal = pool->device->gpu.ordinal;
    cache->where = (berm_ring_where_t){cache->ordinal, cache->handle, pool->group->id};
    cache->ring_home = ring;
    cache->ring = atomic_load(&berm__ring_is_on) ? ring : NULL;
    if (is_keeping) {
        cache->is_keeping = true;
        for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT; c++)
            cache->capacity[c] = (uint8_t)bin_capacity(c);
    }
    berm__list_push_back(&pool->device->caches, &cache->link);
    berm__mutex_lock(&pool->lock);
    pool->cache_count++;
    berm__mutex_unlock(&pool->lock);
    return cache;
}

static bool cache_is_own(const berm_cache_t *cache) {
    return cache->counts->owner == &thread_mark;
}

static void slots_give(berm_cache_t *cache, unsigned size_class, uint32_t keep) {
    uint32_t count = cache->count[size_class];
    uint32_t give = count > keep ? count - keep : 0;
    // The oldest go; the newest are the ones whose records are warm.
    for (uint32_t i = 0; i < give; i++) {
        berm_cache_slot_t *entry = &cache->slots[size_class][i];
        berm__small_give(cache->pool, entry->slab, entry->slot);
    }
    memmove(cache->slots[size_class], cache->slots[size_class] + give,
            (count - give) * sizeof(berm_cache_slot_t));
    cache->count[size_class] = (uint8_t)(count - give);
    cache->bytes -= give * berm__size_class_bytes(size_class);
}

// --- the exchange ------------------------------------------------------------------------------

// Room for one more batch of a class, or NULL.
static berm_cache_batch_t *exchange_room(berm_pool_t *pool, unsigned size_class) {
    if (pool->exchange == NULL && pool->cache_count > 1)
        pool->exchange = berm__mem_alloc(sizeof *pool->exchange);
    struct berm_exchange *exchange = pool->exchange;
    if (exchange == NULL || exchange->count[size_class] == BERM_EXCHANGE_BATCHES)
        return NULL;
    return &exchange->batches[size_class][exchange->count[size_class]++];
}

// The oldest half of a full bin goes to the exchange; false if there is no room.
static bool bin_pass_on(berm_cache_t *cache, unsigned size_class) {
    uint32_t passed = cache->capacity[size_class] / 2U;
    berm_cache_batch_t *batch = passed > 0 ? exchange_room(cache->pool, size_class) : NULL;
    if (batch == NULL)
        return false;
    berm_cache_slot_t *slots = cache->slots[size_class];
    uint32_t kept = cache->count[size_class] - passed;
    uint64_t bytes = passed * berm__size_class_bytes(size_class);
    batch->count = passed;
    memcpy(batch->slots, slots, passed * sizeof *slots);
    memmove(slots, slots + passed, kept * sizeof *slots);
    cache->count[size_class] = (uint8_t)kept;
    cache->bytes -= bytes;
    cache->pool->exchange->bytes += bytes;
    return true;
}

bool berm__cache_exchange(berm_cache_t *cache, uint64_t size_bytes) {
    struct berm_exchange *exchange = cache->pool->exchange;
    if (exchange == NULL || size_bytes > BERM_SMALL_MAX_BYTES)
        return false;
    unsigned size_class = berm__size_class_of(size_bytes);
    if (exchange->count[size_class] == 0 || cache->count[size_class] > 0)
        return false;
    const berm_cache_batch_t *batch = &exchange->batches[size_class][--exchange->count[size_class]];
    memcpy(cache->slots[size_class], batch->slots, batch->count * sizeof batch->slots[0]);
    cache->count[size_class] = (uint8_t)batch->count;
    uint64_t bytes = batch->count * berm__size_class_bytes(size_class);
    cache->bytes += bytes;
    exchange->bytes -= bytes;
    return true;
}

static bool exchange_drain(berm_pool_t *pool) {
    struct berm_exchange *exchange = pool->exchange;
    if (exchange == NULL || exchange->bytes == 0)
        return false;
    for (unsigned size_class = 0; size_class < BERM_SIZE_CLASS_COUNT; size_class++) {
        for (uint32_t i = 0; i < exchange->count[size_class]; i++) {
            const berm_cache_batch_t *batch = &exchange->batches[size_class][i];
            for (uint32_t at = 0; at < batch->count; at++)
                berm__small_give(pool, batch->slots[at].slab, batch->slots[at].slot);
        }
        exchange->count[size_class] = 0;
    }
    exchange->bytes = 0;
    return true;
}

static void large_give(berm_cache_t *cache) {
    if (cache->large.range == NULL)
        return;
    cache->bytes -= cache->large.size_bytes;
    berm__large_give(cache->pool, cache->large.segment, cache->large.range);
    cache->large = (berm_cache_large_t){0};
}

static void all_give(berm_cache_t *cache) {
    for (unsigned size_class = 0; size_class < BERM_SIZE_CLASS_COUNT; size_class++)
        slots_give(cache, size_class, 0);
    large_give(cache);
}

bool berm__cache_spill(berm_cache_t *cache) {
    bool has_cached = cache->bytes > 0;
    if (has_cached)
        all_give(cache);
    return berm__small_flush(cache->pool) || has_cached;
}

bool berm__cache_make_room(berm_cache_t *cache, uint64_t size_bytes) {
    if (size_bytes > BERM_SMALL_MAX_BYTES) {
        bool has_room = cache->is_keeping && cache->large.range == NULL &&
                        !atomic_load_explicit(&cache->pool->is_learning, memory_order_relaxed);
        if (!has_room)
            large_give(cache);
        return has_room;
    }
    unsigned size_class = berm__size_class_of(size_bytes);
    uint32_t capacity = cache->capacity[size_class];
    if (cache->count[size_class] == capacity && !bin_pass_on(cache, size_class))
        slots_give(cache, size_class, capacity / 2);
    return capacity > 0;
}

void berm__cache_refill(berm_cache_t *cache, uint64_t size_bytes) {
    if (size_bytes > BERM_SMALL_MAX_BYTES)
        return;
    unsigned size_class = berm__size_class_of(size_bytes);
    uint32_t most = cache->capacity[size_class] / 2U, slots[BERM_CACHE_SLOTS_MAX];
    if (cache->count[size_class] > 0 || most == 0)
        return;
    berm_slab_t *slab = NULL;
    uint32_t count = berm__small_fill(cache->pool, size_class, cache, most, &slab, slots);
    while (count > 0) // the lowest slot is taken first
        cache->slots[size_class][cache->count[size_class]++] =
            (berm_cache_slot_t){slab, slots[--count]};
    cache->bytes += cache->count[size_class] * berm__size_class_bytes(size_class);
}

// Claimed, or the caller's own.
static bool cache_drain(berm_cache_t *cache) {
    bool has_cached = cache->bytes > 0;
    if (has_cached) {
        berm__mutex_lock(&cache->pool->lock);
        all_give(cache);
        berm__mutex_unlock(&cache->pool->lock);
    }
    berm__counts_merge(cache->counts, cache->pool->device);
    return has_cached;
}

void berm__cache_destroy(berm_cache_t *cache) {
    (void)cache_drain(cache);
    berm__mutex_lock(&cache->pool->lock);
    berm__small_disown(cache->pool, cache);
    cache->pool->cache_count--;
    berm__mutex_unlock(&cache->pool->lock);
    counts_unshare(cache->counts);
    berm__list_remove(&cache->link);
    berm__mem_free(cache, sizeof *cache);
}

void berm__caches_claim(berm_device_t *device) {
    bool has_others = false;
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link) {
        if (cache_is_own(cache))
            continue; // this thread is here, so it is not inside
        atomic_store(&cache->claimed, 1);
        has_others = true;
    }
    if (!has_others)
        return;
    // Every owner either has seen `claimed` or shows `busy` from here on.
    if (berm__cache_is_asymmetric && membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        process_serialize();
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        while (!cache_is_own(cache) &&
               atomic_load_explicit(&cache->busy, memory_order_acquire) != 0)
            (void)sched_yield();
}

void berm__caches_release(berm_device_t *device) {
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        if (!cache->is_retired)
            atomic_store_explicit(&cache->claimed, 0, memory_order_release);
}

void berm__caches_retire(berm_pool_t *pool) {
    berm_device_t *device = pool->device;
    (void)berm__caches_hold(device);
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link) {
        if (cache->pool != pool)
            continue;
        cache->is_retired = true;
        atomic_store(&cache->claimed, 1);
    }
    berm__caches_release(device);
}

void berm__caches_ring_update(berm_device_t *device) {
    berm__caches_claim(device);
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        cache->ring = atomic_load(&berm__ring_is_on) ? cache->ring_home : NULL;
    berm__caches_release(device);
}

void berm__caches_merge(berm_device_t *device) {
    berm__caches_claim(device);
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        berm__counts_merge(cache->counts, device);
    berm__caches_release(device);
}

bool berm__caches_hold(berm_device_t *device) {
    bool has_cached = false;
    berm__caches_claim(device);
    BERM_LIST_EACH (berm_cache_t, cache, &device->caches, link)
        has_cached |= cache_drain(cache);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link) {
        berm__mutex_lock(&pool->lock);
        has_cached |= exchange_drain(pool);
        berm__mutex_unlock(&pool->lock);
    }
    return has_cached;
}

bool berm__caches_drain(berm_device_t *device) {
    bool has_cached = berm__caches_hold(device);
    berm__caches_release(device);
    return has_cached;
}

void berm__device_freeze(berm_device_t *device) {
    (void)berm__caches_hold(device);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        berm__mutex_lock_also(&pool->lock);
}

void berm__device_thaw(berm_device_t *device) {
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        berm__mutex_unlock_also(&pool->lock);
    berm__caches_release(device);
}
