// SPDX-License-Identifier: Apache-2.0
// Pools of the caller's: their life, routes, whose memory serves whom, and misuse. Captures are in
// test_capture.c.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t default_id = {0, 0}, id = {0, 1}, other_id = {1, 0};
static void *stream;

static void pools_begin(const char *conf) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = conf});
    stream = heap_stream_create();
}

static void pool_make(berm_pool_id_t pool, uint32_t traits) {
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = traits;
    EXPECT(BERM_OK, berm_pool_create(0, pool, &options));
}

static berm_addr_t alloc_from(berm_pool_id_t pool, uint64_t size_bytes) {
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from(pool, size_bytes, 512, 0, stream, &addr));
    heap_use(stream, addr, size_bytes, 1000);
    BERM_TEST_CHECK();
    return addr;
}

static berm_pool_stats_t pool_stats(berm_pool_id_t pool) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_OK, berm_pool_stats_read(0, pool, &stats));
    return stats;
}

static berm_whatis_t whatis(berm_addr_t addr) {
    berm_whatis_t what = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &what));
    return what;
}

static bool is_of(berm_addr_t addr, berm_pool_id_t pool) {
    berm_whatis_t what = whatis(addr);
    return what.kind == BERM_ADDRESS_LIVE && what.pool.high == pool.high &&
           what.pool.low == pool.low;
}

// --- life --------------------------------------------------------------------------------------

Test(pools, a_block_is_of_the_pool_it_was_asked_from) {
    pools_begin(NULL);
    pool_make(id, 0);
    berm_addr_t large = alloc_from(id, 3 * MIB), small = alloc_from(id, 100);
    berm_addr_t usual = heap_alloc(3 * MIB, stream);
    cr_assert(is_of(large, id) && is_of(small, id) && is_of(usual, default_id));
    cr_assert(is_of(alloc_from(default_id, 5000), default_id));
    berm_pool_stats_t stats = pool_stats(id);
    cr_assert(stats.uses == 1 && stats.parts == 1 && stats.blocks == 2 && stats.routes == 0);
    cr_assert(stats.requested_bytes == 3 * MIB + 100);
    cr_assert(stats.allocated_bytes > 3 * MIB && stats.allocated_bytes < 3 * MIB + KIB);
    cr_assert(stats.reserved_bytes == 4 * MIB && stats.awaited_bytes == 0);
    heap_free(large, stream);
    heap_free(small, stream);
    cr_assert(pool_stats(id).blocks == 0 && pool_stats(id).reserved_bytes == 4 * MIB);
    cr_assert(pool_stats(default_id).blocks == 2);
    heap_free(usual, stream);
    BERM_TEST_END();
}

Test(pools, each_stream_has_its_part) {
    pools_begin(NULL);
    pool_make(id, 0);
    void *second = heap_stream_create();
    berm_addr_t a = alloc_from(id, MIB), b = 0, c = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, MIB, 512, 0, second, &b));
    EXPECT(BERM_OK, berm_alloc_from(id, MIB, 4096, 0, BERM_STREAM_NONE, &c));
    cr_assert(is_of(a, id) && is_of(b, id) && is_of(c, id) && c % 4096 == 0);
    cr_assert(pool_stats(id).parts == 3);
    EXPECT(BERM_OK, berm_stream_retire(0, second));
    heap_free(b, stream);
    heap_free(c, BERM_STREAM_NONE);
    BERM_TEST_END();
}

Test(pools, uses_are_counted) {
    pools_begin(NULL);
    pool_make(id, BERM_POOL_PRIVATE);
    pool_make(id, BERM_POOL_PRIVATE);
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    cr_assert(pool_stats(id).uses == 3 && pool_stats(id).traits == BERM_POOL_PRIVATE);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    (void)alloc_from(id, MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_release(0, id));
    EXPECT_MESSAGE("{0, 1}");
    berm_addr_t addr;
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_alloc_from(id, MIB, 512, 0, stream, &addr));
    cr_assert(addr == 0);
    BERM_TEST_END();
}

