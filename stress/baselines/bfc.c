// SPDX-License-Identifier: Apache-2.0
// A model of TensorFlow's and XLA's BFC allocator ("best fit with coalescing"), to compare with:
// regions from cuMemAlloc whose size doubles, chunks that tile a region, 21 bins of free chunks.
//
// A request is rounded up to 256 bytes.
// Bin i holds free chunks of at least 256 << i bytes; the search starts in the request's bin and
// takes the smallest chunk that is large enough. It is split when at least as much again, or
// 128 MiB, would remain. A miss adds a region: the least power-of-two multiple of 2 MiB that holds
// the request, twice as much each time; when the device is full, nine tenths of it and so on, once;
// then every wholly free region is given back and one more is tried, as TensorFlow does by default.
// BFC knows one stream. Here a chunk remembers who used it last, and is waited for when another
// stream is to get it. It has no record_stream: the harness waits for other streams before a free.
// Option: "growth:off" takes the whole device, or limit, as one region at the first request.
// Bounds: a hit O(log n) in each of at most 21 bins.
// Invariants (bfc_audit): 1. chunks tile their region; 2. no two free neighbours; 3. bins hold the
// free chunks, each in its bin; 4. figures equal the sums over chunks. Locks: none; one thread.
// May fail: out of memory; nothing is changed then but which free regions there are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/baselines/addr_map.h"
#include "stress/baselines/baselines.h"
#include "stress/baselines/ordered_set.h"
#include "stress/device.h"

enum {
    BIN_COUNT = 21,
    BIN_BITS_MIN = 8,
    UNIT_BYTES = 256,
    STREAMS_MAX = 4096, // of one heap
};

#define REGION_MIN     BERM_MIB(2)
#define FRAGMENT_MAX   BERM_MIB(128) // more than this is split off whatever the ratio
#define REQUEST_LIMIT  (UINT64_C(1) << 60)
#define STREAM_SEVERAL ((void *)UINTPTR_MAX) // chunks of different streams were joined

typedef struct bfc_chunk {
    ordered_node_t node; // in its bin while free: (size, address)
    struct bfc_chunk *prev, *next;
    uint64_t addr, size_bytes, requested_bytes;
    void *stream; // the last user's
    bool is_live;
} bfc_chunk_t;

typedef struct bfc_region {
    struct bfc_region *next;
    uint64_t size_bytes;
    bfc_chunk_t *first; // keeps the region's address
} bfc_region_t;

struct stress_allocator {
    ordered_set_t bins[BIN_COUNT];
    bfc_region_t *regions;
    uint64_t limit_bytes; // the least of the limit and what the device had at first
    uint64_t next_region_bytes, live_blocks;
    bool has_backed_off;
    addr_map_t live;
    stress_figures_t figures;
    void *streams[STREAMS_MAX]; // seen so far
    size_t stream_count;
};

static stress_allocator_t *bfc_create(const stress_allocator_options_t *options, char *error,
                                      size_t error_capacity) {
    bool is_whole = strcmp(options->conf, "growth:off") == 0;
    size_t free_bytes = 0, total_bytes = 0;
    const char *fault = NULL;
    stress_allocator_t *a = calloc(1, sizeof *a);
    if (a == NULL)
        fault = "no memory";
    else if (!is_whole && options->conf[0] != '\0' && strcmp(options->conf, "growth:on") != 0)
        fault = "the only option is growth:on or growth:off";
    else if (stress_driver()->mem_get_info(&free_bytes, &total_bytes) != BERM_CU_SUCCESS)
        fault = "cuMemGetInfo failed";
    if (fault != NULL) {
        (void)snprintf(error, error_capacity, "bfc: %s", fault);
        free(a);
        return NULL;
    }
    for (int i = 0; i < BIN_COUNT; i++)
        ordered_set_init(&a->bins[i]);
    addr_map_init(&a->live);
    a->limit_bytes = berm__align_down(berm__min_u64(options->limit_bytes, free_bytes), UNIT_BYTES);
    a->next_region_bytes = is_whole ? a->limit_bytes : berm__min_u64(a->limit_bytes, REGION_MIN);
    return a;
}

static void bfc_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    while (a->regions != NULL) {
        bfc_region_t *region = a->regions;
        a->regions = region->next;
        (void)stress_driver()->mem_free(region->first->addr);
        for (bfc_chunk_t *chunk = region->first, *next; chunk != NULL; chunk = next) {
            next = chunk->next;
            free(chunk);
        }
        free(region);
    }
    addr_map_destroy(&a->live);
    free(a);
}

// --- bins ----------------------------------------------------------------------------------------

