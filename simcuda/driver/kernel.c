// SPDX-License-Identifier: Apache-2.0
// Kernels of modules and libraries: attributes, occupancy, launches. A launch is a piece of
// modelled work that takes the time the configuration says (kernel_ns, launch_ns) and touches
// nothing known.
//
// Locks: the state's, by sim_enter. May fail: a launch, when host memory runs out.
#include "module.h"

enum {
    BLOCK_THREADS_MAX = 1024,
    REGISTERS = 65536, // of a multiprocessor
    WARP = 32,
    GRID_YZ_MAX = 65535,
    BLOCK_Z_MAX = 64,
    CACHE_CONFIG_MAX = 3,
    CARVEOUT_MAX = 100,
};

static uint64_t function_handle(sim_cu_function_t function) {
    return (uint64_t)(uintptr_t)function;
}

// --- attributes ----------------------------------------------------------------------------------

static int attribute_get(uint64_t handle, int attribute, int *value) {
    int result;
    if (value == NULL || attribute < 0 || attribute >= BERM_CU_FUNC_ATTRIBUTES)
        return BERM_CU_INVALID_VALUE;
    const sim_function_t *function = sim_function_get(handle, &result);
    if (function != NULL)
        *value = function->attributes[attribute];
    return result;
}

// What the driver lets a program set; a kernel's figures from its compiler are not among it.
static int attribute_set(uint64_t handle, int attribute, int value) {
    int result;
    sim_function_t *function = sim_function_get(handle, &result);
    if (function == NULL)
        return result;
    if (attribute < BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES ||
        attribute == BERM_CU_FUNC_CLUSTER_MUST_BE_SET || attribute >= BERM_CU_FUNC_ATTRIBUTES)
        return BERM_CU_INVALID_VALUE;
    int least = attribute == BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT ? -1 : 0;
    int most = INT32_MAX;
    if (attribute == BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES)
        most = sim.config.gpu.shared_block_bytes;
    else if (attribute == BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT)
        most = CARVEOUT_MAX;
    if (value < least || value > most)
        return BERM_CU_INVALID_VALUE;
    function->attributes[attribute] = value;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuFuncGetAttribute(int *value, int attribute, sim_cu_function_t function) {
    int result = sim_enter(SIM_FN_cuFuncGetAttribute);
    if (result == BERM_CU_SUCCESS)
        result = attribute_get(function_handle(function), attribute, value);
    return sim_leave(result);
}

berm_cu_result_t cuFuncSetAttribute(sim_cu_function_t function, int attribute, int value) {
    int result = sim_enter(SIM_FN_cuFuncSetAttribute);
    if (result == BERM_CU_SUCCESS)
        result = attribute_set(function_handle(function), attribute, value);
    return sim_leave(result);
}

berm_cu_result_t cuKernelGetAttribute(int *value, int attribute, sim_cu_kernel_t kernel,
                                      berm_cu_device_t device) {
    int result = sim_enter(SIM_FN_cuKernelGetAttribute);
    if (result == BERM_CU_SUCCESS)
        result = sim_device_is_valid(device)
                     ? attribute_get((uint64_t)(uintptr_t)kernel, attribute, value)
                     : BERM_CU_INVALID_DEVICE;
    return sim_leave(result);
}

berm_cu_result_t cuKernelSetAttribute(int attribute, int value, sim_cu_kernel_t kernel,
                                      berm_cu_device_t device) {
    int result = sim_enter(SIM_FN_cuKernelSetAttribute);
    if (result == BERM_CU_SUCCESS)
        result = sim_device_is_valid(device)
                     ? attribute_set((uint64_t)(uintptr_t)kernel, attribute, value)
                     : BERM_CU_INVALID_DEVICE;
    return sim_leave(result);
}

berm_cu_result_t cuFuncSetCacheConfig(sim_cu_function_t function, int config) {
    int result = sim_enter(SIM_FN_cuFuncSetCacheConfig);
    if (result == BERM_CU_SUCCESS && (config < 0 || config > CACHE_CONFIG_MAX))
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS)
        (void)sim_function_get(function_handle(function), &result);
    return sim_leave(result);
}

static int name_get(uint64_t handle, const char **name) {
    int result;
    if (name == NULL)
        return BERM_CU_INVALID_VALUE;
    const sim_function_t *function = sim_function_get(handle, &result);
    if (function != NULL)
        *name = function->name;
    return result;
}

berm_cu_result_t cuFuncGetName(const char **name, sim_cu_function_t function) {
    int result = sim_enter(SIM_FN_cuFuncGetName);
    if (result == BERM_CU_SUCCESS)
        result = name_get(function_handle(function), name);
    return sim_leave(result);
}