// With a limit that has room for nothing else, the default pool gets what a released pool had.
static void memory_serves_others(uint32_t traits) {
    pools_begin("limit:32M");
    pool_make(id, traits);
    berm_addr_t kept = alloc_from(id, 2 * MIB);
    heap_free(alloc_from(id, 28 * MIB), stream);
    berm_addr_t addr;
    if (traits != 0)
        EXPECT(BERM_ERROR_LIMIT, berm_alloc(20 * MIB, 0, stream, &addr));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    berm_whatis_t what = whatis(kept);
    cr_assert(what.kind == BERM_ADDRESS_LIVE && what.is_released);
    uint64_t creates = simcuda_calls("cuMemCreate");
    EXPECT(BERM_OK, berm_alloc(28 * MIB, 0, stream, &addr));
    cr_assert((traits & (BERM_POOL_EXPORTABLE | BERM_POOL_PLAIN)) != 0 ||
              simcuda_calls("cuMemCreate") == creates);
    heap_use(stream, addr, 28 * MIB, 1000);
    heap_use(stream, kept, 2 * MIB, 1000); // outlives its pool
    BERM_TEST_CHECK();
    heap_free(addr, stream);
    heap_free(kept, stream);
    EXPECT(BERM_OK, berm_alloc(32 * MIB, 0, stream, &addr));
    heap_use(stream, addr, 32 * MIB, 1000);
    BERM_TEST_END();
}

Test(pools, memory_of_an_ordinary_pool_serves_others) {
    memory_serves_others(0);
}

Test(pools, memory_of_a_private_pool_serves_others_after_its_release) {
    memory_serves_others(BERM_POOL_PRIVATE);
}

Test(pools, memory_of_a_pinned_pool_serves_others_after_its_release) {
    memory_serves_others(BERM_POOL_PINNED);
}

Test(pools, memory_of_a_private_exportable_pool_serves_others_after_its_release) {
    memory_serves_others(BERM_POOL_PRIVATE | BERM_POOL_EXPORTABLE);
}

Test(pools, memory_of_a_private_plain_pool_serves_others_after_its_release) {
    memory_serves_others(BERM_POOL_PRIVATE | BERM_POOL_PLAIN);
}

Test(pools, an_ordinary_pool_takes_pages_from_others) {
    pools_begin("limit:32M,headroom:0");
    pool_make(id, 0);
    pool_make(other_id, 0);
    heap_free(heap_alloc(30 * MIB, stream), stream);
    heap_free(alloc_from(id, 30 * MIB), stream);
    heap_free(alloc_from(other_id, 30 * MIB), stream);
    cr_assert(stats_of(0).reserved_bytes.peak <= 32 * MIB);
    BERM_TEST_END();
}

Test(pools, trim_leaves_a_private_pool_until_its_release) {
    pools_begin(NULL);
    pool_make(id, BERM_POOL_PRIVATE);
    heap_free(alloc_from(id, 10 * MIB), stream);
    uint64_t released = 1;
    EXPECT(BERM_OK, berm_trim(0, 0, &released));
    cr_assert(released == 0 && pool_stats(id).reserved_bytes == 10 * MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_trim(0, 0, &released));
    cr_assert(released == 10 * MIB && stats_of(0).reserved_bytes.current == 0);
    cr_assert(stats_of(0).pools == 0);
    BERM_TEST_END();
}

// The last block of a released pool is freed: the rest goes back without another call.
Test(pools, the_last_free_ends_a_released_pool) {
    pools_begin(NULL);
    pool_make(id, 0);
    berm_addr_t addr = alloc_from(id, 4 * MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(stats_of(0).pools == 1);
    heap_stream_synchronize(stream);
    heap_free(addr, stream);
    cr_assert(stats_of(0).pools == 0 && stats_of(0).mappings == 0);
    cr_assert(whatis(addr).kind == BERM_ADDRESS_UNMAPPED);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_free(addr, 0, stream));
    BERM_TEST_END();
}

