// SPDX-License-Identifier: Apache-2.0
// The audit of one pool: slabs (I13), the lists they are in (I14), deferred frees (I15, I9) and the
// pool's figures (I12).
//
// That two sets are equal (blocks that are awaited; entries that wait) is checked with a sum of
// hashes over each: two different sets of any size have the same sum with a chance of 2^-64.
//
// Locks: the device's. Calls no driver, allocates nothing.
#include "front/audit.h"

#include <inttypes.h>

#include "base/rng.h"

typedef struct pool_walk {
    uint64_t requested_bytes, allocated_bytes, blocks;
    uint64_t awaited_bytes, awaited_count, awaited_hash;
    uint64_t held_count; // blocks
    uint64_t empty_slabs, partial_slabs;
    berm_audit_sums_t *sums; // of all pools
} pool_walk_t;

static uint64_t addr_hash(berm_addr_t addr) {
    berm_rng_t rng;
    berm__rng_seed(&rng, addr);
    return berm__rng_next(&rng);
}

static void walk_live(pool_walk_t *walk, uint8_t tag, uint64_t requested_bytes,
                      uint64_t allocated_bytes) {
    walk->requested_bytes += requested_bytes;
    walk->allocated_bytes += allocated_bytes;
    walk->blocks++;
    walk->sums->tags[tag].blocks++;
    walk->sums->tags[tag].requested_bytes += requested_bytes;
    walk->sums->tags[tag].allocated_bytes += allocated_bytes;
}

static void walk_awaited(pool_walk_t *walk, berm_addr_t addr, uint64_t size_bytes) {
    walk->awaited_bytes += size_bytes;
    walk->awaited_count++;
    walk->awaited_hash += addr_hash(addr);
}

static bool bit_read(const uint64_t *words, uint32_t bit) {
    return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

static unsigned bits_count(const uint64_t *words) {
    unsigned count = 0;
    for (unsigned i = 0; i < BERM_SLAB_WORDS; i++)
        count += (unsigned)__builtin_popcountll(words[i]);
    return count;
}

// I14, the slab's side: a full one is in no list. The lists' side is lists_check.
static int slab_filed_check(const berm_audit_t *audit, const berm_slab_t *slab, pool_walk_t *walk) {
    bool is_full = slab->used == slab->slots;
    if (is_full != berm__list_is_empty(&slab->link))
        return berm__audit_fail(audit, 14, berm__slot_addr(slab, 0),
                                "a slab with %u of %u slots used %s", slab->used, slab->slots,
                                is_full ? "is in a list" : "is in no list");
    walk->empty_slabs += slab->used == 0;
    walk->partial_slabs += slab->used != 0 && !is_full;
    return 0;
}

// I13.
static int slab_check(const berm_audit_t *audit, const berm_segment_t *segment,
                      const berm_range_t *range, pool_walk_t *walk) {
    const berm_slab_t *slab = range->owner;
    berm_addr_t addr = segment->base + range->start_bytes;
    if (slab->segment != segment || slab->range != range || slab->base != addr ||
        slab->size_class >= BERM_SIZE_CLASS_COUNT)
        return berm__audit_fail(audit, 13, addr, "a slab's record names another home");
    uint64_t class_bytes = berm__size_class_bytes(slab->size_class);
    if (range->size_bytes != berm__size_class_slab_bytes(slab->size_class) ||
        slab->slots != berm__size_class_slots(slab->size_class))
        return berm__audit_fail(audit, 13, addr, "a slab is not of the size of its class");
    if (slab->used != bits_count(slab->taken))
        return berm__audit_fail(audit, 13, addr, "%u slots are taken, %u are counted",
                                bits_count(slab->taken), slab->used);
    for (uint32_t slot = 0; slot < BERM_SLAB_SLOTS_MAX; slot++) {
        bool is_taken = bit_read(slab->taken, slot),
             is_live = slot < slab->slots && berm__slot_is_live(slab, slot);
        if (is_live > is_taken || (is_taken && slot >= slab->slots))
            return berm__audit_fail(audit, 13, addr, "slot %u of %u is %s", slot, slab->slots,
                                    is_taken ? "taken" : "live and not taken");
        if (is_live) {
            uint64_t requested_bytes = (uint64_t)slab->slot[slot].requested + 1;
            if (requested_bytes > class_bytes)
                return berm__audit_fail(audit, 13, berm__slot_addr(slab, slot),
                                        "a request of %" PRIu64 " bytes in a slot of %" PRIu64,
                                        requested_bytes, class_bytes);
            walk_live(walk, slab->slot[slot].tag, requested_bytes, class_bytes);
        } else if (is_taken && slab->slot[slot].state == BERM_SLOT_HELD) {
            walk->held_count++;
        } else if (is_taken) {
            walk_awaited(walk, berm__slot_addr(slab, slot), class_bytes);
        }
    }
    return slab_filed_check(audit, slab, walk);
}

// I9, of what is live: uses have no ticket before the free.
static int live_uses_check(const berm_audit_t *audit, const berm_range_t *range, berm_addr_t addr) {
    const berm_use_t *use =
        range->is_slab ? ((const berm_slab_t *)range->owner)->uses : range->owner;
    for (; use != NULL; use = use->next)
        if (use->ticket != 0)
            return berm__audit_fail(audit, 9, addr, "a live block's use has ticket %" PRIu64,
                                    use->ticket);
    return 0;
}

static int segment_walk(const berm_audit_t *audit, const berm_segment_t *segment,
                        pool_walk_t *walk) {
    int broken = 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL && broken == 0;
         range = range->next) {
        berm_addr_t addr = segment->base + range->start_bytes;
        if (range->state == BERM_RANGE_AWAITED)
            walk_awaited(walk, addr, range->size_bytes);
        walk->held_count += range->state == BERM_RANGE_HELD;
        if (range->state != BERM_RANGE_LIVE)
            continue;
        if (range->is_slab) {
            broken = slab_check(audit, segment, range, walk);
        } else {
            walk_live(walk, range->tag, range->as.block.requested_bytes, range->size_bytes);
        }
        if (broken == 0)
            broken = live_uses_check(audit, range, addr);
    }
    return broken;
}

