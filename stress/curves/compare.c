// SPDX-License-Identifier: Apache-2.0
// Ratios between points, and their means. Pure functions of the points.
//
// Bounds: O(points^2) at worst within a trace's few hundred. Locks: none. Nothing fails.
#include "stress/curves/compare.h"

#include <math.h>

#include "stress/curves/inside.h"

// naive at the same cap, or NULL. Points of one trace stand together.
static const curves_point_t *naive_find(const curves_options_t *options,
                                        const curves_point_t *points, size_t count,
                                        const curves_point_t *like) {
    for (size_t i = 0; i < count; i++) {
        const curves_point_t *p = &points[i];
        if (p->trace == like->trace && p->kind == CURVES_CAPPED && p->latency == like->latency &&
            p->headroom_pct == like->headroom_pct &&
            curves_is_named(&options->variants[p->variant], "naive"))
            return p;
    }
    return NULL;
}

// Solves factor x driver + waits for both.
static double break_even_of(const curves_point_t *berm, const curves_point_t *other) {
    double drivers = (double)berm->driver_ns - (double)other->driver_ns;
    double waits = (double)other->host_wait_ns - (double)berm->host_wait_ns;
    if (drivers <= 0 && waits >= 0)
        return 0;
    if (drivers >= 0 && waits <= 0)
        return INFINITY;
    return waits / drivers;
}

static void compare_shares(const curves_options_t *options, const curves_point_t *points,
                           size_t count, curves_point_t *point) {
    const curves_point_t *naive = naive_find(options, points, count, point);
    if (naive != NULL && point->is_done && naive->is_done && naive->moved_bytes > 0)
        point->ratio = curves_moved_share(point) / curves_moved_share(naive);
}

static void compare_times(curves_point_t *point, const curves_point_t *expandable) {
    if (!point->is_done || !expandable->is_done || curves_time_ns(expandable) == 0)
        return;
    point->ratio = (double)curves_time_ns(point) / (double)curves_time_ns(expandable);
    point->break_even = break_even_of(point, expandable);
}

void curves_compare(const curves_options_t *options, curves_point_t *points, size_t count) {
    size_t per_trace = curves_point_count(options);
    for (size_t i = 0; i < count; i++) {
        curves_point_t *point = &points[i];
        if (!curves_is_named(&options->variants[point->variant], "berm"))
            continue;
        size_t first = i / per_trace * per_trace;
        if (point->kind == CURVES_CAPPED)
            compare_shares(options, points + first, per_trace, point);
        else if (point->kind == CURVES_COMMON)
            compare_times(point, point + 1);
    }
}

// --- over all traces -----------------------------------------------------------------------------

typedef struct sums {
    double shares, times; // of logarithms
} sums_t;

static double at_least(double ratio) {
    return ratio < CURVES_RATIO_LEAST ? CURVES_RATIO_LEAST : ratio;
}

static void add_share(curves_summary_t *s, sums_t *sums, const curves_point_t *point,
                      const curves_point_t *naive) {
    if (naive == NULL)
        return;
    if (!point->is_done || !naive->is_done) {
        s->share_none++;
        return;
    }
    if (curves_moved_share(naive) < CURVES_SHARE_LEAST) {
        s->share_above += curves_moved_share(point) >= CURVES_SHARE_LEAST;
        return;
    }
    s->share_count++;
    sums->shares += log(at_least(point->ratio));
    if (point->ratio <= s->share_max)
        return;
    s->share_max = point->ratio;
    s->share_max_trace = point->trace;
    s->share_max_headroom = point->headroom_pct;
}

static void add_time(curves_summary_t *s, sums_t *sums, const curves_point_t *point,
                     const curves_point_t *expandable) {
    if (point->ratio < 0 || expandable->calls.of[BERM_DRV_UNMAP] == 0)
        return;
    s->time_count++;
    s->time_above += point->ratio > 1.0 / 3;
    sums->times += log(at_least(point->ratio));
    if (point->ratio <= s->time_max)
        return;
    s->time_max = point->ratio;
    s->time_max_trace = point->trace;
}

static void summarize(const curves_options_t *options, const curves_point_t *points, size_t count,
                      curves_summary_t *s) {
    sums_t sums = {0};
    size_t per_trace = curves_point_count(options);
    for (size_t i = 0; i < count; i++) {
        const curves_point_t *point = &points[i];
        if (point->variant != s->variant || point->latency != s->latency)
            continue;
        if (point->kind == CURVES_COMMON)
            add_time(s, &sums, point, point + 1);
        else if (point->kind == CURVES_CAPPED && point->headroom_pct <= CURVES_HEADROOM_SHARES)
            add_share(s, &sums, point,
                      naive_find(options, points + i / per_trace * per_trace, per_trace, point));
    }
    // A mode that never moves a page is not good at moving few.
    if (s->share_max > 0)
        s->share_mean = exp(sums.shares / s->share_count);
    else
        s->share_max = -1;
    if (s->time_count > 0)
        s->time_mean = exp(sums.times / s->time_count);
}

size_t curves_summarize(const curves_options_t *options, const curves_point_t *points, size_t count,
                        curves_summary_t *summaries) {
    size_t number = 0;
    for (uint32_t variant = 0; variant < options->variant_count; variant++) {
        if (!curves_is_named(&options->variants[variant], "berm"))
            continue;
        for (uint32_t latency = 0; latency < options->latency_count; latency++) {
            curves_summary_t *s = &summaries[number++];
            *s = (curves_summary_t){.variant = variant,
                                    .latency = latency,
                                    .share_mean = -1,
                                    .share_max = -1,
                                    .time_mean = -1,
                                    .time_max = -1};
            summarize(options, points, count, s);
        }
    }
    return number;
}
