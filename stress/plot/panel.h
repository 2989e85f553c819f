// SPDX-License-Identifier: Apache-2.0
// Internal to stress/plot: one drawing of values over events, and its axes.
#ifndef STRESS_PLOT_PANEL_H
#define STRESS_PLOT_PANEL_H

#include "stress/plot/scale.h"
#include "stress/plot/svg.h"

enum {
    PLOT_POINTS_MAX = 2000,
    PLOT_HOVER_COLUMNS = 120,
};

typedef struct plot_panel {
    plot_svg_t *svg;
    size_t count; // of events; not 0
    int top, bottom;
    plot_ticks_t ticks; // of the axis on the left
} plot_panel_t;

double plot_panel_x(const plot_panel_t *panel, double index);
double plot_panel_y(const plot_panel_t *panel, const plot_ticks_t *ticks, double value);

// Lines and numbers of the axis on the left, ticks of events below, both axes.
void plot_panel_axes(const plot_panel_t *panel, uint64_t repeats);

// Which points of a line to draw; `indices` has PLOT_POINTS_MAX. Returns how many.
size_t plot_panel_points(const plot_panel_t *panel, const uint64_t *values, size_t *indices);
// The path data of a line through them, by the given axis.
void plot_panel_stairs(const plot_panel_t *panel, const plot_ticks_t *ticks, const uint64_t *values,
                       const size_t *indices, size_t count);

// How many strips with tooltips there are, and which events [*begin, *end) the i-th is about.
size_t plot_panel_strips(const plot_panel_t *panel);
// Begins the strip's element and its tooltip, up to "events A to B"; plot_panel_strip_end ends it.
void plot_panel_strip_begin(const plot_panel_t *panel, size_t i, size_t *begin, size_t *end);
void plot_panel_strip_end(const plot_panel_t *panel);

#endif
