// SPDX-License-Identifier: Apache-2.0
// base/bits.h against plain loops, and the edges of checked arithmetic.
#include <criterion/criterion.h>

#include "base/bits.h"
#include "base/rng.h"

Test(bits, scans_agree_with_a_loop) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 1);
    for (int i = 0; i < 2000; i++) {
        uint64_t x = berm__rng_next(&rng) >> berm__rng_below(&rng, 64);
        if (x == 0)
            continue;
        unsigned lowest = 0, highest = 63;
        while ((x >> lowest & 1) == 0)
            lowest++;
        while ((x >> highest & 1) == 0)
            highest--;
        cr_assert(berm__bit_lowest(x) == lowest);
        cr_assert(berm__bit_highest(x) == highest);
    }
}

Test(bits, powers_of_two) {
    cr_assert(!berm__is_pow2(0));
    for (unsigned i = 0; i < 64; i++) {
        cr_assert(berm__is_pow2((uint64_t)1 << i));
        cr_assert(!berm__is_pow2(((uint64_t)1 << i) + 1) || i == 0);
    }
}

Test(bits, alignment) {
    cr_assert(berm__align_up(0, 512) == 0);
    cr_assert(berm__align_up(1, 512) == 512);
    cr_assert(berm__align_up(512, 512) == 512);
    cr_assert(berm__align_up(513, 512) == 1024);
    cr_assert(berm__align_down(511, 512) == 0);
    cr_assert(berm__align_down(1023, 512) == 512);
    cr_assert(berm__align_down(UINT64_MAX, 1) == UINT64_MAX);
    cr_assert(berm__is_aligned(1024, 512));
    cr_assert(!berm__is_aligned(1025, 512));
}

Test(bits, checked_arithmetic_writes_only_on_success) {
    uint64_t out = 7;
    cr_assert(!berm__add_checked(UINT64_MAX, 1, &out));
    cr_assert(!berm__mul_checked((uint64_t)1 << 32, (uint64_t)1 << 32, &out));
    cr_assert(berm__add_checked(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
    cr_assert(berm__mul_checked((uint64_t)1 << 32, ((uint64_t)1 << 32) - 1, &out));
    cr_assert(out == UINT64_MAX - UINT32_MAX);
}

Test(bits, least_and_most) {
    cr_assert(berm__min_u64(1, 2) == 1 && berm__min_u64(2, 1) == 1);
    cr_assert(berm__max_u64(1, 2) == 2 && berm__max_u64(2, 1) == 2);
}
