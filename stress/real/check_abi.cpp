// SPDX-License-Identifier: Apache-2.0
// Compared at setup, where CUDA's headers are at hand: our own declarations of the runtime's binary
// interface (simcuda/runtime/cudart_abi.h) with the real ones, of CUDA 13 or 12 as the headers are.
// It compiles or it does not.
#include <cstddef>

#include <cuda_runtime_api.h>

#define CUDART_MAJOR (CUDART_VERSION / 1000)
#include "allocator/base/cuda_abi.h"
#include "simcuda/runtime/cudart_abi.h"

#define SAME_OFFSET(ours, field, theirs, name)                                                     \
    static_assert(offsetof(ours, field) == offsetof(theirs, name), #name)
#define SAME_VALUE(ours, theirs)                                                                   \
    static_assert(static_cast<int>(theirs) == static_cast<int>(ours), #ours)

static_assert(sizeof(cudart_device_prop_t) == sizeof(cudaDeviceProp));
static_assert(sizeof(cudart_pointer_attributes_t) == sizeof(cudaPointerAttributes));
static_assert(sizeof(cudart_dim3_t) == sizeof(dim3));
static_assert(sizeof(cudart_launch_config_t) == sizeof(cudaLaunchConfig_t));
SAME_OFFSET(cudart_launch_config_t, block, cudaLaunchConfig_t, blockDim);
SAME_OFFSET(cudart_launch_config_t, stream, cudaLaunchConfig_t, stream);
static_assert(sizeof(cudart_func_attributes_t) == sizeof(cudaFuncAttributes));
SAME_OFFSET(cudart_func_attributes_t, registers, cudaFuncAttributes, numRegs);
SAME_OFFSET(cudart_func_attributes_t, binary_version, cudaFuncAttributes, binaryVersion);
SAME_OFFSET(cudart_func_attributes_t, max_dynamic_shared_bytes, cudaFuncAttributes,
            maxDynamicSharedSizeBytes);
#if CUDART_MAJOR < 13
SAME_OFFSET(cudart_func_attributes_t, reserved, cudaFuncAttributes, reserved);
#else
SAME_OFFSET(cudart_func_attributes_t, reserved, cudaFuncAttributes, reserved0);
#endif
#define CUDART_ERROR(ours, theirs, text) SAME_VALUE(ours, theirs);
#include "simcuda/runtime/errors.def"
SAME_VALUE(CUDART_USER_OBJECT_NO_DESTRUCTOR_SYNC, cudaUserObjectNoDestructorSync);
SAME_VALUE(CUDART_GRAPH_USER_OBJECT_MOVE, cudaGraphUserObjectMove);
static_assert(CUDART_MAJOR == 13 || CUDART_MAJOR == 12, "the stand-ins are of CUDA 13 and 12");

SAME_OFFSET(cudart_pointer_attributes_t, type, cudaPointerAttributes, type);
SAME_OFFSET(cudart_pointer_attributes_t, device, cudaPointerAttributes, device);
SAME_OFFSET(cudart_pointer_attributes_t, device_pointer, cudaPointerAttributes, devicePointer);
SAME_OFFSET(cudart_pointer_attributes_t, host_pointer, cudaPointerAttributes, hostPointer);

#define SAME_PROP(field, name) SAME_OFFSET(cudart_device_prop_t, field, cudaDeviceProp, name)
SAME_PROP(uuid, uuid);
SAME_PROP(total_global_mem, totalGlobalMem);
SAME_PROP(shared_mem_per_block, sharedMemPerBlock);
SAME_PROP(warp_size, warpSize);
SAME_PROP(max_threads_per_block, maxThreadsPerBlock);
SAME_PROP(max_grid_size, maxGridSize);
SAME_PROP(total_const_mem, totalConstMem);
SAME_PROP(major, major);
SAME_PROP(minor, minor);
SAME_PROP(multi_processor_count, multiProcessorCount);
SAME_PROP(can_map_host_memory, canMapHostMemory);
SAME_PROP(textures_and_surfaces, maxTexture1D);
SAME_PROP(surface_alignment, surfaceAlignment);
SAME_PROP(concurrent_kernels, concurrentKernels);
SAME_PROP(pci_bus_id, pciBusID);
SAME_PROP(async_engine_count, asyncEngineCount);
SAME_PROP(unified_addressing, unifiedAddressing);
SAME_PROP(l2_cache_size, l2CacheSize);
SAME_PROP(max_threads_per_multi_processor, maxThreadsPerMultiProcessor);
SAME_PROP(stream_priorities_supported, streamPrioritiesSupported);
SAME_PROP(shared_mem_per_multiprocessor, sharedMemPerMultiprocessor);
SAME_PROP(regs_per_multiprocessor, regsPerMultiprocessor);
SAME_PROP(cooperative_launch, cooperativeLaunch);
SAME_PROP(shared_mem_per_block_optin, sharedMemPerBlockOptin);
SAME_PROP(reserved_shared_mem_per_block, reservedSharedMemPerBlock);
SAME_PROP(memory_pools_supported, memoryPoolsSupported);
SAME_PROP(gpu_direct_rdma_supported, gpuDirectRDMASupported);
SAME_PROP(regs_per_block, regsPerBlock);
SAME_PROP(texture_alignment, textureAlignment);
SAME_PROP(texture_pitch_alignment, texturePitchAlignment);
SAME_PROP(memory_bus_width, memoryBusWidth);
SAME_PROP(ecc_enabled, ECCEnabled);
SAME_PROP(pageable_memory_access, pageableMemoryAccess);
SAME_PROP(max_blocks_per_multi_processor, maxBlocksPerMultiProcessor);
SAME_PROP(unified_function_pointers, unifiedFunctionPointers);
SAME_PROP(reserved, reserved);
#if CUDART_MAJOR < 13
SAME_PROP(clock_rate, clockRate);
SAME_PROP(device_overlap, deviceOverlap);
SAME_PROP(kernel_exec_timeout_enabled, kernelExecTimeoutEnabled);
SAME_PROP(compute_mode, computeMode);
SAME_PROP(memory_clock_rate, memoryClockRate);
SAME_PROP(single_to_double_precision_perf_ratio, singleToDoublePrecisionPerfRatio);
SAME_PROP(cooperative_multi_device_launch, cooperativeMultiDeviceLaunch);
#else
SAME_PROP(host_numa_multinode_ipc_supported, hostNumaMultinodeIpcSupported);
#endif

SAME_VALUE(CUDART_MEMORY_UNREGISTERED, cudaMemoryTypeUnregistered);
SAME_VALUE(CUDART_MEMORY_HOST, cudaMemoryTypeHost);
SAME_VALUE(CUDART_MEMORY_DEVICE, cudaMemoryTypeDevice);
SAME_VALUE(CUDART_COPY_HOST_TO_HOST, cudaMemcpyHostToHost);
SAME_VALUE(CUDART_COPY_HOST_TO_DEVICE, cudaMemcpyHostToDevice);
SAME_VALUE(CUDART_COPY_DEVICE_TO_HOST, cudaMemcpyDeviceToHost);
SAME_VALUE(CUDART_COPY_DEVICE_TO_DEVICE, cudaMemcpyDeviceToDevice);
SAME_VALUE(CUDART_COPY_DEFAULT, cudaMemcpyDefault);
SAME_VALUE(CUDART_ENTRY_FOUND, cudaDriverEntryPointSuccess);
SAME_VALUE(CUDART_ENTRY_NOT_FOUND, cudaDriverEntryPointSymbolNotFound);
SAME_VALUE(CUDART_ENTRY_VERSION_NOT_SUFFICIENT, cudaDriverEntryPointVersionNotSufficent);
