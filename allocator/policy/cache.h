// SPDX-License-Identifier: Apache-2.0
// Thread caches: what one thread has freed into one pool and may take again without a lock.
//
// A cached block is, for the pool, still out: its range or slot stays taken, and only the state
// byte says CACHED. Whoever needs everything (a miss, a trim, the audit) drains the caches first,
// so the pool's invariants are stated without them.
//
// Who may touch a cache, and the counts of its thread on the device (counts.h):
//   the owner   between enter and leave; or holding the device's lock
//   others      holding the device's lock, after claiming it (berm__caches_claim)
// What is moved between a cache and its pool needs the pool's lock as well. An owner that is inside
// takes no lock of a lower rank than its pool's, so that a claim, made with no pool's lock held,
// waits briefly.
// The owner marks itself busy with a plain store; the claimer pays for the order between them with
// membarrier(2). Where the kernel has none, the owner's mark is an atomic exchange instead.
//
// A hit takes no lock. A free makes one atomic read-modify-write: live -> cached on the
// block's state, which is what catches a double free. An allocation makes none.
//
// Between the caches of one pool stands an exchange: half bins that one thread had too many of, for
// another that has none. So a block that is allocated here and freed there, time and again, costs
// both threads the lock once in a batch, and the slab's records nothing. There is none while the
// device has one cache.
//
// Invariants (docs/invariants.md), while claimed:
//   I21  every block in a cache or an exchange is CACHED, of its pool, once; bytes is the sum of
//        their sizes
#ifndef BERM_POLICY_CACHE_H
#define BERM_POLICY_CACHE_H

#include <stdatomic.h>

#include "policy/pool.h"
#include "policy/ring.h"

enum {
    BERM_CACHE_SLOTS_MAX = 32,          // cached slots of one class
    BERM_CACHE_CLASS_BYTES = 256 << 10, // and their bytes
};

typedef struct berm_cache_slot {
    berm_slab_t *slab;
    uint32_t slot;
} berm_cache_slot_t;

enum {
    BERM_EXCHANGE_SLOTS = BERM_CACHE_SLOTS_MAX / 2, // of a batch
    BERM_EXCHANGE_BATCHES = 4,                      // of a class
};

typedef struct berm_cache_batch {
    uint32_t count;
    berm_cache_slot_t slots[BERM_EXCHANGE_SLOTS];
} berm_cache_batch_t;

// Of a pool; under its lock.
struct berm_exchange {
    uint64_t bytes;
    uint8_t count[BERM_SIZE_CLASS_COUNT];
    berm_cache_batch_t batches[BERM_SIZE_CLASS_COUNT][BERM_EXCHANGE_BATCHES];
};

typedef struct berm_cache_large {
    berm_segment_t *segment;
    berm_range_t *range;
    uint64_t size_bytes;
} berm_cache_large_t;

typedef struct berm_cache {
    atomic_uint busy;    // 1: the owner is inside
    atomic_uint claimed; // 1: the owner must stay out
    // Constant after creation.
    berm_pool_t *pool;
    berm_stream_t handle;
    int ordinal;
    // The owner's: the segment of its last free, if that stays as long as the pool does.
    berm_segment_t *home;
    berm_addr_t home_base;
    uint64_t home_bytes; // 0: none
    // The owner's, but that options change it while claimed: where events go, NULL: nowhere; and
    // the thread's ring, whatever the option says.
    berm_ring_t *ring, *ring_home;
    // Constant after creation, again.
    berm_ring_where_t where;
    // False, and all of `capacity` 0: it serves the lookup of its pool only.
    bool is_keeping;
    uint8_t capacity[BERM_SIZE_CLASS_COUNT];
    berm_counts_t *counts; // shared by the thread's caches of the device
    bool is_retired;       // stays claimed; under the device's lock
    berm_list_t link;      // of the device's list; under the device's lock
    // The owner's, or the claimer's.
    uint64_t bytes;
    berm_cache_large_t large; // what was freed last; range NULL: none
    uint8_t count[BERM_SIZE_CLASS_COUNT];
    berm_cache_slot_t slots[BERM_SIZE_CLASS_COUNT][BERM_CACHE_SLOTS_MAX];
} berm_cache_t;

