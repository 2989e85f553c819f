// SPDX-License-Identifier: Apache-2.0
// The reclaim ladder, step by step: in each test a request fails while one step has nothing to
// give, and is served once it has; the statistics name that step and no other. Then the order of
// steps.
#include <pthread.h>

#include "tests/api/api_test.h"

#define BLOCK (40 * MIB) // two do not fit on the device

static void *stream, *other;

static void device_begin(const char *berm, int has_caches) {
    heap_fixture_begin(&(heap_fixture_options_t){
        .memory_bytes = 64 * MIB, .berm = berm, .has_caches = has_caches});
    stream = heap_stream_create();
    other = heap_stream_create();
}

static void block_refuse(void *on) {
    berm_addr_t out = 7;
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(BLOCK, 0, on, &out));
    cr_assert(out == 0);
}

static berm_ladder_counts_t counts_before;

static void counts_take(void) {
    counts_before = stats_of(0).ladder;
}

// One request of BLOCK more, served by the step at `offset`, and none by another step.
static void block_serve(void *on, size_t offset) {
    counts_take();
    heap_use(on, heap_alloc(BLOCK, on), BLOCK, 1000);
    berm_ladder_counts_t after = stats_of(0).ladder;
    for (size_t at = 0; at < sizeof after; at += sizeof(uint64_t)) {
        uint64_t was, is;
        memcpy(&was, (const char *)&counts_before + at, sizeof was);
        memcpy(&is, (const char *)&after + at, sizeof is);
        cr_assert(is - was == (at == offset), "step %zu served %llu, not step %zu", at / 8,
                  (unsigned long long)(is - was), offset / 8);
    }
}

#define STEP(name) offsetof(berm_ladder_counts_t, name)

// --- each step by itself -------------------------------------------------------------------------

Test(ladder, a_hit_is_no_step) {
    device_begin(NULL, 0);
    heap_free(heap_alloc(BLOCK, stream), stream);
    counts_take();
    uint64_t calls = memory_calls();
    (void)heap_alloc(BLOCK, stream);
    berm_ladder_counts_t after = stats_of(0).ladder;
    cr_assert(memcmp(&after, &counts_before, sizeof after) == 0 && memory_calls() == calls);
    BERM_TEST_END();
}

static pthread_barrier_t barrier;

// Keeps a block in its cache.
static void *cache_hold(void *unused) {
    (void)unused;
    berm_addr_t block = heap_alloc(BLOCK, stream);
    (void)pthread_barrier_wait(&barrier); // it lives
    (void)pthread_barrier_wait(&barrier);
    heap_free(block, stream);
    (void)pthread_barrier_wait(&barrier); // it is cached
    (void)pthread_barrier_wait(&barrier);
    return NULL;
}

Test(ladder, thread_caches) {
    pthread_t thread;
    device_begin("learned_placement:off", 1); // which keeps blocks out of caches while it watches
    cr_assert(pthread_barrier_init(&barrier, NULL, 2) == 0);
    cr_assert(pthread_create(&thread, NULL, cache_hold, NULL) == 0);
    (void)pthread_barrier_wait(&barrier);
    block_refuse(stream);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    block_serve(stream, STEP(caches));
    (void)pthread_barrier_wait(&barrier);
    cr_assert(pthread_join(thread, NULL) == 0);
    BERM_TEST_END();
}

// The request itself asks which streams are done; a tick before it, which looks at a few waiting
// frees now and then, has looked too early.
Test(ladder, finished_frees) {
    uint64_t gate;
    device_begin(NULL, 0);
    berm_addr_t block = heap_alloc(BLOCK, stream);
    simcuda_access_t access = {block, BLOCK, 1};
    block_refuse(stream);
    cr_assert(simcuda_gate(other, &access, 1, &gate) == 0);
    heap_free(block, other);
    heap_free(heap_alloc(MIB, stream), stream); // the tick
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(other);
    block_serve(stream, STEP(frees));
    cr_assert(stats_of(0).host_waits == 0);
    BERM_TEST_END();
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)addr;
    (void)size_bytes;
    ++*(unsigned *)arg;
}

