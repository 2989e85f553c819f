// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: what `berm bench fragmentation` wrote, and its picture.
#ifndef STRESS_PLOT_CURVES_H
#define STRESS_PLOT_CURVES_H

#include "stress/plot/svg.h"
#include "stress/trace/input.h"

typedef enum plot_curve_kind {
    PLOT_CURVE_UNCAPPED,
    PLOT_CURVE_CAPPED,
    PLOT_CURVE_COMMON,
    PLOT_CURVE_KINDS,
} plot_curve_kind_t;

// Names in the order of their first appearance; a name's number is its place.
typedef struct plot_names {
    char **names;
    size_t count;
} plot_names_t;

// A row of the file.
typedef struct plot_curve_point {
    plot_curve_kind_t kind;
    size_t trace, latency, allocator; // numbers in plot_curves_t; an allocator with its options
    double headroom_pct;              // < 0: none of its own
    bool is_done;                     // otherwise no figure below means something
    double reserved_ratio, moved_share;
    uint64_t driver_us, wait_us, peak_live_bytes;
    double ratio; // < 0: none
} plot_curve_point_t;

typedef struct plot_curves {
    const char *path; // borrowed; how the file is called
    plot_names_t traces, latencies, allocators;
    double *headrooms; // of capped points, ascending
    size_t headroom_count;
    plot_curve_point_t *points; // in the file's order
    size_t count, capacity;
} plot_curves_t;

bool plot_curves_match(const trace_input_t *input);
// 0, or -1 with a line in `error`; to be freed in either case.
BERM_NODISCARD int plot_curves_read(plot_curves_t *curves, const trace_input_t *input, char *error,
                                    size_t error_capacity);
void plot_curves_free(plot_curves_t *curves);

void plot_curves_draw(const plot_curves_t *curves, FILE *file, bool is_html);

#endif
