// SPDX-License-Identifier: Apache-2.0
// The extent hooks: reservations of device addresses, and a map of granules under jemalloc's pages
// of 4 KiB, which are smaller than what the driver can map.
//
// Layout: a reservation for each extent that jemalloc asks for, and for each granule in it the
// number of committed pages. A commit maps the granules that had none, each with a handle of its
// own and one set-access a run; a decommit unmaps those that have none left, after waiting for the
// arena's stream.
// Bounds: O(log reservations) plus the granules touched. Hooks run under jemalloc's locks and call
// calloc: it works, though jemalloc promises nothing (docs/adr/0003-jemalloc.md).
// Invariants (jemalloc_extents_fault): 1. a granule has a handle exactly if it has committed pages;
// 2. no more of those than fit. Locks: none; one thread.
// May fail: as the driver does; a commit that fails has no effect.
#include "stress/baselines/jemalloc_extents.h"

#include <stdlib.h>

#include "base/bits.h"

static jemalloc_extents_t *extents_of(jemalloc_hooks_t *hooks) {
    return BERM_CONTAINER_OF(hooks, jemalloc_extents_t, hooks);
}

static jemalloc_reservation_t *reservation_of(const jemalloc_extents_t *extents, const void *addr) {
    ordered_node_t *node = ordered_set_below(&extents->reservations,
                                             (ordered_key_t){(uint64_t)(uintptr_t)addr + 1, 0, 0});
    return node == NULL ? NULL : BERM_CONTAINER_OF(node, jemalloc_reservation_t, node);
}

// The committed pages that [start, end) has in granule `i`, in bytes.
static uint64_t overlap_bytes(uint64_t start, uint64_t end, uint64_t i, uint64_t granule_bytes) {
    return berm__min_u64(end, (i + 1) * granule_bytes) - berm__max_u64(start, i * granule_bytes);
}

// --- granules ------------------------------------------------------------------------------------

static void granules_unmap(jemalloc_extents_t *extents, jemalloc_reservation_t *reservation,
                           uint64_t begin, uint64_t end) {
    jemalloc_device_t *device = extents->device;
    for (uint64_t i = begin; i < end; i++) {
        jemalloc_granule_t *granule = &reservation->granules[i];
        (void)stress_driver()->mem_unmap(reservation->addr + i * device->granule_bytes,
                                         device->granule_bytes);
        (void)stress_driver()->mem_release(granule->handle);
        granule->handle = 0;
        device->reserved_bytes -= device->granule_bytes;
    }
}

static berm_cu_result_t granule_map(jemalloc_device_t *device, jemalloc_granule_t *granule,
                                    uint64_t addr) {
    uint64_t bytes = device->granule_bytes;
    if (bytes > device->limit_bytes || device->reserved_bytes > device->limit_bytes - bytes)
        return BERM_CU_OUT_OF_MEMORY;
    berm_cu_mem_handle_t handle = 0;
    berm_cu_result_t result = stress_driver()->mem_create(&handle, bytes, &device->prop, 0);
    if (result != BERM_CU_SUCCESS)
        return result;
    result = stress_driver()->mem_map(addr, bytes, 0, handle, 0);
    if (result != BERM_CU_SUCCESS) {
        (void)stress_driver()->mem_release(handle);
        return result;
    }
    granule->handle = handle;
    device->reserved_bytes += bytes;
    return BERM_CU_SUCCESS;
}

