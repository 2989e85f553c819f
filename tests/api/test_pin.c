// SPDX-License-Identifier: Apache-2.0
// Pins, from outside: what stays, when a callback is told, what it may call.
#include "tests/api/api_test.h"

typedef struct told {
    unsigned count;
    berm_addr_t addr;
    uint64_t size_bytes;
    void (*then)(struct told *told);
} told_t;

static void tell(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    told_t *told = arg;
    told->count++;
    told->addr = addr;
    told->size_bytes = size_bytes;
    if (told->then != NULL)
        told->then(told);
}

static void tell_other(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    tell(arg, addr, size_bytes);
}

Test(pin, refuses_bad_arguments) {
    told_t told = {0};
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_pin(512, tell, &told));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_unpin(512, tell, &told));
    heap_fixture_begin(NULL);
    berm_addr_t block = heap_alloc(3 * MIB, NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_pin(block, NULL, &told));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_pin(512, tell, &told));
    EXPECT(BERM_ERROR_ADDRESS_INTERIOR, berm_pin(block + 512, tell, &told));
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    EXPECT(BERM_ERROR_STATE, berm_pin(block, tell, &told));
    EXPECT_MESSAGE("it has a pin with this callback and arg already");
    EXPECT(BERM_OK, berm_pin(block, tell, &block)); // another argument is another pin
    EXPECT(BERM_OK, berm_pin(block, tell_other, &told));
    EXPECT(BERM_OK, berm_unpin(block, tell, &block));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_unpin(block, tell, &block));
    EXPECT_MESSAGE("there is no pin with this callback and arg");
    EXPECT(BERM_OK, berm_unpin(block, tell_other, &told));
    EXPECT(BERM_OK, berm_unpin(block, tell, &told));
    heap_free(block, NULL);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_pin(block, tell, &told));
    cr_assert(told.count == 0 && stats_of(0).pinned_bytes == 0);
    BERM_TEST_END();
    EXPECT(BERM_ERROR_SHUTDOWN, berm_pin(block, tell, &told));
    EXPECT(BERM_ERROR_SHUTDOWN, berm_unpin(block, tell, &told));
}

Test(pin, a_freed_block_waits_for_its_pin) {
    told_t told = {0};
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    berm_addr_t block = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    cr_assert(stats_of(0).pinned_bytes == 4 * MIB);
    heap_free(block, NULL);
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_free(block, 0, NULL));
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(block + 5, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_HELD && whatis.block == block);
    berm_stats_t stats = stats_of(0);
    cr_assert(stats.blocks.current == 0 && stats.cached_bytes == 4 * MIB);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 4 * MIB && largest_free_of(NULL) == 0);
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_unpin(block, tell, &told));
    cr_assert(largest_free_of(NULL) == 4 * MIB && told.count == 0);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(stats_of(0).reserved_bytes.current == 0);
    BERM_TEST_END();
}

Test(pin, a_miss_in_the_pool_tells_before_the_address_is_reused) {
    told_t told = {0}, other_told = {0};
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(4 * MIB, NULL), other = heap_alloc(4 * MIB, stream);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    EXPECT(BERM_OK, berm_pin(block, tell_other, &told));
    EXPECT(BERM_OK, berm_pin(other, tell, &other_told));
    heap_free(other, stream);
    heap_free(block, NULL);
    cr_assert(told.count == 0);
    berm_addr_t again = heap_alloc(4 * MIB, NULL);
    cr_assert(again == block && told.count == 2);
    cr_assert(told.addr == block && told.size_bytes == 4 * MIB);
    cr_assert(other_told.count == 0, "another pool's is not in the way");
    cr_assert(stats_of(0).pinned_bytes == 4 * MIB);
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_unpin(block, tell, &told));
    BERM_TEST_END();
    cr_assert(other_told.count == 1, "the end tells");
}

Test(pin, a_hit_tells_nobody) {
    told_t told = {0};
    heap_fixture_begin(NULL);
    berm_addr_t block = heap_alloc(4 * MIB, NULL), spare = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    heap_free(block, NULL);
    heap_free(spare, NULL);
    cr_assert(heap_alloc(4 * MIB, NULL) == spare && told.count == 0);
    BERM_TEST_END();
}

