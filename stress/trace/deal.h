// SPDX-License-Identifier: Apache-2.0
// Deals the blocks of a trace over other streams than it was recorded with: what a program of that
// many streams could have done with the same sizes in the same order.
//
// The streams take turns, drawn from the seed: before each alloc the turn goes to any stream with a
// chance of 1 in 16, or more in a trace so short that a stream would have fewer than 8. A quarter
// of the blocks is also used by another stream when it is freed: their frees are deferred, and done
// 1 to 100 events later. What was deferred in the recording stays so. With one stream all blocks
// are on it, and nothing else is deferred.
#ifndef STRESS_TRACE_DEAL_H
#define STRESS_TRACE_DEAL_H

#include "stress/trace/trace.h"

enum {
    TRACE_DEAL_STREAMS_MAX = 4096,
};

// A new trace over `streams` streams, 1 to TRACE_DEAL_STREAMS_MAX; the same for the same seed. Its
// blocks have the numbers of the old one's. NULL with a line in `error` without memory.
trace_t *trace_deal(const trace_t *trace, uint64_t streams, uint64_t seed, char *error,
                    size_t error_capacity);

#endif
