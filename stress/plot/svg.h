// SPDX-License-Identifier: Apache-2.0
// Writes one SVG picture, alone or in an HTML page. Errors of the file are left for ferror.
#ifndef STRESS_PLOT_SVG_H
#define STRESS_PLOT_SVG_H

#include <stdbool.h>
#include <stdio.h>

#include "base/defs.h"

enum {
    PLOT_WIDTH = 960,
    PLOT_LEFT = 84, // where the drawing begins, right of the axis' labels
    PLOT_RIGHT = 936,
};

typedef struct plot_svg {
    FILE *file;
    bool is_html;
} plot_svg_t;

// `title` is shown at the top too; `figures` are lines "name=value" for programs and screen
// readers.
void plot_svg_begin(plot_svg_t *svg, FILE *file, bool is_html, double height, const char *title,
                    const char *figures);
void plot_svg_end(plot_svg_t *svg);

// Markup as it stands.
void plot_svg_put(plot_svg_t *svg, const char *format, ...) BERM_PRINTF(2, 3);
// Text of any bytes: what XML gives a meaning is escaped, what it cannot hold becomes '?'.
void plot_svg_escape(plot_svg_t *svg, const char *text);
// A line of text in class `css_class`.
void plot_svg_text(plot_svg_t *svg, const char *css_class, double x, double y, const char *format,
                   ...) BERM_PRINTF(5, 6);
// A square of class `css_class` with its meaning; returns where the next goes.
double plot_svg_key(plot_svg_t *svg, const char *css_class, double x, double y, const char *text);

#endif
