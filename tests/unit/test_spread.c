// SPDX-License-Identifier: Apache-2.0
// Places apart (policy/miss.c), and which pages of which free ranges are taken first
// (policy/steal.c).
#include <criterion/criterion.h>

#include "berm_introspect.h"
#include "policy/pool.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)

static void *stream;
static berm_pool_t *pool;
static berm_segment_t *segment;

static void heap_begin(uint64_t memory_bytes) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = memory_bytes,
                                                 .berm = "growth_handle:2M,headroom:0"});
    stream = heap_stream_create();
}

// Lets all work end, and berm know it.
static void work_finish(void) {
    pool = heap_pool(stream);
    segment = heap_segment(pool);
    simcuda_advance_ns(100000000);
    cr_assert(berm__stream_seal(pool->stream) == BERM_OK);
    cr_assert(berm__stream_poll(pool->stream) == BERM_OK);
}

// Two blocks are freed between others; a request twice as large grows one of them with the pages of
// the other. Side by side, all of its pages would have to move.
Test(spread, what_is_freed_grows_in_place) {
    enum {
        BLOCKS = 4
    };
    const uint64_t size = BERM_MIB(64);
    berm_addr_t blocks[BLOCKS];
    heap_begin(BERM_GIB(16));
    (void)heap_alloc(BERM_GIB(4), stream);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = heap_alloc(size, stream);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < i; k++)
            cr_assert(blocks[i] > blocks[k] + 4 * size || blocks[k] > blocks[i] + 4 * size,
                      "blocks %d and %d lie side by side", i, k);
    heap_free(blocks[0], stream);
    heap_free(blocks[2], stream);
    work_finish();
    uint64_t reserved = heap_device()->phys.reserved_bytes;
    berm_addr_t addr = heap_alloc(2 * size, stream);
    bool covers_first = addr <= blocks[0] && addr + 2 * size >= blocks[0] + size;
    bool covers_third = addr <= blocks[2] && addr + 2 * size >= blocks[2] + size;
    cr_assert(covers_first || covers_third);
    cr_assert(heap_device()->phys.moved_bytes == size, "%llu bytes moved",
              (unsigned long long)heap_device()->phys.moved_bytes);
    cr_assert(heap_device()->phys.reserved_bytes == reserved);
    BERM_TEST_END_INSIDE();
}

// Where a granule is not little, blocks share them: of the same blocks, one after the other.
Test(spread, a_small_heap_is_packed) {
    heap_begin(BERM_GIB(1));
    berm_addr_t first = heap_alloc(BERM_MIB(64), stream);
    cr_assert(heap_alloc(BERM_MIB(64), stream) == first + BERM_MIB(64));
    BERM_TEST_END_INSIDE();
}

// Nor does a block with a large rest go apart, be the heap large.
Test(spread, what_leaves_a_large_rest_is_packed) {
    heap_begin(BERM_GIB(16));
    (void)heap_alloc(BERM_GIB(4), stream);
    berm_addr_t addr = heap_alloc(BERM_MIB(64) + BERM_KIB(512), stream);
    segment = heap_segment(heap_pool(stream));
    const berm_range_t *range = berm__ranges_at(&segment->ranges, addr - segment->base);
    cr_assert(range->start_bytes == addr - segment->base);
    cr_assert(range->prev == NULL || berm__range_state(range->prev) == BERM_RANGE_LIVE);
    BERM_TEST_END_INSIDE();
}

// An aligned block is apart too, and aligned.
Test(spread, an_aligned_block_is_apart) {
    const uint64_t alignment = BERM_MIB(512);
    berm_addr_t addr;
    heap_begin(BERM_GIB(16));
    berm_addr_t first = heap_alloc(BERM_GIB(4), stream);
    cr_assert(berm_alloc_aligned(BERM_MIB(64), alignment, 0, stream, &addr) == BERM_OK);
    cr_assert(addr % alignment == 0);
    cr_assert(addr > first + BERM_GIB(8) || addr + BERM_GIB(8) < first);
    BERM_TEST_END_INSIDE();
}

// More small free ranges without a whole granule than are looked at before larger ones: the one
// that has a granule, though small as well, is found all the same.
Test(spread, a_granule_behind_many_ranges_without_one_is_found) {
    enum {
        RANGES = 80
    };
    berm_addr_t freed[RANGES + 1];
    uint64_t taken = 0;
    heap_begin(BERM_MIB(512));
    (void)heap_alloc(GRANULE / 2, stream);
    for (int i = 0; i < RANGES; i++) { // from the middle of a granule to three quarters of the next
        freed[i] = heap_alloc(GRANULE + GRANULE / 4, stream);
        (void)heap_alloc(GRANULE / 2 + GRANULE / 4, stream);
    }
    (void)heap_alloc(GRANULE / 2, stream);
    freed[RANGES] = heap_alloc(GRANULE + GRANULE / 2, stream);
    (void)heap_alloc(GRANULE / 2, stream);
    for (int i = 0; i <= RANGES; i++)
        heap_free(freed[i], stream);
    work_finish();
    cr_assert(berm__steal_pool(pool, 2, &taken) == BERM_OK);
    cr_assert(taken == 1, "%llu granules taken", (unsigned long long)taken);
    BERM_TEST_END_INSIDE();
}
