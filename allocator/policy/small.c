// SPDX-License-Identifier: Apache-2.0
// The small path: slots of slabs. A slab is a run of whole 64 KiB slots of a segment, taken from
// the large path and given back as soon as it is empty (one empty slab a class is kept for the next
// request, and goes too when the large path is short). Records are outside device memory.
//
// Waste is bounded by W1 to W4 of core/size_class.h plus one partial slab a class; fuller slabs are
// used first, so that the others empty. Invariants I13 and I14 of pool.h.
#include "policy/pool.h"

#include "base/bits.h"
#include "host/mem.h"

static uint64_t slab_record_bytes(uint32_t slots) {
    return sizeof(berm_slab_t) + slots * sizeof(berm_slot_t);
}

// Puts the slab in the list that its fullness asks for (I14).
static void slab_file(berm_pool_t *pool, berm_slab_t *slab) {
    if (slab->used == slab->slots) {
        berm__list_remove(&slab->link);
        slab->fullness = BERM_SLAB_FULLNESS;
        return;
    }
    uint8_t fullness = (uint8_t)(slab->used * BERM_SLAB_FULLNESS / slab->slots);
    if (fullness == slab->fullness)
        return;
    berm__list_remove(&slab->link);
    berm__list_push_front(&pool->partial[slab->size_class][fullness], &slab->link);
    slab->fullness = fullness;
}

static void slab_release(berm_pool_t *pool, berm_slab_t *slab) {
    berm__list_remove(&slab->link);
    berm__large_give(pool, slab->segment, slab->range);
    berm__slab_record_free(slab);
}

berm_slab_t *berm__slab_record_make(unsigned size_class) {
    uint32_t slots = berm__size_class_slots(size_class);
    berm_slab_t *slab = berm__mem_alloc(slab_record_bytes(slots));
    if (slab == NULL)
        return NULL;
    berm__list_init(&slab->link);
    slab->size_class = (uint8_t)size_class;
    slab->fullness = BERM_SLAB_FULLNESS;
    slab->slots = (uint16_t)slots;
    slab->size_bytes = slab_record_bytes(slots);
    return slab;
}

void berm__slab_record_free(berm_slab_t *slab) {
    berm__mem_free(slab, slab->size_bytes);
}

void berm__slab_open(berm_slab_t *slab, const berm_place_t *place) {
    slab->segment = place->segment;
    slab->range = place->range;
    slab->base = slab->segment->base + slab->range->start_bytes;
    slab->range->owner = slab;
    slab->range->is_slab = 1;
    berm__segment_cells_write(slab->segment, slab->range->start_bytes, slab->range->size_bytes,
                              (uintptr_t)slab | BERM_CELL_IS_SLAB);
}