// Whether owners mark themselves with plain stores; set once, before the first cache is made.
extern bool berm__cache_is_asymmetric;
void berm__cache_mode_probe(void);

// A cache of `pool` for the calling thread, in the device's list; one that keeps nothing, where
// `is_keeping` is false. `ring` is the thread's. NULL without host memory. Locked.
berm_cache_t *berm__cache_create(berm_pool_t *pool, bool is_keeping, berm_ring_t *ring);
// Gives back what is cached, merges the counts, and forgets the cache. Locked; the owner is not
// inside.
void berm__cache_destroy(berm_cache_t *cache);

// The owner's way in: false when someone has claimed the cache.
static inline bool berm__cache_enter(berm_cache_t *cache) {
    if (BERM_LIKELY(berm__cache_is_asymmetric)) {
        atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        (void)atomic_exchange(&cache->busy, 1);
    }
    if (BERM_LIKELY(atomic_load_explicit(&cache->claimed, memory_order_acquire) == 0))
        return true;
    atomic_store_explicit(&cache->busy, 0, memory_order_release);
    return false;
}

static inline void berm__cache_leave(berm_cache_t *cache) {
    atomic_store_explicit(&cache->busy, 0, memory_order_release);
}

// A cached large block serves requests of exactly its size: it is never cut.
bool berm__cache_large_alloc(berm_cache_t *cache, uint64_t size_bytes, berm_addr_t *out);
berm_status_t berm__cache_large_free(berm_cache_t *cache, berm_segment_t *segment,
                                     berm_range_t *range, berm_addr_t addr);

// Makes room for an event of the cache, so that the next call is not refused for want of it. The
// owner, inside.
static inline void berm__cache_room(berm_cache_t *cache) {
    if (!berm__ring_has_room(cache->ring, berm__ring_place(cache->ring)))
        (void)berm__ring_room(cache->ring, &cache->where, false);
}

// A block from the cache; false on a miss, or where its event has no room. Sizes are checked by the
// caller; the alignment is 512. The caller is the owner, inside.
BERM_ALWAYS_INLINE bool berm__cache_alloc(berm_cache_t *cache, uint64_t size_bytes,
                                          berm_addr_t *out) {
    berm_counts_t *counts = cache->counts;
    berm_ring_t *ring = cache->ring;
    uint64_t *place = berm__ring_place(ring);
    if (BERM_UNLIKELY(counts->number_next == counts->number_end ||
                      !berm__ring_has_room(ring, place)))
        return false;
    if (BERM_UNLIKELY(size_bytes > BERM_SMALL_MAX_BYTES))
        return berm__cache_large_alloc(cache, size_bytes, out);
    unsigned size_class = berm__size_class_of(size_bytes);
    unsigned count = cache->count[size_class];
    if (BERM_UNLIKELY(count == 0))
        return false;
    cache->count[size_class] = (uint8_t)(count - 1);
    const berm_cache_slot_t entry = cache->slots[size_class][count - 1];
    berm_slab_t *slab = entry.slab;
    uint64_t class_bytes = berm__size_class_bytes(size_class);
    slab->slot[entry.slot].requested = (uint16_t)(size_bytes - 1);
    slab->slot[entry.slot].index = (uint32_t)counts->number_next++;
    slab->slot[entry.slot].tag = counts->tag;
    __atomic_store_n(&slab->slot[entry.slot].state, BERM_SLOT_LIVE, __ATOMIC_RELEASE);
    cache->bytes -= class_bytes;
    berm__counts_alloc(counts, size_bytes, class_bytes);
    berm__tag_alloc(cache->pool->device, counts->tag, size_bytes, class_bytes);
    berm_addr_t addr = slab->base + entry.slot * class_bytes;
    *out = addr;
    if (BERM_LIKELY(ring != NULL))
        berm__ring_put(ring, place, BERM_RING_ALLOC, addr, size_bytes);
    return true;
}

