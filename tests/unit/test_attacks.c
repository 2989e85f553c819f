// SPDX-License-Identifier: Apache-2.0
// What attacks on the library have found, kept so that it stays found.
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "berm_introspect.h"
#include "berm_share.h"
#include "tests/support/capture.h"
#include "tests/support/exportable.h"
#include "tests/support/heap_inside.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

// A one-granule device, all of it freed but awaited. The window for the whole granule holds part of
// it while the last free finishes: the request must be tried once more, not refused.
Test(attacks, an_open_window_does_not_stand_in_its_own_way) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 2 * MIB});
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t first = heap_alloc(512 * KIB, stream), second = heap_alloc(512 * KIB, stream);
    heap_use(other, first, 512 * KIB, 1000000);
    heap_free(first, other);
    heap_free(second, other);
    cr_assert(berm_alloc(2 * MIB, 0, stream, &out) == BERM_OK, "%s", berm_error_message());
    BERM_TEST_END_INSIDE();
}

// The same with a slab that becomes empty while the request waits.
Test(attacks, an_own_slab_that_empties_while_waiting_is_given_back) {
    berm_addr_t out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 2 * MIB});
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t small = heap_alloc(512, stream);
    heap_use(other, small, 512, 1000000);
    heap_free(small, other);
    cr_assert(berm_alloc(2 * MIB, 0, stream, &out) == BERM_OK, "%s", berm_error_message());
    BERM_TEST_END_INSIDE();
}

// Pools take fewer addresses the more of them there are: 60 would take 19 TiB else.
Test(attacks, streams_do_not_use_up_the_addresses) {
    enum {
        STREAMS = 60
    };
    simcuda_ledger_t ledger;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 80 * GIB, .devices = 2});
    for (int i = 0; i < STREAMS; i++)
        (void)heap_alloc(512, (void *)(uintptr_t)heap_stream_create());
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.reserved_address_bytes < 65536 * GIB, "%llu GiB of addresses",
              (unsigned long long)(ledger.reserved_address_bytes >> 30));
    BERM_TEST_END_INSIDE();
}

// A driver that maps in 4 KiB pages: cells must be aligned all the same.
Test(attacks, a_driver_with_small_granules) {
    heap_fixture_begin(
        &(heap_fixture_options_t){.memory_bytes = 64 * MIB, .granule_bytes = 4 * KIB});
    for (int i = 0; i < 4; i++) {
        void *stream = heap_stream_create();
        berm_addr_t blocks[100];
        for (unsigned k = 0; k < 100; k++)
            blocks[k] = heap_alloc(512 * (1 + k % 8), stream);
        BERM_TEST_CHECK();
        for (unsigned k = 0; k < 100; k++)
            heap_free(blocks[k], stream);
    }
    BERM_TEST_END_INSIDE();
}

static void *alloc_one(void *stream) {
    return (void *)(uintptr_t)heap_alloc(512, stream);
}

// A slab that the cache of a thread filled from serves others when memory is short.
Test(attacks, a_slab_outlives_the_thread_that_filled_from_it) {
    berm_addr_t small = 0;
    uint64_t largest = 0;
    void *kept = NULL;
    pthread_t thread;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 2 * MIB, .has_caches = 1});
    void *stream = heap_stream_create();
    heap_free(heap_alloc(2 * MIB - 64 * KIB, stream), stream);
    cr_assert(pthread_create(&thread, NULL, alloc_one, stream) == 0);
    cr_assert(pthread_join(thread, &kept) == 0 && kept != NULL);
    (void)heap_alloc(2 * MIB - 64 * KIB, stream);
    cr_assert(berm_largest_free_read(0, stream, &largest) == BERM_OK && largest == 512);
    cr_assert(berm_alloc(512, 0, stream, &small) == BERM_OK, "%s", berm_error_message());
    BERM_TEST_END_INSIDE();
}

// A range that an unmap poisoned keeps no tickets of a stream that is gone.
Test(attacks, a_poisoned_range_survives_the_adoption_of_its_pool) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 8 * MIB});
    void *first = heap_stream_create(), *second = heap_stream_create();
    for (int i = 0; i < 5; i++) {
        heap_free(heap_alloc(4 * MIB, first), first);
        cr_assert(berm_trim(0, 0, NULL) == BERM_OK);
    }
    heap_free(heap_alloc(4 * MIB, first), first);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm_trim(0, 0, NULL) == BERM_ERROR_DRIVER);
    simcuda_faults_clear();
    cr_assert(berm_stream_retire(0, first) == BERM_OK);
    (void)heap_alloc(MIB, second);
    BERM_TEST_CHECK();
    BERM_TEST_END_INSIDE();
}

// Many awaited frees: an allocation looks at a few of them, and they all come back in the end.
Test(attacks, a_storm_of_awaited_frees) {
    enum {
        BLOCKS = 4000
    };
    static berm_addr_t blocks[BLOCKS];
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = heap_alloc(600, stream);
    uint64_t gate;
    cr_assert(simcuda_gate(other, NULL, 0, &gate) == 0);
    for (int i = 0; i < BLOCKS; i++)
        heap_free(blocks[i], other);
    for (int i = 0; i < 200; i++)
        heap_free(heap_alloc(600, stream), stream);
    cr_assert(heap_device()->active.current >= BLOCKS * 600);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(other);
    for (int i = 0; i < 8 * BLOCKS / 64 + 8; i++) // a tick every eighth time, 64 blocks each
        heap_free(heap_alloc(600, stream), stream);
    cr_assert(heap_device()->active.current == 0);
    BERM_TEST_END_INSIDE();
}

