// SPDX-License-Identifier: Apache-2.0
// A model of GMLake, to compare with: PyTorch's allocator whose large pool keeps each 2 MiB of
// memory as a handle of its own and, when no block fits, stitches free ones together at new
// addresses.
//
// Requests up to 1 MiB are the PyTorch model's. Larger ones are rounded to granules and tried in
// GMLake's order:
//   1. the best fit among primitive blocks of the stream, split where a granule remains;
//   2. the best fit among cached views whose granules are all free, of which the first granules are
//      handed out, if the view is at most `reuseLimit` times the request;
//   3. from `fragLimit` on: stitch the largest free blocks, the last one cut, into a new view;
//   4. a new segment of PyTorch's size; 5. unsplit free segments go back and 4 again; 6. 3 again.
// Views stay cached when freed; the least recently released go when all views together exceed
// `autoGC` GiB of addresses, or when the driver refuses addresses or mappings.
// Options: fragLimit:BYTES (512 MiB), reuseLimit:N (10), autoGC:GIB (1000), as GMLake has them.
// Not modelled: record_stream (the harness waits before the free), captures, defragLevel, reAlloc.
// Structures are gmlake_space.c and gmlake_views.c; moved bytes are what was stitched.
// Bounds: a hit O(log n) plus the views over its granules.
// Invariants (gmlake_audit): 1. blocks tile their segment; 2. no two free neighbours; 3. `free`
// holds the free blocks; 4. a granule is in use exactly if its block is; 5. a view counts its
// granules in use, and can be handed out at 0; 6. figures equal the sums over blocks.
// Locks: none; one thread. May fail: out of memory after all of the above.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/gmlake_space.h"

// What an address of the large pool belongs to.
typedef struct gmlake_owner {
    gmlake_block_t *block; // or
    gmlake_view_t *view;
} gmlake_owner_t;

typedef struct gmlake {
    stress_allocator_t base; // first: the small pool, by the PyTorch model
    gmlake_space_t space;
    uint64_t limit_bytes, fragment_limit_bytes, reuse_limit, views_limit_bytes;
    uint64_t requested_bytes, allocated_bytes, live_blocks; // of the large pool
    uint64_t reserved_peak_bytes, allocated_peak_bytes;     // of both
    addr_map_t live;
} gmlake_t;

static gmlake_t *gmlake_of(stress_allocator_t *a) {
    return (gmlake_t *)a;
}

// --- options -------------------------------------------------------------------------------------

static bool gmlake_option(gmlake_t *g, const char *item, size_t length) {
    const struct {
        const char *name;
        uint64_t unit, *value;
    } options[] = {
        {"fragLimit:", 1, &g->fragment_limit_bytes},
        {"reuseLimit:", 1, &g->reuse_limit},
        {"autoGC:", BERM_GIB(1), &g->views_limit_bytes},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(options); i++) {
        size_t name_length = strlen(options[i].name);
        if (length <= name_length || length - name_length > 15 ||
            strncmp(item, options[i].name, name_length) != 0)
            continue;
        uint64_t number = 0;
        for (const char *at = item + name_length; at < item + length; at++) {
            if (*at < '0' || *at > '9')
                return false;
            number = number * 10 + (uint64_t)(*at - '0');
        }
        *options[i].value = number * options[i].unit;
        return number > 0 && number <= (UINT64_C(1) << 50) / options[i].unit;
    }
    return false;
}

static bool gmlake_conf(gmlake_t *g, const char *conf) {
    g->fragment_limit_bytes = BERM_MIB(512);
    g->reuse_limit = 10;
    g->views_limit_bytes = BERM_GIB(1000);
    for (const char *at = conf; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (!gmlake_option(g, at, length))
            return false;
        at += length + (at[length] == ',');
    }
    return true;
}

// --- life ----------------------------------------------------------------------------------------

static const char *gmlake_open(gmlake_t *g, const stress_allocator_options_t *options) {
    if (!gmlake_conf(g, options->conf))
        return "options are fragLimit:BYTES, reuseLimit:N and autoGC:GIB";
    (void)pytorch_sizes_parse(&g->base.sizes, "", NULL, 0);
    g->limit_bytes = options->limit_bytes;
    gmlake_space_t *space = &g->space;
    space->prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    space->prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    space->prop.location.id = options->device;
    size_t granule_bytes = 0;
    if (stress_driver()->get_granularity(&granule_bytes, &space->prop,
                                         BERM_CU_MEM_GRANULARITY_MINIMUM) != BERM_CU_SUCCESS)
        return "the device has no virtual memory management";
    if (!berm__is_pow2(granule_bytes) || granule_bytes > BERM_MIB(2))
        return "the device's granules are larger than 2 MiB";
    space->granule_bytes = BERM_MIB(2);
    gmlake_space_init(space);
    ordered_set_init(&g->base.small);
    ordered_set_init(&g->base.large);
    addr_map_init(&g->base.live);
    addr_map_init(&g->live);
    berm__list_init(&g->base.all);
    return NULL;
}

