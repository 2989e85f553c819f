// SPDX-License-Identifier: Apache-2.0
// Draws a segment map: a row for each segment, mapped memory to one scale for all rows.
//
//   y  30 title, 52 and on a line for each device, then the legend
//      for each row 56: a line of text, a bar of ranges, ticks where handles meet
//
// Memory that is not mapped takes a narrow gap whatever its size: segments are reserved far larger
// than what is mapped of them. Ranges too small to see are drawn together, in the colour of most.
//
// Bounds: ROWS_MAX rows, the segments with most memory; each of at most some 2,000 rectangles.
// Locks: none. May fail: on writes only, for which the caller looks.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stress/plot/scale.h"
#include "stress/plot/segments.h"

enum {
    ROWS_MAX = 200,
    ROW_HEIGHT = 56,
    BAR_TOP = 8, // below the line of text
    BAR_HEIGHT = 22,
    LEFT = 24,
    WIDTH = PLOT_RIGHT - LEFT,
    HANDLES_MAX = 4096, // ticks tried for each run of handles
    DEVICES_SHOWN = 16,
};

static const double seen_px = 0.8; // what is narrower is drawn with its neighbours

typedef struct map {
    const plot_segments_t *segments;
    plot_svg_t svg;
    size_t rows;
    double px_per_byte;
} map_t;

// --- which segments, and how large ---------------------------------------------------------------

static int by_mapped(const void *left, const void *right) {
    const plot_segment_t *a = left, *b = right;
    return a->mapped_bytes != b->mapped_bytes ? (a->mapped_bytes < b->mapped_bytes ? 1 : -1)
                                              : (a->base > b->base) - (a->base < b->base);
}

static int by_place(const void *left, const void *right) {
    const plot_segment_t *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    int streams = strcmp(a->stream, b->stream);
    return streams != 0 ? streams : (a->base > b->base) - (a->base < b->base);
}

static size_t gap_count(const plot_segment_t *segment) {
    size_t gaps = 0;
    for (size_t i = 0; i < segment->range_count; i++)
        gaps += segment->ranges[i].state == PLOT_STATE_VOID;
    return gaps;
}

// Gaps take at most a third of the row.
static double gap_px(const plot_segment_t *segment) {
    size_t gaps = gap_count(segment);
    double room = WIDTH / 3.0;
    return gaps == 0 ? 0 : room / (double)gaps < 10 ? room / (double)gaps : 10;
}

static void choose_scale(map_t *m) {
    m->px_per_byte = 1;
    for (size_t i = 0; i < m->rows; i++) {
        const plot_segment_t *segment = &m->segments->segments[i];
        double room = WIDTH - gap_px(segment) * (double)gap_count(segment);
        if (segment->mapped_bytes == 0)
            continue;
        double scale = room / (double)segment->mapped_bytes;
        m->px_per_byte = scale < m->px_per_byte ? scale : m->px_per_byte;
    }
}

// --- one row -------------------------------------------------------------------------------------

// Ranges that are drawn as one rectangle.
typedef struct group {
    size_t first, count;
    double x, width;
    uint64_t state_bytes[PLOT_STATES];
} group_t;

static void put_tooltip(map_t *m, const plot_segment_t *segment, const group_t *group) {
    char text[PLOT_TEXT_CAPACITY];
    const plot_range_t *range = &segment->ranges[group->first];
    if (group->count > 1) {
        plot_svg_put(&m->svg, "%zu ranges from 0x%" PRIx64, group->count,
                     segment->base + range->start_bytes);
        for (int state = 0; state < PLOT_STATES; state++)
            if (group->state_bytes[state] != 0)
                plot_svg_put(&m->svg, "\n%s %s", plot_state_names[state],
                             plot_bytes_text(group->state_bytes[state], text));
        return;
    }
    plot_svg_put(&m->svg, "%s %s at 0x%" PRIx64,
                 range->state == PLOT_STATE_VOID ? "not mapped:" : plot_state_names[range->state],
                 plot_bytes_text(range->size_bytes, text), segment->base + range->start_bytes);
    if (range->slab_slots != 0)
        plot_svg_put(&m->svg, "\nslab of %s: %" PRIu64 " of %" PRIu64 " slots used",
                     plot_bytes_text(range->slab_class_bytes, text), range->slab_used,
                     range->slab_slots);
    else if (range->requested_bytes != 0)
        plot_svg_put(&m->svg, "\nrequested %s", plot_bytes_text(range->requested_bytes, text));
}

