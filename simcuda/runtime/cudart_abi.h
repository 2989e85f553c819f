// SPDX-License-Identifier: Apache-2.0
// Our own declarations of the part of the CUDA runtime's binary interface that the stand-ins
// libcudart.so.13 and libcudart.so.12 have (x86-64 Linux): CUDART_MAJOR says of which. Names are
// ours, so that this file and cuda_runtime_api.h can be included together:
// stress/real/check_abi.cpp compares every size, offset and value.
//
// The runtime's error codes are those of the driver (base/cuda_abi.h), as is each handle: a
// cudaStream_t is a CUstream, and a device's number is its CUdevice.
#ifndef SIMCUDA_RUNTIME_CUDART_ABI_H
#define SIMCUDA_RUNTIME_CUDART_ABI_H

#include <stddef.h>

#ifndef CUDART_MAJOR
#define CUDART_MAJOR 13
#endif

typedef int cudart_error_t; // cudaError_t

enum { // errors of the runtime that the driver does not have
    CUDART_INVALID_CONFIGURATION = 9,
    CUDART_INVALID_PITCH = 12,
    CUDART_INVALID_SYMBOL = 13,
    CUDART_MISSING_CONFIGURATION = 52,
    CUDART_INVALID_DEVICE_FUNCTION = 98,
    CUDART_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDART_HOST_MEMORY_NOT_REGISTERED = 713,
};

enum { // cudaUserObjectFlags, cudaUserObjectRetainFlags
    CUDART_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
    CUDART_GRAPH_USER_OBJECT_MOVE = 1,
};

enum { // cudaMemoryType
    CUDART_MEMORY_UNREGISTERED = 0,
    CUDART_MEMORY_HOST = 1,
    CUDART_MEMORY_DEVICE = 2,
    CUDART_MEMORY_MANAGED = 3,
};

enum { // cudaMemcpyKind
    CUDART_COPY_HOST_TO_HOST = 0,
    CUDART_COPY_HOST_TO_DEVICE = 1,
    CUDART_COPY_DEVICE_TO_HOST = 2,
    CUDART_COPY_DEVICE_TO_DEVICE = 3,
    CUDART_COPY_DEFAULT = 4,
};

enum { // cudaDriverEntryPointQueryResult
    CUDART_ENTRY_FOUND = 0,
    CUDART_ENTRY_NOT_FOUND = 1,
    CUDART_ENTRY_VERSION_NOT_SUFFICIENT = 2,
};

typedef struct cudart_pointer_attributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
#if CUDART_MAJOR >= 13
    long reserved[8];
#endif
} cudart_pointer_attributes_t; // cudaPointerAttributes

struct CUstream_st; // what cudaStream_t points to

typedef struct cudart_user_object cudart_user_object_t; // what cudaUserObject_t points to

typedef void (*cudart_stream_callback_fn)(struct CUstream_st *stream, cudart_error_t error,
                                          void *data); // cudaStreamCallback_t

typedef struct cudart_channel {
    int x, y, z, w; // bits
    int kind;       // cudaChannelFormatKind
} cudart_channel_t; // cudaChannelFormatDesc

typedef struct cudart_extent {
    size_t width, height, depth;
} cudart_extent_t; // cudaExtent

typedef struct cudart_dim3 {
    unsigned x, y, z;
} cudart_dim3_t; // dim3

typedef struct cudart_launch_config {
    cudart_dim3_t grid, block;
    size_t shared_bytes;
    struct CUstream_st *stream;
    void *attributes;
    unsigned attribute_count;
} cudart_launch_config_t; // cudaLaunchConfig_t

typedef struct cudart_func_attributes {
    size_t shared_bytes, constant_bytes, local_bytes;
    int max_threads_per_block;
    int registers;
    int ptx_version, binary_version;
    int cache_mode;
    int max_dynamic_shared_bytes;
    int preferred_shared_carveout;
    int must_set_cluster;
    int cluster_width, cluster_height, cluster_depth;
    int cluster_policy;
    int allows_large_cluster;
    int reserved[16];
} cudart_func_attributes_t; // cudaFuncAttributes

typedef struct cudart_device_prop {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_device_node_mask;
    size_t total_global_mem;
    size_t shared_mem_per_block;
    int regs_per_block;
    int warp_size;
    size_t mem_pitch;
    int max_threads_per_block;
    int max_threads_dim[3];
    int max_grid_size[3];
#if CUDART_MAJOR < 13
    int clock_rate;
#endif
    size_t total_const_mem;
    int major;
    int minor;
    size_t texture_alignment;
    size_t texture_pitch_alignment;
#if CUDART_MAJOR < 13
    int device_overlap;
#endif
    int multi_processor_count;
#if CUDART_MAJOR < 13
    int kernel_exec_timeout_enabled;
#endif
    int integrated;
    int can_map_host_memory;
#if CUDART_MAJOR < 13
    int compute_mode;
#endif
#if CUDART_MAJOR < 13
    int textures_and_surfaces[40]; // maxTexture1D to maxSurfaceCubemapLayered
#else
    int textures_and_surfaces[39]; // the same without maxTexture1DLinear
#endif
    size_t surface_alignment;
    int concurrent_kernels;
    int ecc_enabled;
    int pci_bus_id;
    int pci_device_id;
    int pci_domain_id;
    int tcc_driver;
    int async_engine_count;
    int unified_addressing;
#if CUDART_MAJOR < 13
    int memory_clock_rate;
#endif
    int memory_bus_width;
    int l2_cache_size;
    int persisting_l2_cache_max_size;
    int max_threads_per_multi_processor;
    int stream_priorities_supported;
    int global_l1_cache_supported;
    int local_l1_cache_supported;
    size_t shared_mem_per_multiprocessor;
    int regs_per_multiprocessor;
    int managed_memory;
    int is_multi_gpu_board;
    int multi_gpu_board_group_id;
    int host_native_atomic_supported;
#if CUDART_MAJOR < 13
    int single_to_double_precision_perf_ratio;
#endif
    int pageable_memory_access;
    int concurrent_managed_access;
    int compute_preemption_supported;
    int can_use_host_pointer_for_registered_mem;
    int cooperative_launch;
#if CUDART_MAJOR < 13
    int cooperative_multi_device_launch;
#endif
    size_t shared_mem_per_block_optin;
    int pageable_memory_access_uses_host_page_tables;
    int direct_managed_mem_access_from_host;
    int max_blocks_per_multi_processor;
    int access_policy_max_window_size;
    size_t reserved_shared_mem_per_block;
    int host_register_supported;
    int sparse_cuda_array_supported;
    int host_register_read_only_supported;
    int timeline_semaphore_interop_supported;
    int memory_pools_supported;
    int gpu_direct_rdma_supported;
    unsigned gpu_direct_rdma_flush_writes_options;
    int gpu_direct_rdma_writes_ordering;
    unsigned memory_pool_supported_handle_types;
    int deferred_mapping_cuda_array_supported;
    int ipc_event_supported;
    int cluster_launch;
    int unified_function_pointers;
#if CUDART_MAJOR < 13
    int reserved[63];
#else
    int device_numa_config;
    int device_numa_id;
    int mps_enabled;
    int host_numa_id;
    unsigned gpu_pci_device_id;
    unsigned gpu_pci_subsystem_id;
    int host_numa_multinode_ipc_supported;
    int reserved[56];
#endif
} cudart_device_prop_t; // cudaDeviceProp

#endif
