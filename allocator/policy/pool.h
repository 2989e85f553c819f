// SPDX-License-Identifier: Apache-2.0
// A pool: everything one (device, stream) serves from. It owns segments; small requests are slots
// of slabs, and slabs are blocks of the same segments as large requests.
//
// Life of a block's bytes:
//   VOID -> (mapped) FREE -> LIVE -> FREE                 freed on its own stream
//                            LIVE -> AWAITED -> FREE      another stream, or none, was named
//                            ... -> HELD -> FREE          the block is pinned (pin.h)
//
// Memory that is FREE may still be in use by work queued on the pool's own stream; ticket_of says
// up to which ticket. That is all right for a request on the same stream, and forbids moving the
// page until the ticket has passed. The pool without a stream (BERM_STREAM_NONE) has no own stream:
// every free into it is AWAITED first.
//
// Invariants (docs/invariants.md):
//   I9   a live block's uses have ticket 0, an awaited one's have tickets their streams gave out
//   I12  the device's figures: allocated is the sum of LIVE blocks and live slots; active adds
//        AWAITED ones; a pool's taken_blocks is the number of all those, and of cached and HELD
//        ones
//   I13  a slab's slots: a live one is taken; used = bits of taken; requested sizes fit the class
//   I14  a slab with a free slot and one taken is in the list of its fullness; an empty one is in
//        `empties`; a full one is in none
//   I15  every AWAITED block has exactly one deferred entry, with at least one use
//
// Locks: the pool's, for all of it, but for the state and records of blocks that a thread's cache
// holds, which are its owner's (cache.h), and what the fields say is under the device's. It is
// taken after the device's, and never held over a driver call: what a call works on is BUSY
// meanwhile. Entries leave the queue of deferred frees, and the pool changes hands, under both.
#ifndef BERM_POLICY_POOL_H
#define BERM_POLICY_POOL_H

#include "host/node_slab.h"
#include "policy/counts.h"
#include "policy/pin.h"

// One stream's use of a block. While the block is live the ticket is 0; the free sets it.
typedef struct berm_use {
    struct berm_use *next;
    berm_stream_ref_t *stream;
    uint64_t ticket;
    uint32_t slot; // of a slab's block; 0 for a large block
} berm_use_t;

// A freed block that waits for its uses.
typedef struct berm_deferred {
    berm_list_t link; // of the pool's list, oldest first
    berm_use_t *uses;
    berm_segment_t *segment;
    struct berm_slab *slab; // NULL: a large block
    berm_range_t *range;    // of a large block
    uint32_t slot;
    uint64_t size_bytes;
} berm_deferred_t;

enum {
    BERM_SLAB_SLOTS_MAX = 128,
    BERM_SLAB_WORDS = BERM_SLAB_SLOTS_MAX / 64,
    BERM_SLAB_FULLNESS = 4, // lists by quarter, so that the fullest are used first
};

typedef enum berm_slot_state {
    BERM_SLOT_FREE,   // not taken
    BERM_SLOT_LIVE,   // taken, a caller's
    BERM_SLOT_CACHED, // taken, in a thread's cache, an exchange or awaited
    BERM_SLOT_HELD,   // taken, free but for its pins
} berm_slot_state_t;

// A small block.
typedef struct berm_slot {
    uint32_t index;     // n-th request of the device, modulo 2^32
    uint16_t requested; // bytes, less one
    uint8_t state;      // berm_slot_state_t
    uint8_t tag;        // what was on the thread's stack of tags (front/tag.h)
} berm_slot_t;

// A run of whole slots of a segment that holds equal small blocks. A hit reads the first cache line
// and writes that of its slot.
typedef struct berm_slab {
    berm_use_t *uses; // of all its live blocks
    berm_addr_t base; // of slot 0
    uint16_t slots, used;
    uint16_t pins; // pinned blocks; atomic where threads look without a lock
    uint8_t size_class;
    uint8_t fullness;                // which list it is in
    const void *user;                // the thread cache that fills from it, so that no two share it
    uint64_t taken[BERM_SLAB_WORDS]; // live, cached, awaited or held
    berm_segment_t *segment;
    berm_range_t *range; // its home, LIVE
    berm_list_t link;
    uint64_t size_bytes; // of this record
    berm_slot_t slot[];
} berm_slab_t;

static inline berm_addr_t berm__slot_addr(const berm_slab_t *slab, uint32_t slot) {
    return slab->base + slot * berm__size_class_bytes(slab->size_class);
}

static inline bool berm__slot_is_taken(const berm_slab_t *slab, uint32_t slot) {
    return (slab->taken[slot / 64] >> (slot % 64) & 1) != 0;
}

