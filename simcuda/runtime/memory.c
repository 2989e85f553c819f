// SPDX-License-Identifier: Apache-2.0
// Device memory of the stand-in runtime: plain allocations, what a pointer is, and for what the
// simulated driver has not (stream-ordered pools, legacy IPC) an answer that says so with every out
// parameter written.
//
// Locks: none here. May fail: as the driver.
#include "simcuda/runtime/runtime.h"

cudart_error_t cudaMalloc(void **addr, size_t bytes) {
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    if (bytes == 0) // the runtime takes it, the driver does not
        return BERM_CU_SUCCESS;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuMemAlloc_v2(&at, bytes));
    *addr = rt_pointer(at);
    return result;
}

cudart_error_t cudaFree(void *addr) {
    if (addr == NULL) { // the usual way to make a context
        unsigned flags = 0;
        return RT_DRIVER(cuCtxGetFlags(&flags));
    }
    return RT_DRIVER(cuMemFree_v2(rt_addr(addr)));
}

cudart_error_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return RT_DRIVER(cuMemGetInfo_v2(free_bytes, total_bytes));
}

cudart_error_t cudaPointerGetAttributes(cudart_pointer_attributes_t *attributes, const void *addr) {
    if (attributes == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = -2; // cudaInvalidDeviceId
    attributes->host_pointer = rt_pointer(rt_addr(addr));
    if (rt_host_is_pinned(addr)) {
        attributes->type = CUDART_MEMORY_HOST;
        attributes->device = rt_device();
        attributes->device_pointer = attributes->host_pointer;
        return BERM_CU_SUCCESS;
    }
    int device = 0;
    int result = cuPointerGetAttribute(&device, BERM_CU_POINTER_DEVICE_ORDINAL, rt_addr(addr));
    if (rt_bind(result))
        result = cuPointerGetAttribute(&device, BERM_CU_POINTER_DEVICE_ORDINAL, rt_addr(addr));
    if (result == BERM_CU_INVALID_VALUE) // memory that CUDA does not know is no error
        return BERM_CU_SUCCESS;
    if (result != BERM_CU_SUCCESS)
        return rt_finish(result);
    attributes->type = CUDART_MEMORY_DEVICE;
    attributes->device = device;
    attributes->device_pointer = attributes->host_pointer;
    attributes->host_pointer = NULL;
    return BERM_CU_SUCCESS;
}

// --- not modelled --------------------------------------------------------------------------------

cudart_error_t cudaMallocAsync(void **addr, size_t bytes, berm_cu_stream_t stream) {
    (void)bytes;
    (void)stream;
    if (addr != NULL)
        *addr = NULL;
    return rt_unsupported(__func__);
}

cudart_error_t cudaFreeAsync(void *addr, berm_cu_stream_t stream) {
    (void)addr;
    (void)stream;
    return rt_unsupported(__func__);
}

cudart_error_t cudaDeviceGetDefaultMemPool(cudart_mem_pool_t **pool, int device) {
    (void)device;
    if (pool != NULL)
        *pool = NULL;
    return rt_unsupported(__func__);
}

// All attributes of these two families are 64-bit numbers, or ints that such a number covers where
// the caller left room; zero is written as the smaller of the two.
static void attribute_clear(void *value) {
    if (value != NULL)
        memset(value, 0, sizeof(int));
}

cudart_error_t cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    (void)device;
    (void)attribute;
    if (value == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(value, 0, sizeof(uint64_t)); // no graph holds memory
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
    (void)device;
    (void)attribute;
    return value == NULL ? rt_finish(BERM_CU_INVALID_VALUE) : BERM_CU_SUCCESS;
}

cudart_error_t cudaMemPoolGetAttribute(cudart_mem_pool_t *pool, int attribute, void *value) {
    (void)pool;
    (void)attribute;
    attribute_clear(value);
    return rt_unsupported(__func__);
}

cudart_error_t cudaMemPoolSetAttribute(cudart_mem_pool_t *pool, int attribute, void *value) {
    (void)pool;
    (void)attribute;
    (void)value;
    return rt_unsupported(__func__);
}

cudart_error_t cudaMemPoolSetAccess(cudart_mem_pool_t *pool, const void *access, size_t count) {
    (void)pool;
    (void)access;
    (void)count;
    return rt_unsupported(__func__);
}

cudart_error_t cudaMemPoolTrimTo(cudart_mem_pool_t *pool, size_t keep_bytes) {
    (void)pool;
    (void)keep_bytes;
    return rt_unsupported(__func__);
}

cudart_error_t cudaIpcGetMemHandle(cudart_ipc_handle_t *handle, void *addr) {
    (void)addr;
    if (handle != NULL)
        memset(handle, 0, sizeof *handle);
    return rt_unsupported(__func__);
}

cudart_error_t cudaIpcOpenMemHandle(void **addr, cudart_ipc_handle_t handle, unsigned flags) {
    (void)handle;
    (void)flags;
    if (addr != NULL)
        *addr = NULL;
    return rt_unsupported(__func__);
}

cudart_error_t cudaIpcCloseMemHandle(void *addr) {
    (void)addr;
    return rt_unsupported(__func__);
}
