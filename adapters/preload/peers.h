// SPDX-License-Identifier: Apache-2.0
// Access of other devices to berm's memory. The driver's call for it covers cuMemAlloc's memory
// only, so what a program enables is told to berm.
//
// Locks: none; who reaches whom is a bit each, set for good once it was enabled: a free waits for a
// device that had access at any time.
#ifndef PRELOAD_PEERS_H
#define PRELOAD_PEERS_H

#include <stdbool.h>

#include "base/cuda_abi.h"

// Lets `user` reach the memory of `owner`; a CUresult. Nothing is done for PLACE_NONE, nor for
// plain memory, which the driver's own call covers.
int peers_enable(int owner, int user);
void peers_disable(int owner, int user);
// What a pool's owner gives others, where it is the default pool of a device.
int peers_of_pool(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access, size_t count);

// Whether any device has reached another's memory, and the wait for all that reach `owner`'s; a
// CUresult.
bool peers_any(void);
int peers_wait(int owner);

#endif
