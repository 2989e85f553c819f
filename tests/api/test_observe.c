// SPDX-License-Identifier: Apache-2.0
// berm_observe: what is told adds up to what is mapped, at every moment, whatever maps and unmaps
// it; each run goes after it is told, and comes before.
#include "api_test.h"

enum {
    RUNS_MAX = 4096
};

// Granules that memory is behind, as far as was told; an aliased page may be at two addresses.
typedef struct told {
    berm_addr_t granules[RUNS_MAX];
    size_t count;
    uint64_t events[BERM_EVENT_KIND_COUNT];
    uint64_t plain_bytes;
    void *last_stream;
    berm_pool_id_t last_pool;
} told_t;

static told_t told;
static void *stream;

static size_t granule_find(berm_addr_t addr) {
    size_t at = 0;
    while (at < told.count && told.granules[at] != addr)
        at++;
    return at;
}

static void on_event(void *arg, const berm_event_t *event) {
    told_t *to = arg;
    cr_assert(event->size == sizeof *event && event->device == 0 && event->size_bytes > 0);
    to->events[event->kind]++;
    to->last_stream = event->stream;
    to->last_pool = event->pool;
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    bool is_up = event->kind == BERM_EVENT_MAP || event->kind == BERM_EVENT_ALLOC;
    if (event->kind == BERM_EVENT_ALLOC || event->kind == BERM_EVENT_FREE) {
        to->plain_bytes += is_up ? event->size_bytes : 0 - event->size_bytes;
        cr_assert(ledger.allocation_bytes > 0, "it is there when it is told");
        return;
    }
    cr_assert(ledger.mappings > 0, "they are there when it is told");
    for (uint64_t at = 0; at < event->size_bytes; at += 2 * MIB) {
        size_t found = granule_find(event->addr + at);
        cr_assert((found < to->count) != is_up, "in turn");
        if (is_up) {
            cr_assert(to->count < RUNS_MAX);
            to->granules[to->count++] = event->addr + at;
        } else {
            to->granules[found] = to->granules[--to->count];
        }
    }
}

typedef struct seen {
    uint64_t mapped_bytes, plain_bytes;
} seen_t;

static void see(void *context, const berm_walk_segment_t *segment, const berm_walk_block_t *block) {
    seen_t *seen = context;
    if (block != NULL)
        return;
    if (segment->is_plain != 0) {
        seen->plain_bytes += segment->size_bytes;
        return;
    }
    seen->mapped_bytes += segment->size_bytes;
    for (uint64_t at = 0; at < segment->size_bytes; at += 2 * MIB)
        cr_assert(granule_find(segment->addr + at) < told.count, "mapped, and not told");
}

// What was told is what is there; with aliases, stale mappings are told and not walked.
static void expect_agreement(bool has_aliases) {
    seen_t seen = {0};
    EXPECT(BERM_OK, berm_walk(0, see, &seen));
    cr_assert(seen.plain_bytes == told.plain_bytes);
    cr_assert(has_aliases ? seen.mapped_bytes <= told.count * 2 * MIB
                          : seen.mapped_bytes == told.count * 2 * MIB);
    BERM_TEST_CHECK();
}

static void observe_begin(uint64_t memory_bytes, const char *conf) {
    told = (told_t){0};
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = memory_bytes, .berm = conf});
    stream = heap_stream_create();
    EXPECT(BERM_OK, berm_observe(0, on_event, &told));
}

// Nothing is told after the end, and all of it was taken back.
static void observe_end(void) {
    BERM_TEST_END();
    cr_assert(told.count == 0 && told.plain_bytes == 0);
}