static berm_status_t slab_create(berm_pool_t *pool, unsigned size_class, bool may_map,
                                 berm_slab_t **out) {
    berm_slab_t *slab = berm__slab_record_make(size_class);
    if (slab == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm_place_t place;
    berm_status_t status = berm__large_take(pool, berm__size_class_slab_bytes(size_class),
                                            BERM_CELL_BYTES, may_map, &place);
    if (status != BERM_OK) {
        berm__slab_record_free(slab);
        return status;
    }
    berm__slab_open(slab, &place);
    *out = slab;
    return BERM_OK;
}

static berm_slab_t *slab_of(berm_list_t *link) {
    return BERM_CONTAINER_OF(link, berm_slab_t, link);
}

// Slabs that another thread's cache fills from are passed by: two threads that write the records of
// one slab would slow each other down.
static bool slab_is_for(const berm_slab_t *slab, const void *user) {
    return user == NULL || slab->user == NULL || slab->user == user;
}

// The fullest slab of a class with a free slot that is for `user`, or the empty one; NULL if there
// is none. Only the first few of a list are looked at.
static berm_slab_t *slab_find(berm_pool_t *pool, unsigned size_class, const void *user) {
    enum {
        WALK_MAX = 4
    };
    for (unsigned fullness = BERM_SLAB_FULLNESS; fullness-- > 0;) {
        berm_list_t *head = &pool->partial[size_class][fullness], *link = head->next;
        for (unsigned i = 0; i < WALK_MAX && link != head; i++, link = link->next)
            if (slab_is_for(slab_of(link), user))
                return slab_of(link);
    }
    berm_list_t *empties = &pool->empties[size_class];
    return berm__list_is_empty(empties) ? NULL : slab_of(empties->next);
}

void berm__slot_take(berm_pool_t *pool, berm_slab_t *slab, uint32_t slot, const void *user,
                     berm_slot_state_t state) {
    slab->taken[slot / 64] |= UINT64_C(1) << (slot % 64);
    __atomic_store_n(&slab->slot[slot].state, (uint8_t)state, __ATOMIC_RELAXED);
    pool->taken_blocks++;
    if (slab->used++ == 0)
        slab->fullness = BERM_SLAB_FULLNESS; // out of `empties`
    if (user != NULL)
        slab->user = user;
    slab_file(pool, slab);
}

static uint32_t slot_take(berm_pool_t *pool, berm_slab_t *slab, const void *user,
                          berm_slot_state_t state) {
    unsigned word = slab->taken[0] == UINT64_MAX ? 1 : 0;
    uint32_t slot = word * 64 + berm__bit_lowest(~slab->taken[word]);
    BERM_ASSERT(slot < slab->slots, "a slab in a list has a free slot");
    berm__slot_take(pool, slab, slot, user, state);
    return slot;
}

uint32_t berm__small_fill(berm_pool_t *pool, unsigned size_class, const void *user, uint32_t most,
                          berm_slab_t **out, uint32_t *slots) {
    berm_slab_t *slab = slab_find(pool, size_class, user);
    // An empty slab is not broken into for a guess.
    if (slab == NULL || slab->used == 0)
        return 0;
    uint32_t count = 0;
    while (count < most && slab->used < slab->slots)
        slots[count++] = slot_take(pool, slab, user, BERM_SLOT_CACHED);
    *out = slab;
    return count;
}

// When no slab of the class can be had, a slot of a larger class is better than failing.
static berm_slab_t *slab_find_larger(berm_pool_t *pool, unsigned size_class,
                                     uint64_t alignment_bytes) {
    for (unsigned larger = size_class + 1; larger < BERM_SIZE_CLASS_COUNT; larger++) {
        if (!berm__is_aligned(berm__size_class_bytes(larger), alignment_bytes))
            continue;
        berm_slab_t *slab = slab_find(pool, larger, NULL);
        if (slab != NULL)
            return slab;
    }
    return NULL;
}

berm_status_t berm__small_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                                uint64_t *occupied_bytes) {
    // A class at or above a multiple of the alignment is a multiple of it itself, and slabs are
    // aligned to more than any class: so an aligned small request is a larger small request.
    uint64_t least = berm__align_up(request->size_bytes, request->alignment_bytes);
    unsigned size_class = berm__size_class_of(least);
    berm_slab_t *slab = slab_find(pool, size_class, request->user);
    if (BERM_UNLIKELY(slab == NULL)) {
        berm_status_t status = slab_create(pool, size_class, request->may_map, &slab);
        if (status != BERM_OK && !request->may_map)
            return status;
        if (status != BERM_OK) // better shared with another thread than none
            slab = slab_find(pool, size_class, NULL);
        if (slab == NULL)
            slab = slab_find_larger(pool, size_class, request->alignment_bytes);
        if (slab == NULL)
            return status;
    }
    uint32_t slot = slot_take(pool, slab, request->user, BERM_SLOT_LIVE);
    slab->slot[slot].requested = (uint16_t)(request->size_bytes - 1);
    slab->slot[slot].index = (uint32_t)request->number;
    slab->slot[slot].tag = request->tag;
    *occupied_bytes = berm__size_class_bytes(slab->size_class);
    *out = berm__slot_addr(slab, slot);
    return BERM_OK;
}

void berm__small_give(berm_pool_t *pool, berm_slab_t *slab, uint32_t slot) {
    if (BERM_UNLIKELY(slab->pins > 0) && berm__pin_is_on(pool, berm__slot_addr(slab, slot))) {
        __atomic_store_n(&slab->slot[slot].state, BERM_SLOT_HELD, __ATOMIC_RELAXED);
        berm__pin_hold(pool, berm__slot_addr(slab, slot));
        return;
    }
    pool->taken_blocks--;
    if (slab->used == slab->slots) // who filled from it before may be gone
        slab->user = NULL;
    slab->taken[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    __atomic_store_n(&slab->slot[slot].state, BERM_SLOT_FREE, __ATOMIC_RELAXED);
    if (--slab->used > 0) {
        slab_file(pool, slab);
        return;
    }
    slab->user = NULL;
    berm_list_t *empties = &pool->empties[slab->size_class];
    if (!berm__list_is_empty(empties)) {
        slab_release(pool, slab);
        return;
    }
    berm__list_remove(&slab->link);
    berm__list_push_front(empties, &slab->link);
}

void berm__small_disown(berm_pool_t *pool, const void *user) {
    for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT; c++)
        for (unsigned f = 0; f < BERM_SLAB_FULLNESS; f++)
            BERM_LIST_EACH (berm_slab_t, slab, &pool->partial[c][f], link)
                if (slab->user == user)
                    slab->user = NULL;
}

bool berm__small_flush(berm_pool_t *pool) {
    bool has_flushed = false;
    for (unsigned c = 0; c < BERM_SIZE_CLASS_COUNT; c++) {
        if (berm__list_is_empty(&pool->empties[c]))
            continue;
        slab_release(pool, slab_of(pool->empties[c].next));
        has_flushed = true;
    }
    return has_flushed;
}

bool berm__small_flush_locking(berm_pool_t *pool) {
    berm__mutex_lock(&pool->lock);
    bool has_flushed = berm__small_flush(pool);
    berm__mutex_unlock(&pool->lock);
    return has_flushed;
}

uint64_t berm__small_largest(berm_pool_t *pool) {
    for (unsigned c = BERM_SIZE_CLASS_COUNT; c-- > 0;) {
        if (slab_find(pool, c, NULL) != NULL)
            return berm__size_class_bytes(c);
        BERM_LIST_EACH (berm_segment_t, segment, &pool->segments, link) {
            if (segment->planned == NULL &&
                berm__ranges_find(&segment->ranges, segment->base, berm__size_class_slab_bytes(c),
                                  BERM_CELL_BYTES) != NULL)
                return berm__size_class_bytes(c);
        }
    }
    return 0;
}
