// SPDX-License-Identifier: Apache-2.0
// The driver's ABI for modules and launches of kernels, which only the rules of `berm calibrate`
// use. tests/lint/check_cuda_abi.py compares it with a toolkit's cuda.h, as base/cuda_abi.h.
#ifndef STRESS_CALIBRATE_MODULE_ABI_H
#define STRESS_CALIBRATE_MODULE_ABI_H

#include "base/cuda_abi.h"

typedef struct CUmod_st *stress_cu_module_t;    // CUmodule
typedef struct CUfunc_st *stress_cu_function_t; // CUfunction

enum {
    STRESS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC =
        6, // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
};

typedef struct stress_cu_launch_attribute { // CUlaunchAttribute
    unsigned id;
    char pad[4];
    union {
        int programmatic_allowed;
        char pad[64];
        uint64_t align;
    } value;
} stress_cu_launch_attribute_t;

typedef struct stress_cu_launch_config { // CUlaunchConfig
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    berm_cu_stream_t stream;
    stress_cu_launch_attribute_t *attributes;
    unsigned attribute_count;
} stress_cu_launch_config_t;

// clang-format off
typedef berm_cu_result_t (*stress_cu_module_load_data_fn)(stress_cu_module_t *module,
    const void *image);                                          // cuModuleLoadData, 2000
typedef berm_cu_result_t (*stress_cu_module_unload_fn)(stress_cu_module_t module); // cuModuleUnload, 2000
typedef berm_cu_result_t (*stress_cu_module_get_function_fn)(stress_cu_function_t *function,
    stress_cu_module_t module, const char *name);                // cuModuleGetFunction, 2000
typedef berm_cu_result_t (*stress_cu_launch_kernel_fn)(stress_cu_function_t function, unsigned grid_x,
    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, berm_cu_stream_t stream, void **parameters, void **extra); // cuLaunchKernel, 4000
typedef berm_cu_result_t (*stress_cu_launch_kernel_ex_fn)(const stress_cu_launch_config_t *config,
    stress_cu_function_t function, void **parameters, void **extra); // cuLaunchKernelEx, 11060
// clang-format on

#endif
