// SPDX-License-Identifier: Apache-2.0
// The obvious design over virtual memory, to compare with: best fit over free ranges of 512-byte
// granularity, backed by handles of one page each; on a miss it takes the lowest gap of addresses
// that is large enough, creates pages while it may, and steals any wholly free page for the rest.
//
// Structures are naive_space.c; this file is the order in which things are tried. A page moves only
// after the stream that freed it was waited for. Growth follows berm's own rule, so that the two
// can be compared: while reserved + new <= (1 + headroom) x max(live, its peak), then steal, then
// grow beyond. It has no record_stream: the harness waits for other streams before it frees.
// Options: "victims:smallest" (the default; free ranges with the fewest whole pages first) or
// "victims:largest".
// Bounds: a hit O(log n); a miss walks gaps and victims.
// Invariants: those of naive_space.c, and 5. figures equal the sums over nodes.
// Locks: none; one thread. May fail: out of memory, out of addresses; nothing is then changed but
// where free pages are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/naive_space.h"

enum {
    BLOCK_BYTES_MIN = 512,
    HEADROOM_DEFAULT_PCT = 2,
};

struct stress_allocator {
    naive_space_t space;
    berm_cu_mem_prop_t prop;
    double headroom;
    uint64_t limit_bytes, requested_peak_bytes, live_blocks;
    bool takes_largest;
    addr_map_t live;
    stress_figures_t figures;
    berm_cu_mem_handle_t *taken; // handles secured by the miss in progress
    size_t taken_count, taken_capacity;
    void **waited; // streams waited for by the miss in progress
    size_t waited_count, waited_capacity;
};

// --- life ----------------------------------------------------------------------------------------

static bool naive_conf(stress_allocator_t *a, const char *conf) {
    a->takes_largest = strcmp(conf, "victims:largest") == 0;
    return a->takes_largest || *conf == '\0' || strcmp(conf, "victims:smallest") == 0;
}

static const char *naive_open(stress_allocator_t *a, const stress_allocator_options_t *options) {
    if (!naive_conf(a, options->conf))
        return "the only option is victims:smallest or victims:largest";
    a->headroom =
        (options->headroom_pct < 0 ? HEADROOM_DEFAULT_PCT : options->headroom_pct) / 100.0;
    a->limit_bytes = options->limit_bytes;
    a->prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    a->prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    a->prop.location.id = options->device;
    size_t page_bytes = 0, free_bytes = 0, total_bytes = 0;
    if (stress_driver()->get_granularity(&page_bytes, &a->prop, BERM_CU_MEM_GRANULARITY_MINIMUM) !=
            BERM_CU_SUCCESS ||
        !berm__is_pow2(page_bytes))
        return "the device has no virtual memory management";
    if (stress_driver()->mem_get_info(&free_bytes, &total_bytes) != BERM_CU_SUCCESS)
        return "cuMemGetInfo failed";
    if (!naive_space_create(&a->space, page_bytes, 4 * (uint64_t)total_bytes))
        return "no addresses or no memory";
    return NULL;
}

static stress_allocator_t *naive_create(const stress_allocator_options_t *options, char *error,
                                        size_t error_capacity) {
    stress_allocator_t *a = calloc(1, sizeof *a);
    const char *fault = a == NULL ? "no memory" : naive_open(a, options);
    if (fault != NULL) {
        (void)snprintf(error, error_capacity, "naive: %s", fault);
        free(a);
        return NULL;
    }
    return a;
}

// --- pages ---------------------------------------------------------------------------------------

static bool naive_wait(stress_allocator_t *a, void *stream) {
    for (size_t i = 0; i < a->waited_count; i++)
        if (a->waited[i] == stream)
            return true;
    if (a->waited_count == a->waited_capacity) {
        size_t capacity = a->waited_capacity == 0 ? 8 : a->waited_capacity * 2;
        void **waited = realloc(a->waited, capacity * sizeof *waited);
        if (waited == NULL)
            return false;
        a->waited = waited;
        a->waited_capacity = capacity;
    }
    a->figures.host_waits++;
    if (stress_driver()->stream_synchronize(stream) != BERM_CU_SUCCESS)
        return false;
    a->waited[a->waited_count++] = stream;
    return true;
}

static void naive_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    a->waited_count = 0;
    for (const naive_node_t *node = a->space.first; node != NULL; node = node->next)
        if (node->state == NAIVE_FREE || node->state == NAIVE_LIVE)
            (void)naive_wait(a, node->stream);
    naive_space_destroy(&a->space);
    addr_map_destroy(&a->live);
    free(a->taken);
    free(a->waited);
    free(a);
}

