// SPDX-License-Identifier: Apache-2.0
// Devices of the stand-in runtime: which one a thread uses, its primary context, attributes, peers.
//
// A primary context is retained the first time that a thread needs it and released by
// cudaDeviceReset or the end of the process, as with the real runtime.
// Locks: none here; the driver has its own. May fail: as the driver.
#include <stdatomic.h>

#include "simcuda.h"
#include "simcuda/runtime/runtime.h"

enum {
    DEVICE_NOT_CHOSEN = -1,
    RUNTIME_VERSION = CUDART_MAJOR < 13 ? 12090 : 13000, // what cudart_abi.h was compared with
};

static _Thread_local int thread_device = DEVICE_NOT_CHOSEN;
static atomic_bool is_retained[SIMCUDA_DEVICE_MAX]; // by us

int rt_device(void) {
    // A context that the program made current by the driver decides.
    int device = 0;
    if (thread_device == DEVICE_NOT_CHOSEN)
        thread_device = cuCtxGetDevice(&device) == BERM_CU_SUCCESS ? device : 0;
    return thread_device;
}

static int device_make_current(int device) {
    berm_cu_context_t context;
    unsigned flags = 0;
    int is_active = 0;
    int result = cuInit(0);
    if (result == BERM_CU_SUCCESS)
        result = cuDevicePrimaryCtxGetState(device, &flags, &is_active);
    if (result == BERM_CU_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, device);
    if (result != BERM_CU_SUCCESS)
        return result;
    // One reference is enough for the process; none is left after a reset of the device.
    if (atomic_exchange(&is_retained[device], true) && is_active)
        (void)cuDevicePrimaryCtxRelease_v2(device);
    return cuCtxSetCurrent(context);
}

bool rt_bind(int result) {
    if (result != BERM_CU_INVALID_CONTEXT && result != BERM_CU_NOT_INITIALIZED)
        return false;
    berm_cu_context_t current = NULL;
    if (result == BERM_CU_INVALID_CONTEXT && cuCtxGetCurrent(&current) == BERM_CU_SUCCESS &&
        current != NULL)
        return false;
    return device_make_current(rt_device()) == BERM_CU_SUCCESS;
}

cudart_error_t cudaGetDeviceCount(int *count) {
    return RT_DRIVER(cuDeviceGetCount(count));
}

cudart_error_t cudaGetDevice(int *device) {
    if (device == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *device = rt_device();
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaSetDevice(int device) {
    if (device == rt_device()) {
        berm_cu_context_t current = NULL;
        if (cuCtxGetCurrent(&current) == BERM_CU_SUCCESS && current != NULL)
            return BERM_CU_SUCCESS;
    }
    int result = device_make_current(device);
    if (result == BERM_CU_SUCCESS)
        thread_device = device;
    return rt_finish(result);
}

cudart_error_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags;
    (void)flags;
    berm_cu_context_t current = NULL;
    (void)cuCtxGetCurrent(&current);
    int result = device_make_current(device);
    if (result == BERM_CU_SUCCESS && current != NULL)
        result = cuCtxSetCurrent(current);
    return rt_finish(result);
}

cudart_error_t cudaSetDeviceFlags(unsigned flags) {
    return RT_DRIVER(cuDevicePrimaryCtxSetFlags_v2(rt_device(), flags));
}

cudart_error_t cudaGetDeviceFlags(unsigned *flags) {
    int is_active = 0;
    if (flags == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    return RT_DRIVER(cuDevicePrimaryCtxGetState(rt_device(), flags, &is_active));
}

cudart_error_t cudaDeviceSynchronize(void) {
    return RT_DRIVER(cuCtxSynchronize());
}

cudart_error_t cudaDeviceReset(void) {
    int device = rt_device();
    if (device < SIMCUDA_DEVICE_MAX)
        atomic_store(&is_retained[device], false);
    return RT_DRIVER(cuDevicePrimaryCtxReset_v2(device));
}

cudart_error_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return RT_DRIVER(cuDeviceGetAttribute(value, attribute, device));
}

cudart_error_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    return RT_DRIVER(cuDeviceGetPCIBusId(text, length, device));
}

cudart_error_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    return RT_DRIVER(cuDeviceGetByPCIBusId(device, text));
}

cudart_error_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return RT_DRIVER(cuCtxGetStreamPriorityRange(least, greatest));
}

cudart_error_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return RT_DRIVER(cuDeviceCanAccessPeer(can, device, peer));
}

// The simulated driver lets every context of a process reach every device of it.
cudart_error_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    int can = 0, device = rt_device();
    if (flags != 0 || peer == device)
        return rt_finish(flags != 0 ? BERM_CU_INVALID_VALUE : BERM_CU_INVALID_DEVICE);
    int result = RT_DRIVER(cuDeviceCanAccessPeer(&can, device, peer));
    if (result == BERM_CU_SUCCESS && !can)
        result = rt_finish(BERM_CU_PEER_ACCESS_UNSUPPORTED);
    return result;
}

cudart_error_t cudaDriverGetVersion(int *version) {
    return RT_DRIVER(cuDriverGetVersion(version));
}

cudart_error_t cudaRuntimeGetVersion(int *version) {
    if (version == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *version = RUNTIME_VERSION;
    return BERM_CU_SUCCESS;
}
