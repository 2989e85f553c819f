// SPDX-License-Identifier: Apache-2.0
// Where a request belongs: see place.h.
#include "place.h"

#include <stdatomic.h>
#include <stdint.h>

#include "real.h"

static _Atomic(berm_cu_context_t) primaries[PLACE_DEVICES_MAX];
static atomic_bool were_reset[PLACE_DEVICES_MAX];

static int device_known(berm_cu_context_t context) {
    for (int device = 0; device < PLACE_DEVICES_MAX; device++)
        if (atomic_load_explicit(&primaries[device], memory_order_relaxed) == context)
            return atomic_load_explicit(&were_reset[device], memory_order_relaxed) ? PLACE_NONE
                                                                                   : device;
    return PLACE_NONE;
}

// Asks the driver whether the current context is its device's primary one, which is not made for
// it.
static int device_ask(berm_cu_context_t current) {
    berm_cu_device_t device = 0;
    berm_cu_context_t primary = NULL;
    unsigned flags = 0;
    int is_active = 0;
    if (REAL_DRIVER(cuCtxGetDevice, &device) != BERM_CU_SUCCESS || device < 0 ||
        device >= PLACE_DEVICES_MAX || atomic_load(&were_reset[device]) ||
        REAL_DRIVER(cuDevicePrimaryCtxGetState, device, &flags, &is_active) != BERM_CU_SUCCESS ||
        !is_active || REAL_DRIVER(cuDevicePrimaryCtxRetain, &primary, device) != BERM_CU_SUCCESS)
        return PLACE_NONE;
    (void)REAL_DRIVER(cuDevicePrimaryCtxRelease_v2, device);
    if (primary != current)
        return PLACE_NONE;
    atomic_store(&primaries[device], primary);
    return device;
}

int place_current(void) {
    berm_cu_context_t current = NULL;
    if (REAL_DRIVER(cuCtxGetCurrent, &current) != BERM_CU_SUCCESS || current == NULL)
        return PLACE_NONE;
    int device = device_known(current);
    return device != PLACE_NONE ? device : device_ask(current);
}

int place_of_context(berm_cu_context_t context) {
    berm_cu_context_t popped = NULL;
    if (context == NULL)
        return PLACE_NONE;
    int device = device_known(context);
    if (device != PLACE_NONE || REAL_DRIVER(cuCtxPushCurrent_v2, context) != BERM_CU_SUCCESS)
        return device;
    device = device_ask(context);
    if (REAL_DRIVER(cuCtxPopCurrent_v2, &popped) != BERM_CU_SUCCESS)
        (void)REAL_DRIVER(cuCtxPopCurrent_v2, &popped); // the program's own is to be current again
    return device;
}

int place_of_stream(berm_cu_stream_t stream) {
    berm_cu_context_t context = NULL;
    if (stream == NULL || stream == BERM_CU_STREAM_LEGACY || stream == BERM_CU_STREAM_PER_THREAD)
        return place_current();
    if (REAL_DRIVER(cuStreamGetCtx, stream, &context) != BERM_CU_SUCCESS)
        return PLACE_NONE;
    return place_of_context(context);
}

int place_of_runtime(const void *caller) {
    static void *_Atomic get_device;
    int wanted = 0, device = place_current();
    int (*ask)(int *) = (int (*)(int *))real_runtime_find(&get_device, "cudaGetDevice", caller);
    if (ask == NULL || ask(&wanted) != BERM_CU_SUCCESS)
        return PLACE_NONE;
    if (device == wanted)
        return device;
    // Freeing nothing is the documented way to have the runtime make its context.
    if (REAL_RUNTIME(cudaFree, caller, NULL) != BERM_CU_SUCCESS)
        return PLACE_NONE;
    device = place_current();
    return device == wanted ? device : PLACE_NONE;
}

int place_of_default_pool(berm_cu_mem_pool_t pool) {
    int count = 0;
    if (REAL_DRIVER(cuDeviceGetCount, &count) != BERM_CU_SUCCESS)
        return PLACE_NONE;
    for (int device = 0; device < count && device < PLACE_DEVICES_MAX; device++) {
        berm_cu_mem_pool_t own = NULL;
        if (REAL_DRIVER(cuDeviceGetDefaultMemPool, &own, device) == BERM_CU_SUCCESS && own == pool)
            return device;
    }
    return PLACE_NONE;
}

bool place_has_default_pool(int device) {
    berm_cu_mem_pool_t own = NULL, used = NULL;
    return REAL_DRIVER(cuDeviceGetDefaultMemPool, &own, device) == BERM_CU_SUCCESS &&
           REAL_DRIVER(cuDeviceGetMemPool, &used, device) == BERM_CU_SUCCESS && own == used;
}

int place_wait(int device) {
    berm_cu_context_t primary = NULL, popped = NULL;
    int mode = BERM_CU_CAPTURE_RELAXED;
    int result = REAL_DRIVER(cuDevicePrimaryCtxRetain, &primary, device);
    if (result != BERM_CU_SUCCESS)
        return result;
    result = REAL_DRIVER(cuCtxPushCurrent_v2, primary);
    if (result == BERM_CU_SUCCESS) {
        // Relaxed, so that a capture of some stream is not broken by it.
        bool is_relaxed = REAL_DRIVER(cuThreadExchangeStreamCaptureMode, &mode) == BERM_CU_SUCCESS;
        result = REAL_DRIVER(cuCtxSynchronize);
        if (is_relaxed && REAL_DRIVER(cuThreadExchangeStreamCaptureMode, &mode) != BERM_CU_SUCCESS)
            (void)REAL_DRIVER(cuThreadExchangeStreamCaptureMode, &mode);
        if (REAL_DRIVER(cuCtxPopCurrent_v2, &popped) != BERM_CU_SUCCESS)
            (void)REAL_DRIVER(cuCtxPopCurrent_v2, &popped);
    }
    (void)REAL_DRIVER(cuDevicePrimaryCtxRelease_v2, device);
    return result;
}

void place_reset(int device) {
    if (device >= 0 && device < PLACE_DEVICES_MAX)
        atomic_store(&were_reset[device], true);
}