// Creates pages until `count` are taken or creation is refused by limit or device.
static bool naive_pages_create(stress_allocator_t *a, size_t count, uint64_t limit_bytes) {
    uint64_t page_bytes = a->space.page_bytes;
    while (a->taken_count < count && a->figures.reserved_bytes + page_bytes <= limit_bytes) {
        berm_cu_result_t result =
            stress_driver()->mem_create(&a->taken[a->taken_count], page_bytes, &a->prop, 0);
        if (result == BERM_CU_OUT_OF_MEMORY)
            return true;
        if (result != BERM_CU_SUCCESS)
            return false;
        a->taken_count++;
        a->figures.reserved_bytes += page_bytes;
    }
    return true;
}

// Takes up to `count` whole pages out of one free range, from its low end.
static bool naive_victim_take(stress_allocator_t *a, naive_node_t *victim, uint64_t count) {
    naive_space_t *space = &a->space;
    if (!naive_space_secure(space, 2) || !naive_wait(a, victim->stream))
        return false;
    uint64_t start = berm__align_up(victim->addr, space->page_bytes);
    uint64_t bytes = count * space->page_bytes;
    if (stress_driver()->mem_unmap(start, bytes) != BERM_CU_SUCCESS)
        return false;
    for (uint64_t addr = start; addr < start + bytes; addr += space->page_bytes)
        a->taken[a->taken_count++] = *naive_space_handle(space, addr);
    a->figures.moved_bytes += bytes;
    if (start > victim->addr)
        victim = naive_node_split(space, victim, start - victim->addr);
    if (victim->size_bytes > bytes)
        (void)naive_node_split(space, victim, bytes);
    naive_node_set_state(space, victim, NAIVE_UNMAPPED);
    (void)naive_node_join(space, victim);
    return true;
}

static bool naive_pages_steal(stress_allocator_t *a, size_t count) {
    ordered_set_t *victims = &a->space.victims;
    while (a->taken_count < count && victims->count > 0) {
        ordered_node_t *at =
            a->takes_largest ? ordered_set_last(victims) : ordered_set_first(victims);
        naive_node_t *victim = BERM_CONTAINER_OF(at, naive_node_t, whole);
        uint64_t pages = berm__min_u64(at->key.first, count - a->taken_count);
        if (!naive_victim_take(a, victim, pages))
            return false;
    }
    return true;
}

static void naive_pages_give_back(stress_allocator_t *a) {
    while (a->taken_count > 0) {
        (void)stress_driver()->mem_release(a->taken[--a->taken_count]);
        a->figures.reserved_bytes -= a->space.page_bytes;
    }
}

// Secures `count` pages in a->taken: create under the soft cap, steal, create beyond it.
static stress_result_t naive_pages_take(stress_allocator_t *a, size_t count,
                                        uint64_t request_bytes) {
    a->taken_count = a->waited_count = 0;
    if (count > a->taken_capacity) {
        berm_cu_mem_handle_t *taken = realloc(a->taken, count * sizeof *taken);
        if (taken == NULL)
            return STRESS_ERROR;
        a->taken = taken;
        a->taken_capacity = count;
    }
    uint64_t live_bytes =
        berm__max_u64(a->figures.requested_bytes + request_bytes, a->requested_peak_bytes);
    double cap = (1.0 + a->headroom) * (double)live_bytes;
    uint64_t soft_bytes =
        cap >= (double)a->limit_bytes ? a->limit_bytes : (uint64_t)cap; // never beyond the limit
    bool is_good = naive_pages_create(a, count, soft_bytes) && naive_pages_steal(a, count) &&
                   naive_pages_create(a, count, a->limit_bytes);
    if (is_good && a->taken_count == count)
        return STRESS_OK;
    naive_pages_give_back(a);
    return is_good ? STRESS_OUT_OF_MEMORY : STRESS_ERROR;
}