// Frees a block into the cache: BERM_OK, or BERM_ERROR_STATE when it must go by the pool (another
// stream, uses, full cache, no room for its event: nothing changed), or what is wrong with the
// address. Inside.
BERM_ALWAYS_INLINE berm_status_t berm__cache_free(berm_cache_t *cache, berm_segment_t *segment,
                                                  berm_addr_t addr) {
    uintptr_t value = berm__segment_cell_read(segment, addr - segment->base);
    if (BERM_UNLIKELY((value & BERM_CELL_IS_SLAB) == 0))
        return berm__cache_large_free(cache, segment, (berm_range_t *)value, addr);
    berm_slab_t *slab = (berm_slab_t *)(value - BERM_CELL_IS_SLAB);
    unsigned size_class = slab->size_class;
    berm_ring_t *ring = cache->ring;
    uint64_t *place = berm__ring_place(ring);
    uint64_t class_bytes = berm__size_class_bytes(size_class);
    uint32_t slot = berm__size_class_slot_of(size_class, addr - slab->base);
    unsigned count = cache->count[size_class];
    if (BERM_UNLIKELY(__atomic_load_n(&slab->uses, __ATOMIC_RELAXED) != NULL ||
                      __atomic_load_n(&slab->pins, __ATOMIC_RELAXED) != 0 || slot >= slab->slots ||
                      slab->base + slot * class_bytes != addr ||
                      count >= cache->capacity[size_class] || !berm__ring_has_room(ring, place)))
        return BERM_ERROR_STATE;
    uint64_t requested = (uint64_t)slab->slot[slot].requested + 1;
    uint8_t tag = slab->slot[slot].tag;
    if (BERM_UNLIKELY(!berm__slot_claim(slab, slot)))
        return BERM_ERROR_DOUBLE_FREE;
    cache->slots[size_class][count] = (berm_cache_slot_t){slab, slot};
    cache->count[size_class] = (uint8_t)(count + 1);
    cache->bytes += class_bytes;
    berm__counts_free(cache->counts, requested, class_bytes);
    berm__tag_free(cache->pool->device, tag, requested, class_bytes);
    if (BERM_LIKELY(ring != NULL))
        berm__ring_put(ring, place, BERM_RING_FREE, addr, requested);
    return BERM_OK;
}

// Events of hits are noted from now on, or not (berm__ring_is_on). Locked.
void berm__caches_ring_update(berm_device_t *device);
// Keeps every owner of the device's caches out, until released. Locked.
void berm__caches_claim(berm_device_t *device);
void berm__caches_release(berm_device_t *device);
// Claims, gives everything cached back to its pool and merges the counts: until the release the
// pools have every block, and stay as they are. Locked. True if anything was cached.
bool berm__caches_hold(berm_device_t *device);
// The same, and releases at once.
bool berm__caches_drain(berm_device_t *device);
// Drains, and leaves the caches of `pool` claimed for ever: its stream is gone. Locked.
void berm__caches_retire(berm_pool_t *pool);
// Adds all counts to the device's figures. Locked.
void berm__caches_merge(berm_device_t *device);
// Holds them, and stops every pool: nothing changes until the thaw. Locked.
void berm__device_freeze(berm_device_t *device);
void berm__device_thaw(berm_device_t *device);

// --- the owner, inside, with the pool's lock -----------------------------------------------------

// Fills an empty bin for `size_bytes` with a batch of the exchange; false if there is none.
bool berm__cache_exchange(berm_cache_t *cache, uint64_t size_bytes);
// After an allocation of `size_bytes` by the pool: fills half of the class's bin from one slab with
// free slots.
void berm__cache_refill(berm_cache_t *cache, uint64_t size_bytes);
// Gives everything back to the pool, and with it the slabs that are empty then; true if there was
// anything.
bool berm__cache_spill(berm_cache_t *cache);
// Makes room for a block of `size_bytes`: half of a full bin goes to the exchange, or back to its
// slabs; false for a large block when one is cached, which is given back too, and where nothing is
// kept.
bool berm__cache_make_room(berm_cache_t *cache, uint64_t size_bytes);

#endif
