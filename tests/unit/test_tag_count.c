// SPDX-License-Identifier: Apache-2.0
// I39: the audit, when what is counted by tag and the blocks' tags are made to disagree by hand.
#include <criterion/criterion.h>
#include <string.h>

#include "berm_diagnose.h"
#include "tests/support/heap_inside.h"

static void audit_expect(int number) {
    char error[256] = "";
    int found = berm__audit_run(error, sizeof error);
    cr_assert(found == number, "expected I%d, the audit says I%d: %s", number, found, error);
    cr_assert(number == 0 || strncmp(error, "I39: device 0", 13) == 0, "%s", error);
}

// Breaks a member, expects I39, and mends it.
#define BREAKS(member, value)                                                                      \
    do {                                                                                           \
        __typeof__(member) kept_ = (member);                                                       \
        (member) = (value);                                                                        \
        audit_expect(39);                                                                          \
        (member) = kept_;                                                                          \
        audit_expect(0);                                                                           \
    } while (0)

Test(tag_count, I39_tags_are_counted) {
    heap_fixture_begin(NULL);
    cr_assert(berm_tag_push("tagged") == BERM_OK);
    berm_addr_t small = heap_alloc(700, NULL), large = heap_alloc(1000000, NULL);
    cr_assert(berm_tag_pop() == BERM_OK);
    (void)heap_alloc(900, NULL);
    audit_expect(0);
    berm_tag_count_t *count = &heap_device()->tags[1];
    berm_pool_t *pool = heap_pool(NULL);
    berm_segment_t *segment = heap_segment(pool);
    uintptr_t cell = berm__segment_cell_read(segment, small - segment->base);
    berm_slab_t *slab = (berm_slab_t *)(cell - BERM_CELL_IS_SLAB);
    cr_assert(count->blocks_up == 2 && count->requested_up == 1000700);
    BREAKS(count->blocks_up, 3);
    BREAKS(count->requested_down, 1);
    BREAKS(count->allocated_up, 0);
    BREAKS(heap_range(pool, large)->tag, 0);
    uint32_t slot = berm__size_class_slot_of(slab->size_class, small - slab->base);
    BREAKS(slab->slot[slot].tag, 2);
    BERM_TEST_END_INSIDE();
}
