// SPDX-License-Identifier: Apache-2.0
// What the stand-ins for the math and communication libraries share, and what their generated part
// (make.py, from the *.def tables) calls. They are one library, libsimcuda_standins.so: functions
// that are more than a table row are in it under their own names, without version nodes, so that
// they serve every version of the library they stand in for; the generated libraries carry the
// names, version nodes and rows of what one build of torch imports.
//
// HANDLES are numbers, never pointers, and fit 32 bits: a stale or made-up one is refused.
// LOCKS: one mutex guards the table of objects; no function of this file calls out with it held.
#ifndef SIMCUDA_STANDINS_STANDIN_H
#define SIMCUDA_STANDINS_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "base/defs.h"

enum {
    STANDIN_SLOT_STREAM = 0, // of every object: the stream that its work goes to
    STANDIN_SLOT_COUNT = 16
};

typedef uint32_t standin_handle_t; // 0: none

// A new object whose slots are all 0; 0 where the host has no memory. `data` is freed with it, by
// `destroy` (which may be NULL).
BERM_EXPORT standin_handle_t standin_new(const void *kind, void *data, void (*destroy)(void *));
// Whether there was such an object.
BERM_EXPORT bool standin_delete(uint64_t handle);
// The data of an object of this kind; NULL of any other.
void *standin_data(uint64_t handle, const void *kind);
BERM_EXPORT bool standin_is_live(uint64_t handle);
// A slot's value; `otherwise` where the handle is of no object.
BERM_EXPORT uint64_t standin_get(uint64_t handle, unsigned slot, uint64_t otherwise);
BERM_EXPORT void standin_set(uint64_t handle, unsigned slot, uint64_t value);

// Counts a call of a function that does less than the real one.
BERM_EXPORT void standin_hit(const char *library, const char *name);

// Queues one piece of modelled work. A refusal (an error of the context, a capture that forbids it)
// is left for the caller's next call of the driver, as a kernel's would be.
BERM_EXPORT void standin_work(berm_cu_stream_t stream);
// The same on the stream of an object; the default stream where there is none.
BERM_EXPORT void standin_work_of(uint64_t handle);
// Queues the clearing of `bytes` (a multiple of 4) of device memory; host memory is cleared now.
BERM_EXPORT void standin_clear(uint64_t stream, void *addr, size_t bytes);
// Whether `addr` may be written by the host: not NULL, and not device memory.
BERM_EXPORT bool standin_is_host(const void *addr);

#endif
