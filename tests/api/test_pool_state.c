// SPDX-License-Identifier: Apache-2.0
// States of private pools: taken, and restored to exactly the blocks they name, in the places that
// PyTorch's graph trees ask for; what cannot be restored changes nothing.
#include "api_test.h"
#include "tests/support/capture.h"

static const berm_pool_id_t id = {1, 0}, other_id = {2, 0};
static void *stream;

static void state_begin(uint32_t traits) {
    const berm_pool_options_t options = {.size = sizeof options, .traits = traits};
    heap_fixture_begin(NULL);
    stream = heap_stream_create();
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
}

static berm_addr_t alloc(uint64_t size_bytes) {
    berm_addr_t addr = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, size_bytes, 1, 0, stream, &addr));
    heap_use(stream, addr, size_bytes, 1000);
    BERM_TEST_CHECK();
    return addr;
}

static void drop(berm_addr_t addr) {
    heap_free(addr, stream);
    BERM_TEST_CHECK();
}

static berm_pool_state_t *take(void) {
    berm_pool_state_t *state = NULL;
    EXPECT(BERM_OK, berm_pool_state_take(0, id, &state));
    return state;
}

typedef struct changes {
    uint64_t freed, allocated, freed_bytes, allocated_bytes;
} changes_t;

static void change_free(void *context, berm_addr_t addr, uint64_t requested_bytes) {
    changes_t *changes = context;
    changes->freed += addr != 0 && changes->allocated == 0; // all of these come first
    changes->freed_bytes += requested_bytes;
}

static void change_alloc(void *context, berm_addr_t addr, uint64_t requested_bytes) {
    changes_t *changes = context;
    uint64_t bytes = 0;
    EXPECT(BERM_OK, berm_block_read(addr, &bytes, NULL, NULL)); // berm may be called
    changes->allocated += bytes == requested_bytes;
    changes->allocated_bytes += requested_bytes;
}

static changes_t restore(const berm_pool_state_t *state) {
    changes_t changes = {0};
    EXPECT(BERM_OK, berm_pool_state_restore(state, change_free, change_alloc, &changes));
    BERM_TEST_CHECK();
    return changes;
}

static void expect_block(berm_addr_t addr, uint64_t size_bytes) {
    uint64_t bytes = 0;
    void *own = NULL;
    EXPECT(BERM_OK, berm_block_read(addr, &bytes, NULL, &own));
    cr_assert(bytes == size_bytes && own == stream);
    heap_use(stream, addr, size_bytes, 1000);
}

static berm_pool_stats_t pool_stats(void) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    EXPECT(BERM_OK, berm_pool_stats_read(0, id, &stats));
    return stats;
}

static void state_end(berm_pool_state_t *state) {
    berm_pool_state_destroy(state);
    BERM_TEST_END();
}

Test(pool_state, what_lived_lives_again) {
    state_begin(BERM_POOL_PRIVATE);
    berm_addr_t large = alloc(5 * MIB), small = alloc(100), middle = alloc(70 * KIB);
    berm_pool_state_t *state = take();
    drop(large);
    drop(small);
    drop(middle);
    berm_addr_t later = alloc(3 * MIB + 5);
    changes_t changes = restore(state);
    cr_assert(changes.freed == 1 && changes.freed_bytes == 3 * MIB + 5);
    cr_assert(changes.allocated == 3 && changes.allocated_bytes == 5 * MIB + 100 + 70 * KIB);
    expect_block(large, 5 * MIB);
    expect_block(small, 100);
    expect_block(middle, 70 * KIB);
    cr_assert(later >= large && later < large + 5 * MIB, "its place is another's again");
    berm_pool_stats_t stats = pool_stats();
    cr_assert(stats.blocks == 3 && stats.requested_bytes == changes.allocated_bytes);
    state_end(state);
}

Test(pool_state, of_a_pool_that_is_as_it_was) {
    state_begin(BERM_POOL_PRIVATE);
    berm_addr_t large = alloc(5 * MIB), small = alloc(100);
    berm_pool_state_t *state = take();
    changes_t changes = restore(state);
    cr_assert(changes.freed == 2 && changes.allocated == 2);
    expect_block(large, 5 * MIB);
    expect_block(small, 100);
    changes = restore(state);
    cr_assert(changes.freed == 2 && changes.allocated == 2 && pool_stats().blocks == 2);
    state_end(state);
}

