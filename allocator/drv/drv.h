// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as a table of functions, filled at run time from libcuda.so.1.
//
// Nothing links libcuda. berm__drv_open loads it (an already loaded libcuda.so.1, such as the
// simulated one, satisfies the same name), asks cuGetProcAddress for each entry of drv.def at the
// version this code was written for, and calls cuInit.
//
// Every call goes through BERM_DRV_CALL, which counts it by kind and keeps the last failure of the
// thread. Arguments are passed as they are; the calling thread has the device's primary context
// current where the driver needs one (gpu.h). OPTIONAL entries may be NULL: test before calling.
//
// Thread safety: all, once opened. Locks: none. Nothing here waits but what the driver does.
#ifndef BERM_DRV_DRV_H
#define BERM_DRV_DRV_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/cuda_abi.h"
#include "base/defs.h"
#include "berm_introspect.h"

typedef enum berm_drv_kind { // in the order of berm_driver_calls_t
    BERM_DRV_RESERVE,
    BERM_DRV_ADDRESS_FREE,
    BERM_DRV_CREATE,
    BERM_DRV_RELEASE,
    BERM_DRV_MAP,
    BERM_DRV_SET_ACCESS,
    BERM_DRV_UNMAP,
    BERM_DRV_MALLOC,
    BERM_DRV_FREE,
    BERM_DRV_EVENT_RECORD,
    BERM_DRV_EVENT_QUERY,
    BERM_DRV_STREAM_WAIT,
    BERM_DRV_SYNCHRONIZE,
    BERM_DRV_OTHER,
    BERM_DRV_KIND_COUNT
} berm_drv_kind_t;

typedef enum berm_drv_entry {
#define BERM_DRV_ENTRY(field, type, symbol, version, need) BERM_DRV_ENTRY_##field,
#include "drv/drv.def"
#undef BERM_DRV_ENTRY
    BERM_DRV_ENTRY_COUNT
} berm_drv_entry_t;

typedef struct berm_drv {
    // Constant after open.
    void *library;
    int version;
    int device_count;
    bool has_vmm_entries; // all of the VMM functions are there
    bool is_simulated;
#define BERM_DRV_ENTRY(field, type, symbol, version, need) type field;
#include "drv/drv.def"
#undef BERM_DRV_ENTRY
    // Atomic.
    atomic_bool is_gone; // the driver said that it is deinitialised: call it no more
    atomic_uint_fast64_t calls[BERM_DRV_KIND_COUNT];
    // Of the kinds that are timed, by the process's clock (host/clock.h).
    atomic_uint_fast64_t timed_calls[BERM_DRV_KIND_COUNT], timed_ns[BERM_DRV_KIND_COUNT];
} berm_drv_t;

// Loads `name` and fills *drv. BERM_ERROR_NO_DRIVER if the library, a required entry or a device is
// missing, with a line in `error`; BERM_ERROR_DRIVER if cuInit fails otherwise.
berm_status_t berm__drv_open(berm_drv_t *drv, const char *name, char *error, size_t error_capacity);
// Unloads; calls no driver function.
void berm__drv_close(berm_drv_t *drv);

// Begins the time of the thread's next call; for the kinds that memory costs: CREATE to UNMAP, and
// waits.
void berm__drv_time_begin(void);
static inline void berm__drv_time(berm_drv_kind_t kind) {
    if ((kind >= BERM_DRV_CREATE && kind <= BERM_DRV_UNMAP) || kind == BERM_DRV_SYNCHRONIZE)
        berm__drv_time_begin();
}
// The mean of a timed kind in nanoseconds; 0: none was timed.
uint64_t berm__drv_mean_ns(berm_drv_t *drv, berm_drv_kind_t kind);

// Counts the call, keeps a failure for berm__drv_error_last, and returns `result`. NOT_READY is an
// answer, not a failure.
berm_cu_result_t berm__drv_note(berm_drv_t *drv, berm_drv_kind_t kind, berm_drv_entry_t entry,
                                berm_cu_result_t result);

// A driver that has gone away (process exit) is called no more.
#define BERM_DRV_CALL(drv, kind, entry, ...)                                                       \
    (atomic_load_explicit(&(drv)->is_gone, memory_order_relaxed)                                   \
         ? BERM_CU_DEINITIALIZED                                                                   \
         : (berm__drv_time(BERM_DRV_##kind),                                                       \
            berm__drv_note((drv), BERM_DRV_##kind, BERM_DRV_ENTRY_##entry,                         \
                           (drv)->entry(__VA_ARGS__))))

// How many calls of this thread have failed, to tell whether one did meanwhile.
uint64_t berm__drv_error_count(void);

// The symbol and result of this thread's last failed call; NULL and 0 if none.
const char *berm__drv_error_last(int *result);

// The status for a failed call: memory, loss of the device, or any other cause.
berm_status_t berm__drv_status(berm_cu_result_t result);

void berm__drv_calls_read(berm_drv_t *drv, berm_driver_calls_t *calls);

#endif
