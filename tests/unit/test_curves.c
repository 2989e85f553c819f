// SPDX-License-Identifier: Apache-2.0
// The points of a trace, their capacities, and ratios and means of points with known figures.
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/defs.h"
#include "stress/baselines/baselines.h"
#include "stress/curves/compare.h"
#include "stress/curves/inside.h"
#include "stress/curves/sources.h"
#include "stress/curves/workers.h"
#include "stress/trace/input.h"

static char error[512];

static curves_options_t options_of(void) {
    curves_options_t options = {.variants = {{.ops = &stress_berm_ops, .conf = "remap:passed"},
                                             {.ops = &stress_berm_ops, .conf = "remap:off"},
                                             {.ops = &stress_expandable_ops},
                                             {.ops = &stress_naive_ops}},
                                .variant_count = 4,
                                .headrooms_pct = {0, 5, 25},
                                .headroom_count = 3,
                                .latencies = {"typical"},
                                .latency_count = 1};
    return options;
}

// Four blocks of 8 MiB, two that do not touch freed, one of 16 MiB in their place, five times.
static trace_t *trace_of(void) {
    static char text[8192];
    const trace_read_options_t read = {.scale = 1, .device = -1};
    size_t at = (size_t)snprintf(text, sizeof text, "event_index,op,id,size_bytes,stream\n");
    int event = 0;
    for (int i = 0; i < 5; i++) {
        static const struct {
            const char *op;
            int id, mib;
        } steps[] = {{"alloc", 1, 8}, {"alloc", 2, 8}, {"alloc", 3, 8},  {"alloc", 4, 8},
                     {"free", 1, 8},  {"free", 3, 8},  {"alloc", 5, 16}, {"free", 2, 8},
                     {"free", 4, 8},  {"free", 5, 16}};
        for (size_t k = 0; k < BERM_ARRAY_LENGTH(steps); k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%d,%s,%d,%d,0\n", event++,
                                   steps[k].op, steps[k].id, steps[k].mib << 20);
    }
    trace_t *trace = trace_read_memory("hand", text, at, &read, error, sizeof error);
    cr_assert(trace != NULL, "%s", error);
    return trace;
}

Test(curves, points_are_those_asked) {
    const curves_options_t options = options_of();
    trace_t *trace = trace_of();
    // Caps of all, headrooms of three, one run of expandable; two pairs.
    cr_assert_eq(curves_point_count(&options), 4 * 3 + 3 * 3 + 1 + 2 * 2);
    cr_assert_eq(curves_part_count(&options), 2);
    curves_point_t points[32];
    curves_points_fill(&options, trace, 7, points);
    size_t kinds[3] = {0};
    for (size_t i = 0; i < curves_point_count(&options); i++) {
        kinds[points[i].kind]++;
        cr_assert(points[i].trace == 7 && points[i].peak_live_bytes == BERM_MIB(32));
        cr_assert(points[i].ratio < 0 && points[i].break_even < 0);
    }
    cr_assert(kinds[CURVES_UNCAPPED] == 10 && kinds[CURVES_CAPPED] == 12);
    cr_assert_eq(kinds[CURVES_COMMON], 4);
    trace_destroy(trace);
}

Test(curves, without_expandable_there_is_no_common_device) {
    curves_options_t options = options_of();
    options.variants[2].ops = &stress_bfc_ops;
    cr_assert_eq(curves_point_count(&options), 4 * 3 + 3 * 3 + 1);
    cr_assert_eq(curves_part_count(&options), 1);
    options = options_of();
    options.variants[0].ops = options.variants[1].ops = &stress_naive_ops;
    cr_assert_eq(curves_part_count(&options), 1);
}

Test(curves, caps_are_whole_granules) {
    const uint64_t granule = BERM_MIB(2);
    cr_assert_eq(curves_capacity_bytes(BERM_MIB(100), 0, granule), BERM_MIB(100));
    cr_assert_eq(curves_capacity_bytes(BERM_MIB(100), 2, granule), BERM_MIB(102));
    cr_assert_eq(curves_capacity_bytes(BERM_MIB(100) + 1, 0, granule), BERM_MIB(102));
    cr_assert_eq(curves_capacity_bytes(BERM_MIB(100), 5, granule), BERM_MIB(106));
    cr_assert_eq(curves_capacity_bytes(1, 0, granule), granule);
}

