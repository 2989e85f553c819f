// SPDX-License-Identifier: Apache-2.0
// Three bars for each allocator: what the program had requested at its peak, the smallest memory in
// which it ends, and what was reserved with room to spare. All begin at 0, so that lengths compare.
//
// Bounds: 8 MiB of JSON, 8 runs. Locks: none. May fail: on bad input or for want of memory.
#include "stress/plot/bars.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/bits.h"

enum {
    JSON_BYTES_MAX = 8 << 20,
    TOP = 78,
    ROW_HEIGHT = 74,
    BAR_HEIGHT = 18,
    VALUES_WIDTH = 190, // right of the longest bar
};

// The first line that begins an object, and all after it; NULL: none.
static const char *json_begin(const trace_input_t *input, size_t *size) {
    const char *at = (const char *)input->bytes, *end = at + input->size;
    while (at < end && *at != '{') {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at == NULL)
            return NULL;
        at++;
    }
    *size = (size_t)(end - at);
    return at < end ? at : NULL;
}

bool plot_bars_match(const trace_input_t *input) {
    static const char key[] = "\"gpu\"", runs[] = "\"runs\"";
    size_t size = 0;
    const char *json = json_begin(input, &size);
    if (json == NULL)
        return false;
    const char *first = memmem(json, size < 256 ? size : 256, key, sizeof key - 1);
    return first != NULL && memmem(first, size - (size_t)(first - json), runs, sizeof runs - 1);
}

static uint64_t number_of(const json_t *object, const char *key) {
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

// The largest figure of all devices of all processes.
static uint64_t largest_of(const json_t *run, const char *key) {
    const json_t *processes = json_object_get(run, "processes");
    uint64_t largest = 0;
    for (size_t i = 0; i < json_array_size(processes); i++) {
        const json_t *devices = json_object_get(json_array_get(processes, i), "devices");
        for (size_t j = 0; j < json_array_size(devices); j++)
            largest = berm__max_u64(largest, number_of(json_array_get(devices, j), key));
    }
    return largest;
}

static void text_copy(char *to, size_t capacity, const json_t *text) {
    const char *from = json_string_value(text);
    (void)snprintf(to, capacity, "%s", from != NULL ? from : "?");
}

static void bar_read(plot_bar_t *bar, const json_t *run) {
    text_copy(bar->allocator, sizeof bar->allocator, json_object_get(run, "allocator"));
    bar->requested_bytes = largest_of(run, "peak_requested_bytes");
    bar->reserved_bytes = largest_of(run, "peak_reserved_bytes");
    bar->smallest_bytes = number_of(run, "smallest_memory_bytes");
    bar->fits = json_is_true(json_object_get(run, "fits"));
}

int plot_bars_read(plot_bars_t *bars, const trace_input_t *input, char *error,
                   size_t error_capacity) {
    size_t size = 0;
    const char *text = json_begin(input, &size);
    json_error_t problem;
    *bars = (plot_bars_t){.path = input->name};
    if (text == NULL || size > JSON_BYTES_MAX) {
        trace_fail(error, error_capacity, "%s: more than %d MiB of JSON", input->name,
                   JSON_BYTES_MAX >> 20);
        return -1;
    }
    json_t *root = json_loadb(text, size, 0, &problem);
    const json_t *runs = json_object_get(root, "runs");
    size_t count = json_array_size(runs);
    if (root == NULL)
        trace_fail(error, error_capacity, "%s:%d: %s", input->name, problem.line, problem.text);
    else if (count == 0 || count > PLOT_BARS_MAX)
        trace_fail(error, error_capacity, "%s: %zu runs; a picture has 1 to %d", input->name, count,
                   PLOT_BARS_MAX);
    else
        bars->count = count;
    text_copy(bars->gpu, sizeof bars->gpu, json_object_get(root, "gpu"));
    for (size_t i = 0; i < bars->count; i++)
        bar_read(&bars->bars[i], json_array_get(runs, i));
    json_decref(root);
    return bars->count > 0 ? 0 : -1;
}

// --- drawing -------------------------------------------------------------------------------------

static double mib(uint64_t bytes) {
    return (double)bytes / 1048576.0;
}

static void bar_draw(plot_svg_t *svg, const char *css_class, double y, uint64_t bytes,
                     uint64_t requested_bytes, double bytes_per_pixel) {
    double width = (double)bytes / bytes_per_pixel;
    plot_svg_put(svg, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n",
                 css_class, PLOT_LEFT, y, width, BAR_HEIGHT);
    plot_svg_text(svg, "", PLOT_LEFT + width + 8, y + 13, "%.1f MiB", mib(bytes));
    if (bytes != requested_bytes && requested_bytes > 0)
        plot_svg_text(svg, "quiet", PLOT_LEFT + width + 92, y + 13, "%.4f of requested",
                      (double)bytes / (double)requested_bytes);
}

static void bars_figures(const plot_bars_t *bars, char *text, size_t capacity) {
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < bars->count && length < capacity; i++) {
        const plot_bar_t *bar = &bars->bars[i];
        length += (size_t)snprintf(text + length, capacity - length,
                                   "%s_requested_bytes=%" PRIu64 "\n%s_smallest_bytes=%" PRIu64
                                   "\n%s_reserved_bytes=%" PRIu64 "\n",
                                   bar->allocator, bar->requested_bytes, bar->allocator,
                                   bar->smallest_bytes, bar->allocator, bar->reserved_bytes);
    }
}

void plot_bars_draw(const plot_bars_t *bars, FILE *file, bool is_html) {
    plot_svg_t svg;
    char figures[PLOT_BARS_MAX * 256], title[128];
    uint64_t most = 1;
    for (size_t i = 0; i < bars->count; i++)
        most = berm__max_u64(most, berm__max_u64(bars->bars[i].reserved_bytes,
                                                 berm__max_u64(bars->bars[i].smallest_bytes,
                                                               bars->bars[i].requested_bytes)));
    double bytes_per_pixel = (double)most / (PLOT_RIGHT - PLOT_LEFT - VALUES_WIDTH);
    bars_figures(bars, figures, sizeof figures);
    (void)snprintf(title, sizeof title, "Memory with each allocator, on a simulated %s", bars->gpu);
    plot_svg_begin(&svg, file, is_html, TOP + ROW_HEIGHT * (double)bars->count, title, figures);
    double x = plot_svg_key(&svg, "live", PLOT_LEFT, 56, "requested at the peak");
    x = plot_svg_key(&svg, "allocated", x, 56, "smallest memory in which it ends");
    (void)plot_svg_key(&svg, "reserved", x, 56, "reserved with room to spare");
    for (size_t i = 0; i < bars->count; i++) {
        const plot_bar_t *bar = &bars->bars[i];
        double y = TOP + ROW_HEIGHT * (double)i;
        plot_svg_text(&svg, "mark end", PLOT_LEFT - 8, y + 13, "%s", bar->allocator);
        if (!bar->fits)
            plot_svg_text(&svg, "quiet end", PLOT_LEFT - 8, y + 31, "does not fit");
        bar_draw(&svg, "live", y, bar->requested_bytes, bar->requested_bytes, bytes_per_pixel);
        if (bar->smallest_bytes > 0)
            bar_draw(&svg, "allocated", y + BAR_HEIGHT + 2, bar->smallest_bytes,
                     bar->requested_bytes, bytes_per_pixel);
        bar_draw(&svg, "reserved", y + 2.0 * (BAR_HEIGHT + 2), bar->reserved_bytes,
                 bar->requested_bytes, bytes_per_pixel);
    }
    plot_svg_end(&svg);
}
