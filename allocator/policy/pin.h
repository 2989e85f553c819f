// SPDX-License-Identifier: Apache-2.0
// Pins: blocks whose memory is registered with something outside, a network card or a library that
// talks to other GPUs. The handles under a pinned block stay where they are, also after the block
// is freed: it is then HELD, neither live nor free, until the pin ends.
//
//   LIVE -> (free) -> HELD -> (berm_unpin, or announced) -> FREE
//
// A pin is announced, by its callback, before a request takes the block's addresses or its memory,
// and at the end of the heap. The announcing thread takes the held pins it wants under the lock,
// gives the lock back, calls them, and finishes them under the lock again: only then is the memory
// free. A pin that is being announced is no longer anyone else's to end.
//
// A block that was exported is unmapped when its last pin ends. While a capture forbids that
// (sync_edits) the pin is over, and its block HELD, until somebody settles it.
//
// Invariants (docs/invariants.md):
//   I27  a pin is of a LIVE, CACHED, AWAITED or HELD block, and the other way round: what is HELD,
//        or marked as pinned, has a pin; a handle's pins are those that cover it; a pool's
//        pinned_bytes is the sum of its handles that have any, held_count and over_count the
//        numbers of its pins of either kind
//
// Locks: the pool's. A pin is taken or ended, but for a free that holds its block, with the
// device's held as well, since what is free then may have to go back to the driver. No driver calls
// here.
#ifndef BERM_POLICY_PIN_H
#define BERM_POLICY_PIN_H

#include <stdatomic.h>

#include "base/list.h"
#include "berm.h"
#include "host/node_slab.h"

struct berm_block;
struct berm_device;
struct berm_pool;
struct berm_segment;
struct berm_slab;
struct berm_range;

enum {
    BERM_PIN_BUCKETS = 16
};

typedef struct berm_pin {
    berm_list_t link; // of its bucket
    berm_list_t announced_link;
    berm_addr_t addr; // of the block
    uint64_t size_bytes;
    berm_pin_fn callback;
    void *arg;
    struct berm_segment *segment;
    struct berm_slab *slab;   // NULL: a large block
    struct berm_range *range; // of the block or of the slab
    uint32_t slot;
    bool is_held;      // the block was freed
    bool is_announced; // somebody is calling the callback
    bool is_over;      // it has ended, and its block waits for a capture (berm__pins_settle)
} berm_pin_t;

typedef struct berm_pins {
    berm_list_t buckets[BERM_PIN_BUCKETS]; // by address
    uint64_t count;
    berm_node_slab_t nodes;
    // Looked at without the lock.
    atomic_uint_fast64_t held_count;   // held and not announced yet
    atomic_uint_fast64_t pinned_bytes; // of the handles under pins
    atomic_uint_fast64_t over_count;   // of the pins that are over
} berm_pins_t;                         // of a pool

void berm__pins_init(berm_pins_t *pins);
// Forgets all pins.
void berm__pins_destroy(berm_pins_t *pins);

// Pins a live block. STATE: it is pinned with the same callback and argument. OUT_OF_HOST_MEMORY.
berm_status_t berm__pin_add(const struct berm_block *block, berm_pin_fn callback, void *arg);
// Ends a pin; a held block that has no other is free then. ADDRESS_UNKNOWN: there is none. The
// device's lock is held, the pool's not.
berm_status_t berm__pin_remove(struct berm_pool *pool, berm_addr_t addr, berm_pin_fn callback,
                               void *arg);

// Whether the block at an address is pinned.
bool berm__pin_is_on(const struct berm_pool *pool, berm_addr_t addr);
// A pinned block is free but for its pins.
void berm__pin_hold(struct berm_pool *pool, berm_addr_t addr);

// Announces the held pins of `pool` (NULL: of all pools), or every pin, and ends them. The device's
// lock is held, no pool's; it is given back while callbacks run. False if there was none.
bool berm__pins_announce_held(struct berm_device *device, const struct berm_pool *pool);
bool berm__pins_announce_all(struct berm_device *device);
// Ends what is over, if mappings may change by now. The device's lock is held, its context current.
void berm__pins_settle(struct berm_pool *pool);
// Whether any pool of the device has held pins. The device's lock is held.
bool berm__pins_are_held(const struct berm_device *device);
uint64_t berm__pins_bytes(const struct berm_device *device);

#endif
