// SPDX-License-Identifier: Apache-2.0
// Captures: whatever berm is asked to do while a stream is captured, in each mode and from other
// threads, breaks no capture; what a graph uses is not in use elsewhere, and stays where it is
// until its pool is released. The device is strict: work that is not ordered after other work on
// the same bytes, or on bytes that are not mapped any more, aborts.
#include <pthread.h>

#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t id = {1, 0};
static void *stream, *other;

#define LONG_NS (UINT64_C(50) * 1000 * 1000)

static void capture_prepare(const heap_fixture_options_t *options) {
    heap_fixture_begin(options);
    stream = heap_stream_create();
    other = heap_stream_create();
}

static void route_begin(void) {
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
}

static void route_end(void) {
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
}

static berm_addr_t use_new(uint64_t size_bytes) {
    berm_addr_t addr = heap_alloc(size_bytes, stream);
    heap_use(stream, addr, size_bytes, 10000);
    BERM_TEST_CHECK();
    return addr;
}

static berm_pool_stats_t pool_stats(void) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_OK, berm_pool_stats_read(0, id, &stats));
    return stats;
}

static berm_whatis_t whatis(berm_addr_t addr) {
    berm_whatis_t what = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &what));
    return what;
}

// --- a graph from begin to release -------------------------------------------------------------

// As PyTorch does it: begin, capture, allocate and free, end; launched here and there; released.
static void graph_life(int mode, uint32_t traits) {
    const berm_pool_options_t options = {.size = sizeof options, .traits = traits};
    capture_prepare(NULL);
    heap_free(use_new(5 * MIB), stream);
    if (traits != 0) // else the route makes it
        EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    route_begin();
    heap_capture_begin(stream, mode);
    berm_addr_t a = use_new(9 * MIB), b = use_new(700), c = use_new(30 * MIB);
    heap_free(a, stream);
    berm_addr_t d = use_new(9 * MIB);
    cr_assert(d == a, "freed in the capture, it serves it again");
    heap_free(c, stream);
    heap_free(b, stream);
    cr_assert(use_new(600) == b);
    cr_assert(heap_capture_is_whole(stream));
    void *graph = heap_capture_end(stream);
    route_end();
    cr_assert(pool_stats().blocks == 2 && pool_stats().reserved_bytes >= 40 * MIB);
    heap_graph_launch(graph, stream);
    heap_stream_follow(other, stream);
    heap_graph_launch(graph, other);
    // Meanwhile others allocate, and get nothing of it.
    for (int i = 0; i < 4; i++)
        heap_free(use_new((uint64_t)(i + 1) * 7 * MIB), stream);
    heap_graph_launch(graph, other);
    heap_graph_destroy(graph);
    if (traits != 0)
        EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_CHECK();
    heap_stream_follow(stream, other);
    heap_use(stream, d, 9 * MIB, 1000); // an output outlives its graph
    heap_free(d, stream);
    heap_context_synchronize();
    heap_free(use_new(200 * MIB), stream);
    BERM_TEST_END();
}

Test(capture, a_graph_in_global_mode) {
    graph_life(HEAP_CAPTURE_GLOBAL, 0);
}

Test(capture, a_graph_in_thread_local_mode) {
    graph_life(HEAP_CAPTURE_THREAD_LOCAL, 0);
}

Test(capture, a_graph_in_relaxed_mode) {
    graph_life(HEAP_CAPTURE_RELAXED, 0);
}

Test(capture, a_graph_on_plain_memory) {
    graph_life(HEAP_CAPTURE_GLOBAL, BERM_POOL_PLAIN);
}

Test(capture, a_graph_on_exportable_memory) {
    graph_life(HEAP_CAPTURE_GLOBAL, BERM_POOL_EXPORTABLE);
}

// Launches that still run when the pool is released keep their pages.
Test(capture, a_release_waits_for_launches_on_any_stream) {
    capture_prepare(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "limit:32M"});
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t addr = heap_alloc(20 * MIB, stream);
    heap_use(stream, addr, 20 * MIB, LONG_NS);
    heap_free(addr, stream);
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, other);
    heap_graph_destroy(graph);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    cr_assert(whatis(addr).kind == BERM_ADDRESS_FREE, "still mapped, under running work");
    // The limit has no room without it: berm waits, and then has it.
    berm_addr_t large = use_new(30 * MIB);
    cr_assert(whatis(addr).kind == BERM_ADDRESS_UNMAPPED && large != addr);
    BERM_TEST_END();
}

