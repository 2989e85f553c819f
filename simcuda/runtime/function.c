// SPDX-License-Identifier: Apache-2.0
// What the stand-in runtime says about kernels (registers, occupancy) and device variables.
//
// No kernel is compiled here, so all are described alike: 32 registers, no static shared memory, as
// many threads as a block may have. Occupancy follows from that and from what the device says.
// Device variables get memory at their first use: one allocation of theirs on the device that is
// current then, never freed.
//
// Locks: variable_lock for the list; driver calls are made with it held (they take none of ours).
// May fail: as cudaMalloc, the first time a variable is asked for.
#include <pthread.h>
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda.h"
#include "simcuda/runtime/runtime.h"

enum {
    KERNEL_REGISTERS = 32,
    KERNEL_THREADS_MAX = 1024,
};

// What a kernel was compiled for, of what libraries are usually compiled for: the newest that runs
// on the device. Libraries of templates (CUB) look their tuning up by it, and refuse what is not
// there.
static int kernel_version(void) {
    static const int versions[] = {75, 80, 86, 90, 100, 120};
    int major = 0, minor = 0, version = versions[0];
    (void)cudaDeviceGetAttribute(&major, BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, rt_device());
    (void)cudaDeviceGetAttribute(&minor, BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR, rt_device());
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(versions); i++)
        if (versions[i] <= major * 10 + minor)
            version = versions[i];
    return version;
}

cudart_error_t cudaFuncGetAttributes(cudart_func_attributes_t *attributes, const void *function) {
    if (attributes == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(attributes, 0, sizeof *attributes);
    if (function == NULL)
        return rt_finish(CUDART_INVALID_DEVICE_FUNCTION);
    attributes->max_threads_per_block = KERNEL_THREADS_MAX;
    attributes->registers = KERNEL_REGISTERS;
    attributes->ptx_version = attributes->binary_version = kernel_version();
    attributes->max_dynamic_shared_bytes = 48 << 10;
    attributes->preferred_shared_carveout = -1;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaFuncSetAttribute(const void *function, int attribute, int value) {
    (void)attribute;
    (void)value;
    return function == NULL ? rt_finish(CUDART_INVALID_DEVICE_FUNCTION) : BERM_CU_SUCCESS;
}

cudart_error_t cudaFuncSetCacheConfig(const void *function, int config) {
    return cudaFuncSetAttribute(function, 0, config);
}

cudart_error_t cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value,
                                               int device) {
    (void)device;
    return cudaFuncSetAttribute(kernel, attribute, value);
}

cudart_error_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int block_threads, size_t shared_bytes, unsigned flags) {
    int threads = 0;
    (void)flags;
    if (blocks == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *blocks = 0;
    if (function == NULL || block_threads <= 0)
        return rt_finish(BERM_CU_INVALID_VALUE);
    int result = RT_DRIVER(
        cuDeviceGetAttribute(&threads, BERM_CU_ATTR_MAX_THREADS_PER_MULTIPROCESSOR, rt_device()));
    if (result != BERM_CU_SUCCESS || block_threads > KERNEL_THREADS_MAX)
        return result;
    int shared = 0, blocks_max = 0;
    (void)cuDeviceGetAttribute(&blocks_max, BERM_CU_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR,
                               rt_device());
    (void)cuDeviceGetAttribute(&shared, BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                               rt_device());
    *blocks = threads / block_threads;
    if (shared_bytes > 0 && *blocks > (int)((size_t)shared / shared_bytes))
        *blocks = (int)((size_t)shared / shared_bytes);
    if (*blocks > blocks_max)
        *blocks = blocks_max;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                             int block_threads,
                                                             size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads,
                                                                  shared_bytes, 0);
}

// --- device variables ----------------------------------------------------------------------------

typedef struct variable {
    struct variable *next;
    const void *symbol; // the host's stand-in for it
    size_t bytes;
    void *addrs[SIMCUDA_DEVICE_MAX]; // NULL: not used there yet
} variable_t;

static pthread_mutex_t variable_lock = PTHREAD_MUTEX_INITIALIZER;
static variable_t *variables;

void __cudaRegisterVar(void **handle, char *symbol, char *device_address, const char *name,
                       int is_extern, size_t bytes, int is_constant, int is_global) {
    (void)handle;
    (void)device_address;
    (void)name;
    (void)is_extern;
    (void)is_constant;
    (void)is_global;
    variable_t *variable = calloc(1, sizeof *variable);
    if (variable == NULL) // it will be unknown when it is asked for
        return;
    variable->symbol = symbol;
    variable->bytes = bytes;
    (void)pthread_mutex_lock(&variable_lock);
    variable->next = variables;
    variables = variable;
    (void)pthread_mutex_unlock(&variable_lock);
}

static cudart_error_t variable_find(const void *symbol, void **addr, size_t *bytes) {
    int device = rt_device(), result = CUDART_INVALID_SYMBOL;
    *addr = NULL;
    *bytes = 0;
    (void)pthread_mutex_lock(&variable_lock);
    for (variable_t *at = variables; at != NULL; at = at->next) {
        if (at->symbol != symbol)
            continue;
        result =
            at->addrs[device] != NULL ? BERM_CU_SUCCESS : cudaMalloc(&at->addrs[device], at->bytes);
        *addr = at->addrs[device];
        *bytes = at->bytes;
        break;
    }
    (void)pthread_mutex_unlock(&variable_lock);
    return result == BERM_CU_SUCCESS ? result : rt_finish(result);
}

cudart_error_t cudaGetSymbolAddress(void **addr, const void *symbol) {
    size_t bytes;
    return addr == NULL ? rt_finish(BERM_CU_INVALID_VALUE) : variable_find(symbol, addr, &bytes);
}

cudart_error_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    void *addr;
    return bytes == NULL ? rt_finish(BERM_CU_INVALID_VALUE) : variable_find(symbol, &addr, bytes);
}

cudart_error_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                                  size_t offset_bytes, int kind) {
    void *addr;
    size_t size;
    int result = variable_find(symbol, &addr, &size);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (offset_bytes > size || bytes > size - offset_bytes)
        return rt_finish(BERM_CU_INVALID_VALUE);
    return cudaMemcpy(rt_pointer(rt_addr(addr) + offset_bytes), from, bytes, kind);
}