static inline bool berm__slot_is_live(const berm_slab_t *slab, uint32_t slot) {
    return __atomic_load_n(&slab->slot[slot].state, __ATOMIC_RELAXED) == BERM_SLOT_LIVE;
}

// As berm__range_claim, of a slot.
static inline bool berm__slot_claim(berm_slab_t *slab, uint32_t slot) {
    uint8_t expected = BERM_SLOT_LIVE;
    return __atomic_compare_exchange_n(&slab->slot[slot].state, &expected, BERM_SLOT_CACHED, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

struct berm_planned;
struct berm_learn;
struct berm_demand;

typedef struct berm_pool {
    berm_mutex_t lock;
    berm_list_t link;       // of the device's list; under the device's lock
    berm_list_t group_link; // of the group's list; under the device's lock
    berm_device_t *device;
    bool is_default;           // of the default group; constant
    uint64_t number;           // n-th that was made on the device; constant
    berm_group_t *group;       // changed under both locks; NULL: spare
    berm_stream_ref_t *stream; // the same
    berm_list_t segments;      // oldest first; changed under both locks
    berm_aliased_t aliased;    // under the device's lock
    // Under the lock.
    berm_list_t partial[BERM_SIZE_CLASS_COUNT][BERM_SLAB_FULLNESS];
    berm_list_t empties[BERM_SIZE_CLASS_COUNT]; // at most one slab each
    uint64_t taken_blocks;
    // Of pools of other groups than the default. Changed under both locks: the last ticket of the
    // stream under which something was freed into it.
    uint64_t used_ticket;
    // Under the device's lock: the capture that allocates from it, as far as is known, and the
    // number that its requests are above.
    uint64_t capture_id, capture_index;
    // The block that is being grown (resizable.h); addr 0: none. Changed under both locks.
    struct {
        berm_segment_t *segment;
        berm_addr_t addr;
    } growing;
    berm_node_slab_t range_nodes, use_nodes, deferred_nodes;
    uint64_t range_nodes_promised;  // range nodes that open windows may still need
    uint32_t cache_count;           // of threads (cache.h)
    struct berm_exchange *exchange; // between them; NULL: none yet
    berm_list_t deferred;           // what is removed is removed under both locks
    berm_pins_t pins;
    struct berm_learn *learn;        // NULL: it does not learn; changed under both locks (learn.h)
    uint64_t rest_misses, rest_from; // while it does not: misses, since the request of that number
    bool is_planned; // one of its segments is a plan's arena; changed under both locks
    // Written under the lock, looked at without.
    atomic_uint_fast64_t deferred_bytes;
    atomic_uint_fast64_t deferred_polls; // allocations since the deferred list was last looked at
    atomic_bool has_unsealed;            // an entry was added since the last seal
    atomic_bool is_learning;             // `learn` is not NULL: it wants to see every large block
    atomic_bool learn_wants;             // berm__learn_tick has something to do
} berm_pool_t;

// A request as the pool sees it: sizes and alignment are checked.
typedef struct berm_request {
    uint64_t size_bytes, alignment_bytes;
    uint64_t number;  // n-th of the device
    const void *user; // the thread's cache, NULL: none
    uint8_t tag;      // of the thread
    // False: only what is mapped and free will do, else BERM_ERROR_STATE and nothing happened.
    // True: the device's lock is held, and the driver may be called, and waited for.
    bool may_map;
} berm_request_t;

// A block found by its address.
typedef struct berm_block {
    berm_segment_t *segment;
    berm_pool_t *pool;
    berm_slab_t *slab; // NULL: large
    berm_range_t *range;
    uint32_t slot;
    uint64_t size_bytes; // what it occupies
    berm_addr_t addr;
} berm_block_t;

// Makes a pool of a stream for the group, or takes an empty pool of a retired stream or a spare
// one, which have their addresses: a program that makes and destroys streams, or groups, for ever
// needs no more of them. Locked. OUT_OF_HOST_MEMORY.
berm_status_t berm__pool_make(berm_group_t *group, berm_stream_ref_t *stream, berm_pool_t **out);
// What is live in the pool. Walks all of it; it is frozen.
typedef struct berm_pool_live {
    uint64_t requested_bytes, allocated_bytes, blocks;
} berm_pool_live_t;
berm_pool_live_t berm__pool_live_read(const berm_pool_t *pool);

// Takes a pool of a caller's group that holds nothing off its group and stream; its addresses are
// kept for another. False if it holds something. Locked.
bool berm__pool_park(berm_pool_t *pool);
// Frees an empty pool's records; nothing of it is mapped.
void berm__pool_destroy(berm_pool_t *pool);

// A range of unknown state after an error of the driver: never used again. Both locks are held.
void berm__range_poison(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range);
// A range that was BUSY, or STALE, while the driver unmapped it: VOID, or POISONED where it failed.
// Both locks are held.
void berm__range_unmapped(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range,
                          berm_status_t status);

// Adds a segment with room for `size_bytes`. Locked. OUT_OF_ADDRESSES, OUT_OF_HOST_MEMORY, DRIVER.
berm_status_t berm__pool_segment_add(berm_pool_t *pool, uint64_t size_bytes);
// The same, of `most_bytes`, or less where addresses are short, but with room for `least_bytes`.
berm_status_t berm__pool_room_add(berm_pool_t *pool, uint64_t least_bytes, uint64_t most_bytes);
// Makes a segment, or one of an earlier plan that has no memory any more, the arena of a plan of
// `size_bytes`. The same, and OUT_OF_ADDRESSES too when earlier arenas are still in use.
berm_status_t berm__pool_arena_add(berm_pool_t *pool, uint64_t size_bytes,
                                   struct berm_planned *planned);

// Whether work on the pool's memory has an order: false for the pool without a stream and for one
// whose stream was retired, where all that is free has passed.
static inline bool berm__pool_has_order(const berm_pool_t *pool) {
    return pool->stream->handle != BERM_STREAM_NONE && !pool->stream->is_retired;
}

// Something was freed into the pool that work on its stream may still use: what a capture wants to
// know. The pool's lock is held.
static inline void berm__pool_touch(berm_pool_t *pool) {
    if (!pool->is_default && berm__pool_has_order(pool))
        pool->used_ticket = berm__stream_ticket(pool->stream);
}

// Serves a request. The pool's lock is held, and given up for a while where the driver is called.
// *occupied_bytes is what the block takes.
berm_status_t berm__pool_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                               uint64_t *occupied_bytes);

// What lies at an address of `segment`: BERM_OK and the live block, or ADDRESS_UNKNOWN,
// ADDRESS_INTERIOR, DOUBLE_FREE. Never calls the driver. The pool's lock is held.
berm_status_t berm__pool_block_find(berm_segment_t *segment, berm_addr_t addr, berm_block_t *block);

// What was freed, for the figures.
typedef struct berm_freed {
    uint64_t requested_bytes, occupied_bytes;
    uint8_t tag;
    bool is_awaited; // stays active: some stream may still use it
} berm_freed_t;

// Frees a live block that its own stream used last, and no other. BERM_ERROR_STATE, and nothing
// changed, if others did; DOUBLE_FREE if another thread was first. The pool's lock is held.
berm_status_t berm__pool_free_own(const berm_block_t *block, berm_freed_t *freed);
// Frees a live block that `stream` used last, be it its own. DOUBLE_FREE if another thread was
// first; OUT_OF_HOST_MEMORY, and nothing changed, if there is no memory to remember who uses it.
// `is_captured`: the capture that capture_id names goes on, so that a block that is older than it
// waits for its end. The pool's lock is held.
berm_status_t berm__pool_free(const berm_block_t *block, berm_stream_ref_t *stream,
                              bool is_captured, berm_freed_t *freed);
// As berm__pool_free where there is no host memory: waits for the block's uses and for `stream`;
// NULL: for all work of the device. Counts the free itself. OUT_OF_HOST_MEMORY, and nothing
// changed, if that fails too. No lock is held; takes the device's.
berm_status_t berm__pool_free_waiting(berm_pool_t *pool, berm_segment_t *segment, berm_addr_t addr,
                                      berm_stream_ref_t *stream, berm_freed_t *freed);

// Frees a live block whose recorded streams have been waited for; its own stream's order holds. The
// pool's lock is held.
void berm__pool_free_passed(const berm_block_t *block, berm_freed_t *freed);

// One use more or less of a stream, of the pool's nodes. Take: NULL without host memory (never
// after a reserve). The pool's lock is held.
berm_use_t *berm__use_take(berm_pool_t *pool, berm_stream_ref_t *stream, uint32_t slot);
void berm__use_give(berm_pool_t *pool, berm_use_t *use);

// Adds a stream to a live block's uses. OUT_OF_HOST_MEMORY. The pool's lock is held.
berm_status_t berm__pool_use_add(const berm_block_t *block, berm_stream_ref_t *stream);

// --- how large a request could be (largest.c) --------------------------------------------------

// A request of exactly this size on the pool's stream makes no memory call; 512 bytes more does.
// Locked, as all that follows where nothing else is said.
uint64_t berm__pool_largest_free(berm_pool_t *pool);
// The largest free range as it is now: caches are left alone. Takes the pool's lock.
uint64_t berm__pool_largest_range(berm_pool_t *pool);
// The same when all that is awaited has passed: the longest run of free and awaited addresses.
uint64_t berm__pool_largest_awaited(berm_pool_t *pool);
// The same when pages may move, streams be waited for, and memory grow to the limit or to what the
// driver has free, with its price. `pool` may be NULL: a stream not seen yet. The context is
// current.
typedef struct berm_obtainable {
    uint64_t bytes;
    // What it is made of, in whole granules.
    uint64_t idle_bytes;    // mapped nowhere
    uint64_t free_bytes;    // pages that would move, perhaps after a wait for their own stream
    uint64_t awaited_bytes; // pages that other streams are waited for
    uint64_t growth_bytes;  // new
} berm_obtainable_t;
berm_obtainable_t berm__device_obtainable(berm_device_t *device, berm_pool_t *pool,
                                          uint64_t driver_free_bytes);

// --- the large path (large.c) ------------------------------------------------------------------

// A stretch of a segment that is about to be a block.
typedef struct berm_place {
    berm_segment_t *segment;
    berm_range_t *range;
} berm_place_t;

// A LIVE range of exactly size_bytes (a multiple of 512) from what is mapped and free.
// BERM_ERROR_STATE if nothing fits; OUT_OF_HOST_MEMORY if it cannot be cut out. The pool's lock is
// held.
berm_status_t berm__large_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place);
// The same; where nothing fits and `may_map`, maps memory (miss.c) and climbs the ladder
// (ladder.c). The pool's lock is held, and given up meanwhile. STATE though it `may_map`: held pins
// are to be announced first (device.h: pins_wanted).
berm_status_t berm__large_take(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                               bool may_map, berm_place_t *place);
// In groups whose blocks own their handles (owned.c): as berm__large_hit and berm__miss_map, of
// whole granules.
berm_status_t berm__owned_hit(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place);
berm_status_t berm__owned_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place);
// A block of such a group that another process may have: its range is never free again. The pool's
// lock is held, or the device's. Retire unmaps one that nobody uses any more and gives its handle
// back to the driver; both locks are held, and the pool's is given up meanwhile. (export.c)
bool berm__range_is_exported(const berm_pool_t *pool, const berm_segment_t *segment,
                             const berm_range_t *range);
