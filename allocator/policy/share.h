// SPDX-License-Identifier: Apache-2.0
// What a device shares: memory of other processes that is mapped here (imports), its own that other
// processes may have (exports), and devices that may use its memory (peers).
//
// Invariants (docs/invariants.md):
//   I31  import_count, imported_bytes and imported_mappings are those of the device's imports that
//        are mapped; each has all its handles, addresses, and the caller's address within
//        them
//   I32  exported_bytes is the sum over handles that were exported; behind a FREE range there is
//        none, and those that are mapped nowhere are in the list `leaving` and in no idle list
//   I33  gpu.access is the device itself, then its peers, each once
//
// An import that is being opened is in the list with no address for the caller. One whose opening
// failed, and that the driver did not take back, stays so; it is tried again by the next import, by
// trim and at the close.
//
// Locks: the device's, held in all of these; its context is current.
#ifndef BERM_POLICY_SHARE_H
#define BERM_POLICY_SHARE_H

#include "policy/pool.h"
#include "vmm/shared.h"

// What an import is of: bytes [offset, offset + requested) of handles of together size_bytes.
typedef struct berm_import_request {
    uint64_t size_bytes;
    uint32_t part_count;
    uint64_t offset_bytes, requested_bytes;
} berm_import_request_t;

// A new import, to be given its parts in turn, then finished or dropped; the
// device's lock may be given back meanwhile. UNSUPPORTED, OUT_OF_HOST_MEMORY, CAPTURE.
berm_status_t berm__device_import_begin(berm_device_t *device, const berm_import_request_t *request,
                                        berm_import_t **out);
// Maps the next handle of it. Errors as berm_import: it is to be dropped then. Calls the driver.
berm_status_t berm__device_import_part(berm_device_t *device, berm_import_t *import, int fd,
                                       uint64_t part_bytes);
// Makes it usable, when it has all. Likewise.
berm_status_t berm__device_import_finish(berm_import_t *import,
                                         const berm_import_request_t *request);
// Takes apart what there is of it. Calls the driver.
void berm__device_import_drop(berm_device_t *device, berm_import_t *import);

// The mapped import that holds an address, or is left of one that a close could not end; NULL if
// none. Walks the list: imports are few, and each costs several driver calls.
berm_import_t *berm__device_import_at(berm_device_t *device, berm_addr_t addr);

// Ends one that no work uses any more. DRIVER, DEVICE_LOST: it stays in the list, to be tried
// again.
berm_status_t berm__device_import_end(berm_device_t *device, berm_import_t *import);

// Ends those whose opening failed.
void berm__device_imports_sweep(berm_device_t *device);

// Ends all, twice where the driver refuses, and frees the records whatever it says; without a call
// of the driver if the device may still be at work. The device closes.
void berm__device_imports_close(berm_device_t *device, bool is_quiet);

// The handle that a live block owns: one that is no other block's and can be exported; NULL if it
// has none.
berm_phys_handle_t *berm__block_own_handle(const berm_block_t *block);
// Another process may have the memory from now on, or cannot, after all. The pool's lock is held
// too.
void berm__handle_exported_set(berm_phys_handle_t *handle, bool is_exported);

// Opens what is mapped for `device`, and what will be, to the device `peer`; takes it away again.
// On failure nothing has changed. Disable: no work of either device is under way.
berm_status_t berm__device_peer_enable(berm_device_t *device, int peer);
berm_status_t berm__device_peer_disable(berm_device_t *device, int peer);
bool berm__device_peer_is_enabled(const berm_device_t *device, int peer);

#endif