Test(pool_state, an_empty_one_frees_everything) {
    state_begin(BERM_POOL_PRIVATE);
    berm_pool_state_t *empty = take();
    for (unsigned i = 0; i < 20; i++)
        (void)alloc(1 + i * 37 * KIB);
    changes_t changes = restore(empty);
    cr_assert(changes.freed == 20 && changes.allocated == 0 && pool_stats().blocks == 0);
    cr_assert(pool_stats().reserved_bytes > 0, "its pages stay");
    state_end(empty);
}

Test(pool_state, blocks_in_the_middle) {
    state_begin(BERM_POOL_PRIVATE);
    berm_addr_t blocks[12];
    for (unsigned i = 0; i < 12; i++)
        blocks[i] = alloc(MIB + i * 512);
    for (unsigned i = 0; i < 12; i++)
        if (i != 3 && i != 7 && i != 8) // alone, and two side by side
            drop(blocks[i]);
    berm_pool_state_t *state = take();
    drop(blocks[3]);
    drop(blocks[7]);
    drop(blocks[8]);
    (void)alloc(9 * MIB); // over all of them
    changes_t changes = restore(state);
    cr_assert(changes.freed == 1 && changes.allocated == 3);
    expect_block(blocks[3], MIB + 3 * 512);
    expect_block(blocks[7], MIB + 7 * 512);
    expect_block(blocks[8], MIB + 8 * 512);
    state_end(state);
}

// A slab of one class stands where another was, and slots of it.
Test(pool_state, slabs_are_cut_anew) {
    enum {
        COUNT = 200
    };
    state_begin(BERM_POOL_PRIVATE);
    berm_addr_t blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        blocks[i] = alloc(500 + (i % 3) * 4000);
    for (unsigned i = 0; i < COUNT; i += 4)
        drop(blocks[i]);
    berm_pool_state_t *state = take();
    for (unsigned i = 0; i < COUNT; i++)
        if (i % 4 != 0 && i % 5 != 1)
            drop(blocks[i]);
    for (unsigned i = 0; i < 60; i++)
        (void)alloc(20 * KIB + i * 700);
    restore(state);
    for (unsigned i = 0; i < COUNT; i++)
        if (i % 4 != 0)
            expect_block(blocks[i], 500 + (i % 3) * 4000);
    cr_assert(pool_stats().blocks == COUNT - COUNT / 4);
    for (unsigned i = 0; i < COUNT; i++)
        if (i % 4 != 0)
            drop(blocks[i]);
    cr_assert(pool_stats().blocks == 0);
    state_end(state);
}

Test(pool_state, several_in_turn) {
    state_begin(BERM_POOL_PRIVATE);
    berm_pool_state_t *states[4];
    berm_addr_t kept[4];
    for (unsigned i = 0; i < 4; i++) {
        kept[i] = alloc((i + 1) * MIB + 3);
        (void)alloc(1000 * (i + 1));
        states[i] = take();
        drop(kept[i]);
    }
    static const unsigned order[] = {2, 0, 3, 3, 1, 0, 2};
    for (unsigned at = 0; at < sizeof order / sizeof order[0]; at++) {
        unsigned i = order[at];
        restore(states[i]);
        cr_assert(pool_stats().blocks == i + 2, "small ones of all before, and its own");
        expect_block(kept[i], (i + 1) * MIB + 3);
    }
    for (unsigned i = 0; i < 4; i++)
        berm_pool_state_destroy(states[i]);
    BERM_TEST_END();
}

Test(pool_state, on_plain_memory) {
    state_begin(BERM_POOL_PRIVATE | BERM_POOL_PLAIN);
    berm_addr_t a = alloc(3 * MIB), b = alloc(200), c = alloc(30 * MIB);
    berm_pool_state_t *state = take();
    drop(a);
    drop(c);
    drop(b);
    (void)alloc(40 * MIB);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    restore(state);
    expect_block(a, 3 * MIB);
    expect_block(b, 200);
    expect_block(c, 30 * MIB);
    state_end(state);
}

