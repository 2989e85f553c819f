// SPDX-License-Identifier: Apache-2.0
// Compares allocator/base/cuda_abi.h, stress/calibrate/module_abi.h and simcuda/driver/module_abi.h
// with the CUDA toolkit's cuda.h: sizes, offsets, values and, by FUNCTION lines that
// check_cuda_abi.py makes from the header's comments, every function type. It is only compiled,
// never run; C++ because templates can take function types apart.
#include <cstddef>
#include <type_traits>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/cuda_abi.h"
#include "simcuda/driver/module_abi.h"
#include "stress/calibrate/module_abi.h"

// --- functions: same number of arguments; each of the same kind (pointer or not) and size -----

template <typename A, typename B>
constexpr bool same_kind = std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B);

template <typename A, typename B> struct same_abi : std::false_type {};
template <typename RA, typename... A, typename RB, typename... B>
struct same_abi<RA (*)(A...), RB (*)(B...)> {
    static constexpr bool compare() {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return (same_kind<RA, RB> && ... && same_kind<A, B>);
    }
    static constexpr bool value = compare();
};

#define FUNCTION(ours, theirs)                                                                     \
    static_assert(same_abi<ours, theirs>::value, #ours " differs from " #theirs)

#include <cuda_abi_functions.inc> // made by check_cuda_abi.py

// --- types -----------------------------------------------------------------------------------

#define TYPE(ours, theirs)                                                                         \
    static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs), #ours)
#define MEMBER(ours, our_member, theirs, their_member)                                             \
    static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&                  \
                      sizeof(ours::our_member) == sizeof(theirs::their_member),                    \
                  #ours "." #our_member)

TYPE(berm_cu_result_t, CUresult);
TYPE(berm_cu_device_t, CUdevice);
TYPE(berm_cu_deviceptr_t, CUdeviceptr);
TYPE(berm_cu_mem_handle_t, CUmemGenericAllocationHandle);
static_assert(std::is_same_v<berm_cu_context_t, CUcontext>);
static_assert(std::is_same_v<berm_cu_stream_t, CUstream>);
static_assert(std::is_same_v<berm_cu_event_t, CUevent>);
static_assert(std::is_same_v<berm_cu_graph_t, CUgraph>);
static_assert(std::is_same_v<berm_cu_graph_node_t, CUgraphNode>);
static_assert(std::is_same_v<berm_cu_graph_exec_t, CUgraphExec>);
static_assert(std::is_same_v<berm_cu_mem_pool_t, CUmemoryPool>);
static_assert(std::is_same_v<berm_cu_host_fn, CUhostFn>);
TYPE(berm_cu_ipc_mem_handle_t, CUipcMemHandle);
TYPE(berm_cu_ipc_event_handle_t, CUipcEventHandle);
TYPE(berm_cu_mem_pool_props_t, CUmemPoolProps);
MEMBER(berm_cu_mem_pool_props_t, type, CUmemPoolProps, allocType);
MEMBER(berm_cu_mem_pool_props_t, handle_types, CUmemPoolProps, handleTypes);
MEMBER(berm_cu_mem_pool_props_t, location, CUmemPoolProps, location);
MEMBER(berm_cu_mem_pool_props_t, win32_security_attributes, CUmemPoolProps,
       win32SecurityAttributes);
