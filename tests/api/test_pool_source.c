// SPDX-License-Identifier: Apache-2.0
// Pools that get their memory from an allocator of the caller's, and pools whose blocks are not
// split: what is asked for, when it goes back, what a source that has nothing means.
#include <pthread.h>

#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t id = {0, 9};
static void *stream;

typedef struct source {
    uint64_t allocs, frees, dones; // calls
    uint64_t held_bytes, last_bytes;
    uint64_t most_bytes; // 0: no bound
    void *last_stream;
    uint64_t shift_bytes; // addresses are so far from where the driver's begin
    bool calls_berm;
} source_t;

static source_t source;

static berm_addr_t source_alloc(void *context, uint64_t size_bytes, int device, void *on) {
    source_t *of = context;
    of->allocs++;
    of->last_bytes = size_bytes;
    of->last_stream = on;
    cr_assert(device == 0);
    if (of->calls_berm) { // no lock is held
        berm_addr_t other = heap_alloc(MIB, on);
        heap_free(other, on);
        EXPECT(BERM_OK, berm_trim(0, 0, NULL));
        BERM_TEST_CHECK();
    }
    if (of->most_bytes != 0 && of->held_bytes + size_bytes > of->most_bytes)
        return 0;
    berm_addr_t addr = heap_driver_alloc(size_bytes + of->shift_bytes);
    of->held_bytes += addr != 0 ? size_bytes : 0;
    return addr != 0 ? addr + of->shift_bytes : 0;
}

static void source_free(void *context, berm_addr_t addr, uint64_t size_bytes, int device,
                        void *on) {
    source_t *of = context;
    cr_assert(device == 0 && of->dones == 0);
    of->frees++;
    of->held_bytes -= size_bytes;
    of->last_stream = on;
    heap_driver_free(addr - of->shift_bytes);
}

static void source_done(void *context) {
    source_t *of = context;
    cr_assert(of->held_bytes == 0 && of->allocs >= of->frees);
    of->dones++;
}

static berm_pool_options_t options_of(uint32_t traits) {
    const berm_pool_options_t options = {
        .size = sizeof options,
        .traits = traits,
        .source = {
            .alloc = source_alloc, .free = source_free, .done = source_done, .context = &source}};
    return options;
}

static void source_begin(uint32_t traits, const char *conf) {
    const berm_pool_options_t options = options_of(traits);
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 256 * MIB, .berm = conf});
    stream = heap_stream_create();
    source = (source_t){0};
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
}

static berm_addr_t alloc(uint64_t size_bytes) {
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 1, 0, stream, &addr));
    heap_use(stream, addr, size_bytes, 1000);
    if (source.shift_bytes == 0)
        BERM_TEST_CHECK();
    return addr;
}

static void drop(berm_addr_t addr) {
    heap_free(addr, stream);
    if (source.shift_bytes == 0)
        BERM_TEST_CHECK();
}

static berm_pool_stats_t pool_stats(void) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_OK, berm_pool_stats_read(0, id, &stats));
    return stats;
}

// The last call that gives memory back may be a later one than the release.
static void source_end(void) {
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(source.held_bytes == 0 && source.allocs >= source.frees && source.dones == 1);
    BERM_TEST_END();
    cr_assert(source.dones == 1);
}

