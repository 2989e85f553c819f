// SPDX-License-Identifier: Apache-2.0
// jemalloc's own policy over device addresses, to compare with: an arena for each stream whose
// extents are reserved and committed through the driver. docs/adr/0003-jemalloc.md says what it
// shows. Only where the process carries jemalloc: the references are weak and never loaded late.
//
// The arena is created plain, so that its metadata is on the host, and gets its hooks afterwards;
// then jemalloc never touches what it hands out, as nothing is zeroed, moved or filled. No thread
// cache (it would mix arenas), dirty extents are kept until the device is full (decay -1, oversize
// threshold 0), then purged, and the request is tried once more. With the option "purge:early" the
// two are left as jemalloc has them.
// The hooks are jemalloc_extents.c. It has no record_stream: the harness waits before the free.
// Bounds: as jemalloc. Invariants (jemalloc_audit): those of jemalloc_extents.c, and 3. figures
// equal the sums over granules. Locks: none of its own; one thread. May fail: out of memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/defs.h"
#include "stress/baselines/addr_map.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/jemalloc_extents.h"

// jemalloc's stable interface, declared here since its header is no build dependency.
extern int mallctl(const char *name, void *old, size_t *old_length, void *new_, size_t new_length)
    __attribute__((weak));
extern void *mallocx(size_t size_bytes, int flags) __attribute__((weak));
extern void dallocx(void *memory, int flags) __attribute__((weak));
extern size_t sallocx(const void *memory, int flags) __attribute__((weak));

#define FLAG_ALIGN_512  9 // log2
#define FLAG_NO_TCACHE  (1 << 8)
#define FLAG_ARENA(i)   ((int)((i) + 1) << 20)
#define ARENA_INDEX_MAX 2046u // what the flags have room for
#define REQUEST_LIMIT   (UINT64_C(1) << 60)

enum {
    BLOCK_BYTES_MIN = 512,
    ARENAS_MAX = 64, // streams
};

typedef struct jemalloc_arena {
    jemalloc_extents_t extents;
    unsigned index;
} jemalloc_arena_t;

typedef struct jemalloc_block {
    uint64_t addr, requested_bytes, size_bytes;
    const jemalloc_arena_t *arena;
} jemalloc_block_t;

struct stress_allocator {
    jemalloc_device_t device;
    bool purges_early; // with jemalloc's own decay and threshold
    jemalloc_arena_t *arenas[ARENAS_MAX];
    size_t arena_count;
    uint64_t live_blocks;
    addr_map_t live;
    stress_figures_t figures;
};

// --- arenas --------------------------------------------------------------------------------------

static bool control_write(unsigned arena, const char *leaf, void *value, size_t length) {
    char name[64];
    (void)snprintf(name, sizeof name, "arena.%u.%s", arena, leaf);
    return mallctl(name, NULL, NULL, value, length) == 0;
}

static void arena_destroy(jemalloc_arena_t *arena) {
    (void)control_write(arena->index, "destroy", NULL, 0);
    jemalloc_extents_destroy(&arena->extents);
    free(arena);
}

static bool arena_open(jemalloc_arena_t *arena, bool purges_early) {
    size_t length = sizeof arena->index;
    if (mallctl("arenas.create", &arena->index, &length, NULL, 0) != 0)
        return false;
    ssize_t keep = -1, at_once = 0;
    size_t never = 0;
    jemalloc_hooks_t *hooks = &arena->extents.hooks;
    if (arena->index <= ARENA_INDEX_MAX &&
        control_write(arena->index, "extent_hooks", &hooks, sizeof hooks) &&
        (purges_early || (control_write(arena->index, "dirty_decay_ms", &keep, sizeof keep) &&
                          control_write(arena->index, "muzzy_decay_ms", &at_once, sizeof at_once) &&
                          control_write(arena->index, "oversize_threshold", &never, sizeof never))))
        return true;
    (void)control_write(arena->index, "destroy", NULL, 0);
    return false;
}