static unsigned bin_of(uint64_t size_bytes) {
    unsigned bin = berm__bit_highest(size_bytes) - BIN_BITS_MIN;
    return bin < BIN_COUNT ? bin : BIN_COUNT - 1;
}

static bfc_chunk_t *chunk_of(ordered_node_t *node) {
    return node == NULL ? NULL : BERM_CONTAINER_OF(node, bfc_chunk_t, node);
}

static void bin_insert(stress_allocator_t *a, bfc_chunk_t *chunk) {
    ordered_set_insert(&a->bins[bin_of(chunk->size_bytes)], &chunk->node,
                       (ordered_key_t){chunk->size_bytes, chunk->addr, 0});
}

static void bin_remove(stress_allocator_t *a, bfc_chunk_t *chunk) {
    ordered_set_remove(&a->bins[bin_of(chunk->size_bytes)], &chunk->node);
}

// The smallest chunk of the first bin that has one large enough.
static bfc_chunk_t *bin_find(const stress_allocator_t *a, uint64_t size_bytes) {
    for (unsigned i = bin_of(size_bytes); i < BIN_COUNT; i++) {
        ordered_node_t *at = ordered_set_at_least(&a->bins[i], (ordered_key_t){size_bytes, 0, 0});
        if (at != NULL)
            return chunk_of(at);
    }
    return NULL;
}

// --- streams -------------------------------------------------------------------------------------

static bool stream_note(stress_allocator_t *a, void *stream) {
    for (size_t i = 0; i < a->stream_count; i++)
        if (a->streams[i] == stream)
            return true;
    if (a->stream_count == STREAMS_MAX)
        return false;
    a->streams[a->stream_count++] = stream;
    return true;
}

// Waits until the chunk's last users have ended, unless `stream` follows them by itself.
static bool stream_take(stress_allocator_t *a, bfc_chunk_t *chunk, void *stream) {
    bool is_good = stream_note(a, stream);
    for (size_t i = 0; i < a->stream_count && is_good && chunk->stream != stream; i++) {
        if (a->streams[i] == stream ||
            (chunk->stream != STREAM_SEVERAL && chunk->stream != a->streams[i]))
            continue;
        a->figures.host_waits++;
        is_good = stress_driver()->stream_synchronize(a->streams[i]) == BERM_CU_SUCCESS;
    }
    return is_good;
}

// --- regions -------------------------------------------------------------------------------------

// One cuMemAlloc; 0 when it is refused.
static uint64_t region_memory(uint64_t size_bytes) {
    berm_cu_deviceptr_t addr = 0;
    return stress_driver()->mem_alloc(&addr, size_bytes) == BERM_CU_SUCCESS ? addr : 0;
}

static bool region_add(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes, void *stream) {
    bfc_region_t *region = calloc(1, sizeof *region);
    bfc_chunk_t *chunk = calloc(1, sizeof *chunk);
    if (region == NULL || chunk == NULL) {
        free(region);
        free(chunk);
        (void)stress_driver()->mem_free(addr);
        return false;
    }
    *chunk = (bfc_chunk_t){.addr = addr, .size_bytes = size_bytes, .stream = stream};
    *region = (bfc_region_t){.next = a->regions, .size_bytes = size_bytes, .first = chunk};
    a->regions = region;
    bin_insert(a, chunk);
    stress_figures_t *f = &a->figures;
    f->reserved_bytes += size_bytes;
    f->reserved_peak_bytes = berm__max_u64(f->reserved_peak_bytes, f->reserved_bytes);
    return true;
}

static bool region_extend(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    uint64_t available = a->limit_bytes - a->figures.reserved_bytes;
    if (size_bytes > available)
        return false;
    bool is_doubled = false;
    for (; a->next_region_bytes < size_bytes; is_doubled = true)
        a->next_region_bytes *= 2;
    uint64_t bytes = berm__min_u64(a->next_region_bytes, available);
    uint64_t addr = region_memory(bytes);
    if (addr == 0 && !a->has_backed_off) {
        a->has_backed_off = true;
        while (addr == 0) {
            bytes = berm__align_down(bytes / 10 * 9, UNIT_BYTES);
            if (bytes < size_bytes)
                break;
            addr = region_memory(bytes);
        }
    }
    if (addr == 0 || !region_add(a, addr, bytes, stream))
        return false;
    if (!is_doubled && a->next_region_bytes < REQUEST_LIMIT)
        a->next_region_bytes *= 2;
    return true;
}

static bool region_is_free(const bfc_region_t *region) {
    return !region->first->is_live && region->first->next == NULL;
}

