// SPDX-License-Identifier: Apache-2.0
// What `berm bench fragmentation` prints: CSV with the command and the summary as comments, or one
// JSON object. Figures of a replay that ran out of memory are "none", or null.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "berm.h"
#include "cli/fragmentation.h"

static const curves_variant_t *variant_of(const cli_fragmentation_t *f,
                                          const curves_point_t *point) {
    return &f->options.variants[point->variant];
}

static bool is_of_berm(const cli_fragmentation_t *f, const curves_point_t *point) {
    return strcmp(variant_of(f, point)->ops->name, "berm") == 0;
}

// What the point's ratio is over.
static const char *against(const cli_fragmentation_t *f, const curves_point_t *point) {
    if (point->kind == CURVES_COMMON)
        return is_of_berm(f, point) ? "expandable" : "";
    return point->kind == CURVES_CAPPED && is_of_berm(f, point) ? "naive" : "";
}

// What a break-even is that is no number, or NULL.
static const char *word_of_break_even(const curves_point_t *p) {
    return p->break_even < 0           ? "none"
           : p->break_even == 0        ? "always"
           : isinf(p->break_even) != 0 ? "never"
                                       : NULL;
}

// --- CSV -----------------------------------------------------------------------------------------

static void print_text(const char *text) {
    bool needs_quotes = strpbrk(text, ",\"") != NULL;
    (void)printf("%s%s%s,", needs_quotes ? "\"" : "", text, needs_quotes ? "\"" : "");
}

static void print_count(bool is_known, uint64_t value) {
    if (is_known)
        (void)printf("%" PRIu64 ",", value);
    else
        (void)fputs("none,", stdout);
}

static void print_ratio(bool is_known, double value, int digits, const char *end) {
    if (is_known)
        (void)printf("%.*f%s", digits, value, end);
    else
        (void)printf("none%s", end);
}

// One line a mode and latency; docs/curves.md explains it.
static void print_summary(const cli_fragmentation_t *f, const curves_summary_t *s) {
    (void)printf("# berm %s, %s:", f->options.variants[s->variant].conf,
                 f->options.latencies[s->latency]);
    if (s->share_max >= 0)
        (void)printf(" moved share over naive's: geometric mean %.3f, largest %.3f (%s at %g %%), "
                     "of %" PRIu32 ";",
                     s->share_mean, s->share_max, f->names[s->share_max_trace],
                     s->share_max_headroom, s->share_count);
    (void)printf(" %" PRIu32 " not finished, %" PRIu32 " only berm's above %g;", s->share_none,
                 s->share_above, CURVES_SHARE_LEAST);
    if (s->time_count > 0)
        (void)printf(" time over expandable's: geometric mean %.3f, largest %.3f (%s), of %" PRIu32
                     ", %" PRIu32 " above a third",
                     s->time_mean, s->time_max, f->names[s->time_max_trace], s->time_count,
                     s->time_above);
    else
        (void)fputs(" expandable never releases", stdout);
    (void)putchar('\n');
}

static void print_point(const cli_fragmentation_t *f, const curves_point_t *p) {
    const curves_variant_t *variant = variant_of(f, p);
    print_text(f->names[p->trace]);
    print_text(variant->ops->name);
    print_text(variant->conf);
    print_text(f->options.latencies[p->latency]);
    (void)printf("%s,", curves_kind_names[p->kind]);
    if (p->headroom_pct < 0)
        (void)fputs("default,", stdout);
    else
        (void)printf("%g,", p->headroom_pct);
    print_count(p->capacity_bytes > 0, p->capacity_bytes);
    (void)printf("%s,%" PRIu64 ",", p->is_done ? "yes" : "none", p->peak_live_bytes);
    print_count(p->is_done, p->peak_reserved_bytes);
    print_ratio(p->is_done, curves_reserved_ratio(p), 6, ",");
    print_count(p->is_done, p->allocated_bytes);
    print_count(p->is_done, p->moved_bytes);
    print_ratio(p->is_done, curves_moved_share(p), 6, ",");
    print_count(p->is_done, p->host_waits);
    print_count(p->is_done, p->host_wait_ns / 1000);
    print_count(p->is_done, stress_calls_all(&p->calls));
    print_count(p->is_done, stress_calls_memory(&p->calls));
    print_count(p->is_done, p->calls.of[BERM_DRV_UNMAP]);
    print_count(p->is_done, p->driver_ns / 1000);
    print_text(against(f, p));
    print_ratio(p->ratio >= 0, p->ratio, 4, ",");
    const char *word = word_of_break_even(p);
    if (word != NULL)
        (void)printf("%s\n", word);
    else
        (void)printf("%.6g\n", p->break_even);
}

