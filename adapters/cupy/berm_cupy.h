// SPDX-License-Identifier: Apache-2.0
// libberm_cupy.so: the two C functions of cupy.cuda.CFunctionAllocator. berm.cupy.install() sets
// them; CuPy's own pool is not put on top, since two caches hold twice what is free.
//
// What is allocated has the tag "cupy" (berm_diagnose.h). A request that fails gives NULL, which
// CuPy does not look at: berm.cupy turns it into CuPy's OutOfMemoryError.
//
// Thread-safe, where `stream` is. Driver, waits, streams: as berm_alloc and berm_free.
#ifndef BERM_CUPY_H
#define BERM_CUPY_H

#include "berm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERM_CUPY_TAG "cupy"

// The first argument of both functions: CuPy's own function that gives the calling thread's current
// stream of a device; called with Python's lock held, as CuPy calls the functions. With NULL, or in
// place of the whole, memory is for any stream, and waits for all of the device's after its free.
typedef struct berm_cupy {
    intptr_t (*stream)(int device);
} berm_cupy_t;

// NULL for 0 bytes, and on failure.
BERM_API void *berm_cupy_malloc(const berm_cupy_t *cupy, size_t size_bytes, int device);
// In the order of the stream that is current then: if it is another than the block's own, the
// memory waits for what that one has queued so far. NULL does nothing.
BERM_API void berm_cupy_free(const berm_cupy_t *cupy, void *block, int device);

#ifdef __cplusplus
}
#endif

#endif