static stress_allocator_t *gmlake_create(const stress_allocator_options_t *options, char *error,
                                         size_t error_capacity) {
    gmlake_t *g = calloc(1, sizeof *g);
    const char *fault = g == NULL ? "no memory" : gmlake_open(g, options);
    if (fault != NULL) {
        (void)snprintf(error, error_capacity, "gmlake: %s", fault);
        free(g);
        return NULL;
    }
    return &g->base;
}

static void gmlake_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    gmlake_t *g = gmlake_of(a);
    uint64_t large_blocks = g->live_blocks;
    size_t position = 0;
    for (gmlake_owner_t *owner; (owner = addr_map_next(&g->live, &position)) != NULL;) {
        if (owner->view != NULL)
            gmlake_view_give(&g->space, owner->view);
        free(owner);
    }
    addr_map_destroy(&g->live);
    (void)gmlake_views_drop(&g->space, UINT64_MAX);
    gmlake_space_destroy(&g->space);
    stress_pytorch_ops.destroy(a, live_blocks); // frees `g`
    *live_blocks += large_blocks;
}

// --- where a large request comes from ------------------------------------------------------------

static gmlake_block_t *gmlake_block_fit(gmlake_t *g, uint64_t size_bytes, void *stream) {
    const ordered_key_t key = gmlake_key(stream, size_bytes, 0);
    ordered_node_t *at = ordered_set_at_least(&g->space.free, key);
    if (at == NULL || at->key.first != key.first || !gmlake_space_secure(&g->space, 2))
        return NULL;
    uint64_t addr = BERM_CONTAINER_OF(at, gmlake_block_t, node)->addr;
    return gmlake_block_carve(&g->space, addr, size_bytes, GMLAKE_LIVE);
}

static gmlake_view_t *gmlake_view_fit(gmlake_t *g, uint64_t size_bytes, void *stream) {
    const ordered_key_t key = gmlake_key(stream, size_bytes, 0);
    ordered_node_t *at = ordered_set_at_least(&g->space.views, key);
    if (at == NULL || at->key.first != key.first || at->key.second / g->reuse_limit > size_bytes)
        return NULL;
    gmlake_view_t *view = BERM_CONTAINER_OF(at, gmlake_view_t, node);
    return gmlake_view_take(&g->space, view, size_bytes / g->space.granule_bytes) ? view : NULL;
}

// The granules of the largest free blocks, largest first, until there are `count`; false if there
// are not so many.
static bool gmlake_granules_collect(const gmlake_t *g, gmlake_granule_t **granules, size_t count,
                                    void *stream) {
    size_t have = 0;
    ordered_node_t *at = ordered_set_below(&g->space.free, gmlake_key(stream, UINT64_MAX, 0));
    for (; at != NULL && at->key.first == (uint64_t)(uintptr_t)stream && have < count;
         at = ordered_set_below(&g->space.free, at->key)) {
        const gmlake_block_t *block = BERM_CONTAINER_OF(at, gmlake_block_t, node);
        gmlake_granule_t *first = gmlake_granule_at(&g->space, block->addr);
        for (uint64_t i = 0; i < block->size_bytes / g->space.granule_bytes && have < count; i++)
            granules[have++] = first + i;
    }
    return have == count;
}

static gmlake_view_t *gmlake_stitch(gmlake_t *g, uint64_t size_bytes, void *stream) {
    gmlake_space_t *space = &g->space;
    size_t count = size_bytes / space->granule_bytes;
    if (size_bytes < g->fragment_limit_bytes || size_bytes > space->reserved_bytes)
        return NULL;
    gmlake_granule_t **granules = calloc(count, sizeof(gmlake_granule_t *));
    gmlake_view_t *view = NULL;
    if (granules != NULL && gmlake_granules_collect(g, granules, count, stream)) {
        do
            view = gmlake_view_create(space, granules, count, stream);
        while (view == NULL && gmlake_views_drop(space, size_bytes));
    }
    free(granules);
    if (view == NULL || !gmlake_view_take(space, view, count))
        return NULL;
    if (space->view_bytes > g->views_limit_bytes)
        (void)gmlake_views_drop(space, space->view_bytes - g->views_limit_bytes);
    return view;
}

