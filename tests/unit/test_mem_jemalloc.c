// SPDX-License-Identifier: Apache-2.0
// The jemalloc backend of host/mem.h, in a program that is linked with jemalloc.
#include <criterion/criterion.h>
#include <string.h>

#include "base/rng.h"
#include "host/mem.h"

extern int mallctl(const char *name, void *old, size_t *old_length, void *new_, size_t new_length);

static unsigned arena_count(void) {
    unsigned count = 0;
    size_t length = sizeof count;
    cr_assert(mallctl("arenas.narenas", &count, &length, NULL, 0) == 0);
    return count;
}

Test(mem_jemalloc, auto_takes_it_and_makes_one_arena) {
    unsigned before = arena_count();
    cr_assert_str_eq(berm__mem_backend_name(), "jemalloc");
    void *memory = berm__mem_alloc(100);
    cr_assert(memory != NULL);
    cr_assert(arena_count() == before + 1);
    berm__mem_free(memory, 100);
    cr_assert(berm__mem_backend_select(BERM_MEM_MMAP));
    cr_assert(berm__mem_backend_select(BERM_MEM_JEMALLOC));
    cr_assert(arena_count() == before + 1);
}

Test(mem_jemalloc, memory_comes_from_the_private_arena) {
    cr_assert(berm__mem_backend_select(BERM_MEM_JEMALLOC));
    void *memory = berm__mem_alloc(1000);
    unsigned arena = 0;
    size_t length = sizeof arena;
    cr_assert(mallctl("arenas.lookup", &arena, &length, &memory, sizeof memory) == 0);
    cr_assert(arena == arena_count() - 1);
    berm__mem_free(memory, 1000);
}

Test(mem_jemalloc, zeroed_and_aligned) {
    cr_assert(berm__mem_backend_select(BERM_MEM_JEMALLOC));
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    for (int i = 0; i < 2000; i++) {
        size_t size = berm__rng_below(&rng, (uint64_t)1 << berm__rng_below(&rng, 18));
        unsigned char *memory = berm__mem_alloc(size);
        cr_assert(memory != NULL && (uintptr_t)memory % 16 == 0);
        for (size_t j = 0; j < size; j++)
            cr_assert(memory[j] == 0);
        memset(memory, 0xff, size);
        berm__mem_free(memory, size);
    }
    cr_assert(berm__mem_held_bytes() == 0);
    cr_assert(berm__mem_alloc((size_t)1 << 62) == NULL);
}
