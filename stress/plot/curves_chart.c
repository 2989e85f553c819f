// SPDX-License-Identifier: Apache-2.0
// Draws curves: for each trace and latency a row of three drawings, which are, from the left, what
// is reserved against what is moved without a cap, and against the cap what is moved and how much
// time driver calls and waits take.
//
// Bounds: a few elements a point. Locks: none. May fail: on writes only, for which the caller
// looks.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "stress/plot/curves.h"
#include "stress/plot/scale.h"

enum {
    COLOURS = 10, // classes c0 to c9 of svg.c
    KEYS_TOP = 56,
    KEY_HEIGHT = 18,
    ROW_HEIGHT = 300,
    PANEL_TOP = 46, // in its row
    PANEL_HEIGHT = 160,
    PANELS = 3,
    MARGIN = 14, // inside a panel, left and right of its points
};

#define CHARACTER_WIDTH 6.6 // about, as svg.c has it
#define RATIO_SHOWN_MAX 1.6 // of reserved over live; points above stand at the edge

static const int lefts[PANELS] = {62, 376, 690}, rights[PANELS] = {312, 612, 940};

typedef struct panel {
    plot_svg_t *svg;
    double left, right, top, bottom;
    double x_most, y_least, y_most; // values at the edges; of time their logarithms
} panel_t;

static double x_of(const panel_t *p, double value) {
    double share = p->x_most > 0 ? value / p->x_most : 0;
    return p->left + MARGIN + (p->right - p->left - 2 * MARGIN) * share;
}

static double y_of(const panel_t *p, double value) {
    double share = (value - p->y_least) / (p->y_most - p->y_least);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return p->bottom - (p->bottom - p->top) * share;
}

// --- axes ----------------------------------------------------------------------------------------

static void draw_frame(const panel_t *p, const char *title, const char *below) {
    plot_svg_put(p->svg, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", p->left, p->top,
                 p->bottom, p->right);
    plot_svg_text(p->svg, "quiet", p->left, p->top - 8, "%s", title);
    plot_svg_text(p->svg, "quiet middle", (p->left + p->right) / 2, p->bottom + 36, "%s", below);
}

