// SPDX-License-Identifier: Apache-2.0
// Errors of the stand-in runtime: the last one of each thread, their names, and calls that have no
// stand-in.
//
// Locks: none; the last error is a thread's own, the counter atomic. May fail: nothing.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda.h"
#include "simcuda/runtime/runtime.h"

static _Thread_local int last_error;
static atomic_uint_fast64_t stub_hits;

int rt_finish(int result) {
    if (result != BERM_CU_SUCCESS)
        last_error = result;
    return result;
}

cudart_error_t cudaGetLastError(void) {
    int error = last_error;
    last_error = BERM_CU_SUCCESS;
    return error;
}

cudart_error_t cudaPeekAtLastError(void) {
    return last_error;
}

// What the driver has no words for, or the runtime has its own.
static const struct {
    int error;
    const char *name, *text;
} words[] = {
    {BERM_CU_SUCCESS, "cudaSuccess", "no error"},
    {BERM_CU_OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {CUDART_INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration",
     "a launch with a grid or a block of no size, or too many threads"},
    {CUDART_INVALID_PITCH, "cudaErrorInvalidPitchValue", "a row is longer than the pitch"},
    {CUDART_INVALID_SYMBOL, "cudaErrorInvalidSymbol", "no such device variable"},
    {CUDART_MISSING_CONFIGURATION, "cudaErrorMissingConfiguration", "a launch not configured"},
    {CUDART_INVALID_DEVICE_FUNCTION, "cudaErrorInvalidDeviceFunction", "no such kernel"},
    {CUDART_HOST_MEMORY_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
     "host memory is registered already"},
    {CUDART_HOST_MEMORY_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered",
     "host memory is not registered"},
};

const char *cudaGetErrorName(cudart_error_t error) {
    const char *name = NULL;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(words); i++)
        if (words[i].error == error)
            return words[i].name;
    return cuGetErrorName(error, &name) == BERM_CU_SUCCESS ? name : "unrecognized error code";
}

const char *cudaGetErrorString(cudart_error_t error) {
    const char *text = NULL;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(words); i++)
        if (words[i].error == error)
            return words[i].text;
    return cuGetErrorString(error, &text) == BERM_CU_SUCCESS ? text : "unrecognized error code";
}

int rt_unsupported(const char *name) {
    enum {
        LOG_MAX = 256
    };
    static const char *_Atomic logged[LOG_MAX];
    atomic_fetch_add(&stub_hits, 1);
    simcuda_stub_hit("cudart", name);
    for (int i = 0; getenv("SIMCUDA_LOG") != NULL && i < LOG_MAX; i++) {
        const char *none = NULL;
        if (atomic_load(&logged[i]) == name)
            break;
        if (atomic_compare_exchange_strong(&logged[i], &none, name)) {
            (void)fprintf(stderr, "simcuda: %s has no stand-in; it returned \"not supported\"\n",
                          name);
            break;
        }
    }
    return rt_finish(BERM_CU_NOT_SUPPORTED);
}

uint64_t simcuda_runtime_stub_hits(void) {
    return atomic_load(&stub_hits);
}