void berm__export_retire(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range);
static inline bool berm__pool_is_owned(const berm_pool_t *pool) {
    return (pool->group->traits & (BERM_GROUP_EXPORTABLE | BERM_GROUP_NO_SPLIT)) != 0;
}
// Pools whose blocks can grow where they are (resizable.h).
static inline bool berm__pool_is_resizable(const berm_pool_t *pool) {
    return (pool->group->traits & BERM_GROUP_RESIZABLE) != 0;
}
// Pools of either kind, which have no slabs and lend nothing to aliases.
static inline bool berm__pool_is_apart(const berm_pool_t *pool) {
    return berm__pool_is_owned(pool) || berm__pool_is_resizable(pool);
}
// Gives a LIVE, AWAITED or HELD range back to the free ones; a pinned one is HELD instead. The
// pool's lock is held.
void berm__large_give(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *range);

// --- plain memory (plain.c) --------------------------------------------------------------------

// Pools whose segments are cuMemAlloc's: nothing in them moves, whole segments go back.
static inline bool berm__pool_is_plain(const berm_pool_t *pool) {
    return pool->group->store->is_plain;
}
// As berm__miss_map: adds a segment.
berm_status_t berm__plain_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                              berm_place_t *place);
// Gives wholly free segments whose work has passed back to the driver, `bytes` of them. Exactly
// that is rarely to be had: it is more if it `may_exceed`, less if not. Groups whose memory must
// stay are passed by.
berm_status_t berm__plain_release(berm_pool_t *pool, uint64_t bytes, bool may_exceed,
                                  uint64_t *released_bytes);