Test(pool_source, segments_are_asked_for_by_size) {
    source_begin(0, NULL);
    (void)alloc(100);
    cr_assert(source.allocs == 1 && source.last_bytes == 2 * MIB && source.last_stream == stream);
    (void)alloc(MIB);
    cr_assert(source.allocs == 1, "it has room");
    (void)alloc(3 * MIB);
    cr_assert(source.allocs == 2 && source.last_bytes == 20 * MIB);
    (void)alloc(9 * MIB);
    cr_assert(source.allocs == 2);
    berm_addr_t large = alloc(33 * MIB + 1);
    cr_assert(source.allocs == 3 && source.last_bytes == 34 * MIB);
    cr_assert(pool_stats().reserved_bytes == 56 * MIB && pool_stats().blocks == 5);
    cr_assert((pool_stats().traits & BERM_POOL_PLAIN) != 0);
    cr_assert(stats_of(0).reserved_bytes.current == 56 * MIB);
    drop(large);
    cr_assert(source.frees == 0, "what is free is kept");
    (void)alloc(34 * MIB);
    cr_assert(source.allocs == 3);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(source.frees == 0 && source.dones == 0, "its blocks live on");
    BERM_TEST_END();
    cr_assert(source.frees == 3 && source.held_bytes == 0 && source.dones == 1);
}

Test(pool_source, whole_segments_go_back_by_trim) {
    source_begin(0, NULL);
    berm_addr_t small = alloc(5000), large = alloc(40 * MIB), other = alloc(30 * MIB);
    drop(large);
    uint64_t released = 0;
    EXPECT(BERM_OK, berm_trim(0, 0, &released));
    cr_assert(released == 40 * MIB && source.frees == 1 && source.last_stream == stream);
    BERM_TEST_CHECK();
    drop(small);
    drop(other);
    EXPECT(BERM_OK, berm_trim(0, 0, &released));
    cr_assert(released == 32 * MIB && source.frees == 3 && source.held_bytes == 0);
    (void)alloc(10 * MIB);
    cr_assert(source.allocs == 4);
    drop(alloc(100));
    source.calls_berm = true;
    EXPECT(BERM_OK, berm_alloc_from(id, 50 * MIB, 1, 0, stream, &large));
    heap_free(large, stream);
    BERM_TEST_END();
    cr_assert(source.held_bytes == 0 && source.dones == 1);
}

Test(pool_source, a_block_outlives_its_pool) {
    source_begin(0, NULL);
    berm_addr_t block = alloc(12 * MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    heap_use(stream, block, 12 * MIB, 1000);
    cr_assert(source.frees == 0 && source.dones == 0);
    heap_context_synchronize();
    drop(block);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(source.frees == 1 && source.dones == 1 && source.held_bytes == 0);
    BERM_TEST_END();
}

Test(pool_source, one_that_has_nothing_is_a_full_device) {
    source_begin(0, NULL);
    source.most_bytes = 42 * MIB;
    berm_addr_t held = alloc(20 * MIB), addr = 1;
    EXPECT(BERM_OK, berm_alloc_from(id, 5 * MIB, 1, 0, stream, &addr));
    cr_assert(source.held_bytes == 40 * MIB, "twenty for what is asked for");
    uint64_t failures = stats_of(0).out_of_memory;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc_from(id, 30 * MIB, 1, 0, stream, &addr));
    cr_assert(addr == 0 && stats_of(0).out_of_memory == failures + 1);
    BERM_TEST_CHECK();
    drop(held);
    held = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 21 * MIB, 1, 0, stream, &held));
    cr_assert(source.frees == 1, "twenty went back to make room");
    heap_free(held, stream);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    source.most_bytes = source.held_bytes + 6 * MIB;
    EXPECT(BERM_OK, berm_alloc_from(id, 14 * MIB, 1, 0, stream, &addr));
    cr_assert(source.held_bytes == 20 * MIB, "it had room");
    EXPECT(BERM_OK, berm_alloc_from(id, 5 * MIB, 1, 0, stream, &addr));
    cr_assert(source.last_bytes == 6 * MIB, "what it needs, where twenty are not to be had");
    source.most_bytes = 1;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc_from(id, 9 * MIB, 1, 0, stream, &addr));
    BERM_TEST_END();
}