// The slabs of one list: of this pool and class, and as full as the list says (4: empty ones).
static int slab_list_check(const berm_audit_t *audit, const berm_list_t *head, unsigned size_class,
                           unsigned fullness, uint64_t *count) {
    for (const berm_list_t *link = head->next; link != head; link = link->next, ++*count) {
        const berm_slab_t *slab = BERM_CONTAINER_OF((uintptr_t)link, berm_slab_t, link);
        bool is_right = slab->segment->pool == audit->pool && slab->size_class == size_class;
        if (is_right && fullness == BERM_SLAB_FULLNESS)
            is_right = slab->used == 0;
        else if (is_right)
            is_right = slab->used > 0 && slab->used < slab->slots && slab->fullness == fullness &&
                       (unsigned)slab->used * BERM_SLAB_FULLNESS / slab->slots == fullness;
        if (!is_right)
            return berm__audit_fail(audit, 14, berm__slot_addr(slab, 0),
                                    "a slab of class %u with %u of %u slots used is in list %u of "
                                    "class %u",
                                    slab->size_class, slab->used, slab->slots, fullness,
                                    size_class);
    }
    return 0;
}

static int lists_check(const berm_audit_t *audit, const pool_walk_t *walk) {
    const berm_pool_t *pool = audit->pool;
    uint64_t partial = 0, empty = 0;
    int broken = 0;
    for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT && broken == 0; c++) {
        uint64_t of_class = 0;
        for (unsigned f = 0; f < BERM_SLAB_FULLNESS && broken == 0; f++)
            broken = slab_list_check(audit, &pool->partial[c][f], c, f, &partial);
        if (broken == 0)
            broken = slab_list_check(audit, &pool->empties[c], c, BERM_SLAB_FULLNESS, &of_class);
        if (broken == 0 && of_class > 1)
            broken = berm__audit_fail(audit, 14, 0, "%" PRIu64 " empty slabs of class %u are kept",
                                      of_class, c);
        empty += of_class;
    }
    if (broken == 0 && (partial != walk->partial_slabs || empty != walk->empty_slabs))
        broken = berm__audit_fail(audit, 14, 0,
                                  "%" PRIu64 " partial and %" PRIu64 " empty slabs in lists, "
                                  "%" PRIu64 " and %" PRIu64 " in segments",
                                  partial, empty, walk->partial_slabs, walk->empty_slabs);
    return broken;
}