// The stream's arena, made at its first request; NULL when there can be no other.
static jemalloc_arena_t *arena_of(stress_allocator_t *a, void *stream) {
    for (size_t i = 0; i < a->arena_count; i++)
        if (a->arenas[i]->extents.stream == stream)
            return a->arenas[i];
    jemalloc_arena_t *arena = a->arena_count < ARENAS_MAX ? calloc(1, sizeof *arena) : NULL;
    if (arena == NULL)
        return NULL;
    jemalloc_extents_init(&arena->extents, &a->device, stream);
    if (!arena_open(arena, a->purges_early)) {
        free(arena);
        return NULL;
    }
    a->arenas[a->arena_count++] = arena;
    return arena;
}

// --- life ----------------------------------------------------------------------------------------

static const char *jemalloc_open(stress_allocator_t *a, const stress_allocator_options_t *options) {
    a->purges_early = strcmp(options->conf, "purge:early") == 0;
    if (!a->purges_early && options->conf[0] != '\0' && strcmp(options->conf, "purge:full") != 0)
        return "the only option is purge:full or purge:early";
    if (mallctl == NULL || mallocx == NULL || dallocx == NULL || sallocx == NULL)
        return "this process does not carry jemalloc";
    bool is_filling = false;
    const char *junk = "";
    size_t page_bytes = 0, granule_bytes = 0, length = sizeof page_bytes;
    if (mallctl("arenas.page", &page_bytes, &length, NULL, 0) != 0)
        return "jemalloc does not say how large its pages are";
    length = sizeof is_filling;
    if (mallctl("opt.zero", &is_filling, &length, NULL, 0) == 0 && is_filling)
        return "jemalloc fills memory (opt.zero), which it cannot on a device";
    length = sizeof junk;
    if (mallctl("opt.junk", &junk, &length, NULL, 0) == 0 && junk[0] != 'f')
        return "jemalloc fills memory (opt.junk), which it cannot on a device";
    a->device.prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    a->device.prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    a->device.prop.location.id = options->device;
    if (stress_driver()->get_granularity(&granule_bytes, &a->device.prop,
                                         BERM_CU_MEM_GRANULARITY_MINIMUM) != BERM_CU_SUCCESS ||
        !berm__is_pow2(granule_bytes) || granule_bytes < page_bytes)
        return "the device has no virtual memory management";
    a->device.granule_bytes = granule_bytes;
    a->device.page_bytes = page_bytes;
    a->device.limit_bytes = options->limit_bytes;
    return NULL;
}

static stress_allocator_t *jemalloc_create(const stress_allocator_options_t *options, char *error,
                                           size_t error_capacity) {
    stress_allocator_t *a = calloc(1, sizeof *a);
    const char *fault = a == NULL ? "no memory" : jemalloc_open(a, options);
    if (fault != NULL) {
        (void)snprintf(error, error_capacity, "jemalloc: %s", fault);
        free(a);
        return NULL;
    }
    addr_map_init(&a->live);
    return a;
}

static void jemalloc_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    size_t position = 0;
    for (jemalloc_block_t *block; (block = addr_map_next(&a->live, &position)) != NULL;) {
        dallocx((void *)(uintptr_t)block->addr, FLAG_NO_TCACHE);
        free(block);
    }
    addr_map_destroy(&a->live);
    for (size_t i = 0; i < a->arena_count; i++)
        arena_destroy(a->arenas[i]);
    free(a);
}

// --- the data path -------------------------------------------------------------------------------

static void jemalloc_purge(stress_allocator_t *a) {
    for (size_t i = 0; i < a->arena_count; i++)
        (void)control_write(a->arenas[i]->index, "purge", NULL, 0);
}