Test(pool_state, each_stream_has_its_part) {
    state_begin(BERM_POOL_PRIVATE);
    void *second = heap_stream_create();
    berm_addr_t mine = alloc(MIB), theirs = 0, any = 0;
    EXPECT(BERM_OK, berm_alloc_from(id, 2 * MIB, 1, 0, second, &theirs));
    EXPECT(BERM_OK, berm_alloc_from(id, 3 * MIB, 1, 0, BERM_STREAM_NONE, &any));
    berm_pool_state_t *state = take();
    drop(mine);
    heap_use(second, theirs, 2 * MIB, 1000000);
    EXPECT(BERM_OK, berm_free(theirs, 0, stream)); // awaited
    EXPECT(BERM_OK, berm_free(any, 0, BERM_STREAM_NONE));
    changes_t changes = restore(state);
    cr_assert(changes.freed == 0 && changes.allocated == 3 && pool_stats().awaited_bytes == 0);
    void *own = NULL;
    EXPECT(BERM_OK, berm_block_read(theirs, NULL, NULL, &own));
    cr_assert(own == second);
    EXPECT(BERM_OK, berm_block_read(any, NULL, NULL, &own));
    cr_assert(own == BERM_STREAM_NONE);
    state_end(state);
}

// A strict device aborts where the memory is used while the other stream's work goes on.
Test(pool_state, recorded_streams_are_waited_for) {
    state_begin(BERM_POOL_PRIVATE);
    void *second = heap_stream_create();
    berm_addr_t before = alloc(4 * MIB);
    berm_pool_state_t *state = take();
    drop(before);
    berm_addr_t goes = alloc(4 * MIB);
    cr_assert(goes == before);
    heap_stream_follow(second, stream);
    heap_use(second, goes, 4 * MIB, 50000000);
    EXPECT(BERM_OK, berm_record_stream(goes, second));
    drop(goes);
    goes = alloc(8 * MIB);
    heap_stream_follow(second, stream);
    heap_use(second, goes, 8 * MIB, 50000000);
    EXPECT(BERM_OK, berm_record_stream(goes, second));
    uint64_t waits = stats_of(0).host_waits;
    restore(state);
    cr_assert(stats_of(0).host_waits > waits);
    expect_block(before, 4 * MIB);
    state_end(state);
}

Test(pool_state, a_block_that_stays_keeps_its_streams) {
    state_begin(BERM_POOL_PRIVATE);
    void *second = heap_stream_create();
    berm_addr_t large = alloc(4 * MIB), small = alloc(600);
    berm_pool_state_t *state = take();
    heap_stream_follow(second, stream);
    heap_use(second, large, 4 * MIB, 50000000);
    heap_use(second, small, 600, 1000);
    EXPECT(BERM_OK, berm_record_stream(large, second));
    EXPECT(BERM_OK, berm_record_stream(small, second));
    uint64_t waits = stats_of(0).host_waits;
    restore(state);
    cr_assert(stats_of(0).host_waits == waits, "nothing went");
    drop(large);
    drop(small);
    cr_assert(pool_stats().awaited_bytes > 4 * MIB, "they are awaited still");
    state_end(state);
}

