// SPDX-License-Identifier: Apache-2.0
// Device memory of the stand-in runtime: plain allocations, what a pointer is, the driver's pools,
// and memory of other processes. Every out parameter is written.
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

cudart_error_t cudaMallocPitch(void **addr, size_t *pitch, size_t width_bytes, size_t height) {
    enum {
        ELEMENT_BYTES = 4 // the runtime is not told
    };
    if (addr == NULL || pitch == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    *pitch = 0;
    if (width_bytes == 0 || height == 0)
        return BERM_CU_SUCCESS;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuMemAllocPitch_v2(&at, pitch, width_bytes, height, ELEMENT_BYTES));
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
    int is_managed = 0;
    (void)cuPointerGetAttribute(&is_managed, BERM_CU_POINTER_IS_MANAGED, rt_addr(addr));
    attributes->type = is_managed != 0 ? CUDART_MEMORY_MANAGED : CUDART_MEMORY_DEVICE;
    attributes->device = device;
    attributes->device_pointer = attributes->host_pointer;
    if (is_managed == 0)
        attributes->host_pointer = NULL;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaMallocManaged(void **addr, size_t bytes, unsigned flags) {
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuMemAllocManaged(&at, bytes, flags));
    *addr = rt_pointer(at);
    return result;
}

// --- pools of the driver -------------------------------------------------------------------------

cudart_error_t cudaMallocAsync(void **addr, size_t bytes, berm_cu_stream_t stream) {
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuMemAllocAsync(&at, bytes, stream));
    *addr = rt_pointer(at);
    return result;
}

cudart_error_t cudaMallocFromPoolAsync(void **addr, size_t bytes, berm_cu_mem_pool_t pool,
                                       berm_cu_stream_t stream) {
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuMemAllocFromPoolAsync(&at, bytes, pool, stream));
    *addr = rt_pointer(at);
    return result;
}

cudart_error_t cudaFreeAsync(void *addr, berm_cu_stream_t stream) {
    if (addr == NULL)
        return BERM_CU_SUCCESS;
    return RT_DRIVER(cuMemFreeAsync(rt_addr(addr), stream));
}

cudart_error_t cudaDeviceGetDefaultMemPool(berm_cu_mem_pool_t *pool, int device) {
    if (pool != NULL)
        *pool = NULL;
    return RT_DRIVER(cuDeviceGetDefaultMemPool(pool, device));
}

cudart_error_t cudaDeviceGetMemPool(berm_cu_mem_pool_t *pool, int device) {
    if (pool != NULL)
        *pool = NULL;
    return RT_DRIVER(cuDeviceGetMemPool(pool, device));
}

cudart_error_t cudaDeviceSetMemPool(int device, berm_cu_mem_pool_t pool) {
    return RT_DRIVER(cuDeviceSetMemPool(device, pool));
}

cudart_error_t cudaMemPoolCreate(berm_cu_mem_pool_t *pool, const berm_cu_mem_pool_props_t *props) {
    if (pool != NULL)
        *pool = NULL;
    return RT_DRIVER(cuMemPoolCreate(pool, props));
}

cudart_error_t cudaMemPoolDestroy(berm_cu_mem_pool_t pool) {
    return RT_DRIVER(cuMemPoolDestroy(pool));
}

cudart_error_t cudaMemPoolGetAttribute(berm_cu_mem_pool_t pool, int attribute, void *value) {
    return RT_DRIVER(cuMemPoolGetAttribute(pool, attribute, value));
}

cudart_error_t cudaMemPoolSetAttribute(berm_cu_mem_pool_t pool, int attribute, void *value) {
    return RT_DRIVER(cuMemPoolSetAttribute(pool, attribute, value));
}

cudart_error_t cudaMemPoolSetAccess(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access,
                                    size_t count) {
    return RT_DRIVER(cuMemPoolSetAccess(pool, access, count));
}

cudart_error_t cudaMemPoolTrimTo(berm_cu_mem_pool_t pool, size_t keep_bytes) {
    return RT_DRIVER(cuMemPoolTrimTo(pool, keep_bytes));
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

// --- between processes ---------------------------------------------------------------------------

cudart_error_t cudaIpcGetMemHandle(berm_cu_ipc_mem_handle_t *handle, void *addr) {
    if (handle == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(handle, 0, sizeof *handle);
    return RT_DRIVER(cuIpcGetMemHandle(handle, rt_addr(addr)));
}

cudart_error_t cudaIpcOpenMemHandle(void **addr, berm_cu_ipc_mem_handle_t handle, unsigned flags) {
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    berm_cu_deviceptr_t at = 0;
    int result = RT_DRIVER(cuIpcOpenMemHandle_v2(&at, handle, flags));
    *addr = rt_pointer(at);
    return result;
}

cudart_error_t cudaIpcCloseMemHandle(void *addr) {
    return RT_DRIVER(cuIpcCloseMemHandle(rt_addr(addr)));
}
