// SPDX-License-Identifier: Apache-2.0
// The physical pages of an aliased plan: see pages.h.
#include "policy/pages.h"

#include "base/bits.h"
#include "host/mem.h"
#include "policy/planned.h"

#define GRANULE_NONE UINT32_MAX

static berm_page_t *page_at(const berm_pages_t *pages, uint64_t granule) {
    return &pages->pages[pages->plan->page_of[granule]];
}

bool berm__pages_init(berm_pages_t *pages, const berm_plan_t *plan) {
    *pages = (berm_pages_t){.plan = plan};
    pages->pages = berm__mem_alloc(plan->page_count * sizeof *pages->pages);
    pages->next_granule = berm__mem_alloc(plan->mapping_count * sizeof *pages->next_granule);
    if (pages->pages == NULL || pages->next_granule == NULL) {
        berm__pages_destroy(pages);
        return false;
    }
    for (uint32_t i = 0; i < plan->page_count; i++)
        pages->pages[i].first_granule = GRANULE_NONE;
    for (uint32_t at = plan->mapping_count; at-- > 0;) {
        berm_page_t *page = page_at(pages, at);
        pages->next_granule[at] = page->first_granule;
        page->first_granule = at;
    }
    return true;
}

void berm__pages_destroy(berm_pages_t *pages) {
    if (pages->plan != NULL) {
        berm__mem_free(pages->pages, pages->plan->page_count * sizeof *pages->pages);
        berm__mem_free(pages->next_granule,
                       pages->plan->mapping_count * sizeof *pages->next_granule);
    }
    *pages = (berm_pages_t){0};
}

bool berm__pages_are_free(const berm_pages_t *pages, uint64_t first, uint64_t count) {
    for (uint64_t at = first; at < first + count; at++)
        if (page_at(pages, at)->is_used || page_at(pages, at)->is_lost)
            return false;
    return true;
}

void berm__pages_use(berm_pages_t *pages, uint64_t first, uint64_t count, bool is_used) {
    for (uint64_t at = first; at < first + count; at++)
        page_at(pages, at)->is_used = is_used;
}

uint64_t berm__pages_short(berm_pages_t *pages, uint64_t first, uint64_t count) {
    uint64_t wanted = 0;
    for (uint64_t at = first; at < first + count; at++) {
        berm_page_t *page = page_at(pages, at);
        wanted += page->handle == NULL && !page->is_seen;
        page->is_seen = true;
    }
    for (uint64_t at = first; at < first + count; at++)
        page_at(pages, at)->is_seen = false;
    return wanted;
}

// The records of what a failed map left without a handle, or lost.
static void handles_check(berm_pages_t *pages, uint64_t first, uint64_t count, bool is_lost) {
    for (uint64_t at = first; at < first + count; at++) {
        berm_page_t *page = page_at(pages, at);
        page->is_lost = page->is_lost || is_lost;
        if (page->handle != NULL && page->handle->views == 0)
            page->handle = NULL;
    }
}

berm_status_t berm__pages_map(berm_pages_t *pages, berm_pool_t *pool, berm_segment_t *segment,
                              uint64_t first, uint64_t count) {
    uint64_t at = first;
    berm_status_t status = berm__segment_edit_begin(segment);
    if (status != BERM_OK)
        return status;
    for (; at < first + count && status == BERM_OK; at++) {
        berm_page_t *page = page_at(pages, at);
        if (page->handle == NULL)
            page->handle = berm__aliased_take(&pool->aliased, 1);
        if (page->handle == NULL)
            page->handle = berm__store_take(segment->store, 1);
        BERM_INSIST(page->handle != NULL, "idle handles are there for the pages to map");
        status = berm__segment_map_one(segment, at, page->handle);
    }
    if (status == BERM_OK)
        status = berm__segment_access(segment, first, count);
    else
        status = berm__segment_map_undo(segment, first, at - 1, status);
    if (status != BERM_OK)
        handles_check(pages, first, count, status == BERM_ERROR_CORRUPTION);
    return status;
}

// --- giving pages back ---------------------------------------------------------------------------

