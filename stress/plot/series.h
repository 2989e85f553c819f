// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: memory over events, from a series or a trace, and its picture.
#ifndef STRESS_PLOT_SERIES_H
#define STRESS_PLOT_SERIES_H

#include "stress/plot/svg.h"
#include "stress/trace/input.h"
#include "stress/trace/trace.h"

typedef enum plot_line {
    PLOT_LIVE,      // bytes that the program asked for
    PLOT_ALLOCATED, // what the allocator made of them
    PLOT_RESERVED,  // what it holds of the device
    PLOT_LINES,
} plot_line_t;

// What a replay has cost since its beginning.
typedef enum plot_cost {
    PLOT_MOVED,        // bytes of pages that were given another address
    PLOT_DRIVER_CALLS, // of the allocator
    PLOT_DRIVER_US,    // host time in them, waits apart where simulated
    PLOT_COSTS,
} plot_cost_t;

typedef struct plot_series {
    const char *path;             // borrowed; how the file is called
    uint64_t *values[PLOT_LINES]; // NULL for a line that is not there; PLOT_LIVE always is
    uint64_t *costs[PLOT_COSTS];  // all of them or, in traces and old series, none
    size_t count, capacity;       // of values in each; not 0 once read
    uint64_t repeats;
    uint64_t source_reserved_bytes; // of a trace: what its own allocator held, 0 where unknown
} plot_series_t;

bool plot_series_matches(const trace_input_t *input);
// 0, or -1 with a line in `error`; to be freed in either case.
BERM_NODISCARD int plot_series_read(plot_series_t *series, const trace_input_t *input, char *error,
                                    size_t error_capacity);
BERM_NODISCARD int plot_series_from_trace(plot_series_t *series, const trace_t *trace, char *error,
                                          size_t error_capacity);
void plot_series_free(plot_series_t *series);

// The second drawing of the picture; only with costs.
enum {
    PLOT_COSTS_BOTTOM = 692,
};
void plot_costs_draw(const plot_series_t *series, plot_svg_t *svg);
void plot_chart_draw(const plot_series_t *series, FILE *file, bool is_html);

#endif