static void draw_y(const panel_t *p, double value, const char *text) {
    double y = y_of(p, value);
    plot_svg_put(p->svg, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", p->left, y, p->right);
    plot_svg_text(p->svg, "quiet end", p->left - 6, y + 4, "%s", text);
}

static void draw_x(const panel_t *p, double value, const char *text) {
    plot_svg_put(p->svg, "<path class=\"axis\" d=\"M%.1f %.1fv5\"/>\n", x_of(p, value), p->bottom);
    plot_svg_text(p->svg, "quiet middle", x_of(p, value), p->bottom + 19, "%s", text);
}

// A step with which a few ticks reach `most`.
static double step_of(double most) {
    double power = pow(10, floor(log10(most / 2)));
    return most / power <= 5 ? power : most / power <= 10 ? 2 * power : 5 * power;
}

static void draw_shares(const panel_t *p, double most, bool is_x) {
    char text[PLOT_TEXT_CAPACITY];
    double step = step_of(most);
    for (int i = 0; i * step <= most * 1.0001; i++) {
        (void)snprintf(text, sizeof text, "%g", i * step);
        if (is_x)
            draw_x(p, i * step, text);
        else
            draw_y(p, i * step, text);
    }
}

static void draw_caps(const panel_t *p, const plot_curves_t *curves) {
    char text[PLOT_TEXT_CAPACITY];
    for (size_t i = 0; i < curves->headroom_count; i++) {
        (void)snprintf(text, sizeof text, "%g %%", curves->headrooms[i]);
        draw_x(p, (double)i, text);
    }
}

// --- points --------------------------------------------------------------------------------------

typedef struct row {
    const plot_curves_t *curves;
    plot_svg_t *svg;
    size_t trace, latency;
    double top;
} row_t;

static bool is_in_row(const row_t *row, const plot_curve_point_t *point) {
    return point->trace == row->trace && point->latency == row->latency;
}

static double time_us(const plot_curve_point_t *point) {
    return (double)(point->driver_us + point->wait_us);
}

static double log_time(const plot_curve_point_t *point) {
    return log10(time_us(point) < 1 ? 1 : time_us(point));
}

static double cap_number(const plot_curves_t *curves, double pct) {
    size_t i = 0;
    while (i + 1 < curves->headroom_count && curves->headrooms[i] < pct)
        i++;
    return (double)i;
}

typedef double value_fn(const row_t *row, const plot_curve_point_t *point);

static double share_value(const row_t *row, const plot_curve_point_t *point) {
    (void)row;
    return point->moved_share;
}

static double ratio_value(const row_t *row, const plot_curve_point_t *point) {
    (void)row;
    return point->reserved_ratio;
}

static double time_value(const row_t *row, const plot_curve_point_t *point) {
    (void)row;
    return log_time(point);
}

static double cap_value(const row_t *row, const plot_curve_point_t *point) {
    return cap_number(row->curves, point->headroom_pct);
}

static void draw_tooltip(const row_t *row, const plot_curve_point_t *point) {
    char driver[PLOT_TEXT_CAPACITY], wait[PLOT_TEXT_CAPACITY];
    plot_svg_put(row->svg, "<title>");
    plot_svg_escape(row->svg, row->curves->allocators.names[point->allocator]);
    if (point->headroom_pct >= 0)
        plot_svg_put(row->svg,
                     point->kind == PLOT_CURVE_CAPPED ? ", cap %g %%" : ", headroom %g %%",
                     point->headroom_pct);
    if (point->is_done)
        plot_svg_put(row->svg,
                     "\nreserved / live %.4f\nmoved / allocated %.4f\ndriver time %s, waits %s",
                     point->reserved_ratio, point->moved_share,
                     plot_us_text(point->driver_us, driver), plot_us_text(point->wait_us, wait));
    else
        plot_svg_put(row->svg, "\ndoes not finish");
    plot_svg_put(row->svg, "</title>");
}

// Allocators stand a little beside each other, so that equal values are seen.
static double beside(const plot_curve_point_t *point) {
    return ((double)(point->allocator % COLOURS) - 4.5) * 1.4;
}

static void draw_line(const row_t *row, const panel_t *p, plot_curve_kind_t kind, size_t allocator,
                      value_fn *x_value, value_fn *y_value) {
    size_t count = 0;
    for (size_t i = 0; i < row->curves->count; i++) {
        const plot_curve_point_t *point = &row->curves->points[i];
        if (!is_in_row(row, point) || point->kind != kind || point->allocator != allocator ||
            !point->is_done)
            continue;
        double shift = kind == PLOT_CURVE_CAPPED ? beside(point) : 0;
        if (count++ == 0)
            plot_svg_put(row->svg, "<path class=\"line c%zu\" d=\"M", allocator % COLOURS);
        else
            plot_svg_put(row->svg, "L");
        plot_svg_put(row->svg, "%.1f %.1f", x_of(p, x_value(row, point)) + shift,
                     y_of(p, y_value(row, point)));
    }
    if (count > 0)
        plot_svg_put(row->svg, "\"/>\n");
}

static void draw_marks(const row_t *row, const panel_t *p, plot_curve_kind_t kind, size_t allocator,
                       value_fn *x_value, value_fn *y_value) {
    for (size_t i = 0; i < row->curves->count; i++) {
        const plot_curve_point_t *point = &row->curves->points[i];
        if (!is_in_row(row, point) || point->kind != kind || point->allocator != allocator)
            continue;
        double x = point->is_done || kind == PLOT_CURVE_CAPPED ? x_of(p, x_value(row, point))
                                                               : p->right - MARGIN;
        x += kind == PLOT_CURVE_CAPPED ? beside(point) : 0;
        if (point->is_done)
            plot_svg_put(row->svg, "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\">",
                         allocator % COLOURS, x, y_of(p, y_value(row, point)));
        else
            plot_svg_put(row->svg, "<path class=\"line c%zu\" d=\"M%.1f %.1fl5 5m0 -5l-5 5\">",
                         allocator % COLOURS, x - 2.5, p->top - 5);
        draw_tooltip(row, point);
        plot_svg_put(row->svg, point->is_done ? "</circle>\n" : "</path>\n");
    }
}

static void draw_panel(const row_t *row, const panel_t *p, plot_curve_kind_t kind,
                       value_fn *x_value, value_fn *y_value) {
    for (size_t i = row->curves->allocators.count; i-- > 0;)
        draw_line(row, p, kind, i, x_value, y_value);
    for (size_t i = row->curves->allocators.count; i-- > 0;)
        draw_marks(row, p, kind, i, x_value, y_value);
}

// --- rows ----------------------------------------------------------------------------------------

// The greatest of a value among the row's points of a kind, but at least `least`.
static double most_of(const row_t *row, plot_curve_kind_t kind, value_fn *value, double least) {
    double most = least;
    for (size_t i = 0; i < row->curves->count; i++) {
        const plot_curve_point_t *point = &row->curves->points[i];
        if (is_in_row(row, point) && point->kind == kind && point->is_done &&
            value(row, point) > most)
            most = value(row, point);
    }
    return most;
}

static panel_t panel_of(const row_t *row, int number) {
    return (panel_t){.svg = row->svg,
                     .left = lefts[number],
                     .right = rights[number],
                     .top = row->top + PANEL_TOP,
                     .bottom = row->top + PANEL_TOP + PANEL_HEIGHT};
}

static void draw_reserved(const row_t *row) {
    panel_t p = panel_of(row, 0);
    char text[PLOT_TEXT_CAPACITY];
    p.x_most = most_of(row, PLOT_CURVE_UNCAPPED, share_value, 0.01);
    double most = most_of(row, PLOT_CURVE_UNCAPPED, ratio_value, 1.02);
    p.y_most = most < RATIO_SHOWN_MAX ? most : RATIO_SHOWN_MAX;
    p.y_least = 1;
    double step = step_of(p.y_most - 1);
    for (int i = 0; 1 + i * step <= p.y_most * 1.0001; i++) {
        (void)snprintf(text, sizeof text, "%.6g", 1 + i * step);
        draw_y(&p, 1 + i * step, text);
    }
    draw_shares(&p, p.x_most, true);
    draw_frame(&p, "reserved / live, no cap", "moved / allocated");
    draw_panel(row, &p, PLOT_CURVE_UNCAPPED, share_value, ratio_value);
}

static void draw_moved(const row_t *row) {
    panel_t p = panel_of(row, 1);
    p.x_most = (double)(row->curves->headroom_count > 1 ? row->curves->headroom_count - 1 : 1);
    p.y_most = most_of(row, PLOT_CURVE_CAPPED, share_value, 0.01);
    draw_shares(&p, p.y_most, false);
    draw_caps(&p, row->curves);
    draw_frame(&p, "moved / allocated", "cap above peak live");
    draw_panel(row, &p, PLOT_CURVE_CAPPED, cap_value, share_value);
}

static void draw_time(const row_t *row) {
    panel_t p = panel_of(row, 2);
    char text[PLOT_TEXT_CAPACITY];
    p.x_most = (double)(row->curves->headroom_count > 1 ? row->curves->headroom_count - 1 : 1);
    p.y_most = ceil(most_of(row, PLOT_CURVE_CAPPED, time_value, 1));
    p.y_least = p.y_most;
    for (size_t i = 0; i < row->curves->count; i++) {
        const plot_curve_point_t *point = &row->curves->points[i];
        if (is_in_row(row, point) && point->kind == PLOT_CURVE_CAPPED && point->is_done)
            p.y_least = fmin(p.y_least, floor(log_time(point)));
    }
    p.y_least = p.y_least < p.y_most ? p.y_least : p.y_most - 1;
    for (double decade = p.y_least; decade <= p.y_most; decade++)
        draw_y(&p, decade, plot_us_text((uint64_t)pow(10, decade), text));
    draw_caps(&p, row->curves);
    draw_frame(&p, "driver time and waits", "cap above peak live");
    draw_panel(row, &p, PLOT_CURVE_CAPPED, cap_value, time_value);
}

// "time / expandable's on the smallest common device:", then "berm remap:passed 0.31" and so on, on
// as many lines as they need.
static void draw_common(const row_t *row) {
    static const char label[] = "time / expandable's on the smallest common device:";
    double x = 24, y = row->top + PANEL_TOP + PANEL_HEIGHT + 58;
    for (size_t i = 0; i < row->curves->count; i++) {
        const plot_curve_point_t *point = &row->curves->points[i];
        char text[512];
        if (!is_in_row(row, point) || point->kind != PLOT_CURVE_COMMON || point->ratio < 0)
            continue;
        if (x <= 24) {
            plot_svg_text(row->svg, "quiet", x, y, "%s", label);
            x += CHARACTER_WIDTH * (double)strlen(label);
        }
        (void)snprintf(text, sizeof text, "%s %.2f",
                       row->curves->allocators.names[point->allocator], point->ratio);
        double width = CHARACTER_WIDTH * (double)strlen(text);
        if (x + width > PLOT_WIDTH - 24) {
            x = 40;
            y += 17;
        }
        plot_svg_text(row->svg, "quiet", x, y, "%s", text);
        x += width + 12;
    }
}

static bool row_has_points(const row_t *row, uint64_t *peak_live_bytes) {
    for (size_t i = 0; i < row->curves->count; i++) {
        if (is_in_row(row, &row->curves->points[i])) {
            *peak_live_bytes = row->curves->points[i].peak_live_bytes;
            return true;
        }
    }
    return false;
}

static void draw_row(const row_t *row, uint64_t peak_live_bytes) {
    char text[PLOT_TEXT_CAPACITY];
    plot_svg_text(row->svg, "mark", 24, row->top + 18, "%s, %s; peak live %s",
                  row->curves->traces.names[row->trace], row->curves->latencies.names[row->latency],
                  plot_bytes_text(peak_live_bytes, text));
    draw_reserved(row);
    draw_moved(row);
    draw_time(row);
    draw_common(row);
}

// Where the keys end; with a file to draw in, draws them.
static double keys_bottom(const plot_curves_t *curves, plot_svg_t *svg) {
    char class_name[8];
    double x = 24, y = KEYS_TOP;
    for (size_t i = 0; i < curves->allocators.count; i++) {
        const char *name = curves->allocators.names[i];
        double width = 34 + CHARACTER_WIDTH * (double)strlen(name);
        if (x > 24 && x + width > PLOT_WIDTH) {
            x = 24;
            y += KEY_HEIGHT;
        }
        (void)snprintf(class_name, sizeof class_name, "c%zu", i % COLOURS);
        if (svg != NULL)
            (void)plot_svg_key(svg, class_name, x, y, name);
        x += width;
    }
    return y + 4;
}

void plot_curves_draw(const plot_curves_t *curves, FILE *file, bool is_html) {
    plot_svg_t svg;
    row_t row = {.curves = curves, .svg = &svg};
    char title[256], figures[256];
    uint64_t peak_live_bytes = 0;
    size_t rows = 0, unfinished = 0;
    for (row.trace = 0; row.trace < curves->traces.count; row.trace++)
        for (row.latency = 0; row.latency < curves->latencies.count; row.latency++)
            rows += row_has_points(&row, &peak_live_bytes);
    for (size_t i = 0; i < curves->count; i++)
        unfinished += !curves->points[i].is_done;
    const char *slash = strrchr(curves->path, '/');
    (void)snprintf(title, sizeof title, "Memory against driver time: %.200s",
                   slash == NULL ? curves->path : slash + 1);
    (void)snprintf(figures, sizeof figures,
                   "points=%zu\nunfinished=%zu\nrows=%zu\ntraces=%zu\nallocators=%zu\n",
                   curves->count, unfinished, rows, curves->traces.count, curves->allocators.count);
    row.top = keys_bottom(curves, NULL);
    plot_svg_begin(&svg, file, is_html, row.top + ROW_HEIGHT * (double)rows + 10, title, figures);
    (void)keys_bottom(curves, &svg);
    for (row.trace = 0; row.trace < curves->traces.count; row.trace++) {
        for (row.latency = 0; row.latency < curves->latencies.count; row.latency++) {
            if (!row_has_points(&row, &peak_live_bytes))
                continue;
            draw_row(&row, peak_live_bytes);
            row.top += ROW_HEIGHT;
        }
    }
    plot_svg_end(&svg);
}