berm_cu_result_t cuKernelGetName(const char **name, sim_cu_kernel_t kernel) {
    int result = sim_enter(SIM_FN_cuKernelGetName);
    if (result == BERM_CU_SUCCESS)
        result = name_get((uint64_t)(uintptr_t)kernel, name);
    return sim_leave(result);
}

berm_cu_result_t cuFuncGetModule(sim_cu_module_t *module, sim_cu_function_t function) {
    int result = sim_enter(SIM_FN_cuFuncGetModule);
    if (result == BERM_CU_SUCCESS && module == NULL)
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS) {
        const sim_function_t *found = sim_function_get(function_handle(function), &result);
        if (found != NULL && found->module->context == NULL)
            result = BERM_CU_NOT_FOUND; // a library's
        else if (found != NULL)
            *module = (sim_cu_module_t)(uintptr_t)found->module->handle;
    }
    return sim_leave(result);
}

// A kernel of a library is one function in every context.
berm_cu_result_t cuKernelGetFunction(sim_cu_function_t *function, sim_cu_kernel_t kernel) {
    int result = sim_enter(SIM_FN_cuKernelGetFunction);
    if (result == BERM_CU_SUCCESS && function == NULL)
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS) {
        const sim_function_t *found = sim_function_get((uint64_t)(uintptr_t)kernel, &result);
        if (found != NULL)
            *function = (sim_cu_function_t)(uintptr_t)found->handle;
    }
    return sim_leave(result);
}

// --- occupancy -----------------------------------------------------------------------------------

// Blocks of a multiprocessor that run at once; 0: not even one.
static int blocks_at_once(const sim_function_t *function, int block_threads, size_t shared_bytes) {
    const simcuda_gpu_t *gpu = &sim.config.gpu;
    const int *a = function->attributes;
    int threads = (block_threads + WARP - 1) / WARP * WARP;
    if (block_threads > a[BERM_CU_FUNC_MAX_THREADS_PER_BLOCK] ||
        shared_bytes > (size_t)a[BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES])
        return 0;
    int blocks = gpu->threads_per_multiprocessor / threads;
    int by_registers = REGISTERS / (a[BERM_CU_FUNC_REGISTERS] * threads);
    blocks = blocks < by_registers ? blocks : by_registers;
    blocks = blocks < gpu->blocks_per_multiprocessor ? blocks : gpu->blocks_per_multiprocessor;
    // Each block has a part of its own reserved, where a block cannot have all of it.
    size_t reserved = (size_t)(gpu->shared_multiprocessor_bytes - gpu->shared_block_bytes);
    size_t shared = shared_bytes + reserved;
    if (shared > 0 && (size_t)blocks > (size_t)gpu->shared_multiprocessor_bytes / shared)
        blocks = (int)((size_t)gpu->shared_multiprocessor_bytes / shared);
    return blocks;
}

static int occupancy(sim_fn_t fn, int *blocks, sim_cu_function_t function, int block_threads,
                     size_t shared_bytes) {
    int result = sim_enter(fn);
    if (result == BERM_CU_SUCCESS && (blocks == NULL || block_threads <= 0))
        result = BERM_CU_INVALID_VALUE;
    if (result != BERM_CU_SUCCESS)
        return sim_leave(result);
    const sim_function_t *found = sim_function_get(function_handle(function), &result);
    if (found != NULL)
        *blocks = blocks_at_once(found, block_threads, shared_bytes);
    return sim_leave(result);
}

berm_cu_result_t cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                             sim_cu_function_t function,
                                                             int block_threads,
                                                             size_t shared_bytes) {
    return occupancy(SIM_FN_cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, function,
                     block_threads, shared_bytes);
}

berm_cu_result_t cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                      sim_cu_function_t function,
                                                                      int block_threads,
                                                                      size_t shared_bytes,
                                                                      unsigned flags) {
    if (flags > 1)
        return BERM_CU_INVALID_VALUE;
    return occupancy(SIM_FN_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, blocks, function,
                     block_threads, shared_bytes);
}

// The block that keeps most threads of a multiprocessor busy, the largest among equals. The
// program's function is called without the lock.
berm_cu_result_t cuOccupancyMaxPotentialBlockSize(int *grid_least, int *block_threads,
                                                  sim_cu_function_t function,
                                                  sim_cu_block_to_shared_fn to_shared,
                                                  size_t shared_bytes, int block_limit) {
    int result = sim_enter(SIM_FN_cuOccupancyMaxPotentialBlockSize);
    int multiprocessors = sim.config.gpu.multiprocessors;
    if (result == BERM_CU_SUCCESS && (grid_least == NULL || block_threads == NULL))
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS)
        (void)sim_function_get(function_handle(function), &result);
    result = sim_leave(result);
    if (result != BERM_CU_SUCCESS)
        return result;
    int best = 0;
    int most = block_limit > 0 && block_limit < BLOCK_THREADS_MAX ? block_limit : BLOCK_THREADS_MAX;
    *grid_least = *block_threads = 0;
    for (int threads = most; threads > 0; threads = (threads - 1) / WARP * WARP) {
        int blocks = 0;
        size_t shared = to_shared != NULL ? to_shared(threads) : shared_bytes;
        result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared);
        if (result != BERM_CU_SUCCESS)
            return result;
        if (blocks * threads > best) {
            best = blocks * threads;
            *block_threads = threads;
            *grid_least = blocks * multiprocessors;
        }
    }
    return BERM_CU_SUCCESS;
}

