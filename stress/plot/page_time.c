// SPDX-License-Identifier: Apache-2.0
// Memory over the events of a recording: what lived, what was mapped, and the longest mapped run
// that no block lay in. One pass from the last event back to the first.
//
// Bounds: POINTS_MAX points; a move of at most all live blocks an event, and of all at each point.
// Locks: none. May fail: without host memory.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "record/history.h"
#include "stress/plot/page_inside.h"
#include "stress/plot/scale.h"

enum {
    POINTS_MAX = 480,
    TOP = 12,
    BOTTOM = 268,
    HEIGHT = 312,
    LEFT = 76,
    RIGHT = PAGE_WIDTH - 12,
    LINES = 3,
};

// Pieces of addresses, in order, none touching the next.
typedef struct pieces {
    struct piece {
        uint64_t addr, end;
    } * at;
    size_t count, capacity;
    uint64_t bytes;
} pieces_t;

typedef struct point {
    size_t index;
    uint64_t values[LINES]; // live, mapped, largest free
} point_t;

static const char *const line_names[LINES] = {"live", "reserved", "largest free"};

// The first piece that ends behind `addr`.
static size_t piece_find(const pieces_t *pieces, uint64_t addr) {
    size_t low = 0, high = pieces->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pieces->at[middle].end > addr)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool piece_insert(pieces_t *pieces, size_t at, uint64_t addr, uint64_t end) {
    if (pieces->count == pieces->capacity) {
        size_t capacity = pieces->capacity * 2 + 64;
        struct piece *more = realloc(pieces->at, capacity * sizeof *more);
        if (more == NULL)
            return false;
        pieces->at = more;
        pieces->capacity = capacity;
    }
    memmove(pieces->at + at + 1, pieces->at + at, (pieces->count - at) * sizeof *pieces->at);
    pieces->at[at] = (struct piece){addr, end};
    pieces->count++;
    return true;
}

// Takes addresses out, whatever pieces they are in.
static bool pieces_remove(pieces_t *pieces, uint64_t addr, uint64_t end) {
    size_t at = piece_find(pieces, addr);
    while (at < pieces->count && pieces->at[at].addr < end) {
        struct piece *piece = &pieces->at[at], old = *piece;
        uint64_t from = old.addr > addr ? old.addr : addr, to = old.end < end ? old.end : end;
        pieces->bytes -= to - from;
        if (old.addr < from && old.end > to) { // in two
            piece->end = from;
            return piece_insert(pieces, at + 1, to, old.end);
        }
        if (old.addr < from) {
            piece->end = from;
            at++;
        } else if (old.end > to) {
            piece->addr = to;
        } else {
            pieces->count--;
            memmove(piece, piece + 1, (pieces->count - at) * sizeof *piece);
        }
    }
    return true;
}

// Adds addresses; what is there already goes first.
static bool pieces_add(pieces_t *pieces, uint64_t addr, uint64_t end, bool joins) {
    if (end <= addr || !pieces_remove(pieces, addr, end))
        return end <= addr;
    size_t at = piece_find(pieces, addr);
    pieces->bytes += end - addr;
    bool after = joins && at > 0 && pieces->at[at - 1].end == addr;
    bool before = joins && at < pieces->count && pieces->at[at].addr == end;
    if (after && before) {
        pieces->at[at - 1].end = pieces->at[at].end;
        pieces->count--;
        memmove(&pieces->at[at], &pieces->at[at + 1], (pieces->count - at) * sizeof *pieces->at);
        return true;
    }
    if (after)
        pieces->at[at - 1].end = end;
    else if (before)
        pieces->at[at].addr = addr;
    else
        return piece_insert(pieces, at, addr, end);
    return true;
}

// The longest run of `mapped` that is in none of `blocks`.
static uint64_t largest_gap(const pieces_t *mapped, const pieces_t *blocks) {
    uint64_t largest = 0;
    size_t block = 0;
    for (size_t i = 0; i < mapped->count; i++) {
        uint64_t at = mapped->at[i].addr, end = mapped->at[i].end;
        while (block < blocks->count && blocks->at[block].end <= at)
            block++;
        for (; block < blocks->count && blocks->at[block].addr < end; block++) {
            uint64_t begin = blocks->at[block].addr;
            if (begin > at && begin - at > largest)
                largest = begin - at;
            at = blocks->at[block].end;
            if (at > end)
                break;
        }
        if (end > at && end - at > largest)
            largest = end - at;
    }
    return largest;
}

// What the recording ends with.
static bool pieces_end(const berm_record_device_t *device, pieces_t *mapped, pieces_t *blocks) {
    bool is_good = true;
    for (uint64_t i = 0; i < device->segment_count && is_good; i++)
        is_good = pieces_add(mapped, device->segments[i].addr,
                             device->segments[i].addr + device->segments[i].size_bytes, true);
    for (uint64_t i = 0; i < device->block_count && is_good; i++)
        if (device->blocks[i].state != BERM_RECORD_FREE_PIECE)
            is_good = pieces_add(blocks, device->blocks[i].addr,
                                 device->blocks[i].addr + device->blocks[i].size_bytes, false);
    return is_good;
}

// Undoes an event.
static bool event_undo(const berm_record_event_t *event, pieces_t *mapped, pieces_t *blocks) {
    uint64_t end = event->addr + event->size_bytes;
    switch (event->kind) {
    case BERM_RECORD_ALLOC:
        return pieces_remove(blocks, event->addr, end);
    case BERM_RECORD_FREE:
        return pieces_add(blocks, event->addr, end, false);
    case BERM_RECORD_MAP:
    case BERM_RECORD_PLAIN_ALLOC:
        return pieces_remove(mapped, event->addr, end);
    case BERM_RECORD_UNMAP:
    case BERM_RECORD_PLAIN_FREE:
        return pieces_add(mapped, event->addr, end, true);
    default:
        return true;
    }
}