MEMBER(berm_cu_mem_pool_props_t, max_size, CUmemPoolProps, maxSize);
MEMBER(berm_cu_mem_pool_props_t, usage, CUmemPoolProps, usage);
MEMBER(berm_cu_mem_pool_props_t, reserved, CUmemPoolProps, reserved);
TYPE(berm_cu_array_t, CUDA_ARRAY_DESCRIPTOR);
MEMBER(berm_cu_array_t, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
TYPE(berm_cu_array3d_t, CUDA_ARRAY3D_DESCRIPTOR);
MEMBER(berm_cu_array3d_t, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
MEMBER(berm_cu_array3d_t, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
TYPE(berm_cu_uuid_t, CUuuid);
TYPE(berm_cu_fabric_handle_t, CUmemFabricHandle);
TYPE(berm_cu_mem_location_t, CUmemLocation);
MEMBER(berm_cu_mem_location_t, type, CUmemLocation, type);
MEMBER(berm_cu_mem_location_t, id, CUmemLocation, id);
TYPE(berm_cu_mem_access_t, CUmemAccessDesc);
MEMBER(berm_cu_mem_access_t, location, CUmemAccessDesc, location);
MEMBER(berm_cu_mem_access_t, flags, CUmemAccessDesc, flags);
TYPE(berm_cu_mem_prop_t, CUmemAllocationProp);
MEMBER(berm_cu_mem_prop_t, type, CUmemAllocationProp, type);
MEMBER(berm_cu_mem_prop_t, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
MEMBER(berm_cu_mem_prop_t, location, CUmemAllocationProp, location);
MEMBER(berm_cu_mem_prop_t, win32_handle_metadata, CUmemAllocationProp, win32HandleMetaData);
MEMBER(berm_cu_mem_prop_t, alloc_flags, CUmemAllocationProp, allocFlags);
MEMBER(berm_cu_mem_prop_t, alloc_flags.compression_type, CUmemAllocationProp,
       allocFlags.compressionType);
MEMBER(berm_cu_mem_prop_t, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp,
       allocFlags.gpuDirectRDMACapable);
MEMBER(berm_cu_mem_prop_t, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
static_assert(std::is_same_v<stress_cu_module_t, CUmodule>);
static_assert(std::is_same_v<stress_cu_function_t, CUfunction>);
static_assert(std::is_same_v<sim_cu_module_t, CUmodule>);
static_assert(std::is_same_v<sim_cu_function_t, CUfunction>);
static_assert(std::is_same_v<sim_cu_kernel_t, CUkernel>);
static_assert(std::is_same_v<sim_cu_library_t, CUlibrary>);
static_assert(std::is_same_v<sim_cu_linker_t, CUlinkState>);
TYPE(sim_cu_launch_config_t, CUlaunchConfig);
MEMBER(sim_cu_launch_config_t, block_x, CUlaunchConfig, blockDimX);
MEMBER(sim_cu_launch_config_t, shared_bytes, CUlaunchConfig, sharedMemBytes);
MEMBER(sim_cu_launch_config_t, stream, CUlaunchConfig, hStream);
MEMBER(sim_cu_launch_config_t, attributes, CUlaunchConfig, attrs);
MEMBER(sim_cu_launch_config_t, attribute_count, CUlaunchConfig, numAttrs);
TYPE(stress_cu_launch_attribute_t, CUlaunchAttribute);
MEMBER(stress_cu_launch_attribute_t, id, CUlaunchAttribute, id);
MEMBER(stress_cu_launch_attribute_t, value, CUlaunchAttribute, value);
MEMBER(stress_cu_launch_attribute_t, value.programmatic_allowed, CUlaunchAttribute,
       value.programmaticStreamSerializationAllowed);
TYPE(stress_cu_launch_config_t, CUlaunchConfig);
MEMBER(stress_cu_launch_config_t, grid_x, CUlaunchConfig, gridDimX);
MEMBER(stress_cu_launch_config_t, grid_y, CUlaunchConfig, gridDimY);
MEMBER(stress_cu_launch_config_t, grid_z, CUlaunchConfig, gridDimZ);
MEMBER(stress_cu_launch_config_t, block_x, CUlaunchConfig, blockDimX);
MEMBER(stress_cu_launch_config_t, block_y, CUlaunchConfig, blockDimY);
MEMBER(stress_cu_launch_config_t, block_z, CUlaunchConfig, blockDimZ);
MEMBER(stress_cu_launch_config_t, shared_bytes, CUlaunchConfig, sharedMemBytes);
MEMBER(stress_cu_launch_config_t, stream, CUlaunchConfig, hStream);
MEMBER(stress_cu_launch_config_t, attributes, CUlaunchConfig, attrs);
MEMBER(stress_cu_launch_config_t, attribute_count, CUlaunchConfig, numAttrs);

// --- values ----------------------------------------------------------------------------------

#define VALUE(ours, theirs)                                                                        \
    static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)

VALUE(BERM_CU_SUCCESS, CUDA_SUCCESS);
#define RESULT(name) VALUE(BERM_CU_##name, CUDA_ERROR_##name)
RESULT(INVALID_VALUE);
RESULT(OUT_OF_MEMORY);
RESULT(NOT_INITIALIZED);
RESULT(DEINITIALIZED);
RESULT(STUB_LIBRARY);
RESULT(DEVICE_UNAVAILABLE);
RESULT(NO_DEVICE);
RESULT(INVALID_DEVICE);
RESULT(INVALID_CONTEXT);
RESULT(ALREADY_MAPPED);
RESULT(NOT_MAPPED);
RESULT(PEER_ACCESS_UNSUPPORTED);
RESULT(OPERATING_SYSTEM);
RESULT(INVALID_HANDLE);
RESULT(ILLEGAL_STATE);
RESULT(NOT_FOUND);
RESULT(NOT_READY);
RESULT(ILLEGAL_ADDRESS);
RESULT(PEER_ACCESS_ALREADY_ENABLED);
RESULT(PEER_ACCESS_NOT_ENABLED);
RESULT(PRIMARY_CONTEXT_ACTIVE);
RESULT(CONTEXT_IS_DESTROYED);
RESULT(TOO_MANY_PEERS);
RESULT(LAUNCH_FAILED);
RESULT(COOPERATIVE_LAUNCH_TOO_LARGE);
RESULT(INVALID_IMAGE);
RESULT(FILE_NOT_FOUND);
RESULT(NOT_PERMITTED);
RESULT(NOT_SUPPORTED);
RESULT(SYSTEM_NOT_READY);
RESULT(STREAM_CAPTURE_UNSUPPORTED);
RESULT(STREAM_CAPTURE_INVALIDATED);
RESULT(STREAM_CAPTURE_MERGE);
RESULT(STREAM_CAPTURE_UNMATCHED);
RESULT(STREAM_CAPTURE_UNJOINED);
RESULT(STREAM_CAPTURE_ISOLATION);
RESULT(STREAM_CAPTURE_IMPLICIT);
RESULT(CAPTURED_EVENT);
RESULT(STREAM_CAPTURE_WRONG_THREAD);
RESULT(TIMEOUT);
RESULT(UNKNOWN);

VALUE(BERM_CU_FUNC_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
VALUE(BERM_CU_FUNC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
VALUE(BERM_CU_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
VALUE(BERM_CU_FUNC_PTX_VERSION, CU_FUNC_ATTRIBUTE_PTX_VERSION);
VALUE(BERM_CU_FUNC_BINARY_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
VALUE(BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
VALUE(BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
VALUE(BERM_CU_FUNC_CLUSTER_MUST_BE_SET, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
VALUE(BERM_CU_FUNC_ATTRIBUTES, CU_FUNC_ATTRIBUTE_MAX);
VALUE(STRESS_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC,
      CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

// BERM_CU_STREAM_LEGACY and _PER_THREAD are pointers, which C++ does not compare at compile time.

VALUE(BERM_CU_MEM_LOCATION_INVALID, CU_MEM_LOCATION_TYPE_INVALID);
VALUE(BERM_CU_MEM_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
VALUE(BERM_CU_MEM_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
VALUE(BERM_CU_MEM_LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA);
VALUE(BERM_CU_MEM_LOCATION_HOST_NUMA_CURRENT, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
VALUE(BERM_CU_MEM_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
VALUE(BERM_CU_MEM_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
VALUE(BERM_CU_MEM_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
VALUE(BERM_CU_MEM_HANDLE_WIN32, CU_MEM_HANDLE_TYPE_WIN32);
VALUE(BERM_CU_MEM_HANDLE_WIN32_KMT, CU_MEM_HANDLE_TYPE_WIN32_KMT);
VALUE(BERM_CU_MEM_HANDLE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC);
VALUE(BERM_CU_MEM_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
VALUE(BERM_CU_MEM_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
VALUE(BERM_CU_MEM_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
VALUE(BERM_CU_MEM_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
VALUE(BERM_CU_MEM_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
VALUE(BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
      CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
VALUE(BERM_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
VALUE(BERM_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
      CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
VALUE(BERM_CU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
VALUE(BERM_CU_POOL_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
VALUE(BERM_CU_POOL_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
VALUE(BERM_CU_POOL_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
VALUE(BERM_CU_POOL_USED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
VALUE(BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
VALUE(BERM_CU_P2P_PERFORMANCE_RANK, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
VALUE(BERM_CU_P2P_ACCESS_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
VALUE(BERM_CU_P2P_NATIVE_ATOMIC_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
VALUE(BERM_CU_P2P_ARRAY_ACCESS_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED);
VALUE(BERM_CU_MEM_COMPRESSION_NONE, CU_MEM_ALLOCATION_COMP_NONE);
VALUE(BERM_CU_MEM_COMPRESSION_GENERIC, CU_MEM_ALLOCATION_COMP_GENERIC);
VALUE(BERM_CU_MEM_USAGE_TILE_POOL, CU_MEM_CREATE_USAGE_TILE_POOL);

#define ATTRIBUTE(name) VALUE(BERM_CU_ATTR_##name, CU_DEVICE_ATTRIBUTE_##name)
ATTRIBUTE(MAX_THREADS_PER_BLOCK);
ATTRIBUTE(MAX_BLOCK_DIM_X);
ATTRIBUTE(MAX_BLOCK_DIM_Y);
ATTRIBUTE(MAX_BLOCK_DIM_Z);
ATTRIBUTE(MAX_GRID_DIM_X);
ATTRIBUTE(MAX_GRID_DIM_Y);
ATTRIBUTE(MAX_GRID_DIM_Z);
ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK);
ATTRIBUTE(TOTAL_CONSTANT_MEMORY);
ATTRIBUTE(MAX_PITCH);
ATTRIBUTE(MAX_REGISTERS_PER_BLOCK);
ATTRIBUTE(TEXTURE_ALIGNMENT);
ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR);
ATTRIBUTE(COOPERATIVE_LAUNCH);
ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR);
ATTRIBUTE(ECC_ENABLED);
ATTRIBUTE(MEMORY_CLOCK_RATE);
VALUE(BERM_CU_ATTR_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
ATTRIBUTE(WARP_SIZE);
ATTRIBUTE(CLOCK_RATE);
ATTRIBUTE(MULTIPROCESSOR_COUNT);
ATTRIBUTE(INTEGRATED);
ATTRIBUTE(CAN_MAP_HOST_MEMORY);
ATTRIBUTE(COMPUTE_MODE);
ATTRIBUTE(CONCURRENT_KERNELS);
ATTRIBUTE(PCI_BUS_ID);
ATTRIBUTE(PCI_DEVICE_ID);
ATTRIBUTE(L2_CACHE_SIZE);
ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR);
ATTRIBUTE(ASYNC_ENGINE_COUNT);
ATTRIBUTE(UNIFIED_ADDRESSING);
ATTRIBUTE(PCI_DOMAIN_ID);
ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED);
ATTRIBUTE(MANAGED_MEMORY);
ATTRIBUTE(PAGEABLE_MEMORY_ACCESS);
ATTRIBUTE(CONCURRENT_MANAGED_ACCESS);
ATTRIBUTE(GENERIC_COMPRESSION_SUPPORTED);
ATTRIBUTE(MEMORY_POOLS_SUPPORTED);
ATTRIBUTE(MULTICAST_SUPPORTED);
ATTRIBUTE(IPC_EVENT_SUPPORTED);
VALUE(BERM_CU_ATTR_VMM_SUPPORTED, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
VALUE(BERM_CU_ATTR_POSIX_FD_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
VALUE(BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
VALUE(BERM_CU_ATTR_RDMA_SUPPORTED, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
VALUE(BERM_CU_ATTR_FABRIC_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
#if CUDA_VERSION == 13000
ATTRIBUTE(MAX);
#endif

#define POINTER(name) VALUE(BERM_CU_POINTER_##name, CU_POINTER_ATTRIBUTE_##name)
POINTER(CONTEXT);
POINTER(MEMORY_TYPE);
POINTER(DEVICE_POINTER);
POINTER(HOST_POINTER);
POINTER(SYNC_MEMOPS);
POINTER(BUFFER_ID);
POINTER(IS_MANAGED);
POINTER(DEVICE_ORDINAL);
POINTER(RANGE_SIZE);
POINTER(MAPPED);
POINTER(ALLOWED_HANDLE_TYPES);
POINTER(ACCESS_FLAGS);
POINTER(MEMPOOL_HANDLE);
POINTER(MAPPING_SIZE);
POINTER(MEMORY_BLOCK_ID);
VALUE(BERM_CU_POINTER_IS_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
VALUE(BERM_CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
VALUE(BERM_CU_POINTER_IS_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
VALUE(BERM_CU_POINTER_MAPPING_BASE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
VALUE(BERM_CU_FORMAT_UINT8, CU_AD_FORMAT_UNSIGNED_INT8);
VALUE(BERM_CU_FORMAT_UINT16, CU_AD_FORMAT_UNSIGNED_INT16);
VALUE(BERM_CU_FORMAT_UINT32, CU_AD_FORMAT_UNSIGNED_INT32);
VALUE(BERM_CU_FORMAT_SINT8, CU_AD_FORMAT_SIGNED_INT8);
VALUE(BERM_CU_FORMAT_SINT16, CU_AD_FORMAT_SIGNED_INT16);
VALUE(BERM_CU_FORMAT_SINT32, CU_AD_FORMAT_SIGNED_INT32);
VALUE(BERM_CU_FORMAT_HALF, CU_AD_FORMAT_HALF);
VALUE(BERM_CU_FORMAT_FLOAT, CU_AD_FORMAT_FLOAT);
VALUE(BERM_CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST);
VALUE(BERM_CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);

VALUE(BERM_CU_CTX_SCHED_AUTO, CU_CTX_SCHED_AUTO);
VALUE(BERM_CU_CTX_SCHED_SPIN, CU_CTX_SCHED_SPIN);
VALUE(BERM_CU_CTX_SCHED_YIELD, CU_CTX_SCHED_YIELD);
VALUE(BERM_CU_CTX_SCHED_BLOCKING_SYNC, CU_CTX_SCHED_BLOCKING_SYNC);
VALUE(BERM_CU_CTX_MAP_HOST, CU_CTX_MAP_HOST);
VALUE(BERM_CU_CTX_FLAGS_MASK, CU_CTX_FLAGS_MASK);
VALUE(BERM_CU_STREAM_DEFAULT, CU_STREAM_DEFAULT);
VALUE(BERM_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
VALUE(BERM_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
VALUE(BERM_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
VALUE(BERM_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
VALUE(BERM_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
VALUE(BERM_CU_EVENT_RECORD_EXTERNAL, CU_EVENT_RECORD_EXTERNAL);
VALUE(BERM_CU_EVENT_WAIT_EXTERNAL, CU_EVENT_WAIT_EXTERNAL);
VALUE(BERM_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
VALUE(BERM_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
VALUE(BERM_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
VALUE(BERM_CU_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
VALUE(BERM_CU_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
VALUE(BERM_CU_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
VALUE(BERM_CU_CAPTURE_DEPENDENCIES_ADD, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
VALUE(BERM_CU_CAPTURE_DEPENDENCIES_SET, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
VALUE(BERM_CU_PROC_DEFAULT, CU_GET_PROC_ADDRESS_DEFAULT);
VALUE(BERM_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
VALUE(BERM_CU_PROC_PER_THREAD_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
VALUE(BERM_CU_PROC_FOUND, CU_GET_PROC_ADDRESS_SUCCESS);
VALUE(BERM_CU_PROC_SYMBOL_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
VALUE(BERM_CU_PROC_VERSION_NOT_SUFFICIENT, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
