// SPDX-License-Identifier: Apache-2.0
// Any library with an allocation pair, as one of the allocators of the harness:
//   void *ALLOC(size_t size, int device, CUstream stream)
//   void FREE(void *ptr, size_t size, int device, CUstream stream)
// which is what PyTorch's CUDAPluggableAllocator takes. "lib:FILE" looks for `my_malloc` and
// `my_free`, the names of PyTorch's own example; "lib:FILE:ALLOC:FREE" names others.
//
// Reserved is what the driver has given out since the allocator was created: on the simulated
// device its ledger, on a real one cuMemGetInfo. Only live bytes are known besides; the largest
// free block is not, and is reported as 0. There is no record_stream: the harness waits.
// Layout: a slot for each name, with a `create` of its own, since ops carry no name.
// Locks: none for the slots; the pair is the library's own business, and the account here is kept
// by one thread. May fail: file or symbol absent, NULL from ALLOC (out of memory).
#include "stress/baselines/lib.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "stress/baselines/addr_map.h"
#include "stress/device.h"

typedef void *(*lib_alloc_fn)(size_t size_bytes, int device, void *stream);
typedef void (*lib_free_fn)(void *memory, size_t size_bytes, int device, void *stream);

typedef struct lib_slot {
    stress_allocator_ops_t ops;
    char name[PATH_MAX], path[PATH_MAX], alloc_name[128], free_name[128];
} lib_slot_t;

typedef struct lib_block {
    uint64_t addr, size_bytes;
    void *stream;
} lib_block_t;

struct stress_allocator {
    void *library;
    lib_alloc_fn alloc;
    lib_free_fn free;
    int device;
    uint64_t live_blocks, limit_bytes;
    uint64_t base_bytes;      // in use on the device before the library was
    uint64_t ledger_peak_now; // the ledger's own peak when last read
    addr_map_t live;
    stress_figures_t figures;
};

static lib_slot_t slots[STRESS_LIB_MAX];
static size_t slot_count;

// --- what the device says ------------------------------------------------------------------------

static uint64_t lib_used_bytes(uint64_t *peak_bytes) {
    const stress_simcuda_t *sim = stress_simcuda();
    *peak_bytes = 0;
    if (sim != NULL) {
        simcuda_ledger_t ledger;
        sim->ledger_read(-1, &ledger);
        *peak_bytes = ledger.used_bytes_peak;
        return ledger.used_bytes;
    }
    size_t free_bytes = 0, total_bytes = 0;
    (void)stress_driver_raw()->mem_get_info(&free_bytes, &total_bytes);
    return total_bytes - free_bytes;
}

static void lib_reserved_read(stress_allocator_t *a) {
    stress_figures_t *f = &a->figures;
    uint64_t peak_bytes, used_bytes = lib_used_bytes(&peak_bytes);
    f->reserved_bytes = used_bytes > a->base_bytes ? used_bytes - a->base_bytes : 0;
    f->reserved_peak_bytes = berm__max_u64(f->reserved_peak_bytes, f->reserved_bytes);
    // A peak within the call shows only if it is the highest so far.
    if (peak_bytes > a->ledger_peak_now)
        f->reserved_peak_bytes = berm__max_u64(f->reserved_peak_bytes, peak_bytes - a->base_bytes);
    a->ledger_peak_now = berm__max_u64(a->ledger_peak_now, peak_bytes);
}

// --- life ----------------------------------------------------------------------------------------

// POSIX lets an object pointer from dlsym hold a function; ISO C has no cast for it.
static bool lib_symbol(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static stress_allocator_t *lib_open(const lib_slot_t *slot,
                                    const stress_allocator_options_t *options, char *error,
                                    size_t error_capacity) {
    stress_allocator_t *a = calloc(1, sizeof *a);
    if (a == NULL) {
        (void)snprintf(error, error_capacity, "%s: no memory", slot->name);
        return NULL;
    }
    a->library = dlopen(slot->path, RTLD_NOW | RTLD_LOCAL);
    if (options->conf[0] != '\0')
        (void)snprintf(error, error_capacity, "%s: there are no options", slot->name);
    else if (a->library == NULL)
        (void)snprintf(error, error_capacity, "%.20s: %s", slot->name, dlerror());
    else if (!lib_symbol(a->library, slot->alloc_name, &a->alloc))
        (void)snprintf(error, error_capacity, "%s: no symbol %s", slot->name, slot->alloc_name);
    else if (!lib_symbol(a->library, slot->free_name, &a->free))
        (void)snprintf(error, error_capacity, "%s: no symbol %s", slot->name, slot->free_name);
    else {
        a->device = options->device;
        a->limit_bytes = options->limit_bytes;
        addr_map_init(&a->live);
        a->base_bytes = lib_used_bytes(&a->ledger_peak_now);
        return a;
    }
    if (a->library != NULL)
        (void)dlclose(a->library);
    free(a);
    return NULL;
}

static void lib_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    *live_blocks = a->live_blocks;
    size_t position = 0;
    for (lib_block_t *block; (block = addr_map_next(&a->live, &position)) != NULL;) {
        a->free((void *)(uintptr_t)block->addr, block->size_bytes, a->device, block->stream);
        free(block);
    }
    addr_map_destroy(&a->live);
    (void)dlclose(a->library);
    free(a);
}

// --- the data path -------------------------------------------------------------------------------