uint64_t page_largest_free(const berm_record_device_t *device) {
    pieces_t mapped = {0}, blocks = {0};
    uint64_t largest = 0;
    if (pieces_end(device, &mapped, &blocks))
        largest = largest_gap(&mapped, &blocks);
    free(mapped.at);
    free(blocks.at);
    return largest;
}

static bool points_fill(const berm_record_device_t *device, const uint64_t *live, point_t *points,
                        size_t count) {
    pieces_t mapped = {0}, blocks = {0};
    bool is_good = pieces_end(device, &mapped, &blocks);
    size_t next = count;
    for (uint64_t index = device->event_count; is_good; index--) {
        if (next > 0 && points[next - 1].index == index) {
            point_t *point = &points[--next];
            point->values[0] = live[index];
            point->values[1] = mapped.bytes;
            point->values[2] = largest_gap(&mapped, &blocks);
        }
        if (index == 0)
            break;
        is_good = event_undo(&device->events[index - 1], &mapped, &blocks);
    }
    free(mapped.at);
    free(blocks.at);
    return is_good;
}

// --- the drawing ---------------------------------------------------------------------------------

typedef struct scales {
    plot_ticks_t ticks;
    size_t last; // index
} scales_t;

static double x_of(const scales_t *scales, size_t index) {
    return LEFT + (RIGHT - LEFT) * (scales->last == 0 ? 1 : (double)index / (double)scales->last);
}

static double y_of(const scales_t *scales, double bytes) {
    return BOTTOM - (BOTTOM - TOP) * bytes / plot_ticks_top(&scales->ticks);
}

static void axes_draw(page_t *page, const scales_t *scales) {
    char text[PLOT_TEXT_CAPACITY];
    for (unsigned i = 0; i <= scales->ticks.count; i++) {
        double value = i * scales->ticks.step, y = y_of(scales, value * scales->ticks.unit);
        plot_svg_put(&page->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        plot_svg_text(&page->out, "end", LEFT - 8, y + 4, "%g %s", value, scales->ticks.label);
    }
    for (int i = 0; i <= 4; i++) {
        size_t index = scales->last * (size_t)i / 4;
        plot_svg_text(&page->out,
                      i == 0   ? ""
                      : i == 4 ? "end"
                               : "middle",
                      x_of(scales, index), BOTTOM + 20, "%s", plot_count_text(index, text));
    }
    plot_svg_text(&page->out, "middle", (LEFT + RIGHT) / 2.0, BOTTOM + 38, "events");
}

static void line_draw(page_t *page, const scales_t *scales, const point_t *points, size_t count,
                      int line) {
    uint64_t peak = 0;
    char text[PLOT_TEXT_CAPACITY];
    plot_svg_put(&page->out, "<path class=\"line l%d\" d=\"", line);
    for (size_t i = 0; i < count; i++) {
        peak = points[i].values[line] > peak ? points[i].values[line] : peak;
        plot_svg_put(&page->out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f",
                     x_of(scales, points[i].index), y_of(scales, (double)points[i].values[line]));
    }
    plot_svg_put(&page->out, "\"><title>%s: at most %s</title></path>\n", line_names[line],
                 plot_bytes_text(peak, text));
}

// Where a request failed, a line down.
static void failures_draw(page_t *page, const scales_t *scales) {
    char text[PLOT_TEXT_CAPACITY];
    for (uint64_t i = 0, shown = 0; i < page->device->event_count && shown < 32; i++) {
        const berm_record_event_t *event = &page->device->events[i];
        if (event->kind != BERM_RECORD_FAIL)
            continue;
        shown++;
        plot_svg_put(&page->out,
                     "<path class=\"failed\" d=\"M%.1f %dV%d\"><title>a request of %s failed"
                     "</title></path>\n",
                     x_of(scales, i), TOP, BOTTOM, plot_bytes_text(event->size_bytes, text));
    }
}

static void points_draw(page_t *page, const point_t *points, size_t count) {
    scales_t scales = {.last = page->device->event_count};
    uint64_t largest = 1;
    for (size_t i = 0; i < count; i++)
        for (int line = 0; line < LINES; line++)
            largest = points[i].values[line] > largest ? points[i].values[line] : largest;
    scales.ticks = plot_ticks_bytes(largest);
    plot_svg_put(
        &page->out,
        "<p class=\"keys\"><span class=\"l0\">live: what lives</span> <span "
        "class=\"l1\">reserved: what is mapped</span> <span class=\"l2\">largest free: the "
        "longest mapped run without a block</span> <span class=\"failed\">a request "
        "failed</span></p>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Memory "
        "over %" PRIu64 " events\">\n",
        PAGE_WIDTH, HEIGHT, page->device->event_count);
    axes_draw(page, &scales);
    for (int line = LINES - 1; line >= 0; line--)
        line_draw(page, &scales, points, count, line);
    failures_draw(page, &scales);
    plot_svg_put(&page->out, "</svg>\n");
}

bool page_time_draw(page_t *page) {
    berm_history_t history;
    size_t indices[POINTS_MAX];
    point_t *points = calloc(POINTS_MAX, sizeof *points);
    if (points == NULL || !berm__history_make(&history, page->device)) {
        free(points);
        return false;
    }
    size_t count = plot_thin(history.live, history.live_count, indices, POINTS_MAX);
    for (size_t i = 0; i < count; i++)
        points[i].index = indices[i];
    bool is_good = points_fill(page->device, history.live, points, count);
    if (is_good)
        points_draw(page, points, count);
    berm__history_destroy(&history);
    free(points);
    return is_good;
}