Test(pin, a_shortage_tells_all_of_the_device) {
    told_t told = {0};
    berm_addr_t out;
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(40 * MIB, stream);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(40 * MIB, 0, NULL, &out));
    cr_assert(told.count == 0, "a live block is nobody's to take");
    heap_free(block, stream);
    uint64_t obtainable;
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, NULL, &obtainable));
    cr_assert(obtainable == 24 * MIB, "pinned memory is not counted");
    EXPECT(BERM_OK, berm_alloc(40 * MIB, 0, NULL, &out));
    cr_assert(told.count == 1);
    BERM_TEST_END();
}

Test(pin, small_blocks) {
    told_t told = {0};
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    berm_addr_t block = heap_alloc(1000, NULL), neighbour = heap_alloc(1000, NULL);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    heap_free(block, NULL);
    heap_free(neighbour, NULL);
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(block, &whatis));
    cr_assert(whatis.kind == BERM_ADDRESS_HELD && whatis.is_small == 1);
    BERM_TEST_CHECK();
    berm_addr_t blocks[300];
    for (size_t i = 0; i < 300; i++) {
        blocks[i] = heap_alloc(1000, NULL);
        cr_assert(blocks[i] != block || told.count == 1);
    }
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    for (size_t i = 0; i < 300; i++)
        heap_free(blocks[i], NULL);
    BERM_TEST_END();
    cr_assert(told.count == 1);
}

Test(pin, awaited_blocks) {
    told_t told = {0};
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_OK, berm_record_stream(block, stream));
    heap_use(stream, block, 4 * MIB, 1000000);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    heap_free(block, NULL);
    BERM_TEST_CHECK();
    simcuda_advance_ns(2000000);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL)); // finishes the free
    cr_assert(stats_of(0).reserved_bytes.current == 4 * MIB && told.count == 0);
    cr_assert(heap_alloc(4 * MIB, NULL) == block && told.count == 1);
    BERM_TEST_END();
}

static void pin_once_more(told_t *told) {
    berm_stats_t stats = BERM_STATS_INIT;
    berm_addr_t more;
    EXPECT(BERM_OK, berm_stats_read(0, &stats));
    EXPECT(BERM_ERROR_ADDRESS_UNKNOWN, berm_unpin(told->addr, tell, told));
    EXPECT(BERM_ERROR_DOUBLE_FREE, berm_pin(told->addr, tell, told));
    EXPECT(BERM_OK, berm_alloc(8 * MIB, 0, NULL, &more)); // a miss, within the miss
    EXPECT(BERM_OK, berm_free(more, 0, NULL));
}

Test(pin, a_callback_may_call_berm) {
    told_t told = {.then = pin_once_more};
    heap_fixture_begin(NULL);
    berm_addr_t block = heap_alloc(4 * MIB, NULL);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    heap_free(block, NULL);
    (void)heap_alloc(6 * MIB, NULL);
    cr_assert(told.count == 1);
    BERM_TEST_CHECK();
    BERM_TEST_END();
}

Test(pin, the_end_tells_live_blocks_too) {
    told_t told = {0};
    heap_fixture_begin(NULL);
    berm_addr_t blocks[3] = {heap_alloc(4 * MIB, NULL), heap_alloc(2000, NULL),
                             heap_alloc(4 * MIB, NULL)};
    for (size_t i = 0; i < 3; i++)
        EXPECT(BERM_OK, berm_pin(blocks[i], tell, &told));
    heap_free(blocks[0], NULL);
    BERM_TEST_END();
    cr_assert(told.count == 3);
}

Test(pin, a_retired_stream_keeps_held_blocks) {
    told_t told = {0};
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(4 * MIB, stream);
    EXPECT(BERM_OK, berm_pin(block, tell, &told));
    heap_free(block, stream);
    EXPECT(BERM_OK, berm_stream_retire(0, stream));
    heap_stream_destroy(stream);
    void *next = heap_stream_create();
    (void)heap_alloc(4 * MIB, next);
    BERM_TEST_CHECK();
    EXPECT(BERM_OK, berm_unpin(block, tell, &told));
    BERM_TEST_END();
}
