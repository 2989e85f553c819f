// SPDX-License-Identifier: Apache-2.0
// Packing of lifetimes: each item, in some order, at the lowest address that is free while it is
// live. Four orders are tried. Then a search: whichever item first went as high as the best packing
// is moved to the front of its order, and so on.
#include <string.h>

#include "core/planner_inside.h"

enum {
    ORDER_SIZE,
    ORDER_AREA,
    ORDER_TIME,
    ORDER_LIFETIME,
    ORDER_COUNT, // from here on: the search
};

uint64_t planner__pack_pages(const berm_planner_t *planner, uint64_t height) {
    uint64_t granule = planner->options.granule_bytes / PLANNER_UNIT_BYTES;
    return height / granule + (height % granule != 0);
}

// Smaller keys come first. Lifetimes have 24 bits, so that they break ties between sizes.
static uint64_t order_key(const berm_planner_t *planner, uint32_t order, uint32_t item) {
    uint64_t lifetime = planner->end[item] - planner->begin[item];
    uint64_t share = lifetime * 0xffffff / planner->options.period;
    uint64_t size = planner->size[item];
    switch (order) {
    case ORDER_SIZE:
        return ~(size << 24 | share);
    case ORDER_AREA:
        return ~(size * (share + 1));
    case ORDER_LIFETIME:
        return ~(share << 40 | size);
    default:
        return planner->begin[item];
    }
}

void planner__pack_begin(berm_planner_t *planner) {
    planner_pack_t *pack = &planner->pack;
    pack->span_count = pack->at = 0;
    pack->height = 0;
    if (pack->order_number >= ORDER_COUNT)
        return;
    for (uint32_t i = 0; i < planner->count; i++)
        planner->keys[i] = order_key(planner, pack->order_number, i);
    planner->done += planner->count;
    planner__sort_begin(&planner->sort, pack->order, planner->keys, planner->count);
}

static void span_insert(berm_planner_t *planner, planner_span_t span) {
    planner_pack_t *pack = &planner->pack;
    uint32_t low = 0, high = pack->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pack->spans[middle].low <= span.low)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t behind = pack->span_count - low;
    memmove(&pack->spans[low + 1], &pack->spans[low], behind * sizeof(planner_span_t));
    pack->spans[low] = span;
    pack->span_count++;
    planner->done += behind / 8;
}

// The lowest offset at which `size` units are free throughout the item's life.
static uint64_t first_fit(berm_planner_t *planner, uint32_t item) {
    const planner_pack_t *pack = &planner->pack;
    const uint32_t period = planner->options.period;
    const uint32_t begin = planner->begin[item], end = planner->end[item];
    const bool wraps = end > period;
    const uint32_t end_here = wraps ? end - period : end;
    const uint64_t size = planner->size[item];
    uint64_t at = 0;
    uint32_t i = 0;
    for (; i < pack->span_count && pack->spans[i].low < at + size; i++) {
        const planner_span_t *span = &pack->spans[i];
        bool before = span->begin<end_here, after = span->end> begin;
        if (span->high > at && (wraps ? before || after : before && after))
            at = span->high;
    }
    planner->done += i + 4;
    return at;
}

static void place(berm_planner_t *planner, uint32_t item, uint64_t offset) {
    uint32_t period = planner->options.period, end = planner->end[item];
    uint64_t high = offset + planner->size[item];
    planner->pack.offset[item] = offset;
    if (high > planner->pack.height)
        planner->pack.height = high;
    span_insert(planner,
                (planner_span_t){offset, high, planner->begin[item], end > period ? period : end});
    if (end > period)
        span_insert(planner, (planner_span_t){offset, high, 0, end - period});
}

// Ends a pass early, at an item that makes it no better than the best; the search begins with it.
static void promote(planner_pack_t *pack) {
    uint32_t item = pack->order[pack->at];
    memmove(&pack->order[1], &pack->order[0], pack->at * sizeof(uint32_t));
    pack->order[0] = item;
    pack->height = UINT64_MAX;
}

bool planner__pack_step(berm_planner_t *planner, uint64_t until) {
    planner_pack_t *pack = &planner->pack;
    while (pack->at < planner->count && planner->done < until) {
        uint32_t item = pack->order[pack->at];
        uint64_t offset = first_fit(planner, item);
        if (offset + planner->size[item] >= pack->best_height) {
            promote(pack);
            return true;
        }
        place(planner, item, offset);
        pack->at++;
    }
    return pack->at == planner->count;
}

// Keeps the pass that has ended, if it is better.
static void keep_best(berm_planner_t *planner) {
    planner_pack_t *pack = &planner->pack;
    if (pack->height >= pack->best_height)
        return;
    uint64_t *offset = pack->best_offset;
    pack->best_offset = pack->offset;
    pack->offset = offset;
    pack->best_height = pack->height;
    if (pack->order_number < ORDER_COUNT)
        memcpy(pack->best_order, pack->order, planner->count * sizeof(uint32_t));
}

bool planner__pack_more(berm_planner_t *planner) {
    planner_pack_t *pack = &planner->pack;
    keep_best(planner);
    if (planner__pack_pages(planner, pack->best_height) <= planner->pages_good)
        return false;
    if (pack->order_number + 1 < ORDER_COUNT) {
        pack->order_number++;
        return true;
    }
    if (pack->order_number < ORDER_COUNT) {
        pack->order_number = ORDER_COUNT;
        pack->search_end = planner->done + planner__search_work(planner);
        memcpy(pack->order, pack->best_order, planner->count * sizeof(uint32_t));
    }
    return planner->done < pack->search_end;
}