static gmlake_block_t *gmlake_grow(gmlake_t *g, uint64_t size_bytes, void *stream) {
    gmlake_space_t *space = &g->space;
    uint64_t segment_bytes = pytorch_segment_bytes(&g->base.sizes, size_bytes);
    space->limit_bytes = g->limit_bytes - g->base.figures.reserved_bytes;
    gmlake_block_t *block = gmlake_segment_create(space, segment_bytes, stream);
    // Views hold no memory, but addresses and mappings.
    if (block == NULL && space->is_driver_failing && gmlake_views_drop(space, segment_bytes))
        block = gmlake_segment_create(space, segment_bytes, stream);
    return block == NULL ? NULL : gmlake_block_fit(g, size_bytes, stream);
}

static void gmlake_peaks(gmlake_t *g) {
    const stress_figures_t *small = &g->base.figures;
    g->reserved_peak_bytes =
        berm__max_u64(g->reserved_peak_bytes, g->space.reserved_bytes + small->reserved_bytes);
    g->allocated_peak_bytes =
        berm__max_u64(g->allocated_peak_bytes, g->allocated_bytes + small->allocated_bytes);
}

static void gmlake_release(gmlake_t *g) {
    gmlake_segments_release(&g->space);
    pytorch_segments_release(&g->base);
}

static bool gmlake_find(gmlake_t *g, gmlake_owner_t *owner, uint64_t size_bytes, void *stream) {
    g->space.is_driver_failing = false;
    if ((owner->block = gmlake_block_fit(g, size_bytes, stream)) != NULL ||
        (owner->view = gmlake_view_fit(g, size_bytes, stream)) != NULL ||
        (owner->view = gmlake_stitch(g, size_bytes, stream)) != NULL ||
        (owner->block = gmlake_grow(g, size_bytes, stream)) != NULL)
        return true;
    gmlake_release(g);
    return (owner->block = gmlake_grow(g, size_bytes, stream)) != NULL ||
           (owner->view = gmlake_stitch(g, size_bytes, stream)) != NULL;
}

// --- the data path -------------------------------------------------------------------------------

static stress_result_t gmlake_small(gmlake_t *g, uint64_t request_bytes, void *stream,
                                    uint64_t *addr) {
    stress_allocator_t *a = &g->base;
    a->is_driver_failing = false;
    a->limit_bytes = g->limit_bytes - g->space.reserved_bytes;
    stress_result_t result = stress_pytorch_ops.alloc(a, request_bytes, stream, addr);
    if (result != STRESS_OUT_OF_MEMORY)
        return result;
    gmlake_release(g);
    a->limit_bytes = g->limit_bytes - g->space.reserved_bytes;
    return stress_pytorch_ops.alloc(a, request_bytes, stream, addr);
}

static stress_result_t gmlake_large(gmlake_t *g, uint64_t request_bytes, void *stream,
                                    uint64_t *addr) {
    gmlake_owner_t *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return STRESS_ERROR;
    uint64_t size_bytes = berm__align_up(request_bytes, g->space.granule_bytes);
    if (!gmlake_find(g, owner, size_bytes, stream)) {
        free(owner);
        return g->space.is_driver_failing ? STRESS_ERROR : STRESS_OUT_OF_MEMORY;
    }
    *addr = owner->view != NULL ? owner->view->addr : owner->block->addr;
    if (!addr_map_insert(&g->live, *addr, owner)) {
        if (owner->view != NULL)
            gmlake_view_give(&g->space, owner->view);
        else
            gmlake_block_release(&g->space, owner->block);
        free(owner);
        return STRESS_ERROR;
    }
    if (owner->view != NULL)
        owner->view->requested_bytes = request_bytes;
    else
        owner->block->requested_bytes = request_bytes;
    g->requested_bytes += request_bytes;
    g->allocated_bytes += size_bytes;
    g->live_blocks++;
    return STRESS_OK;
}

static stress_result_t gmlake_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                    uint64_t *addr) {
    gmlake_t *g = gmlake_of(a);
    if (request_bytes == 0 || request_bytes >= PYTORCH_REQUEST_LIMIT)
        return STRESS_OUT_OF_MEMORY;
    bool is_small = pytorch_is_small(pytorch_round(&a->sizes, request_bytes));
    stress_result_t result = is_small ? gmlake_small(g, request_bytes, stream, addr)
                                      : gmlake_large(g, request_bytes, stream, addr);
    gmlake_peaks(g);
    return result;
}

