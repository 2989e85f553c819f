// SPDX-License-Identifier: Apache-2.0
// The frame of a picture: style, title, escaping. What is drawn is left to chart.c and map.c.
//
// Nothing is loaded from elsewhere: no fonts, no scripts. Colours (Okabe and Ito's, told apart by
// the colour-blind) are classes; a dark screen has its own, paper has the light ones. Plain
// properties instead of CSS variables, which several viewers of SVG do not know.
//
// Locks: none. May fail: on writes; the caller asks ferror.
#include "stress/plot/svg.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char style[] =
    "text{font-family:system-ui,'Liberation Sans',Arial,sans-serif;font-size:12px;fill:#222}"
    ".title{font-size:17px;font-weight:600}.quiet{fill:#555}.end{text-anchor:end}"
    ".middle{text-anchor:middle}"
    ".mark{font-weight:600}.halo{stroke:#fff;stroke-width:3px}"
    ".paper{fill:#fff}.grid{stroke:#ddd;fill:none}.axis{stroke:#555;fill:none}.hover{fill-opacity:"
    "0}"
    ".hover:hover{fill:#888;fill-opacity:.25}"
    ".live{fill:#0072b2}.awaited{fill:#e69f00}.free{fill:#d9d9d9}.busy{fill:#cc79a7}"
    ".poisoned{fill:#b00020}.stale{fill:#8a6fb8}.void{fill:#aaa}.block{stroke:#fff;stroke-width:.4}"
    ".allocated{fill:#009e73}.reserved{fill:#d55e00}.moved{fill:#cc79a7}.driver{fill:#555}"
    ".c0{fill:#0072b2}.c1{fill:#56b4e9}"
    ".c2{fill:#222}.c3{fill:#009e73}"
    ".c4{fill:#d55e00}.c5{fill:#e69f00}"
    ".c6{fill:#cc79a7}.c7{fill:#8a6fb8}"
    ".c8{fill:#7f7f7f}.c9{fill:#b00020}"
    ".line{fill:none;stroke-width:1.5;stroke-linejoin:round}.line.live{stroke:#0072b2}"
    ".line.allocated{stroke:#009e73;stroke-dasharray:6 3}.line.reserved{stroke:#d55e00}"
    ".line.moved{stroke:#cc79a7}.line.driver{stroke:#555;stroke-dasharray:6 3}"
    ".line.c0{stroke:#0072b2}.line.c1{stroke:#56b4e9}"
    ".line.c2{stroke:#222}.line.c3{stroke:#009e73}"
    ".line.c4{stroke:#d55e00}.line.c5{stroke:#e69f00}"
    ".line.c6{stroke:#cc79a7}.line.c7{stroke:#8a6fb8}"
    ".line.c8{stroke:#7f7f7f}.line.c9{stroke:#b00020}"
    ".area{fill-opacity:.18;stroke:none}.handle{stroke:#222;fill:none}"
    "@media screen and (prefers-color-scheme:dark){text{fill:#e6e6e6}.quiet{fill:#aaa}"
    ".paper{fill:#16181c}.grid{stroke:#33363c}.axis,.handle{stroke:#aaa}.halo{stroke:#16181c}"
    ".live{fill:#56b4e9}.free{fill:#4a4d55}.void{fill:#777}.block{stroke:#16181c}"
    ".poisoned{fill:#ff5c6c}.stale{fill:#b79be0}.allocated{fill:#2fd0a0}.reserved{fill:#ff8a3d}."
    "moved{fill:#e79ac6}."
    "driver{fill:#bbb}"
    ".c0{fill:#3b9ddd}.c1{fill:#9ad4f5}"
    ".c2{fill:#e6e6e6}.c3{fill:#2fd0a0}"
    ".c4{fill:#ff8a3d}.c5{fill:#ffc04d}"
    ".c6{fill:#e79ac6}.c7{fill:#b79be0}"
    ".c8{fill:#aaa}.c9{fill:#ff5c6c}"
    ".line{fill:none}"
    ".line.live{stroke:#56b4e9}.line.allocated{stroke:#2fd0a0}.line.reserved{stroke:#ff8a3d}"
    ".line.c0{stroke:#3b9ddd}.line.c1{stroke:#9ad4f5}"
    ".line.c2{stroke:#e6e6e6}.line.c3{stroke:#2fd0a0}"
    ".line.c4{stroke:#ff8a3d}.line.c5{stroke:#ffc04d}"
    ".line.c6{stroke:#e79ac6}.line.c7{stroke:#b79be0}"
    ".line.c8{stroke:#aaa}.line.c9{stroke:#ff5c6c}"
    ".line.moved{stroke:#e79ac6}.line.driver{stroke:#bbb}}";

