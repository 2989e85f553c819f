// SPDX-License-Identifier: Apache-2.0
// The driver's ABI for modules, libraries, the linker, launches of kernels and wide fills, which
// simcuda has and libberm does not use. tests/lint/check_cuda_abi.py compares it with a toolkit's
// cuda.h, as base/cuda_abi.h.
#ifndef SIM_MODULE_ABI_H
#define SIM_MODULE_ABI_H

#include "base/cuda_abi.h"

typedef struct CUmod_st *sim_cu_module_t;       // CUmodule
typedef struct CUfunc_st *sim_cu_function_t;    // CUfunction
typedef struct CUkern_st *sim_cu_kernel_t;      // CUkernel
typedef struct CUlib_st *sim_cu_library_t;      // CUlibrary
typedef struct CUlinkState_st *sim_cu_linker_t; // CUlinkState

enum { // CUfunction_attribute
    BERM_CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
    BERM_CU_FUNC_SHARED_BYTES = 1,
    BERM_CU_FUNC_REGISTERS = 4,
    BERM_CU_FUNC_PTX_VERSION = 5,
    BERM_CU_FUNC_BINARY_VERSION = 6,
    BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
    BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT = 9,
    BERM_CU_FUNC_CLUSTER_MUST_BE_SET = 10,
    BERM_CU_FUNC_ATTRIBUTES = 16, // the first value that is none
};

typedef struct sim_cu_launch_config { // CUlaunchConfig
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    berm_cu_stream_t stream;
    void *attributes;
    unsigned attribute_count;
} sim_cu_launch_config_t;

typedef size_t (*sim_cu_block_to_shared_fn)(int block_threads); // CUoccupancyB2DSize

// clang-format off
typedef berm_cu_result_t (*sim_module_load_fn)(sim_cu_module_t *module, const char *file);  // cuModuleLoad, 2000
typedef berm_cu_result_t (*sim_module_load_data_fn)(sim_cu_module_t *module,
    const void *image);                                                                     // cuModuleLoadData, 2000; cuModuleLoadFatBinary, 2000
typedef berm_cu_result_t (*sim_module_load_data_ex_fn)(sim_cu_module_t *module, const void *image,
    unsigned option_count, int *options, void **values);                                    // cuModuleLoadDataEx, 2010
typedef berm_cu_result_t (*sim_module_unload_fn)(sim_cu_module_t module);                   // cuModuleUnload, 2000
typedef berm_cu_result_t (*sim_module_get_function_fn)(sim_cu_function_t *function,
    sim_cu_module_t module, const char *name);                                              // cuModuleGetFunction, 2000
typedef berm_cu_result_t (*sim_library_load_data_fn)(sim_cu_library_t *library, const void *image,
    int *jit_options, void **jit_values, unsigned jit_count, int *options, void **values,
    unsigned count);                                                                        // cuLibraryLoadData, 12000
typedef berm_cu_result_t (*sim_library_unload_fn)(sim_cu_library_t library);                // cuLibraryUnload, 12000
typedef berm_cu_result_t (*sim_library_get_kernel_fn)(sim_cu_kernel_t *kernel,
    sim_cu_library_t library, const char *name);                                            // cuLibraryGetKernel, 12000
typedef berm_cu_result_t (*sim_kernel_get_function_fn)(sim_cu_function_t *function,
    sim_cu_kernel_t kernel);                                                                // cuKernelGetFunction, 12000
typedef berm_cu_result_t (*sim_kernel_get_name_fn)(const char **name, sim_cu_kernel_t kernel); // cuKernelGetName, 12030
typedef berm_cu_result_t (*sim_kernel_get_attribute_fn)(int *value, int attribute,
    sim_cu_kernel_t kernel, berm_cu_device_t device);                                       // cuKernelGetAttribute, 12000
typedef berm_cu_result_t (*sim_kernel_set_attribute_fn)(int attribute, int value,
    sim_cu_kernel_t kernel, berm_cu_device_t device);                                       // cuKernelSetAttribute, 12000
typedef berm_cu_result_t (*sim_func_get_attribute_fn)(int *value, int attribute,
    sim_cu_function_t function);                                                            // cuFuncGetAttribute, 2020
