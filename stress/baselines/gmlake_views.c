// SPDX-License-Identifier: Apache-2.0
// Stitched views of the GMLake model: see gmlake_space.h.
//
// A view maps granules that are mapped at home too. That is sound as both addresses are used in the
// order of one stream: the home blocks are free while the view is live, and the other way round. A
// view counts how many of its granules are in use by anybody; it can be handed out at 0.
// Bounds: creating, taking and giving are O(granules x views over each), as in GMLake.
// Locks: none; one thread. May fail: addresses, mappings or host memory; nothing is changed then.
#include <stdlib.h>

#include "base/bits.h"
#include "stress/baselines/gmlake_space.h"

void gmlake_view_file(gmlake_space_t *space, gmlake_view_t *view) {
    bool is_ready = view->live_count == 0 && view->busy_count == 0 && !view->is_broken;
    if (is_ready && !view->node.is_member)
        ordered_set_insert(&space->views, &view->node,
                           gmlake_key(view->stream, view->size_bytes, view->addr));
    else if (!is_ready && view->node.is_member)
        ordered_set_remove(&space->views, &view->node);
}

void gmlake_granule_set_used(gmlake_space_t *space, gmlake_granule_t *granule, bool is_used) {
    granule->is_used = is_used;
    for (size_t i = 0; i < granule->view_count; i++) {
        gmlake_view_t *view = granule->views[i];
        view->busy_count = is_used ? view->busy_count + 1 : view->busy_count - 1;
        gmlake_view_file(space, view);
    }
}

// --- life ----------------------------------------------------------------------------------------

static bool granule_add_view(gmlake_granule_t *granule, gmlake_view_t *view) {
    if (granule->view_count == granule->view_capacity) {
        size_t capacity = granule->view_capacity == 0 ? 2 : granule->view_capacity * 2;
        gmlake_view_t **views = realloc(granule->views, capacity * sizeof(gmlake_view_t *));
        if (views == NULL)
            return false;
        granule->views = views;
        granule->view_capacity = capacity;
    }
    granule->views[granule->view_count++] = view;
    return true;
}

static void granule_remove_view(gmlake_granule_t *granule, const gmlake_view_t *view) {
    for (size_t i = 0; i < granule->view_count; i++) {
        if (granule->views[i] == view) {
            granule->views[i] = granule->views[--granule->view_count];
            return;
        }
    }
}

// Unmaps what is mapped of the first `mapped` granules, and forgets the view.
static void view_undo(gmlake_space_t *space, gmlake_view_t *view, size_t mapped) {
    uint64_t bytes = space->granule_bytes;
    for (size_t i = 0; i < mapped;) {
        size_t end = i;
        while (end < mapped && view->granules[end] != NULL)
            end++;
        if (end > i)
            (void)stress_driver()->mem_unmap(view->addr + i * bytes, (end - i) * bytes);
        i = end + 1;
    }
    for (size_t i = 0; i < view->granule_count; i++)
        if (view->granules[i] != NULL)
            granule_remove_view(view->granules[i], view);
    if (view->addr != 0)
        (void)stress_driver()->address_free(view->addr, view->size_bytes);
    free(view->granules);
    free(view);
}

static bool view_map(gmlake_space_t *space, gmlake_view_t *view, size_t *mapped) {
    const stress_driver_t *d = stress_driver();
    const berm_cu_mem_access_t access = {space->prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    uint64_t bytes = space->granule_bytes;
    if (d->address_reserve(&view->addr, view->size_bytes, 0, 0, 0) != BERM_CU_SUCCESS) {
        view->addr = 0;
        return false;
    }
    for (; *mapped < view->granule_count; ++*mapped) {
        gmlake_granule_t *granule = view->granules[*mapped];
        if (d->mem_map(view->addr + *mapped * bytes, bytes, 0, granule->handle, 0) !=
            BERM_CU_SUCCESS)
            return false;
    }
    return d->set_access(view->addr, view->size_bytes, &access, 1) == BERM_CU_SUCCESS;
}

gmlake_view_t *gmlake_view_create(gmlake_space_t *space, gmlake_granule_t **granules, size_t count,
                                  void *stream) {
    gmlake_view_t *view = calloc(1, sizeof *view);
    if (view == NULL)
        return NULL;
    view->granules = calloc(count, sizeof *view->granules);
    if (view->granules == NULL) {
        free(view);
        return NULL;
    }
    view->size_bytes = count * space->granule_bytes;
    view->stream = stream;
    view->granule_count = count;
    size_t mapped = 0;
    bool is_good = true;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = granule_add_view(granules[i], view);
        view->granules[i] = is_good ? granules[i] : NULL;
    }
    if (!is_good || !view_map(space, view, &mapped)) {
        view_undo(space, view, mapped);
        return NULL;
    }
    space->view_bytes += view->size_bytes;
    space->moved_bytes += view->size_bytes;
    berm__list_push_back(&space->idle_views, &view->idle);
    gmlake_view_file(space, view);
    return view;
}

