// SPDX-License-Identifier: Apache-2.0
// Stream order through the public calls: record_stream, frees that name another stream or none,
// requests that name none, and streams that end. The device is strict: memory given out while work
// of another stream may touch it, and then used, aborts the test.
#include "tests/api/api_test.h"

enum {
    PER_THREAD = 2, // CU_STREAM_PER_THREAD
};

static berm_address_kind_t kind_of(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    return whatis.kind;
}

// Work on `stream` that touches the block and ends when the gate opens.
static uint64_t gate_close(void *stream, berm_addr_t addr, uint64_t size_bytes) {
    simcuda_access_t access = {.addr = addr, .size_bytes = size_bytes, .is_write = 1};
    uint64_t gate;
    cr_assert(simcuda_gate(stream, &access, 1, &gate) == 0);
    return gate;
}

Test(streams, own_stream_is_reused_at_once) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t addr = heap_alloc(4 * MIB, stream);
    uint64_t gate = gate_close(stream, addr, 4 * MIB), before = simcuda_calls(NULL);
    heap_free(addr, stream);
    cr_assert(heap_alloc(4 * MIB, stream) == addr);
    cr_assert(simcuda_calls(NULL) == before);
    heap_use(stream, addr, 4 * MIB, 1000); // after the gate, in stream order
    cr_assert(simcuda_gate_open(gate) == 0);
    BERM_TEST_END();
}

static void record_holds(uint64_t size_bytes) {
    heap_fixture_begin(NULL);
    void *owner = heap_stream_create(), *user = heap_stream_create();
    berm_addr_t addr = heap_alloc(size_bytes, owner);
    uint64_t gate = gate_close(user, addr, size_bytes);
    EXPECT(BERM_OK, berm_record_stream(addr, user));
    EXPECT(BERM_OK, berm_record_stream(addr, user));  // once is enough, twice is no harm
    EXPECT(BERM_OK, berm_record_stream(addr, owner)); // ignored
    heap_free(addr, owner);
    cr_assert(kind_of(addr) == BERM_ADDRESS_AWAITED);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.allocated_bytes.current == 0 && stats.active_bytes.current >= size_bytes);
    for (int i = 0; i < 20; i++) {
        berm_addr_t other = heap_alloc(size_bytes, owner);
        cr_assert(other >= addr + size_bytes || other + size_bytes <= addr);
        heap_use(owner, other, size_bytes, 1);
    }
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(user);
    (void)largest_free_of(owner); // looks at frees that are done
    cr_assert(kind_of(addr) == BERM_ADDRESS_FREE);
    stats = stats_of(0);
    cr_assert(stats.active_bytes.current == stats.allocated_bytes.current);
    BERM_TEST_END();
}

Test(streams, record_stream_holds_a_small_block_until_the_other_passed) {
    record_holds(3000);
}

Test(streams, record_stream_holds_a_large_block_until_the_other_passed) {
    record_holds(3 * MIB);
}

Test(streams, record_stream_refuses_no_stream) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_record_stream(addr, BERM_STREAM_NONE));
    EXPECT_MESSAGE("berm_record_stream");
    heap_free(addr, NULL);
    cr_assert(kind_of(addr) == BERM_ADDRESS_FREE);
    BERM_TEST_END();
}

Test(streams, a_free_on_another_stream_waits_for_that_stream) {
    heap_fixture_begin(NULL);
    void *owner = heap_stream_create(), *user = heap_stream_create();
    berm_addr_t addr = heap_alloc(3 * MIB, owner);
    uint64_t gate = gate_close(user, addr, 3 * MIB);
    heap_free(addr, user);
    cr_assert(kind_of(addr) == BERM_ADDRESS_AWAITED);
    berm_addr_t other = heap_alloc(3 * MIB, owner);
    cr_assert(other != addr);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(user);
    (void)largest_free_of(owner);
    cr_assert(kind_of(addr) == BERM_ADDRESS_FREE);
    BERM_TEST_END();
}

