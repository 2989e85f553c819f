// SPDX-License-Identifier: Apache-2.0
// Pins: see pin.h. They are few and change rarely: a small table by address, walked where need be.
#include "policy/pin.h"

#include "base/bits.h"
#include "policy/pool.h"

void berm__pins_init(berm_pins_t *pins) {
    pins->count = 0;
    atomic_init(&pins->held_count, 0);
    atomic_init(&pins->pinned_bytes, 0);
    atomic_init(&pins->over_count, 0);
    for (unsigned i = 0; i < BERM_PIN_BUCKETS; i++)
        berm__list_init(&pins->buckets[i]);
    berm__node_slab_init(&pins->nodes, sizeof(berm_pin_t));
}

void berm__pins_destroy(berm_pins_t *pins) {
    for (unsigned i = 0; i < BERM_PIN_BUCKETS; i++) {
        while (!berm__list_is_empty(&pins->buckets[i])) {
            berm_pin_t *pin = BERM_CONTAINER_OF(pins->buckets[i].next, berm_pin_t, link);
            berm__list_remove(&pin->link);
            berm__node_slab_give(&pins->nodes, pin);
        }
    }
    berm__node_slab_destroy(&pins->nodes);
}

static berm_list_t *bucket_of(const berm_pins_t *pins, berm_addr_t addr) {
    uint64_t hash = (addr / BERM_RANGE_UNIT_BYTES) * UINT64_C(0x9e3779b97f4a7c15);
    return (berm_list_t *)(uintptr_t)&pins->buckets[hash >> 60];
}

_Static_assert(BERM_PIN_BUCKETS == 16, "four bits of the hash");

bool berm__pin_is_on(const berm_pool_t *pool, berm_addr_t addr) {
    BERM_LIST_EACH (const berm_pin_t, pin, bucket_of(&pool->pins, addr), link)
        if (pin->addr == addr)
            return true;
    return false;
}

// A pin of the block that nobody is announcing; NULL if there is none.
static berm_pin_t *pin_find(berm_pool_t *pool, berm_addr_t addr, berm_pin_fn callback,
                            const void *arg) {
    BERM_LIST_EACH (berm_pin_t, pin, bucket_of(&pool->pins, addr), link)
        if (pin->addr == addr && pin->callback == callback && pin->arg == arg &&
            !pin->is_announced && !pin->is_over)
            return pin;
    return NULL;
}

// Counts a pin in, or out of, each handle under it.
static void handles_mark(berm_pool_t *pool, const berm_pin_t *pin, bool is_pinned) {
    const berm_segment_t *segment = pin->segment;
    uint64_t offset = pin->addr - segment->base;
    uint64_t at = berm__segment_granule_of(segment, offset);
    uint64_t last = berm__segment_granule_of(segment, offset + pin->size_bytes - 1);
    for (const berm_phys_handle_t *before = NULL; at <= last; at++) {
        berm_phys_handle_t *handle = segment->handle_of[at];
        if (handle == before)
            continue;
        uint64_t bytes = (uint64_t)handle->granules << segment->gpu->lg_granule;
        if (is_pinned && handle->pins++ == 0)
            atomic_fetch_add(&pool->pins.pinned_bytes, bytes);
        else if (!is_pinned && --handle->pins == 0)
            atomic_fetch_sub(&pool->pins.pinned_bytes, bytes);
        before = handle;
    }
}

// The block has its first pin, or none any more.
static void block_mark(const berm_pin_t *pin, bool is_pinned) {
    if (pin->slab == NULL)
        pin->range->is_pinned = is_pinned;
    else // threads that free other slots of the slab look at it without a lock
        __atomic_store_n(&pin->slab->pins, (uint16_t)(pin->slab->pins + (is_pinned ? 1 : -1)),
                         __ATOMIC_RELAXED);
}

