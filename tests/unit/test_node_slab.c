// SPDX-License-Identifier: Apache-2.0
// host/node_slab.h: distinct aligned objects, secured takes, failing host memory, counting.
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "base/rng.h"
#include "host/mem.h"
#include "host/node_slab.h"

enum {
    OBJECTS_MAX = 600
};

static const size_t object_sizes[] = {1, 8, 16, 17, 64, 96, 1000, 4096, 65536};

static void slab_run(size_t object_bytes) {
    static unsigned char *objects[OBJECTS_MAX];
    size_t count = 0, most = object_bytes > 4096 ? 20 : OBJECTS_MAX;
    berm_node_slab_t slab;
    berm_rng_t rng;
    berm__rng_seed(&rng, object_bytes);
    berm__node_slab_init(&slab, object_bytes);
    for (size_t i = 0; i < 4 * most; i++) {
        if (count < most && berm__rng_below(&rng, 3) != 0) {
            unsigned char *object = berm__node_slab_take(&slab);
            cr_assert(object != NULL && (uintptr_t)object % 16 == 0);
            memset(object, (int)(count % 251), object_bytes);
            objects[count++] = object;
        } else if (count > 0) {
            unsigned char *object = objects[--count];
            for (size_t j = 0; j < object_bytes; j++)
                cr_assert(object[j] == count % 251);
            berm__node_slab_give(&slab, object);
        }
        cr_assert(berm__node_slab_live(&slab) == count);
    }
    cr_assert(berm__mem_held_bytes() >= count * object_bytes);
    berm__node_slab_destroy(&slab); // with objects still taken
    cr_assert(berm__node_slab_live(&slab) == 0 && berm__mem_held_bytes() == 0);
    void *object = berm__node_slab_take(&slab); // usable again
    cr_assert(object != NULL);
    berm__node_slab_give(&slab, object);
    berm__node_slab_destroy(&slab);
}

Test(node_slab, random_use_at_each_size) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(object_sizes); i++)
        slab_run(object_sizes[i]);
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(node_slab, init_allocates_nothing) {
    berm_node_slab_t slab;
    berm__mem_fault_nth(0, 0);
    berm__node_slab_init(&slab, 64);
    cr_assert(berm__node_slab_reserve(&slab, 0));
    cr_assert(berm__mem_calls() == 0);
    berm__node_slab_destroy(&slab);
}

Test(node_slab, takes_after_reserve_do_not_fail) {
    static const uint64_t counts[] = {1, 3, 100, 5000};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(counts); i++) {
        berm_node_slab_t slab;
        berm__node_slab_init(&slab, 48);
        cr_assert(berm__node_slab_reserve(&slab, counts[i]));
        cr_assert(berm__node_slab_live(&slab) == 0);
        berm__mem_fault_nth(1, 0);
        void *last = NULL;
        for (uint64_t j = 0; j < counts[i]; j++) {
            last = berm__node_slab_take(&slab);
            cr_assert(last != NULL);
        }
        cr_assert(berm__mem_calls() == 0);
        berm__node_slab_give(&slab, last);
        cr_assert(berm__node_slab_take(&slab) == last);
        berm__mem_fault_nth(0, 0);
        berm__node_slab_destroy(&slab);
    }
}

// Only what is missing is added: a reserve of one more does not double the slab.
Test(node_slab, reserve_counts_what_is_free) {
    berm_node_slab_t slab;
    berm__node_slab_init(&slab, 48);
    cr_assert(berm__node_slab_reserve(&slab, 20000));
    uint64_t held = berm__mem_held_bytes();
    cr_assert(held >= 20000 * 48 && held < 20000 * 48 + 100);
    cr_assert(berm__node_slab_reserve(&slab, 20000) && berm__mem_held_bytes() == held);
    cr_assert(berm__node_slab_reserve(&slab, 20001));
    cr_assert(berm__mem_held_bytes() <= held + BERM_KIB(32));
    berm__node_slab_destroy(&slab);
}

Test(node_slab, failing_host_memory_changes_nothing) {
    berm_node_slab_t slab;
    berm__node_slab_init(&slab, 48);
    berm__mem_fault_nth(1, 0);
    cr_assert(berm__node_slab_take(&slab) == NULL);
    cr_assert(!berm__node_slab_reserve(&slab, 1));
    cr_assert(berm__node_slab_live(&slab) == 0 && berm__mem_held_bytes() == 0);
    berm__mem_fault_nth(0, 0);
    cr_assert(berm__node_slab_reserve(&slab, 1));
    uint64_t spare = slab.free_count;
    berm__mem_fault_nth(1, 0);
    cr_assert(berm__node_slab_reserve(&slab, spare));
    cr_assert(!berm__node_slab_reserve(&slab, spare + 1));
    cr_assert(!berm__node_slab_reserve(&slab, UINT64_MAX));
    cr_assert(slab.free_count == spare);
    berm__mem_fault_nth(0, 0);
    cr_assert(!berm__node_slab_reserve(&slab, UINT64_MAX));
    berm__node_slab_destroy(&slab);
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(node_slab, object_of_no_size_aborts, .signal = SIGABRT) {
    berm_node_slab_t slab;
    berm__node_slab_init(&slab, 0);
}

#if BERM_CHECK_LEVEL >= 1
Test(node_slab, giving_more_than_was_taken_aborts, .signal = SIGABRT) {
    berm_node_slab_t slab;
    berm__node_slab_init(&slab, 64);
    void *object = berm__node_slab_take(&slab);
    berm__node_slab_give(&slab, object);
    berm__node_slab_give(&slab, object);
}
#endif

#ifdef BERM_ASAN_ON
Test(node_slab, free_objects_are_poisoned) {
    berm_node_slab_t slab;
    berm__node_slab_init(&slab, 64);
    char *object = berm__node_slab_take(&slab);
    cr_assert(!__asan_address_is_poisoned(object) && !__asan_address_is_poisoned(object + 63));
    cr_assert(__asan_address_is_poisoned(object + 64));
    berm__node_slab_give(&slab, object);
    cr_assert(__asan_address_is_poisoned(object) && __asan_address_is_poisoned(object + 63));
    berm__node_slab_destroy(&slab);
}
#endif
