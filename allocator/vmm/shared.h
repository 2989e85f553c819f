// SPDX-License-Identifier: Apache-2.0
// Physical memory that crosses processes: a descriptor for a handle, and a handle from a descriptor
// at addresses of its own. Whose it is and who may use it when is policy above.
//
// An import is taken apart in steps, each of which is done once: after an error of the driver the
// next try goes on where the last one stopped.
//
// Locks: the device's; its context is current. May fail: all that calls the driver.
#ifndef BERM_VMM_SHARED_H
#define BERM_VMM_SHARED_H

#include "base/list.h"
#include "vmm/gpu.h"

typedef struct berm_import {
    berm_list_t link; // of the device's list
    berm_gpu_t *gpu;  // the device that uses it
    uint64_t size_bytes;
    // What there is; while it is open all of it.
    berm_addr_t base;      // 0: no addresses
    uint64_t mapped_bytes; // from `base`, part by part
    bool is_mapped;        // all of it
    bool is_home;          // the memory lies on `gpu`, so that the device's peers may use it
    // Policy's.
    berm_addr_t addr;         // what the caller got, in [base, base + size_bytes); 0: nothing
    uint64_t requested_bytes; // of the exporter's block, where known; else size_bytes
    bool is_busy;             // a thread opens it, or waits for the work that uses it
    // The exporter's handles, one behind the other.
    uint32_t part_count, held_count; // that it is to have; that it has
    berm_cu_mem_handle_t parts[];
} berm_import_t;

// Whether this process has no descriptor left.
bool berm__files_are_used_up(void);

// A descriptor for a handle, close-on-exec, the caller's. CEILING, UNSUPPORTED, DRIVER,
// DEVICE_LOST; *fd is -1 then.
berm_status_t berm__handle_export(berm_gpu_t *gpu, berm_cu_mem_handle_t handle, int *fd);

// An import that has nothing yet, of `part_count` handles of together `size_bytes`.
void berm__import_init(berm_import_t *import, berm_gpu_t *gpu, uint64_t size_bytes,
                       uint32_t part_count);
// Takes the memory of `fd` and maps it behind the parts that are there; the first one reserves
// addresses for all. After a failure the import is undone, by the caller. Errors as berm_import.
berm_status_t berm__import_part(berm_import_t *import, int fd, uint64_t part_bytes);
// When all parts are mapped: sets access, for the device, and for its peers if the memory is the
// device's. As above.
berm_status_t berm__import_finish(berm_import_t *import);

// Unmaps, releases, frees the addresses: what of it there is. DRIVER, DEVICE_LOST; what is left is
// left for the next try.
berm_status_t berm__import_undo(berm_import_t *import);

static inline bool berm__import_is_empty(const berm_import_t *import) {
    return import->base == 0 && import->held_count == 0;
}

#endif