// --- launches ------------------------------------------------------------------------------------

static bool is_size_valid(const sim_cu_launch_config_t *c) {
    uint64_t threads = (uint64_t)c->block_x * c->block_y * c->block_z;
    return c->grid_x > 0 && c->grid_x <= INT32_MAX && c->grid_y > 0 && c->grid_y <= GRID_YZ_MAX &&
           c->grid_z > 0 && c->grid_z <= GRID_YZ_MAX && c->block_x <= BLOCK_THREADS_MAX &&
           c->block_y <= BLOCK_THREADS_MAX && c->block_z <= BLOCK_Z_MAX && threads > 0 &&
           threads <= BLOCK_THREADS_MAX;
}

// All blocks of a cooperative launch must run at once.
static bool fits_at_once(const sim_function_t *function, const sim_cu_launch_config_t *c) {
    int threads = (int)(c->block_x * c->block_y * c->block_z);
    uint64_t room = (uint64_t)blocks_at_once(function, threads, c->shared_bytes) *
                    (uint64_t)sim.config.gpu.multiprocessors;
    return (uint64_t)c->grid_x * c->grid_y <= room &&
           (uint64_t)c->grid_x * c->grid_y * c->grid_z <= room;
}

static int launch(sim_fn_t fn, sim_cu_function_t function, const sim_cu_launch_config_t *config,
                  bool is_cooperative, void *const *parameters, void *const *extra) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return sim_leave(result);
    if (config == NULL || (config->attribute_count > 0 && config->attributes == NULL) ||
        (parameters != NULL && extra != NULL))
        return sim_leave(BERM_CU_INVALID_VALUE);
    const sim_function_t *found = sim_function_get(function_handle(function), &result);
    if (found == NULL)
        return sim_leave(result);
    if (!is_size_valid(config) ||
        config->shared_bytes > (unsigned)found->attributes[BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES])
        return sim_leave(BERM_CU_INVALID_VALUE);
    if (is_cooperative && !fits_at_once(found, config))
        return sim_leave(BERM_CU_COOPERATIVE_LAUNCH_TOO_LARGE);
    sim_stream_t *stream = sim_stream_get(config->stream, &result);
    if (stream != NULL)
        result = stream->context != sim_context_current() ? BERM_CU_INVALID_HANDLE
                                                          : sim_kernel_launch(stream, 0);
    return sim_leave(result);
}

berm_cu_result_t cuLaunchKernel(sim_cu_function_t function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared_bytes, berm_cu_stream_t stream,
                                void **parameters, void **extra) {
    sim_cu_launch_config_t config = {.grid_x = grid_x,
                                     .grid_y = grid_y,
                                     .grid_z = grid_z,
                                     .block_x = block_x,
                                     .block_y = block_y,
                                     .block_z = block_z,
                                     .shared_bytes = shared_bytes,
                                     .stream = stream};
    return launch(SIM_FN_cuLaunchKernel, function, &config, false, parameters, extra);
}

berm_cu_result_t cuLaunchCooperativeKernel(sim_cu_function_t function, unsigned grid_x,
                                           unsigned grid_y, unsigned grid_z, unsigned block_x,
                                           unsigned block_y, unsigned block_z,
                                           unsigned shared_bytes, berm_cu_stream_t stream,
                                           void **parameters) {
    sim_cu_launch_config_t config = {.grid_x = grid_x,
                                     .grid_y = grid_y,
                                     .grid_z = grid_z,
                                     .block_x = block_x,
                                     .block_y = block_y,
                                     .block_z = block_z,
                                     .shared_bytes = shared_bytes,
                                     .stream = stream};
    return launch(SIM_FN_cuLaunchCooperativeKernel, function, &config, true, parameters, NULL);
}

berm_cu_result_t cuLaunchKernelEx(const sim_cu_launch_config_t *config, sim_cu_function_t function,
                                  void **parameters, void **extra) {
    return launch(SIM_FN_cuLaunchKernelEx, function, config, false, parameters, extra);
}