// What a real run gives, on devices of the exact capacity.
Test(curves, runs_on_capped_and_common_devices) {
    const curves_options_t options = options_of();
    trace_t *trace = trace_of();
    size_t count = curves_point_count(&options);
    curves_point_t points[32];
    curves_points_fill(&options, trace, 0, points);
    for (size_t part = 0; part < curves_part_count(&options); part++)
        cr_assert(curves_part_run(&options, trace, part, points, error, sizeof error) == 0, "%s",
                  error);
    curves_compare(&options, points, count);
    for (size_t i = 0; i < count; i++) {
        const curves_point_t *p = &points[i];
        cr_assert(p->findings == 0 && p->note[0] == '\0', "%s", p->note);
        cr_assert(!p->is_done || p->allocated_bytes == 5 * BERM_MIB(48));
        cr_assert(p->peak_reserved_bytes <= p->capacity_bytes);
        if (p->kind == CURVES_UNCAPPED)
            cr_assert(p->is_done && p->capacity_bytes == BERM_GIB(1));
        // No granule to spare, and no hole of 16 MiB: only what moves pages finishes.
        if (p->kind == CURVES_CAPPED && p->headroom_pct == 0 && p->variant == 3)
            cr_assert(p->is_done && p->moved_bytes >= BERM_MIB(16));
        if (p->kind == CURVES_COMMON && p->variant != 2) {
            cr_assert(p->is_done && p[1].is_done && p->capacity_bytes == p[1].capacity_bytes);
            cr_assert(p->capacity_bytes >= BERM_MIB(32) && p->ratio > 0);
        }
    }
    trace_destroy(trace);
}

Test(curves, processes_give_what_one_process_gives) {
    curves_options_t options = options_of();
    options.latencies[options.latency_count++] = "slow";
    trace_t *traces[2] = {trace_of(), trace_of()};
    size_t per_trace = curves_point_count(&options);
    curves_point_t *points = curves_points_create(2 * per_trace), *alone = NULL;
    cr_assert(points != NULL);
    for (uint32_t i = 0; i < 2; i++)
        curves_points_fill(&options, traces[i], i, points + i * per_trace);
    cr_assert(curves_run(&options, traces, 2, points, 3, NULL, error, sizeof error) == 0, "%s",
              error);
    alone = calloc(per_trace, sizeof *alone);
    cr_assert(alone != NULL);
    curves_points_fill(&options, traces[1], 1, alone);
    for (size_t part = 0; part < curves_part_count(&options); part++)
        cr_assert_eq(curves_part_run(&options, traces[1], part, alone, error, sizeof error), 0);
    for (size_t i = 0; i < per_trace; i++) {
        const curves_point_t *a = &points[per_trace + i], *b = &alone[i];
        cr_assert(a->is_done == b->is_done && a->moved_bytes == b->moved_bytes);
        cr_assert(a->driver_ns == b->driver_ns && a->host_wait_ns == b->host_wait_ns);
        cr_assert(a->capacity_bytes == b->capacity_bytes);
    }
    free(alone);
    curves_points_destroy(points, 2 * per_trace);
    trace_destroy(traces[0]);
    trace_destroy(traces[1]);
}

Test(curves, a_part_that_cannot_run_is_said) {
    curves_options_t options = options_of();
    trace_t *trace = trace_of();
    size_t count = curves_point_count(&options);
    curves_point_t *points = curves_points_create(count);
    curves_points_fill(&options, trace, 0, points);
    options.latencies[0] = "nosuch";
    cr_assert_eq(curves_run(&options, &trace, 1, points, 2, NULL, error, sizeof error), -1);
    cr_assert(strstr(error, "nosuch") != NULL, "%s", error);
    options.latencies[0] = "fast";
    (void)snprintf(options.variants[3].conf, sizeof options.variants[3].conf, "nosuch");
    cr_assert_eq(curves_run(&options, &trace, 1, points, 2, NULL, error, sizeof error), -1);
    cr_assert(strstr(error, "naive") != NULL, "%s", error);
    curves_points_destroy(points, count);
    trace_destroy(trace);
}