static stress_result_t gmlake_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                   void *stream) {
    gmlake_t *g = gmlake_of(a);
    gmlake_owner_t *owner = addr_map_remove(&g->live, addr);
    if (owner == NULL)
        return stress_pytorch_ops.free(a, addr, size_bytes, stream);
    if (owner->view != NULL) {
        g->requested_bytes -= owner->view->requested_bytes;
        g->allocated_bytes -= owner->view->live_count * g->space.granule_bytes;
        gmlake_view_give(&g->space, owner->view);
    } else {
        g->requested_bytes -= owner->block->requested_bytes;
        g->allocated_bytes -= owner->block->size_bytes;
        gmlake_block_release(&g->space, owner->block);
    }
    g->live_blocks--;
    free(owner);
    return STRESS_OK;
}

// --- figures -------------------------------------------------------------------------------------

static void gmlake_figures(stress_allocator_t *a, stress_figures_t *figures) {
    const gmlake_t *g = gmlake_of(a);
    const stress_figures_t *small = &a->figures;
    *figures = (stress_figures_t){
        .requested_bytes = g->requested_bytes + small->requested_bytes,
        .allocated_bytes = g->allocated_bytes + small->allocated_bytes,
        .active_bytes = g->allocated_bytes + small->active_bytes,
        .reserved_bytes = g->space.reserved_bytes + small->reserved_bytes,
        .reserved_peak_bytes = g->reserved_peak_bytes,
        .allocated_peak_bytes = g->allocated_peak_bytes,
        .moved_bytes = g->space.moved_bytes,
        .host_waits = g->space.host_waits + small->host_waits,
    };
}

static void gmlake_peaks_reset(stress_allocator_t *a) {
    gmlake_t *g = gmlake_of(a);
    g->reserved_peak_bytes = g->allocated_peak_bytes = 0;
    gmlake_peaks(g);
}

// The largest of one set for the stream.
static uint64_t set_largest(const ordered_set_t *set, void *stream) {
    const ordered_node_t *at = ordered_set_below(set, gmlake_key(stream, UINT64_MAX, 0));
    return at != NULL && at->key.first == (uint64_t)(uintptr_t)stream ? at->key.second : 0;
}

static uint64_t gmlake_largest_free(stress_allocator_t *a, void *stream) {
    const gmlake_space_t *space = &gmlake_of(a)->space;
    uint64_t largest =
        berm__max_u64(set_largest(&space->free, stream), set_largest(&space->views, stream));
    return largest != 0 ? largest : stress_pytorch_ops.largest_free(a, stream);
}

static uint64_t gmlake_largest_obtainable(stress_allocator_t *a, void *stream) {
    const gmlake_t *g = gmlake_of(a);
    size_t free_bytes = 0, total_bytes = 0;
    (void)stress_driver()->mem_get_info(&free_bytes, &total_bytes);
    uint64_t releasable =
        gmlake_segments_releasable(&g->space) + pytorch_segments_releasable(&g->base);
    uint64_t reserved_bytes = g->space.reserved_bytes + a->figures.reserved_bytes;
    uint64_t room = berm__min_u64(free_bytes, g->limit_bytes - reserved_bytes) + releasable;
    uint64_t stitched = 0;
    for (ordered_node_t *at = ordered_set_at_least(&g->space.free, gmlake_key(stream, 0, 0));
         at != NULL && at->key.first == (uint64_t)(uintptr_t)stream; at = ordered_node_next(at))
        stitched += at->key.second;
    if (stitched < g->fragment_limit_bytes)
        stitched = 0;
    room = berm__align_down(room, g->space.granule_bytes);
    return berm__max_u64(berm__max_u64(room, stitched), gmlake_largest_free(a, stream));
}

static int gmlake_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    const gmlake_t *g = gmlake_of(a);
    stress_figures_t sums = {0};
    int fault = gmlake_space_audit(&g->space, &sums);
    if (fault == 0)
        fault = gmlake_views_audit(&g->space);
    if (fault == 0 && (sums.reserved_bytes != g->space.reserved_bytes ||
                       sums.allocated_bytes != g->allocated_bytes))
        fault = 6;
    if (fault == 0)
        return stress_pytorch_ops.audit(a, error, error_capacity);
    (void)snprintf(error, error_capacity, "gmlake: invariant %d does not hold", fault);
    return fault;
}

const stress_allocator_ops_t stress_gmlake_ops = {
    .name = "gmlake",
    .summary = "GMLake: PyTorch's pools, large free blocks stitched at new addresses",
    .create = gmlake_create,
    .destroy = gmlake_destroy,
    .alloc = gmlake_alloc,
    .free = gmlake_free,
    .figures = gmlake_figures,
    .peaks_reset = gmlake_peaks_reset,
    .largest_free = gmlake_largest_free,
    .largest_obtainable = gmlake_largest_obtainable,
    .audit = gmlake_audit,
};
