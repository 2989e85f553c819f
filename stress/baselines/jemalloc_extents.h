// SPDX-License-Identifier: Apache-2.0
// Device addresses as jemalloc extents: the hooks of one arena. Used by jemalloc.c alone.
#ifndef STRESS_BASELINES_JEMALLOC_EXTENTS_H
#define STRESS_BASELINES_JEMALLOC_EXTENTS_H

#include "base/list.h"
#include "stress/baselines/ordered_set.h"
#include "stress/device.h"

// jemalloc's extent_hooks_t (stable since 5.0), declared here since its header is no build
// dependency.
typedef struct jemalloc_hooks jemalloc_hooks_t;
struct jemalloc_hooks {
    void *(*alloc)(jemalloc_hooks_t *hooks, void *wanted, size_t size_bytes, size_t alignment,
                   bool *zero, bool *commit, unsigned arena);
    bool (*dalloc)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, bool is_committed,
                   unsigned arena);
    void (*destroy)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, bool is_committed,
                    unsigned arena);
    bool (*commit)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                   size_t length, unsigned arena);
    bool (*decommit)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                     size_t length, unsigned arena);
    bool (*purge_lazy)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                       size_t length, unsigned arena);
    bool (*purge_forced)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t offset,
                         size_t length, unsigned arena);
    bool (*split)(jemalloc_hooks_t *hooks, void *addr, size_t size_bytes, size_t low_bytes,
                  size_t high_bytes, bool is_committed, unsigned arena);
    bool (*merge)(jemalloc_hooks_t *hooks, void *low, size_t low_bytes, void *high,
                  size_t high_bytes, bool is_committed, unsigned arena);
};

// What all arenas of one allocator draw on.
typedef struct jemalloc_device {
    berm_cu_mem_prop_t prop;
    uint64_t granule_bytes, page_bytes; // of the device; of jemalloc
    uint64_t limit_bytes, reserved_bytes, reserved_peak_bytes;
    uint64_t host_waits;
    uint64_t commits, commits_unaligned, decommits; // calls of the hooks
    bool is_failing; // the last refusal was another error than out of memory
} jemalloc_device_t;

// One granule of a reservation: how many of jemalloc's pages in it are committed.
typedef struct jemalloc_granule {
    berm_cu_mem_handle_t handle; // 0: no memory
    uint32_t pages;
} jemalloc_granule_t;

typedef struct jemalloc_reservation {
    ordered_node_t node; // by address
    uint64_t addr, size_bytes;
    jemalloc_granule_t *granules;
} jemalloc_reservation_t;

// The extents of one arena. The hooks come first: jemalloc hands them back.
typedef struct jemalloc_extents {
    jemalloc_hooks_t hooks;
    jemalloc_device_t *device;
    void *stream; // waited for before a granule is unmapped
    ordered_set_t reservations;
} jemalloc_extents_t;

void jemalloc_extents_init(jemalloc_extents_t *extents, jemalloc_device_t *device, void *stream);
// Waits for the stream, then gives all memory and addresses back. The arena is gone already.
void jemalloc_extents_destroy(jemalloc_extents_t *extents);
// NULL, or what is wrong; adds what the granules hold to *reserved_bytes.
const char *jemalloc_extents_fault(const jemalloc_extents_t *extents, uint64_t *reserved_bytes);

#endif
