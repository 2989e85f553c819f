// SPDX-License-Identifier: Apache-2.0
// berm and expandable on the smallest device on which both finish.
//
// The capacity is the larger of the two smallest ones under the first latency. Times change with
// the latency, and what finishes may change with them: where one of the two does not finish on that
// device under another latency, the next granules are tried, as many as STEPS_MAX; the capacity of
// a point says what it came to. Points of a pair that never finishes stay without figures.
// Bounds: two fits and a few replays a berm variant; expandable's fit is made once.
// Locks: none. May fail: as points.c.
#include <string.h>

#include "base/bits.h"
#include "stress/curves/inside.h"
#include "stress/fit.h"

enum {
    STEPS_MAX = 64
};

typedef struct common {
    const curves_options_t *options;
    const trace_t *trace;
    curves_point_t *points;
    uint64_t granule_bytes;
    uint64_t capacities[CURVES_VARIANTS_MAX]; // of each berm variant so far; 0: not yet
    bool is_without[CURVES_VARIANTS_MAX];     // no capacity was found
    uint64_t expandable_bytes;                // 0: not yet
    char *error;
    size_t error_capacity;
} common_t;

// 1 with the smallest capacity; 0 when there is none; -1 with a line.
static int common_fit(common_t *c, const curves_point_t *point, uint64_t *capacity_bytes) {
    stress_replay_options_t replay;
    stress_fit_result_t fit;
    curves_replay_options(c->options, point, &replay);
    replay.capacity_bytes = 0;
    int status = stress_fit(c->trace, &replay, &fit, c->error, c->error_capacity);
    *capacity_bytes = fit.min_capacity_bytes;
    return status < 0 ? -1 : status == 0;
}

static int common_capacity(common_t *c, const curves_point_t *pair) {
    uint64_t bytes = 0;
    if (c->expandable_bytes == 0) {
        int status = common_fit(c, &pair[1], &c->expandable_bytes);
        if (status <= 0)
            return status;
    }
    if (c->expandable_bytes == UINT64_MAX)
        return 0;
    int status = common_fit(c, &pair[0], &bytes);
    if (status == 1)
        c->capacities[pair->variant] = berm__max_u64(bytes, c->expandable_bytes);
    return status;
}

// Both at the capacity, or at the next where both finish.
static int common_pair_run(common_t *c, curves_point_t *pair) {
    for (int step = 0; step < STEPS_MAX; step++) {
        bool is_done = true;
        for (int i = 0; i < 2 && is_done; i++) {
            pair[i].capacity_bytes = c->capacities[pair->variant];
            if (curves_point_run(c->options, c->trace, &pair[i], c->error, c->error_capacity) != 0)
                return -1;
            is_done = pair[i].is_done;
        }
        if (is_done)
            return 0;
        c->capacities[pair->variant] += c->granule_bytes;
    }
    pair[0].is_done = pair[1].is_done = false;
    return 0;
}

static int common_latency_run(common_t *c, size_t latency) {
    int status = 0;
    for (size_t i = 0, count = curves_point_count(c->options); i < count && status == 0; i++) {
        curves_point_t *pair = &c->points[i];
        if (pair->kind != CURVES_COMMON || pair->latency != latency)
            continue;
        i++; // the second of the pair
        bool *is_without = &c->is_without[pair->variant];
        if (c->capacities[pair->variant] == 0 && !*is_without) {
            int found = common_capacity(c, pair);
            if (found < 0)
                return -1;
            *is_without = found == 0;
        }
        if (!*is_without)
            status = common_pair_run(c, pair);
    }
    return status;
}

int curves_common_run(const curves_options_t *options, const trace_t *trace, curves_point_t *points,
                      char *error, size_t error_capacity) {
    common_t c = {.options = options,
                  .trace = trace,
                  .points = points,
                  .error = error,
                  .error_capacity = error_capacity};
    int status = 0;
    for (size_t latency = 0; latency < options->latency_count && status == 0; latency++) {
        if (curves_device_open(options, latency, error, error_capacity) != 0)
            return -1;
        c.granule_bytes = curves_granule_bytes();
        status = common_latency_run(&c, latency);
        stress_device_close();
    }
    return status;
}