// The lowest ticket that has not passed among segments that are wholly free; 0 if none.
uint64_t berm__plain_cheapest_ticket(berm_pool_t *pool);
// Bytes of wholly free segments, their work passed or not.
uint64_t berm__plain_free_bytes(berm_pool_t *pool, bool counts_awaited);

// --- the small path (small.c): the pool's lock is held -------------------------------------------

// A request that with its alignment is at most BERM_SMALL_MAX_BYTES. *occupied_bytes is the size of
// the class. As berm__pool_alloc.
berm_status_t berm__small_alloc(berm_pool_t *pool, const berm_request_t *request, berm_addr_t *out,
                                uint64_t *occupied_bytes);
// Takes up to `most` free slots of one slab for `user` and marks them cached; returns how many.
uint32_t berm__small_fill(berm_pool_t *pool, unsigned size_class, const void *user, uint32_t most,
                          berm_slab_t **out, uint32_t *slots);
void berm__small_give(berm_pool_t *pool, berm_slab_t *slab, uint32_t slot);
// The parts of an allocation, for who knows where (pool_restore.c): the record of a slab, NULL
// without host memory, and its end if it was not opened; a LIVE range of its class's size made its
// home; a slot that is free.
berm_slab_t *berm__slab_record_make(unsigned size_class);
void berm__slab_record_free(berm_slab_t *slab);
void berm__slab_open(berm_slab_t *slab, const berm_place_t *place);
void berm__slot_take(berm_pool_t *pool, berm_slab_t *slab, uint32_t slot, const void *user,
                     berm_slot_state_t state);
