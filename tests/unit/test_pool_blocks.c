// SPDX-License-Identifier: Apache-2.0
// The life of blocks in a pool: slots of slabs (small.c), and freed blocks that wait for other
// streams (deferred.c, pool.c). The decisions about memory are in test_pool.c.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "berm_introspect.h"
#include "host/mem.h"
#include "tests/support/heap_inside.h"

#define GRANULE BERM_MIB(2)

static void *a, *b;

static void streams_begin(const heap_fixture_options_t *options) {
    heap_fixture_begin(options);
    a = heap_stream_create();
    b = heap_stream_create();
}

static berm_slab_t *slab_at(berm_addr_t addr) {
    berm_segment_t *segment = heap_segment(heap_pool(a));
    uintptr_t slot = berm__segment_cell_read(segment, addr - segment->base);
    cr_assert((slot & BERM_CELL_IS_SLAB) != 0);
    return (berm_slab_t *)(slot - BERM_CELL_IS_SLAB);
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

// --- slabs (small.c) ---------------------------------------------------------------------------

// Two slabs of 64 slots, one with 4 free and one with 40: the fuller one is filled up first.
Test(pool_blocks, the_fullest_slab_serves_first) {
    berm_addr_t blocks[128];
    streams_begin(NULL);
    for (int i = 0; i < 128; i++)
        blocks[i] = heap_alloc(1024, a);
    berm_slab_t *fuller = slab_at(blocks[0]), *emptier = slab_at(blocks[127]);
    cr_assert(fuller != emptier && fuller->used == 64 && emptier->used == 64);
    for (int i = 0; i < 40; i++)
        heap_free(blocks[127 - i], a);
    for (int i = 0; i < 4; i++)
        heap_free(blocks[10 * i], a);
    for (int i = 0; i < 4; i++)
        cr_assert(slab_at(heap_alloc(1024, a)) == fuller);
    cr_assert(slab_at(heap_alloc(1024, a)) == emptier);
    BERM_TEST_END_INSIDE();
}

// The lowest free slot of a slab is taken.
Test(pool_blocks, slots_are_taken_from_the_bottom) {
    streams_begin(NULL);
    berm_addr_t first = heap_alloc(512, a);
    for (uint64_t i = 1; i < 128; i++)
        cr_assert(heap_alloc(512, a) == first + 512 * i);
    heap_free(first + 512 * 100, a);
    heap_free(first + 512 * 70, a);
    cr_assert(heap_alloc(100, a) == first + 512 * 70);
    cr_assert(heap_alloc(100, a) == first + 512 * 100);
    BERM_TEST_END_INSIDE();
}

// One empty slab a class is kept; a second one goes back to the large path at once.
Test(pool_blocks, one_empty_slab_of_a_class_is_kept) {
    berm_addr_t blocks[128];
    streams_begin(NULL);
    for (int i = 0; i < 128; i++)
        blocks[i] = heap_alloc(1024, a);
    berm_pool_t *pool = heap_pool(a);
    unsigned size_class = berm__size_class_of(1024);
    uint64_t free_bytes = heap_segment(pool)->ranges.free_bytes;
    for (int i = 0; i < 64; i++)
        heap_free(blocks[i], a);
    cr_assert(!berm__list_is_empty(&pool->empties[size_class]));
    cr_assert(heap_segment(pool)->ranges.free_bytes == free_bytes);
    for (int i = 64; i < 128; i++)
        heap_free(blocks[i], a);
    cr_assert(heap_segment(pool)->ranges.free_bytes == free_bytes + BERM_KIB(64));
    cr_assert(heap_alloc(1024, a) == blocks[0], "the kept one serves");
    cr_assert(berm__list_is_empty(&pool->empties[size_class]));
    BERM_TEST_END_INSIDE();
}

// A large request that needs the room gets it, with no call of the driver.
Test(pool_blocks, empty_slabs_are_flushed_for_a_large_request) {
    streams_begin(NULL);
    heap_free(heap_alloc(1024, a), a);
    heap_free(heap_alloc(3000, a), a);
    uint64_t calls = simcuda_calls(NULL);
    (void)heap_alloc(GRANULE, a);
    cr_assert(simcuda_calls(NULL) == calls);
    BERM_TEST_END_INSIDE();
}

// The device is full but for slots of 2 KiB: a request of 600 bytes takes one rather than fail.
Test(pool_blocks, a_larger_class_serves_when_nothing_else_can) {
    berm_addr_t addr;
    streams_begin(&(heap_fixture_options_t){.memory_bytes = 2 * GRANULE});
    berm_addr_t small = heap_alloc(2048, a);
    (void)heap_alloc(2 * GRANULE - BERM_KIB(64), a);
    cr_assert(berm_alloc(70000, 0, a, &addr) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    cr_assert(heap_alloc(600, a) == small + 2048);
    cr_assert(stats_read().allocated_bytes.current == 2 * GRANULE - BERM_KIB(64) + 4096);
    BERM_TEST_CHECK();
    // An alignment is kept: 2048 is no multiple of 4096, and there is no slab that is.
    cr_assert(berm_alloc_aligned(600, 1024, 0, a, &addr) == BERM_OK);
    cr_assert(addr == small + 2 * 2048);
    cr_assert(berm_alloc_aligned(600, 4096, 0, a, &addr) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    BERM_TEST_END_INSIDE();
}

Test(pool_blocks, an_aligned_small_request_is_aligned) {
    berm_addr_t addr;
    streams_begin(NULL);
    for (uint64_t alignment = 512; alignment <= BERM_KIB(64); alignment *= 2) {
        for (uint64_t size_bytes = 1; size_bytes <= BERM_KIB(64); size_bytes = size_bytes * 3 + 1) {
            cr_assert(berm_alloc_aligned(size_bytes, alignment, 0, a, &addr) == BERM_OK);
            cr_assert(berm__is_aligned(addr, alignment));
        }
    }
    BERM_TEST_END_INSIDE();
}

// --- freed blocks that wait --------------------------------------------------------------------

// A block of `size_bytes` that work on b uses until the gate opens.
static berm_addr_t block_in_use_on_b(uint64_t size_bytes, uint64_t *gate) {
    berm_addr_t block = heap_alloc(size_bytes, a);
    simcuda_access_t access = {.addr = block, .size_bytes = size_bytes, .is_write = 1};
    cr_assert(simcuda_gate(b, &access, 1, gate) == 0);
    return block;
}

// The block is awaited while the gate is closed: another request does not get it, and says so in
// the figures; afterwards it serves again.
static void awaited_expect(berm_addr_t block, uint64_t size_bytes, uint64_t gate) {
    berm_whatis_t whatis = {.size = sizeof whatis};
    cr_assert(berm_whatis(block, &whatis) == BERM_OK);
    cr_assert(whatis.kind == BERM_ADDRESS_AWAITED && whatis.block == block);
    berm_stats_t stats = stats_read();
    cr_assert(stats.blocks.current == 0 && stats.allocated_bytes.current == 0);
    cr_assert(stats.active_bytes.current >= size_bytes);
    cr_assert(berm_free(block, 0, a) == BERM_ERROR_DOUBLE_FREE);
    berm_addr_t other = heap_alloc(size_bytes, a);
    cr_assert(other != block);
    heap_use(a, other, size_bytes, 1000);
    cr_assert(simcuda_gate_open(gate) == 0);
    simcuda_advance_ns(1000000);
    cr_assert(berm__deferred_process(heap_pool(a), NULL) == BERM_OK);
    cr_assert(stats_read().active_bytes.current == stats_read().allocated_bytes.current);
    cr_assert(heap_alloc(size_bytes, a) == block);
    heap_use(a, block, size_bytes, 1000);
    BERM_TEST_CHECK();
    cr_assert(stats_read().host_waits == 0);
}

static void awaited_on_other(uint64_t size_bytes) {
    uint64_t gate;
    streams_begin(NULL);
    berm_addr_t block = block_in_use_on_b(size_bytes, &gate);
    heap_free(block, b);
    awaited_expect(block, size_bytes, gate);
    BERM_TEST_END_INSIDE();
}

Test(pool_blocks, a_free_on_another_stream_waits_for_it) {
    awaited_on_other(3 * GRANULE);
}

Test(pool_blocks, a_free_of_a_slot_on_another_stream_waits_for_it) {
    awaited_on_other(1024);
}

static void awaited_on_recorded(uint64_t size_bytes) {
    uint64_t gate;
    streams_begin(NULL);
    berm_addr_t block = block_in_use_on_b(size_bytes, &gate);
    cr_assert(berm_record_stream(block, b) == BERM_OK);
    cr_assert(berm_record_stream(block, b) == BERM_OK, "twice is as once");
    cr_assert(berm_record_stream(block, a) == BERM_OK, "the own stream is nothing new");
    heap_free(block, a);
    cr_assert(berm__node_slab_live(&heap_pool(a)->use_nodes) == 1);
    awaited_expect(block, size_bytes, gate);
    BERM_TEST_END_INSIDE();
}

Test(pool_blocks, a_recorded_stream_is_waited_for) {
    awaited_on_recorded(3 * GRANULE);
}

Test(pool_blocks, a_recorded_stream_of_a_slot_is_waited_for) {
    awaited_on_recorded(700);
}

// The slots of a slab have their own uses: freeing one leaves the others' alone.
Test(pool_blocks, slots_of_a_slab_wait_for_their_own_streams) {
    uint64_t gate;
    streams_begin(NULL);
    berm_addr_t block = block_in_use_on_b(1024, &gate), neighbour = heap_alloc(1024, a);
    cr_assert(slab_at(block) == slab_at(neighbour));
    cr_assert(berm_record_stream(block, b) == BERM_OK);
    heap_free(neighbour, a);
    cr_assert(heap_alloc(1024, a) == neighbour);
    heap_free(block, a);
    cr_assert(heap_alloc(1024, a) != block);
    cr_assert(simcuda_gate_open(gate) == 0);
    BERM_TEST_END_INSIDE();
}

Test(pool_blocks, a_free_on_no_stream_waits_for_all) {
    uint64_t gate;
    streams_begin(NULL);
    berm_addr_t block = block_in_use_on_b(3 * GRANULE, &gate);
    heap_free(block, BERM_STREAM_NONE);
    awaited_expect(block, 3 * GRANULE, gate);
    BERM_TEST_END_INSIDE();
}

// Memory without a stream has no pending work at all.
Test(pool_blocks, the_pool_without_a_stream_reuses_only_what_is_done) {
    streams_begin(NULL);
    berm_addr_t block = heap_alloc(3 * GRANULE, BERM_STREAM_NONE);
    heap_use(b, block, 3 * GRANULE, 10000000);
    heap_free(block, b);
    berm_addr_t other = heap_alloc(3 * GRANULE, BERM_STREAM_NONE);
    cr_assert(other != block);
    heap_use(a, other, 3 * GRANULE, 10000000);
    heap_free(other, BERM_STREAM_NONE);
    simcuda_advance_ns(100000000);
    for (int i = 0; i < 2; i++)
        heap_use(a, heap_alloc(3 * GRANULE, BERM_STREAM_NONE), 3 * GRANULE, 1000);
    cr_assert(stats_read().reserved_bytes.current == 6 * GRANULE);
    BERM_TEST_END_INSIDE();
}

// One event serves all blocks that wait for a stream.
Test(pool_blocks, frees_are_sealed_together) {
    berm_addr_t blocks[20];
    streams_begin(NULL);
    for (int i = 0; i < 20; i++)
        blocks[i] = heap_alloc(3000, a);
    for (int i = 0; i < 20; i++)
        heap_free(blocks[i], b);
    uint64_t records = simcuda_calls("cuEventRecord"), queries = simcuda_calls("cuEventQuery");
    cr_assert(berm__deferred_process(heap_pool(a), NULL) == BERM_OK);
    cr_assert(simcuda_calls("cuEventRecord") == records + 1);
    cr_assert(simcuda_calls("cuEventQuery") == queries + 1);
    BERM_TEST_END_INSIDE();
}

// When the device is full, berm waits for the oldest freed block, and no longer.
Test(pool_blocks, the_oldest_freed_block_is_waited_for) {
    streams_begin(
        &(heap_fixture_options_t){.memory_bytes = 8 * GRANULE, .berm = "growth_handle:2M"});
    berm_addr_t first = heap_alloc(4 * GRANULE, a), second = heap_alloc(4 * GRANULE, a);
    heap_use(b, first, 4 * GRANULE, 5000000);
    heap_free(first, b);
    cr_assert(berm__deferred_process(heap_pool(a), NULL) == BERM_OK);
    heap_use(b, second, 4 * GRANULE, 500000000);
    heap_free(second, b);
    uint64_t before_ns = simcuda_now_ns();
    berm_addr_t block = heap_alloc(4 * GRANULE, a);
    cr_assert(block == first);
    cr_assert(simcuda_now_ns() - before_ns < 100000000, "the second was not waited for");
    cr_assert(stats_read().host_waits == 1 && stats_read().retries == 1);
    heap_use(a, block, 4 * GRANULE, 1000);
    BERM_TEST_END_INSIDE();
}

// Without host memory for the record of a wait, the free waits itself: it never fails.
static void free_without_memory(bool is_recorded) {
    streams_begin(NULL);
    berm_addr_t block = heap_alloc(3 * GRANULE, a);
    heap_use(b, block, 3 * GRANULE, 5000000);
    (void)heap_alloc(1, b); // berm knows the stream
    if (is_recorded)
        cr_assert(berm_record_stream(block, b) == BERM_OK);
    berm__mem_fault_nth(1, 0);
    heap_free(block, is_recorded ? a : b);
    berm__mem_fault_nth(0, 0);
    cr_assert(stats_read().host_waits > 0);
    BERM_TEST_CHECK();
    berm_addr_t again = heap_alloc(3 * GRANULE, a);
    cr_assert(again == block);
    heap_use(a, again, 3 * GRANULE, 1000);
    BERM_TEST_END_INSIDE();
}

Test(pool_blocks, a_free_without_host_memory_waits) {
    free_without_memory(false);
}

Test(pool_blocks, a_free_of_a_recorded_block_without_host_memory_waits) {
    free_without_memory(true);
}

// Blocks outlive their stream, and are freed with another; the memory then serves any stream.
Test(pool_blocks, blocks_of_a_retired_stream) {
    streams_begin(NULL);
    berm_addr_t block = heap_alloc(3 * GRANULE, a), small = heap_alloc(100, a);
    heap_use(a, block, 3 * GRANULE, 1000000);
    cr_assert(berm_stream_retire(0, a) == BERM_OK);
    heap_stream_destroy(a);
    heap_use(b, block, 3 * GRANULE, 1000);
    heap_free(block, b);
    heap_free(small, BERM_STREAM_NONE);
    uint64_t released;
    cr_assert(berm_trim(0, 0, &released) == BERM_OK);
    cr_assert(stats_read().reserved_bytes.current == 0);
    BERM_TEST_END_INSIDE();
}
