// SPDX-License-Identifier: Apache-2.0
// Blocks that grow where they are: same address, nothing copied, driver calls by what is missing;
// whose memory that is before and after, what stands in the way, and misuse.
#include <pthread.h>

#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t id = {0, 1}, other_id = {1, 0};
static void *stream;

static void pool_make(berm_pool_id_t pool, uint32_t traits) {
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = traits;
    EXPECT(BERM_OK, berm_pool_create(0, pool, &options));
}

static void resizable_begin(const heap_fixture_options_t *options) {
    heap_fixture_begin(options);
    stream = heap_stream_create();
    pool_make(id, BERM_POOL_RESIZABLE);
}

static berm_addr_t block_make(uint64_t size_bytes) {
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 512, 0, stream, &addr));
    heap_use(stream, addr, size_bytes, 1000);
    BERM_TEST_CHECK();
    return addr;
}

static void block_grow(berm_addr_t addr, uint64_t size_bytes) {
    EXPECT(BERM_OK, berm_block_grow(addr, size_bytes));
    heap_use(stream, addr, size_bytes, 1000);
    BERM_TEST_CHECK();
}

static uint64_t requested_at(berm_addr_t addr) {
    berm_whatis_t what = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &what));
    cr_assert(what.kind == BERM_ADDRESS_LIVE && what.block == addr);
    return what.requested_bytes;
}

// --- growing -----------------------------------------------------------------------------------

Test(resizable, a_hundred_steps_to_a_gigabyte_cost_what_they_add) {
    resizable_begin(&(heap_fixture_options_t){.memory_bytes = 4096 * MIB});
    berm_addr_t addr = block_make(MIB);
    const uint64_t first = MIB, last = 1024 * MIB, steps = 100;
    uint64_t before = memory_calls();
    for (uint64_t i = 1; i <= steps; i++) {
        uint64_t size_bytes = first + (last - first) * i / steps, calls = memory_calls();
        uint64_t held = stats_of(0).reserved_bytes.current;
        block_grow(addr, size_bytes);
        uint64_t granules = (stats_of(0).reserved_bytes.current - held) / (2 * MIB);
        // A create and a map for each granule at most, and one call for access.
        cr_assert(memory_calls() - calls <= 2 * granules + 1, "step %llu", (unsigned long long)i);
        cr_assert(requested_at(addr) == size_bytes);
    }
    uint64_t calls = memory_calls() - before, granules = last / (2 * MIB);
    cr_assert(calls <= 2 * granules + steps, "%llu calls", (unsigned long long)calls);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.reserved_bytes.current == last && stats.moved_bytes == 0);
    cr_assert(stats.requested_bytes.current == last && stats.allocated_bytes.current == last);
    cr_assert(stats.requested_bytes.peak == last && stats.blocks.current == 1);
    cr_assert(stats.requested_bytes.total_up == last && stats.blocks.total_up == 1);
    heap_free(addr, stream);
    cr_assert(stats_of(0).requested_bytes.current == 0 && stats_of(0).active_bytes.current == 0);
    BERM_TEST_END();
}

Test(resizable, what_is_in_the_block_stays) {
    resizable_begin(&(heap_fixture_options_t){.is_backed = 1});
    berm_addr_t addr = block_make(3 * MIB);
    heap_context_synchronize();
    unsigned char *bytes = (unsigned char *)(uintptr_t)addr; // of a backed device
    memset(bytes, 0x5a, 3 * MIB);
    block_grow(addr, 40 * MIB);
    heap_context_synchronize();
    for (uint64_t i = 0; i < 3 * MIB; i += 4093)
        cr_assert(bytes[i] == 0x5a);
    heap_free(addr, stream);
    BERM_TEST_END();
}

Test(resizable, a_growth_within_the_last_granule_calls_no_driver) {
    resizable_begin(NULL);
    berm_addr_t addr = block_make(MIB);
    uint64_t calls = memory_calls();
    block_grow(addr, MIB + 1);
    block_grow(addr, 2 * MIB);
    cr_assert(memory_calls() == calls && requested_at(addr) == 2 * MIB);
    block_grow(addr, MIB); // not above the present size
    cr_assert(requested_at(addr) == 2 * MIB && stats_of(0).requested_bytes.current == 2 * MIB);
    block_grow(addr, 2 * MIB + 1);
    cr_assert(memory_calls() > calls);
    heap_free(addr, stream);
    BERM_TEST_END();
}

Test(resizable, blocks_grow_side_by_side_and_leave_their_places_to_the_next) {
    resizable_begin(NULL);
    berm_addr_t a = block_make(MIB), b = block_make(100), c = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 5 * MIB, 8 * MIB, 0, stream, &c));
    cr_assert(c % (8 * MIB) == 0);
    for (uint64_t size_bytes = 6 * MIB; size_bytes <= 48 * MIB; size_bytes += 6 * MIB) {
        block_grow(a, size_bytes);
        block_grow(b, size_bytes);
        block_grow(c, size_bytes);
    }
    heap_free(b, stream);
    uint64_t calls = memory_calls(), addresses = stats_of(0).address_bytes;
    berm_addr_t again = block_make(20 * MIB); // in b's place, pages and all
    cr_assert(again == b && memory_calls() == calls);
    block_grow(again, 48 * MIB);
    cr_assert(memory_calls() == calls && stats_of(0).address_bytes == addresses);
    heap_free(a, stream);
    heap_free(again, stream);
    heap_free(c, stream);
    BERM_TEST_END();
}