void plot_svg_put(plot_svg_t *svg, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(svg->file, format, arguments);
    va_end(arguments);
}

// The length of the UTF-8 sequence at `text` that XML can hold, or 0.
static size_t character_length(const unsigned char *text) {
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f;
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    uint32_t code = text[0] & (0xffU >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    bool is_control = code < 0xa0 || code == 0xfffe || code == 0xffff;
    return code < least[length] || code > 0x10ffff || is_surrogate || is_control ? 0 : length;
}

void plot_svg_escape(plot_svg_t *svg, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        size_t length = character_length(at);
        if (length == 0)
            (void)fputc('?', svg->file);
        else if (*at == '<')
            (void)fputs("&lt;", svg->file);
        else if (*at == '>')
            (void)fputs("&gt;", svg->file);
        else if (*at == '&')
            (void)fputs("&amp;", svg->file);
        else if (*at == '"')
            (void)fputs("&quot;", svg->file);
        else
            (void)fwrite(at, 1, length, svg->file);
        at += length == 0 ? 1 : length;
    }
}

// The title of the picture as text of at most this many bytes, so that it stays on the picture.
static void put_title(plot_svg_t *svg, const char *title) {
    enum {
        SHOWN_MAX = 96
    };
    char shown[SHOWN_MAX + 4];
    size_t length = strlen(title);
    (void)snprintf(shown, sizeof shown, "%.*s%s", SHOWN_MAX, title,
                   length > SHOWN_MAX ? "..." : "");
    plot_svg_text(svg, "title", 24, 30, "%s", shown);
}

void plot_svg_begin(plot_svg_t *svg, FILE *file, bool is_html, double height, const char *title,
                    const char *figures) {
    *svg = (plot_svg_t){.file = file, .is_html = is_html};
    if (is_html) {
        plot_svg_put(svg, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                          "<meta name=\"color-scheme\" content=\"light dark\"><title>");
        plot_svg_escape(svg, title);
        plot_svg_put(svg, "</title>\n<style>body{margin:1rem auto;max-width:75rem}"
                          "svg{width:100%%;height:auto}@media screen and "
                          "(prefers-color-scheme:dark){body{background:#16181c}}</style></head>"
                          "<body>\n");
    } else {
        plot_svg_put(svg, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    }
    plot_svg_put(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                 "viewBox=\"0 0 %d %.0f\" role=\"img\">\n<title>",
                 PLOT_WIDTH, ceil(height), PLOT_WIDTH, ceil(height));
    plot_svg_escape(svg, title);
    plot_svg_put(svg, "</title>\n<desc>");
    for (const char *at = figures; *at != '\0';) {
        // Lines stay lines; plot_svg_escape would take their ends for what XML cannot hold.
        char line[128];
        size_t length = strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)(length < 127 ? length : 127), at);
        plot_svg_escape(svg, line);
        plot_svg_put(svg, "\n");
        at += length + (at[length] == '\n');
    }
    plot_svg_put(svg, "</desc>\n<style>%s</style>\n", style);
    plot_svg_put(svg, "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n");
    put_title(svg, title);
}

void plot_svg_end(plot_svg_t *svg) {
    plot_svg_put(svg, "</svg>\n%s", svg->is_html ? "</body></html>\n" : "");
}

void plot_svg_text(plot_svg_t *svg, const char *css_class, double x, double y, const char *format,
                   ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    plot_svg_put(svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", css_class, x, y);
    plot_svg_escape(svg, text);
    plot_svg_put(svg, "</text>\n");
}

double plot_svg_key(plot_svg_t *svg, const char *css_class, double x, double y, const char *text) {
    plot_svg_put(svg, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\"/>\n",
                 css_class, x, y - 10);
    plot_svg_text(svg, "quiet", x + 16, y, "%s", text);
    return x + 16 + 6.6 * (double)strlen(text) + 18;
}