// Maps the taken pages over a MAPPING node, which becomes free memory of `stream`.
static bool naive_pages_map(stress_allocator_t *a, naive_node_t *target, void *stream) {
    naive_space_t *space = &a->space;
    const berm_cu_mem_access_t access = {a->prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    size_t mapped = 0;
    bool is_good = true;
    while (is_good && mapped < a->taken_count) {
        uint64_t addr = target->addr + mapped * space->page_bytes;
        is_good = stress_driver()->mem_map(addr, space->page_bytes, 0, a->taken[mapped], 0) ==
                  BERM_CU_SUCCESS;
        if (is_good)
            *naive_space_handle(space, addr) = a->taken[mapped++];
    }
    is_good = is_good && stress_driver()->set_access(target->addr, target->size_bytes, &access,
                                                     1) == BERM_CU_SUCCESS;
    if (!is_good) {
        if (mapped > 0)
            (void)stress_driver()->mem_unmap(target->addr, mapped * space->page_bytes);
        naive_pages_give_back(a);
        return false;
    }
    a->taken_count = 0;
    target->stream = stream;
    naive_node_set_state(space, target, NAIVE_FREE);
    return true;
}

// --- where a miss goes ---------------------------------------------------------------------------

typedef struct naive_place {
    naive_node_t *gap;
    uint64_t map_bytes; // from the gap's start
} naive_place_t;

static bool naive_is_free_of(const naive_node_t *node, const void *stream) {
    return node != NULL && node->state == NAIVE_FREE && node->stream == stream;
}

// The pages to map if the request starts in the free range before the gap, or at the gap; 0 if it
// does not fit there.
static uint64_t naive_gap_need(const stress_allocator_t *a, const naive_node_t *gap,
                               uint64_t size_bytes, const void *stream) {
    uint64_t left_bytes = naive_is_free_of(gap->prev, stream) ? gap->prev->size_bytes : 0;
    uint64_t beyond = size_bytes - left_bytes; // best fit failed, so left_bytes < size_bytes
    if (beyond <= gap->size_bytes)
        return berm__align_up(beyond, a->space.page_bytes);
    bool fits_right =
        naive_is_free_of(gap->next, stream) && beyond - gap->size_bytes <= gap->next->size_bytes;
    return fits_right ? gap->size_bytes : 0;
}

// The lowest gap, or the one that needs the fewest pages.
static naive_place_t naive_place_find(const stress_allocator_t *a, uint64_t size_bytes,
                                      const void *stream, bool wants_fewest) {
    naive_place_t best = {0};
    for (ordered_node_t *at = ordered_set_first(&a->space.gaps); at != NULL;
         at = ordered_node_next(at)) {
        naive_node_t *gap = BERM_CONTAINER_OF(at, naive_node_t, fit);
        uint64_t need_bytes = naive_gap_need(a, gap, size_bytes, stream);
        if (need_bytes == 0 || (best.gap != NULL && need_bytes >= best.map_bytes))
            continue;
        best = (naive_place_t){gap, need_bytes};
        if (!wants_fewest)
            break;
    }
    return best;
}

// A free range beside the gap serves the request itself, so its pages are no victims: it is taken
// out of the sets while pages are secured.
static stress_result_t naive_place_fill(stress_allocator_t *a, naive_place_t place,
                                        uint64_t size_bytes, void *stream) {
    naive_space_t *space = &a->space;
    if (!naive_space_secure(space, 4))
        return STRESS_ERROR;
    naive_node_t *gap = place.gap;
    if (place.map_bytes < gap->size_bytes)
        (void)naive_node_split(space, gap, place.map_bytes);
    naive_node_set_state(space, gap, NAIVE_MAPPING);
    naive_node_t *left = naive_is_free_of(gap->prev, stream) ? gap->prev : NULL;
    naive_node_t *right = naive_is_free_of(gap->next, stream) ? gap->next : NULL;
    if (left != NULL)
        naive_node_set_state(space, left, NAIVE_LIVE);
    if (right != NULL)
        naive_node_set_state(space, right, NAIVE_LIVE);
    stress_result_t result = naive_pages_take(a, place.map_bytes / space->page_bytes, size_bytes);
    if (result == STRESS_OK && !naive_pages_map(a, gap, stream))
        result = STRESS_ERROR;
    if (result != STRESS_OK)
        naive_node_set_state(space, gap, NAIVE_UNMAPPED);
    if (left != NULL)
        naive_node_set_state(space, left, NAIVE_FREE);
    if (right != NULL)
        naive_node_set_state(space, right, NAIVE_FREE);
    (void)naive_node_join(space, gap);
    if (a->figures.reserved_bytes > a->figures.reserved_peak_bytes)
        a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    return result;
}

static stress_result_t naive_miss(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    if (size_bytes > a->space.size_bytes)
        return STRESS_OUT_OF_MEMORY;
    for (int wants_fewest = 0; wants_fewest < 2; wants_fewest++) {
        naive_place_t place = naive_place_find(a, size_bytes, stream, wants_fewest == 1);
        if (place.gap == NULL)
            return STRESS_OUT_OF_MEMORY;
        stress_result_t result = naive_place_fill(a, place, size_bytes, stream);
        if (result != STRESS_OUT_OF_MEMORY)
            return result;
    }
    return STRESS_OUT_OF_MEMORY;
}

// --- the data path -------------------------------------------------------------------------------

static stress_result_t naive_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                   uint64_t *addr) {
    if (request_bytes == 0 || request_bytes > UINT64_C(1) << 62)
        return STRESS_OUT_OF_MEMORY;
    uint64_t size_bytes = berm__align_up(request_bytes, BLOCK_BYTES_MIN);
    naive_node_t *node = naive_space_best_fit(&a->space, size_bytes, stream);
    if (node == NULL) {
        stress_result_t result = naive_miss(a, size_bytes, stream);
        if (result != STRESS_OK)
            return result;
        node = naive_space_best_fit(&a->space, size_bytes, stream);
    }
    if (node == NULL || !naive_space_secure(&a->space, 1) ||
        !addr_map_insert(&a->live, node->addr, node))
        return STRESS_ERROR;
    if (node->size_bytes > size_bytes)
        (void)naive_node_split(&a->space, node, size_bytes);
    naive_node_set_state(&a->space, node, NAIVE_LIVE);
    node->requested_bytes = request_bytes;
    stress_figures_t *f = &a->figures;
    f->requested_bytes += request_bytes;
    f->allocated_bytes += size_bytes;
    f->active_bytes += size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    a->requested_peak_bytes = berm__max_u64(a->requested_peak_bytes, f->requested_bytes);
    a->live_blocks++;
    *addr = node->addr;
    return STRESS_OK;
}