// --- ratios --------------------------------------------------------------------------------------

static curves_point_t *point_find(const curves_options_t *options, curves_point_t *points,
                                  curves_kind_t kind, uint32_t variant, double headroom_pct) {
    for (size_t i = 0; i < curves_point_count(options); i++)
        if (points[i].kind == kind && points[i].variant == variant &&
            (kind == CURVES_COMMON || points[i].headroom_pct == headroom_pct))
            return &points[i];
    cr_assert_fail("no such point");
    return NULL;
}

// Two traces whose points are all done, with shares in thousandths and times in ns.
static void points_make(const curves_options_t *options, curves_point_t *points) {
    trace_t *trace = trace_of();
    size_t count = curves_point_count(options);
    for (uint32_t i = 0; i < 2; i++)
        curves_points_fill(options, trace, i, points + i * count);
    for (size_t i = 0; i < 2 * count; i++) {
        points[i].is_done = true;
        points[i].allocated_bytes = 1000;
    }
    trace_destroy(trace);
}

static void set_moved(const curves_options_t *options, curves_point_t *points, double headroom_pct,
                      uint64_t berm, uint64_t naive) {
    point_find(options, points, CURVES_CAPPED, 0, headroom_pct)->moved_bytes = berm;
    point_find(options, points, CURVES_CAPPED, 3, headroom_pct)->moved_bytes = naive;
}

Test(curves, shares_are_compared_where_naive_moves_enough) {
    const curves_options_t options = options_of();
    curves_point_t points[64];
    points_make(&options, points);
    curves_point_t *second = points + curves_point_count(&options);
    set_moved(&options, points, 0, 40, 100);   // 0.4
    set_moved(&options, points, 5, 90, 100);   // 0.9
    set_moved(&options, points, 25, 500, 100); // a cap that is not compared
    set_moved(&options, second, 0, 19, 19);    // too little to count
    set_moved(&options, second, 5, 30, 10);    // only berm's counts
    curves_compare(&options, points, 2 * curves_point_count(&options));
    cr_assert_float_eq(point_find(&options, points, CURVES_CAPPED, 0, 0)->ratio, 0.4, 1e-9);
    cr_assert_float_eq(point_find(&options, points, CURVES_CAPPED, 0, 25)->ratio, 5, 1e-9);
    cr_assert_float_eq(point_find(&options, second, CURVES_CAPPED, 0, 5)->ratio, 3, 1e-9);
    cr_assert(point_find(&options, points, CURVES_CAPPED, 3, 0)->ratio < 0, "naive has none");
    curves_summary_t summaries[CURVES_VARIANTS_MAX * CURVES_LATENCIES_MAX];
    cr_assert_eq(curves_summarize(&options, points, 2 * curves_point_count(&options), summaries),
                 2);
    const curves_summary_t *s = &summaries[0];
    cr_assert(s->share_count == 2 && s->share_above == 1 && s->share_none == 0);
    cr_assert_float_eq(s->share_mean, sqrt(0.4 * 0.9), 1e-9);
    cr_assert_float_eq(s->share_max, 0.9, 1e-9);
    cr_assert(s->share_max_trace == 0 && s->share_max_headroom == 5);
    // remap:off moves nothing: it has no mean.
    cr_assert(summaries[1].variant == 1 && summaries[1].share_count == 2);
    cr_assert(summaries[1].share_mean < 0 && summaries[1].share_max < 0);
    // One 0 among others counts as a hundredth.
    set_moved(&options, points, 0, 0, 100);
    curves_compare(&options, points, 2 * curves_point_count(&options));
    (void)curves_summarize(&options, points, 2 * curves_point_count(&options), summaries);
    cr_assert_float_eq(s->share_mean, sqrt(CURVES_RATIO_LEAST * 0.9), 1e-9);
}

