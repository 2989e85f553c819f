// SPDX-License-Identifier: Apache-2.0
// The histogram: see histogram.h. Layout: 256 buckets of 1 ns, then 128 for each doubling.
// O(1) to add, O(buckets) to ask. Nothing can fail.
#include "stress/histogram.h"

#include "base/bits.h"

static unsigned bucket_of(uint64_t ns) {
    if (ns < 256)
        return (unsigned)ns;
    unsigned exponent = berm__bit_highest(ns); // 8 to 63
    return 256 + (exponent - 8) * 128 + (unsigned)((ns >> (exponent - 7)) & 127);
}

// The smallest value of a bucket.
static uint64_t bucket_value(unsigned bucket) {
    if (bucket < 256)
        return bucket;
    unsigned exponent = 8 + (bucket - 256) / 128;
    return (uint64_t)(128 + (bucket - 256) % 128) << (exponent - 7);
}

void histogram_add(histogram_t *histogram, uint64_t ns) {
    histogram->count++;
    histogram->sum_ns += ns;
    histogram->buckets[bucket_of(ns)]++;
}

double histogram_mean(const histogram_t *histogram) {
    return histogram->count == 0 ? 0 : (double)histogram->sum_ns / (double)histogram->count;
}

uint64_t histogram_quantile(const histogram_t *histogram, unsigned per_mille) {
    uint64_t wanted = (histogram->count * per_mille + 999) / 1000, seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && histogram->count > 0; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted && seen > 0)
            return bucket_value(i);
    }
    return 0;
}
