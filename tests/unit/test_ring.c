// SPDX-License-Identifier: Apache-2.0
// The event ring by itself: what is written is read, in its order and with its times; chunks go
// round; I38 broken by hand.
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "host/clock.h"
#include "host/mem.h"
#include "policy/ring.h"

enum {
    EVENTS_MAX = 2 << 20
};

static uint64_t now_ns = 1000;

static uint64_t clock_read(void *context) {
    (void)context;
    return now_ns;
}

typedef struct seen {
    uint64_t count;
    berm_ring_event_t *at;
} seen_t;

static void see(void *context, const void *ring, const berm_ring_event_t *event) {
    seen_t *seen = context;
    (void)ring;
    if (seen->count < EVENTS_MAX)
        seen->at[seen->count++] = *event;
}

static seen_t read_all(void) {
    seen_t seen = {.at = berm__mem_reserve(EVENTS_MAX * sizeof *seen.at)};
    cr_assert(seen.at != NULL);
    berm__ring_read(see, &seen);
    return seen;
}

static void forget(seen_t *seen) {
    berm__mem_unreserve(seen->at, EVENTS_MAX * sizeof *seen->at);
}

static const berm_ring_where_t where = {3, (berm_stream_t)0x7f00123450, {11, 12}};
static const berm_ring_where_t elsewhere = {0, (berm_stream_t)(intptr_t)-1, {0, 0}};

static void begin(void) {
    berm__clock_set(clock_read, NULL);
    atomic_store(&berm__ring_is_on, true);
}

static void expect(const berm_ring_event_t *event, berm_ring_kind_t kind, berm_addr_t addr,
                   uint64_t size_bytes) {
    cr_assert(event->kind == kind && event->addr == addr && event->size_bytes == size_bytes,
              "kind %d, 0x%llx, %llu bytes", (int)event->kind, (unsigned long long)event->addr,
              (unsigned long long)event->size_bytes);
}

Test(ring, what_is_written_is_read) {
    static const uint64_t sizes[] = {1,       512,      65536,      65537,
                                     3 << 20, 1u << 31, 1ull << 40, (1ull << 57) + 5};
    begin();
    berm_ring_t ring = {.chunk = NULL};
    for (unsigned i = 0; i < 8; i++) {
        berm__ring_note(&ring, &where, BERM_RING_ALLOC, 0x7f1200000000 + i * 512, sizes[i]);
        berm__ring_note(&ring, &elsewhere, BERM_RING_ALLOC, 0x1200 + i * 512, sizes[i]);
        berm__ring_part(&ring); // as the heap does when the cache is another
        berm__ring_note(&ring, &where, BERM_RING_FREE, 0x7f1200000000 + i * 512, sizes[i]);
    }
    berm__ring_once(&ring, &where, BERM_RING_FAIL, 0, 1ull << 62, 7);
    seen_t seen = read_all();
    cr_assert(seen.count == 25);
    for (unsigned i = 0; i < 8; i++) {
        expect(&seen.at[3 * i], BERM_RING_ALLOC, 0x7f1200000000 + i * 512, sizes[i]);
        cr_assert(seen.at[3 * i].ordinal == 3 && seen.at[3 * i].stream == where.stream);
        cr_assert(seen.at[3 * i].pool.high == 11 && seen.at[3 * i].pool.low == 12);
        expect(&seen.at[3 * i + 2], BERM_RING_FREE, 0x7f1200000000 + i * 512, sizes[i]);
        cr_assert(seen.at[3 * i + 2].stream == where.stream);
    }
    expect(&seen.at[24], BERM_RING_FAIL, 0, 1ull << 62);
    cr_assert(seen.at[24].number == 7);
    forget(&seen);
    berm__ring_end(&ring);
    berm__ring_clear();
}