void cli_fragmentation_print_csv(const cli_fragmentation_t *f) {
    char text[4096];
    (void)printf("# %s\n# berm %s; simulated device, modelled times\n",
                 cli_command_text(f->argc, f->argv, text, sizeof text), berm_version());
    for (size_t i = 0; i < f->summary_count; i++)
        print_summary(f, &f->summaries[i]);
    (void)fputs("trace,allocator,conf,latency,kind,headroom_pct,capacity_bytes,completed,"
                "peak_live_bytes,peak_reserved_bytes,reserved_over_live,allocated_bytes,"
                "moved_bytes,moved_share,host_waits,wait_us,driver_calls,memory_calls,unmap_calls,"
                "driver_us,against,ratio,break_even\n",
                stdout);
    for (size_t i = 0; i < f->point_count; i++)
        print_point(f, &f->points[i]);
}

// --- JSON ----------------------------------------------------------------------------------------

static void emit_count(berm_emit_t *emit, const char *key, bool is_known, uint64_t value) {
    if (is_known)
        berm__emit_u64(emit, key, value);
    else
        berm__emit_null(emit, key);
}

static void emit_ratio(berm_emit_t *emit, const char *key, bool is_known, double value) {
    if (is_known)
        berm__emit_double(emit, key, value, 6);
    else
        berm__emit_null(emit, key);
}

static void emit_break_even(berm_emit_t *emit, const curves_point_t *p) {
    const char *word = word_of_break_even(p);
    if (p->break_even < 0)
        berm__emit_null(emit, "break_even");
    else if (word != NULL)
        berm__emit_string(emit, "break_even", word);
    else
        berm__emit_double(emit, "break_even", p->break_even, 9);
}

static void emit_point(berm_emit_t *emit, const cli_fragmentation_t *f, const curves_point_t *p) {
    const curves_variant_t *variant = variant_of(f, p);
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "trace", f->names[p->trace]);
    berm__emit_string(emit, "allocator", variant->ops->name);
    berm__emit_string(emit, "conf", variant->conf);
    berm__emit_string(emit, "latency", f->options.latencies[p->latency]);
    berm__emit_string(emit, "kind", curves_kind_names[p->kind]);
    emit_ratio(emit, "headroom_pct", p->headroom_pct >= 0, p->headroom_pct);
    emit_count(emit, "capacity_bytes", p->capacity_bytes > 0, p->capacity_bytes);
    berm__emit_bool(emit, "completed", p->is_done);
    berm__emit_u64(emit, "peak_live_bytes", p->peak_live_bytes);
    emit_count(emit, "peak_reserved_bytes", p->is_done, p->peak_reserved_bytes);
    emit_ratio(emit, "reserved_over_live", p->is_done, curves_reserved_ratio(p));
    emit_count(emit, "allocated_bytes", p->is_done, p->allocated_bytes);
    emit_count(emit, "moved_bytes", p->is_done, p->moved_bytes);
    emit_ratio(emit, "moved_share", p->is_done, curves_moved_share(p));
    emit_count(emit, "host_waits", p->is_done, p->host_waits);
    emit_count(emit, "wait_us", p->is_done, p->host_wait_ns / 1000);
    emit_count(emit, "driver_us", p->is_done, p->driver_ns / 1000);
    if (p->is_done) {
        berm__emit_object_begin(emit, "driver_calls");
        stress_calls_emit(emit, &p->calls);
        berm__emit_object_end(emit);
    } else {
        berm__emit_null(emit, "driver_calls");
    }
    berm__emit_string(emit, "against", against(f, p));
    emit_ratio(emit, "ratio", p->ratio >= 0, p->ratio);
    emit_break_even(emit, p);
    berm__emit_object_end(emit);
}

