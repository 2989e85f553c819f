// SPDX-License-Identifier: Apache-2.0
// The two largest-block figures. largest free is exact: an allocation of that size makes no memory
// call, 512 bytes more makes one or fails. largest obtainable is kept on a heap at rest.
#include "tests/api/api_test.h"

static uint64_t rng_state;

static uint64_t random_below(uint64_t bound) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state % bound;
}

// Nothing is queued and no free is awaited: the first question records the events that a free waits
// for, the second finds them done.
static void heap_rest(void *const *streams, int count) {
    heap_context_synchronize();
    for (int i = 0; i < count; i++)
        (void)largest_free_of(streams[i]);
    heap_context_synchronize();
    for (int i = 0; i < count; i++)
        (void)largest_free_of(streams[i]);
}

// The definition, on a heap where no free is awaited. Leaves the heap with the same live blocks.
static void exactness_check(void *stream) {
    uint64_t size_bytes = largest_free_of(stream), before = memory_calls();
    berm_addr_t addr = 0;
    if (size_bytes > 0) {
        EXPECT(BERM_OK, berm_alloc(size_bytes, 0, stream, &addr));
        cr_assert(memory_calls() == before, "%llu bytes made a memory call",
                  (unsigned long long)size_bytes);
        heap_use(stream == BERM_STREAM_NONE ? NULL : stream, addr, size_bytes, 1);
        heap_free(addr, stream);
        heap_rest(&stream, 1);
        cr_assert(largest_free_of(stream) == size_bytes);
    }
    before = memory_calls();
    berm_status_t status = berm_alloc(size_bytes + 512, 0, stream, &addr);
    if (status == BERM_OK)
        heap_free(addr, stream);
    cr_assert(status != BERM_OK || memory_calls() > before,
              "%llu bytes were said to be the largest, and 512 more made no call",
              (unsigned long long)size_bytes);
}

Test(largest, free_of_a_stream_never_seen) {
    heap_fixture_begin(NULL);
    cr_assert(largest_free_of(NULL) == 0);
    (void)heap_alloc(1000, NULL);
    cr_assert(largest_free_of(heap_stream_create()) == 0);
    BERM_TEST_END();
}

Test(largest, free_is_exact_when_only_small_slots_are_left) {
    static const uint64_t sizes[] = {1, 512, 3000, 5120, 20000, 33000, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        heap_fixture_begin(NULL);
        void *stream = heap_stream_create();
        (void)heap_alloc(sizes[i], stream);
        for (uint64_t left; (left = largest_free_of(stream)) > 64 * KIB;)
            (void)heap_alloc(left, stream);
        cr_assert(largest_free_of(stream) > 0);
        exactness_check(stream);
        BERM_TEST_END();
    }
}

// An allocation that a full device may refuse.
static void alloc_or_full(uint64_t size_bytes, void *stream, berm_addr_t *out) {
    berm_status_t status = berm_alloc(size_bytes, 0, stream, out);
    cr_assert(status == BERM_OK || status == BERM_ERROR_OUT_OF_DEVICE_MEMORY, "%s",
              berm_status_name(status));
}

// Fill, punch holes, ask; many times over, on several streams and with few or many pages to move.
static void property_run(uint64_t seed, const heap_fixture_options_t *options,
                         uint64_t most_bytes) {
    enum {
        BLOCKS = 60
    };
    berm_addr_t blocks[BLOCKS] = {0};
    rng_state = seed;
    heap_fixture_begin(options);
    void *streams[3] = {heap_stream_create(), NULL, BERM_STREAM_NONE};
    for (int round = 0; round < 150; round++) {
        for (int i = 0; i < 12; i++) {
            berm_addr_t *block = &blocks[random_below(BLOCKS)];
            void *stream = streams[random_below(3)];
            if (*block != 0) {
                heap_free(*block, random_below(4) == 0 ? BERM_STREAM_NONE : stream);
                *block = 0;
                continue;
            }
            uint64_t size_bytes = 1 + random_below(random_below(2) == 0 ? 64 * KIB : most_bytes);
            alloc_or_full(size_bytes, stream, block);
        }
        heap_rest(streams, 3);
        exactness_check(streams[round % 3]);
        BERM_TEST_CHECK();
    }
    BERM_TEST_END();
}

Test(largest, free_is_exact_over_random_heaps) {
    for (uint64_t seed = 1; seed <= 4; seed++)
        property_run(seed * 7919, &(heap_fixture_options_t){.memory_bytes = 256 * MIB}, 9 * MIB);
}

Test(largest, free_is_exact_over_random_heaps_of_small_blocks) {
    for (uint64_t seed = 1; seed <= 4; seed++)
        property_run(seed * 104729, &(heap_fixture_options_t){.memory_bytes = 16 * MIB}, 70 * KIB);
}