Test(ladder, held_pins) {
    unsigned told = 0;
    device_begin(NULL, 0);
    berm_addr_t block = heap_alloc(BLOCK, stream);
    EXPECT(BERM_OK, berm_pin(block, pin_told, &told));
    block_refuse(stream);
    heap_free(block, stream);
    block_serve(stream, STEP(pins));
    cr_assert(told == 1);
    BERM_TEST_END();
}

Test(ladder, new_memory) {
    berm_addr_t out;
    device_begin(NULL, 0);
    EXPECT(BERM_OK, berm_limit_set(0, MIB));
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(BLOCK, 0, stream, &out));
    EXPECT(BERM_OK, berm_limit_set(0, UINT64_MAX));
    block_serve(stream, STEP(mapped));
    BERM_TEST_END();
}

// 60 MiB in blocks of 10 MiB, of which every second one is freed.
static void comb_make(berm_addr_t *blocks, void *on) {
    for (int i = 0; i < 6; i++)
        blocks[i] = heap_alloc(10 * MIB, on);
    for (int i = 0; i < 6; i += 2)
        heap_free(blocks[i], on);
    heap_context_synchronize();
}

static void comb_moves(bool is_enough) {
    berm_addr_t blocks[6];
    device_begin("growth_handle:2M", 0);
    comb_make(blocks, stream);
    if (is_enough)
        heap_free(blocks[5], stream); // in pieces of 10, 10 and 20
    heap_context_synchronize();
    if (is_enough)
        block_serve(stream, STEP(moved));
    else
        block_refuse(stream);
    cr_assert(stats_of(0).host_waits == 0 && stats_of(0).moved_bytes > 0);
    BERM_TEST_END();
}

Test(ladder, moved_pages) {
    comb_moves(false);
    comb_moves(true);
}

// What is idle with other properties cannot move here, but makes room.
static berm_pool_id_t pool_make(uint32_t traits) {
    const berm_pool_id_t id = {0, 9};
    const berm_pool_options_t options = {.size = sizeof options, .traits = traits};
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    return id;
}

static berm_addr_t pool_block(berm_pool_id_t id) {
    berm_addr_t block;
    EXPECT(BERM_OK, berm_alloc_from(id, BLOCK, 512, 0, stream, &block));
    return block;
}

Test(ladder, idle_memory_goes_back) {
    device_begin(NULL, 0);
    berm_pool_id_t id = pool_make(BERM_POOL_EXPORTABLE);
    berm_addr_t block = pool_block(id);
    block_refuse(stream);
    heap_free(block, stream);
    heap_context_synchronize();
    uint64_t released = simcuda_calls("cuMemRelease");
    block_serve(stream, STEP(released));
    cr_assert(simcuda_calls("cuMemRelease") > released && stats_of(0).moved_bytes == 0);
    BERM_TEST_END();
}

static berm_addr_t block_kept;

static bool block_give(void *arg, int device, uint64_t needed_bytes) {
    cr_assert(device == 0 && needed_bytes == BLOCK);
    ++*(unsigned *)arg;
    if (block_kept == 0)
        return false;
    heap_free(block_kept, stream);
    block_kept = 0;
    return true;
}

Test(ladder, callbacks_of_the_application) {
    unsigned calls = 0;
    device_begin(NULL, 1);
    block_kept = heap_alloc(BLOCK, stream);
    block_refuse(stream);
    EXPECT(BERM_OK, berm_pressure_register(0, block_give, &calls));
    block_serve(stream, STEP(pressure));
    cr_assert(calls == 1 && block_kept == 0);
    block_refuse(stream);
    cr_assert(calls == 2, "it is asked once, and has nothing");
    BERM_TEST_END();
}

