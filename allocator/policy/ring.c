// SPDX-License-Identifier: Apache-2.0
// The chunks of the event ring, and all that is not a hit: see ring.h.
//
// Bounds: 511 chunks of 16 KiB. Locks: the store's, for a moment, when a thread needs a chunk, and
// while events are read. Without host memory the oldest filled chunk is taken; without one of those
// the event is lost.
#include "policy/ring.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/insist.h"
#include "host/clock.h"
#include "host/mem.h"

typedef struct berm_ring_chunk {
    berm_list_t link;         // of the filled ones
    struct berm_ring *writer; // NULL: filled
    uint64_t owner, turn;     // whose it is or was: the n-th writer; its n-th chunk
    uint32_t thread;
    uint32_t used_words;    // of a filled one
    uint32_t checked_words; // the audit has seen records up to there
    uint64_t words[];
} berm_ring_chunk_t;

enum {
    CHUNK_WORDS = (BERM_RING_CHUNK_BYTES - sizeof(berm_ring_chunk_t)) / 8,
    // What one event may take: TIME, SITE, WHERE, and itself, and one more after them.
    EVENT_WORDS = 2 + 2 + 4 + 4 + 4,
    PACE_WORDS = 256, // with no time in between, in a hurry
    PACE_NS = 500,    // a record, below which a thread is in a hurry
};

atomic_bool berm__ring_is_on;

static struct {
    berm_mutex_t lock;
    unsigned count;
    uint64_t turns;     // chunks begun
    uint64_t lost;      // chunks used again
    berm_list_t filled; // oldest first
    berm_ring_chunk_t *all[BERM_RING_CHUNKS_MAX];
} store = {.lock = BERM_MUTEX_INITIALIZER(BERM_LOCK_RING, "the event ring"),
           .filled = {&store.filled, &store.filled}};

static berm_ring_chunk_t *filled_pop(void) {
    if (berm__list_is_empty(&store.filled))
        return NULL;
    berm_ring_chunk_t *chunk = BERM_CONTAINER_OF(store.filled.next, berm_ring_chunk_t, link);
    berm__list_remove(&chunk->link);
    store.lost++;
    return chunk;
}

static berm_ring_chunk_t *chunk_take(void) {
    berm_ring_chunk_t *chunk = NULL;
    if (store.count < BERM_RING_CHUNKS_MAX)
        chunk = berm__mem_alloc(BERM_RING_CHUNK_BYTES);
    if (chunk == NULL)
        return filled_pop();
    store.all[store.count++] = chunk;
    return chunk;
}

static void chunk_fill(berm_ring_t *ring) {
    berm_ring_chunk_t *chunk = ring->chunk;
    if (chunk == NULL)
        return;
    const uint64_t *next = atomic_load_explicit(&ring->next, memory_order_relaxed);
    chunk->used_words = (uint32_t)(next - chunk->words);
    chunk->writer = NULL;
    berm__list_push_back(&store.filled, &chunk->link);
    ring->chunk = NULL;
    ring->limit = ring->end = NULL;
    atomic_store_explicit(&ring->next, NULL, memory_order_relaxed);
}

static bool chunk_begin(berm_ring_t *ring) {
    if (ring->thread == 0)
        ring->thread = (uint32_t)syscall(SYS_gettid);
    berm__mutex_lock(&store.lock);
    chunk_fill(ring);
    berm_ring_chunk_t *chunk = chunk_take();
    if (chunk != NULL) {
        chunk->writer = ring;
        chunk->thread = ring->thread;
        chunk->owner = (uint64_t)(uintptr_t)ring;
        chunk->turn = ++store.turns;
        chunk->checked_words = 0;
        ring->chunk = chunk;
        ring->end = chunk->words + CHUNK_WORDS;
        atomic_store_explicit(&ring->next, chunk->words, memory_order_relaxed);
    }
    berm__mutex_unlock(&store.lock);
    berm__ring_part(ring);
    ring->stamp_at = chunk != NULL ? chunk->words : NULL;
    return chunk != NULL;
}

