// SPDX-License-Identifier: Apache-2.0
// core/size_class.h: the bounds W1 to W4 of its header, for every size and class.
#include <criterion/criterion.h>
#include <signal.h>

#include "core/size_class.h"

Test(size_class, every_size_gets_the_smallest_class_that_holds_it) {
    unsigned expected = 0;
    for (uint64_t size = 1; size <= BERM_SMALL_MAX_BYTES; size++) {
        if (size > berm__size_class_bytes(expected))
            expected++;
        cr_assert(expected < BERM_SIZE_CLASS_COUNT);
        cr_assert(berm__size_class_of(size) == expected, "size %d", (int)size);
    }
    cr_assert(expected == BERM_SIZE_CLASS_COUNT - 1);
}

Test(size_class, w1_waste_in_a_slot) {
    for (uint64_t size = 1; size <= BERM_SMALL_MAX_BYTES; size++) {
        uint64_t bytes = berm__size_class_bytes(berm__size_class_of(size));
        uint64_t waste = bytes - size;
        cr_assert(waste < 512 || waste * 4 < size, "size %d", (int)size);
        cr_assert(bytes <= 2048 || waste * 5 <= bytes, "size %d", (int)size);
    }
}

Test(size_class, steps) {
    for (unsigned i = 0; i < BERM_SIZE_CLASS_COUNT; i++) {
        uint64_t bytes = berm__size_class_bytes(i);
        cr_assert(bytes % 512 == 0);
        if (i < BERM_SIZE_CLASS_LINEAR)
            cr_assert(bytes == (i + 1) * UINT64_C(512));
        else
            cr_assert(bytes == berm__size_class_bytes(i - 4) * 2);
    }
    cr_assert(berm__size_class_bytes(BERM_SIZE_CLASS_COUNT - 1) == BERM_SMALL_MAX_BYTES);
}

static bool slab_keeps_bounds(uint64_t slab_bytes, uint64_t bytes) {
    return slab_bytes / bytes >= 8 && slab_bytes % bytes * 16 <= slab_bytes;
}

Test(size_class, w2_w3_w4_slabs) {
    for (unsigned i = 0; i < BERM_SIZE_CLASS_COUNT; i++) {
        uint64_t bytes = berm__size_class_bytes(i), slab = berm__size_class_slab_bytes(i);
        cr_assert(slab % BERM_CELL_BYTES == 0 && slab <= BERM_KIB(512));
        cr_assert(berm__size_class_slots(i) == slab / bytes);
        cr_assert(slab_keeps_bounds(slab, bytes), "class %u", i);
        for (uint64_t less = BERM_CELL_BYTES; less < slab; less += BERM_CELL_BYTES)
            cr_assert(!slab_keeps_bounds(less, bytes), "class %u has a smaller slab", i);
    }
}

#if BERM_CHECK_LEVEL >= 1
Test(size_class, size_zero_aborts, .signal = SIGABRT) {
    (void)berm__size_class_of(0);
}

Test(size_class, large_size_aborts, .signal = SIGABRT) {
    (void)berm__size_class_of(BERM_SMALL_MAX_BYTES + 1);
}

Test(size_class, no_such_class_aborts, .signal = SIGABRT) {
    (void)berm__size_class_bytes(BERM_SIZE_CLASS_COUNT);
}
#endif
