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
    // What there is: all three while it is open.
    berm_addr_t base; // 0: no addresses
    bool has_handle, is_mapped;
    berm_cu_mem_handle_t handle;
    bool is_home; // the memory lies on `gpu`, so that the device's peers may use it
    // Policy's.
    berm_addr_t addr;         // what the caller got, in [base, base + size_bytes); 0: nothing
    uint64_t requested_bytes; // of the exporter's block, where known; else size_bytes
    bool is_closing;          // a thread waits for the work that uses it
} berm_import_t;

// Whether this process has no descriptor left.
bool berm__files_are_used_up(void);

// A descriptor for a handle, close-on-exec, the caller's. CEILING, UNSUPPORTED, DRIVER,
// DEVICE_LOST; *fd is -1 then.
berm_status_t berm__handle_export(berm_gpu_t *gpu, berm_cu_mem_handle_t handle, int *fd);

// Takes the memory of `fd`, reserves addresses for it, maps it and sets access: for the device, and
// for its peers if the memory is the device's. *import is zeroed and filled; on failure it is empty
// again but for what the driver did not take back (berm__import_is_empty). Errors as berm_import.
berm_status_t berm__import_open(berm_import_t *import, berm_gpu_t *gpu, int fd,
                                uint64_t size_bytes);

// Unmaps, releases, frees the addresses: what of it there is. DRIVER, DEVICE_LOST; what is left is
// left for the next try.
berm_status_t berm__import_undo(berm_import_t *import);

static inline bool berm__import_is_empty(const berm_import_t *import) {
    return import->base == 0 && !import->has_handle;
}

#endif
