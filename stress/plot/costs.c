// SPDX-License-Identifier: Apache-2.0
// Draws what a replay has cost so far, below chart.c's memory over time: moved bytes by the axis on
// the left, time in driver calls by numbers on the right.
//
//   y  470 what it came to, 492 legend
//      508 to 640 drawing, then ticks of events
//
// Bounds: as panel.c. Locks: none. May fail: on writes only, for which the caller looks.
#include "stress/plot/panel.h"
#include "stress/plot/series.h"

enum {
    TOP = 508,
    BOTTOM = 640,
};

static uint64_t total_of(const plot_series_t *series, plot_cost_t cost) {
    return series->costs[cost][series->count - 1];
}

static void draw_cost(const plot_panel_t *p, const plot_series_t *series, plot_cost_t cost,
                      const plot_ticks_t *ticks, const char *name) {
    size_t indices[PLOT_POINTS_MAX];
    size_t count = plot_panel_points(p, series->costs[cost], indices);
    plot_svg_put(p->svg, "<path class=\"line %s\" d=\"", name);
    plot_panel_stairs(p, ticks, series->costs[cost], indices, count);
    plot_svg_put(p->svg, "\"><title>%s, so far</title></path>\n", name);
}

// Inside the drawing: right of it there is no room.
static void draw_time_axis(const plot_panel_t *p, const plot_ticks_t *ticks) {
    for (unsigned i = 1; i <= ticks->count; i++) {
        double y = plot_panel_y(p, ticks, i * ticks->step * ticks->unit);
        plot_svg_put(p->svg, "<path class=\"axis\" d=\"M%d %.1fh-6\"/>\n", PLOT_RIGHT, y);
        // The halo first, as chart.c does it.
        plot_svg_text(p->svg, "quiet halo end", PLOT_RIGHT - 9, y + 4, "%g %s", i * ticks->step,
                      ticks->label);
        plot_svg_text(p->svg, "quiet end", PLOT_RIGHT - 9, y + 4, "%g %s", i * ticks->step,
                      ticks->label);
    }
}

static void draw_tooltips(const plot_panel_t *p, const plot_series_t *series) {
    for (size_t i = 0; i < plot_panel_strips(p); i++) {
        char moved[PLOT_TEXT_CAPACITY], time[PLOT_TEXT_CAPACITY], calls[PLOT_TEXT_CAPACITY];
        size_t begin, end;
        plot_panel_strip_begin(p, i, &begin, &end);
        plot_svg_put(p->svg, "\nby then moved %s, driver time %s in %s calls",
                     plot_bytes_text(series->costs[PLOT_MOVED][end - 1], moved),
                     plot_us_text(series->costs[PLOT_DRIVER_US][end - 1], time),
                     plot_count_text(series->costs[PLOT_DRIVER_CALLS][end - 1], calls));
        plot_panel_strip_end(p);
    }
}

void plot_costs_draw(const plot_series_t *series, plot_svg_t *svg) {
    char moved[PLOT_TEXT_CAPACITY], time[PLOT_TEXT_CAPACITY], calls[PLOT_TEXT_CAPACITY];
    const plot_panel_t panel = {.svg = svg,
                                .count = series->count,
                                .top = TOP,
                                .bottom = BOTTOM,
                                .ticks = plot_ticks_bytes(total_of(series, PLOT_MOVED))};
    plot_ticks_t times = plot_ticks_us(total_of(series, PLOT_DRIVER_US));
    plot_svg_text(svg, "quiet", 24, 470, "so far, at the end: moved %s, driver time %s in %s calls",
                  plot_bytes_text(total_of(series, PLOT_MOVED), moved),
                  plot_us_text(total_of(series, PLOT_DRIVER_US), time),
                  plot_count_text(total_of(series, PLOT_DRIVER_CALLS), calls));
    double x = plot_svg_key(svg, "moved", PLOT_LEFT, 492, "moved: bytes whose page moved (left)");
    (void)plot_svg_key(svg, "driver", x, 492, "driver time (dashed, right)");
    plot_panel_axes(&panel, series->repeats);
    draw_cost(&panel, series, PLOT_MOVED, &panel.ticks, "moved");
    draw_cost(&panel, series, PLOT_DRIVER_US, &times, "driver");
    draw_time_axis(&panel, &times);
    draw_tooltips(&panel, series);
}
