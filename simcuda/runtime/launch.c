// SPDX-License-Identifier: Apache-2.0
// Kernels of the stand-in runtime: registration by the programs that carry them, and launches.
//
// A kernel does nothing; its launch is one piece of modelled work on its stream
// (simcuda_launch_kernel). One kernel is known by name: PyTorch's spin kernel, by which
// `torch.cuda._sleep` occupies a stream, takes as many cycles of the device's clock as it is asked
// for.
//
// TABLE. Every kernel that a loaded program registers is an entry, found by the address of its host
// function: open addressing, at most 3/4 full, never shrunk, entries are never removed (a library
// that is unloaded leaves its own; a new registration of the same address replaces it).
// Locks: table_lock for the table; the call configuration is a thread's own. May fail: no host
// memory for the table: the kernel is not known, and launches of it do what an unnamed one does.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"
#include "simcuda/runtime/runtime.h"

typedef struct kernel {
    const void *host_function; // NULL: an empty place
    const char *name;          // the registering program's, mangled
} kernel_t;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static kernel_t *kernels;
static size_t kernel_count, kernel_capacity; // capacity: 0 or a power of two

static size_t place_of(const kernel_t *table, size_t capacity, const void *host_function) {
    uint64_t hash = (uint64_t)(uintptr_t)host_function * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 32) & (capacity - 1);
    while (table[at].host_function != NULL && table[at].host_function != host_function)
        at = (at + 1) & (capacity - 1);
    return at;
}

static bool table_grow(void) {
    size_t capacity = kernel_capacity == 0 ? 1024 : kernel_capacity * 2;
    kernel_t *table = calloc(capacity, sizeof *table);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < kernel_capacity; i++) {
        if (kernels[i].host_function != NULL)
            table[place_of(table, capacity, kernels[i].host_function)] = kernels[i];
    }
    free(kernels);
    kernels = table;
    kernel_capacity = capacity;
    return true;
}

const char *rt_kernel_name(const void *host_function) {
    const char *name = NULL;
    (void)pthread_mutex_lock(&table_lock);
    if (kernel_capacity > 0)
        name = kernels[place_of(kernels, kernel_capacity, host_function)].name;
    (void)pthread_mutex_unlock(&table_lock);
    return name;
}

// --- registration, by the constructors of programs -----------------------------------------------

// The handle of a program's kernels: nobody looks into it.
void **__cudaRegisterFatBinary(void *fat_binary) {
    void **handle = malloc(sizeof *handle);
    if (handle != NULL)
        *handle = fat_binary;
    return handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    free(handle);
}

void __cudaRegisterFunction(void **handle, const void *host_function, char *device_function,
                            const char *device_name, int thread_limit, void *tid, void *bid,
                            void *block_dim, void *grid_dim, int *warp_size) {
    (void)handle;
    (void)device_function;
    (void)thread_limit;
    (void)tid;
    (void)bid;
    (void)block_dim;
    (void)grid_dim;
    (void)warp_size;
    if (host_function == NULL)
        return;
    (void)pthread_mutex_lock(&table_lock);
    if (kernel_count < kernel_capacity / 4 * 3 || table_grow()) {
        kernel_t *at = &kernels[place_of(kernels, kernel_capacity, host_function)];
        kernel_count += at->host_function == NULL;
        *at = (kernel_t){host_function, device_name};
    }
    (void)pthread_mutex_unlock(&table_lock);
}

// --- the configuration of a launch ---------------------------------------------------------------

enum {
    CONFIGURATIONS_MAX = 16 // nested: a launch in the arguments of a launch
};

typedef struct configuration {
    cudart_dim3_t grid, block;
    size_t shared_bytes;
    berm_cu_stream_t stream;
} configuration_t;

static _Thread_local configuration_t configurations[CONFIGURATIONS_MAX];
static _Thread_local int configuration_count;

unsigned __cudaPushCallConfiguration(cudart_dim3_t grid, cudart_dim3_t block, size_t shared_bytes,
                                     berm_cu_stream_t stream) {
    if (configuration_count == CONFIGURATIONS_MAX)
        return BERM_CU_INVALID_VALUE;
    configurations[configuration_count++] = (configuration_t){
        .grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream};
    return BERM_CU_SUCCESS;
}

cudart_error_t __cudaPopCallConfiguration(cudart_dim3_t *grid, cudart_dim3_t *block,
                                          size_t *shared_bytes, void *stream) {
    if (configuration_count == 0)
        return rt_finish(CUDART_MISSING_CONFIGURATION);
    const configuration_t *top = &configurations[--configuration_count];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    memcpy(stream, &top->stream, sizeof top->stream);
    return BERM_CU_SUCCESS;
}

