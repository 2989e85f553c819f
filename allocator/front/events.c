// SPDX-License-Identifier: Apache-2.0
// Bringing the threads' events into one order: see events.h. A merge of the threads by time, in
// which a thread waits when its next event cannot come yet:
//   an ALLOC at an address that is live, until another thread's FREE of it has come
//   a FREE at an address that is not, until another thread's ALLOC of it has come, if one is left
//   that may have been before
// If all wait, the one with the earliest time goes on: the ring has lost what it waits for.
//
// Bounds: 80 bytes an event, while it is made. Cost: events x threads, in the worst case.
#include "front/events.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"

// One thread's events: [next, end) are to come.
typedef struct run {
    const void *ring;
    uint64_t next, end;
} run_t;

enum {
    RUNS_MAX = 4096,
    LOOK_AHEAD = 4096, // events of another thread, for one that a free may have to wait for
};

// What is at an address: whether a block lives there in the merged list so far, and how many ALLOCs
// of it are to come. Open addressing.
typedef struct spot {
    berm_addr_t addr; // 0: empty
    uint32_t to_come;
    bool is_live;
} spot_t;

typedef struct merge {
    berm_ring_event_t *events; // sorted by thread
    uint64_t count;
    run_t *runs;
    unsigned run_count;
    spot_t *spots;
    uint64_t spot_count; // a power of two
} merge_t;

static spot_t *spot_of(const merge_t *merge, const berm_ring_event_t *event) {
    uint64_t key = event->addr;
    uint64_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; at++) {
        spot_t *spot = &merge->spots[at & (merge->spot_count - 1)];
        if (spot->addr == 0)
            spot->addr = key;
        if (spot->addr == key)
            return spot;
    }
}

// Sorts the events by thread, each thread's in their order, and makes the runs. False: too many
// threads at once for that.
static bool runs_make(merge_t *merge, const berm_events_t *events) {
    unsigned run = 0;
    for (uint64_t i = 0; i < events->count; i++) {
        if (i == 0 || events->rings[i] != events->rings[i - 1])
            run = 0;
        while (run < merge->run_count && merge->runs[run].ring != events->rings[i])
            run++;
        if (run == RUNS_MAX)
            return false;
        if (run == merge->run_count)
            merge->runs[merge->run_count++].ring = events->rings[i];
        merge->runs[run].end++;
    }
    uint64_t first = 0;
    for (unsigned i = 0; i < merge->run_count; i++) {
        uint64_t length = merge->runs[i].end;
        merge->runs[i].next = merge->runs[i].end = first;
        first += length;
    }
    run = 0;
    for (uint64_t i = 0; i < events->count; i++) {
        while (merge->runs[run].ring != events->rings[i])
            run = (run + 1) % merge->run_count;
        merge->events[merge->runs[run].end++] = events->at[i];
    }
    merge->count = events->count;
    return true;
}

// Whether a run's next event has to wait for another's.
static bool is_waiting(const merge_t *merge, const berm_ring_event_t *event) {
    if (event->kind != BERM_RING_ALLOC && event->kind != BERM_RING_FREE)
        return false;
    const spot_t *spot = spot_of(merge, event);
    if (event->kind == BERM_RING_ALLOC)
        return spot->is_live;
    return !spot->is_live && spot->to_come > 0;
}

// When the run's next event had happened at the latest, as far as its stamps say.
static uint64_t latest_ns(const merge_t *merge, const run_t *run) {
    uint64_t at = run->next, time_ns = merge->events[at].time_ns;
    while (at < run->end && merge->events[at].time_ns == time_ns)
        at++;
    return at < run->end ? merge->events[at].time_ns : UINT64_MAX;
}

// Whether a FREE is of a block from before the ring's oldest event, and so need not wait: no other
// thread has the ALLOC of it, or only one that came later.
static bool is_first_free(const merge_t *merge, const run_t *run) {
    const berm_ring_event_t *event = &merge->events[run->next];
    if (event->kind != BERM_RING_FREE)
        return false;
    uint64_t latest = latest_ns(merge, run);
    for (unsigned i = 0; i < merge->run_count; i++) {
        const run_t *other = &merge->runs[i];
        uint64_t end = berm__min_u64(other->end, other->next + LOOK_AHEAD);
        for (uint64_t at = other->next; other != run && at < end; at++) {
            const berm_ring_event_t *later = &merge->events[at];
            if (later->addr != event->addr)
                continue;
            if (later->kind == BERM_RING_ALLOC && later->size_bytes == event->size_bytes)
                return later->time_ns > latest;
            break; // what comes there first is of another block
        }
    }
    return true;
}