static uint64_t regions_free_bytes(const stress_allocator_t *a) {
    uint64_t sum_bytes = 0;
    for (const bfc_region_t *region = a->regions; region != NULL; region = region->next)
        sum_bytes += region_is_free(region) ? region->size_bytes : 0;
    return sum_bytes;
}

// Gives back every wholly free region if that can help; cuMemFree waits for the device by itself.
static bool regions_release(stress_allocator_t *a, uint64_t size_bytes) {
    uint64_t free_bytes = regions_free_bytes(a);
    uint64_t available = a->limit_bytes - a->figures.reserved_bytes;
    if (free_bytes == 0 || free_bytes + available < size_bytes)
        return false;
    for (bfc_region_t **link = &a->regions; *link != NULL;) {
        bfc_region_t *region = *link;
        if (!region_is_free(region)) {
            link = &region->next;
            continue;
        }
        *link = region->next;
        bin_remove(a, region->first);
        (void)stress_driver()->mem_free(region->first->addr);
        a->figures.host_waits++;
        a->figures.reserved_bytes -= region->size_bytes;
        free(region->first);
        free(region);
    }
    return true;
}

static bfc_chunk_t *bfc_miss(stress_allocator_t *a, uint64_t size_bytes, void *stream) {
    bool is_good = region_extend(a, size_bytes, stream);
    if (!is_good)
        is_good = regions_release(a, size_bytes) && region_extend(a, size_bytes, stream);
    return is_good ? bin_find(a, size_bytes) : NULL;
}

// --- the data path -------------------------------------------------------------------------------

// Cuts what a request leaves of a chunk, in no bin, off; `rest` becomes that part.
static void chunk_split(stress_allocator_t *a, bfc_chunk_t *chunk, bfc_chunk_t *rest,
                        uint64_t size_bytes) {
    *rest = (bfc_chunk_t){.prev = chunk,
                          .next = chunk->next,
                          .addr = chunk->addr + size_bytes,
                          .size_bytes = chunk->size_bytes - size_bytes,
                          .stream = chunk->stream};
    if (rest->next != NULL)
        rest->next->prev = rest;
    chunk->next = rest;
    chunk->size_bytes = size_bytes;
    bin_insert(a, rest);
}

static bool chunk_must_split(const bfc_chunk_t *chunk, uint64_t size_bytes) {
    return chunk->size_bytes >= 2 * size_bytes || chunk->size_bytes - size_bytes >= FRAGMENT_MAX;
}

static stress_result_t bfc_alloc(stress_allocator_t *a, uint64_t request_bytes, void *stream,
                                 uint64_t *addr) {
    if (request_bytes == 0 || request_bytes >= REQUEST_LIMIT)
        return STRESS_OUT_OF_MEMORY;
    uint64_t size_bytes = berm__align_up(request_bytes, UNIT_BYTES);
    bfc_chunk_t *chunk = bin_find(a, size_bytes);
    if (chunk == NULL)
        chunk = bfc_miss(a, size_bytes, stream);
    if (chunk == NULL)
        return STRESS_OUT_OF_MEMORY;
    bfc_chunk_t *rest = calloc(1, sizeof *rest);
    if (rest == NULL || !stream_take(a, chunk, stream) ||
        !addr_map_insert(&a->live, chunk->addr, chunk)) {
        free(rest);
        return STRESS_ERROR;
    }
    bin_remove(a, chunk);
    if (chunk_must_split(chunk, size_bytes))
        chunk_split(a, chunk, rest, size_bytes);
    else
        free(rest);
    chunk->is_live = true;
    chunk->stream = stream;
    chunk->requested_bytes = request_bytes;
    stress_figures_t *f = &a->figures;
    f->requested_bytes += request_bytes;
    f->allocated_bytes += chunk->size_bytes;
    f->active_bytes += chunk->size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    a->live_blocks++;
    *addr = chunk->addr;
    return STRESS_OK;
}

// Takes the free chunk above into `chunk`; neither is in a bin afterwards.
static void chunk_join(stress_allocator_t *a, bfc_chunk_t *chunk, bfc_chunk_t *above) {
    if (above->node.is_member)
        bin_remove(a, above);
    if (chunk->node.is_member)
        bin_remove(a, chunk);
    chunk->size_bytes += above->size_bytes;
    chunk->next = above->next;
    if (chunk->next != NULL)
        chunk->next->prev = chunk;
    if (chunk->stream != above->stream)
        chunk->stream = STREAM_SEVERAL;
    free(above);
}

