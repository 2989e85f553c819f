// SPDX-License-Identifier: Apache-2.0
// berm_walk: runs tile without gap, every live block is there once with its request, figures agree;
// and berm_block_read.
#include "tests/api/api_test.h"

typedef struct seen {
    berm_walk_segment_t segment;
    berm_addr_t next; // where the next block of the run begins
    uint64_t runs, run_bytes, live, awaited, live_requested, free_bytes;
    bool is_gapless;
    berm_addr_t wanted; // a block to look for
    berm_walk_block_t found;
    berm_walk_segment_t found_in;
} seen_t;

static void see(void *context, const berm_walk_segment_t *segment, const berm_walk_block_t *block) {
    seen_t *seen = context;
    if (block == NULL) {
        seen->is_gapless =
            seen->is_gapless && seen->next == seen->segment.addr + seen->segment.size_bytes;
        seen->segment = *segment;
        seen->next = segment->addr;
        seen->runs++;
        seen->run_bytes += segment->size_bytes;
        return;
    }
    seen->is_gapless = seen->is_gapless && block->addr == seen->next && block->size_bytes > 0;
    seen->next = block->addr + block->size_bytes;
    seen->live += block->kind == BERM_ADDRESS_LIVE;
    seen->awaited += block->kind == BERM_ADDRESS_AWAITED;
    seen->live_requested += block->kind == BERM_ADDRESS_LIVE ? block->requested_bytes : 0;
    seen->free_bytes += block->kind == BERM_ADDRESS_FREE ? block->size_bytes : 0;
    if (block->addr == seen->wanted) {
        seen->found = *block;
        seen->found_in = *segment;
    }
}

static seen_t walk_all(berm_addr_t wanted) {
    seen_t seen = {.is_gapless = true, .wanted = wanted};
    EXPECT(BERM_OK, berm_walk(0, see, &seen));
    cr_assert(seen.is_gapless && seen.next == seen.segment.addr + seen.segment.size_bytes);
    return seen;
}

static uint64_t requested_of(berm_addr_t addr) {
    uint64_t bytes = 1;
    EXPECT(BERM_OK, berm_block_read(addr, &bytes, NULL, NULL));
    return bytes;
}

Test(walk, every_block_once_and_no_gaps) {
    berm_addr_t blocks[300];
    uint64_t requested = 0;
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    for (size_t i = 0; i < 300; i++) {
        uint64_t size = i % 30 == 0 ? 3 * MIB + i : 100 * i + 1;
        blocks[i] = heap_alloc(size, i % 2 == 0 ? stream : NULL);
        cr_assert(requested_of(blocks[i]) == size);
        requested += size;
    }
    seen_t seen = walk_all(blocks[7]);
    cr_assert(seen.live == 300 && seen.live_requested == requested && seen.awaited == 0);
    cr_assert(seen.found.is_small == 1 && seen.found.requested_bytes == 701);
    cr_assert(seen.found_in.stream == NULL && seen.found_in.device == 0);
    cr_assert(seen.run_bytes <= stats_of(0).reserved_bytes.current);
    for (size_t i = 0; i < 300; i += 2)
        heap_free(blocks[i], stream);
    seen = walk_all(blocks[1]);
    cr_assert(seen.live == 150 && seen.found.allocation_index == 2);
    cr_assert(seen.free_bytes > 0);
    BERM_TEST_END();
}

Test(walk, awaited_blocks_and_pools_are_named) {
    uint64_t gate;
    const berm_pool_id_t id = {7, 0};
    heap_fixture_begin(NULL);
    void *other = heap_stream_create();
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    berm_addr_t pooled = 0, addr = heap_alloc(5 * MIB, NULL), slot = heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_alloc_from(id, 4 * MIB, 1, 0, other, &pooled));
    seen_t seen = walk_all(pooled);
    cr_assert(seen.live == 3 && seen.found_in.pool.high == 7 && seen.found_in.stream == other);
    cr_assert(seen.found_in.is_released == 0);
    cr_assert(simcuda_gate(other, NULL, 0, &gate) == 0);
    heap_free(addr, other);
    heap_free(slot, other);
    seen = walk_all(addr);
    cr_assert(seen.live == 1 && seen.awaited == 2);
    cr_assert(seen.found.kind == BERM_ADDRESS_AWAITED && seen.found.requested_bytes == 5 * MIB);
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_free(pooled, other);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

Test(walk, nothing_and_misuse) {
    uint64_t bytes = 1;
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_walk(0, NULL, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_walk(99, see, NULL));
    seen_t seen = walk_all(0);
    cr_assert(seen.runs == 0 && seen.live == 0);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(0, &bytes, NULL, NULL));
    cr_assert(bytes == 1);
    berm_addr_t small = heap_alloc(700, NULL), large = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(small + 1, &bytes, NULL, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(large + 512, &bytes, NULL, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(large + MIB, &bytes, NULL, NULL));
    int device = 7;
    void *other = heap_stream_create(), *stream = other;
    EXPECT(BERM_OK, berm_block_read(small, NULL, &device, &stream));
    cr_assert(device == 0 && stream == NULL);
    berm_addr_t elsewhere = heap_alloc(2 * MIB, other), nowhere = heap_alloc(9, BERM_STREAM_NONE);
    EXPECT(BERM_OK, berm_block_read(elsewhere, &bytes, NULL, &stream));
    cr_assert(bytes == 2 * MIB && stream == other);
    EXPECT(BERM_OK, berm_block_read(nowhere, &bytes, NULL, &stream));
    cr_assert(bytes == 9 && stream == BERM_STREAM_NONE);
    heap_free(small, NULL);
    heap_free(large, NULL);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(small, &bytes, NULL, NULL));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_block_read(large, &bytes, NULL, NULL));
    BERM_TEST_END();
}
