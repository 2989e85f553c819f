// SPDX-License-Identifier: Apache-2.0
// The decisions of a pool, on layouts made by hand: which window a miss takes, when memory is
// created and when it moves, which pages move, which slab serves, and when a freed block comes
// back. Slabs and deferred frees are in test_pool_blocks.c.
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)

static void *stream;
static berm_pool_t *pool;
static berm_segment_t *segment;

// Handles of one granule, and blocks of whole granules, one after the other from the segment's
// start: block i has sizes[i] granules.
static void layout_begin(const char *options, const unsigned *sizes, berm_addr_t *blocks,
                         size_t count) {
    char conf[80];
    (void)snprintf(conf, sizeof conf, "growth_handle:2M,%s", options);
    heap_fixture_begin(&(heap_fixture_options_t){.berm = conf});
    stream = heap_stream_create();
    uint64_t at = 0;
    for (size_t i = 0; i < count; at += sizes[i++]) {
        blocks[i] = heap_alloc(sizes[i] * GRANULE, stream);
        cr_assert(blocks[i] == blocks[0] + at * GRANULE);
    }
    pool = heap_pool(stream);
    segment = heap_segment(pool);
    cr_assert(blocks[0] == segment->base);
}

// Lets all work end, and berm know it.
static void work_finish(void) {
    simcuda_advance_ns(100000000);
    cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    cr_assert(berm__stream_poll(pool->stream) == BERM_OK);
}

// Takes the memory from free granules and gives it to the driver.
static void hole_make(uint64_t first, uint64_t count) {
    berm_device_t *device = heap_device();
    berm_range_t *range = berm__ranges_at(&segment->ranges, first * GRANULE);
    cr_assert(range->state == BERM_RANGE_FREE);
    cr_assert(berm__node_slab_reserve(&pool->range_nodes, 2));
    range = berm__ranges_carve(&segment->ranges, range, first * GRANULE, count * GRANULE,
                               BERM_RANGE_BUSY);
    cr_assert(berm__segment_unmap(segment, first, count) == BERM_OK);
    (void)berm__ranges_settle(&segment->ranges, range, BERM_RANGE_VOID);
    cr_assert(berm__phys_release_idle(&device->phys, 0) == BERM_OK);
}

static void state_expect(uint64_t granule, berm_range_state_t state) {
    const berm_range_t *range = berm__ranges_at(&segment->ranges, granule * GRANULE);
    cr_assert(range->state == state, "granule %llu is %s, not %s", (unsigned long long)granule,
              berm__range_state_name((berm_range_state_t)range->state),
              berm__range_state_name(state));
}

// --- the window rule (miss.c) ------------------------------------------------------------------

// Runs of 4 granules: one with two holes, one with one; and room at the end with none mapped.
Test(pool, a_miss_takes_the_run_with_the_fewest_holes) {
    static const unsigned sizes[] = {4, 1, 4, 1};
    berm_addr_t blocks[4];
    layout_begin("headroom:1000", sizes, blocks, 4);
    heap_free(blocks[0], stream);
    heap_free(blocks[2], stream);
    work_finish();
    hole_make(0, 2);
    hole_make(6, 1);
    uint64_t maps = simcuda_calls("cuMemMap");
    cr_assert(heap_alloc(4 * GRANULE, stream) == blocks[2]);
    cr_assert(simcuda_calls("cuMemMap") == maps + 1);
    cr_assert(heap_alloc(4 * GRANULE, stream) == blocks[0]);
    cr_assert(simcuda_calls("cuMemMap") == maps + 3);
    BERM_TEST_END_INSIDE();
}