// Without host memory for its record and with a driver that cannot wait, a free is refused and the
// block stays whole; the next try works.
Test(attacks, a_free_that_can_neither_be_noted_nor_waited_for) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t block = heap_alloc(3 * MIB, stream);
    (void)heap_alloc(512, other);
    heap_use(other, block, 3 * MIB, 1000000);
    berm__mem_fault_nth(1, 0);
    cr_assert(simcuda_fault_nth(NULL, 1, 0, BERM_CU_UNKNOWN) == 0);
    cr_assert(berm_free(block, 0, other) == BERM_ERROR_OUT_OF_HOST_MEMORY);
    berm__mem_fault_nth(0, 0);
    simcuda_faults_clear();
    BERM_TEST_CHECK();
    cr_assert(berm_free(block, 0, other) == BERM_OK);
    BERM_TEST_END_INSIDE();
}

// Starting again with the memory backend that is in use, while a thread still has its table.
static pthread_barrier_t barrier;

static void *alloc_and_stay(void *stream) {
    (void)heap_alloc(512, stream);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return NULL;
}

Test(attacks, restart_with_the_backend_in_use) {
    pthread_t thread;
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    cr_assert(pthread_barrier_init(&barrier, NULL, 2) == 0);
    cr_assert(pthread_create(&thread, NULL, alloc_and_stay, NULL) == 0);
    (void)pthread_barrier_wait(&barrier);
    char conf[300], backend[32];
    (void)snprintf(backend, sizeof backend, "host_memory:%s", berm__mem_backend_name());
    (void)snprintf(conf, sizeof conf, "%s", heap_fixture_conf(backend));
    cr_assert(berm_shutdown(NULL) == BERM_OK);
    cr_assert(berm_init(conf) == BERM_OK, "%s", berm_error_message());
    (void)pthread_barrier_wait(&barrier);
    cr_assert(pthread_join(thread, NULL) == 0);
    BERM_TEST_END_INSIDE();
}

// With sync_edits each edit of mappings waits for the context, which would break a capture:
// requests that would map are refused, pages stay, and all works when the capture has ended.
Test(attacks, edits_that_wait_break_no_capture) {
    berm_addr_t out = 0;
    heap_fixture_begin(
        &(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "sync_edits:on"});
    void *captured = heap_stream_create(), *other = heap_stream_create();
    heap_free(heap_alloc(20 * MIB, captured), captured);
    heap_free(heap_alloc(20 * MIB, other), other);
    berm_addr_t exported = exportable_alloc(2 * MIB, other, NULL);
    int fd;
    uint64_t size_bytes;
    cr_assert(berm_export(exported, &fd, &size_bytes) == BERM_OK && close(fd) == 0);
    heap_free(exported, other);
    heap_context_synchronize();
    heap_capture_begin(captured, HEAP_CAPTURE_RELAXED);
    cr_assert(berm_alloc(60 * MIB, 0, other, &out) == BERM_ERROR_CAPTURE);
    cr_assert(berm_trim(0, 0, NULL) == BERM_ERROR_CAPTURE);
    cr_assert(berm_stream_retire(0, other) == BERM_OK);
    cr_assert(heap_capture_is_whole(captured));
    BERM_TEST_CHECK();
    heap_capture_drop(captured);
    cr_assert(heap_device()->poisoned_bytes == 0);
    heap_free(heap_alloc(60 * MIB, other), other);
    BERM_TEST_END_INSIDE();
}

// Plain memory that work of a captured stream may still use is passed by, as pages are: what
// another stream has free serves the request.
Test(attacks, plain_memory_behind_a_capture_does_not_refuse_requests) {
    const berm_pool_id_t id = {1, 1};
    const berm_pool_options_t plain = {.size = sizeof plain, .traits = BERM_POOL_PLAIN};
    berm_addr_t held = 0, out = 0;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "headroom:0"});
    void *captured = heap_stream_create(), *busy = heap_stream_create();
    cr_assert(berm_pool_create(0, id, &plain) == BERM_OK);
    cr_assert(berm_alloc_from(id, 20 * MIB, 512, 0, captured, &held) == BERM_OK);
    heap_use(captured, held, 20 * MIB, 1000000000);
    heap_free(held, captured);
    berm_addr_t block = heap_alloc(20 * MIB, busy);
    heap_use(busy, block, 20 * MIB, 1000000000);
    heap_free(block, busy);
    heap_capture_begin(captured, HEAP_CAPTURE_GLOBAL);
    cr_assert(berm_alloc(40 * MIB, 0, heap_stream_create(), &out) == BERM_OK, "%s",
              berm_error_message());
    cr_assert(heap_capture_is_whole(captured));
    heap_capture_drop(captured);
    BERM_TEST_END_INSIDE();
}