static void emit_summary(berm_emit_t *emit, const cli_fragmentation_t *f,
                         const curves_summary_t *s) {
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "conf", f->options.variants[s->variant].conf);
    berm__emit_string(emit, "latency", f->options.latencies[s->latency]);
    berm__emit_object_begin(emit, "moved_share_over_naive");
    berm__emit_u64(emit, "count", s->share_count);
    emit_ratio(emit, "geometric_mean", s->share_mean >= 0, s->share_mean);
    emit_ratio(emit, "largest", s->share_max >= 0, s->share_max);
    berm__emit_string(emit, "largest_trace", s->share_max >= 0 ? f->names[s->share_max_trace] : "");
    emit_ratio(emit, "largest_headroom_pct", s->share_max >= 0, s->share_max_headroom);
    berm__emit_u64(emit, "only_berm_above", s->share_above);
    berm__emit_u64(emit, "not_finished", s->share_none);
    berm__emit_object_end(emit);
    berm__emit_object_begin(emit, "time_over_expandable");
    berm__emit_u64(emit, "count", s->time_count);
    berm__emit_u64(emit, "above_a_third", s->time_above);
    emit_ratio(emit, "geometric_mean", s->time_mean >= 0, s->time_mean);
    emit_ratio(emit, "largest", s->time_max >= 0, s->time_max);
    berm__emit_string(emit, "largest_trace", s->time_max >= 0 ? f->names[s->time_max_trace] : "");
    berm__emit_object_end(emit);
    berm__emit_object_end(emit);
}

static void emit_trace(berm_emit_t *emit, const cli_fragmentation_t *f, size_t number) {
    const trace_t *trace = f->traces[number];
    berm__emit_object_begin(emit, NULL);
    berm__emit_string(emit, "name", f->names[number]);
    berm__emit_string(emit, "format", trace->format);
    berm__emit_u64(emit, "events", trace->event_count);
    berm__emit_u64(emit, "streams", trace->stream_count);
    berm__emit_u64(emit, "peak_live_bytes", trace->peak_live_bytes);
    berm__emit_object_end(emit);
}

void cli_fragmentation_print_json(const cli_fragmentation_t *f) {
    char text[4096];
    berm_emit_t emit;
    berm__emit_init(&emit, BERM_EMIT_JSON, berm__emit_write_file, stdout);
    berm__emit_object_begin(&emit, NULL);
    berm__emit_string(&emit, "command", cli_command_text(f->argc, f->argv, text, sizeof text));
    berm__emit_string(&emit, "version", berm_version());
    berm__emit_array_begin(&emit, "traces");
    for (size_t i = 0; i < f->trace_count; i++)
        emit_trace(&emit, f, i);
    berm__emit_array_end(&emit);
    berm__emit_array_begin(&emit, "summary");
    for (size_t i = 0; i < f->summary_count; i++)
        emit_summary(&emit, f, &f->summaries[i]);
    berm__emit_array_end(&emit);
    berm__emit_array_begin(&emit, "points");
    for (size_t i = 0; i < f->point_count; i++)
        emit_point(&emit, f, &f->points[i]);
    berm__emit_array_end(&emit);
    berm__emit_object_end(&emit);
    berm__emit_finish(&emit);
}