// A thread cache ends: the slabs it filled from are anyone's.
void berm__small_disown(berm_pool_t *pool, const void *user);
// Gives every empty slab's range back to the large path; true if there was one.
bool berm__small_flush(berm_pool_t *pool);
// The same, taking the pool's lock.
bool berm__small_flush_locking(berm_pool_t *pool);
// The largest small request that needs no driver call; 0 if none.
uint64_t berm__small_largest(berm_pool_t *pool);

// --- deferred frees (deferred.c) ---------------------------------------------------------------

// Puts a freed block (already AWAITED) in the queue; its entry and uses are given. The pool's lock
// is held.
void berm__deferred_add(berm_pool_t *pool, berm_deferred_t *entry);
// Seals what is open, asks which uses have passed, and frees those blocks. *freed (may be NULL)
// says whether any was.
berm_status_t berm__deferred_process(berm_pool_t *pool, bool *freed);
// A little of that, now and then, while frees wait: before an allocation. No lock is held; passes
// by when the device's is taken.
void berm__deferred_tick(berm_pool_t *pool);
// The same where the device's lock is held.
void berm__deferred_tick_locked(berm_pool_t *pool);
// Waits for the oldest entry; false if there is none.
berm_status_t berm__deferred_wait_oldest(berm_pool_t *pool, bool *waited);

// --- misses (miss.c) and the ladder (ladder.c) -------------------------------------------------

// Makes room for a request by mapping the fewest granules, and takes it. Errors as berm_alloc.
berm_status_t berm__miss_map(berm_pool_t *pool, uint64_t size_bytes, uint64_t alignment_bytes,
                             berm_place_t *place);
// Maps what is not mapped of [start, start + size), FREE and VOID ranges of which `first` holds the
// start, as the demand says (supply.h). The pool's lock is held, and given up meanwhile; the
// device's is held, in its context or not. Errors as berm_alloc, and CAPTURE while a capture
// forbids mappings to change; what could be had is idle then.
berm_status_t berm__miss_map_at(berm_pool_t *pool, berm_segment_t *segment, berm_range_t *first,
                                uint64_t start_bytes, uint64_t size_bytes,
                                struct berm_demand *demand);

// Takes whole free handles whose tickets have passed away from their addresses, smallest free run
// first, up to `granules`; they become idle. *taken is how many granules. Of this pool, then of
// others of its store, and last, if it `takes_planned`, of plans' arenas; groups whose pages must
// stay are passed by, and all while a capture forbids mappings to change (sync_edits). (steal.c)
berm_status_t berm__steal_passed(berm_pool_t *pool, uint64_t granules, bool takes_planned,
                                 uint64_t *taken);
// The same of one pool, until *taken is `granules`; segments of a plain pool go back to the driver
// instead, and *taken may come out higher.
berm_status_t berm__steal_pool(berm_pool_t *pool, uint64_t granules, uint64_t *taken);
// The same of all pools but those of the store `except` (NULL: none).
berm_status_t berm__steal_device(berm_device_t *device, const berm_store_t *except,
                                 uint64_t granules, uint64_t *taken);
// Waits for the cheapest ticket of a whole free handle of the pool; *waited false if there is none.
berm_status_t berm__steal_wait(berm_pool_t *pool, bool *waited);
// Whole handles of the pool that may move and are free now, their work passed or not, in granules.
uint64_t berm__steal_free(berm_pool_t *pool);
// Whole handles of the pool that may move and are free, or will be when what is awaited has passed,
// in granules. Walks all ranges.
uint64_t berm__steal_obtainable(berm_pool_t *pool);

#endif