// Memory for the granules [begin, end), which have none; or for none of them.
static bool granules_map(jemalloc_extents_t *extents, jemalloc_reservation_t *reservation,
                         uint64_t begin, uint64_t end) {
    jemalloc_device_t *device = extents->device;
    const berm_cu_mem_access_t access = {device->prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    berm_cu_result_t result = BERM_CU_SUCCESS;
    uint64_t addr = reservation->addr, bytes = device->granule_bytes, mapped = begin;
    for (; mapped < end && result == BERM_CU_SUCCESS; mapped += result == BERM_CU_SUCCESS)
        result = granule_map(device, &reservation->granules[mapped], addr + mapped * bytes);
    if (result == BERM_CU_SUCCESS)
        result =
            stress_driver()->set_access(addr + begin * bytes, (end - begin) * bytes, &access, 1);
    device->is_failing = result != BERM_CU_SUCCESS && result != BERM_CU_OUT_OF_MEMORY;
    if (result != BERM_CU_SUCCESS)
        granules_unmap(extents, reservation, begin, mapped);
    device->reserved_peak_bytes =
        berm__max_u64(device->reserved_peak_bytes, device->reserved_bytes);
    return result == BERM_CU_SUCCESS;
}

// Takes [start, end) of a reservation out of the counts and unmaps the granules with nothing left.
static void pages_remove(jemalloc_extents_t *extents, jemalloc_reservation_t *reservation,
                         uint64_t start, uint64_t end) {
    const jemalloc_device_t *device = extents->device;
    uint64_t granule_bytes = device->granule_bytes;
    for (uint64_t i = start / granule_bytes; i * granule_bytes < end; i++) {
        jemalloc_granule_t *granule = &reservation->granules[i];
        granule->pages -=
            (uint32_t)(overlap_bytes(start, end, i, granule_bytes) / device->page_bytes);
        if (granule->pages == 0 && granule->handle != 0)
            granules_unmap(extents, reservation, i, i + 1);
    }
}

static bool pages_add(jemalloc_extents_t *extents, jemalloc_reservation_t *reservation,
                      uint64_t start, uint64_t end) {
    const jemalloc_device_t *device = extents->device;
    uint64_t granule_bytes = device->granule_bytes;
    uint64_t first = start / granule_bytes, last = (end - 1) / granule_bytes;
    for (uint64_t i = first; i <= last;) {
        uint64_t run = i;
        while (run <= last && reservation->granules[run].handle == 0)
            run++;
        if (run > i && !granules_map(extents, reservation, i, run)) {
            if (i > first)
                pages_remove(extents, reservation, start, i * granule_bytes);
            return false;
        }
        for (run = run > i ? run : i + 1; i < run; i++)
            reservation->granules[i].pages +=
                (uint32_t)(overlap_bytes(start, end, i, granule_bytes) / device->page_bytes);
    }
    return true;
}

// --- hooks: true means refused, except for alloc ------------------------------------------------

static void *hook_alloc(jemalloc_hooks_t *hooks, void *wanted, size_t size_bytes, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)arena;
    jemalloc_extents_t *extents = extents_of(hooks);
    uint64_t granule_bytes = extents->device->granule_bytes;
    if (wanted != NULL)
        return NULL;
    uint64_t bytes = berm__align_up(size_bytes, granule_bytes);
    jemalloc_reservation_t *reservation = calloc(1, sizeof *reservation);
    if (reservation == NULL)
        return NULL;
    reservation->size_bytes = bytes;
    reservation->granules = calloc(bytes / granule_bytes, sizeof *reservation->granules);
    if (reservation->granules == NULL ||
        stress_driver()->address_reserve(&reservation->addr, bytes,
                                         alignment > granule_bytes ? alignment : 0, 0,
                                         0) != BERM_CU_SUCCESS) {
        free(reservation->granules);
        free(reservation);
        return NULL;
    }
    if (*commit && !pages_add(extents, reservation, 0, size_bytes)) {
        (void)stress_driver()->address_free(reservation->addr, bytes);
        free(reservation->granules);
        free(reservation);
        return NULL;
    }
    *zero = false;
    ordered_set_insert(&extents->reservations, &reservation->node,
                       (ordered_key_t){reservation->addr, 0, 0});
    return (void *)(uintptr_t)reservation->addr;
}

// Addresses are kept: jemalloc retains them.
static bool hook_dalloc(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, bool is_committed,
                        unsigned arena) {
    (void)hooks;
    (void)addr;
    (void)size_bytes;
    (void)is_committed;
    (void)arena;
    return true;
}

// Everything goes in jemalloc_extents_destroy, after the arena.
static void hook_destroy(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, bool is_committed,
                         unsigned arena) {
    (void)hook_dalloc(hooks, addr, size_bytes, is_committed, arena);
}

static bool hook_commit(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                        size_t length, unsigned arena) {
    (void)size_bytes;
    (void)arena;
    jemalloc_extents_t *extents = extents_of(hooks);
    jemalloc_device_t *device = extents->device;
    jemalloc_reservation_t *reservation = reservation_of(extents, addr);
    uint64_t start = (uint64_t)(uintptr_t)addr - reservation->addr + offset;
    device->commits++;
    device->commits_unaligned +=
        start % device->granule_bytes != 0 || length % device->granule_bytes != 0;
    return !pages_add(extents, reservation, start, start + length);
}

