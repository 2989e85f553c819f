// SPDX-License-Identifier: Apache-2.0
// Points against each other: berm's moved share over naive's at the same cap, and its time over
// expandable's on the same device; and what that comes to over all traces.
#ifndef STRESS_CURVES_COMPARE_H
#define STRESS_CURVES_COMPARE_H

#include "stress/curves/curves.h"

#define CURVES_SHARE_LEAST     0.02 // of naive's moved share, for a ratio to count
#define CURVES_RATIO_LEAST     0.01 // what a smaller ratio counts as, since 0 has no logarithm
#define CURVES_HEADROOM_SHARES 10.0 // the largest cap, in percent, that the shares are compared at

// Sets ratio and break_even of all points; they may be of several traces.
void curves_compare(const curves_options_t *options, curves_point_t *points, size_t count);

// One berm variant under one latency, over all traces.
typedef struct curves_summary {
    uint32_t variant, latency;
    // Moved share over naive's, at caps up to CURVES_HEADROOM_SHARES.
    uint32_t share_count;      // ratios that count
    uint32_t share_above;      // naive's share is below CURVES_SHARE_LEAST, berm's is not
    uint32_t share_none;       // berm or naive did not finish
    double share_mean;         // geometric; < 0 for none, and where berm never moves a page
    double share_max;          // the same
    uint32_t share_max_trace;  // where
    double share_max_headroom; // at which cap
    // Driver time and waits over expandable's, where that releases memory.
    uint32_t time_count, time_above; // above a third
    double time_mean, time_max;      // < 0 for none
    uint32_t time_max_trace;
} curves_summary_t;

// `summaries` has room for CURVES_VARIANTS_MAX x CURVES_LATENCIES_MAX; returns how many.
size_t curves_summarize(const curves_options_t *options, const curves_point_t *points, size_t count,
                        curves_summary_t *summaries);

#endif
