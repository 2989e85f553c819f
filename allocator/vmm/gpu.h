// SPDX-License-Identifier: Apache-2.0
// One device as the layers above see it: its primary context, what it can do (probed once), and a
// small store of events. No policy and no memory.
//
// Locks: the device's, held by the caller, for the event store; the rest is constant after open.
#ifndef BERM_VMM_GPU_H
#define BERM_VMM_GPU_H

#include "drv/drv.h"

enum {
    BERM_GPU_EVENTS_MAX = 64,
    BERM_GPU_ACCESS_MAX = 64, // devices that may use one device's memory, itself included
};

// What backs memory, in the order of the option's range.
typedef enum berm_backing {
    BERM_BACKING_AUTO, // the driver's virtual memory management, or plain where there is none
    BERM_BACKING_VMM,
    BERM_BACKING_PLAIN, // cuMemAlloc
} berm_backing_t;

struct berm_segment;

// Told of what happens to addresses of a segment (berm_event_kind_t); the device's lock is held.
typedef void (*berm_tell_fn)(const struct berm_segment *segment, int kind, berm_addr_t addr,
                             uint64_t size_bytes);

typedef struct berm_gpu {
    // Constant after open.
    berm_drv_t *drv;
    int ordinal;
    berm_cu_device_t device;
    berm_cu_context_t context;
    uint64_t memory_bytes;
    uint64_t granule_bytes; // a power of two; 2 MiB where there are no handles
    unsigned lg_granule;
    bool has_ctx_event;
    bool is_plain;           // no handles: all memory is cuMemAlloc's
    berm_cu_mem_prop_t prop; // of handles without special properties
    bool shares_pages;       // all handles can be exported, whatever else lies in them
    // Under the device's lock.
    bool syncs_edits;  // settable: mappings change only when no work runs
    berm_tell_fn tell; // NULL: nobody wants to know
    unsigned access_count;
    berm_cu_mem_access_t access[BERM_GPU_ACCESS_MAX]; // the device itself, then its peers
    unsigned event_count;                             // idle events
    berm_cu_event_t events[BERM_GPU_EVENTS_MAX];
} berm_gpu_t;

// Retains the primary context and probes. BERM_ERROR_NO_VMM where the device has none and `backing`
// wants it; a line in the log where it has none and does not, and where pages are to be shared and
// cannot be. BERM_ERROR_DEVICE, _DRIVER,
// _DEVICE_LOST. Calls the driver.
berm_status_t berm__gpu_open(berm_gpu_t *gpu, berm_drv_t *drv, int ordinal, berm_backing_t backing,
                             bool shares_pages);
// Destroys idle events and releases the context.
void berm__gpu_close(berm_gpu_t *gpu);

// Makes the device's context current in this thread and says in *is_pushed whether leave must undo
// it; and sets the thread's capture mode to relaxed, in which calls that allocate break no capture,
// whoever's. Each enter, also one that fails, has a leave. May be nested. Calls the driver.
berm_status_t berm__gpu_enter(berm_gpu_t *gpu, bool *is_pushed);
void berm__gpu_leave(berm_gpu_t *gpu, bool is_pushed);
// Another context, and back.
berm_cu_result_t berm__gpu_push(berm_gpu_t *gpu, berm_cu_context_t context);
void berm__gpu_pop(berm_gpu_t *gpu);

// Whether the device says yes to a CUdevice_attribute; one that the driver does not know is a no.
// DRIVER, DEVICE_LOST. Calls the driver.
berm_status_t berm__gpu_has(berm_gpu_t *gpu, int attribute, bool *has);

// Before mappings change: waits for all work, where the device faults otherwise (Volta, by option).
berm_cu_result_t berm__gpu_edit_begin(berm_gpu_t *gpu);

// Waits for all work of the device. The context is current.
berm_cu_result_t berm__gpu_synchronize(berm_gpu_t *gpu);

// An event without timing, from the store or new. Calls the driver on a miss.
berm_status_t berm__gpu_event_take(berm_gpu_t *gpu, berm_cu_event_t *event);
void berm__gpu_event_give(berm_gpu_t *gpu, berm_cu_event_t event);
// For an event that is of no use to the store.
void berm__gpu_event_destroy(berm_gpu_t *gpu, berm_cu_event_t event);

#endif
