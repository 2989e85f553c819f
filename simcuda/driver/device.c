// SPDX-License-Identifier: Apache-2.0
// What the driver says about itself and its devices: initialisation, version, names of errors,
// device attributes. What kinds of device differ in is in the configuration (gpu.c).
//
// Locks: the state's, by sim_enter. Nothing here changes memory or streams.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum {
    DEVICE_PCI_BUS_FIRST = 0x10,
};

berm_cu_result_t cuInit(unsigned flags) {
    int result = sim_enter(SIM_FN_cuInit);
    if (result == BERM_CU_SUCCESS) {
        if (flags != 0 || sim.is_env_bad)
            result = BERM_CU_INVALID_VALUE;
        else
            sim.is_init = true;
        sim_charge(&sim.config.costs.other, 0, 0);
    }
    return sim_leave(result);
}

berm_cu_result_t cuDriverGetVersion(int *version) {
    int result = sim_enter(SIM_FN_cuDriverGetVersion);
    if (result == BERM_CU_SUCCESS) {
        if (version == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *version = sim.config.driver_version;
    }
    return sim_leave(result);
}

typedef struct error_words {
    int error;
    const char *name;
    const char *text;
} error_words_t;

static const error_words_t error_words[] = {
    {BERM_CU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {BERM_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {BERM_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {BERM_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "driver not initialised"},
    {BERM_CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {BERM_CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
    {BERM_CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device not available"},
    {BERM_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
    {BERM_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {BERM_CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "not an image of kernels"},
    {BERM_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid context"},
    {BERM_CU_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "already mapped"},
    {BERM_CU_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "not mapped"},
    {BERM_CU_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "no peer access"},
    {BERM_CU_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {BERM_CU_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "a system call failed"},
    {BERM_CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {BERM_CU_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "wrong state for this call"},
    {BERM_CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "not found"},
    {BERM_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
    {BERM_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {BERM_CU_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is enabled already"},
    {BERM_CU_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access is not enabled"},
    {BERM_CU_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "the primary context is active"},
    {BERM_CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed"},
    {BERM_CU_TOO_MANY_PEERS, "CUDA_ERROR_TOO_MANY_PEERS", "too many peers"},
    {BERM_CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "launch failed"},
    {BERM_CU_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "a cooperative launch of more blocks than run at once"},
    {BERM_CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
    {BERM_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {BERM_CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not ready"},
    {BERM_CU_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "not permitted while a stream is capturing"},
    {BERM_CU_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture was invalidated by an earlier error"},
    {BERM_CU_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "would merge two captures"},
    {BERM_CU_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the capture did not begin in this stream"},
    {BERM_CU_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "the capture has a fork that was not joined"},
    {BERM_CU_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "would make a capture depend on what is outside it"},
    {BERM_CU_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "would make a capture depend on the legacy stream"},
    {BERM_CU_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "not permitted on an event recorded in a capture"},
    {BERM_CU_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "the capture began in another thread"},
    {BERM_CU_TIMEOUT, "CUDA_ERROR_TIMEOUT", "timed out"},
    {BERM_CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const error_words_t *error_find(berm_cu_result_t error) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(error_words); i++) {
        if (error_words[i].error == error)
            return &error_words[i];
    }
    return NULL;
}

// The words for `error` into *out: its name, or the sentence.
static int error_describe(berm_cu_result_t error, const char **out, bool wants_name) {
    const error_words_t *words = error_find(error);
    if (out == NULL)
        return BERM_CU_INVALID_VALUE;
    *out = NULL;
    if (words == NULL)
        return BERM_CU_INVALID_VALUE;
    *out = wants_name ? words->name : words->text;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuGetErrorName(berm_cu_result_t error, const char **name) {
    int result = sim_enter(SIM_FN_cuGetErrorName);
    if (result == BERM_CU_SUCCESS)
        result = error_describe(error, name, true);
    return sim_leave(result);
}

berm_cu_result_t cuGetErrorString(berm_cu_result_t error, const char **text) {
    int result = sim_enter(SIM_FN_cuGetErrorString);
    if (result == BERM_CU_SUCCESS)
        result = error_describe(error, text, false);
    return sim_leave(result);
}

// --- devices -------------------------------------------------------------------------------------

// Enters, and checks the out parameter and the device; charges the call.
static int device_enter(sim_fn_t fn, const void *out, int device) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (out == NULL)
        return BERM_CU_INVALID_VALUE;
    if (!sim_device_is_valid(device))
        return BERM_CU_INVALID_DEVICE;
    if (sim.devices[device].is_lost)
        return BERM_CU_DEVICE_UNAVAILABLE;
    sim_charge(&sim.config.costs.other, 0, 0);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuDeviceGetCount(int *count) {
    int result = sim_enter(SIM_FN_cuDeviceGetCount);
    if (result == BERM_CU_SUCCESS) {
        if (count == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *count = sim.config.devices;
    }
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGet(berm_cu_device_t *device, int ordinal) {
    int result = device_enter(SIM_FN_cuDeviceGet, device, ordinal);
    if (result == BERM_CU_SUCCESS)
        *device = ordinal;
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGetName(char *name, int length, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceGetName, name, device);
    if (result == BERM_CU_SUCCESS) {
        if (length <= 0)
            result = BERM_CU_INVALID_VALUE;
        else
            (void)snprintf(name, (size_t)length, "%s", sim.config.gpu.name);
    }
    return sim_leave(result);
}

berm_cu_result_t cuDeviceTotalMem_v2(size_t *bytes, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceTotalMem_v2, bytes, device);
    if (result == BERM_CU_SUCCESS)
        *bytes = sim.config.memory_bytes;
    return sim_leave(result);
}

static void device_uuid(berm_cu_uuid_t *uuid, int device) {
    memcpy(uuid->bytes, "simcuda-device-", 15);
    uuid->bytes[15] = (char)device;
}

berm_cu_result_t cuDeviceGetUuid(berm_cu_uuid_t *uuid, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceGetUuid, uuid, device);
    if (result == BERM_CU_SUCCESS)
        device_uuid(uuid, device);
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGetUuid_v2(berm_cu_uuid_t *uuid, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceGetUuid_v2, uuid, device);
    if (result == BERM_CU_SUCCESS)
        device_uuid(uuid, device);
    return sim_leave(result);
}

// The limits that a kernel's launch has. 0: the attribute is not one.
static int launch_attribute(int attribute) {
    const simcuda_gpu_t *gpu = &sim.config.gpu;
    switch (attribute) {
    case BERM_CU_ATTR_MAX_THREADS_PER_BLOCK:
    case BERM_CU_ATTR_MAX_BLOCK_DIM_X:
    case BERM_CU_ATTR_MAX_BLOCK_DIM_Y:
        return 1024;
    case BERM_CU_ATTR_MAX_BLOCK_DIM_Z:
        return 64;
    case BERM_CU_ATTR_MAX_GRID_DIM_X:
        return INT32_MAX;
    case BERM_CU_ATTR_MAX_GRID_DIM_Y:
    case BERM_CU_ATTR_MAX_GRID_DIM_Z:
        return 65535;
    case BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK:
        return 48 << 10;
    case BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return gpu->shared_block_bytes;
    case BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return gpu->shared_multiprocessor_bytes;
    case BERM_CU_ATTR_TOTAL_CONSTANT_MEMORY:
        return 64 << 10;
    case BERM_CU_ATTR_MAX_PITCH:
        return INT32_MAX;
    case BERM_CU_ATTR_MAX_REGISTERS_PER_BLOCK:
    case BERM_CU_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
    case BERM_CU_ATTR_TEXTURE_ALIGNMENT:
        return 512;
    case BERM_CU_ATTR_WARP_SIZE:
        return 32;
    case BERM_CU_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return gpu->blocks_per_multiprocessor;
    case BERM_CU_ATTR_MAX_THREADS_PER_MULTIPROCESSOR:
        return gpu->threads_per_multiprocessor;
    case BERM_CU_ATTR_COOPERATIVE_LAUNCH:
        return 1;
    default:
        return 0;
    }
}

static int device_attribute(int attribute, int device) {
    const simcuda_gpu_t *gpu = &sim.config.gpu;
    int has_vmm = sim.config.has_vmm != 0;
    switch (attribute) {
    case BERM_CU_ATTR_CLOCK_RATE:
        return gpu->clock_khz;
    case BERM_CU_ATTR_MEMORY_CLOCK_RATE:
        return gpu->memory_clock_khz;
    case BERM_CU_ATTR_MEMORY_BUS_WIDTH:
        return gpu->memory_bus_bits;
    case BERM_CU_ATTR_ECC_ENABLED:
        return gpu->has_ecc;
    case BERM_CU_ATTR_MULTIPROCESSOR_COUNT:
        return gpu->multiprocessors;
    case BERM_CU_ATTR_L2_CACHE_SIZE:
        return (int)gpu->l2_bytes;
    case BERM_CU_ATTR_ASYNC_ENGINE_COUNT:
        return 3;
    case BERM_CU_ATTR_PCI_BUS_ID:
        return DEVICE_PCI_BUS_FIRST + device;
    case BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR:
        return gpu->capability_major;
    case BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR:
        return gpu->capability_minor;
    case BERM_CU_ATTR_CAN_MAP_HOST_MEMORY:
    case BERM_CU_ATTR_CONCURRENT_KERNELS:
    case BERM_CU_ATTR_UNIFIED_ADDRESSING:
    case BERM_CU_ATTR_STREAM_PRIORITIES_SUPPORTED:
    case BERM_CU_ATTR_MEMORY_POOLS_SUPPORTED:
    case BERM_CU_ATTR_IPC_EVENT_SUPPORTED:
        return 1;
    case BERM_CU_ATTR_VMM_SUPPORTED:
    case BERM_CU_ATTR_POSIX_FD_SUPPORTED:
        return has_vmm;
    case BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED:
        return has_vmm && gpu->has_rdma;
    default: // what is not modelled is absent
        return launch_attribute(attribute);
    }
}

berm_cu_result_t cuDeviceGetAttribute(int *value, int attribute, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceGetAttribute, value, device);
    if (result == BERM_CU_SUCCESS) {
        if (attribute < 1 || attribute >= BERM_CU_ATTR_MAX)
            result = BERM_CU_INVALID_VALUE;
        else
            *value = device_attribute(attribute, device);
    }
    return sim_leave(result);
}

berm_cu_result_t cuDeviceCanAccessPeer(int *can, berm_cu_device_t device, berm_cu_device_t peer) {
    int result = device_enter(SIM_FN_cuDeviceCanAccessPeer, can, device);
    if (result == BERM_CU_SUCCESS) {
        if (!sim_device_is_valid(peer))
            result = BERM_CU_INVALID_DEVICE;
        else
            *can = device != peer && !sim.config.lacks_peers;
    }
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGetPCIBusId(char *text, int length, berm_cu_device_t device) {
    int result = device_enter(SIM_FN_cuDeviceGetPCIBusId, text, device);
    if (result == BERM_CU_SUCCESS) {
        if (length <= 0)
            result = BERM_CU_INVALID_VALUE;
        else
            (void)snprintf(text, (size_t)length, "0000:%02x:00.0",
                           (unsigned)(DEVICE_PCI_BUS_FIRST + device));
    }
    return sim_leave(result);
}

berm_cu_result_t cuDeviceGetByPCIBusId(berm_cu_device_t *device, const char *text) {
    int result = device_enter(SIM_FN_cuDeviceGetByPCIBusId, device, 0);
    if (result == BERM_CU_SUCCESS) {
        unsigned domain, bus;
        if (text == NULL || sscanf(text, "%4x:%2x:", &domain, &bus) != 2)
            result = BERM_CU_INVALID_VALUE;
        else if (domain != 0 || !sim_device_is_valid((int)bus - DEVICE_PCI_BUS_FIRST))
            result = BERM_CU_INVALID_DEVICE;
        else
            *device = (int)bus - DEVICE_PCI_BUS_FIRST;
    }
    return sim_leave(result);
}
