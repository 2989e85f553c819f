// SPDX-License-Identifier: Apache-2.0
// The audit of the threads' caches and of the exchanges between them (I21), before they are emptied
// for the rest of the audit.
//
// Locks: the device's, and every cache is claimed; takes each pool's. Calls no driver, allocates
// nothing.
#include "front/audit.h"

#include "policy/cache.h"

static int slot_check(const berm_audit_t *audit, const berm_pool_t *pool,
                      const berm_cache_slot_t *entries, unsigned size_class, uint32_t at) {
    const berm_cache_slot_t *entry = &entries[at];
    const berm_slab_t *slab = entry->slab;
    berm_addr_t addr = slab->base;
    if (slab->segment->pool != pool || slab->size_class != size_class || entry->slot >= slab->slots)
        return berm__audit_fail(audit, 21, addr, "a cached slot is of another pool or class");
    bool is_cached =
        berm__slot_is_taken(slab, entry->slot) && slab->slot[entry->slot].state == BERM_SLOT_CACHED;
    if (!is_cached)
        return berm__audit_fail(audit, 21, berm__slot_addr(slab, entry->slot),
                                "a thread's cache holds a slot that is not cached");
    for (uint32_t other = 0; other < at; other++)
        if (entries[other].slab == slab && entries[other].slot == entry->slot)
            return berm__audit_fail(audit, 21, berm__slot_addr(slab, entry->slot),
                                    "a slot is cached twice");
    return 0;
}

static int cache_check(const berm_audit_t *audit, const berm_cache_t *cache) {
    uint64_t bytes = 0;
    for (unsigned size_class = 0; size_class < BERM_SIZE_CLASS_COUNT; size_class++) {
        for (uint32_t at = 0; at < cache->count[size_class]; at++) {
            int broken = slot_check(audit, cache->pool, cache->slots[size_class], size_class, at);
            if (broken != 0)
                return broken;
            bytes += berm__size_class_bytes(size_class);
        }
    }
    const berm_cache_large_t *large = &cache->large;
    if (large->range != NULL &&
        (large->segment->pool != cache->pool || large->range->state != BERM_RANGE_CACHED ||
         large->range->size_bytes != large->size_bytes))
        return berm__audit_fail(audit, 21, large->segment->base + large->range->start_bytes,
                                "a thread's cache holds a block that is not cached");
    bytes += large->size_bytes;
    if (bytes != cache->bytes)
        return berm__audit_fail(audit, 21, 0, "a thread's cache holds %llu bytes, %llu are counted",
                                (unsigned long long)bytes, (unsigned long long)cache->bytes);
    return 0;
}

static int exchange_check(const berm_audit_t *audit, const berm_pool_t *pool) {
    const struct berm_exchange *exchange = pool->exchange;
    uint64_t bytes = 0;
    for (unsigned size_class = 0; size_class < BERM_SIZE_CLASS_COUNT; size_class++) {
        for (uint32_t i = 0; i < exchange->count[size_class]; i++) {
            const berm_cache_batch_t *batch = &exchange->batches[size_class][i];
            for (uint32_t at = 0; at < batch->count; at++) {
                int broken = slot_check(audit, pool, batch->slots, size_class, at);
                if (broken != 0)
                    return broken;
            }
            bytes += batch->count * berm__size_class_bytes(size_class);
        }
    }
    if (bytes != exchange->bytes)
        return berm__audit_fail(audit, 21, 0, "an exchange holds %llu bytes, %llu are counted",
                                (unsigned long long)bytes, (unsigned long long)exchange->bytes);
    return 0;
}

int berm__audit_caches(const berm_audit_t *audit) {
    int broken = 0;
    BERM_LIST_EACH (berm_cache_t, cache, &audit->device->caches, link) {
        berm__mutex_lock(&cache->pool->lock);
        broken = broken == 0 ? cache_check(audit, cache) : broken;
        berm__mutex_unlock(&cache->pool->lock);
    }
    BERM_LIST_EACH (berm_pool_t, pool, &audit->device->pools, link) {
        berm__mutex_lock(&pool->lock);
        broken = broken == 0 && pool->exchange != NULL ? exchange_check(audit, pool) : broken;
        berm__mutex_unlock(&pool->lock);
    }
    return broken;
}