static void draw_group(map_t *m, const plot_segment_t *segment, const group_t *group, double y) {
    int most = 0;
    for (int state = 0; state < PLOT_STATES; state++)
        if (group->state_bytes[state] > group->state_bytes[most])
            most = state;
    // Nothing is mapped in a gap: a thin bar, where memory is a thick one.
    bool is_gap = group->count == 1 && most == PLOT_STATE_VOID;
    plot_svg_put(&m->svg,
                 "<rect class=\"%s%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"><title>",
                 plot_state_names[most], group->width > 2 ? " block" : "", group->x,
                 is_gap ? y + BAR_HEIGHT / 2.0 - 1 : y, group->width, is_gap ? 2 : BAR_HEIGHT);
    put_tooltip(m, segment, group);
    plot_svg_put(&m->svg, "</title></rect>\n");
}

static void draw_ranges(map_t *m, const plot_segment_t *segment, double y, double *edges) {
    double x = LEFT, gap = gap_px(segment);
    group_t group = {.x = x};
    for (size_t i = 0; i < segment->range_count; i++) {
        const plot_range_t *range = &segment->ranges[i];
        double width =
            range->state == PLOT_STATE_VOID ? gap : (double)range->size_bytes * m->px_per_byte;
        edges[i] = x;
        // Small ones gather until they can be seen; a large one stands alone.
        if (group.count != 0 && (group.width >= seen_px || width >= seen_px)) {
            draw_group(m, segment, &group, y);
            group = (group_t){.first = i, .x = x};
        }
        group.count++;
        group.width += width;
        group.state_bytes[range->state] += range->size_bytes;
        x += width;
    }
    if (group.count != 0)
        draw_group(m, segment, &group, y);
    edges[segment->range_count] = x;
}

// Where an offset of the segment is drawn; `edges` has the left edge of each range.
static double x_of(const plot_segment_t *segment, const double *edges, uint64_t offset) {
    size_t low = 0, high = segment->range_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (segment->ranges[middle].start_bytes <= offset)
            low = middle;
        else
            high = middle;
    }
    const plot_range_t *range = &segment->ranges[low];
    double part = (double)(offset - range->start_bytes) / (double)range->size_bytes;
    return edges[low] + (edges[low + 1] - edges[low]) * part;
}

static void draw_handles(map_t *m, const plot_segment_t *segment, double y, const double *edges) {
    if (segment->handles_count == 0 || segment->range_count == 0)
        return;
    plot_svg_put(&m->svg, "<path class=\"handle\" d=\"");
    double last = -1;
    for (size_t i = 0; i < segment->handles_count; i++) {
        const plot_handles_t *run = &segment->handles[i];
        uint64_t stride = run->count / HANDLES_MAX + 1;
        for (uint64_t k = 0; k <= run->count;
             k += k < run->count && run->count - k < stride ? run->count - k : stride) {
            double x = x_of(segment, edges, run->start_bytes + k * run->each_bytes);
            if (x < last + 1.5)
                continue;
            plot_svg_put(&m->svg, "M%.2f %.1fv5", x, y);
            last = x;
        }
    }
    plot_svg_put(&m->svg, "\"><title>%" PRIu64 " handles</title></path>\n", segment->handle_count);
}

static void draw_row(map_t *m, const plot_segment_t *segment, double y) {
    char span[PLOT_TEXT_CAPACITY], mapped[PLOT_TEXT_CAPACITY], free_text[PLOT_TEXT_CAPACITY];
    plot_svg_text(&m->svg, "quiet", LEFT, y,
                  "device %" PRIu64 ", stream %s, segment 0x%" PRIx64 ": %s mapped of %s, %s free, "
                  "%" PRIu64 " handles, %zu ranges",
                  segment->device, segment->stream, segment->base,
                  plot_bytes_text(segment->mapped_bytes, mapped),
                  plot_bytes_text(segment->span_bytes, span),
                  plot_bytes_text(segment->state_bytes[PLOT_STATE_FREE], free_text),
                  segment->handle_count, segment->range_count);
    double *edges = calloc(segment->range_count + 1, sizeof *edges);
    if (edges == NULL) {
        plot_svg_text(&m->svg, "quiet", LEFT, y + 20, "no memory to draw this segment");
        return;
    }
    draw_ranges(m, segment, y + BAR_TOP, edges);
    draw_handles(m, segment, y + BAR_TOP + BAR_HEIGHT + 1, edges);
    free(edges);
}