// A block that is freed at once is one record, and still two events.
Test(ring, pairs) {
    begin();
    berm_ring_t ring = {.chunk = NULL};
    for (int i = 0; i < 4; i++) // a thread is in a hurry when it has shown so
        berm__ring_note(&ring, &where, BERM_RING_FREE, 512, 8);
    for (uint64_t size_bytes = 100; size_bytes < 1 << 20; size_bytes += 99999) {
        berm__ring_note(&ring, &where, BERM_RING_ALLOC, 0x10000, size_bytes);
        uint64_t *after = berm__ring_place(&ring);
        berm__ring_note(&ring, &where, BERM_RING_FREE, 0x10000, size_bytes);
        cr_assert(berm__ring_place(&ring) == after);
    }
    seen_t seen = read_all();
    cr_assert(seen.count % 2 == 0 && seen.count > 8);
    for (uint64_t i = 4; i < seen.count; i += 2) {
        expect(&seen.at[i], BERM_RING_ALLOC, 0x10000, seen.at[i].size_bytes);
        expect(&seen.at[i + 1], BERM_RING_FREE, 0x10000, seen.at[i].size_bytes);
    }
    forget(&seen);
    berm__ring_end(&ring);
    berm__ring_clear();
}

// A slow thread's events have their own times; a quick one's are at most 256 events off.
Test(ring, times) {
    begin();
    berm_ring_t ring = {.chunk = NULL};
    uint64_t start_ns = now_ns;
    for (uint64_t i = 0; i < 100; i++) {
        now_ns += 3000;
        berm__ring_note(&ring, &where, BERM_RING_ALLOC, 512 * (i + 1), 10);
    }
    uint64_t quick_ns = now_ns;
    for (uint64_t i = 0; i < 10000; i++) {
        now_ns += 10;
        berm__ring_note(&ring, &where, BERM_RING_ALLOC, 512 * (i + 101), 10);
    }
    seen_t seen = read_all();
    cr_assert(seen.count == 10100);
    for (uint64_t i = 1; i < 100; i++)
        cr_assert(seen.at[i].time_ns == start_ns + 3000 * (i + 1), "event %llu",
                  (unsigned long long)i);
    for (uint64_t i = 100; i < seen.count; i++) {
        uint64_t true_ns = quick_ns + 10 * (i - 99);
        cr_assert(seen.at[i].time_ns <= true_ns && seen.at[i].time_ns + 2570 >= true_ns,
                  "event %llu: %llu, not %llu", (unsigned long long)i,
                  (unsigned long long)seen.at[i].time_ns, (unsigned long long)true_ns);
    }
    forget(&seen);
    berm__ring_end(&ring);
    berm__ring_clear();
}

// The worst that one thread can do to it: each event in another place, and slow.
Test(ring, keeps_100000_events_in_8_MiB) {
    begin();
    berm_ring_t ring = {.chunk = NULL};
    const uint64_t total = 300000;
    for (uint64_t i = 0; i < total; i++) {
        now_ns += 100000;
        berm__ring_part(&ring);
        berm__ring_note(&ring, i % 2 == 0 ? &where : &elsewhere, BERM_RING_ALLOC, 512 * (i + 1),
                        1 << 20);
    }
    uint64_t held = berm__mem_held_bytes();
    seen_t seen = read_all();
    cr_assert(held <= 8 << 20, "%llu bytes", (unsigned long long)held);
    cr_assert(seen.count >= 100000, "%llu events", (unsigned long long)seen.count);
    for (uint64_t i = 0; i < seen.count; i++)
        cr_assert(seen.at[i].addr == 512 * (total - seen.count + i + 1));
    cr_assert(berm__ring_lost_chunks() > 0);
    forget(&seen);
    berm__ring_end(&ring);
    berm__ring_clear();
    cr_assert(berm__mem_held_bytes() == 0);
}