// A view on its way out: the only one of a free page, or one after another.
static berm_status_t view_unmap(berm_pages_t *pages, berm_pool_t *pool, berm_segment_t *segment,
                                uint32_t granule) {
    unsigned lg = segment->gpu->lg_granule;
    uint64_t granule_bytes = segment->gpu->granule_bytes;
    berm__mutex_lock(&pool->lock);
    if (!berm__node_slab_reserve(&pool->range_nodes, pool->range_nodes_promised + 2)) {
        berm__mutex_unlock(&pool->lock);
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    }
    berm_range_t *range = berm__planned_range_at(segment->planned, (uint64_t)granule << lg);
    range = berm__ranges_carve(&segment->ranges, range, (uint64_t)granule << lg, granule_bytes,
                               BERM_RANGE_BUSY);
    berm__mutex_unlock(&pool->lock);
    berm_status_t status = berm__segment_unmap(segment, granule, 1);
    berm__mutex_lock(&pool->lock);
    berm__range_unmapped(pool, segment, range, status);
    if (status != BERM_OK)
        page_at(pages, granule)->is_lost = true;
    berm__mutex_unlock(&pool->lock);
    return status;
}

static bool page_has_passed(const berm_pages_t *pages, const berm_pool_t *pool,
                            const berm_segment_t *segment, const berm_page_t *page) {
    if (page->handle == NULL || page->is_lost || page->is_used)
        return false;
    for (uint32_t at = page->first_granule; at != GRANULE_NONE; at = pages->next_granule[at])
        if (segment->handle_of[at] != NULL &&
            !berm__stream_has_passed(pool->stream, segment->ticket_of[at]))
            return false;
    return true;
}

uint64_t berm__pages_cheapest_ticket(const berm_pages_t *pages, const berm_pool_t *pool,
                                     const berm_segment_t *segment) {
    uint64_t cheapest = 0;
    for (uint32_t i = 0; i < pages->plan->page_count; i++) {
        const berm_page_t *page = &pages->pages[i];
        uint64_t last = 0;
        if (page->handle == NULL || page->is_lost || page->is_used)
            continue;
        for (uint32_t at = page->first_granule; at != GRANULE_NONE; at = pages->next_granule[at])
            if (segment->handle_of[at] != NULL)
                last = berm__max_u64(last, segment->ticket_of[at]);
        if (!berm__stream_has_passed(pool->stream, last) && (cheapest == 0 || last < cheapest))
            cheapest = last;
    }
    return cheapest;
}

berm_status_t berm__pages_steal(berm_pages_t *pages, berm_pool_t *pool, berm_segment_t *segment,
                                uint64_t granules, uint64_t *taken) {
    berm_status_t status = BERM_OK;
    for (uint32_t i = 0; i < pages->plan->page_count && *taken < granules; i++) {
        berm_page_t *page = &pages->pages[i];
        berm__mutex_lock(&pool->lock);
        bool is_free = page_has_passed(pages, pool, segment, page);
        if (is_free) // nobody takes it meanwhile
            page->is_used = true;
        berm__mutex_unlock(&pool->lock);
        if (!is_free)
            continue;
        for (uint32_t at = page->first_granule; at != GRANULE_NONE && status == BERM_OK;
             at = pages->next_granule[at])
            if (segment->handle_of[at] != NULL)
                status = view_unmap(pages, pool, segment, at);
        berm__mutex_lock(&pool->lock);
        page->is_used = false;
        berm__mutex_unlock(&pool->lock);
        if (status != BERM_OK)
            return status;
        page->handle = NULL;
        ++*taken;
    }
    return status;
}

uint64_t berm__pages_unused(const berm_pages_t *pages) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < pages->plan->page_count; i++)
        count +=
            pages->pages[i].handle != NULL && !pages->pages[i].is_used && !pages->pages[i].is_lost;
    return count;
}

bool berm__pages_are_mapped(const berm_pages_t *pages) {
    for (uint32_t i = 0; i < pages->plan->page_count; i++)
        if (pages->pages[i].handle != NULL)
            return true;
    return false;
}