static stress_result_t bfc_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                void *stream) {
    (void)size_bytes;
    (void)stream;
    bfc_chunk_t *chunk = addr_map_remove(&a->live, addr);
    if (chunk == NULL)
        return STRESS_ERROR;
    chunk->is_live = false;
    a->figures.requested_bytes -= chunk->requested_bytes;
    a->figures.allocated_bytes -= chunk->size_bytes;
    a->figures.active_bytes -= chunk->size_bytes;
    a->live_blocks--;
    if (chunk->next != NULL && !chunk->next->is_live)
        chunk_join(a, chunk, chunk->next);
    if (chunk->prev != NULL && !chunk->prev->is_live) {
        bfc_chunk_t *prev = chunk->prev;
        chunk_join(a, prev, chunk);
        chunk = prev;
    }
    bin_insert(a, chunk);
    return STRESS_OK;
}

// --- figures -------------------------------------------------------------------------------------

static void bfc_figures(stress_allocator_t *a, stress_figures_t *figures) {
    *figures = a->figures;
}

static void bfc_peaks_reset(stress_allocator_t *a) {
    a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

static uint64_t bfc_largest_free(stress_allocator_t *a, void *stream) {
    (void)stream;
    for (int i = BIN_COUNT - 1; i >= 0; i--) {
        const bfc_chunk_t *chunk = chunk_of(ordered_set_last(&a->bins[i]));
        if (chunk != NULL)
            return chunk->size_bytes;
    }
    return 0;
}

static uint64_t bfc_largest_obtainable(stress_allocator_t *a, void *stream) {
    uint64_t room = a->limit_bytes - a->figures.reserved_bytes + regions_free_bytes(a);
    return berm__max_u64(room, bfc_largest_free(a, stream));
}

static const char *chunk_fault(const stress_allocator_t *a, const bfc_chunk_t *chunk) {
    const bfc_chunk_t *next = chunk->next;
    if (next != NULL && (next->prev != chunk || chunk->addr + chunk->size_bytes != next->addr))
        return "1: chunks do not tile their region";
    if (next != NULL && !chunk->is_live && !next->is_live)
        return "2: two free neighbours were not joined";
    if (chunk->node.is_member == chunk->is_live ||
        (chunk->is_live && addr_map_find(&a->live, chunk->addr) != chunk))
        return "3: a bin and a chunk disagree";
    return NULL;
}

static int bfc_audit(stress_allocator_t *a, char *error, size_t error_capacity) {
    const char *fault = NULL;
    stress_figures_t sum = {0};
    size_t free_count = 0, in_bins = 0;
    for (const bfc_region_t *region = a->regions; region != NULL; region = region->next) {
        uint64_t region_bytes = 0;
        for (const bfc_chunk_t *chunk = region->first; chunk != NULL; chunk = chunk->next) {
            fault = fault == NULL ? chunk_fault(a, chunk) : fault;
            region_bytes += chunk->size_bytes;
            free_count += !chunk->is_live;
            sum.allocated_bytes += chunk->is_live ? chunk->size_bytes : 0;
            sum.requested_bytes += chunk->is_live ? chunk->requested_bytes : 0;
        }
        if (fault == NULL && region_bytes != region->size_bytes)
            fault = "1: chunks do not tile their region";
        sum.reserved_bytes += region_bytes;
    }
    for (unsigned i = 0; i < BIN_COUNT && fault == NULL; i++) {
        in_bins += a->bins[i].count;
        const bfc_chunk_t *first = chunk_of(ordered_set_first(&a->bins[i]));
        if (!ordered_set_is_valid(&a->bins[i]) ||
            (first != NULL && (bin_of(first->size_bytes) != i ||
                               bin_of(chunk_of(ordered_set_last(&a->bins[i]))->size_bytes) != i)))
            fault = "3: a bin is not in order";
    }
    if (fault == NULL && in_bins != free_count)
        fault = "3: a free chunk is in no bin";
    if (fault == NULL && (sum.reserved_bytes != a->figures.reserved_bytes ||
                          sum.allocated_bytes != a->figures.allocated_bytes ||
                          sum.requested_bytes != a->figures.requested_bytes))
        fault = "4: figures differ from the sums over chunks";
    if (fault == NULL)
        return 0;
    (void)snprintf(error, error_capacity, "bfc: invariant %s", fault);
    return fault[0] - '0';
}

const stress_allocator_ops_t stress_bfc_ops = {
    .name = "bfc",
    .summary = "the BFC allocator of TensorFlow and XLA: binned best fit in doubling regions",
    .alignment_bytes = UNIT_BYTES,
    .create = bfc_create,
    .destroy = bfc_destroy,
    .alloc = bfc_alloc,
    .free = bfc_free,
    .figures = bfc_figures,
    .peaks_reset = bfc_peaks_reset,
    .largest_free = bfc_largest_free,
    .largest_obtainable = bfc_largest_obtainable,
    .audit = bfc_audit,
};
