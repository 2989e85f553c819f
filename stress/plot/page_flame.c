// SPDX-License-Identifier: Apache-2.0
// Who holds the memory at the end of a recording: all of it, by tag, by call site or, where sites
// were not recorded, by size. As bars above each other, and as a table.
//
// Bounds: 24 bytes a live block; ROWS_MAX bars and rows. Locks: none. May fail: without host
// memory.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/plot/page_inside.h"
#include "stress/plot/scale.h"

enum {
    ROWS_MAX = 40,
    BAR = 26,
    SITE_BYTES = 256,
};

// Live blocks of one tag and site; without a site, of one size up to a power of two.
typedef struct holder {
    uint64_t key, bytes, blocks; // key: the site, or the size
    uint64_t tag_bytes;
    unsigned tag;
    bool is_site;
} holder_t;

// The request of an address: the last ALLOC of it.
typedef struct request {
    uint64_t addr, site;
} request_t;

static int by_addr(const void *one, const void *other) {
    const request_t *a = one, *b = other;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

static int by_key(const void *one, const void *other) {
    const holder_t *a = one, *b = other;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return (a->key > b->key) - (a->key < b->key);
}

// Tags with most bytes first, and within one its holders.
static int by_bytes(const void *one, const void *other) {
    const holder_t *a = one, *b = other;
    if (a->tag_bytes != b->tag_bytes)
        return a->tag_bytes > b->tag_bytes ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

static uint64_t size_key(uint64_t bytes) {
    unsigned lg = berm__bit_highest(bytes | 1);
    return UINT64_C(1) << (berm__is_pow2(bytes) || lg >= 62 ? lg : lg + 1);
}

// Sites of live blocks, by address.
static size_t requests_make(const berm_record_device_t *device, request_t *requests) {
    size_t count = 0;
    for (uint64_t i = 0; i < device->block_count; i++)
        if (device->blocks[i].state == BERM_RECORD_LIVE)
            requests[count++].addr = device->blocks[i].addr;
    if (count > 0)
        qsort(requests, count, sizeof *requests, by_addr);
    for (uint64_t i = 0; count > 0 && i < device->event_count; i++) {
        const request_t key = {.addr = device->events[i].addr};
        request_t *request = device->events[i].kind == BERM_RECORD_ALLOC
                                 ? bsearch(&key, requests, count, sizeof key, by_addr)
                                 : NULL;
        if (request != NULL)
            request->site = device->events[i].site;
    }
    return count;
}

static size_t holders_merge(holder_t *holders, size_t count) {
    size_t merged = 0;
    if (count == 0)
        return 0;
    qsort(holders, count, sizeof *holders, by_key);
    for (size_t i = 1; i < count; i++) {
        if (holders[i].tag == holders[merged].tag && holders[i].key == holders[merged].key) {
            holders[merged].bytes += holders[i].bytes;
            holders[merged].blocks += holders[i].blocks;
        } else {
            holders[++merged] = holders[i];
        }
    }
    return merged + 1;
}

static void tags_sum(holder_t *holders, size_t count) {
    for (size_t i = 0, end; i < count; i = end) {
        uint64_t bytes = 0;
        for (end = i; end < count && holders[end].tag == holders[i].tag; end++)
            bytes += holders[end].bytes;
        for (size_t j = i; j < end; j++)
            holders[j].tag_bytes = bytes;
    }
}

static size_t holders_make(const berm_record_device_t *device, request_t *requests,
                           holder_t *holders) {
    size_t count = 0, request_count = requests_make(device, requests);
    for (uint64_t i = 0; i < device->block_count; i++) {
        const berm_record_block_t *block = &device->blocks[i];
        const request_t key = {.addr = block->addr};
        if (block->state != BERM_RECORD_LIVE)
            continue;
        const request_t *request = bsearch(&key, requests, request_count, sizeof key, by_addr);
        uint64_t site = request != NULL ? request->site : 0;
        holders[count++] = (holder_t){.key = site != 0 ? site : size_key(block->requested_bytes),
                                      .bytes = block->requested_bytes,
                                      .blocks = 1,
                                      .tag = block->tag,
                                      .is_site = site != 0};
    }
    count = holders_merge(holders, count);
    tags_sum(holders, count);
    if (count > 0)
        qsort(holders, count, sizeof *holders, by_bytes);
    return count;
}

// --- the drawing ---------------------------------------------------------------------------------

static void holder_text(const page_t *page, const holder_t *holder, char text[SITE_BYTES]) {
    char size[PLOT_TEXT_CAPACITY];
    if (!holder->is_site)
        (void)snprintf(text, SITE_BYTES, "blocks of at most %s",
                       plot_bytes_text(holder->key, size));
    else if (page->site != NULL)
        page->site(page->record, holder->key, text, SITE_BYTES);
    else
        (void)snprintf(text, SITE_BYTES, "0x%" PRIx64, holder->key);
}

static const char *tag_text(const page_t *page, unsigned tag) {
    return tag == 0 ? "no tag" : page->record->tags[tag];
}

// A bar with its text, as much of it as has room.
static void bar_draw(page_t *page, int level, double x, double width, unsigned colour,
                     const char *text, uint64_t bytes, uint64_t whole) {
    char size[PLOT_TEXT_CAPACITY], shown[SITE_BYTES];
    size_t room = (size_t)(width / 7);
    (void)plot_bytes_text(bytes, size);
    plot_svg_put(&page->out,
                 "<rect class=\"t%u\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
                 colour, x, level * (BAR + 2), width > 1 ? width - 1 : width, BAR);
    plot_svg_escape(&page->out, text);
    plot_svg_put(&page->out, ": %s, %.1f %%</title></rect>\n", size,
                 100 * (double)bytes / (double)(whole > 0 ? whole : 1));
    if (room < 4)
        return;
    size_t length = strlen(text);
    (void)snprintf(shown, sizeof shown, "%.*s%s", (int)(length > room ? room - 1 : length), text,
                   length > room ? "~" : "");
    plot_svg_text(&page->out, "on-bar", x + 5, level * (BAR + 2) + 17, "%s", shown);
}

static void bars_draw(page_t *page, const holder_t *holders, size_t count, uint64_t whole) {
    double scale = PAGE_WIDTH / (double)(whole > 0 ? whole : 1), x = 0, tag_x = 0;
    char text[SITE_BYTES];
    plot_svg_put(&page->out,
                 "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Live memory by tag and "
                 "%s\">\n",
                 PAGE_WIDTH, 3 * (BAR + 2), count > 0 && holders[0].is_site ? "call site" : "size");
    bar_draw(page, 0, 0, PAGE_WIDTH, 0, "live", whole, whole);
    for (size_t i = 0; i < count; i++) {
        double width = (double)holders[i].bytes * scale;
        if (i == 0 || holders[i].tag != holders[i - 1].tag) {
            bar_draw(page, 1, tag_x, (double)holders[i].tag_bytes * scale,
                     page_colour(holders[i].tag), tag_text(page, holders[i].tag),
                     holders[i].tag_bytes, whole);
            tag_x += (double)holders[i].tag_bytes * scale;
        }
        if (width >= 1) {
            holder_text(page, &holders[i], text);
            bar_draw(page, 2, x, width, page_colour(holders[i].tag), text, holders[i].bytes, whole);
        }
        x += width;
    }
    plot_svg_put(&page->out, "</svg>\n");
}

static void table_draw(page_t *page, const holder_t *holders, size_t count, uint64_t whole) {
    char text[SITE_BYTES], size[PLOT_TEXT_CAPACITY];
    plot_svg_put(&page->out,
                 "<table class=\"holders\"><thead><tr><th>tag</th><th>where</th><th>bytes"
                 "</th><th>share</th><th>blocks</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < count && i < ROWS_MAX; i++) {
        holder_text(page, &holders[i], text);
        plot_svg_put(&page->out, "<tr><td>");
        plot_svg_escape(&page->out, tag_text(page, holders[i].tag));
        plot_svg_put(&page->out, "</td><td>");
        plot_svg_escape(&page->out, text);
        plot_svg_put(&page->out,
                     "</td><td data-bytes=\"%" PRIu64 "\">%s</td><td>%.1f %%</td><td>%" PRIu64
                     "</td></tr>\n",
                     holders[i].bytes, plot_bytes_text(holders[i].bytes, size),
                     100 * (double)holders[i].bytes / (double)(whole > 0 ? whole : 1),
                     holders[i].blocks);
    }
    plot_svg_put(&page->out, "</tbody></table>\n");
    if (count > ROWS_MAX)
        plot_svg_put(&page->out, "<p>%zu more are not in the table.</p>\n", count - ROWS_MAX);
}

bool page_flame_draw(page_t *page) {
    size_t capacity = page->device->block_count + 1;
    request_t *requests = calloc(capacity, sizeof *requests);
    holder_t *holders = calloc(capacity, sizeof *holders);
    bool is_good = requests != NULL && holders != NULL;
    if (is_good) {
        uint64_t whole = 0;
        size_t count = holders_make(page->device, requests, holders);
        for (size_t i = 0; i < count; i++)
            whole += holders[i].bytes;
        bars_draw(page, holders, count, whole);
        table_draw(page, holders, count, whole);
    }
    free(requests);
    free(holders);
    return is_good;
}