Test(curves, what_does_not_finish_is_counted_apart) {
    const curves_options_t options = options_of();
    curves_point_t points[64];
    points_make(&options, points);
    curves_point_t *second = points + curves_point_count(&options);
    set_moved(&options, points, 0, 40, 100);
    set_moved(&options, points, 5, 40, 100);
    set_moved(&options, second, 0, 40, 100);
    set_moved(&options, second, 5, 50, 100);
    point_find(&options, points, CURVES_CAPPED, 0, 0)->is_done = false;
    point_find(&options, points, CURVES_CAPPED, 3, 5)->is_done = false;
    point_find(&options, second, CURVES_CAPPED, 3, 0)->is_done = false;
    curves_compare(&options, points, 2 * curves_point_count(&options));
    curves_summary_t summaries[CURVES_VARIANTS_MAX * CURVES_LATENCIES_MAX];
    (void)curves_summarize(&options, points, 2 * curves_point_count(&options), summaries);
    cr_assert(summaries[0].share_none == 3 && summaries[0].share_count == 1);
    cr_assert_float_eq(summaries[0].share_mean, 0.5, 1e-9);
    cr_assert_eq(summaries[0].share_max_trace, 1);
}

static void set_times(const curves_options_t *options, curves_point_t *points,
                      const uint64_t times_ns[4]) {
    curves_point_t *berm = point_find(options, points, CURVES_COMMON, 0, 0);
    berm[0].driver_ns = times_ns[0];
    berm[0].host_wait_ns = times_ns[1];
    berm[1].driver_ns = times_ns[2];
    berm[1].host_wait_ns = times_ns[3];
    berm[1].calls.of[BERM_DRV_UNMAP] = 1;
}

Test(curves, times_are_compared_where_expandable_releases) {
    const curves_options_t options = options_of();
    curves_point_t points[64];
    points_make(&options, points);
    size_t count = curves_point_count(&options);
    curves_summary_t summaries[CURVES_VARIANTS_MAX * CURVES_LATENCIES_MAX];
    // Driver time and waits of berm, of expandable.
    set_times(&options, points, (const uint64_t[4]){200, 50, 400, 100});
    set_times(&options, points + count, (const uint64_t[4]){300, 0, 100, 50});
    curves_compare(&options, points, 2 * count);
    (void)curves_summarize(&options, points, 2 * count, summaries);
    const curves_point_t *berm = point_find(&options, points, CURVES_COMMON, 0, 0);
    cr_assert_float_eq(berm->ratio, 0.5, 1e-9);
    cr_assert_eq(berm->break_even, 0, "less of both: at any factor");
    cr_assert(berm[1].ratio < 0);
    berm = point_find(&options, points + count, CURVES_COMMON, 0, 0);
    cr_assert_float_eq(berm->ratio, 2, 1e-9);
    cr_assert_float_eq(berm->break_even, 0.25, 1e-9, "300 f = 100 f + 50");
    cr_assert(summaries[0].time_count == 2 && summaries[0].time_above == 2);
    cr_assert_float_eq(summaries[0].time_mean, 1, 1e-9);
    cr_assert(summaries[0].time_max == 2 && summaries[0].time_max_trace == 1);
    // More of both, and an expandable that releases nothing.
    set_times(&options, points, (const uint64_t[4]){500, 200, 400, 100});
    point_find(&options, points, CURVES_COMMON, 0, 0)[1].calls.of[BERM_DRV_UNMAP] = 0;
    curves_compare(&options, points, 2 * count);
    (void)curves_summarize(&options, points, 2 * count, summaries);
    cr_assert(isinf(point_find(&options, points, CURVES_COMMON, 0, 0)->break_even));
    cr_assert_eq(summaries[0].time_count, 1);
}

// --- sources -------------------------------------------------------------------------------------

Test(curves, generated_traces_can_be_made) {
    for (size_t i = 0; i < curves_source_count; i++) {
        const curves_source_t *source = &curves_sources[i];
        cr_assert(curves_source_find(source->name) == source);
        trace_t *trace = trace_generate(source->kind, &source->options, error, sizeof error);
        cr_assert(trace != NULL, "%s: %s", source->name, error);
        cr_assert_gt(trace->peak_live_bytes, 0);
        trace_destroy(trace);
    }
    cr_assert(curves_source_find("nothing") == NULL);
}
