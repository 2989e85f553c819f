// SPDX-License-Identifier: Apache-2.0
// host/mem.h: zeroing, alignment, counting, faults and the backends that every process has.
// test_mem_jemalloc.c has the third.
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/rng.h"
#include "host/mem.h"
#include "host/track.h"

static const berm_mem_backend_t backends[] = {BERM_MEM_MMAP, BERM_MEM_LIBC};

static bool is_zero(const void *memory, size_t size_bytes) {
    const unsigned char *bytes = memory;
    for (size_t i = 0; i < size_bytes; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

Test(mem, backend_by_default) {
#ifdef BERM_ASAN_ON
    cr_assert_str_eq(berm__mem_backend_name(), "libc");
#else
    cr_assert_str_eq(berm__mem_backend_name(), "mmap");
#endif
}

Test(mem, backend_select) {
    cr_assert(berm__mem_backend_select(BERM_MEM_LIBC));
    cr_assert_str_eq(berm__mem_backend_name(), "libc");
    cr_assert(!berm__mem_backend_select(BERM_MEM_JEMALLOC));
    cr_assert(!berm__mem_backend_select((berm_mem_backend_t)99));
    cr_assert_str_eq(berm__mem_backend_name(), "libc");
    void *memory = berm__mem_alloc(1);
    cr_assert(!berm__mem_backend_select(BERM_MEM_MMAP));
    berm__mem_free(memory, 1);
    cr_assert(berm__mem_backend_select(BERM_MEM_MMAP));
    cr_assert_str_eq(berm__mem_backend_name(), "mmap");
    cr_assert(berm__mem_backend_select(BERM_MEM_AUTO));
}

// Random allocations and frees, each filled with its own byte: overlap or loss shows.
static void backend_run(uint64_t seed) {
    enum {
        SLOTS = 64
    };
    unsigned char *memory[SLOTS] = {NULL};
    size_t sizes[SLOTS] = {0};
    uint64_t held = 0;
    berm_rng_t rng;
    berm__rng_seed(&rng, seed);
    for (int i = 0; i < 4000; i++) {
        size_t slot = berm__rng_below(&rng, SLOTS);
        if (memory[slot] != NULL) {
            for (size_t j = 0; j < sizes[slot]; j += 1 + sizes[slot] / 32)
                cr_assert(memory[slot][j] == slot + 1);
            berm__mem_free(memory[slot], sizes[slot]);
            held -= sizes[slot];
            memory[slot] = NULL;
        } else {
            sizes[slot] = 1 + berm__rng_below(&rng, (uint64_t)1 << (4 + berm__rng_below(&rng, 14)));
            memory[slot] = berm__mem_alloc(sizes[slot]);
            cr_assert(memory[slot] != NULL);
            cr_assert((uintptr_t)memory[slot] % 16 == 0);
            cr_assert(is_zero(memory[slot], sizes[slot]));
            memset(memory[slot], (int)slot + 1, sizes[slot]);
            held += sizes[slot];
        }
        cr_assert(berm__mem_held_bytes() == held);
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        berm__mem_free(memory[slot], memory[slot] != NULL ? sizes[slot] : 0);
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(mem, random_use_of_each_backend) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(backends); i++) {
        cr_assert(berm__mem_backend_select(backends[i]));
        backend_run(i);
        backend_run(i + 10);
    }
}

// Each size near a class edge of the mmap backend: neighbours must not overlap.
Test(mem, edges_of_mmap_classes) {
    cr_assert(berm__mem_backend_select(BERM_MEM_MMAP));
    for (size_t edge = 16; edge <= 65536; edge += edge < 128 ? 16 : edge / 8) {
        for (size_t size = edge - 1; size <= edge + 1; size++) {
            unsigned char *a = berm__mem_alloc(size), *b = berm__mem_alloc(size);
            cr_assert(a != NULL && b != NULL);
            memset(a, 0xff, size);
            memset(b, 0xee, size);
            cr_assert(a[0] == 0xff && a[size - 1] == 0xff);
            berm__mem_free(a, size);
            unsigned char *again = berm__mem_alloc(size);
            cr_assert(is_zero(again, size));
            cr_assert(b[0] == 0xee && b[size - 1] == 0xee);
            berm__mem_free(again, size);
            berm__mem_free(b, size);
        }
    }
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(mem, size_zero_and_null) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(backends); i++) {
        cr_assert(berm__mem_backend_select(backends[i]));
        void *memory = berm__mem_alloc(0);
        cr_assert(memory != NULL && berm__mem_held_bytes() == 0);
        berm__mem_free(memory, 0);
        berm__mem_free(NULL, 100);
        cr_assert(berm__mem_held_bytes() == 0);
    }
}

Test(mem, sizes_that_no_host_has) {
    cr_assert(berm__mem_backend_select(BERM_MEM_MMAP));
    cr_assert(berm__mem_alloc(SIZE_MAX) == NULL);
    cr_assert(berm__mem_alloc((size_t)1 << 62) == NULL);
    cr_assert(berm__mem_reserve((size_t)1 << 62) == NULL);
    cr_assert(berm__mem_reserve(SIZE_MAX) == NULL);
    cr_assert(berm__mem_reserve(0) == NULL);
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

Test(mem, reserve_is_zero_and_counted_apart) {
    const size_t size = (size_t)BERM_GIB(4);
    unsigned char *memory = berm__mem_reserve(size);
    cr_assert(memory != NULL);
    cr_assert(berm__mem_reserved_bytes() == size && berm__mem_held_bytes() == 0);
    cr_assert(memory[0] == 0 && memory[size - 1] == 0);
    memory[0] = memory[size - 1] = 1;
    berm__mem_unreserve(memory, size);
    berm__mem_unreserve(NULL, size);
    cr_assert(berm__mem_reserved_bytes() == 0);
}

Test(mem, faults) {
    berm__mem_fault_nth(2, 2);
    void *first = berm__mem_alloc(8);
    cr_assert(first != NULL);
    cr_assert(berm__mem_alloc(8) == NULL);
    cr_assert(berm__mem_reserve(4096) == NULL);
    void *fourth = berm__mem_alloc(8);
    cr_assert(fourth != NULL);
    cr_assert(berm__mem_calls() == 4 && berm__mem_held_bytes() == 16);
    berm__mem_fault_nth(1, 0);
    for (int i = 0; i < 10; i++)
        cr_assert(berm__mem_alloc(8) == NULL);
    cr_assert(berm__mem_calls() == 10);
    berm__mem_fault_nth(UINT64_MAX, 5);
    void *fifth = berm__mem_alloc(8);
    cr_assert(fifth != NULL);
    berm__mem_fault_nth(0, 0);
    cr_assert(berm__mem_calls() == 0);
    void *sixth = berm__mem_alloc(8);
    cr_assert(sixth != NULL);
    berm__mem_free(first, 8);
    berm__mem_free(fourth, 8);
    berm__mem_free(fifth, 8);
    berm__mem_free(sixth, 8);
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(mem, a_free_of_more_than_was_allocated_aborts, .signal = SIGABRT) {
    void *memory = berm__mem_alloc(8);
    berm__mem_free(memory, 16);
}

static void *thread_run(void *seed) {
    berm_rng_t rng;
    berm__rng_seed(&rng, (uint64_t)(uintptr_t)seed);
    for (int i = 0; i < 2000; i++) {
        size_t size = 1 + berm__rng_below(&rng, 3000);
        unsigned char *memory = berm__mem_alloc(size);
        if (memory == NULL || !is_zero(memory, size))
            return seed;
        memset(memory, (int)(uintptr_t)seed, size);
        berm__mem_free(memory, size);
    }
    return NULL;
}

Test(mem, threads) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(backends); i++) {
        cr_assert(berm__mem_backend_select(backends[i]));
        pthread_t threads[4];
        for (uintptr_t j = 0; j < 4; j++)
            cr_assert(pthread_create(&threads[j], NULL, thread_run, (void *)(j + 1)) == 0);
        for (int j = 0; j < 4; j++) {
            void *failed;
            cr_assert(pthread_join(threads[j], &failed) == 0 && failed == NULL);
        }
        cr_assert(berm__mem_held_bytes() == 0);
    }
}
