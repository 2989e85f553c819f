// SPDX-License-Identifier: Apache-2.0
// The audit of plans' arenas: I34 and I35.
#include <inttypes.h>

#include "front/audit.h"
#include "policy/planned.h"

static berm_addr_t addr_of(const berm_segment_t *segment, uint64_t offset_bytes) {
    return segment->base + offset_bytes;
}

// I34: every level of the set has the cells that lead to a range. Of the levels above the first,
// which are of words of 64 cells, the way from the first cell of each word shows all that can be
// asked for: from its other cells it is the same, or ends in the word.
static int cells_check(const berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_planned_t *planned = segment->planned;
    uint64_t last = BERM_CELL_NONE;
    for (uint64_t cell = 0; cell <= (planned->plan->arena_bytes - 1) / BERM_CELL_BYTES; cell++) {
        bool is_taken = planned->range_of[cell] != NULL;
        if (is_taken)
            last = cell;
        if (berm__cells_has(&planned->taken, cell) != is_taken ||
            (cell % 64 == 0 && berm__cells_at_or_below(&planned->taken, cell) != last))
            return berm__audit_fail(audit, 34, addr_of(segment, cell * BERM_CELL_BYTES),
                                    "the set of taken cells of a plan is not what its ranges say");
    }
    return 0;
}

// I34: the taken ranges.
static int taken_check(const berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_planned_t *planned = segment->planned;
    uint64_t count = 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        bool is_taken = range->state == BERM_RANGE_LIVE || range->state == BERM_RANGE_AWAITED ||
                        range->state == BERM_RANGE_CACHED || range->state == BERM_RANGE_HELD;
        if (!is_taken)
            continue;
        uint64_t cell = range->start_bytes / BERM_CELL_BYTES;
        count++;
        if (range->is_slab || range->start_bytes >= planned->plan->arena_bytes ||
            !berm__cells_has(&planned->taken, cell) || planned->range_of[cell] != range)
            return berm__audit_fail(audit, 34, addr_of(segment, range->start_bytes),
                                    "a block in the arena of a plan that the plan did not place");
    }
    if (count == planned->taken_count)
        return 0;
    return berm__audit_fail(audit, 34, segment->base,
                            "%" PRIu64 " blocks are in the arena of a plan, %" PRIu64
                            " are counted",
                            count, planned->taken_count);
}

// Marks the pages of every block, or takes the marks away; false if one has a mark already.
static bool blocks_mark(const berm_segment_t *segment, bool is_on) {
    berm_planned_t *planned = segment->planned;
    unsigned lg = segment->gpu->lg_granule;
    bool is_once = true;
    for (uint64_t cell = 0; cell <= (planned->plan->arena_bytes - 1) / BERM_CELL_BYTES; cell++) {
        const berm_range_t *range = planned->range_of[cell];
        if (range == NULL)
            continue;
        uint64_t first = range->start_bytes >> lg;
        uint64_t last = (range->start_bytes + range->size_bytes - 1) >> lg;
        for (uint64_t at = first; at <= last; at++) {
            berm_page_t *page = &planned->pages.pages[planned->plan->page_of[at]];
            is_once = is_once && page->is_seen != is_on;
            page->is_seen = is_on;
        }
    }
    return is_once;
}

// I35, of one page: in use if a block marked it; its handle stands at its granules only.
static int page_check(berm_audit_t *audit, const berm_segment_t *segment, const berm_page_t *page) {
    const berm_planned_t *planned = segment->planned;
    uint64_t standing = 0;
    for (uint32_t at = page->first_granule; at != UINT32_MAX;
         at = planned->pages.next_granule[at]) {
        standing += segment->handle_of[at] != NULL;
        if (segment->handle_of[at] != NULL && segment->handle_of[at] != page->handle)
            return berm__audit_fail(audit, 35,
                                    addr_of(segment, (uint64_t)at << segment->gpu->lg_granule),
                                    "a granule of a plan's page has another page's handle");
    }
    uint64_t views = page->handle != NULL ? page->handle->views : 0;
    if (views != standing || (page->handle != NULL && standing == 0))
        return berm__audit_fail(audit, 35, segment->base,
                                "a page of a plan stands %" PRIu64 " times, and has %" PRIu64
                                " views",
                                standing, views);
    if (page->is_used != page->is_seen)
        return berm__audit_fail(audit, 35, segment->base, "a page of a plan is %sin use, but %s",
                                page->is_used ? "" : "not ",
                                page->is_seen ? "a block lies on it" : "no block lies on it");
    if (page->handle == NULL)
        return 0;
    audit->sums.extra_views += views - 1;
    audit->sums.mapped_bytes += segment->gpu->granule_bytes;
    audit->sums.pins_of_handles += page->handle->pins;
    audit->sums.pinned_bytes += page->handle->pins > 0 ? segment->gpu->granule_bytes : 0;
    return 0;
}

static int pages_check(berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_planned_t *planned = segment->planned;
    int broken = 0;
    if (!blocks_mark(segment, true))
        broken = berm__audit_fail(audit, 35, segment->base, "two blocks lie on one page of a plan");
    for (uint32_t i = 0; i < planned->plan->page_count && broken == 0; i++)
        broken = page_check(audit, segment, &planned->pages.pages[i]);
    (void)blocks_mark(segment, false);
    return broken;
}

int berm__audit_arena(berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_planned_t *planned = segment->planned;
    if (planned == NULL)
        return 0;
    int broken = taken_check(audit, segment);
    if (broken == 0)
        broken = cells_check(audit, segment);
    return broken == 0 && berm__pages_are_on(&planned->pages) ? pages_check(audit, segment)
                                                              : broken;
}