// The second graph of a pool has the memory that the first one gave back.
Test(capture, graphs_share_a_pool) {
    capture_prepare(NULL);
    berm_addr_t addr[2], usual = use_new(MIB);
    void *graph[2];
    for (int i = 0; i < 2; i++) {
        route_begin();
        heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
        addr[i] = use_new(10 * MIB);
        heap_free(addr[i], stream);
        graph[i] = heap_capture_end(stream);
        route_end();
        // What was freed in a capture has no work to wait for, whatever else the stream does.
        heap_use(stream, usual, MIB, LONG_NS);
    }
    cr_assert(stats_of(0).host_waits == 0);
    cr_assert(addr[0] == addr[1] && pool_stats().uses == 2 && pool_stats().parts == 1);
    heap_graph_launch(graph[0], stream);
    heap_graph_launch(graph[1], stream);
    for (int i = 0; i < 2; i++) {
        heap_graph_destroy(graph[i]);
        EXPECT(BERM_OK, berm_pool_release(0, id));
    }
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_release(0, id));
    BERM_TEST_END();
}

// A second stream joins the capture: each has its part of the pool.
static bool filter_both(berm_stream_t any, void *context) {
    (void)context;
    return any == stream || any == other;
}

Test(capture, a_capture_spreads_to_another_stream) {
    capture_prepare(NULL);
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, filter_both, NULL));
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t a = use_new(3 * MIB);
    heap_capture_fork(other, stream);
    berm_addr_t b = heap_alloc(3 * MIB, other);
    heap_use(other, b, 3 * MIB, 1000);
    heap_use(other, a, 3 * MIB, 1000);
    EXPECT(BERM_OK, berm_record_stream(a, other));
    heap_free(a, stream); // waits for the end of the capture: `other` used it
    berm_addr_t again = use_new(3 * MIB);
    cr_assert(again != a && whatis(a).kind == BERM_ADDRESS_AWAITED);
    heap_free(b, other);
    heap_capture_fork(stream, other);
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, stream);
    heap_context_synchronize();
    berm_addr_t now = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 64 * MIB, 512, 0, stream, &now)); // looks at what waits
    cr_assert(whatis(a).kind != BERM_ADDRESS_AWAITED);
    heap_graph_destroy(graph);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

// --- what a graph may have ---------------------------------------------------------------------

// Work from before the capture still uses the pool's free memory: the graph, launched elsewhere,
// must not get it.
static void earlier_work(uint64_t size_bytes) {
    capture_prepare(NULL);
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    berm_addr_t before = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 512, 0, stream, &before));
    heap_use(stream, before, size_bytes, LONG_NS);
    heap_free(before, stream);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t captured = use_new(size_bytes);
    cr_assert(captured != before);
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, other); // a race with the work on `stream`, if it had the same memory
    heap_context_synchronize();
    heap_graph_destroy(graph);
    BERM_TEST_END();
}

Test(capture, earlier_work_on_a_large_block) {
    earlier_work(10 * MIB);
}

Test(capture, earlier_work_on_a_small_block) {
    earlier_work(700);
}

// A block that was allocated before is freed during the capture.
static void older_block(uint64_t size_bytes) {
    capture_prepare(NULL);
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    berm_addr_t before = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 512, 0, stream, &before));
    heap_use(stream, before, size_bytes, LONG_NS);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t first = use_new(size_bytes);
    heap_free(before, stream);
    BERM_TEST_CHECK();
    berm_addr_t second = use_new(size_bytes);
    cr_assert(first != before && second != before);
    heap_free(first, stream);
    cr_assert(use_new(size_bytes) == first, "a block of the capture comes back at once");
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, other);
    heap_context_synchronize();
    heap_graph_destroy(graph);
    // After the capture it comes back.
    berm_addr_t after = 0;
    for (int i = 0; i < 10; i++) // looks at what waits, now and then
        EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 512, 0, stream, &after));
    cr_assert(whatis(before).kind != BERM_ADDRESS_AWAITED);
    BERM_TEST_END();
}

Test(capture, an_older_large_block_is_freed) {
    older_block(10 * MIB);
}

Test(capture, an_older_small_block_is_freed) {
    older_block(700);
}

// What is done by the time the route begins serves the capture.
Test(capture, memory_that_has_passed_is_used) {
    capture_prepare(NULL);
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    berm_addr_t before = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 10 * MIB, 512, 0, stream, &before));
    heap_use(stream, before, 10 * MIB, 1000);
    heap_free(before, stream);
    heap_stream_synchronize(stream);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    cr_assert(use_new(10 * MIB) == before);
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, other);
    heap_graph_destroy(graph);
    BERM_TEST_END();
}

