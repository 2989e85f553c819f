// SPDX-License-Identifier: Apache-2.0
// Quantiles of known values: exact below 256, within 1/128 above.
#include <criterion/criterion.h>

#include "stress/histogram.h"

static histogram_t histogram;

Test(histogram, is_exact_for_small_values) {
    for (uint64_t i = 1; i <= 100; i++)
        histogram_add(&histogram, i);
    cr_assert(histogram_quantile(&histogram, 500) == 50);
    cr_assert(histogram_quantile(&histogram, 990) == 99);
    cr_assert(histogram_quantile(&histogram, 1000) == 100);
    cr_assert(histogram_mean(&histogram) == 50.5);
}

Test(histogram, is_close_for_large_values) {
    for (uint64_t shift = 8; shift < 64; shift++) {
        histogram_t one = {0};
        uint64_t value = (UINT64_C(1) << shift) + (UINT64_C(1) << shift) / 3;
        histogram_add(&one, value);
        uint64_t got = histogram_quantile(&one, 500);
        cr_assert(got <= value && value - got <= value / 128, "2^%d", (int)shift);
    }
}

Test(histogram, is_zero_when_empty) {
    cr_assert(histogram_quantile(&histogram, 500) == 0);
    cr_assert(histogram_mean(&histogram) == 0);
}