// --- launches ------------------------------------------------------------------------------------

// A spin kernel's only argument is the number of cycles; at least a nanosecond.
static uint64_t spin_ns(void *const *arguments) {
    int64_t cycles = 0;
    int khz = 0;
    if (arguments == NULL || arguments[0] == NULL ||
        cudaDeviceGetAttribute(&khz, BERM_CU_ATTR_CLOCK_RATE, rt_device()) != BERM_CU_SUCCESS)
        return 1;
    memcpy(&cycles, arguments[0], sizeof cycles);
    return cycles <= 0 || khz <= 0 ? 1 : (uint64_t)((double)cycles * 1e6 / khz) + 1;
}

// A grid of no size is an error of the program's. But a size may come from what an earlier kernel
// should have computed, through a copy to the host or memory that both see, and is 0 here: so where
// kernels were launched before, the program is to go on, and it is counted as a stub.
static bool is_grid_valid(cudart_dim3_t grid) {
    simcuda_counters_t counters;
    if (grid.x > 0 && grid.y > 0 && grid.z > 0)
        return true;
    simcuda_counters_read(&counters);
    if (counters.kernels == 0)
        return false;
    simcuda_stub_hit("cudart", "a launch of no threads, by a value that was not known");
    return true;
}

static bool is_block_valid(cudart_dim3_t block) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return threads > 0 && threads <= 1024;
}

static cudart_error_t launch(const void *kernel, cudart_dim3_t grid, cudart_dim3_t block,
                             void *const *arguments, berm_cu_stream_t stream) {
    if (kernel == NULL)
        return rt_finish(CUDART_INVALID_DEVICE_FUNCTION);
    if (!is_block_valid(block) || !is_grid_valid(grid))
        return rt_finish(CUDART_INVALID_CONFIGURATION);
    const char *name = rt_kernel_name(kernel);
    uint64_t duration_ns =
        name != NULL && strstr(name, "spin_kernel") != NULL ? spin_ns(arguments) : 0;
    return RT_DRIVER(simcuda_launch_kernel(stream, duration_ns));
}

cudart_error_t cudaLaunchKernel(const void *function, cudart_dim3_t grid, cudart_dim3_t block,
                                void **arguments, size_t shared_bytes, berm_cu_stream_t stream) {
    (void)shared_bytes;
    return launch(function, grid, block, arguments, stream);
}

cudart_error_t cudaLaunchKernel_ptsz(const void *function, cudart_dim3_t grid, cudart_dim3_t block,
                                     void **arguments, size_t shared_bytes,
                                     berm_cu_stream_t stream) {
    return cudaLaunchKernel(function, grid, block, arguments, shared_bytes,
                            stream == NULL ? BERM_CU_STREAM_PER_THREAD : stream);
}

cudart_error_t cudaLaunchCooperativeKernel(const void *function, cudart_dim3_t grid,
                                           cudart_dim3_t block, void **arguments,
                                           size_t shared_bytes, berm_cu_stream_t stream) {
    (void)shared_bytes;
    return launch(function, grid, block, arguments, stream);
}

cudart_error_t cudaLaunchKernelExC(const cudart_launch_config_t *config, const void *function,
                                   void **arguments) {
    if (config == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    return launch(function, config->grid, config->block, arguments, config->stream);
}

// A kernel's handle is the address of its host function.
cudart_error_t __cudaGetKernel(const void **kernel, const void *function) {
    if (kernel == NULL || function == NULL)
        return rt_finish(CUDART_INVALID_DEVICE_FUNCTION);
    *kernel = function;
    return BERM_CU_SUCCESS;
}

cudart_error_t __cudaLaunchKernel(const void *kernel, cudart_dim3_t grid, cudart_dim3_t block,
                                  void **arguments, size_t shared_bytes, berm_cu_stream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudart_error_t __cudaLaunchKernel_ptsz(const void *kernel, cudart_dim3_t grid, cudart_dim3_t block,
                                       void **arguments, size_t shared_bytes,
                                       berm_cu_stream_t stream) {
    return cudaLaunchKernel_ptsz(kernel, grid, block, arguments, shared_bytes, stream);
}

cudart_error_t cudaProfilerStart(void) {
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaProfilerStop(void) {
    return BERM_CU_SUCCESS;
}