// The same id names a new pool while blocks of the old one live.
Test(pools, an_id_comes_again) {
    pools_begin(NULL);
    pool_make(id, BERM_POOL_PRIVATE);
    berm_addr_t old = alloc_from(id, 2 * MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    pool_make(id, 0);
    cr_assert(pool_stats(id).blocks == 0 && pool_stats(id).traits == 0);
    berm_addr_t fresh = alloc_from(id, 2 * MIB);
    cr_assert(whatis(old).is_released && !whatis(fresh).is_released);
    cr_assert(is_of(old, id) && is_of(fresh, id));
    heap_free(old, stream);
    heap_free(fresh, stream);
    BERM_TEST_END();
}

Test(pools, addresses_are_used_again) {
    pools_begin(NULL);
    uint64_t address_bytes = 0;
    for (unsigned i = 0; i < 50; i++) {
        pool_make((berm_pool_id_t){0, i + 1}, i % 2 == 0 ? BERM_POOL_PRIVATE : 0);
        heap_free(alloc_from((berm_pool_id_t){0, i + 1}, 3 * MIB), stream);
        heap_stream_synchronize(stream);
        EXPECT(BERM_OK, berm_pool_release(0, (berm_pool_id_t){0, i + 1}));
        if (i == 0)
            address_bytes = stats_of(0).address_bytes;
        cr_assert(stats_of(0).address_bytes == address_bytes);
        BERM_TEST_CHECK();
    }
    BERM_TEST_END();
}

Test(pools, shutdown_takes_everything) {
    pools_begin(NULL);
    pool_make(id, BERM_POOL_PRIVATE);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    (void)heap_alloc(MIB, stream);
    pool_make(other_id, BERM_POOL_EXPORTABLE);
    (void)alloc_from(other_id, MIB);
    EXPECT(BERM_OK, berm_pool_release(0, other_id));
    size_t live = 0;
    EXPECT(BERM_OK, berm_shutdown(&live));
    cr_assert(live == 2);
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    cr_assert(is_of(heap_alloc(MIB, stream), default_id)); // the route is gone too
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_stats_read(0, id, &stats));
    BERM_TEST_END();
}

Test(pools, blocks_are_whole_handles_where_they_can_be_exported) {
    pools_begin(NULL);
    pool_make(id, BERM_POOL_EXPORTABLE);
    uint64_t creates = simcuda_calls("cuMemCreate");
    berm_addr_t a = alloc_from(id, 100), b = alloc_from(id, 5 * MIB);
    cr_assert(whatis(a).block_bytes == 2 * MIB && whatis(b).block_bytes == 6 * MIB);
    cr_assert(simcuda_calls("cuMemCreate") == creates + 2);
    BERM_TEST_END();
}

// --- routes ------------------------------------------------------------------------------------