// Two holes apart from each other in one run: both are filled, with one call each.
Test(pool, a_window_has_all_its_holes_filled) {
    static const unsigned sizes[] = {6, 1};
    berm_addr_t blocks[2];
    layout_begin("headroom:1000", sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    hole_make(1, 1);
    hole_make(3, 2);
    uint64_t maps = simcuda_calls("cuMemMap"), set_access = simcuda_calls("cuMemSetAccess");
    cr_assert(heap_alloc(6 * GRANULE, stream) == blocks[0]);
    cr_assert(simcuda_calls("cuMemMap") == maps + 3);
    cr_assert(simcuda_calls("cuMemSetAccess") == set_access + 2);
    BERM_TEST_END_INSIDE();
}

// [void 2][free 2.5][live]: 3 granules that end at the live block touch one hole, not two.
Test(pool, a_window_is_aligned_to_the_end_of_its_run_where_that_is_better) {
    static const unsigned sizes[] = {4};
    berm_addr_t blocks[1];
    layout_begin("headroom:1000", sizes, blocks, 1);
    berm_addr_t half = heap_alloc(GRANULE / 2, stream);
    berm_addr_t border = heap_alloc(GRANULE / 2, stream);
    cr_assert(half == blocks[0] + 4 * GRANULE && border == half + GRANULE / 2);
    heap_free(blocks[0], stream);
    heap_free(half, stream);
    work_finish();
    hole_make(0, 2);
    uint64_t maps = simcuda_calls("cuMemMap");
    berm_addr_t block = heap_alloc(3 * GRANULE, stream);
    cr_assert(simcuda_calls("cuMemMap") == maps + 1);
    cr_assert(block >= blocks[0] + GRANULE && block + 3 * GRANULE <= border);
    state_expect(0, BERM_RANGE_VOID);
    BERM_TEST_END_INSIDE();
}

// A free piece at the border of the mapped part is used before new granules are.
Test(pool, growth_begins_in_the_last_free_piece) {
    static const unsigned sizes[] = {1};
    berm_addr_t blocks[1];
    layout_begin("headroom:1000", sizes, blocks, 1);
    berm_addr_t first = heap_alloc(GRANULE + GRANULE / 2, stream);
    uint64_t maps = simcuda_calls("cuMemMap");
    cr_assert(heap_alloc(GRANULE + GRANULE / 2, stream) == first + GRANULE + GRANULE / 2);
    cr_assert(simcuda_calls("cuMemMap") == maps + 1);
    BERM_TEST_END_INSIDE();
}

Test(pool, an_aligned_request_finds_an_aligned_window) {
    static const unsigned sizes[] = {3};
    berm_addr_t blocks[1], addr;
    layout_begin("headroom:1000", sizes, blocks, 1);
    for (uint64_t alignment = 1024; alignment <= BERM_GIB(1); alignment *= 2) {
        cr_assert(berm_alloc_aligned(GRANULE + 512, alignment, 0, stream, &addr) == BERM_OK);
        cr_assert(berm__is_aligned(addr, alignment));
        BERM_TEST_CHECK();
    }
    BERM_TEST_END_INSIDE();
}

// --- headroom (supply.c) -----------------------------------------------------------------------

// 10 granules are free and done; 12 are asked for in another place. What may be created beyond the
// live bytes decides how many move.
static void headroom_expect(const char *options, uint64_t created, uint64_t moved) {
    static const unsigned sizes[] = {10, 1};
    berm_addr_t blocks[2];
    layout_begin(options, sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    uint64_t creates = simcuda_calls("cuMemCreate");
    (void)heap_alloc(12 * GRANULE, stream);
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(simcuda_calls("cuMemCreate") == creates + created, "%llu created",
              (unsigned long long)(simcuda_calls("cuMemCreate") - creates));
    cr_assert(stats.moved_bytes == moved * GRANULE && stats.moves == (moved > 0));
    cr_assert(stats.reserved_bytes.current == (11 + created) * GRANULE);
    cr_assert(stats.host_waits == 0);
    BERM_TEST_END_INSIDE();
}

Test(pool, without_headroom_pages_move) {
    headroom_expect("headroom:0", 2, 10);
}

// 13 live, 13 * 1.31 = 17.03.
Test(pool, with_some_headroom_some_are_created) {
    headroom_expect("headroom:31", 6, 6);
}

Test(pool, with_much_headroom_all_are_created) {
    headroom_expect("headroom:100", 12, 0);
}

Test(pool, with_remap_off_nothing_moves) {
    headroom_expect("headroom:0,remap:off", 12, 0);
}

// At the limit free memory moves whatever the headroom; with remap off it goes back to the driver
// first.
static void limit_expect(const char *options, uint64_t released, uint64_t moves) {
    static const unsigned sizes[] = {10, 1};
    berm_addr_t blocks[2];
    layout_begin(options, sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    cr_assert(berm_limit_set(0, 14 * GRANULE) == BERM_OK);
    uint64_t releases = simcuda_calls("cuMemRelease");
    (void)heap_alloc(12 * GRANULE, stream);
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(simcuda_calls("cuMemRelease") == releases + released);
    cr_assert(stats.moves == moves);
    cr_assert(stats.reserved_bytes.peak <= 14 * GRANULE);
    berm_addr_t addr;
    cr_assert(berm_alloc(2 * GRANULE, 0, stream, &addr) == BERM_ERROR_LIMIT);
    BERM_TEST_END_INSIDE();
}

Test(pool, at_the_limit_pages_move) {
    limit_expect("headroom:1000", 0, 1);
}

Test(pool, at_the_limit_with_remap_off_pages_are_made_anew) {
    limit_expect("headroom:1000,remap:off", 9, 0);
}

// Large handles where they have room, small ones for the rest.
Test(pool, growth_uses_large_handles) {
    heap_fixture_begin(&(heap_fixture_options_t){.berm = "growth_handle:8M,headroom:1000"});
    stream = heap_stream_create();
    uint64_t creates = simcuda_calls("cuMemCreate");
    (void)heap_alloc(11 * GRANULE, stream);
    cr_assert(simcuda_calls("cuMemCreate") == creates + 2 + 3);
    pool = heap_pool(stream);
    segment = heap_segment(pool);
    cr_assert(segment->handle_of[0]->granules == 4 && segment->handle_of[8]->granules == 1);
    BERM_TEST_END_INSIDE();
}

// An idle large handle that has no room in a hole is cut.
Test(pool, a_large_handle_is_split_for_a_small_hole) {
    berm_addr_t addr;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = BERM_MIB(16),
                                                 .berm = "growth_handle:8M,headroom:0"});
    stream = heap_stream_create();
    berm_addr_t first = heap_alloc(4 * GRANULE, stream);
    (void)heap_alloc(4 * GRANULE, stream);
    heap_free(first, stream);
    void *other = heap_stream_create();
    for (int i = 0; i < 4; i++)
        cr_assert(berm_alloc(GRANULE, 0, other, &addr) == BERM_OK);
    cr_assert(berm_alloc(GRANULE, 0, other, &addr) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    BERM_TEST_END_INSIDE();
}

// --- what may be taken (steal.c) ---------------------------------------------------------------

// Free runs of 5, 2 and 9 granules, all of it done: the smallest run that has a page goes first.
Test(pool, pages_are_taken_from_the_smallest_run) {
    static const unsigned sizes[] = {5, 1, 2, 1, 9, 1};
    berm_addr_t blocks[6];
    uint64_t taken = 0;
    layout_begin("headroom:1000", sizes, blocks, 6);
    for (int i = 0; i < 6; i += 2)
        heap_free(blocks[i], stream);
    work_finish();
    cr_assert(berm__steal_passed(pool, 1, true, &taken) == BERM_OK && taken == 1);
    state_expect(6, BERM_RANGE_VOID);
    state_expect(7, BERM_RANGE_FREE);
    cr_assert(berm__steal_passed(pool, 4, true, &taken) == BERM_OK && taken == 4);
    state_expect(7, BERM_RANGE_VOID);
    state_expect(2, BERM_RANGE_VOID);
    state_expect(3, BERM_RANGE_FREE);
    state_expect(9, BERM_RANGE_FREE);
    cr_assert(berm__steal_passed(pool, 100, true, &taken) == BERM_OK && taken == 11);
    cr_assert(berm__phys_idle_granules(&heap_device()->phys) == 16);
    BERM_TEST_END_INSIDE();
}

// One unmap for a run of pages, however many handles.
Test(pool, pages_are_taken_in_runs) {
    static const unsigned sizes[] = {9, 1};
    berm_addr_t blocks[2];
    uint64_t taken = 0;
    layout_begin("headroom:1000", sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    uint64_t unmaps = simcuda_calls("cuMemUnmap");
    cr_assert(berm__steal_passed(pool, 7, true, &taken) == BERM_OK && taken == 7);
    cr_assert(simcuda_calls("cuMemUnmap") == unmaps + 1);
    BERM_TEST_END_INSIDE();
}

Test(pool, pages_in_use_are_never_taken) {
    static const unsigned sizes[] = {4, 1, 3, 1};
    berm_addr_t blocks[4];
    uint64_t taken = 7, gate = 0;
    layout_begin("headroom:1000", sizes, blocks, 4);
    heap_free(blocks[0], stream);
    work_finish();
    simcuda_access_t access = {.addr = blocks[2], .size_bytes = 3 * GRANULE, .is_write = 1};
    cr_assert(simcuda_gate(stream, &access, 1, &gate) == 0);
    heap_free(blocks[2], stream);
    cr_assert(berm__steal_passed(pool, 100, true, &taken) == BERM_OK && taken == 4,
              "only what is done");
    cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    cr_assert(berm__steal_passed(pool, 100, true, &taken) == BERM_OK && taken == 0);
    cr_assert(berm__steal_obtainable(pool) == 3, "it could be waited for");
    cr_assert(simcuda_gate_open(gate) == 0);
    simcuda_advance_ns(1000);
    cr_assert(berm__steal_passed(pool, 100, true, &taken) == BERM_OK && taken == 3);
    BERM_TEST_END_INSIDE();
}

// A page that borders on a live byte stays.
Test(pool, border_pages_stay) {
    static const unsigned sizes[] = {1};
    berm_addr_t blocks[1];
    uint64_t taken = 0;
    layout_begin("headroom:1000", sizes, blocks, 1);
    berm_addr_t low = heap_alloc(GRANULE / 2, stream);
    berm_addr_t middle = heap_alloc(4 * GRANULE, stream);
    (void)heap_alloc(GRANULE / 2, stream);
    cr_assert(middle == low + GRANULE / 2);
    heap_free(middle, stream);
    work_finish();
    cr_assert(berm__steal_obtainable(pool) == 3);
    cr_assert(berm__steal_passed(pool, 100, true, &taken) == BERM_OK && taken == 3);
    heap_use(stream, low, GRANULE / 2, 1000);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// When nothing is done and nothing may be created, berm waits for the cheapest: the block that was
// freed first.
Test(pool, a_wait_is_for_the_oldest_ticket) {
    static const unsigned sizes[] = {4, 1, 4, 1};
    berm_addr_t blocks[4];
    layout_begin("headroom:0", sizes, blocks, 4);
    for (int i = 0; i < 4; i += 2) {
        heap_use(stream, blocks[i], 4 * GRANULE, 5000000);
        heap_free(blocks[i], stream);
        cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    }
    uint64_t before_ns = simcuda_now_ns();
    berm_addr_t block = heap_alloc(6 * GRANULE, stream);
    uint64_t waited_ns = simcuda_now_ns() - before_ns;
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(stats.host_waits > 0 && stats.moved_bytes >= 4 * GRANULE);
    cr_assert(waited_ns >= 4000000);
    state_expect(0, BERM_RANGE_VOID);
    heap_use(stream, block, 6 * GRANULE, 1000);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// Pages of another stream's pool serve too, once its work is done.
Test(pool, pages_come_from_other_pools) {
    static const unsigned sizes[] = {8, 1};
    berm_addr_t blocks[2];
    layout_begin("headroom:0", sizes, blocks, 2);
    heap_use(stream, blocks[0], 8 * GRANULE, 1000000);
    heap_free(blocks[0], stream);
    work_finish();
    void *other = heap_stream_create();
    berm_addr_t block = heap_alloc(9 * GRANULE, other);
    heap_use(other, block, 9 * GRANULE, 1000);
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(stats.reserved_bytes.current <= 11 * GRANULE);
    heap_context_synchronize();
    BERM_TEST_END_INSIDE();
}

// --- driver errors of unknown effect -----------------------------------------------------------

Test(pool, what_cannot_be_unmapped_is_poisoned) {
    static const unsigned sizes[] = {4, 1};
    berm_addr_t blocks[2], addr;
    layout_begin("headroom:0", sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(6 * GRANULE, 0, stream, &addr) == BERM_ERROR_DRIVER && addr == 0);
    state_expect(0, BERM_RANGE_POISONED);
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    cr_assert(stats.poisoned_bytes == 4 * GRANULE);
    berm_whatis_t whatis = {.size = sizeof whatis};
    cr_assert(berm_whatis(blocks[0] + 512, &whatis) == BERM_OK);
    cr_assert(whatis.kind == BERM_ADDRESS_POISONED);
    BERM_TEST_CHECK();
    cr_assert(heap_alloc(6 * GRANULE, stream) >= blocks[1]);
    uint64_t released;
    cr_assert(berm_trim(0, 0, &released) == BERM_OK);
    BERM_TEST_END_INSIDE();
}

// A hole that can neither be mapped nor cleaned up: it alone is lost, the window's other parts not.
Test(pool, a_hole_that_fails_twice_is_poisoned) {
    static const unsigned sizes[] = {7, 1};
    berm_addr_t blocks[2], addr;
    layout_begin("headroom:1000", sizes, blocks, 2);
    heap_free(blocks[0], stream);
    work_finish();
    hole_make(1, 1);
    hole_make(3, 2);
    cr_assert(simcuda_fault_nth("cuMemSetAccess", 2, 1, 999) == 0);
    cr_assert(simcuda_fault_nth("cuMemUnmap", 1, 1, 999) == 0);
    cr_assert(berm_alloc(7 * GRANULE, 0, stream, &addr) == BERM_ERROR_DRIVER);
    for (uint64_t granule = 0; granule < 7; granule++)
        state_expect(granule, granule == 3 || granule == 4 ? BERM_RANGE_POISONED : BERM_RANGE_FREE);
    BERM_TEST_CHECK();
    cr_assert(heap_alloc(3 * GRANULE, stream) == blocks[0]);
    BERM_TEST_END_INSIDE();
}
