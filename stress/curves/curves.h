// SPDX-License-Identifier: Apache-2.0
// What memory costs in driver time, and the other way round: every trace through every allocator,
// with a range of headrooms, without a cap and at hard caps, under every latency preset; see
// docs/curves.md. All figures are the simulated device's: no host time is among them, and they are
// the same in every run.
#ifndef STRESS_CURVES_CURVES_H
#define STRESS_CURVES_CURVES_H

#include "stress/replay.h"

enum {
    CURVES_VARIANTS_MAX = 24,
    CURVES_HEADROOMS_MAX = 16,
    CURVES_LATENCIES_MAX = 8,
    CURVES_CONF_CAPACITY = 256,
    CURVES_NOTE_CAPACITY = 160,
};

// An allocator with options of its own.
typedef struct curves_variant {
    const stress_allocator_ops_t *ops;
    char conf[CURVES_CONF_CAPACITY];
} curves_variant_t;

typedef struct curves_options {
    curves_variant_t variants[CURVES_VARIANTS_MAX];
    size_t variant_count;
    double headrooms_pct[CURVES_HEADROOMS_MAX]; // ascending
    size_t headroom_count;
    const char *latencies[CURVES_LATENCIES_MAX]; // presets or files
    size_t latency_count;
} curves_options_t;

typedef enum curves_kind {
    CURVES_UNCAPPED, // with much more memory than is needed; headroom is the allocator's option
    CURVES_CAPPED,   // on a device of peak live x (1 + headroom), which is the option's value too
    CURVES_COMMON,   // on the smallest device on which berm and expandable both finish
} curves_kind_t;

extern const char *const curves_kind_names[];

// One replay. What is asked comes first, and depends on options and trace alone.
typedef struct curves_point {
    curves_kind_t kind;
    uint32_t trace, variant, latency; // numbers in the options; the trace's is the caller's
    uint32_t of_variant;              // COMMON: the berm variant whose capacity it is
    double headroom_pct;              // < 0: the allocator has none, or its default
    uint64_t capacity_bytes;          // COMMON: 0 until known
    uint64_t peak_live_bytes;
    // Its answer. Only with is_done do the figures mean something.
    bool is_done; // it finished
    uint64_t peak_reserved_bytes, moved_bytes, allocated_bytes;
    uint64_t host_waits, host_wait_ns, driver_ns;
    stress_calls_t calls;
    uint64_t findings;               // hazards, leaks, failed checks
    char note[CURVES_NOTE_CAPACITY]; // what went wrong besides the lack of memory, or ""
    // Set by curves_compare, < 0 where there is none. CAPPED, of berm: its moved share over
    // naive's. COMMON, of berm: its driver time and waits over expandable's.
    double ratio;
    // COMMON, of berm: the factor on all driver costs at which both would cost the same, waits as
    // they are; 0: berm costs less at any factor; < 0: unknown, INFINITY: more at any.
    double break_even;
} curves_point_t;

// How many points a trace has, and what they ask, in the order of the output.
size_t curves_point_count(const curves_options_t *options);
void curves_points_fill(const curves_options_t *options, const trace_t *trace, uint32_t number,
                        curves_point_t *points);

// Makes every allocator on a device of every latency once, so that bad options are found before
// hours are spent. 0, or -1 with a line in `error`; with "" where the library has said it itself.
int curves_options_check(const curves_options_t *options, char *error, size_t error_capacity);

// The points of a trace are found in parts: one for each latency, and one for all COMMON ones.
size_t curves_part_count(const curves_options_t *options);
// Runs one part, in this process, on devices that it opens and closes; `points` are the trace's. 0,
// or -1 with a line in `error` when something could not run at all.
int curves_part_run(const curves_options_t *options, const trace_t *trace, size_t part,
                    curves_point_t *points, char *error, size_t error_capacity);

double curves_moved_share(const curves_point_t *point);    // moved over allocated
uint64_t curves_time_ns(const curves_point_t *point);      // driver time and waits
double curves_reserved_ratio(const curves_point_t *point); // peak reserved over peak live

#endif