Test(ladder, a_wait) {
    device_begin(NULL, 0);
    berm_addr_t block = heap_alloc(BLOCK, stream);
    block_refuse(stream);
    heap_use(other, block, BLOCK, 5000000);
    heap_free(block, other);
    uint64_t began_ns = simcuda_now_ns();
    block_serve(stream, STEP(waited));
    cr_assert(simcuda_now_ns() - began_ns > 4000000 && stats_of(0).host_waits > 0);
    BERM_TEST_END();
}

static void pool_lends(uint32_t traits, bool is_served) {
    device_begin(NULL, 0);
    berm_addr_t block = pool_block(pool_make(traits));
    block_refuse(stream);
    heap_free(block, stream);
    heap_context_synchronize();
    block_refuse(other);
    if (is_served)
        block_serve(stream, STEP(others));
    else
        block_refuse(stream);
    BERM_TEST_END();
}

Test(ladder, a_pool_that_serves_others) {
    pool_lends(BERM_POOL_PINNED, false);
    pool_lends(BERM_POOL_PINNED | BERM_POOL_USE_ON_OOM, true);
}

Test(ladder, a_pool_that_is_a_graphs_does_not_serve_others) {
    berm_pool_options_t options = {.size = sizeof options,
                                   .traits = BERM_POOL_PRIVATE | BERM_POOL_USE_ON_OOM};
    device_begin(NULL, 0);
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, (berm_pool_id_t){0, 9}, &options));
    EXPECT_MESSAGE("PRIVATE and USE_ON_OOM exclude each other");
    BERM_TEST_END();
}

// --- the order -----------------------------------------------------------------------------------

// Pages that can move come before the application is asked.
Test(ladder, moving_comes_before_callbacks) {
    unsigned calls = 0;
    berm_addr_t blocks[6];
    device_begin("growth_handle:2M", 0);
    block_kept = 0;
    EXPECT(BERM_OK, berm_pressure_register(BERM_DEVICE_ANY, block_give, &calls));
    comb_make(blocks, stream);
    heap_free(blocks[5], stream);
    heap_context_synchronize();
    block_serve(stream, STEP(moved));
    cr_assert(calls == 0);
    BERM_TEST_END();
}

// The application is asked before other streams are waited for, and then they are.
Test(ladder, callbacks_come_before_waits) {
    unsigned calls = 0;
    device_begin(NULL, 0);
    block_kept = 0;
    EXPECT(BERM_OK, berm_pressure_register(0, block_give, &calls));
    berm_addr_t block = heap_alloc(BLOCK, stream);
    heap_use(other, block, BLOCK, 5000000);
    heap_free(block, other);
    block_serve(stream, STEP(waited));
    cr_assert(calls == 1);
    BERM_TEST_END();
    device_begin(NULL, 0);
    EXPECT(BERM_OK, berm_pressure_register(0, block_give, &calls));
    block = heap_alloc(18 * MIB, stream);
    block_kept = heap_alloc(BLOCK, stream);
    heap_use(other, block, 18 * MIB, 5000000);
    heap_free(block, other);
    uint64_t began_ns = simcuda_now_ns();
    block_serve(stream, STEP(pressure));
    cr_assert(simcuda_now_ns() - began_ns < 4000000, "nothing was waited for");
    cr_assert(stats_of(0).host_waits == 0);
    BERM_TEST_END();
}

// What a wait gives comes before a pool of the caller's is used.
Test(ladder, waits_come_before_other_pools) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 96 * MIB});
    stream = heap_stream_create();
    other = heap_stream_create();
    heap_free(pool_block(pool_make(BERM_POOL_PINNED | BERM_POOL_USE_ON_OOM)), stream);
    berm_addr_t block = heap_alloc(BLOCK, stream);
    heap_use(other, block, BLOCK, 5000000);
    heap_free(block, other);
    block_serve(stream, STEP(waited));
    block_serve(stream, STEP(others));
    block_refuse(stream);
    BERM_TEST_END();
}