Test(pool_source, the_limit_holds) {
    source_begin(0, NULL);
    EXPECT(BERM_OK, berm_limit_set(0, 30 * MIB));
    berm_addr_t addr = 0, kept = alloc(22 * MIB);
    EXPECT(BERM_ERROR_LIMIT, berm_alloc_from(id, 12 * MIB, 1, 0, stream, &addr));
    EXPECT(BERM_OK, berm_alloc_from(id, 8 * MIB, 1, 0, stream, &addr));
    cr_assert(source.last_bytes == 8 * MIB);
    drop(addr);
    drop(kept);
    source_end();
}

static bool give_back(void *arg, int device, uint64_t needed_bytes) {
    berm_addr_t *kept = arg;
    (void)device, (void)needed_bytes;
    if (*kept == 0)
        return false;
    heap_free(*kept, stream);
    *kept = 0;
    return true;
}

Test(pool_source, the_application_is_asked_too) {
    source_begin(0, NULL);
    source.most_bytes = 30 * MIB;
    berm_addr_t kept = alloc(22 * MIB), addr = 0;
    EXPECT(BERM_OK, berm_pressure_register(0, give_back, &kept));
    EXPECT(BERM_OK, berm_alloc_from(id, 25 * MIB, 1, 0, stream, &addr));
    cr_assert(kept == 0 && source.frees == 1);
    heap_free(addr, stream);
    source_end();
}

// What a source's pool has free makes room on the device for others.
Test(pool_source, room_for_the_default_pool) {
    source_begin(0, NULL);
    berm_addr_t large = alloc(200 * MIB);
    heap_free(large, stream);
    large = heap_alloc(200 * MIB, stream);
    cr_assert(source.frees == 1 && source.held_bytes == 0);
    heap_free(large, stream);
    source_end();
}

Test(pool_source, on_plain_memory_throughout) {
    source_begin(0, "backing:plain");
    berm_addr_t large = alloc(200 * MIB);
    heap_free(large, stream);
    large = heap_alloc(200 * MIB, stream);
    cr_assert(source.held_bytes == 0);
    heap_free(large, stream);
    source_end();
}

Test(pool_source, addresses_that_are_not_aligned) {
    source_begin(0, NULL);
    source.shift_bytes = 512;
    berm_addr_t small = alloc(700), large = alloc(30 * MIB);
    cr_assert(small % 512 == 0 && large % 512 == 0 && source.frees >= 1);
    cr_assert(source.held_bytes == 2 * MIB + 2 * MIB + 30 * MIB + 2 * MIB, "a granule more each");
    drop(small);
    drop(large);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(source.held_bytes == 0 && source.dones == 1);
    BERM_TEST_END();
}

Test(pool_source, in_a_capture) {
    source_begin(BERM_POOL_PRIVATE, NULL);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t a = heap_alloc(3 * MIB, stream), b = heap_alloc(40 * MIB, stream);
    heap_use(stream, a, 3 * MIB, 1000);
    heap_use(stream, b, 40 * MIB, 1000);
    heap_free(b, stream);
    cr_assert(heap_capture_is_whole(stream) && source.allocs == 2);
    void *graph = heap_capture_end(stream);
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    heap_graph_launch(graph, stream);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(source.frees == 0, "a graph uses it");
    heap_free(a, stream);
    heap_graph_launch(graph, stream);
    heap_context_synchronize();
    heap_graph_destroy(graph);
    EXPECT(BERM_OK, berm_pool_release(0, id)); // of the route
    source_end();
}

static void *thread_run(void *arg) {
    void *own = arg;
    for (unsigned i = 0; i < 200; i++) {
        berm_addr_t addr = 0;
        EXPECT(BERM_OK, berm_alloc_from(id, 1 + i * 9000, 1, 0, own, &addr));
        EXPECT(BERM_OK, berm_free(addr, 0, own));
        if (i % 50 == 49)
            EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    }
    return NULL;
}

// The source counts without a lock of its own: only one of these threads has memory from it.
Test(pool_source, beside_other_threads) {
    pthread_t thread;
    source_begin(0, NULL);
    void *own = heap_stream_create();
    cr_assert(pthread_create(&thread, NULL, thread_run, own) == 0);
    for (unsigned i = 0; i < 300; i++)
        heap_free(heap_alloc(1 + i * 20000, stream), stream);
    cr_assert(pthread_join(thread, NULL) == 0);
    source_end();
}

