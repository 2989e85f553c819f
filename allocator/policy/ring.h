// SPDX-License-Identifier: Apache-2.0
// The event ring: the last things that every thread allocated and freed, and the driver's maps and
// unmaps, in at most 8 MiB of host memory. It is written by every hit, so it takes no lock there:
// each thread fills a chunk of its own, and takes the lock for a new one.
//
//   store:  filled chunks, oldest first  [c3][c1][c7] ...     the oldest is used again
//   thread: the chunk it fills           [.......|    ]
//                                        words   ^ next       limit: where there is more to do
//
// A record is one, two or four words; its kind is in the lowest four bits of the first:
//   one word    ALLOC, FREE, and PAIR for one right after the other, of at most 64 KiB:
//               address / 512 (44 bits), request - 1 (16 bits), kind
//   two words   *_LARGE        address / 512, kind; request
//               TIME           kind; nanoseconds
//               SITE           kind; what asked for the next event (option call_sites)
//   four words  WHERE          device (16 bits), tag (8 bits), kind; pool high; low; stream
//               all others     kind; address; bytes; a number
// The last word of a record of several has 0 in its lowest four bits (numbers are shifted by four,
// streams are pointers), so that it is never taken for an ALLOC.
// TIME and WHERE hold until the next of their kind; a chunk begins with both, so that it can be
// read alone. Times are lower bounds: an event happened between its TIME and the next. A thread
// that writes faster than one record in 500 ns reads the clock for every 256th; a slower one for
// each.
//
// Who reads brings the threads' records into one order by what is at an address (front/events.c).
//
// Invariants (docs/invariants.md):
//   I38  a chunk is in the list of filled ones, or its writer's, whose place lies within it; there
//        are as many as counted, and what is in them are records from beginning to end
//
// Locks: a ring is its thread's; one of a device is under the device's lock. Chunks change hands
// under the store's lock (rank RING), which a reader holds, so that nothing is written over while
// it reads. Records are written before `next` is released.
#ifndef BERM_POLICY_RING_H
#define BERM_POLICY_RING_H

#include <stdatomic.h>

#include "base/list.h"
#include "berm.h"
#include "host/lock.h"

typedef enum berm_ring_kind {
    BERM_RING_NONE,
    BERM_RING_ALLOC, // one word
    BERM_RING_FREE,
    BERM_RING_PAIR, // ALLOC, and its FREE as the thread's next event
    BERM_RING_TIME, // two words
    BERM_RING_SITE,
    BERM_RING_ALLOC_LARGE,
    BERM_RING_FREE_LARGE,
    BERM_RING_PAIR_LARGE,
    BERM_RING_WHERE, // four words
    BERM_RING_FAIL,  // bytes: wanted; number: the status
    BERM_RING_MAP,   // as berm_event_kind_t, in its order
    BERM_RING_UNMAP,
    BERM_RING_PLAIN_ALLOC,
    BERM_RING_PLAIN_FREE,
    BERM_RING_MARK, // number: of the mark
    BERM_RING_KIND_COUNT
} berm_ring_kind_t;

enum {
    BERM_RING_CHUNK_BYTES = 16 << 10, // with its header
    BERM_RING_CHUNKS_MAX = 511,       // with the table of them 8 MiB
    BERM_RING_NARROW_MAX_BYTES = 64 << 10,
};

// Where a request is served: the constant part of a WHERE record.
typedef struct berm_ring_where {
    int ordinal;
    berm_stream_t stream;
    berm_pool_id_t pool;
} berm_ring_where_t;

struct berm_ring_chunk;

// `limit` is NULL whenever the next record needs more before it: another WHERE since the thread
// went on to another cache or tag, or a call site.
typedef struct berm_ring {
    _Atomic(uint64_t *) next;
    uint64_t *limit;                // here or beyond, berm__ring_room comes first
    const berm_ring_where_t *where; // of the last WHERE record; NULL: none that goes on
    uint64_t site;                  // of the call (option call_sites); 0: none
    struct berm_ring_chunk *chunk;  // NULL: none
    uint64_t *end;                  // of the chunk
    uint64_t stamp_ns;              // of the last TIME record
    uint64_t *stamp_at;             // the first event after it
    uint32_t thread;                // the system's number; 0: not asked yet
    uint8_t tag;                    // of the thread
    bool is_stamping;               // each record gets a time
} berm_ring_t;

// Whether events are to be noted (option event_ring). Off: what is there stays and can be read.
extern atomic_bool berm__ring_is_on;

// Makes room for a record, with what is due before it: another chunk, TIME, WHERE, SITE. `stamps`:
// TIME in any case. False: no memory for a chunk, and the event is lost.
bool berm__ring_room(berm_ring_t *ring, const berm_ring_where_t *where, bool stamps);
// Room, and a record of any kind.
void berm__ring_turn(berm_ring_t *ring, const berm_ring_where_t *where, berm_ring_kind_t kind,
                     berm_addr_t addr, uint64_t size_bytes, uint64_t number, bool stamps);
// The same for who has no record of `where` that stays.
void berm__ring_once(berm_ring_t *ring, const berm_ring_where_t *where, berm_ring_kind_t kind,
                     berm_addr_t addr, uint64_t size_bytes, uint64_t number);