typedef berm_cu_result_t (*sim_func_set_attribute_fn)(sim_cu_function_t function, int attribute,
    int value);                                                                             // cuFuncSetAttribute, 9000
typedef berm_cu_result_t (*sim_func_set_cache_config_fn)(sim_cu_function_t function, int config); // cuFuncSetCacheConfig, 3000
typedef berm_cu_result_t (*sim_tensor_map_encode_tiled_fn)(
    void *map, int data_type, uint32_t rank, void *addr, const uint64_t *dims,
    const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
    int swizzle, int promotion, int fill); // cuTensorMapEncodeTiled, 12000
typedef berm_cu_result_t (*sim_func_get_name_fn)(const char **name, sim_cu_function_t function); // cuFuncGetName, 12030
typedef berm_cu_result_t (*sim_func_get_module_fn)(sim_cu_module_t *module,
    sim_cu_function_t function);                                                            // cuFuncGetModule, 11000
typedef berm_cu_result_t (*sim_launch_kernel_fn)(sim_cu_function_t function, unsigned grid_x,
    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, berm_cu_stream_t stream, void **parameters, void **extra);       // cuLaunchKernel, 4000
typedef berm_cu_result_t (*sim_launch_kernel_ex_fn)(const sim_cu_launch_config_t *config,
    sim_cu_function_t function, void **parameters, void **extra);                           // cuLaunchKernelEx, 11060
typedef berm_cu_result_t (*sim_launch_cooperative_fn)(sim_cu_function_t function, unsigned grid_x,
    unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared_bytes, berm_cu_stream_t stream, void **parameters);                     // cuLaunchCooperativeKernel, 9000
typedef berm_cu_result_t (*sim_occupancy_blocks_fn)(int *blocks, sim_cu_function_t function,
    int block_threads, size_t shared_bytes); // cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050
typedef berm_cu_result_t (*sim_occupancy_blocks_flags_fn)(int *blocks, sim_cu_function_t function,
    int block_threads, size_t shared_bytes, unsigned flags); // cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000
typedef berm_cu_result_t (*sim_occupancy_size_fn)(int *grid_least, int *block_threads,
    sim_cu_function_t function, sim_cu_block_to_shared_fn to_shared, size_t shared_bytes,
    int block_limit);                                                                       // cuOccupancyMaxPotentialBlockSize, 6050
typedef berm_cu_result_t (*sim_link_create_fn)(unsigned option_count, int *options, void **values,
    sim_cu_linker_t *linker);                                                               // cuLinkCreate, 6050
typedef berm_cu_result_t (*sim_link_add_data_fn)(sim_cu_linker_t linker, int type, void *data,
    size_t bytes, const char *name, unsigned option_count, int *options, void **values);    // cuLinkAddData, 6050
typedef berm_cu_result_t (*sim_link_add_file_fn)(sim_cu_linker_t linker, int type, const char *file,
    unsigned option_count, int *options, void **values);                                    // cuLinkAddFile, 6050
typedef berm_cu_result_t (*sim_link_complete_fn)(sim_cu_linker_t linker, void **image,
    size_t *bytes);                                                                         // cuLinkComplete, 5050
typedef berm_cu_result_t (*sim_link_destroy_fn)(sim_cu_linker_t linker);                    // cuLinkDestroy, 5050
typedef berm_cu_result_t (*sim_memset_d16_fn)(berm_cu_deviceptr_t to, unsigned short value,
    size_t count);                                                                          // cuMemsetD16, 3020
typedef berm_cu_result_t (*sim_memset_d32_fn)(berm_cu_deviceptr_t to, unsigned value,
    size_t count);                                                                          // cuMemsetD32, 3020
typedef berm_cu_result_t (*sim_memset_d16_async_fn)(berm_cu_deviceptr_t to, unsigned short value,
    size_t count, berm_cu_stream_t stream);                                                 // cuMemsetD16Async, 3020
typedef berm_cu_result_t (*sim_memset_d32_async_fn)(berm_cu_deviceptr_t to, unsigned value,
    size_t count, berm_cu_stream_t stream);                                                 // cuMemsetD32Async, 3020
// clang-format on

#endif