Test(largest, free_is_exact_on_a_device_that_is_nearly_full) {
    for (uint64_t seed = 1; seed <= 4; seed++)
        property_run(seed * 15485863, &(heap_fixture_options_t){.memory_bytes = 64 * MIB}, 9 * MIB);
}

Test(largest, free_is_exact_when_pages_do_not_move) {
    property_run(32452843, &(heap_fixture_options_t){.memory_bytes = 64 * MIB, .berm = "remap:off"},
                 9 * MIB);
}

Test(largest, free_is_exact_with_thread_caches) {
    for (uint64_t seed = 1; seed <= 4; seed++)
        property_run(seed * 49979687,
                     &(heap_fixture_options_t){.memory_bytes = 64 * MIB, .has_caches = 1}, 9 * MIB);
}

Test(largest, free_is_exact_with_thread_caches_and_small_blocks) {
    for (uint64_t seed = 1; seed <= 4; seed++)
        property_run(seed * 86028121,
                     &(heap_fixture_options_t){.memory_bytes = 16 * MIB, .has_caches = 1},
                     70 * KIB);
}

Test(largest, free_waits_for_nothing) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t addr = heap_alloc(10 * MIB, stream);
    uint64_t gate, largest_bytes = largest_free_of(stream);
    cr_assert(simcuda_gate(other, NULL, 0, &gate) == 0);
    heap_free(addr, other);
    cr_assert(largest_free_of(stream) == largest_bytes); // awaited memory is not free
    cr_assert(simcuda_gate_open(gate) == 0);
    heap_stream_synchronize(other);
    cr_assert(largest_free_of(stream) >= 10 * MIB);
    BERM_TEST_END();
}

// --- obtainable --------------------------------------------------------------------------------

static uint64_t obtainable_of(void *stream) {
    uint64_t size_bytes = 7;
    EXPECT(BERM_OK, berm_largest_obtainable_read(0, stream, &size_bytes));
    return size_bytes;
}

// The promise is kept.
static void obtainable_check(void *stream) {
    berm_addr_t addr = 0;
    uint64_t size_bytes = obtainable_of(stream);
    cr_assert(size_bytes >= largest_free_of(stream));
    EXPECT(BERM_OK, berm_alloc(size_bytes, 0, stream, &addr));
    heap_use(stream, addr, size_bytes, 1);
    heap_free(addr, stream);
    heap_context_synchronize();
    BERM_TEST_CHECK();
}

Test(largest, obtainable_of_an_empty_device_is_all_of_it) {
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = 64 * MIB});
    void *stream = heap_stream_create();
    cr_assert(obtainable_of(stream) == 64 * MIB);
    obtainable_check(stream);
    EXPECT(BERM_OK, berm_limit_set(0, 20 * MIB));
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(obtainable_of(stream) == 20 * MIB);
    obtainable_check(stream);
    EXPECT(BERM_OK, berm_trim(0, 0, NULL));
    cr_assert(simcuda_outside_set(0, 50 * MIB) == 0);
    cr_assert(obtainable_of(stream) == 14 * MIB);
    obtainable_check(stream);
    BERM_TEST_END();
}

// Blocks of random sizes on three streams, some freed: what is said to be obtainable is obtained.
static void obtainable_run(uint64_t seed, const heap_fixture_options_t *options) {
    enum {
        BLOCKS = 40
    };
    berm_addr_t blocks[BLOCKS] = {0};
    rng_state = seed;
    heap_fixture_begin(options);
    void *streams[3] = {heap_stream_create(), heap_stream_create(), NULL};
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 20; i++) {
            berm_addr_t *block = &blocks[random_below(BLOCKS)];
            void *stream = streams[random_below(3)];
            if (*block == 0) {
                alloc_or_full(1 + random_below(random_below(3) == 0 ? 64 * KIB : 8 * MIB), stream,
                              block);
                continue;
            }
            heap_free(*block, stream);
            *block = 0;
        }
        heap_rest(streams, 3);
        obtainable_check(streams[round % 3]);
    }
    BERM_TEST_END();
}

Test(largest, obtainable_is_obtained_on_a_heap_at_rest) {
    for (uint64_t seed = 1; seed <= 3; seed++)
        obtainable_run(seed * 179424673, &(heap_fixture_options_t){.memory_bytes = 128 * MIB});
}

Test(largest, obtainable_is_obtained_with_large_handles) {
    obtainable_run(982451653, &(heap_fixture_options_t){.memory_bytes = 256 * MIB,
                                                        .berm = "growth_handle:4M,headroom:0"});
}

Test(largest, obtainable_is_obtained_with_thread_caches) {
    obtainable_run(654188383,
                   &(heap_fixture_options_t){.memory_bytes = 128 * MIB, .has_caches = 1});
}

Test(largest, obtainable_is_obtained_when_pages_do_not_move) {
    obtainable_run(472882027,
                   &(heap_fixture_options_t){.memory_bytes = 128 * MIB, .berm = "remap:off"});
}
