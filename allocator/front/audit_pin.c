// SPDX-License-Identifier: Apache-2.0
// The audit of pins (I27): what the table of pins says against blocks and handles. The walk of the
// segments has summed what is held and pinned.
//
// Locks: the device's. Calls no driver, allocates nothing.
#include "front/audit.h"

#include <inttypes.h>

// What the pins in the table add up to.
typedef struct pin_sums {
    uint64_t count, held_count, over_count, held_blocks;
    uint64_t of_handles; // handles under each pin
} pin_sums_t;

static bool block_is_held(const berm_pin_t *pin) {
    return pin->slab != NULL ? pin->slab->slot[pin->slot].state == BERM_SLOT_HELD
                             : pin->range->state == BERM_RANGE_HELD;
}

// The block is there, says that it is pinned, and is held exactly if the pin says so.
static int pin_check(const berm_audit_t *audit, const berm_pin_t *pin) {
    bool is_there = pin->slab != NULL ? berm__slot_is_taken(pin->slab, pin->slot) &&
                                            berm__slot_addr(pin->slab, pin->slot) == pin->addr
                                      : pin->segment->base + pin->range->start_bytes == pin->addr &&
                                            pin->range->size_bytes == pin->size_bytes &&
                                            pin->range->state != BERM_RANGE_FREE;
    bool is_marked = pin->slab != NULL ? pin->slab->pins > 0 : pin->range->is_pinned != 0;
    if (!is_there || !is_marked)
        return berm__audit_fail(audit, 27, pin->addr, "a pin is of a block that %s",
                                is_there ? "is not marked as pinned" : "is not there");
    if (block_is_held(pin) != pin->is_held)
        return berm__audit_fail(audit, 27, pin->addr, "a pinned block is %sheld, its pin says %s",
                                pin->is_held ? "not " : "", pin->is_held ? "it is" : "it is not");
    return 0;
}

// Adds a pin to the sums. A block with several is counted with the first in the bucket.
static int pin_sum(const berm_audit_t *audit, const berm_list_t *bucket, const berm_pin_t *pin,
                   pin_sums_t *sums) {
    const berm_segment_t *segment = pin->segment;
    uint64_t offset = pin->addr - segment->base;
    uint64_t at = berm__segment_granule_of(segment, offset);
    uint64_t last = berm__segment_granule_of(segment, offset + pin->size_bytes - 1);
    sums->count++;
    sums->held_count += pin->is_held && !pin->is_announced && !pin->is_over;
    sums->over_count += pin->is_over;
    if (pin->is_over && !pin->is_held)
        return berm__audit_fail(audit, 27, pin->addr, "a pin is over on a block that is not held");
    for (const berm_phys_handle_t *before = NULL; at <= last; before = segment->handle_of[at++]) {
        if (segment->handle_of[at] == before)
            continue;
        sums->of_handles++;
        if (segment->handle_of[at] == NULL || segment->handle_of[at]->pins == 0)
            return berm__audit_fail(audit, 27, pin->addr, "a handle under a pin is not pinned");
    }
    if (!pin->is_held)
        return 0;
    BERM_LIST_EACH (const berm_pin_t, other, bucket, link)
        if (other->addr == pin->addr) {
            sums->held_blocks += other == pin;
            break;
        }
    return 0;
}

// The pins of one pool, whose counts they must have.
static int pool_pins_check(const berm_audit_t *audit, const berm_pool_t *pool, pin_sums_t *sums) {
    pin_sums_t before = *sums;
    for (unsigned i = 0; i < BERM_PIN_BUCKETS; i++) {
        BERM_LIST_EACH (const berm_pin_t, pin, &pool->pins.buckets[i], link) {
            int broken = pin_check(audit, pin);
            if (broken == 0)
                broken = pin_sum(audit, &pool->pins.buckets[i], pin, sums);
            if (broken != 0)
                return broken;
        }
    }
    uint64_t count = sums->count - before.count, held = sums->held_count - before.held_count;
    uint64_t held_counted = atomic_load(&((berm_pool_t *)(uintptr_t)pool)->pins.held_count);
    uint64_t over = sums->over_count - before.over_count;
    uint64_t over_counted = atomic_load(&((berm_pool_t *)(uintptr_t)pool)->pins.over_count);
    if (count == pool->pins.count && held == held_counted && over == over_counted)
        return 0;
    return berm__audit_fail(audit, 27, 0,
                            "a pool has %" PRIu64 " pins, %" PRIu64 " of them held, %" PRIu64
                            " over; %" PRIu64 ", %" PRIu64 " and %" PRIu64 " are counted",
                            count, held, over, pool->pins.count, held_counted, over_counted);
}

int berm__audit_pins(const berm_audit_t *audit) {
    uint64_t pinned_bytes = berm__pins_bytes(audit->device);
    pin_sums_t sums = {0};
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->pools, link) {
        int broken = pool_pins_check(audit, pool, &sums);
        if (broken != 0)
            return broken;
    }
    if (sums.held_blocks == audit->sums.held_blocks &&
        sums.of_handles == audit->sums.pins_of_handles && pinned_bytes == audit->sums.pinned_bytes)
        return 0;
    return berm__audit_fail(audit, 27, 0,
                            "pins hold %" PRIu64 " blocks and cover %" PRIu64
                            " handles; segments have %" PRIu64 " and %" PRIu64 "; %" PRIu64
                            " bytes are pinned, %" PRIu64 " are counted",
                            sums.held_blocks, sums.of_handles, audit->sums.held_blocks,
                            audit->sums.pins_of_handles, audit->sums.pinned_bytes, pinned_bytes);
}
