// SPDX-License-Identifier: Apache-2.0
// A map of a recording's segments: mapped memory to one scale, in rows. Each piece has classes for
// its state, tag, pool and age, among which the page's buttons choose.
//
// Bounds: ROWS_MAX rows of at most PAGE_WIDTH pieces; what is narrower than a pixel is drawn with
// its neighbours, as the one of them with most bytes. Locks: none.
#include <inttypes.h>

#include "stress/plot/page_inside.h"
#include "stress/plot/scale.h"

enum {
    ROWS_MAX = 96,
    ROW_HEIGHT = 16,
    BAR_HEIGHT = 12,
    SEGMENT_GAP = 22, // a line of text above each
};

static const char *const state_names[] = {"free", "live", "awaited", "held"};

static unsigned age_of(const page_t *page, const berm_record_block_t *block) {
    uint64_t requests = page->device->figures.requests;
    if (block->number == 0 || requests == 0 || block->number > requests)
        return PAGE_AGES - 1;
    return (unsigned)((requests - block->number) * PAGE_AGES / requests);
}

typedef struct map {
    page_t *page;
    double bytes_per_px;
    double y; // of the row
    double x;
    unsigned pool; // colour
} map_t;

static void rect_draw(map_t *map, double width, const berm_record_block_t *block) {
    page_t *page = map->page;
    char size[PLOT_TEXT_CAPACITY];
    plot_svg_put(&page->out,
                 "<rect class=\"s%u t%u p%u a%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                 "height=\"%d\"><title>%s, %s",
                 block->state, page_colour(block->tag), map->pool, age_of(page, block), map->x,
                 map->y, width, BAR_HEIGHT, state_names[block->state],
                 plot_bytes_text(block->size_bytes, size));
    if (block->tag != 0) {
        plot_svg_put(&page->out, ", tag ");
        plot_svg_escape(&page->out, page->record->tags[block->tag]);
    }
    if (block->number != 0)
        plot_svg_put(&page->out, ", request %" PRIu64, block->number);
    plot_svg_put(&page->out, "\n0x%" PRIx64 "</title></rect>\n", block->addr);
}

static void row_end(map_t *map) {
    map->x = 0;
    map->y += ROW_HEIGHT;
}

// A piece, over as many rows as it takes.
static void piece_draw(map_t *map, double width, const berm_record_block_t *block) {
    while (width > 0) {
        double room = PAGE_WIDTH - map->x, part = width < room ? width : room;
        rect_draw(map, part, block);
        map->x += part;
        width -= part;
        if (map->x >= PAGE_WIDTH - 0.05)
            row_end(map);
    }
}

static void segment_draw(map_t *map, const berm_record_segment_t *segment) {
    page_t *page = map->page;
    char size[PLOT_TEXT_CAPACITY], stream[32] = "no stream";
    if (segment->stream >= 0)
        (void)snprintf(stream, sizeof stream, "stream 0x%" PRIx64, (uint64_t)segment->stream);
    if (map->x > 0)
        row_end(map);
    map->y += SEGMENT_GAP - (ROW_HEIGHT - BAR_HEIGHT);
    plot_svg_text(&page->out, "", 0, map->y - 5, "0x%" PRIx64 ", %s, %s%s%s", segment->addr,
                  plot_bytes_text(segment->size_bytes, size), stream,
                  segment->pool_high != 0 || segment->pool_low != 0 ? ", a pool of its own" : "",
                  segment->is_plain ? ", plain" : "");
    map->pool = page_colour((unsigned)((segment->pool_high * 31 + segment->pool_low) & 0xffff));
    double width = 0;
    const berm_record_block_t *most = NULL;
    for (uint64_t i = 0; i < segment->block_count; i++) {
        const berm_record_block_t *block = &page->device->blocks[segment->block_first + i];
        width += (double)block->size_bytes / map->bytes_per_px;
        if (most == NULL || block->size_bytes > most->size_bytes)
            most = block;
        if (width < 1 && i + 1 < segment->block_count)
            continue;
        piece_draw(map, width, most);
        width = 0;
        most = NULL;
    }
}

static double height_of(const berm_record_device_t *device, double bytes_per_px, uint64_t shown) {
    double height = 0;
    for (uint64_t i = 0; i < shown; i++) {
        double rows = (double)device->segments[i].size_bytes / bytes_per_px / PAGE_WIDTH;
        height += SEGMENT_GAP + ROW_HEIGHT * (1 + (double)(uint64_t)rows);
    }
    return height + ROW_HEIGHT;
}

static void legend_draw(page_t *page) {
    plot_svg_put(&page->out, "<p class=\"keys by-tag-only\">");
    for (unsigned tag = 0; tag < page->record->tag_count && tag < 24; tag++) {
        plot_svg_put(&page->out, "<span class=\"t%u\">", page_colour(tag));
        plot_svg_escape(&page->out, tag == 0 ? "no tag" : page->record->tags[tag]);
        plot_svg_put(&page->out, "</span> ");
    }
    plot_svg_put(
        &page->out,
        "</p>\n<p class=\"keys by-age-only\"><span class=\"a0\">newest fifth of the "
        "requests</span> <span class=\"a1\">second</span> <span class=\"a2\">third</span> "
        "<span class=\"a3\">fourth</span> <span class=\"a4\">oldest</span></p>\n"
        "<p class=\"keys by-pool-only\"><span class=\"p0\">the default pool</span> other "
        "colours: pools of their own</p>\n<p class=\"keys\"><span class=\"s0\">free</span> "
        "<span class=\"s2\">freed, a stream may still use it</span> <span "
        "class=\"s3\">freed, pinned</span></p>\n");
}

void page_map_draw(page_t *page) {
    const berm_record_device_t *device = page->device;
    uint64_t bytes = 0, shown = device->segment_count < ROWS_MAX ? device->segment_count : ROWS_MAX;
    for (uint64_t i = 0; i < shown; i++)
        bytes += device->segments[i].size_bytes;
    // Two granules a row at most, and no more rows than there may be.
    double least = (double)device->figures.granule / PAGE_WIDTH;
    double fits = (double)bytes / PAGE_WIDTH / ROWS_MAX;
    double third = (double)bytes / PAGE_WIDTH / 3;
    map_t map = {.page = page, .bytes_per_px = fits > least ? fits : least};
    if (third < 8 * least && third > map.bytes_per_px)
        map.bytes_per_px = third; // a small heap in few rows
    if (bytes / 24 / PAGE_WIDTH > (uint64_t)map.bytes_per_px)
        map.bytes_per_px = (double)bytes / 24 / PAGE_WIDTH;
    legend_draw(page);
    plot_svg_put(&page->out,
                 "<svg class=\"map\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"Map of "
                 "%" PRIu64 " segments\">\n",
                 PAGE_WIDTH, height_of(device, map.bytes_per_px, shown), device->segment_count);
    for (uint64_t i = 0; i < shown; i++)
        segment_draw(&map, &device->segments[i]);
    plot_svg_put(&page->out, "</svg>\n");
    if (shown < device->segment_count)
        plot_svg_put(&page->out, "<p>%" PRIu64 " more segments are not drawn.</p>\n",
                     device->segment_count - shown);
}
