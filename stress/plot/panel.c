// SPDX-License-Identifier: Apache-2.0
// Axes, stairs and strips of one drawing; what is drawn is left to chart.c and costs.c.
//
// Bounds: PLOT_POINTS_MAX points a line and PLOT_HOVER_COLUMNS strips, however many events.
// Locks: none. May fail: on writes only, for which the caller looks.
#include "stress/plot/panel.h"

#include <inttypes.h>

double plot_panel_x(const plot_panel_t *p, double index) {
    double last = p->count > 1 ? (double)(p->count - 1) : 1;
    return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * index / last;
}

double plot_panel_y(const plot_panel_t *p, const plot_ticks_t *ticks, double value) {
    return p->bottom - (p->bottom - p->top) * value / plot_ticks_top(ticks);
}

void plot_panel_axes(const plot_panel_t *p, uint64_t repeats) {
    char text[PLOT_TEXT_CAPACITY];
    for (unsigned i = 0; i <= p->ticks.count; i++) {
        double y = plot_panel_y(p, &p->ticks, i * p->ticks.step * p->ticks.unit);
        plot_svg_put(p->svg, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", PLOT_LEFT, y,
                     PLOT_RIGHT);
        plot_svg_text(p->svg, "quiet end", PLOT_LEFT - 8, y + 4, "%g %s", i * p->ticks.step,
                      p->ticks.label);
    }
    plot_ticks_t events = plot_ticks_count(p->count - 1);
    for (unsigned i = 0; i <= events.count; i++) {
        double index = i * events.step;
        if (index > (double)(p->count - 1))
            break;
        double x = plot_panel_x(p, index);
        plot_svg_put(p->svg, "<path class=\"axis\" d=\"M%.1f %dv5\"/>\n", x, p->bottom);
        plot_svg_text(p->svg, "quiet middle", x, p->bottom + 20, "%s",
                      plot_count_text((uint64_t)index, text));
    }
    plot_svg_put(p->svg, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", PLOT_LEFT, p->top,
                 p->bottom, PLOT_RIGHT);
    plot_svg_text(p->svg, "quiet middle", (PLOT_LEFT + PLOT_RIGHT) / 2.0, p->bottom + 40,
                  repeats > 1 ? "event, of all %" PRIu64 " repeats" : "event", repeats);
}

size_t plot_panel_points(const plot_panel_t *p, const uint64_t *values, size_t *indices) {
    return plot_thin(values, p->count, indices, PLOT_POINTS_MAX);
}

// A value changes at an event and stays until the next, so lines are stairs.
void plot_panel_stairs(const plot_panel_t *p, const plot_ticks_t *ticks, const uint64_t *values,
                       const size_t *indices, size_t count) {
    for (size_t i = 0; i < count; i++)
        plot_svg_put(p->svg, i == 0 ? "M%.2f %.2f" : "H%.2fV%.2f",
                     plot_panel_x(p, (double)indices[i]),
                     plot_panel_y(p, ticks, (double)values[indices[i]]));
}

size_t plot_panel_strips(const plot_panel_t *p) {
    return p->count < PLOT_HOVER_COLUMNS ? p->count : PLOT_HOVER_COLUMNS;
}

void plot_panel_strip_begin(const plot_panel_t *p, size_t i, size_t *begin, size_t *end) {
    size_t strips = plot_panel_strips(p);
    double width = (double)(PLOT_RIGHT - PLOT_LEFT) / (double)strips;
    char first[PLOT_TEXT_CAPACITY], last[PLOT_TEXT_CAPACITY];
    *begin = p->count * i / strips;
    *end = p->count * (i + 1) / strips;
    plot_svg_put(p->svg,
                 "<rect class=\"hover\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">"
                 "<title>events %s to %s",
                 PLOT_LEFT + width * (double)i, p->top, width, p->bottom - p->top,
                 plot_count_text(*begin, first), plot_count_text(*end - 1, last));
}

void plot_panel_strip_end(const plot_panel_t *p) {
    plot_svg_put(p->svg, "</title></rect>\n");
}