void gmlake_view_destroy(gmlake_space_t *space, gmlake_view_t *view) {
    (void)gmlake_wait(space, view->stream);
    if (view->node.is_member)
        ordered_set_remove(&space->views, &view->node);
    berm__list_remove(&view->idle);
    space->view_bytes -= view->size_bytes;
    view_undo(space, view, view->granule_count);
}

void gmlake_views_forget(gmlake_space_t *space, gmlake_granule_t *granule) {
    while (granule->view_count > 0) {
        gmlake_view_t *view = granule->views[0];
        if (view->live_count == 0) {
            gmlake_view_destroy(space, view);
            continue;
        }
        // Its owner got only the first granules; this one lies behind them.
        for (size_t i = view->live_count; i < view->granule_count; i++) {
            if (view->granules[i] != granule)
                continue;
            (void)stress_driver()->mem_unmap(view->addr + i * space->granule_bytes,
                                             space->granule_bytes);
            view->granules[i] = NULL;
        }
        view->is_broken = true;
        granule_remove_view(granule, view);
    }
}

bool gmlake_views_drop(gmlake_space_t *space, uint64_t size_bytes) {
    uint64_t dropped_bytes = 0;
    while (dropped_bytes < size_bytes && !berm__list_is_empty(&space->idle_views)) {
        gmlake_view_t *view = BERM_CONTAINER_OF(space->idle_views.next, gmlake_view_t, idle);
        dropped_bytes += view->size_bytes;
        gmlake_view_destroy(space, view);
    }
    return dropped_bytes > 0;
}

// --- handing out ---------------------------------------------------------------------------------

// The number of granules from `i` on that follow each other at home, in one free block.
static size_t view_run(const gmlake_space_t *space, const gmlake_view_t *view, size_t i,
                       size_t count) {
    const gmlake_block_t *block = gmlake_block_at(space, view->granules[i]->home);
    uint64_t next = view->granules[i]->home + space->granule_bytes;
    size_t end = i + 1;
    for (; end < count && view->granules[end]->home == next; end++) {
        if (next >= block->addr + block->size_bytes)
            break;
        next += space->granule_bytes;
    }
    return end - i;
}

bool gmlake_view_take(gmlake_space_t *space, gmlake_view_t *view, size_t count) {
    size_t runs = 0;
    for (size_t i = 0; i < count; i += view_run(space, view, i, count))
        runs++;
    if (!gmlake_space_secure(space, 2 * runs))
        return false;
    view->live_count = count;
    gmlake_view_file(space, view);
    berm__list_remove(&view->idle);
    for (size_t i = 0; i < count;) {
        size_t run = view_run(space, view, i, count);
        (void)gmlake_block_carve(space, view->granules[i]->home, run * space->granule_bytes,
                                 GMLAKE_LENT);
        i += run;
    }
    return true;
}

void gmlake_view_give(gmlake_space_t *space, gmlake_view_t *view) {
    size_t count = view->live_count;
    for (size_t i = 0; i < count;) {
        gmlake_block_t *block = gmlake_block_at(space, view->granules[i]->home);
        i += block->size_bytes / space->granule_bytes;
        gmlake_block_release(space, block);
    }
    view->live_count = 0;
    view->requested_bytes = 0;
    berm__list_push_back(&space->idle_views, &view->idle);
    gmlake_view_file(space, view);
    if (view->is_broken)
        gmlake_view_destroy(space, view);
}

// --- audit ---------------------------------------------------------------------------------------

int gmlake_views_audit(const gmlake_space_t *space) {
    if (!ordered_set_is_valid(&space->views))
        return 5;
    size_t ready = 0;
    for (const berm_list_t *at = space->idle_views.next; at != &space->idle_views; at = at->next) {
        const gmlake_view_t *view = BERM_CONTAINER_OF(at, gmlake_view_t, idle);
        size_t busy = 0;
        for (size_t i = 0; i < view->granule_count; i++) {
            if (view->granules[i] == NULL)
                return 5;
            busy += view->granules[i]->is_used;
        }
        ready += view->node.is_member;
        if (busy != view->busy_count || view->live_count != 0 ||
            view->node.is_member != (busy == 0))
            return 5;
    }
    return ready == space->views.count ? 0 : 5;
}
