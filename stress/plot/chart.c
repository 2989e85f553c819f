// SPDX-License-Identifier: Apache-2.0
// Draws memory over events: a line for each figure, its peak, and tooltips; what it cost below, by
// costs.c, where the series says.
//
//   y  30 title, 52 peaks, 74 legend
//      96 to 400 drawing, then ticks of events
//
// Bounds: as panel.c.
// Locks: none. May fail: on writes only, for which the caller looks.
#include <inttypes.h>
#include <string.h>

#include "stress/plot/panel.h"
#include "stress/plot/series.h"

enum {
    TOP = 96,
    BOTTOM = 400,
    HEIGHT = 452,
};

static const char *const line_names[PLOT_LINES] = {"live", "allocated", "reserved"};

typedef struct chart {
    const plot_series_t *series;
    plot_svg_t svg;
    plot_panel_t panel;
    size_t peaks[PLOT_LINES]; // where each line is first at its greatest
} chart_t;

static uint64_t peak_bytes(const chart_t *c, int line) {
    return c->series->values[line][c->peaks[line]];
}

static double y_of(const chart_t *c, double bytes) {
    return plot_panel_y(&c->panel, &c->panel.ticks, bytes);
}

static void find_peaks(chart_t *c) {
    uint64_t largest = 0;
    for (int line = 0; line < PLOT_LINES; line++) {
        const uint64_t *values = c->series->values[line];
        if (values == NULL)
            continue;
        for (size_t i = 1; i < c->series->count; i++)
            if (values[i] > values[c->peaks[line]])
                c->peaks[line] = i;
        largest = peak_bytes(c, line) > largest ? peak_bytes(c, line) : largest;
    }
    c->panel = (plot_panel_t){.svg = &c->svg,
                              .count = c->series->count,
                              .top = TOP,
                              .bottom = BOTTOM,
                              .ticks = plot_ticks_bytes(largest)};
}

static void draw_line(chart_t *c, int line) {
    const uint64_t *values = c->series->values[line];
    size_t indices[PLOT_POINTS_MAX];
    size_t count = plot_panel_points(&c->panel, values, indices);
    char text[PLOT_TEXT_CAPACITY];
    const char *name = line_names[line];
    if (line != PLOT_ALLOCATED) {
        plot_svg_put(&c->svg, "<path class=\"area %s\" d=\"", name);
        plot_panel_stairs(&c->panel, &c->panel.ticks, values, indices, count);
        plot_svg_put(&c->svg, "V%dH%dZ\"/>\n", BOTTOM, PLOT_LEFT);
    }
    plot_svg_put(&c->svg, "<path class=\"line %s\" d=\"", name);
    plot_panel_stairs(&c->panel, &c->panel.ticks, values, indices, count);
    plot_svg_put(&c->svg, "\"><title>%s: peak %s</title></path>\n", name,
                 plot_bytes_text(peak_bytes(c, line), text));
}

static void draw_peak(chart_t *c, int line, double label_shift) {
    double x = plot_panel_x(&c->panel, (double)c->peaks[line]),
           y = y_of(c, (double)peak_bytes(c, line));
    char text[PLOT_TEXT_CAPACITY], where[PLOT_TEXT_CAPACITY];
    plot_svg_put(&c->svg,
                 "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>peak %s %s at event "
                 "%s</title></circle>\n",
                 line_names[line], x, y, line_names[line],
                 plot_bytes_text(peak_bytes(c, line), text),
                 plot_count_text(c->peaks[line], where));
    bool is_right = x > (PLOT_LEFT + PLOT_RIGHT) / 2.0;
    // The halo first, as its own text: not every viewer of SVG knows paint-order.
    static const char *const classes[2][2] = {{"mark halo", "mark"}, {"mark halo end", "mark end"}};
    for (int i = 0; i < 2; i++)
        plot_svg_text(&c->svg, classes[is_right][i], x + (is_right ? -8 : 8), y + label_shift,
                      "peak %s %s", line_names[line], text);
}