// --- all of it -----------------------------------------------------------------------------------

static void write_figures(const plot_segments_t *segments, char *figures, size_t figures_size) {
    uint64_t sums[PLOT_STATES] = {0}, handles = 0;
    for (size_t i = 0; i < segments->count; i++) {
        handles += segments->segments[i].handle_count;
        for (int state = 0; state < PLOT_STATES; state++)
            sums[state] += segments->segments[i].state_bytes[state];
    }
    int used = snprintf(figures, figures_size, "devices=%zu\nsegments=%zu\nhandles=%" PRIu64 "\n",
                        segments->device_count, segments->count, handles);
    for (int state = 0; state < PLOT_STATES; state++)
        used += snprintf(figures + used, figures_size - (size_t)used, "%s_bytes=%" PRIu64 "\n",
                         plot_state_names[state], sums[state]);
}

static void draw_device(map_t *m, const plot_device_t *device, double y) {
    char texts[4][PLOT_TEXT_CAPACITY];
    plot_svg_text(&m->svg, "quiet", LEFT, y,
                  "device %" PRIu64 ": requested %s, allocated %s, active %s, reserved %s",
                  device->device, plot_bytes_text(device->requested_bytes, texts[0]),
                  plot_bytes_text(device->allocated_bytes, texts[1]),
                  plot_bytes_text(device->active_bytes, texts[2]),
                  plot_bytes_text(device->reserved_bytes, texts[3]));
}

static void draw_legend(map_t *m, double y) {
    static const char *const meanings[PLOT_STATES] = {
        [PLOT_STATE_LIVE] = "live",
        [PLOT_STATE_AWAITED] = "awaited: freed, a stream may still use it",
        [PLOT_STATE_FREE] = "free",
        [PLOT_STATE_BUSY] = "busy: being mapped or moved",
        [PLOT_STATE_STALE] = "stale: its pages serve another block",
        [PLOT_STATE_POISONED] = "poisoned",
        [PLOT_STATE_VOID] = "not mapped (any size)",
    };
    double x = LEFT;
    for (int state = 0; state < PLOT_STATES; state++)
        x = plot_svg_key(&m->svg, plot_state_names[state], x, y, meanings[state]);
}

void plot_map_draw(plot_segments_t *segments, FILE *file, bool is_html) {
    map_t map = {.segments = segments};
    map_t *m = &map;
    m->rows = segments->count < ROWS_MAX ? segments->count : ROWS_MAX;
    qsort(segments->segments, segments->count, sizeof *segments->segments, by_mapped);
    qsort(segments->segments, m->rows, sizeof *segments->segments, by_place);
    choose_scale(m);
    size_t devices =
        segments->device_count < DEVICES_SHOWN ? segments->device_count : DEVICES_SHOWN;
    double y = 52;
    double height = y + 18 * (double)devices + 44 + ROW_HEIGHT * (double)m->rows + 20;
    char figures[512], title[512];
    write_figures(segments, figures, sizeof figures);
    const char *slash = strrchr(segments->path, '/');
    (void)snprintf(title, sizeof title, "Segment map: %s",
                   slash == NULL ? segments->path : slash + 1);
    plot_svg_begin(&m->svg, file, is_html, height, title, figures);
    for (size_t i = 0; i < devices; i++, y += 18)
        draw_device(m, &segments->devices[i], y);
    draw_legend(m, y + 8);
    y += 44;
    for (size_t i = 0; i < m->rows; i++, y += ROW_HEIGHT)
        draw_row(m, &segments->segments[i], y);
    if (m->rows < segments->count)
        plot_svg_text(&m->svg, "quiet", LEFT, y, "%zu segments with less memory are not drawn",
                      segments->count - m->rows);
    plot_svg_end(&m->svg);
}