static stress_result_t jemalloc_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                      uint64_t *addr) {
    if (request_bytes == 0 || request_bytes >= REQUEST_LIMIT)
        return STRESS_OUT_OF_MEMORY;
    jemalloc_arena_t *arena = arena_of(a, stream);
    jemalloc_block_t *block = arena == NULL ? NULL : calloc(1, sizeof *block);
    if (block == NULL)
        return STRESS_ERROR;
    a->device.is_failing = false;
    int flags = FLAG_ARENA(arena->index) | FLAG_NO_TCACHE | FLAG_ALIGN_512;
    uint64_t wanted_bytes = berm__align_up(request_bytes, BLOCK_BYTES_MIN);
    void *memory = mallocx(wanted_bytes, flags);
    if (memory == NULL && !a->device.is_failing) {
        jemalloc_purge(a);
        memory = mallocx(wanted_bytes, flags);
    }
    block->addr = (uint64_t)(uintptr_t)memory;
    if (memory == NULL || !addr_map_insert(&a->live, block->addr, block)) {
        if (memory != NULL)
            dallocx(memory, FLAG_NO_TCACHE);
        free(block);
        return memory == NULL && !a->device.is_failing ? STRESS_OUT_OF_MEMORY : STRESS_ERROR;
    }
    block->requested_bytes = request_bytes;
    block->size_bytes = sallocx(memory, 0);
    block->arena = arena;
    stress_figures_t *f = &a->figures;
    f->requested_bytes += request_bytes;
    f->allocated_bytes += block->size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    a->live_blocks++;
    *addr = block->addr;
    return STRESS_OK;
}

static stress_result_t jemalloc_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                     void *stream) {
    (void)size_bytes;
    (void)stream;
    jemalloc_block_t *block = addr_map_remove(&a->live, addr);
    if (block == NULL)
        return STRESS_ERROR;
    a->figures.requested_bytes -= block->requested_bytes;
    a->figures.allocated_bytes -= block->size_bytes;
    a->live_blocks--;
    dallocx((void *)(uintptr_t)addr, FLAG_NO_TCACHE);
    free(block);
    return STRESS_OK;
}

// --- figures -------------------------------------------------------------------------------------

static void jemalloc_figures(stress_allocator_t *a, stress_figures_t *figures) {
    *figures = a->figures;
    figures->active_bytes = figures->allocated_bytes;
    figures->reserved_bytes = a->device.reserved_bytes;
    figures->reserved_peak_bytes = a->device.reserved_peak_bytes;
    figures->host_waits = a->device.host_waits;
}

static void jemalloc_peaks_reset(stress_allocator_t *a) {
    a->device.reserved_peak_bytes = a->device.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

// jemalloc has no question for it; asking by trying would change what is asked about.
static uint64_t jemalloc_largest_free(stress_allocator_t *a, void *stream) {
    (void)a;
    (void)stream;
    return 0;
}

static int jemalloc_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    const char *fault = NULL;
    uint64_t reserved_bytes = 0;
    for (size_t i = 0; i < a->arena_count && fault == NULL; i++)
        fault = jemalloc_extents_fault(&a->arenas[i]->extents, &reserved_bytes);
    if (fault == NULL && reserved_bytes != a->device.reserved_bytes)
        fault = "3: figures differ from the sums over granules";
    if (fault == NULL)
        return 0;
    (void)snprintf(error, error_capacity, "jemalloc: invariant %s", fault);
    return fault[0] - '0';
}

const stress_allocator_ops_t stress_jemalloc_ops = {
    .name = "jemalloc",
    .summary = "jemalloc, its extents over device addresses; where the process carries it",
    .create = jemalloc_create,
    .destroy = jemalloc_destroy,
    .alloc = jemalloc_alloc,
    .free = jemalloc_free,
    .figures = jemalloc_figures,
    .peaks_reset = jemalloc_peaks_reset,
    .largest_free = jemalloc_largest_free,
    .audit = jemalloc_audit,
};
