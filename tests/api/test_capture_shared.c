// SPDX-License-Identifier: Apache-2.0
// Graphs that share a pool: what one of them frees serves those that are captured after it.
#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t id = {1, 0};

// An output of the first graph that is freed while the second is captured serves the third, which a
// program may launch after the second only.
static void freed_in_the_next(uint64_t size_bytes) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    berm_addr_t output = 0;
    void *graph[3];
    for (int i = 0; i < 3; i++) {
        EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
        heap_capture_begin(stream, HEAP_CAPTURE_GLOBAL);
        berm_addr_t made = heap_alloc(size_bytes, stream);
        heap_use(stream, made, size_bytes, 10000);
        BERM_TEST_CHECK();
        if (i == 0)
            output = made;
        else
            cr_assert((made == output) == (i == 2), "graph %d", i);
        if (i == 1)
            heap_free(output, stream);
        graph[i] = heap_capture_end(stream);
        EXPECT(BERM_OK, berm_pool_route_end(0, id));
    }
    EXPECT(BERM_OK, berm_pool_stats_read(0, id, &stats));
    cr_assert(stats.parts == 1);
    for (int i = 0; i < 3; i++) {
        heap_graph_launch(graph[i], stream);
        heap_graph_destroy(graph[i]);
        EXPECT(BERM_OK, berm_pool_release(0, id));
    }
    BERM_TEST_END();
}

Test(capture_shared, what_the_next_graph_frees_serves_a_third) {
    freed_in_the_next(10 * MIB);
}

Test(capture_shared, what_the_next_graph_frees_of_small_blocks_serves_a_third) {
    freed_in_the_next(700);
}