// Without host memory for a chunk the oldest is used again, or the event is lost; nothing breaks.
Test(ring, without_host_memory) {
    char error[200];
    begin();
    berm_ring_t first = {.chunk = NULL}, second = {.chunk = NULL};
    berm__mem_fault_nth(1, 0);
    berm__ring_note(&first, &where, BERM_RING_ALLOC, 512, 1);
    cr_assert(first.chunk == NULL && berm__ring_check(error, sizeof error) == 0);
    berm__mem_fault_nth(2, 0);
    berm__ring_note(&first, &where, BERM_RING_ALLOC, 512, 1);
    berm__ring_note(&second, &where, BERM_RING_ALLOC, 1024, 1);
    cr_assert(first.chunk != NULL && second.chunk == NULL);
    berm__ring_end(&first); // gives its chunk up
    berm__ring_note(&second, &where, BERM_RING_ALLOC, 1024, 1);
    cr_assert(second.chunk != NULL && berm__ring_check(error, sizeof error) == 0);
    berm__mem_fault_nth(0, 0);
    berm__ring_end(&second);
    berm__ring_clear();
}

static void *write_much(void *stop) {
    berm_ring_t ring = {.chunk = NULL};
    for (uint64_t i = 0; !atomic_load((atomic_bool *)stop); i++) {
        berm__ring_note(&ring, &where, BERM_RING_ALLOC, 512 * (i % 1000 + 1), 100);
        if (i % 3 == 0)
            berm__ring_note(&ring, &where, BERM_RING_FREE, 512 * (i % 1000 + 1), 100);
    }
    berm__ring_end(&ring);
    return NULL;
}

Test(ring, is_read_while_it_is_written) {
    char error[200] = "";
    pthread_t threads[3];
    atomic_bool stop = false;
    atomic_store(&berm__ring_is_on, true);
    for (int i = 0; i < 3; i++)
        cr_assert(pthread_create(&threads[i], NULL, write_much, &stop) == 0);
    for (int i = 0; i < 20; i++) {
        seen_t seen = read_all();
        for (uint64_t at = 0; at < seen.count; at++)
            cr_assert(seen.at[at].ordinal == 3 && seen.at[at].size_bytes == 100);
        forget(&seen);
        cr_assert(berm__ring_check(error, sizeof error) == 0, "%s", error);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    berm__ring_clear();
}

Test(ring, I38_chunks_hold_records) {
    char error[200];
    begin();
    berm_ring_t ring = {.chunk = NULL}, other = {.chunk = NULL};
    berm__ring_note(&ring, &where, BERM_RING_ALLOC, 512, 100);
    berm__ring_note(&other, &where, BERM_RING_ALLOC, 1024, 100);
    uint64_t *place = berm__ring_place(&ring), kept = place[-1];
    place[-1] = 0; // no record
    cr_assert(berm__ring_check(error, sizeof error) == 38);
    cr_assert(strncmp(error, "I38:", 4) == 0);
    place[-1] = kept;
    atomic_store(&ring.next, ring.end + 1); // outside
    cr_assert(berm__ring_check(error, sizeof error) == 38);
    atomic_store(&ring.next, place);
    struct berm_ring_chunk *chunk = ring.chunk; // another's
    ring.chunk = other.chunk;
    cr_assert(berm__ring_check(error, sizeof error) == 38);
    ring.chunk = chunk;
    cr_assert(berm__ring_check(error, sizeof error) == 0, "%s", error);
    berm__ring_note(&ring, &where, BERM_RING_ALLOC, 2048, 100); // after what was checked
    place = berm__ring_place(&ring);
    place[-1] = 0;
    cr_assert(berm__ring_check(error, sizeof error) == 38);
    place[-1] = berm__ring_word(BERM_RING_ALLOC, 2048, 100);
    cr_assert(berm__ring_check(error, sizeof error) == 0);
    atomic_store(&ring.next, place - 1); // before it
    cr_assert(berm__ring_check(error, sizeof error) == 38);
    atomic_store(&ring.next, place);
    berm__ring_end(&ring);
    berm__ring_end(&other);
    berm__ring_clear();
}