static void free_from_nowhere(const heap_fixture_options_t *options) {
    heap_fixture_begin(options);
    void *streams[3] = {NULL, heap_stream_create(), heap_stream_create()};
    for (int i = 0; i < 3; i++) {
        berm_addr_t addr = heap_alloc(3 * MIB, streams[0]);
        heap_use(streams[i], addr, 3 * MIB, 5000000);
        heap_free(addr, BERM_STREAM_NONE);
        // The memory may come back only when stream i is done with it.
        for (int j = 0; j < 12; j++) {
            berm_addr_t other = heap_alloc(3 * MIB, streams[0]);
            heap_use(streams[0], other, 3 * MIB, 1);
            heap_free(other, streams[0]);
        }
        heap_context_synchronize();
        (void)largest_free_of(streams[0]);
        cr_assert(kind_of(addr) == BERM_ADDRESS_FREE);
    }
    cr_assert(simcuda_hazard_count() == 0);
    BERM_TEST_END();
}

Test(streams, a_free_from_nowhere_waits_for_all_streams) {
    free_from_nowhere(NULL);
}

Test(streams, a_free_from_nowhere_waits_for_all_streams_on_an_old_driver) {
    free_from_nowhere(&(heap_fixture_options_t){.lacks_ctx_event = 1});
}

Test(streams, a_free_from_nowhere_is_awaited_while_any_stream_runs) {
    heap_fixture_begin(NULL);
    void *bystander = heap_stream_create();
    berm_addr_t addr = heap_alloc(3 * MIB, NULL), busy = heap_alloc(1000, bystander);
    uint64_t gate = gate_close(bystander, busy, 1000);
    heap_free(addr, BERM_STREAM_NONE);
    (void)largest_free_of(NULL);
    cr_assert(kind_of(addr) == BERM_ADDRESS_AWAITED);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_context_synchronize();
    (void)largest_free_of(NULL);
    cr_assert(kind_of(addr) == BERM_ADDRESS_FREE);
    BERM_TEST_END();
}

// What a request without a stream gets may be used on every stream at once, whatever was there.
Test(streams, a_request_without_stream_has_no_pending_work) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 48 * MIB});
    void *a = heap_stream_create(), *b = heap_stream_create();
    static const uint64_t sizes[] = {700, 40000, 90 * KIB, 5 * MIB, 17 * MIB};
    for (int round = 0; round < 60; round++) {
        uint64_t size_bytes = sizes[round % 5];
        void *last = round % 2 == 0 ? a : b, *next = round % 3 == 0 ? a : b;
        berm_addr_t addr = heap_alloc(size_bytes, BERM_STREAM_NONE);
        heap_use(next, addr, size_bytes, 100000); // a hazard if work of the other is pending
        heap_free(addr, next);
        addr = heap_alloc(size_bytes, last); // its pages go to the pool without stream, by moving
        heap_use(last, addr, size_bytes, 100000);
        heap_free(addr, last);
    }
    cr_assert(simcuda_hazard_count() == 0);
    BERM_TEST_END();
}

Test(streams, null_and_legacy_are_one_stream) {
    heap_fixture_begin(NULL);
    berm_addr_t addr = heap_alloc(4 * MIB, NULL);
    heap_free(addr, (void *)1);
    cr_assert(heap_alloc(4 * MIB, (void *)1) == addr);
    heap_free(addr, NULL);
    cr_assert(largest_free_of((void *)1) == largest_free_of(NULL));
    cr_assert(stats_of(0).pools == 1);
    BERM_TEST_END();
}

// The per-thread default stream is another one in each thread: its memory has no order of its own.
Test(streams, per_thread_default_is_no_stream) {
    heap_fixture_begin(NULL);
    void *mine = (void *)(intptr_t)PER_THREAD;
    berm_addr_t addr = heap_alloc(4 * MIB, mine);
    uint64_t gate = gate_close(mine, addr, 4 * MIB);
    heap_free(addr, mine);
    cr_assert(kind_of(addr) == BERM_ADDRESS_AWAITED);
    cr_assert(heap_alloc(4 * MIB, mine) != addr);
    cr_assert(simcuda_gate_open(gate) == 0);
    BERM_TEST_END();
}

