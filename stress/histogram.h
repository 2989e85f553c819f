// SPDX-License-Identifier: Apache-2.0
// Times of many short operations in fixed memory: exact below 256 ns, within 1/128 above.
#ifndef STRESS_HISTOGRAM_H
#define STRESS_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_BUCKETS = 256 + 56 * 128
};

typedef struct histogram {
    uint64_t count, sum_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
} histogram_t;

void histogram_add(histogram_t *histogram, uint64_t ns);
double histogram_mean(const histogram_t *histogram); // 0 when empty
// The smallest value that at least `per_mille` thousandths of the values do not exceed, to within
// the bucket's width; 0 when empty.
uint64_t histogram_quantile(const histogram_t *histogram, unsigned per_mille);

#endif