// As a graph tree does it: captured, run, the state of its end restored for another capture.
Test(pool_state, graphs_one_after_another) {
    heap_fixture_begin(NULL);
    stream = heap_stream_create();
    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    heap_capture_begin(stream, HEAP_CAPTURE_RELAXED);
    berm_addr_t output = heap_alloc(3 * MIB, stream), scratch = heap_alloc(6 * MIB, stream);
    heap_use(stream, output, 3 * MIB, 1000);
    heap_use(stream, scratch, 6 * MIB, 1000);
    heap_free(scratch, stream);
    void *first = heap_capture_end(stream);
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    berm_pool_state_t *state = take();
    heap_free(output, stream);
    heap_graph_launch(first, stream);
    restore(state);

    EXPECT(BERM_OK, berm_pool_route_begin(0, id, heap_filter_stream, stream));
    heap_capture_begin(stream, HEAP_CAPTURE_RELAXED);
    berm_pool_state_t *during = take();
    EXPECT(BERM_ERROR_CAPTURE, berm_pool_state_restore(state, NULL, NULL, NULL));
    berm_addr_t result = heap_alloc(2 * MIB, stream);
    cr_assert(result + 2 * MIB <= output || result >= output + 3 * MIB);
    heap_use(stream, result, 2 * MIB, 1000);
    cr_assert(heap_capture_is_whole(stream));
    void *second = heap_capture_end(stream);
    EXPECT(BERM_OK, berm_pool_route_end(0, id));
    heap_graph_launch(first, stream);
    heap_graph_launch(second, stream);
    changes_t changes = restore(state);
    cr_assert(changes.freed == 2 && changes.allocated == 1);
    heap_context_synchronize();
    heap_graph_destroy(first);
    heap_graph_destroy(second);
    berm_pool_state_destroy(during);
    state_end(state);
}

// --- refused -----------------------------------------------------------------------------------

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)arg;
    cr_assert_fail("0x%llx, %llu bytes", (unsigned long long)addr, (unsigned long long)size_bytes);
}

Test(pool_state, pinned_memory_stands_in_the_way) {
    state_begin(BERM_POOL_PRIVATE);
    berm_addr_t lived = alloc(4 * MIB), small = alloc(300);
    berm_pool_state_t *state = take();
    drop(lived);
    berm_addr_t over = alloc(3 * MIB);
    cr_assert(over >= lived && over < lived + 4 * MIB);
    EXPECT(BERM_OK, berm_pin(over, pin_told, NULL));
    api_state_t before = state_take(1);
    EXPECT(BERM_ERROR_STATE, berm_pool_state_restore(state, NULL, NULL, NULL));
    EXPECT_MESSAGE("pinned");
    state_expect_same(&before, 1);
    drop(over); // held now
    EXPECT(BERM_ERROR_STATE, berm_pool_state_restore(state, NULL, NULL, NULL));
    expect_block(small, 300);
    EXPECT(BERM_OK, berm_unpin(over, pin_told, NULL));
    restore(state);
    expect_block(lived, 4 * MIB);
    state_end(state);
}

Test(pool_state, misuse) {
    berm_pool_state_t *state = (berm_pool_state_t *)1;
    state_begin(BERM_POOL_PRIVATE);
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_state_take(0, id, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_state_take(0, (berm_pool_id_t){0, 0}, &state));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_state_take(0, other_id, &state));
    EXPECT(BERM_ERROR_DEVICE, berm_pool_state_take(99, id, &state));
    cr_assert(state == NULL);
    static const uint32_t traits[] = {0, BERM_POOL_PINNED, BERM_POOL_EXPORTABLE | BERM_POOL_PRIVATE,
                                      BERM_POOL_NO_SPLIT | BERM_POOL_PRIVATE};
    for (unsigned i = 0; i < 4; i++) {
        const berm_pool_options_t options = {.size = sizeof options, .traits = traits[i]};
        EXPECT(BERM_OK, berm_pool_create(0, other_id, &options));
        EXPECT(i < 2 ? BERM_ERROR_STATE : BERM_ERROR_UNSUPPORTED,
               berm_pool_state_take(0, other_id, &state));
        cr_assert(state == NULL);
        EXPECT(BERM_OK, berm_pool_release(0, other_id));
    }
    EXPECT(BERM_ERROR_ARGUMENT, berm_pool_state_restore(NULL, NULL, NULL, NULL));
    berm_pool_state_destroy(NULL);
    (void)alloc(MIB);
    state = take();
    EXPECT(BERM_OK, berm_pool_release(0, id));
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_state_restore(state, NULL, NULL, NULL));
    EXPECT_MESSAGE("released");
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_PRIVATE};
    EXPECT(BERM_OK, berm_pool_create(0, id, &options)); // the id again, and another pool
    EXPECT(BERM_ERROR_POOL_UNKNOWN, berm_pool_state_restore(state, NULL, NULL, NULL));
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pool_state_restore(state, NULL, NULL, NULL));
    berm_pool_state_destroy(state);
}
