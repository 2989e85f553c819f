// SPDX-License-Identifier: Apache-2.0
// base/rng.h: the published sequence of splitmix64, bounds, and a rough look at evenness.
#include <criterion/criterion.h>

#include "base/rng.h"

Test(rng, known_sequence) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 0);
    cr_assert(berm__rng_next(&rng) == UINT64_C(0xe220a8397b1dcdaf));
    cr_assert(berm__rng_next(&rng) == UINT64_C(0x6e789e6aa1b965f4));
    cr_assert(berm__rng_next(&rng) == UINT64_C(0x06c45d188009454f));
}

Test(rng, below_keeps_its_bound_and_is_even) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 42);
    unsigned counts[10] = {0};
    for (int i = 0; i < 10000; i++) {
        uint64_t value = berm__rng_below(&rng, 10);
        cr_assert(value < 10);
        counts[value]++;
    }
    for (int i = 0; i < 10; i++)
        cr_assert(counts[i] > 850 && counts[i] < 1150, "%d came %u times", i, counts[i]);
    cr_assert(berm__rng_below(&rng, 1) == 0);
}

Test(rng, unit_is_in_its_interval) {
    berm_rng_t rng;
    berm__rng_seed(&rng, 7);
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double value = berm__rng_unit(&rng);
        cr_assert(value >= 0 && value < 1);
        sum += value;
    }
    cr_assert(sum > 4800 && sum < 5200);
}