// Strips over the drawing whose tooltips say what lies below them.
static void draw_tooltips(chart_t *c) {
    for (size_t i = 0; i < plot_panel_strips(&c->panel); i++) {
        char first[PLOT_TEXT_CAPACITY], last[PLOT_TEXT_CAPACITY];
        size_t begin, end;
        plot_panel_strip_begin(&c->panel, i, &begin, &end);
        for (int line = 0; line < PLOT_LINES; line++) {
            const uint64_t *values = c->series->values[line];
            if (values == NULL)
                continue;
            uint64_t least = values[begin], greatest = values[begin];
            for (size_t k = begin; k < end; k++) {
                least = values[k] < least ? values[k] : least;
                greatest = values[k] > greatest ? values[k] : greatest;
            }
            plot_svg_put(&c->svg, "\n%s %s to %s", line_names[line], plot_bytes_text(least, first),
                         plot_bytes_text(greatest, last));
        }
        plot_panel_strip_end(&c->panel);
    }
}

// What the picture says in words: a line on it, and "name=value" lines for programs.
static void write_figures(const chart_t *c, char *shown, size_t shown_size, char *figures,
                          size_t figures_size) {
    char text[PLOT_TEXT_CAPACITY], where[PLOT_TEXT_CAPACITY];
    int used =
        snprintf(shown, shown_size, "%s events; peaks:", plot_count_text(c->series->count, text));
    int noted = snprintf(figures, figures_size, "events=%zu\n", c->series->count);
    for (int line = 0; line < PLOT_LINES; line++) {
        if (c->series->values[line] == NULL)
            continue;
        used += snprintf(shown + used, shown_size - (size_t)used, "%s %s %s at event %s",
                         line == 0 ? "" : ",", line_names[line],
                         plot_bytes_text(peak_bytes(c, line), text),
                         plot_count_text(c->peaks[line], where));
        noted += snprintf(figures + noted, figures_size - (size_t)noted,
                          "peak_%s_bytes=%" PRIu64 "\npeak_%s_event=%zu\n", line_names[line],
                          peak_bytes(c, line), line_names[line], c->peaks[line]);
    }
    if (c->series->costs[PLOT_MOVED] != NULL) {
        size_t last = c->series->count - 1;
        (void)snprintf(figures + noted, figures_size - (size_t)noted,
                       "moved_bytes=%" PRIu64 "\ndriver_calls=%" PRIu64 "\ndriver_us=%" PRIu64 "\n",
                       c->series->costs[PLOT_MOVED][last],
                       c->series->costs[PLOT_DRIVER_CALLS][last],
                       c->series->costs[PLOT_DRIVER_US][last]);
    }
    if (c->series->source_reserved_bytes != 0)
        (void)snprintf(shown + used, shown_size - (size_t)used,
                       "; the recorded program's allocator held up to %s",
                       plot_bytes_text(c->series->source_reserved_bytes, text));
}

void plot_chart_draw(const plot_series_t *series, FILE *file, bool is_html) {
    chart_t chart = {.series = series};
    chart_t *c = &chart;
    find_peaks(c);
    // Long enough for every line: four names and sizes of PLOT_TEXT_CAPACITY at most.
    char shown[512], figures[512], title[512];
    write_figures(c, shown, sizeof shown, figures, sizeof figures);
    const char *slash = strrchr(series->path, '/');
    (void)snprintf(title, sizeof title, "Memory over time: %s",
                   slash == NULL ? series->path : slash + 1);
    bool has_costs = series->costs[PLOT_MOVED] != NULL;
    plot_svg_begin(&c->svg, file, is_html, has_costs ? PLOT_COSTS_BOTTOM : HEIGHT, title, figures);
    plot_svg_text(&c->svg, "quiet", 24, 52, "%s", shown);
    static const char *const meanings[PLOT_LINES] = {"live: what the program asked for",
                                                     "allocated: with rounding (dashed)",
                                                     "reserved: held of the device"};
    double x = PLOT_LEFT;
    for (int line = 0; line < PLOT_LINES; line++)
        if (series->values[line] != NULL)
            x = plot_svg_key(&c->svg, line_names[line], x, 76, meanings[line]);
    plot_panel_axes(&c->panel, series->repeats);
    for (int line = PLOT_LINES - 1; line >= 0; line--)
        if (series->values[line] != NULL)
            draw_line(c, line);
    draw_tooltips(c);
    draw_peak(c, PLOT_LIVE, 18);
    if (series->values[PLOT_RESERVED] != NULL)
        draw_peak(c, PLOT_RESERVED, -8);
    if (has_costs)
        plot_costs_draw(series, &c->svg);
    plot_svg_end(&c->svg);
}