berm_status_t berm__pin_add(const berm_block_t *block, berm_pin_fn callback, void *arg) {
    berm_pool_t *pool = block->pool;
    berm_pins_t *pins = &pool->pins;
    if (pin_find(pool, block->addr, callback, arg) != NULL)
        return BERM_ERROR_STATE;
    berm_pin_t *pin = berm__node_slab_take(&pins->nodes);
    if (pin == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    *pin = (berm_pin_t){.addr = block->addr,
                        .size_bytes = block->size_bytes,
                        .callback = callback,
                        .arg = arg,
                        .segment = block->segment,
                        .slab = block->slab,
                        .range = block->range,
                        .slot = block->slot};
    if (!berm__pin_is_on(pool, block->addr))
        block_mark(pin, true);
    berm__list_push_back(bucket_of(pins, block->addr), &pin->link);
    pins->count++;
    handles_mark(pool, pin, true);
    return BERM_OK;
}

// Forgets a pin; a held block that has no other is free. If mappings may not change, and the block
// would be unmapped, the pin is over instead.
static void pin_end(berm_pool_t *pool, berm_pin_t *pin, bool may_edit) {
    berm_pins_t *pins = &pool->pins;
    if (!may_edit && pin->is_held && pin->slab == NULL &&
        berm__range_is_exported(pool, pin->segment, pin->range)) {
        if (!pin->is_announced)
            atomic_fetch_sub(&pins->held_count, 1);
        pin->is_announced = false;
        pin->is_over = true;
        atomic_fetch_add(&pins->over_count, 1);
        return;
    }
    berm_pin_t ended = *pin;
    handles_mark(pool, pin, false);
    berm__list_remove(&pin->link);
    berm__node_slab_give(&pins->nodes, pin);
    pins->count--;
    if (ended.is_over)
        atomic_fetch_sub(&pins->over_count, 1);
    else if (ended.is_held && !ended.is_announced)
        atomic_fetch_sub(&pins->held_count, 1);
    if (berm__pin_is_on(pool, ended.addr))
        return;
    block_mark(&ended, false);
    if (ended.is_held && ended.slab == NULL)
        berm__large_give(pool, ended.segment, ended.range);
    else if (ended.is_held)
        berm__small_give(pool, ended.slab, ended.slot);
}

berm_status_t berm__pin_remove(berm_pool_t *pool, berm_addr_t addr, berm_pin_fn callback,
                               void *arg) {
    bool may_edit = berm__device_edits_are_allowed(pool->device); // before the pool's lock
    berm__mutex_lock(&pool->lock);
    berm_pin_t *pin = pin_find(pool, addr, callback, arg);
    if (pin != NULL)
        pin_end(pool, pin, may_edit);
    berm__mutex_unlock(&pool->lock);
    return pin != NULL ? BERM_OK : BERM_ERROR_ADDRESS_UNKNOWN;
}

void berm__pins_settle(berm_pool_t *pool) {
    if (BERM_LIKELY(atomic_load(&pool->pins.over_count) == 0) ||
        !berm__device_edits_are_allowed(pool->device))
        return;
    berm__mutex_lock(&pool->lock);
    for (unsigned i = 0; i < BERM_PIN_BUCKETS; i++) {
        berm_list_t *bucket = &pool->pins.buckets[i];
        for (berm_list_t *link = bucket->next, *next; link != bucket; link = next) {
            berm_pin_t *pin = BERM_CONTAINER_OF(link, berm_pin_t, link);
            next = link->next;
            if (!pin->is_over)
                continue;
            pin_end(pool, pin, true);
            next = bucket->next; // the pool's lock was given up, perhaps
        }
    }
    berm__mutex_unlock(&pool->lock);
}

void berm__pin_hold(berm_pool_t *pool, berm_addr_t addr) {
    BERM_LIST_EACH (berm_pin_t, pin, bucket_of(&pool->pins, addr), link) {
        if (pin->addr != addr)
            continue;
        pin->is_held = true;
        if (!pin->is_announced)
            atomic_fetch_add(&pool->pins.held_count, 1);
    }
}

// --- announcing --------------------------------------------------------------------------------

static void announced_take(berm_pool_t *pool, berm_pin_t *pin, berm_list_t *announced) {
    pin->is_announced = true;
    berm__list_push_back(announced, &pin->announced_link);
    if (pin->is_held)
        atomic_fetch_sub(&pool->pins.held_count, 1);
}

// The pool's held pins, or all of them.
static void pool_take(berm_pool_t *pool, bool takes_live, berm_list_t *announced) {
    berm__mutex_lock(&pool->lock);
    for (unsigned i = 0; i < BERM_PIN_BUCKETS && pool->pins.count > 0; i++)
        BERM_LIST_EACH (berm_pin_t, pin, &pool->pins.buckets[i], link)
            if (!pin->is_announced && !pin->is_over && (pin->is_held || takes_live))
                announced_take(pool, pin, announced);
    berm__mutex_unlock(&pool->lock);
}

// The records stay, and what a callback is told does not change, until they are finished.
static bool announced_call(berm_device_t *device, berm_list_t *announced) {
    if (berm__list_is_empty(announced))
        return false;
    berm__callout_begin(device);
    BERM_LIST_EACH (berm_pin_t, pin, announced, announced_link)
        pin->callback(pin->arg, pin->addr, pin->size_bytes);
    berm__callout_end(device);
    bool may_edit = berm__device_edits_are_allowed(device);
    while (!berm__list_is_empty(announced)) {
        berm_pin_t *pin = BERM_CONTAINER_OF(announced->next, berm_pin_t, announced_link);
        berm_pool_t *pool = pin->segment->pool;
        berm__list_remove(&pin->announced_link);
        berm__mutex_lock(&pool->lock);
        pin_end(pool, pin, may_edit);
        berm__mutex_unlock(&pool->lock);
    }
    return true;
}

bool berm__pins_announce_held(berm_device_t *device, const berm_pool_t *pool) {
    berm_list_t announced;
    berm__list_init(&announced);
    BERM_LIST_EACH (berm_pool_t, each, &device->pools, link)
        if (pool == NULL || each == pool)
            pool_take(each, false, &announced);
    return announced_call(device, &announced);
}

bool berm__pins_announce_all(berm_device_t *device) {
    berm_list_t announced;
    berm__list_init(&announced);
    BERM_LIST_EACH (berm_pool_t, pool, &device->pools, link)
        pool_take(pool, true, &announced);
    return announced_call(device, &announced);
}

bool berm__pins_are_held(const berm_device_t *device) {
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link)
        if (atomic_load(&((berm_pool_t *)(uintptr_t)pool)->pins.held_count) > 0)
            return true;
    return false;
}

uint64_t berm__pins_bytes(const berm_device_t *device) {
    uint64_t bytes = 0;
    BERM_LIST_EACH (const berm_pool_t, pool, &device->pools, link)
        bytes += atomic_load(&((berm_pool_t *)(uintptr_t)pool)->pins.pinned_bytes);
    return bytes;
}