static bool hook_decommit(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                          size_t length, unsigned arena) {
    (void)size_bytes;
    (void)arena;
    jemalloc_extents_t *extents = extents_of(hooks);
    jemalloc_reservation_t *reservation = reservation_of(extents, addr);
    uint64_t start = (uint64_t)(uintptr_t)addr - reservation->addr + offset;
    extents->device->decommits++;
    extents->device->host_waits++;
    if (stress_driver()->stream_synchronize(extents->stream) != BERM_CU_SUCCESS)
        return true;
    pages_remove(extents, reservation, start, start + length);
    return false;
}

static bool hook_purge(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                       size_t length, unsigned arena) {
    (void)hooks;
    (void)addr;
    (void)size_bytes;
    (void)offset;
    (void)length;
    (void)arena;
    return true;
}

// A split must always work: the counts are by page.
static bool hook_split(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t low_bytes,
                       size_t high_bytes, bool is_committed, unsigned arena) {
    (void)hooks;
    (void)addr;
    (void)size_bytes;
    (void)low_bytes;
    (void)high_bytes;
    (void)is_committed;
    (void)arena;
    return false;
}

// Only within one reservation: neighbours in two are so by chance.
static bool hook_merge(jemalloc_hooks_t *hooks, void *low, size_t low_bytes, void *high,
                       size_t high_bytes, bool is_committed, unsigned arena) {
    (void)low_bytes;
    (void)high_bytes;
    (void)is_committed;
    (void)arena;
    const jemalloc_extents_t *extents = extents_of(hooks);
    return reservation_of(extents, low) != reservation_of(extents, high);
}

// --- life ----------------------------------------------------------------------------------------

void jemalloc_extents_init(jemalloc_extents_t *extents, jemalloc_device_t *device, void *stream) {
    *extents = (jemalloc_extents_t){
        .hooks = {.alloc = hook_alloc,
                  .dalloc = hook_dalloc,
                  .destroy = hook_destroy,
                  .commit = hook_commit,
                  .decommit = hook_decommit,
                  .purge_lazy = hook_purge,
                  .purge_forced = hook_purge,
                  .split = hook_split,
                  .merge = hook_merge},
        .device = device,
        .stream = stream,
    };
    ordered_set_init(&extents->reservations);
}

void jemalloc_extents_destroy(jemalloc_extents_t *extents) {
    uint64_t granule_bytes = extents->device->granule_bytes;
    (void)stress_driver()->stream_synchronize(extents->stream);
    for (ordered_node_t *at; (at = ordered_set_first(&extents->reservations)) != NULL;) {
        jemalloc_reservation_t *reservation = BERM_CONTAINER_OF(at, jemalloc_reservation_t, node);
        ordered_set_remove(&extents->reservations, at);
        for (uint64_t i = 0; i < reservation->size_bytes / granule_bytes; i++)
            if (reservation->granules[i].handle != 0)
                granules_unmap(extents, reservation, i, i + 1);
        (void)stress_driver()->address_free(reservation->addr, reservation->size_bytes);
        free(reservation->granules);
        free(reservation);
    }
}

const char *jemalloc_extents_fault(const jemalloc_extents_t *extents, uint64_t *reserved_bytes) {
    const jemalloc_device_t *device = extents->device;
    for (ordered_node_t *at = ordered_set_first(&extents->reservations); at != NULL;
         at = ordered_node_next(at)) {
        const jemalloc_reservation_t *reservation =
            BERM_CONTAINER_OF(at, jemalloc_reservation_t, node);
        for (uint64_t i = 0; i < reservation->size_bytes / device->granule_bytes; i++) {
            const jemalloc_granule_t *granule = &reservation->granules[i];
            if ((granule->handle != 0) != (granule->pages != 0))
                return "1: a granule's memory and its count of pages disagree";
            if (granule->pages > device->granule_bytes / device->page_bytes)
                return "2: more pages are committed than a granule has";
            *reserved_bytes += granule->handle != 0 ? device->granule_bytes : 0;
        }
    }
    return NULL;
}