// An output of the first graph, freed after it was used outside, is waited for where the route
// begins, so that the second graph shares its memory.
Test(capture, a_begin_waits_for_what_a_captured_pool_has_freed) {
    capture_prepare(NULL);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t output = use_new(10 * MIB);
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_launch(graph, stream);
    heap_use(stream, output, 10 * MIB, LONG_NS);
    heap_free(output, stream);
    uint64_t waits = stats_of(0).host_waits;
    route_begin();
    cr_assert(stats_of(0).host_waits == waits + 1);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    cr_assert(use_new(10 * MIB) == output);
    heap_capture_drop(stream);
    route_end();
    heap_graph_destroy(graph);
    BERM_TEST_END();
}

// An output of the first graph that is freed while the second is captured serves the third.
Test(capture, what_the_next_graph_frees_serves_a_third) {
    capture_prepare(NULL);
    berm_addr_t made[3];
    for (int i = 0; i < 3; i++) {
        route_begin();
        heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
        made[i] = use_new(10 * MIB);
        if (i == 1)
            heap_free(made[0], stream);
        heap_graph_destroy(heap_capture_end(stream));
        route_end();
    }
    cr_assert(made[1] != made[0] && made[2] == made[0] && pool_stats().parts == 1);
    for (int i = 0; i < 3; i++)
        EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

// A pool that was made for other things becomes private when a capture uses it.
Test(capture, a_captured_pool_is_private) {
    capture_prepare(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "limit:32M"});
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    route_begin();
    cr_assert(pool_stats().traits == 0);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    heap_free(use_new(20 * MIB), stream);
    void *graph = heap_capture_end(stream);
    route_end();
    cr_assert(pool_stats().traits == BERM_POOL_PRIVATE);
    berm_addr_t addr;
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(20 * MIB, 0, stream, &addr));
    heap_graph_launch(graph, other);
    heap_graph_destroy(graph);
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL)); // the traits it was made with
    BERM_TEST_END();
}

// --- what must not be done meanwhile -----------------------------------------------------------

// Everything that berm may be asked for, on a heap where it needs the driver for it.
static void everything(void *free_on_other, void *unnamed, void *unseen) {
    berm_addr_t addr;
    uint64_t size_bytes;
    heap_free((berm_addr_t)(uintptr_t)free_on_other, other);
    heap_free((berm_addr_t)(uintptr_t)unnamed, BERM_STREAM_NONE);
    heap_free(heap_alloc(20 * MIB, other), other); // grows
    heap_free(heap_alloc(7 * MIB, BERM_STREAM_NONE), BERM_STREAM_NONE);
    heap_free(heap_alloc(MIB, unseen), unseen); // first sight
    addr = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_OK, berm_record_stream(addr, other));
    heap_free(addr, NULL);
    for (int i = 0; i < 20; i++)
        heap_free(heap_alloc(100, other), other); // looks at what waits, now and then
    EXPECT(BERM_OK, berm_largest_free_read(0, other, &size_bytes));
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, other, &size_bytes));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(900 * MIB, 0, other, &addr));
    BERM_TEST_CHECK();
}

typedef struct everything_arguments {
    void *free_on_other, *unnamed, *unseen;
} everything_arguments_t;

static void *everything_thread(void *context) {
    everything_arguments_t *arguments = context;
    everything(arguments->free_on_other, arguments->unnamed, arguments->unseen);
    return NULL;
}

static void nothing_breaks(int mode, bool in_thread, bool lacks_ctx_event) {
    capture_prepare(&(heap_fixture_options_t){.lacks_ctx_event = lacks_ctx_event});
    void *unseen = heap_stream_create();
    berm_addr_t a = use_new(3 * MIB), b = use_new(5000), c = use_new(4 * MIB);
    heap_stream_follow(other, stream);
    heap_use(other, a, 3 * MIB, 1000);
    everything_arguments_t arguments = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, unseen};
    heap_capture_begin(stream, mode);
    if (in_thread) {
        pthread_t thread;
        cr_assert(pthread_create(&thread, NULL, everything_thread, &arguments) == 0);
        cr_assert(pthread_join(thread, NULL) == 0);
    } else {
        everything(arguments.free_on_other, arguments.unnamed, arguments.unseen);
    }
    // The captured stream itself, without a route.
    heap_free(c, stream);
    heap_free(heap_alloc(8 * MIB, stream), stream);
    EXPECT(BERM_OK, berm_record_stream(heap_alloc(MIB, other), stream));
    EXPECT(BERM_ERROR_CAPTURE, berm_stream_retire(0, stream));
    EXPECT_MESSAGE("captured");
    cr_assert(heap_capture_is_whole(stream));
    cr_assert(whatis(b).kind == BERM_ADDRESS_AWAITED, "no stream was named: it waits for the end");
    void *graph = heap_capture_end(stream);
    heap_graph_destroy(graph);
    heap_context_synchronize();
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(whatis(b).kind != BERM_ADDRESS_AWAITED);
    EXPECT(BERM_OK, berm_stream_retire(0, stream));
    BERM_TEST_END();
}

