// SPDX-License-Identifier: Apache-2.0
// The tiling of one segment's addresses into ranges, and a good fit over its free ones.
//
// Offsets are bytes from the start of the segment, multiples of BERM_RANGE_UNIT_BYTES. All
// bookkeeping is outside the memory described: nothing here knows of a driver or a device.
//
// Invariants (checked by berm__ranges_check, numbers of docs/invariants.md):
//   I1  ranges tile [0, span) in address order without gap or overlap
//   I2  no two neighbours are both FREE, or both VOID
//   I3  exactly the FREE ranges are in `free`, exactly the VOID ones in `voids`, each in the bin of
//       its size, and the bitmaps say which bins are not empty
//   I4  free_bytes is the sum of the FREE ranges' sizes
//
// Cost: finding is two bit scans and a bounded walk; taking and giving back are O(1). Only when no
// larger bin has anything is the request's own bin walked to its end, so that a fit is never
// missed. Two-level bins after Masmano et al., "TLSF" (2004): 16 linear bins per doubling, so that
// what a bin holds differs by less than 1/16.
//
// Locks: the owner's. Memory: nodes come from the owner's slab, which has them reserved.
#ifndef BERM_CORE_RANGES_H
#define BERM_CORE_RANGES_H

#include <stdbool.h>

#include "base/defs.h"
#include "base/list.h"
#include "host/node_slab.h"

#define BERM_RANGE_UNIT_BYTES UINT64_C(512)

typedef enum berm_range_state {
    BERM_RANGE_FREE,     // mapped, in a bin
    BERM_RANGE_VOID,     // no memory behind it: whole granules
    BERM_RANGE_LIVE,     // a block, or a slab of small blocks
    BERM_RANGE_AWAITED,  // freed, but some stream may still use it
    BERM_RANGE_BUSY,     // being mapped or unmapped
    BERM_RANGE_HELD,     // freed, but its addresses are pinned
    BERM_RANGE_CACHED,   // freed into a thread's cache: for everyone else still a block
    BERM_RANGE_STALE,    // its pages have moved on; work that was queued before may still use it
    BERM_RANGE_POISONED, // never used again, after a driver error of unknown effect
    BERM_RANGE_STATE_COUNT
} berm_range_state_t;

// 64 bytes: what a live large block costs the host.
typedef struct berm_range {
    uint64_t start_bytes;
    uint64_t size_bytes;
    struct berm_range *prev; // neighbours by address; NULL at the ends
    struct berm_range *next;
    union {
        berm_list_t bin; // FREE and VOID: in its bin
        struct {
            uint64_t requested_bytes; // LIVE and AWAITED
            uint64_t index;           // LIVE: n-th request of the device, from 1
        } block;
        struct {
            uint64_t ticket;         // STALE: of the last work that may use it
            struct berm_range *next; // of the owner's list
        } stale;
    } as;
    void *owner;   // LIVE: the slab it is the home of, or the list of streams that use the block
    uint8_t state; // berm_range_state_t
    uint8_t is_slab;
    uint8_t is_pinned; // LIVE, AWAITED, HELD: registered with something outside
    uint8_t tag;       // LIVE and AWAITED: what was on the thread's stack of tags (front/tag.h)
    // STALE: handles still mapped there. LIVE and AWAITED: the note of it (policy/learn.h); 0:
    // none.
    uint32_t mappings;
} berm_range_t;

enum {
    BERM_BIN_LINEAR_LG = 5,
    BERM_BIN_LINEAR = 1 << BERM_BIN_LINEAR_LG,
    BERM_BIN_LEVELS = 44, // sizes below 2^57
};

// The state as another thread may be changing it between LIVE and CACHED.
static inline berm_range_state_t berm__range_state(const berm_range_t *range) {
    return (berm_range_state_t)__atomic_load_n(&range->state, __ATOMIC_RELAXED);
}