static stress_result_t naive_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                  void *stream) {
    (void)size_bytes;
    (void)stream;
    naive_node_t *node = addr_map_remove(&a->live, addr);
    if (node == NULL)
        return STRESS_ERROR;
    a->figures.requested_bytes -= node->requested_bytes;
    a->figures.allocated_bytes -= node->size_bytes;
    a->figures.active_bytes -= node->size_bytes;
    a->live_blocks--;
    naive_node_set_state(&a->space, node, NAIVE_FREE);
    (void)naive_node_join(&a->space, node);
    return STRESS_OK;
}

// --- figures -------------------------------------------------------------------------------------

static void naive_figures(stress_allocator_t *a, stress_figures_t *figures) {
    *figures = a->figures;
}

static void naive_peaks_reset(stress_allocator_t *a) {
    a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

static uint64_t naive_largest_free(stress_allocator_t *a, void *stream) {
    const naive_node_t *node = naive_space_largest(&a->space, stream);
    return node == NULL ? 0 : node->size_bytes;
}

static uint64_t naive_largest_obtainable(stress_allocator_t *a, void *stream) {
    uint64_t largest = naive_largest_free(a, stream);
    size_t free_bytes = 0, total_bytes = 0;
    (void)stress_driver()->mem_get_info(&free_bytes, &total_bytes);
    uint64_t growth = berm__min_u64(free_bytes, a->limit_bytes - a->figures.reserved_bytes);
    uint64_t pages = a->space.whole_pages + growth / a->space.page_bytes;
    return berm__max_u64(largest, pages * a->space.page_bytes);
}

static int naive_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    stress_figures_t sums;
    int fault = naive_space_audit(&a->space, &sums);
    const stress_figures_t *f = &a->figures;
    if (fault == 0 &&
        (sums.allocated_bytes != f->allocated_bytes || sums.requested_bytes != f->requested_bytes ||
         sums.reserved_bytes != f->reserved_bytes))
        fault = 5;
    if (fault != 0)
        (void)snprintf(error, error_capacity, "naive: invariant %d does not hold", fault);
    return fault;
}

const stress_allocator_ops_t stress_naive_ops = {
    .name = "naive",
    .summary = "best fit over virtual memory; on a miss steals any wholly free page",
    .takes_headroom = true,
    .create = naive_create,
    .destroy = naive_destroy,
    .alloc = naive_alloc,
    .free = naive_free,
    .figures = naive_figures,
    .peaks_reset = naive_peaks_reset,
    .largest_free = naive_largest_free,
    .largest_obtainable = naive_largest_obtainable,
    .audit = naive_audit,
};