// What goes before the next record has changed: the thread's cache, or its tag.
static inline void berm__ring_part(berm_ring_t *ring) {
    ring->where = NULL;
    ring->limit = NULL;
}
// The ring is not written any more; what it has stays.
void berm__ring_end(berm_ring_t *ring);
// Forgets all events. No thread writes. Frees the chunks.
void berm__ring_clear(void);

// Where the next record goes. NULL is no ring: there is nothing to put.
static inline uint64_t *berm__ring_place(const berm_ring_t *ring) {
    return ring != NULL ? atomic_load_explicit(&ring->next, memory_order_relaxed) : NULL;
}

// Whether a record of a block may be put there at once.
static inline bool berm__ring_has_room(const berm_ring_t *ring, const uint64_t *place) {
    return ring == NULL || place < ring->limit;
}

// Sums, which are fewer instructions than ors. No driver has device addresses of more than 53 bits;
// they are multiples of 512.
static inline uint64_t berm__ring_word(berm_ring_kind_t kind, berm_addr_t addr,
                                       uint64_t size_bytes) {
    return (addr << 11) + (size_bytes << 4) - 16 + kind;
}

// An ALLOC or FREE of at most 64 KiB, of the cache that the thread used last, where there is room.
static inline void berm__ring_put(berm_ring_t *ring, uint64_t *place, berm_ring_kind_t kind,
                                  berm_addr_t addr, uint64_t size_bytes) {
    uint64_t word = berm__ring_word(kind, addr, size_bytes);
    if (kind == BERM_RING_FREE && place[-1] == word - BERM_RING_FREE + BERM_RING_ALLOC) {
        __atomic_store_n(&place[-1], word - BERM_RING_FREE + BERM_RING_PAIR, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(place, word, __ATOMIC_RELAXED);
    atomic_store_explicit(&ring->next, place + 1, memory_order_release);
}

// The same of any other size.
static inline void berm__ring_put_large(berm_ring_t *ring, uint64_t *place, berm_ring_kind_t kind,
                                        berm_addr_t addr, uint64_t size_bytes) {
    const unsigned large = BERM_RING_ALLOC_LARGE - BERM_RING_ALLOC;
    uint64_t word = (addr << 11) + kind + large;
    if (kind == BERM_RING_FREE && place[-2] == word - BERM_RING_FREE + BERM_RING_ALLOC) {
        __atomic_store_n(&place[-2], word - BERM_RING_FREE + BERM_RING_PAIR, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(&place[0], word, __ATOMIC_RELAXED);
    __atomic_store_n(&place[1], size_bytes << 4, __ATOMIC_RELAXED);
    atomic_store_explicit(&ring->next, place + 2, memory_order_release);
}

// The same of any size.
static inline void berm__ring_put_any(berm_ring_t *ring, uint64_t *place, berm_ring_kind_t kind,
                                      berm_addr_t addr, uint64_t size_bytes) {
    if (size_bytes <= BERM_RING_NARROW_MAX_BYTES)
        berm__ring_put(ring, place, kind, addr, size_bytes);
    else
        berm__ring_put_large(ring, place, kind, addr, size_bytes);
}

// The same with room or without.
static inline void berm__ring_note(berm_ring_t *ring, const berm_ring_where_t *where,
                                   berm_ring_kind_t kind, berm_addr_t addr, uint64_t size_bytes) {
    uint64_t *place = berm__ring_place(ring);
    if (BERM_UNLIKELY(!berm__ring_has_room(ring, place)))
        berm__ring_turn(ring, where, kind, addr, size_bytes, 0, false);
    else
        berm__ring_put_any(ring, place, kind, addr, size_bytes);
}

// --- reading -------------------------------------------------------------------------------------

// What a reader gets, thread by thread, each thread's in their order.
typedef struct berm_ring_event {
    berm_ring_kind_t kind; // ALLOC and FREE for their wide ones; never TIME or WHERE
    uint8_t tag;
    uint16_t ordinal;
    uint32_t thread;
    uint64_t number, site;
    uint64_t time_ns; // not before; not after that of the thread's next event with another time
    uint64_t size_bytes;
    berm_addr_t addr;
    berm_stream_t stream;
    berm_pool_id_t pool;
} berm_ring_event_t;

typedef void (*berm_ring_read_fn)(void *context, const void *ring, const berm_ring_event_t *event);

// How many words there are at most: a bound for what reading gives, two events a word.
uint64_t berm__ring_words(void);
// Reads everything. `ring` tells whose it is: chunks of one thread come in their order. The store's
// lock is held meanwhile; `fn` takes no lock.
void berm__ring_read(berm_ring_read_fn fn, void *context);
// The same of the last chunks: those that threads fill, and of the filled ones as many as have
// `words_max`. A thread that writes seldom is read from where its chunk begins. True: it was all.
bool berm__ring_read_last(uint64_t words_max, berm_ring_read_fn fn, void *context);
// Chunks that were used again: events before the oldest are lost.
uint64_t berm__ring_lost_chunks(void);

// I38: 0, or 38 and a line in `error`.
int berm__ring_check(char *error, size_t error_capacity);

#endif