static berm_addr_t entry_addr(const berm_deferred_t *entry) {
    return entry->slab != NULL ? berm__slot_addr(entry->slab, entry->slot)
                               : entry->segment->base + entry->range->start_bytes;
}

// I9: a use's ticket is one that its stream has given out.
static int entry_uses_check(const berm_audit_t *audit, const berm_deferred_t *entry) {
    for (const berm_use_t *use = entry->uses; use != NULL; use = use->next) {
        const berm_stream_ref_t *stream = use->stream;
        bool is_given = use->ticket > BERM_TICKET_NONE &&
                        (use->ticket < stream->open_ticket ||
                         (use->ticket == stream->open_ticket && stream->is_open_used));
        if (!is_given)
            return berm__audit_fail(audit, 9, entry_addr(entry),
                                    "a freed block waits for ticket %" PRIu64
                                    " of stream 0x%" PRIxPTR ", the open one is %" PRIu64,
                                    use->ticket, (uintptr_t)stream->handle, stream->open_ticket);
    }
    return 0;
}

// I15, and the sum of what is deferred.
static int deferred_check(const berm_audit_t *audit, const pool_walk_t *walk) {
    const berm_pool_t *pool = audit->pool;
    uint64_t count = 0, hash = 0, bytes = 0;
    BERM_LIST_EACH (berm_deferred_t, entry, &pool->deferred, link) {
        if (entry->uses == NULL)
            return berm__audit_fail(audit, 15, entry_addr(entry),
                                    "a freed block waits for no stream");
        int broken = entry_uses_check(audit, entry);
        if (broken != 0)
            return broken;
        count++;
        bytes += entry->size_bytes;
        hash += addr_hash(entry_addr(entry));
    }
    if (count == walk->awaited_count && hash == walk->awaited_hash &&
        bytes == walk->awaited_bytes && bytes == pool->deferred_bytes)
        return 0;
    return berm__audit_fail(audit, 15, 0,
                            "%" PRIu64 " blocks of %" PRIu64 " bytes are awaited, %" PRIu64
                            " of %" PRIu64 " bytes are queued, %" PRIu64 " bytes are counted%s",
                            walk->awaited_count, walk->awaited_bytes, count, bytes,
                            pool->deferred_bytes,
                            hash == walk->awaited_hash ? "" : "; not the same blocks");
}

// I12, the pool's share.
static int taken_check(const berm_audit_t *audit, const pool_walk_t *walk) {
    uint64_t taken = walk->blocks + walk->awaited_count + walk->held_count;
    if (audit->pool->taken_blocks == taken)
        return 0;
    return berm__audit_fail(audit, 12, 0, "%" PRIu64 " blocks are taken, %" PRIu64 " are counted",
                            taken, audit->pool->taken_blocks);
}

int berm__audit_pool(berm_audit_t *audit) {
    const berm_pool_t *pool = audit->pool;
    pool_walk_t walk = {.sums = &audit->sums};
    int broken = 0;
    for (const berm_list_t *link = pool->segments.next; link != &pool->segments && broken == 0;
         link = link->next)
        broken =
            segment_walk(audit, BERM_CONTAINER_OF((uintptr_t)link, berm_segment_t, link), &walk);
    if (broken == 0)
        broken = lists_check(audit, &walk);
    if (broken == 0)
        broken = deferred_check(audit, &walk);
    if (broken == 0)
        broken = taken_check(audit, &walk);
    audit->sums.requested_bytes += walk.requested_bytes;
    audit->sums.allocated_bytes += walk.allocated_bytes;
    audit->sums.blocks += walk.blocks;
    audit->sums.held_blocks += walk.held_count;
    audit->sums.awaited_bytes += walk.awaited_bytes;
    return broken;
}