// Records of the slow path are written as a hit's are: words first, then the place.
static void words_write(berm_ring_t *ring, const uint64_t *words, unsigned count) {
    uint64_t *at = atomic_load_explicit(&ring->next, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        __atomic_store_n(&at[i], words[i], __ATOMIC_RELAXED);
    atomic_store_explicit(&ring->next, at + count, memory_order_release);
}

// Writes the time, and says where the next one is due: soon, while the thread is slow.
static void stamp(berm_ring_t *ring) {
    uint64_t now_ns = berm__clock_ns();
    const uint64_t *at = atomic_load_explicit(&ring->next, memory_order_relaxed);
    uint64_t records =
        ring->stamp_at != NULL && at > ring->stamp_at ? (uint64_t)(at - ring->stamp_at) : 1;
    ring->is_stamping = now_ns - ring->stamp_ns > PACE_NS * records;
    ring->stamp_ns = now_ns;
    const uint64_t words[] = {BERM_RING_TIME, now_ns << 4};
    words_write(ring, words, 2);
}

static void where_write(berm_ring_t *ring, const berm_ring_where_t *where) {
    const uint64_t words[] = {
        (uint64_t)(uint16_t)where->ordinal << 8 | (uint64_t)ring->tag << 24 | BERM_RING_WHERE,
        where->pool.high, where->pool.low, (uint64_t)(uintptr_t)where->stream << 1};
    words_write(ring, words, 4);
    ring->where = where;
}

bool berm__ring_room(berm_ring_t *ring, const berm_ring_where_t *where, bool stamps) {
    const uint64_t *at = atomic_load_explicit(&ring->next, memory_order_relaxed);
    if (ring->chunk == NULL || at > ring->end - EVENT_WORDS) {
        if (!chunk_begin(ring))
            return false;
        stamps = true;
        at = atomic_load_explicit(&ring->next, memory_order_relaxed);
    }
    stamps |= ring->is_stamping || at - ring->stamp_at >= PACE_WORDS;
    if (stamps)
        stamp(ring);
    if (ring->where != where)
        where_write(ring, where);
    if (ring->site != 0) {
        const uint64_t words[] = {BERM_RING_SITE, ring->site << 4};
        words_write(ring, words, 2);
    }
    uint64_t *first = atomic_load_explicit(&ring->next, memory_order_relaxed);
    if (stamps)
        ring->stamp_at = first;
    uint64_t *due = ring->stamp_at + PACE_WORDS;
    if (ring->is_stamping || ring->site != 0)
        due = first + 1; // this record, and no other
    ring->limit = due < ring->end - EVENT_WORDS ? due : ring->end - EVENT_WORDS;
    return true;
}

void berm__ring_turn(berm_ring_t *ring, const berm_ring_where_t *where, berm_ring_kind_t kind,
                     berm_addr_t addr, uint64_t size_bytes, uint64_t number, bool stamps) {
    if (!berm__ring_room(ring, where, stamps))
        return;
    if (kind == BERM_RING_ALLOC || kind == BERM_RING_FREE) {
        berm__ring_put_any(ring, berm__ring_place(ring), kind, addr, size_bytes);
        return;
    }
    const uint64_t words[] = {kind, addr, size_bytes, number << 4};
    words_write(ring, words, 4);
}

void berm__ring_once(berm_ring_t *ring, const berm_ring_where_t *where, berm_ring_kind_t kind,
                     berm_addr_t addr, uint64_t size_bytes, uint64_t number) {
    ring->where = NULL;
    berm__ring_turn(ring, where, kind, addr, size_bytes, number, true);
    berm__ring_part(ring);
}

void berm__ring_end(berm_ring_t *ring) {
    berm__mutex_lock(&store.lock);
    chunk_fill(ring);
    berm__mutex_unlock(&store.lock);
}

void berm__ring_clear(void) {
    berm__mutex_lock(&store.lock);
    for (unsigned i = 0; i < store.count; i++)
        berm__mem_free(store.all[i], BERM_RING_CHUNK_BYTES);
    store.count = 0;
    store.lost = 0;
    berm__list_init(&store.filled);
    berm__mutex_unlock(&store.lock);
}

// --- reading -------------------------------------------------------------------------------------

// What is in force at a place of a chunk.
typedef struct cursor {
    const uint64_t *at, *end;
    uint64_t time_ns, site;
    uint64_t where[4];
    bool is_in_pair; // the first of the two was given
} cursor_t;

static uint64_t word(const cursor_t *cursor, unsigned i) {
    return __atomic_load_n(&cursor->at[i], __ATOMIC_RELAXED);
}

static cursor_t cursor_begin(const berm_ring_chunk_t *chunk) {
    const uint64_t *end = chunk->words + chunk->used_words;
    if (chunk->writer != NULL)
        end = atomic_load_explicit(&chunk->writer->next, memory_order_acquire);
    return (cursor_t){.at = chunk->words, .end = end};
}

static unsigned record_words(berm_ring_kind_t kind) {
    return kind <= BERM_RING_PAIR ? 1 : kind <= BERM_RING_PAIR_LARGE ? 2 : 4;
}

static void event_read(const cursor_t *cursor, berm_ring_kind_t kind, berm_ring_event_t *event) {
    bool is_narrow = kind <= BERM_RING_PAIR;
    bool is_large = !is_narrow && kind <= BERM_RING_PAIR_LARGE;
    uint64_t first = word(cursor, 0);
    *event = (berm_ring_event_t){
        .kind = is_large ? kind - (BERM_RING_ALLOC_LARGE - BERM_RING_ALLOC) : kind,
        .number = is_narrow || is_large ? 0 : word(cursor, 3) >> 4,
        .addr = is_narrow || is_large ? first >> 20 << 9 : word(cursor, 1),
        .size_bytes = is_narrow  ? (first >> 4 & 0xffff) + 1
                      : is_large ? word(cursor, 1) >> 4
                                 : word(cursor, 2),
        .site = cursor->site,
        .time_ns = cursor->time_ns,
        .ordinal = (uint16_t)(cursor->where[0] >> 8),
        .tag = (uint8_t)(cursor->where[0] >> 24),
        .pool = {cursor->where[1], cursor->where[2]},
        .stream = (berm_stream_t)(uintptr_t)((int64_t)cursor->where[3] >> 1),
    };
}

// Takes in what is no event; false where there is one.
static bool cursor_skip(cursor_t *cursor, berm_ring_kind_t kind) {
    if (kind == BERM_RING_TIME)
        cursor->time_ns = word(cursor, 1) >> 4;
    else if (kind == BERM_RING_SITE)
        cursor->site = word(cursor, 1) >> 4;
    else if (kind == BERM_RING_WHERE)
        for (unsigned i = 0; i < 4; i++)
            cursor->where[i] = word(cursor, i);
    else
        return false;
    cursor->at += record_words(kind);
    return true;
}

// The next event; false at the end. *is_good false: it is no record. A PAIR is two.
static bool cursor_next(cursor_t *cursor, berm_ring_event_t *event, bool *is_good) {
    while (cursor->at < cursor->end) {
        berm_ring_kind_t kind = (berm_ring_kind_t)(word(cursor, 0) & 0xf);
        unsigned words = record_words(kind);
        *is_good = kind != BERM_RING_NONE && kind < BERM_RING_KIND_COUNT &&
                   (size_t)(cursor->end - cursor->at) >= words;
        if (!*is_good)
            return false;
        if (cursor_skip(cursor, kind))
            continue;
        event_read(cursor, kind, event);
        bool is_pair = event->kind == BERM_RING_PAIR;
        if (is_pair)
            event->kind = cursor->is_in_pair ? BERM_RING_FREE : BERM_RING_ALLOC;
        cursor->is_in_pair = is_pair && !cursor->is_in_pair;
        if (cursor->is_in_pair)
            return true;
        cursor->site = 0;
        cursor->at += words;
        return true;
    }
    return false;
}

uint64_t berm__ring_words(void) {
    berm__mutex_lock(&store.lock);
    uint64_t words = (uint64_t)store.count * CHUNK_WORDS;
    berm__mutex_unlock(&store.lock);
    return words;
}

uint64_t berm__ring_lost_chunks(void) {
    berm__mutex_lock(&store.lock);
    uint64_t lost = store.lost;
    berm__mutex_unlock(&store.lock);
    return lost;
}

static void chunk_read(const berm_ring_chunk_t *chunk, berm_ring_read_fn fn, void *context) {
    cursor_t cursor = cursor_begin(chunk);
    berm_ring_event_t event;
    for (bool is_good = true; cursor_next(&cursor, &event, &is_good);) {
        event.thread = chunk->thread;
        fn(context, (const void *)(uintptr_t)chunk->owner, &event);
    }
}

// The oldest of the filled chunks that are within the last `words_max` words; the list's head:
// none.
static const berm_list_t *filled_first(uint64_t words_max) {
    const berm_list_t *first = &store.filled;
    for (uint64_t words = 0; first->prev != &store.filled; first = first->prev) {
        words += BERM_CONTAINER_OF(first->prev, berm_ring_chunk_t, link)->used_words;
        if (words > words_max)
            break;
    }
    return first;
}

void berm__ring_read(berm_ring_read_fn fn, void *context) {
    (void)berm__ring_read_last(UINT64_MAX, fn, context);
}

bool berm__ring_read_last(uint64_t words_max, berm_ring_read_fn fn, void *context) {
    berm__mutex_lock(&store.lock);
    // Filled ones in the order in which they were filled; what is being filled is younger than its
    // thread's others.
    const berm_list_t *first = filled_first(words_max);
    for (const berm_list_t *at = first; at != &store.filled; at = at->next)
        chunk_read(BERM_CONTAINER_OF(at, berm_ring_chunk_t, link), fn, context);
    for (unsigned i = 0; i < store.count; i++)
        if (store.all[i]->writer != NULL)
            chunk_read(store.all[i], fn, context);
    bool is_all = first == store.filled.next;
    berm__mutex_unlock(&store.lock);
    return is_all;
}

// --- the audit -----------------------------------------------------------------------------------

// Records that an earlier audit has seen are not looked at again: there may be a million of them.
static const char *chunk_problem(berm_ring_chunk_t *chunk) {
    const berm_ring_t *writer = chunk->writer;
    if (writer != NULL && writer->chunk != chunk)
        return "a chunk's writer writes another";
    cursor_t cursor = cursor_begin(chunk);
    if (cursor.end < chunk->words + chunk->checked_words || cursor.end > chunk->words + CHUNK_WORDS)
        return "a chunk's place lies outside";
    berm_ring_event_t event;
    bool is_good = true, knows_where = chunk->checked_words == 0;
    cursor.at += chunk->checked_words;
    while (cursor_next(&cursor, &event, &is_good))
        if ((knows_where && cursor.where[0] == 0) ||
            (event.size_bytes == 0 && event.kind != BERM_RING_MARK))
            return "an event has no place or no size";
    if (!is_good)
        return "what is in a chunk is no record";
    chunk->checked_words = (uint32_t)(cursor.end - chunk->words);
    return NULL;
}

int berm__ring_check(char *error, size_t error_capacity) {
    const char *problem = NULL;
    unsigned filled = 0, written = 0;
    berm__mutex_lock(&store.lock);
    BERM_LIST_EACH (const berm_ring_chunk_t, chunk, &store.filled, link) {
        filled++;
        if (chunk->writer != NULL)
            problem = "a filled chunk has a writer";
    }
    for (unsigned i = 0; i < store.count && problem == NULL; i++) {
        written += store.all[i]->writer != NULL;
        problem = chunk_problem(store.all[i]);
    }
    if (problem == NULL && filled + written != store.count)
        problem = "the chunks are not as many as counted";
    berm__mutex_unlock(&store.lock);
    if (problem == NULL)
        return 0;
    (void)snprintf(error, error_capacity, "I38: the event ring: %s", problem);
    return 38;
}
