// SPDX-License-Identifier: Apache-2.0
// For which device a request is, and whether berm may serve it: berm's memory, events and waits are
// of a device's primary context, which the runtime and frameworks use. Memory asked for in a
// context that a program made itself (cuCtxCreate, green contexts) is left to the driver, since
// berm could not tell when the work of that context is done.
//
// Locks: none. A context that was found to be a device's primary one is kept in an atomic entry.
#ifndef PRELOAD_PLACE_H
#define PRELOAD_PLACE_H

#include <stdbool.h>

#include "base/cuda_abi.h"

enum {
    PLACE_NONE = -1, // not for berm
    PLACE_DEVICES_MAX = 64,
};

// The device whose primary context is current in this thread.
int place_current(void);
// The device whose primary context it is.
int place_of_context(berm_cu_context_t context);
// The device of the primary context that the stream belongs to; NULL, legacy and per-thread streams
// are of the current context.
int place_of_stream(berm_cu_stream_t stream);
// The same for a call of the runtime by the library at `caller`: makes the runtime bind the thread
// to its device's context first, where the thread has none or another's, as the runtime's own call
// would.
int place_of_runtime(const void *caller);

// The device whose default memory pool it is.
int place_of_default_pool(berm_cu_mem_pool_t pool);
// Whether requests without a pool come from the device's default pool: no other was set.
bool place_has_default_pool(int device);

// Waits for all work of the device's primary context; a CUresult.
int place_wait(int device);

// The device is about to be reset. From now on the driver serves it.
void place_reset(int device);

#endif