// --- not split ---------------------------------------------------------------------------------

static void no_split_begin(uint32_t traits) {
    const berm_pool_options_t options = {.size = sizeof options,
                                         .traits = BERM_POOL_NO_SPLIT | traits};
    heap_fixture_begin(NULL);
    stream = heap_stream_create();
    source = (source_t){0};
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
}

static void no_split_of_segments(void) {
    berm_addr_t small = alloc(100), large = alloc(5 * MIB);
    cr_assert(pool_stats().reserved_bytes == 2 * MIB + 6 * MIB);
    drop(large);
    berm_addr_t again = alloc(3 * MIB), addr = 0;
    cr_assert(pool_stats().reserved_bytes == 12 * MIB, "a piece of another size is not cut");
    drop(again);
    cr_assert(alloc(6 * MIB) == large, "one of its own is used again");
    cr_assert(alloc(4 * MIB - 7) == again);
    drop(small);
    cr_assert(alloc(2 * MIB) == small);
    EXPECT(BERM_OK, berm_alloc_from(id, 1000, 64 * KIB, 0, stream, &addr));
    cr_assert(addr % (64 * KIB) == 0);
    EXPECT(BERM_ERROR_ALIGNMENT, berm_alloc_from(id, 1000, MIB, 0, stream, &addr));
}

Test(pool_source, no_split) {
    source_begin(BERM_POOL_NO_SPLIT, NULL);
    no_split_of_segments();
    cr_assert(source.held_bytes == 14 * MIB && source.allocs == 4);
    BERM_TEST_END();
    cr_assert(source.held_bytes == 0 && source.dones == 1);
}

Test(pool_source, no_split_of_plain_memory) {
    no_split_begin(BERM_POOL_PLAIN);
    no_split_of_segments();
    BERM_TEST_END();
}

Test(pool_source, no_split_of_mapped_memory) {
    no_split_begin(0);
    berm_addr_t small = alloc(100), large = alloc(5 * MIB), addr = 0;
    cr_assert(pool_stats().reserved_bytes == 2 * MIB + 6 * MIB);
    drop(large);
    uint64_t calls = memory_calls();
    cr_assert(alloc(6 * MIB) == large && memory_calls() == calls);
    drop(small);
    berm_addr_t wide = alloc(3 * MIB);
    cr_assert(wide != large && pool_stats().reserved_bytes >= 10 * MIB);
    EXPECT(BERM_OK, berm_alloc_from(id, 1000, 4 * MIB, 0, stream, &addr));
    cr_assert(addr % (4 * MIB) == 0);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    BERM_TEST_CHECK();
    cr_assert(pool_stats().reserved_bytes == 12 * MIB);
    heap_free(heap_alloc(180 * MIB, stream), stream);
    BERM_TEST_END();
}

// --- refused -----------------------------------------------------------------------------------

Test(pool_source, misuse) {
    source_begin(0, NULL);
    berm_pool_options_t options = options_of(0);
    EXPECT(BERM_OK, berm_pool_create(0, id, &options)); // one use more
    options.source.context = &options;
    EXPECT(BERM_ERROR_STATE, berm_pool_create(0, id, &options));
    EXPECT_MESSAGE("source");
    options.source = (berm_pool_source_t){0};
    EXPECT(BERM_ERROR_STATE, berm_pool_create(0, id, &options));
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    const berm_pool_id_t other = {0, 10};
    options = options_of(0);
    options.source.free = NULL;
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other, &options));
    options = options_of(0);
    options.source.alloc = NULL;
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other, &options));
    options = options_of(BERM_POOL_EXPORTABLE);
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other, &options));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(source.dones == 0);
    source_end();
}