static stress_result_t lib_alloc(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                 uint64_t *addr) {
    stress_figures_t *f = &a->figures;
    // The library knows no limit of ours; what it must break is refused here.
    if (size_bytes == 0 || size_bytes > a->limit_bytes ||
        f->requested_bytes > a->limit_bytes - size_bytes)
        return STRESS_OUT_OF_MEMORY;
    lib_block_t *block = calloc(1, sizeof *block);
    if (block == NULL)
        return STRESS_ERROR;
    void *memory = a->alloc(size_bytes, a->device, stream);
    *block = (lib_block_t){(uint64_t)(uintptr_t)memory, size_bytes, stream};
    lib_reserved_read(a);
    if (memory == NULL || !addr_map_insert(&a->live, block->addr, block)) {
        if (memory != NULL)
            a->free(memory, size_bytes, a->device, stream);
        free(block);
        return memory == NULL ? STRESS_OUT_OF_MEMORY : STRESS_ERROR;
    }
    f->requested_bytes += size_bytes;
    f->allocated_bytes += size_bytes;
    f->active_bytes += size_bytes;
    f->allocated_peak_bytes = berm__max_u64(f->allocated_peak_bytes, f->allocated_bytes);
    a->live_blocks++;
    *addr = block->addr;
    return STRESS_OK;
}

static stress_result_t lib_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes,
                                void *stream) {
    (void)size_bytes;
    (void)stream;
    lib_block_t *block = addr_map_remove(&a->live, addr);
    if (block == NULL)
        return STRESS_ERROR;
    a->free((void *)(uintptr_t)addr, block->size_bytes, a->device, block->stream);
    a->figures.requested_bytes -= block->size_bytes;
    a->figures.allocated_bytes -= block->size_bytes;
    a->figures.active_bytes -= block->size_bytes;
    a->live_blocks--;
    lib_reserved_read(a);
    free(block);
    return STRESS_OK;
}

// --- figures -------------------------------------------------------------------------------------

static void lib_figures(stress_allocator_t *a, stress_figures_t *figures) {
    lib_reserved_read(a);
    *figures = a->figures;
}

static void lib_peaks_reset(stress_allocator_t *a) {
    lib_reserved_read(a);
    a->figures.reserved_peak_bytes = a->figures.reserved_bytes;
    a->figures.allocated_peak_bytes = a->figures.allocated_bytes;
}

static uint64_t lib_largest_free(stress_allocator_t *a, void *stream) {
    (void)a;
    (void)stream;
    return 0;
}

// --- names ---------------------------------------------------------------------------------------

#define LIB_CREATE(i)                                                                              \
    static stress_allocator_t *lib_create_##i(const stress_allocator_options_t *options,           \
                                              char *error, size_t error_capacity) {                \
        return lib_open(&slots[i], options, error, error_capacity);                                \
    }
LIB_CREATE(0)
LIB_CREATE(1)
LIB_CREATE(2)
LIB_CREATE(3)

static stress_allocator_t *(*const lib_creates[STRESS_LIB_MAX])(
    const stress_allocator_options_t *options, char *error,
    size_t error_capacity) = {lib_create_0, lib_create_1, lib_create_2, lib_create_3};

static bool lib_copy(char *to, size_t capacity, const char *from, size_t length) {
    if (length == 0 || length >= capacity)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

// FILE, or FILE:ALLOC:FREE.
static bool lib_parse(lib_slot_t *slot, const char *name) {
    const char *at = name + strlen(STRESS_LIB_PREFIX);
    size_t length = strcspn(at, ":");
    // dlopen looks for a bare name in the system's folders only: a file here needs a slash.
    bool is_good = lib_copy(slot->name, sizeof slot->name, name, strlen(name));
    if (is_good && memchr(at, '/', length) == NULL && length + 3 < sizeof slot->path) {
        memcpy(slot->path, "./", 2);
        is_good = lib_copy(slot->path + 2, sizeof slot->path - 2, at, length);
    } else {
        is_good = is_good && lib_copy(slot->path, sizeof slot->path, at, length);
    }
    if (!is_good || at[length] == '\0') {
        (void)strcpy(slot->alloc_name, "my_malloc");
        (void)strcpy(slot->free_name, "my_free");
        return is_good;
    }
    at += length + 1;
    length = strcspn(at, ":");
    if (!lib_copy(slot->alloc_name, sizeof slot->alloc_name, at, length) || at[length] == '\0')
        return false;
    at += length + 1;
    return strchr(at, ':') == NULL &&
           lib_copy(slot->free_name, sizeof slot->free_name, at, strlen(at));
}

const stress_allocator_ops_t *stress_lib_find(const char *name) {
    if (strncmp(name, STRESS_LIB_PREFIX, strlen(STRESS_LIB_PREFIX)) != 0)
        return NULL;
    for (size_t i = 0; i < slot_count; i++)
        if (strcmp(slots[i].name, name) == 0)
            return &slots[i].ops;
    if (slot_count == STRESS_LIB_MAX || !lib_parse(&slots[slot_count], name))
        return NULL;
    lib_slot_t *slot = &slots[slot_count];
    slot->ops = (stress_allocator_ops_t){
        .name = slot->name,
        .summary = "a library with an alloc and a free function",
        .is_per_process = true, // whatever state it keeps belongs to one device
        .alignment_bytes = 256, // what CUDA itself promises
        .create = lib_creates[slot_count],
        .destroy = lib_destroy,
        .alloc = lib_alloc,
        .free = lib_free,
        .figures = lib_figures,
        .peaks_reset = lib_peaks_reset,
        .largest_free = lib_largest_free,
    };
    slot_count++;
    return &slot->ops;
}