Test(capture, nothing_breaks_a_global_capture) {
    nothing_breaks(HEAP_CAPTURE_GLOBAL, false, false);
}

Test(capture, nothing_breaks_a_thread_local_capture) {
    nothing_breaks(HEAP_CAPTURE_THREAD_LOCAL, false, false);
}

Test(capture, nothing_breaks_a_relaxed_capture) {
    nothing_breaks(HEAP_CAPTURE_RELAXED, false, false);
}

Test(capture, another_thread_breaks_no_global_capture) {
    nothing_breaks(HEAP_CAPTURE_GLOBAL, true, false);
}

Test(capture, another_thread_breaks_no_relaxed_capture) {
    nothing_breaks(HEAP_CAPTURE_RELAXED, true, false);
}

Test(capture, an_old_driver_synchronises_nothing_meanwhile) {
    nothing_breaks(HEAP_CAPTURE_GLOBAL, false, true);
}

// A stream that is first seen while it is captured.
Test(capture, first_sight_of_a_captured_stream) {
    capture_prepare(NULL);
    heap_free(heap_alloc(MIB, other), other);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    heap_free(use_new(3 * MIB), stream);
    cr_assert(heap_capture_is_whole(stream));
    void *graph = heap_capture_end(stream);
    route_end();
    heap_graph_destroy(graph);
    BERM_TEST_END();
}

// No event is recorded on a captured stream, and none of its own asked.
Test(capture, a_captured_stream_is_let_be) {
    capture_prepare(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "headroom:0"});
    heap_free(use_new(30 * MIB), stream);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    uint64_t records = simcuda_calls("cuEventRecord"), asks = simcuda_calls("cuEventQuery");
    berm_addr_t addr = use_new(33 * MIB); // its free pages cannot move: they may be in use
    heap_free(addr, stream);
    cr_assert(simcuda_calls("cuEventRecord") == records && simcuda_calls("cuEventQuery") == asks);
    cr_assert(heap_capture_is_whole(stream));
    heap_capture_drop(stream);
    BERM_TEST_END();
}

// A graph has no place in the order of the stream it is captured on: pages in use do not move for
// it.
Test(capture, pages_in_use_are_not_aliased_for_a_graph) {
    capture_prepare(
        &(heap_fixture_options_t){.memory_bytes = 80 * MIB, .berm = "headroom:0,remap:alias"});
    berm_addr_t before = heap_alloc(30 * MIB, stream);
    (void)use_new(2 * MIB); // so that it cannot grow where it is
    heap_use(stream, before, 30 * MIB, LONG_NS);
    heap_free(before, stream);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    (void)use_new(33 * MIB);
    cr_assert(whatis(before).kind == BERM_ADDRESS_FREE && stats_of(0).moved_bytes == 0);
    heap_capture_drop(stream);
    (void)heap_alloc(32 * MIB, stream);
    cr_assert(stats_of(0).moved_bytes > 0, "without a capture they do");
    heap_context_synchronize();
    BERM_TEST_END();
}

// An event that cannot be recorded is not made up for by a synchronise while something is captured.
Test(capture, a_refused_event_waits_for_the_end) {
    capture_prepare(NULL);
    berm_addr_t addr = heap_alloc(3 * MIB, other);
    heap_use(other, addr, 3 * MIB, 1000);
    (void)use_new(MIB);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    cr_assert(simcuda_fault_nth("cuEventRecord", 1, 1, 999) == 0);
    EXPECT(BERM_OK, berm_record_stream(addr, NULL));
    heap_free(addr, other);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(simcuda_faults_fired() == 1 && heap_capture_is_whole(stream));
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(whatis(addr).kind == BERM_ADDRESS_UNMAPPED);
    BERM_TEST_END();
}