Test(resizable, pages_move_in_and_out) {
    resizable_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    berm_addr_t usual = heap_alloc(40 * MIB, stream), addr = block_make(2 * MIB);
    heap_free(usual, stream);
    heap_stream_synchronize(stream);
    block_grow(addr, 60 * MIB); // with the pages of the other pool
    cr_assert(stats_of(0).moved_bytes > 0 && stats_of(0).reserved_bytes.current <= 64 * MIB);
    heap_free(addr, stream);
    heap_stream_synchronize(stream);
    usual = heap_alloc(60 * MIB, stream); // and back
    heap_free(usual, stream);
    BERM_TEST_END();
}

Test(resizable, without_a_stream_too) {
    resizable_begin(NULL);
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 3 * MIB, 1, 0, BERM_STREAM_NONE, &addr));
    heap_use(stream, addr, 3 * MIB, 100000);
    block_grow(addr, 30 * MIB);
    EXPECT(BERM_OK, berm_free(addr, 0, BERM_STREAM_NONE));
    berm_addr_t next = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 30 * MIB, 1, 0, BERM_STREAM_NONE, &next));
    heap_use(heap_stream_create(), next, 30 * MIB, 1000); // strict: no pending work is on it
    EXPECT(BERM_OK, berm_free(next, BERM_DEVICE_ANY, BERM_STREAM_NONE));
    BERM_TEST_END();
}

// --- what stands in the way --------------------------------------------------------------------

Test(resizable, a_failed_growth_changes_nothing) {
    resizable_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    berm_addr_t addr = block_make(10 * MIB);
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_block_grow(addr, 65 * MIB));
    EXPECT_MESSAGE("wanted on device 0");
    state_expect_same(&before, 1);
    EXPECT(BERM_OK, berm_limit_set(0, 30 * MIB));
    before = state_take(1);
    EXPECT(BERM_ERROR_LIMIT, berm_block_grow(addr, 40 * MIB));
    state_expect_same(&before, 1);
    berm_addr_t usual = heap_alloc(15 * MIB, stream);
    EXPECT(BERM_ERROR_LIMIT, berm_block_grow(addr, 25 * MIB));
    cr_assert(requested_at(addr) == 10 * MIB);
    heap_free(usual, stream);
    block_grow(addr, 25 * MIB);
    heap_free(addr, stream);
    BERM_TEST_END();
}

Test(resizable, addresses_may_end) {
    resizable_begin(
        &(heap_fixture_options_t){.memory_bytes = 1024 * MIB, .address_bytes = 256 * MIB});
    berm_addr_t addr = block_make(MIB);
    EXPECT(BERM_ERROR_OUT_OF_ADDRESSES, berm_block_grow(addr, 600 * MIB));
    EXPECT_MESSAGE("no addresses left behind it");
    block_grow(addr, 64 * MIB);
    heap_free(addr, stream);
    BERM_TEST_END();
}

static bool give_back(void *arg, int device, uint64_t needed_bytes) {
    berm_addr_t *held = arg;
    cr_assert(device == 0 && needed_bytes > 0);
    if (*held == 0)
        return false;
    heap_free(*held, stream);
    *held = 0;
    return true;
}

Test(resizable, a_growth_climbs_the_ladder) {
    resizable_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    berm_addr_t held = heap_alloc(40 * MIB, stream), addr = block_make(2 * MIB);
    EXPECT(BERM_OK, berm_pressure_register(0, give_back, &held));
    block_grow(addr, 50 * MIB);
    cr_assert(held == 0 && stats_of(0).ladder.pressure == 1);
    heap_free(addr, stream);
    BERM_TEST_END();
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)addr, (void)size_bytes;
    ++*(unsigned *)arg;
}

Test(resizable, a_pinned_block_does_not_grow) {
    resizable_begin(NULL);
    unsigned told = 0;
    berm_addr_t addr = block_make(3 * MIB);
    EXPECT(BERM_OK, berm_pin(addr, pin_told, &told));
    EXPECT(BERM_ERROR_STATE, berm_block_grow(addr, 9 * MIB));
    EXPECT_MESSAGE("pinned");
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_unpin(addr, pin_told, &told));
    block_grow(addr, 9 * MIB);
    EXPECT(BERM_OK, berm_pin(addr, pin_told, &told));
    heap_free(addr, stream);
    berm_addr_t next = block_make(9 * MIB); // the held one is not in its way
    cr_assert(next != addr || told == 1);
    BERM_TEST_CHECK();
    heap_free(next, stream);
    BERM_TEST_END();
}

