// SPDX-License-Identifier: Apache-2.0
// What the driver would say about a block of berm's and cannot: its extent, its legacy IPC handle,
// and how much memory is free. Blocks from share_alloc (option ipc) have an allocation of the
// driver's each, which a legacy handle can be made of.
//
// Locks: none; whether a device has the pool is an atomic flag.
#ifndef PRELOAD_SHARE_H
#define PRELOAD_SHARE_H

#include <stdbool.h>

#include "base/cuda_abi.h"
#include "berm.h"

berm_status_t share_alloc(int device, uint64_t bytes, berm_addr_t *addr);

// False: the address is not in a live block of berm's; the driver is to be asked.
bool share_handle(berm_cu_ipc_mem_handle_t *handle, berm_addr_t addr, int *result);
// Any of the two pointers may be NULL, as in the driver's own.
bool share_range(berm_cu_deviceptr_t *base, size_t *bytes, berm_addr_t addr);

// What the driver says is free on `device`, and what berm keeps idle there, up to berm's limit.
void share_free_bytes(int device, size_t *free_bytes, size_t total_bytes);

#endif