// A request waits for what can be waited for, past what the capture holds back.
Test(capture, what_a_capture_holds_back_is_passed_by) {
    capture_prepare(&(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "limit:40M"});
    berm_addr_t held = heap_alloc(10 * MIB, other), awaited = heap_alloc(20 * MIB, other);
    EXPECT(BERM_OK, berm_record_stream(held, stream));
    heap_free(held, other);
    void *third = heap_stream_create();
    heap_stream_follow(third, other);
    heap_use(third, awaited, 20 * MIB, LONG_NS);
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    heap_free(awaited, third);
    berm_addr_t addr = heap_alloc(28 * MIB, other);
    heap_use(other, addr, 28 * MIB, 1000);
    cr_assert(whatis(held).kind == BERM_ADDRESS_AWAITED && heap_capture_is_whole(stream));
    berm_addr_t none;
    EXPECT(BERM_ERROR_LIMIT, berm_alloc(10 * MIB, 0, other, &none));
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_alloc(10 * MIB, 0, other, &addr));
    BERM_TEST_END();
}

// A route into a private pool is taken for a capture to come.
Test(capture, a_route_holds_the_context_back) {
    capture_prepare(NULL);
    route_begin();
    berm_addr_t addr = heap_alloc(3 * MIB, other);
    heap_use(other, addr, 3 * MIB, 1000);
    heap_free(addr, BERM_STREAM_NONE);
    void *unseen = heap_stream_create();
    heap_capture_begin(unseen, HEAP_CAPTURE_GLOBAL);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(whatis(addr).kind == BERM_ADDRESS_AWAITED && heap_capture_is_whole(unseen));
    heap_capture_drop(unseen);
    route_end();
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(whatis(addr).kind == BERM_ADDRESS_UNMAPPED);
    BERM_TEST_END();
}

// The capture mode of the thread is its own again after each call.
Test(capture, the_mode_of_the_thread_is_restored) {
    capture_prepare(NULL);
    heap_free(use_new(20 * MIB), stream);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    heap_free(heap_alloc(40 * MIB, other), other);
    cr_assert(heap_capture_is_whole(stream));
    heap_capture_break();
    cr_assert(!heap_capture_is_whole(stream), "a call that captures forbid is forbidden again");
    heap_capture_drop(stream);
    BERM_TEST_END();
}

// With sync_edits mappings change when the device has been waited for, which a capture forbids.
Test(capture, mappings_that_need_a_wait_do_not_change) {
    berm_addr_t addr;
    capture_prepare(&(heap_fixture_options_t){.berm = "sync_edits:on"});
    heap_free(use_new(20 * MIB), stream);
    heap_capture_begin(stream, HEAP_CAPTURE_RELAXED);
    EXPECT(BERM_ERROR_CAPTURE, berm_alloc(90 * MIB, 0, other, &addr));
    EXPECT(BERM_ERROR_CAPTURE, berm_trim(0, 0, NULL));
    cr_assert(heap_capture_is_whole(stream));
    heap_capture_drop(stream);
    heap_free(heap_alloc(90 * MIB, other), other);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    BERM_TEST_END();
}

Test(capture, a_tick_changes_no_mapping_that_needs_a_wait) {
    capture_prepare(&(heap_fixture_options_t){.berm = "sync_edits:on,decay_ms:0"});
    berm_addr_t kept = heap_alloc(MIB, stream);
    heap_free(heap_alloc(20 * MIB, other), other);
    heap_capture_begin(stream, HEAP_CAPTURE_RELAXED);
    for (int i = 0; i < 2; i++) // the second knows that the work has passed
        EXPECT(BERM_OK, berm_decay_tick(0));
    cr_assert(heap_capture_is_whole(stream) && stats_of(0).poisoned_bytes == 0);
    cr_assert(stats_of(0).reserved_bytes.current > 20 * MIB);
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_decay_tick(0));
    cr_assert(stats_of(0).reserved_bytes.current <= 4 * MIB);
    heap_free(kept, stream);
    BERM_TEST_END();
}

// A capture that is broken or abandoned, with its route and its pool.
Test(capture, an_abandoned_capture) {
    capture_prepare(NULL);
    route_begin();
    heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
    berm_addr_t addr = use_new(5 * MIB);
    heap_capture_break(); // breaks it
    heap_free(heap_alloc(2 * MIB, stream), stream);
    heap_free(addr, stream);
    BERM_TEST_CHECK();
    heap_capture_drop(stream);
    EXPECT(BERM_OK, berm_pool_release(0, id)); // no end
    heap_free(use_new(5 * MIB), stream);
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_route_end(0, id));
    heap_context_synchronize();
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    BERM_TEST_END();
}