static run_t *run_choose(const merge_t *merge) {
    run_t *best = NULL, *earliest = NULL;
    for (unsigned i = 0; i < merge->run_count; i++) {
        run_t *run = &merge->runs[i];
        if (run->next == run->end)
            continue;
        const berm_ring_event_t *event = &merge->events[run->next];
        if (earliest == NULL || event->time_ns < merge->events[earliest->next].time_ns)
            earliest = run;
        if (best != NULL && event->time_ns >= merge->events[best->next].time_ns)
            continue;
        if (merge->run_count == 1 || !is_waiting(merge, event) || is_first_free(merge, run))
            best = run;
    }
    return best != NULL ? best : earliest;
}

static void spots_fill(merge_t *merge) {
    for (uint64_t i = 0; i < merge->count; i++)
        if (merge->events[i].kind == BERM_RING_ALLOC)
            spot_of(merge, &merge->events[i])->to_come++;
}

static void merge_run(merge_t *merge, berm_events_t *out) {
    spots_fill(merge);
    uint64_t time_ns = 0;
    out->count = 0;
    for (run_t *run; (run = run_choose(merge)) != NULL; run->next++) {
        berm_ring_event_t event = merge->events[run->next];
        // Times rise along the list: a bound that another thread's event has passed is passed.
        time_ns = event.time_ns = berm__max_u64(time_ns, event.time_ns);
        if (event.kind == BERM_RING_ALLOC || event.kind == BERM_RING_FREE) {
            spot_t *spot = spot_of(merge, &event);
            spot->is_live = event.kind == BERM_RING_ALLOC;
            spot->to_come -= event.kind == BERM_RING_ALLOC;
        }
        out->at[out->count++] = event;
    }
}

static bool order(merge_t *merge, berm_events_t *events) {
    merge->spot_count = UINT64_C(4) << berm__bit_highest(events->count + 1);
    merge->spots = berm__mem_reserve(merge->spot_count * sizeof *merge->spots);
    if (merge->events == NULL || merge->runs == NULL || merge->spots == NULL ||
        !runs_make(merge, events))
        return false;
    merge_run(merge, events);
    return true;
}

berm_status_t berm__events_order(berm_events_t *events) {
    merge_t merge = {.count = 0};
    size_t bytes = (events->count + 1) * sizeof *merge.events;
    merge.events = berm__mem_reserve(bytes);
    merge.runs = berm__mem_reserve(RUNS_MAX * sizeof *merge.runs);
    bool is_good = order(&merge, events);
    berm__mem_unreserve(merge.events, bytes);
    berm__mem_unreserve(merge.runs, RUNS_MAX * sizeof *merge.runs);
    berm__mem_unreserve(merge.spots, merge.spot_count * sizeof *merge.spots);
    return is_good ? BERM_OK : BERM_ERROR_OUT_OF_HOST_MEMORY;
}

typedef struct collect {
    berm_events_t *events;
    int ordinal;
} collect_t;

static void collect(void *context, const void *ring, const berm_ring_event_t *event) {
    const collect_t *collect = context;
    berm_events_t *events = collect->events;
    if (event->ordinal != collect->ordinal || events->count == events->capacity)
        return; // more than there were when the room was made
    events->rings[events->count] = ring;
    events->at[events->count++] = *event;
}

berm_status_t berm__events_collect(berm_events_t *events, int ordinal, uint64_t words_max) {
    uint64_t capacity = 2 * berm__ring_words() + 4096;
    *events = (berm_events_t){.capacity = capacity};
    events->at = berm__mem_reserve(capacity * sizeof *events->at);
    events->rings = berm__mem_reserve(capacity * sizeof *events->rings);
    if (events->at == NULL || events->rings == NULL) {
        berm__events_destroy(events);
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    }
    collect_t context = {events, ordinal};
    bool is_all = berm__ring_read_last(words_max, collect, &context);
    events->has_lost = !is_all || berm__ring_lost_chunks() > 0;
    return BERM_OK;
}

void berm__events_trim(berm_events_t *events, uint64_t count) {
    for (uint64_t i = 1; i < events->count; i++)
        if (events->rings[i] != events->rings[0])
            return;
    if (events->count <= count)
        return;
    uint64_t first = events->count - count;
    memmove(events->at, events->at + first, count * sizeof *events->at);
    events->count = count; // the rings of all are the same
    events->has_lost = true;
}

void berm__events_destroy(berm_events_t *events) {
    berm__mem_unreserve(events->at, events->capacity * sizeof *events->at);
    berm__mem_unreserve(events->rings, events->capacity * sizeof *events->rings);
    *events = (berm_events_t){0};
}