Test(pools, a_route_takes_the_requests_of_its_stream) {
    pools_begin(NULL);
    void *second = heap_stream_create();
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    cr_assert(pool_stats(id).uses == 1 && pool_stats(id).routes == 1);
    cr_assert(pool_stats(id).traits == BERM_POOL_PRIVATE); // it was made by the route
    cr_assert(is_of(heap_alloc(MIB, stream), id) && is_of(heap_alloc(10, stream), id));
    cr_assert(is_of(heap_alloc(MIB, second), default_id));
    cr_assert(is_of(heap_alloc(MIB, BERM_STREAM_NONE), default_id));
    cr_assert(is_of(alloc_from(default_id, MIB), default_id));
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    cr_assert(is_of(heap_alloc(MIB, stream), default_id));
    cr_assert(pool_stats(id).uses == 1 && pool_stats(id).routes == 0);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

Test(pools, thread_caches_do_not_stand_before_a_route) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    stream = heap_stream_create();
    berm_addr_t cached = heap_alloc(1000, stream);
    heap_free(cached, stream);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    berm_addr_t routed = heap_alloc(1000, stream);
    cr_assert(routed != cached && is_of(routed, id));
    heap_free(routed, stream); // into its own pool, not into the cache of the default one
    cr_assert(heap_alloc(1000, stream) == routed);
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    cr_assert(is_of(heap_alloc(1000, stream), default_id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

Test(pools, the_newest_route_wins) {
    pools_begin(NULL);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    EXPECT(BERM_OK, berm_pool_route_begin(0, other_id, heap_filter_stream, stream));
    cr_assert(is_of(heap_alloc(MIB, stream), other_id));
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    cr_assert(is_of(heap_alloc(MIB, stream), id) && pool_stats(id).uses == 2);
    EXPECT(BERM_OK, berm_pool_route_end(0, id)); // the newest of its routes
    cr_assert(is_of(heap_alloc(MIB, stream), other_id));
    EXPECT(BERM_OK, berm_pool_route_end(0, other_id));
    cr_assert(is_of(heap_alloc(MIB, stream), id));
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_route_end(0, id));
    cr_assert(is_of(heap_alloc(MIB, stream), default_id));
    BERM_TEST_END();
}

// Begun and never ended: the last release ends it.
Test(pools, a_release_ends_the_routes) {
    pools_begin(NULL);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(is_of(heap_alloc(MIB, stream), id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(is_of(heap_alloc(MIB, stream), default_id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_route_end(0, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_release(0, id));
    BERM_TEST_END();
}

static bool filter_thread(berm_stream_t any, void *context) {
    (void)any;
    return pthread_equal(pthread_self(), *(const pthread_t *)context) != 0;
}

static void *thread_alloc(void *out) {
    *(berm_addr_t *)out = heap_alloc(MIB, stream);
    return NULL;
}

Test(pools, a_filter_may_go_by_the_thread) {
    pools_begin(NULL);
    pthread_t self = pthread_self(), thread;
    berm_addr_t elsewhere = 0;
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, filter_thread, &self));
    cr_assert(pthread_create(&thread, NULL, thread_alloc, &elsewhere) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(is_of(elsewhere, default_id) && is_of(heap_alloc(MIB, stream), id));
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

static struct { atomic_int inside, may_go; } slow;

static bool filter_slow(berm_stream_t any, void *context) {
    (void)any;
    (void)context;
    atomic_store(&slow.inside, 1);
    while (atomic_load(&slow.may_go) == 0)
        (void)sched_yield();
    atomic_store(&slow.inside, 0);
    return true;
}

static void *thread_end_route(void *has_ended) {
    (void)berm_pool_route_end(0, id);
    atomic_store((atomic_int *)has_ended, 1);
    return NULL;
}

// When the end of a route returns, its filter is not running.
Test(pools, the_end_of_a_route_waits_for_its_filter) {
    pools_begin(NULL);
    pthread_t allocating, ending;
    berm_addr_t addr = 0;
    atomic_int has_ended = 0;
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, filter_slow, NULL));
    cr_assert(pthread_create(&allocating, NULL, thread_alloc, &addr) == 0);
    while (atomic_load(&slow.inside) == 0)
        (void)sched_yield();
    cr_assert(pthread_create(&ending, NULL, thread_end_route, &has_ended) == 0);
    for (int i = 0; i < 1000; i++) {
        (void)sched_yield();
        cr_assert(atomic_load(&has_ended) == 0);
    }
    atomic_store(&slow.may_go, 1);
    cr_assert(pthread_join(ending, NULL) == 0 && pthread_join(allocating, NULL) == 0);
    cr_assert(atomic_load(&slow.inside) == 0 && is_of(addr, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

// --- several devices, misuse -------------------------------------------------------------------

Test(pools, each_device_has_its_own_ids) {
    heap_fixture_begin(&(heap_fixture_options_t){.devices = 2});
    stream = heap_stream_create();
    berm_addr_t addr;
    pool_make(id, 0);
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_release(1, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_alloc_from(id, MIB, 512, 1, BERM_STREAM_NONE, &addr));
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, filter_thread, &(pthread_t){pthread_self()}));
    EXPECT(BERM_OK, berm_alloc(MIB, 1, BERM_STREAM_NONE, &addr));
    cr_assert(is_of(addr, default_id));
    EXPECT(BERM_OK, berm_pool_create(1, id, NULL));
    cr_assert(pool_stats(id).uses == 2);
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    BERM_TEST_END();
}

Test(pools, misuse_has_a_status) {
    pools_begin(NULL);
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    berm_addr_t addr;
    pool_make(id, BERM_POOL_PINNED);
    (void)alloc_from(id, MIB);
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, default_id, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_release(0, default_id));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_route_end(0, default_id));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_route_begin(0, default_id, heap_filter_stream, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_route_begin(0, id, NULL, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_create(7, id, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_release(-1, id));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_route_begin(1, id, heap_filter_stream, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_route_end(1, id));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_stats_read(1, id, &stats));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_route_end(0, other_id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_release(0, other_id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_stats_read(0, other_id, &stats));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_stats_read(0, id, NULL));
    options.traits = BERM_POOL_PLAIN | BERM_POOL_EXPORTABLE;
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other_id, &options));
    EXPECT_MESSAGE("EXPORTABLE and PLAIN exclude each other");
    options.traits = 1u << 20;
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other_id, &options));
    options.traits = 0;
    EXPECT(BERM_ERROR_STATE, berm_pool_create(0, id, &options));
    EXPECT_MESSAGE("it exists, with other traits");
    options.reserved_ = 1;
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, other_id, &options));
    options.size = 3;
    EXPECT(BERM_ERROR_VERSION, berm_pool_create(0, other_id, &options));
    stats.size = sizeof stats + 8;
    EXPECT(BERM_ERROR_VERSION, berm_pool_stats_read(0, id, &stats));
    EXPECT(BERM_ERROR_ARGUMENT, berm_alloc_from(id, MIB, 512, 0, stream, NULL));
    EXPECT(BERM_ERROR_SIZE_ZERO, berm_alloc_from(id, 0, 512, 0, stream, &addr));
    EXPECT(BERM_ERROR_SIZE_TOO_LARGE, berm_alloc_from(id, UINT64_MAX, 512, 0, stream, &addr));
    EXPECT(BERM_ERROR_ALIGNMENT, berm_alloc_from(id, 512, 3, 0, stream, &addr));
    EXPECT(BERM_ERROR_ALIGNMENT, berm_alloc_from(id, 512, 0, 0, stream, &addr));
    EXPECT(BERM_ERROR_DEVICE, berm_alloc_from(id, 512, 512, 3, stream, &addr));
    cr_assert(pool_stats(id).uses == 1 && pool_stats(id).routes == 0);
    state_expect_same(&before, 1);
    BERM_TEST_END();
}

Test(pools, a_trait_that_the_device_lacks) {
    pools_begin(NULL);
    heap_free(heap_alloc(MIB, stream), stream);
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = BERM_POOL_RDMA;
    EXPECT(BERM_OK, berm_pool_create(0, other_id, &options));
    cr_assert(simcuda_fault_nth("cuDeviceGetAttribute", 1, 1, 1) == 0);
    EXPECT(BERM_ERROR_UNSUPPORTED, berm_pool_create(0, id, &options));
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    BERM_TEST_END();
}

Test(pools, after_the_shutdown) {
    pools_begin(NULL);
    (void)heap_alloc(MIB, stream);
    EXPECT(BERM_OK, berm_shutdown(NULL));
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_create(0, id, NULL));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_release(0, id));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_route_begin(0, id, heap_filter_stream, NULL));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_route_end(0, id));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_stats_read(0, id, &stats));
    BERM_TEST_END();
}