// Larger and smaller blocks on two streams, so that memory is short and pages move.
static void churn(bool has_aliases) {
    berm_addr_t blocks[24] = {0};
    void *streams[2] = {stream, heap_stream_create()};
    uint64_t draw = 12345;
    for (unsigned i = 0; i < 900; i++) {
        draw = draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned at = (unsigned)(draw >> 33) % 24;
        if (blocks[at] != 0) {
            heap_free(blocks[at], streams[at % 2]);
            blocks[at] = 0;
        } else {
            uint64_t bytes = 1 + (draw >> 40) % (7 * MIB);
            blocks[at] = heap_alloc(bytes, streams[at % 2]);
            heap_use(streams[at % 2], blocks[at], bytes, 20000);
        }
        if (i % 100 == 99)
            EXPECT(BERM_OK, berm_trim(0, 8 * MIB, NULL));
        if (i % 7 == 0)
            expect_agreement(has_aliases);
    }
    expect_agreement(has_aliases);
}

Test(observe, mapped_memory) {
    observe_begin(128 * MIB, NULL);
    churn(false);
    cr_assert(told.events[BERM_EVENT_MAP] > 20 && told.events[BERM_EVENT_UNMAP] > 20);
    cr_assert(told.events[BERM_EVENT_ALLOC] == 0 && stats_of(0).moved_bytes > 0);
    observe_end();
}

Test(observe, aliased_memory) {
    observe_begin(128 * MIB, "remap:alias");
    churn(true);
    observe_end();
}

Test(observe, plain_memory) {
    observe_begin(192 * MIB, "backing:plain");
    churn(false);
    cr_assert(told.events[BERM_EVENT_ALLOC] > 5 && told.events[BERM_EVENT_MAP] == 0);
    observe_end();
    cr_assert(told.events[BERM_EVENT_ALLOC] == told.events[BERM_EVENT_FREE]);
}

Test(observe, whose_it_is) {
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_EXPORTABLE};
    observe_begin(64 * MIB, NULL);
    heap_free(heap_alloc(3 * MIB, stream), stream);
    cr_assert(told.last_stream == stream && told.last_pool.high == 0);
    EXPECT(BERM_OK, berm_pool_create(0, (berm_pool_id_t){4, 5}, &options));
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from((berm_pool_id_t){4, 5}, MIB, 1, 0, BERM_STREAM_NONE, &addr));
    cr_assert(told.last_stream == BERM_STREAM_NONE);
    cr_assert(told.last_pool.high == 4 && told.last_pool.low == 5);
    observe_end();
}

// A map that fails halfway tells nothing; an unmap that fails was told.
Test(observe, failures) {
    observe_begin(64 * MIB, NULL);
    berm_addr_t addr = 0;
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 1, 1, 999) == 0);
    EXPECT(BERM_ERROR_DRIVER, berm_alloc(8 * MIB, 0, stream, &addr));
    cr_assert(told.events[BERM_EVENT_MAP] == 0 && told.events[BERM_EVENT_UNMAP] == 0);
    (void)heap_alloc(8 * MIB, stream);
    expect_agreement(false);
    observe_end();
}

Test(observe, misuse) {
    observe_begin(64 * MIB, NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_observe(0, NULL, NULL));
    EXPECT(BERM_ERROR_STATE, berm_observe(0, on_event, &told));
    EXPECT(BERM_ERROR_DEVICE, berm_observe(77, on_event, &told));
    EXPECT(BERM_ERROR_ARGUMENT, berm_unobserve(0, on_event, &stream));
    EXPECT(BERM_ERROR_DEVICE, berm_unobserve(77, on_event, &told));
    told_t second = {0};
    EXPECT(BERM_OK, berm_observe(0, on_event, &second));
    EXPECT(BERM_OK, berm_unobserve(0, on_event, &second));
    berm_addr_t addr = heap_alloc(5 * MIB, stream);
    uint64_t maps = told.events[BERM_EVENT_MAP];
    cr_assert(maps > 0 && second.events[BERM_EVENT_MAP] == 0);
    EXPECT(BERM_OK, berm_unobserve(0, on_event, &told));
    heap_free(addr, stream);
    (void)heap_alloc(30 * MIB, stream);
    cr_assert(told.events[BERM_EVENT_MAP] == maps, "not told any more");
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_observe(0, on_event, &told));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_unobserve(0, on_event, &told));
}
