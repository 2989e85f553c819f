// SPDX-License-Identifier: Apache-2.0
// berm_obtainable_read: each step rises, what it promises can be had, and its price is right.
#include "berm_diagnose.h"
#include "tests/api/api_test.h"

static berm_prices_t prices_of(void *stream, uint64_t pages_max) {
    berm_prices_t prices = BERM_PRICES_INIT;
    EXPECT(BERM_OK, berm_obtainable_read(0, stream, pages_max, &prices));
    const berm_price_t *steps[] = {&prices.now, &prices.waited, &prices.moved, &prices.trimmed,
                                   &prices.grown};
    for (int i = 1; i < 5; i++) {
        cr_assert(steps[i]->size_bytes >= steps[i - 1]->size_bytes);
        cr_assert(steps[i]->modelled_us >= steps[i - 1]->modelled_us);
    }
    uint64_t all;
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, stream, &all));
    cr_assert(prices.grown.size_bytes == all);
    cr_assert(prices.now.size_bytes == largest_free_of(stream) && prices.now.modelled_us == 0);
    return prices;
}

// 256 MiB, all reserved; every second block of 4 MiB is free.
static void *full_of_holes(berm_addr_t blocks[64]) {
    void *stream = heap_stream_create();
    for (int i = 0; i < 64; i++)
        blocks[i] = heap_alloc(4 * MIB, stream);
    for (int i = 0; i < 64; i += 2)
        heap_free(blocks[i], stream);
    return stream;
}

Test(obtainable, pages_moved) {
    berm_addr_t blocks[64];
    heap_fixture_begin(NULL);
    void *stream = full_of_holes(blocks);
    berm_prices_t prices = prices_of(stream, 10);
    cr_assert(prices.now.size_bytes == 4 * MIB && prices.waited.size_bytes == 4 * MIB);
    cr_assert(prices.moved.size_bytes == 20 * MIB && prices.moved.pages == 10);
    cr_assert(prices.moved.modelled_us == (10 * (1500 + 36000 + 25600) + 999) / 1000);
    cr_assert(prices.trimmed.size_bytes == 128 * MIB && prices.trimmed.pages == 64);
    cr_assert(prices.grown.size_bytes == 128 * MIB); // the device is full
    uint64_t moved = stats_of(0).moved_bytes;
    berm_addr_t addr = heap_alloc(prices.moved.size_bytes, stream);
    cr_assert(stats_of(0).moved_bytes - moved <= 10 * 2 * MIB);
    heap_free(addr, stream);
    heap_free(heap_alloc(prices.trimmed.size_bytes, stream), stream);
    prices = prices_of(stream, 10); // pages have moved: that is learned
    cr_assert(prices.moved.learned_us != UINT64_MAX);
    BERM_TEST_END();
}

Test(obtainable, waits_and_growth) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t awaited = heap_alloc(30 * MIB, stream);
    (void)heap_alloc(2 * MIB, stream);
    heap_use(other, awaited, 30 * MIB, 1000000000);
    EXPECT(BERM_OK, berm_record_stream(awaited, other));
    heap_free(awaited, stream);
    berm_prices_t prices = prices_of(stream, 0);
    cr_assert(prices.now.size_bytes < 30 * MIB && prices.waited.size_bytes >= 30 * MIB);
    cr_assert(prices.waited.modelled_us == 1 && prices.waited.pages == 0);
    cr_assert(prices.moved.size_bytes == prices.waited.size_bytes); // none may move
    cr_assert(prices.grown.size_bytes > 200 * MIB && prices.grown.pages > 100);
    heap_free(heap_alloc(prices.grown.size_bytes, stream), stream);
    BERM_TEST_END();
}

Test(obtainable, bad_arguments) {
    berm_prices_t prices = BERM_PRICES_INIT;
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_obtainable_read(0, NULL, 1, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_obtainable_read(9, NULL, 1, &prices));
    prices.size = 8;
    EXPECT(BERM_ERROR_VERSION, berm_obtainable_read(0, NULL, 1, &prices));
    BERM_TEST_END();
}