Test(streams, a_recorded_per_thread_default_is_waited_for) {
    heap_fixture_begin(NULL);
    void *mine = (void *)(intptr_t)PER_THREAD, *other = heap_stream_create();
    berm_addr_t addr = heap_alloc(4 * MIB, BERM_STREAM_NONE);
    uint64_t gate = gate_close(mine, addr, 4 * MIB);
    EXPECT(BERM_OK, berm_record_stream(addr, mine));
    heap_free(addr, other);
    (void)largest_free_of(BERM_STREAM_NONE);
    cr_assert(kind_of(addr) == BERM_ADDRESS_AWAITED, "the recorded stream is forgotten");
    cr_assert(simcuda_gate_open(gate) == 0);
    BERM_TEST_END();
}

// --- the end of a stream -----------------------------------------------------------------------

Test(streams, retire_then_reuse_of_the_handle_value) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    void *other = heap_stream_create();
    for (int round = 0; round < 20; round++) {
        void *stream = heap_stream_create();
        berm_addr_t freed = heap_alloc(20 * MIB, stream), live = heap_alloc(3 * MIB, stream);
        heap_use(stream, freed, 20 * MIB, 1000000);
        heap_use(stream, live, 3 * MIB, 1000000);
        heap_free(freed, stream);
        EXPECT(BERM_OK, berm_stream_retire(0, stream));
        heap_stream_destroy(stream);
        // Its free memory serves any stream; the live block is still one, and frees on any stream.
        berm_addr_t large = heap_alloc(40 * MIB, other);
        heap_use(other, large, 40 * MIB, 1000);
        cr_assert(kind_of(live) == BERM_ADDRESS_LIVE);
        heap_use(other, live, 3 * MIB, 1000);
        heap_free(live, other);
        heap_free(large, other);
        void *again = heap_stream_create(); // as a rule at the same address
        berm_addr_t addr = heap_alloc(2 * MIB, again);
        heap_use(again, addr, 2 * MIB, 1000);
        heap_free(addr, again);
        EXPECT(BERM_OK, berm_stream_retire(0, again));
        heap_stream_destroy(again);
        BERM_TEST_CHECK();
    }
    cr_assert(simcuda_hazard_count() == 0);
    BERM_TEST_END();
}

Test(streams, a_block_outlives_its_stream) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t large = heap_alloc(3 * MIB, stream), small = heap_alloc(3000, stream);
    heap_use(stream, large, 3 * MIB, 1000000);
    EXPECT(BERM_OK, berm_stream_retire(0, stream));
    heap_stream_destroy(stream);
    // Nothing is queued any more: the NULL stream may use it at once.
    heap_use(NULL, large, 3 * MIB, 1000);
    heap_free(large, NULL);
    heap_free(small, BERM_STREAM_NONE);
    cr_assert(stats_of(0).blocks.current == 0);
    heap_context_synchronize();
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    BERM_TEST_END();
}

Test(streams, retire_refuses_what_is_no_stream_or_device) {
    heap_fixture_begin(NULL);
    (void)heap_alloc(1000, NULL);
    void *never_seen = heap_stream_create();
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_ARGUMENT, berm_stream_retire(0, BERM_STREAM_NONE));
    EXPECT(BERM_ERROR_DEVICE, berm_stream_retire(-1, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_stream_retire(1, NULL));
    EXPECT(BERM_OK, berm_stream_retire(0, never_seen));
    state_expect_same(&before, 1);
    BERM_TEST_END();
}

// The per-thread default cannot be destroyed, and other threads' memory must not be touched by it.
Test(streams, retire_of_the_per_thread_default) {
    heap_fixture_begin(NULL);
    berm_addr_t kept = heap_alloc(3 * MIB, BERM_STREAM_NONE);
    berm_addr_t freed = heap_alloc(3 * MIB, BERM_STREAM_NONE);
    heap_free(freed, BERM_STREAM_NONE);
    EXPECT(BERM_ERROR_ARGUMENT, berm_stream_retire(0, (void *)(intptr_t)PER_THREAD));
    heap_use(NULL, kept, 3 * MIB, 1000000);
    heap_free(kept, NULL);
    berm_addr_t next = heap_alloc(3 * MIB, BERM_STREAM_NONE);
    void *other = heap_stream_create();
    heap_use(other, next, 3 * MIB, 1000);
    cr_assert(simcuda_hazard_count() == 0);
    BERM_TEST_END();
}