// Takes a live block away from its user, once: false if it is not live (any more).
static inline bool berm__range_claim(berm_range_t *range) {
    uint8_t expected = BERM_RANGE_LIVE;
    return __atomic_compare_exchange_n(&range->state, &expected, BERM_RANGE_CACHED, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// Ranges of one state by size: see ranges.c.
typedef struct berm_bins {
    uint64_t level_bits;
    uint32_t linear_bits[BERM_BIN_LEVELS];
    berm_list_t bins[BERM_BIN_LEVELS][BERM_BIN_LINEAR];
} berm_bins_t;

typedef struct berm_ranges {
    berm_range_t *first;
    uint64_t span_bytes;
    uint64_t free_bytes;
    berm_node_slab_t *nodes;
    berm_bins_t free, voids;
} berm_ranges_t;

// One VOID range over [0, span). Takes one node; false if there is none. `nodes` is borrowed.
BERM_NODISCARD bool berm__ranges_init(berm_ranges_t *ranges, uint64_t span_bytes,
                                      berm_node_slab_t *nodes);
// Gives every node back.
void berm__ranges_destroy(berm_ranges_t *ranges);

// A FREE range with `size_bytes` at a multiple of `alignment_bytes` inside it, or NULL. `base` is
// the address of offset 0: alignment is of addresses. Changes nothing.
berm_range_t *berm__ranges_find(berm_ranges_t *ranges, uint64_t base, uint64_t size_bytes,
                                uint64_t alignment_bytes);

// Cuts [start, start + size) out of `range`, gives the cut part `state` and returns it; what is
// left on either side keeps the old state. Takes up to two nodes, which must be reserved.
berm_range_t *berm__ranges_carve(berm_ranges_t *ranges, berm_range_t *range, uint64_t start_bytes,
                                 uint64_t size_bytes, berm_range_state_t state);

// Sets the state and joins the range with neighbours of the same state where that is FREE or VOID.
// Returns the range that now covers it.
berm_range_t *berm__ranges_settle(berm_ranges_t *ranges, berm_range_t *range,
                                  berm_range_state_t state);

// Joins `range` with the neighbour after it, whatever their states (neither FREE nor VOID: take
// them out of their bins with berm__ranges_lift first); keeps the state of `range`.
void berm__ranges_absorb_next(berm_ranges_t *ranges, berm_range_t *range);

// Gives a range another state without joining it to neighbours.
void berm__ranges_lift(berm_ranges_t *ranges, berm_range_t *range, berm_range_state_t state);

// The largest FREE range, or NULL. Walks one bin.
const berm_range_t *berm__ranges_largest_free(const berm_ranges_t *ranges);

// FREE ranges from small to large, by bin: the first with a bin not below that of `size_bytes`, and
// the one after `range`. NULL at the end.
berm_range_t *berm__ranges_bin_first(berm_ranges_t *ranges, uint64_t size_bytes);
berm_range_t *berm__ranges_bin_next(berm_ranges_t *ranges, berm_range_t *range);
// FREE ranges from large to small, by bin; NULL at the end.
berm_range_t *berm__ranges_bin_last(berm_ranges_t *ranges);
berm_range_t *berm__ranges_bin_prev(berm_ranges_t *ranges, berm_range_t *range);

// A VOID range of at least `size_bytes`, among the smallest there are; NULL if none.
berm_range_t *berm__ranges_find_void(berm_ranges_t *ranges, uint64_t size_bytes);

// A VOID range that no other exceeds by more than a bin's width; NULL if there is none. O(1).
berm_range_t *berm__ranges_largest_void(berm_ranges_t *ranges);

// The range that holds the offset; walks from the start (for questions, not for the data path).
berm_range_t *berm__ranges_at(const berm_ranges_t *ranges, uint64_t offset_bytes);

// Checks I1 to I4; 0, or the number of the first that fails and a line in `error`.
int berm__ranges_check(const berm_ranges_t *ranges, char *error, size_t error_capacity);

const char *berm__range_state_name(berm_range_state_t state);

#endif
