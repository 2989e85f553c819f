// SPDX-License-Identifier: Apache-2.0
// The frame of a recording's page: see page.h. Colours are chosen by radio buttons and CSS alone,
// so that the page needs no script, the keyboard reaches all of it, and paper shows it as it
// stands.
//
// Locks: none. May fail: without host memory.
#include "stress/plot/page.h"

#include <inttypes.h>
#include <string.h>

#include "record/verdict.h"
#include "stress/plot/page_inside.h"
#include "stress/plot/scale.h"

// Okabe and Ito's colours, told apart by the colour-blind; ages from dark to light.
static const char *const hues[PAGE_COLOURS] = {"#7f8c8d", "#0072b2", "#e69f00", "#009e73",
                                               "#d55e00", "#cc79a7", "#56b4e9", "#8a6fb8",
                                               "#b00020", "#a3a500"};
static const char *const ages[PAGE_AGES] = {"#08306b", "#2171b5", "#6baed6", "#fdae6b", "#d94801"};

static const char style[] =
    "*{-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "body{font:15px/1.5 system-ui,'Liberation Sans',Arial,sans-serif;color:#1c1f23;background:#fff;"
    "margin:1.5rem auto;max-width:62rem;padding:0 1rem}"
    "h1{font-size:1.45rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}"
    "h3{font-size:1rem;margin:1.4rem 0 .2rem}p{margin:.3rem 0}.quiet{color:#5a6068}"
    ".verdict{border-left:5px solid #b00020;padding:.5rem .9rem;background:#faf1f2;margin:.8rem 0}"
    ".verdict.none{border-color:#009e73;background:#eff8f5}"
    "svg{width:100%;height:auto;display:block}"
    "svg text{font:12px system-ui,'Liberation Sans',Arial,sans-serif;fill:#3a3f45}"
    ".end{text-anchor:end}.middle{text-anchor:middle}svg text.on-bar{fill:#fff;font-weight:600}"
    ".grid{stroke:#dfe2e6;fill:none}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}"
    ".line.l0{stroke:#0072b2}.line.l1{stroke:#d55e00}.line.l2{stroke:#009e73}"
    "path.failed{stroke:#b00020;stroke-width:1.5;stroke-dasharray:2 2}"
    ".map rect{stroke:#fff;stroke-width:.5}.map rect:hover{stroke:#000;stroke-width:1.5}"
    "table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.15rem .9rem .15rem 0;text-align:"
    "left;border-bottom:1px solid #e4e7ea;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    ".keys span{display:inline-block;margin-right:1rem}"
    ".keys span::before{content:'';display:inline-block;width:.8em;height:.8em;margin-right:.35em;"
    "border-radius:2px;background:currentColor;color:inherit}"
    ".keys span{font-size:.9rem}"
    ".l0::before{background:#0072b2!important}.l1::before{background:#d55e00!important}"
    ".l2::before{background:#009e73!important}.failed::before{background:#b00020!important}"
    "label{margin-right:1.1rem;cursor:pointer}"
    "input:focus-visible{outline:3px solid #0072b2;outline-offset:2px}"
    ".by-tag-only,.by-pool-only,.by-age-only{display:none}"
    "@media print{body{margin:0;max-width:none;font-size:11px}.choose{display:none}"
    "h2{break-after:avoid}svg{break-inside:avoid}}";

static void put_colours(page_t *page, const char *button, char letter, const char *const *colours,
                        int count) {
    plot_svg_put(&page->out, "#%s:checked~.device .%s-only{display:block}", button, button);
    for (int i = 0; i < count; i++)
        plot_svg_put(&page->out,
                     "#%s:checked~.device .map .%c%d{fill:%s}.%s-only .%c%d::before{background:%s}",
                     button, letter, i, colours[i], button, letter, i, colours[i]);
}

static void put_style(page_t *page) {
    plot_svg_put(&page->out, "<style>%s", style);
    put_colours(page, "by-tag", 't', hues, PAGE_COLOURS);
    put_colours(page, "by-pool", 'p', hues, PAGE_COLOURS);
    put_colours(page, "by-age", 'a', ages, PAGE_AGES);
    for (int i = 0; i < PAGE_COLOURS; i++)
        plot_svg_put(&page->out, "svg rect.t%d{fill:%s}", i, hues[i]);
    // What is not live has the colour of its state, whatever is chosen.
    static const char *const states[] = {"#dfe2e6", NULL, "#f6c344", "#b79be0"};
    for (int i = 0; i < 4; i++)
        if (states[i] != NULL)
            plot_svg_put(&page->out,
                         ".map rect.s%d{fill:%s!important}.keys .s%d::before{background:%s}", i,
                         states[i], i, states[i]);
    plot_svg_put(&page->out, "</style>\n");
}

void page_figure_bytes(page_t *page, const char *name, const char *words, uint64_t bytes) {
    char text[PLOT_TEXT_CAPACITY];
    plot_svg_put(&page->out,
                 "<tr><th scope=\"row\">%s</th><td data-name=\"%s\" data-bytes=\"%" PRIu64
                 "\">%s</td></tr>\n",
                 words, name, bytes, plot_bytes_text(bytes, text));
}

static void put_verdict(page_t *page) {
    berm_verdict_t verdict;
    if (!berm__verdict_find(page->record, &verdict))
        return;
    plot_svg_put(&page->out, "<div class=\"verdict%s\" id=\"verdict\" data-verdict=\"%s\">",
                 verdict.kind == BERM_VERDICT_NONE ? " none" : "",
                 berm__verdict_name(verdict.kind));
    if (verdict.kind == BERM_VERDICT_NONE)
        plot_svg_put(&page->out, "<strong>No request failed.</strong>");
    else
        plot_svg_put(&page->out, "<strong>%s</strong> (confidence: %s)",
                     berm__verdict_name(verdict.kind), verdict.is_high ? "high" : "low");
    for (unsigned i = 0; i < verdict.line_count; i++) {
        plot_svg_put(&page->out, "<br>");
        plot_svg_escape(&page->out, verdict.lines[i]);
    }
    if (verdict.next[0] != '\0') {
        plot_svg_put(&page->out, "<br><strong>Next:</strong> ");
        plot_svg_escape(&page->out, verdict.next);
    }
    plot_svg_put(&page->out, "</div>\n");
}

static void put_figures(page_t *page) {
    const berm_record_figures_t *figures = &page->device->figures;
    plot_svg_put(&page->out, "<table class=\"figures\">\n");
    page_figure_bytes(page, "memory", "memory of the device", figures->memory);
    page_figure_bytes(page, "free", "free, as the driver says", figures->driver_free);
    if (figures->limit != UINT64_MAX)
        page_figure_bytes(page, "limit", "limit", figures->limit);
    page_figure_bytes(page, "reserved", "reserved by berm", figures->reserved);
    page_figure_bytes(page, "requested", "live: requested", figures->requested);
    page_figure_bytes(page, "requested_peak", "live, at most", figures->requested_peak);
    page_figure_bytes(page, "cached", "cached", figures->cached);
    page_figure_bytes(page, "largest_free", "largest free piece", page_largest_free(page->device));
    plot_svg_put(&page->out, "</table>\n");
}

static bool device_put(page_t *page) {
    bool is_good = true;
    plot_svg_put(&page->out, "<h2>Device %d</h2>\n", page->device->ordinal);
    put_figures(page);
    plot_svg_put(&page->out, "<h3>Memory over time</h3>\n");
    if (page->device->has_lost)
        plot_svg_put(&page->out,
                     "<p class=\"quiet\">What happened before the first event is not in "
                     "the recording.</p>\n");
    is_good = page_time_draw(page);
    plot_svg_put(&page->out, "<h3>Who holds it</h3>\n");
    is_good = is_good && page_flame_draw(page);
    plot_svg_put(&page->out, "<h3>Where it lies</h3>\n");
    page_map_draw(page);
    return is_good;
}

bool plot_page_draw(const berm_record_t *record, const char *path, plot_site_fn site, FILE *file) {
    page_t page = {.out = {.file = file, .is_html = true}, .record = record, .site = site};
    bool is_good = true;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    plot_svg_put(&page.out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                            "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    plot_svg_escape(&page.out, name);
    plot_svg_put(&page.out, ": device memory</title>\n");
    put_style(&page);
    plot_svg_put(&page.out, "</head><body><main>\n<h1>Device memory: ");
    plot_svg_escape(&page.out, name);
    plot_svg_put(&page.out, "</h1>\n<p class=\"quiet\">process %" PRIu64 ", %u device%s</p>\n",
                 record->pid, record->device_count, record->device_count == 1 ? "" : "s");
    put_verdict(&page);
    plot_svg_put(&page.out,
                 "<span class=\"choose\">Colours of the maps:</span>\n"
                 "<input class=\"choose\" type=\"radio\" name=\"by\" id=\"by-tag\" checked><label "
                 "class=\"choose\" for=\"by-tag\"> by tag</label>\n"
                 "<input class=\"choose\" type=\"radio\" name=\"by\" id=\"by-pool\"><label "
                 "class=\"choose\" for=\"by-pool\"> by pool</label>\n"
                 "<input class=\"choose\" type=\"radio\" name=\"by\" id=\"by-age\"><label "
                 "class=\"choose\" for=\"by-age\"> by age</label>\n");
    for (unsigned i = 0; i < record->device_count && is_good; i++) {
        page.device = &record->devices[i];
        plot_svg_put(&page.out, "<section class=\"device\">\n");
        is_good = device_put(&page);
        plot_svg_put(&page.out, "</section>\n");
    }
    plot_svg_put(&page.out, "</main></body></html>\n");
    return is_good;
}