Test(resizable, a_capture_gets_only_what_has_passed) {
    resizable_begin(NULL);
    berm_addr_t addr = block_make(20 * MIB), early;
    heap_free(addr, stream);
    early = block_make(MIB); // and behind it pages that work may still use
    heap_use(stream, early, MIB, 1000000);
    heap_capture_begin(stream, 2);
    EXPECT(BERM_ERROR_CAPTURE, berm_block_grow(early, 20 * MIB));
    EXPECT_MESSAGE("captured");
    berm_addr_t inside = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, MIB, 512, 0, stream, &inside));
    EXPECT(BERM_OK, berm_block_grow(inside, 10 * MIB));
    heap_capture_drop(stream);
    block_grow(early, 20 * MIB);
    heap_free(early, stream);
    heap_free(inside, stream);
    BERM_TEST_END();
}

// --- misuse ------------------------------------------------------------------------------------

Test(resizable, misuse_has_names) {
    resizable_begin(NULL);
    pool_make(other_id, 0);
    berm_addr_t usual = heap_alloc(3 * MIB, stream), small = heap_alloc(100, stream), other = 0;
    EXPECT(BERM_OK, berm_alloc_from(other_id, 3 * MIB, 512, 0, stream, &other));
    berm_addr_t addr = block_make(3 * MIB);
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_NOT_RESIZABLE, berm_block_grow(usual, 4 * MIB));
    EXPECT(BERM_ERROR_NOT_RESIZABLE, berm_block_grow(small, 4 * MIB));
    EXPECT(BERM_ERROR_NOT_RESIZABLE, berm_block_grow(other, 4 * MIB));
    EXPECT(BERM_ERROR_SIZE_ZERO, berm_block_grow(addr, 0));
    EXPECT(BERM_ERROR_SIZE_TOO_LARGE, berm_block_grow(addr, UINT64_MAX));
    EXPECT(BERM_ERROR_ADDRESS_INTERIOR, berm_block_grow(addr + 512, 4 * MIB));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_grow(4096, 4 * MIB));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_grow(addr + 200 * MIB, 4 * MIB));
    state_expect_same(&before, 1);
    heap_free(addr, stream);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_block_grow(addr, 4 * MIB));
    addr = block_make(3 * MIB);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_block_grow(addr, 4 * MIB));
    heap_free(addr, stream);
    BERM_TEST_END();
}

Test(resizable, before_the_start_and_after_the_end) {
    heap_fixture_begin(&(heap_fixture_options_t){.stays_stopped = 1});
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_grow(4096, 4 * MIB));
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_grow(4096, 4 * MIB));
    EXPECT(BERM_OK, berm_shutdown(NULL));
    cr_assert(berm_block_grow(4096, 4 * MIB) == BERM_ERROR_SHUTDOWN);
    BERM_TEST_END();
}

Test(resizable, traits_that_do_not_go_with_it) {
    heap_fixture_begin(NULL);
    static const uint32_t wrong[] = {BERM_POOL_PRIVATE, BERM_POOL_EXPORTABLE, BERM_POOL_PLAIN,
                                     BERM_POOL_USE_ON_OOM, BERM_POOL_NO_SPLIT};
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options.traits = BERM_POOL_RESIZABLE | wrong[i];
        EXPECT(BERM_ERROR_ARGUMENT, berm_pool_create(0, id, &options));
        EXPECT_MESSAGE("RESIZABLE goes with");
    }
    pool_make(id, BERM_POOL_RESIZABLE | BERM_POOL_PINNED | BERM_POOL_RDMA);
    berm_pool_state_t *state;
    EXPECT(BERM_ERROR_UNSUPPORTED, berm_pool_state_take(0, id, &state));
    BERM_TEST_END();
}

Test(resizable, plain_memory_is_not) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "backing:plain"});
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = BERM_POOL_RESIZABLE;
    EXPECT(BERM_ERROR_UNSUPPORTED, berm_pool_create(0, id, &options));
    EXPECT_MESSAGE("is not RESIZABLE");
    BERM_TEST_END();
}

// --- threads -----------------------------------------------------------------------------------

enum {
    THREADS = 4,
    ROUNDS = 40
};

static void *thread_grow(void *own) {
    for (int round = 0; round < ROUNDS; round++) {
        berm_addr_t addr = 0;
        HEAP_INSIST(berm_alloc_from(id, MIB, 512, 0, own, &addr) == BERM_OK);
        for (uint64_t size_bytes = 2 * MIB; size_bytes <= 16 * MIB; size_bytes += 2 * MIB)
            HEAP_INSIST(berm_block_grow(addr, size_bytes) == BERM_OK);
        HEAP_INSIST(berm_free(addr, 0, own) == BERM_OK);
    }
    return NULL;
}

Test(resizable, threads_grow_their_blocks_at_once) {
    resizable_begin(&(heap_fixture_options_t){.memory_bytes = 512 * MIB});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert(pthread_create(&threads[i], NULL, thread_grow, heap_stream_create()) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert(stats_of(0).requested_bytes.current == 0);
    BERM_TEST_END();
}
