// SPDX-License-Identifier: Apache-2.0
// Our own declarations of the part of the CUDA driver's binary interface that berm and simcuda use
// (x86-64 Linux, CUDA 12 and 13). Layouts and values are those of the driver; names are ours, so
// that this file and cuda.h can be included together, and so that the product builds without the
// CUDA toolkit. A lint test compares every size, offset and value with cuda.h where there is one.
//
// The driver's enums are ints here: a driver newer than this file may return values not listed.
// Each function type says the driver's symbol, and the version to give to cuGetProcAddress.
#ifndef BERM_BASE_CUDA_ABI_H
#define BERM_BASE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

// --- results ---------------------------------------------------------------------------------

typedef int berm_cu_result_t;

enum {
    BERM_CU_SUCCESS = 0,
    BERM_CU_INVALID_VALUE = 1,
    BERM_CU_OUT_OF_MEMORY = 2,
    BERM_CU_NOT_INITIALIZED = 3,
    BERM_CU_DEINITIALIZED = 4,
    BERM_CU_STUB_LIBRARY = 34,
    BERM_CU_DEVICE_UNAVAILABLE = 46,
    BERM_CU_NO_DEVICE = 100,
    BERM_CU_INVALID_DEVICE = 101,
    BERM_CU_INVALID_IMAGE = 200,
    BERM_CU_INVALID_CONTEXT = 201,
    BERM_CU_ALREADY_MAPPED = 208,
    BERM_CU_NOT_MAPPED = 211,
    BERM_CU_PEER_ACCESS_UNSUPPORTED = 217,
    BERM_CU_FILE_NOT_FOUND = 301,
    BERM_CU_OPERATING_SYSTEM = 304,
    BERM_CU_INVALID_HANDLE = 400,
    BERM_CU_ILLEGAL_STATE = 401,
    BERM_CU_NOT_FOUND = 500,
    BERM_CU_NOT_READY = 600,
    BERM_CU_ILLEGAL_ADDRESS = 700,
    BERM_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    BERM_CU_PEER_ACCESS_NOT_ENABLED = 705,
    BERM_CU_PRIMARY_CONTEXT_ACTIVE = 708,
    BERM_CU_CONTEXT_IS_DESTROYED = 709,
    BERM_CU_TOO_MANY_PEERS = 711,
    BERM_CU_LAUNCH_FAILED = 719,
    BERM_CU_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    BERM_CU_NOT_PERMITTED = 800,
    BERM_CU_NOT_SUPPORTED = 801,
    BERM_CU_SYSTEM_NOT_READY = 802,
    BERM_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
    BERM_CU_STREAM_CAPTURE_INVALIDATED = 901,
    BERM_CU_STREAM_CAPTURE_MERGE = 902,
    BERM_CU_STREAM_CAPTURE_UNMATCHED = 903,
    BERM_CU_STREAM_CAPTURE_UNJOINED = 904,
    BERM_CU_STREAM_CAPTURE_ISOLATION = 905,
    BERM_CU_STREAM_CAPTURE_IMPLICIT = 906,
    BERM_CU_CAPTURED_EVENT = 907,
    BERM_CU_STREAM_CAPTURE_WRONG_THREAD = 908,
    BERM_CU_TIMEOUT = 909,
    BERM_CU_UNKNOWN = 999,
};

// --- objects ---------------------------------------------------------------------------------

typedef int berm_cu_device_t;                          // CUdevice: an ordinal
typedef uint64_t berm_cu_deviceptr_t;                  // CUdeviceptr
typedef uint64_t berm_cu_mem_handle_t;                 // CUmemGenericAllocationHandle
typedef struct CUctx_st *berm_cu_context_t;            // CUcontext
typedef struct CUstream_st *berm_cu_stream_t;          // CUstream
typedef struct CUevent_st *berm_cu_event_t;            // CUevent
typedef struct CUgraph_st *berm_cu_graph_t;            // CUgraph
typedef struct CUgraphNode_st *berm_cu_graph_node_t;   // CUgraphNode
typedef struct CUgraphExec_st *berm_cu_graph_exec_t;   // CUgraphExec
typedef struct CUmemPoolHandle_st *berm_cu_mem_pool_t; // CUmemoryPool
typedef void (*berm_cu_host_fn)(void *user_data);      // CUhostFn

// Elements of arrays (CUarray_format), those of one to four bytes a channel.
enum {
    BERM_CU_FORMAT_UINT8 = 1,
    BERM_CU_FORMAT_UINT16 = 2,
    BERM_CU_FORMAT_UINT32 = 3,
    BERM_CU_FORMAT_SINT8 = 8,
    BERM_CU_FORMAT_SINT16 = 9,
    BERM_CU_FORMAT_SINT32 = 10,
    BERM_CU_FORMAT_HALF = 16,
    BERM_CU_FORMAT_FLOAT = 32,
};

typedef struct berm_cu_array {
    size_t width, height; // 0: one dimension
    int format;
    unsigned channels;
} berm_cu_array_t; // CUDA_ARRAY_DESCRIPTOR

typedef struct berm_cu_array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} berm_cu_array3d_t; // CUDA_ARRAY3D_DESCRIPTOR

typedef struct berm_cu_uuid {
    char bytes[16];
} berm_cu_uuid_t; // CUuuid

// The two stream handles that are not objects; NULL is one of them by the way it was compiled.
#define BERM_CU_STREAM_LEGACY     ((berm_cu_stream_t)0x1)
#define BERM_CU_STREAM_PER_THREAD ((berm_cu_stream_t)0x2)

// --- virtual memory management ---------------------------------------------------------------

enum { // CUmemLocationType
    BERM_CU_MEM_LOCATION_INVALID = 0,
    BERM_CU_MEM_LOCATION_DEVICE = 1,
    BERM_CU_MEM_LOCATION_HOST = 2,
    BERM_CU_MEM_LOCATION_HOST_NUMA = 3,
    BERM_CU_MEM_LOCATION_HOST_NUMA_CURRENT = 4,
};

enum { // CUmemAllocationType
    BERM_CU_MEM_ALLOCATION_PINNED = 1,
};

enum { // CUmemAllocationHandleType: bits
    BERM_CU_MEM_HANDLE_NONE = 0,
    BERM_CU_MEM_HANDLE_POSIX_FD = 1,
    BERM_CU_MEM_HANDLE_WIN32 = 2,
    BERM_CU_MEM_HANDLE_WIN32_KMT = 4,
    BERM_CU_MEM_HANDLE_FABRIC = 8,
};

enum { // CUmemAllocationGranularity_flags
    BERM_CU_MEM_GRANULARITY_MINIMUM = 0,
    BERM_CU_MEM_GRANULARITY_RECOMMENDED = 1,
};

enum { // CUmemAccess_flags
    BERM_CU_MEM_ACCESS_NONE = 0,
    BERM_CU_MEM_ACCESS_READ = 1,
    BERM_CU_MEM_ACCESS_READWRITE = 3,
};

enum { // CUmemAllocationProp.allocFlags
    BERM_CU_MEM_COMPRESSION_NONE = 0,
    BERM_CU_MEM_COMPRESSION_GENERIC = 1,
    BERM_CU_MEM_USAGE_TILE_POOL = 1,
};

typedef struct berm_cu_mem_location {
    int type;
    int id;
} berm_cu_mem_location_t; // CUmemLocation

typedef struct berm_cu_mem_prop {
    int type;
    int requested_handle_types;
    berm_cu_mem_location_t location;
    void *win32_handle_metadata;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } alloc_flags;
} berm_cu_mem_prop_t; // CUmemAllocationProp

typedef struct berm_cu_mem_access {
    berm_cu_mem_location_t location;
    int flags;
} berm_cu_mem_access_t; // CUmemAccessDesc

typedef struct berm_cu_fabric_handle {
    unsigned char data[64];
} berm_cu_fabric_handle_t; // CUmemFabricHandle

typedef struct berm_cu_mem_pool_props {
    int type;
    int handle_types;
    berm_cu_mem_location_t location;
    void *win32_security_attributes;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} berm_cu_mem_pool_props_t; // CUmemPoolProps

enum { // CUmemPool_attribute; the first three are ints, the others 64-bit counts of bytes
    BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
    BERM_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC = 2,
    BERM_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    BERM_CU_POOL_RELEASE_THRESHOLD = 4,
    BERM_CU_POOL_RESERVED_MEM_CURRENT = 5,
    BERM_CU_POOL_RESERVED_MEM_HIGH = 6,
    BERM_CU_POOL_USED_MEM_CURRENT = 7,
    BERM_CU_POOL_USED_MEM_HIGH = 8,
};

// --- between processes -----------------------------------------------------------------------

typedef struct berm_cu_ipc_mem_handle {
    char reserved[64];
} berm_cu_ipc_mem_handle_t; // CUipcMemHandle

typedef struct berm_cu_ipc_event_handle {
    char reserved[64];
} berm_cu_ipc_event_handle_t; // CUipcEventHandle

enum { // CUipcMem_flags
    BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
};

// --- attributes ------------------------------------------------------------------------------

enum { // CUdevice_attribute, those we ask for
    BERM_CU_ATTR_MAX_THREADS_PER_BLOCK = 1,
    BERM_CU_ATTR_MAX_BLOCK_DIM_X = 2,
    BERM_CU_ATTR_MAX_BLOCK_DIM_Y = 3,
    BERM_CU_ATTR_MAX_BLOCK_DIM_Z = 4,
    BERM_CU_ATTR_MAX_GRID_DIM_X = 5,
    BERM_CU_ATTR_MAX_GRID_DIM_Y = 6,
    BERM_CU_ATTR_MAX_GRID_DIM_Z = 7,
    BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    BERM_CU_ATTR_TOTAL_CONSTANT_MEMORY = 9,
    BERM_CU_ATTR_WARP_SIZE = 10,
    BERM_CU_ATTR_MAX_PITCH = 11,
    BERM_CU_ATTR_MAX_REGISTERS_PER_BLOCK = 12,
    BERM_CU_ATTR_CLOCK_RATE = 13,
    BERM_CU_ATTR_TEXTURE_ALIGNMENT = 14,
    BERM_CU_ATTR_MULTIPROCESSOR_COUNT = 16,
    BERM_CU_ATTR_INTEGRATED = 18,
    BERM_CU_ATTR_CAN_MAP_HOST_MEMORY = 19,
    BERM_CU_ATTR_COMPUTE_MODE = 20,
    BERM_CU_ATTR_CONCURRENT_KERNELS = 31,
    BERM_CU_ATTR_ECC_ENABLED = 32,
    BERM_CU_ATTR_PCI_BUS_ID = 33,
    BERM_CU_ATTR_PCI_DEVICE_ID = 34,
    BERM_CU_ATTR_MEMORY_CLOCK_RATE = 36,
    BERM_CU_ATTR_MEMORY_BUS_WIDTH = 37,
    BERM_CU_ATTR_L2_CACHE_SIZE = 38,
    BERM_CU_ATTR_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    BERM_CU_ATTR_ASYNC_ENGINE_COUNT = 40,
    BERM_CU_ATTR_UNIFIED_ADDRESSING = 41,
    BERM_CU_ATTR_PCI_DOMAIN_ID = 50,
    BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
    BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
    BERM_CU_ATTR_STREAM_PRIORITIES_SUPPORTED = 78,
    BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    BERM_CU_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    BERM_CU_ATTR_MANAGED_MEMORY = 83,
    BERM_CU_ATTR_PAGEABLE_MEMORY_ACCESS = 88,
    BERM_CU_ATTR_CONCURRENT_MANAGED_ACCESS = 89,
    BERM_CU_ATTR_COOPERATIVE_LAUNCH = 95,
    BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    BERM_CU_ATTR_VMM_SUPPORTED = 102,
    BERM_CU_ATTR_POSIX_FD_SUPPORTED = 103,
    BERM_CU_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    BERM_CU_ATTR_GENERIC_COMPRESSION_SUPPORTED = 107,
    BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED = 110,
    BERM_CU_ATTR_MEMORY_POOLS_SUPPORTED = 115,
    BERM_CU_ATTR_RDMA_SUPPORTED = 116,
    BERM_CU_ATTR_IPC_EVENT_SUPPORTED = 125,
    BERM_CU_ATTR_FABRIC_SUPPORTED = 128,
    BERM_CU_ATTR_MULTICAST_SUPPORTED = 132,
    BERM_CU_ATTR_MAX = 148, // the first value CUDA 13.0 does not know
};

enum { // CUdevice_P2PAttribute
    BERM_CU_P2P_PERFORMANCE_RANK = 1,
    BERM_CU_P2P_ACCESS_SUPPORTED = 2,
    BERM_CU_P2P_NATIVE_ATOMIC_SUPPORTED = 3,
    BERM_CU_P2P_ARRAY_ACCESS_SUPPORTED = 4,
};

enum { // CUpointer_attribute
    BERM_CU_POINTER_CONTEXT = 1,
    BERM_CU_POINTER_MEMORY_TYPE = 2,
    BERM_CU_POINTER_DEVICE_POINTER = 3,
    BERM_CU_POINTER_HOST_POINTER = 4,
    BERM_CU_POINTER_SYNC_MEMOPS = 6,
    BERM_CU_POINTER_BUFFER_ID = 7,
    BERM_CU_POINTER_IS_MANAGED = 8,
    BERM_CU_POINTER_DEVICE_ORDINAL = 9,
    BERM_CU_POINTER_IS_LEGACY_IPC_CAPABLE = 10,
    BERM_CU_POINTER_RANGE_START = 11,
    BERM_CU_POINTER_RANGE_SIZE = 12,
    BERM_CU_POINTER_MAPPED = 13,
    BERM_CU_POINTER_ALLOWED_HANDLE_TYPES = 14,
    BERM_CU_POINTER_IS_RDMA_CAPABLE = 15,
    BERM_CU_POINTER_ACCESS_FLAGS = 16,
    BERM_CU_POINTER_MEMPOOL_HANDLE = 17,
    BERM_CU_POINTER_MAPPING_SIZE = 18,
    BERM_CU_POINTER_MAPPING_BASE = 19,
    BERM_CU_POINTER_MEMORY_BLOCK_ID = 20,
};

enum { // CUmemorytype
    BERM_CU_MEMORYTYPE_HOST = 1,
    BERM_CU_MEMORYTYPE_DEVICE = 2,
};

// --- flags -----------------------------------------------------------------------------------

enum { // CUctx_flags, CUstream_flags
    BERM_CU_CTX_SCHED_AUTO = 0,
    BERM_CU_CTX_SCHED_SPIN = 1,
    BERM_CU_CTX_SCHED_YIELD = 2,
    BERM_CU_CTX_SCHED_BLOCKING_SYNC = 4,
    BERM_CU_CTX_MAP_HOST = 8,
    BERM_CU_CTX_FLAGS_MASK = 0xff,
    BERM_CU_STREAM_DEFAULT = 0,
    BERM_CU_STREAM_NON_BLOCKING = 1,
};

enum { // CUevent_flags, CUevent_record_flags, CUevent_wait_flags
    BERM_CU_EVENT_DEFAULT = 0,
    BERM_CU_EVENT_BLOCKING_SYNC = 1,
    BERM_CU_EVENT_DISABLE_TIMING = 2,
    BERM_CU_EVENT_INTERPROCESS = 4,
    BERM_CU_EVENT_RECORD_EXTERNAL = 1,
    BERM_CU_EVENT_WAIT_EXTERNAL = 1,
};

enum { // CUstreamCaptureMode
    BERM_CU_CAPTURE_GLOBAL = 0,
    BERM_CU_CAPTURE_THREAD_LOCAL = 1,
    BERM_CU_CAPTURE_RELAXED = 2,
};

enum { // CUstreamCaptureStatus
    BERM_CU_CAPTURE_STATUS_NONE = 0,
    BERM_CU_CAPTURE_STATUS_ACTIVE = 1,
    BERM_CU_CAPTURE_STATUS_INVALIDATED = 2,
};

enum { // CUstreamUpdateCaptureDependencies_flags
    BERM_CU_CAPTURE_DEPENDENCIES_ADD = 0,
    BERM_CU_CAPTURE_DEPENDENCIES_SET = 1,
};

enum { // CUdriverProcAddress_flags, CUdriverProcAddressQueryResult
    BERM_CU_PROC_DEFAULT = 0,
    BERM_CU_PROC_LEGACY_STREAM = 1,
    BERM_CU_PROC_PER_THREAD_STREAM = 2,
    BERM_CU_PROC_FOUND = 0,
    BERM_CU_PROC_SYMBOL_NOT_FOUND = 1,
    BERM_CU_PROC_VERSION_NOT_SUFFICIENT = 2,
};

// --- functions -------------------------------------------------------------------------------
// The comment is the exported symbol and the version that cuGetProcAddress knows it by; the name
// to ask cuGetProcAddress for is the symbol without _v2, _v3, _v4.

// clang-format off
typedef berm_cu_result_t (*berm_cu_init_fn)(unsigned flags);                          // cuInit, 2000
typedef berm_cu_result_t (*berm_cu_driver_get_version_fn)(int *version);              // cuDriverGetVersion, 2020
typedef berm_cu_result_t (*berm_cu_get_error_name_fn)(berm_cu_result_t error, const char **name);     // cuGetErrorName, 6000
typedef berm_cu_result_t (*berm_cu_get_error_string_fn)(berm_cu_result_t error, const char **text);   // cuGetErrorString, 6000
typedef berm_cu_result_t (*berm_cu_get_proc_address_v1_fn)(const char *symbol, void **fn, int version,
    uint64_t flags);                                                                  // cuGetProcAddress, 11030
typedef berm_cu_result_t (*berm_cu_get_proc_address_fn)(const char *symbol, void **fn, int version,
    uint64_t flags, int *status);                                                     // cuGetProcAddress_v2, 12000

typedef berm_cu_result_t (*berm_cu_device_get_count_fn)(int *count);                  // cuDeviceGetCount, 2000
typedef berm_cu_result_t (*berm_cu_device_get_fn)(berm_cu_device_t *device, int ordinal);             // cuDeviceGet, 2000
typedef berm_cu_result_t (*berm_cu_device_get_name_fn)(char *name, int length, berm_cu_device_t device); // cuDeviceGetName, 2000
typedef berm_cu_result_t (*berm_cu_device_get_attribute_fn)(int *value, int attribute,
    berm_cu_device_t device);                                                         // cuDeviceGetAttribute, 2000
typedef berm_cu_result_t (*berm_cu_device_total_mem_fn)(size_t *bytes, berm_cu_device_t device);      // cuDeviceTotalMem_v2, 3020
typedef berm_cu_result_t (*berm_cu_device_get_uuid_fn)(berm_cu_uuid_t *uuid, berm_cu_device_t device); // cuDeviceGetUuid_v2, 11040
typedef berm_cu_result_t (*berm_cu_device_can_access_peer_fn)(int *can, berm_cu_device_t device,
    berm_cu_device_t peer);                                                           // cuDeviceCanAccessPeer, 4000

typedef berm_cu_result_t (*berm_cu_primary_ctx_retain_fn)(berm_cu_context_t *context,
    berm_cu_device_t device);                                                         // cuDevicePrimaryCtxRetain, 7000
typedef berm_cu_result_t (*berm_cu_primary_ctx_release_fn)(berm_cu_device_t device);  // cuDevicePrimaryCtxRelease_v2, 11000
typedef berm_cu_result_t (*berm_cu_primary_ctx_reset_fn)(berm_cu_device_t device);    // cuDevicePrimaryCtxReset_v2, 11000
typedef berm_cu_result_t (*berm_cu_primary_ctx_set_flags_fn)(berm_cu_device_t device,
    unsigned flags);                                                                  // cuDevicePrimaryCtxSetFlags_v2, 11000
typedef berm_cu_result_t (*berm_cu_primary_ctx_get_state_fn)(berm_cu_device_t device, unsigned *flags,
    int *active);                                                                     // cuDevicePrimaryCtxGetState, 7000
typedef berm_cu_result_t (*berm_cu_ctx_create_fn)(berm_cu_context_t *context, unsigned flags,
    berm_cu_device_t device);                                                         // cuCtxCreate_v2, 3020
typedef berm_cu_result_t (*berm_cu_ctx_create_v3_fn)(berm_cu_context_t *context, void *affinity, int count,
    unsigned flags, berm_cu_device_t device);                                         // cuCtxCreate_v3, 11040
typedef berm_cu_result_t (*berm_cu_ctx_create_v4_fn)(berm_cu_context_t *context, void *params, unsigned flags,
    berm_cu_device_t device);                                                         // cuCtxCreate_v4, 12050
typedef berm_cu_result_t (*berm_cu_ctx_destroy_fn)(berm_cu_context_t context);        // cuCtxDestroy_v2, 4000
typedef berm_cu_result_t (*berm_cu_ctx_get_current_fn)(berm_cu_context_t *context);   // cuCtxGetCurrent, 4000
typedef berm_cu_result_t (*berm_cu_ctx_set_current_fn)(berm_cu_context_t context);    // cuCtxSetCurrent, 4000
typedef berm_cu_result_t (*berm_cu_ctx_push_current_fn)(berm_cu_context_t context);   // cuCtxPushCurrent_v2, 4000
typedef berm_cu_result_t (*berm_cu_ctx_pop_current_fn)(berm_cu_context_t *context);   // cuCtxPopCurrent_v2, 4000
typedef berm_cu_result_t (*berm_cu_ctx_get_device_fn)(berm_cu_device_t *device);      // cuCtxGetDevice, 2000
typedef berm_cu_result_t (*berm_cu_ctx_synchronize_fn)(void);                         // cuCtxSynchronize, 2000
typedef berm_cu_result_t (*berm_cu_ctx_record_event_fn)(berm_cu_context_t context,
    berm_cu_event_t event);                                                           // cuCtxRecordEvent, 12050

typedef berm_cu_result_t (*berm_cu_mem_get_info_fn)(size_t *free_bytes, size_t *total_bytes);         // cuMemGetInfo_v2, 3020
typedef berm_cu_result_t (*berm_cu_mem_alloc_fn)(berm_cu_deviceptr_t *addr, size_t bytes);            // cuMemAlloc_v2, 3020
typedef berm_cu_result_t (*berm_cu_mem_free_fn)(berm_cu_deviceptr_t addr);            // cuMemFree_v2, 3020
typedef berm_cu_result_t (*berm_cu_mem_get_address_range_fn)(berm_cu_deviceptr_t *base, size_t *bytes,
    berm_cu_deviceptr_t addr);                                                        // cuMemGetAddressRange_v2, 3020
typedef berm_cu_result_t (*berm_cu_pointer_get_attribute_fn)(void *data, int attribute,
    berm_cu_deviceptr_t addr);                                                        // cuPointerGetAttribute, 4000
typedef berm_cu_result_t (*berm_cu_pointer_get_attributes_fn)(unsigned count, int *attributes, void **data,
    berm_cu_deviceptr_t addr);                                                        // cuPointerGetAttributes, 7000

typedef berm_cu_result_t (*berm_cu_mem_address_reserve_fn)(berm_cu_deviceptr_t *addr, size_t bytes,
    size_t alignment, berm_cu_deviceptr_t hint, unsigned long long flags);            // cuMemAddressReserve, 10020
typedef berm_cu_result_t (*berm_cu_mem_address_free_fn)(berm_cu_deviceptr_t addr, size_t bytes);      // cuMemAddressFree, 10020
typedef berm_cu_result_t (*berm_cu_mem_create_fn)(berm_cu_mem_handle_t *handle, size_t bytes,
    const berm_cu_mem_prop_t *prop, unsigned long long flags);                        // cuMemCreate, 10020
typedef berm_cu_result_t (*berm_cu_mem_release_fn)(berm_cu_mem_handle_t handle);      // cuMemRelease, 10020
typedef berm_cu_result_t (*berm_cu_mem_map_fn)(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
    berm_cu_mem_handle_t handle, unsigned long long flags);                           // cuMemMap, 10020
typedef berm_cu_result_t (*berm_cu_mem_unmap_fn)(berm_cu_deviceptr_t addr, size_t bytes);             // cuMemUnmap, 10020
typedef berm_cu_result_t (*berm_cu_mem_set_access_fn)(berm_cu_deviceptr_t addr, size_t bytes,
    const berm_cu_mem_access_t *access, size_t count);                                // cuMemSetAccess, 10020
typedef berm_cu_result_t (*berm_cu_mem_get_access_fn)(unsigned long long *flags,
    const berm_cu_mem_location_t *location, berm_cu_deviceptr_t addr);                // cuMemGetAccess, 10020
typedef berm_cu_result_t (*berm_cu_mem_get_granularity_fn)(size_t *granularity, const berm_cu_mem_prop_t *prop,
    int option);                                                                      // cuMemGetAllocationGranularity, 10020
typedef berm_cu_result_t (*berm_cu_mem_get_prop_fn)(berm_cu_mem_prop_t *prop,
    berm_cu_mem_handle_t handle);                                                     // cuMemGetAllocationPropertiesFromHandle, 10020
typedef berm_cu_result_t (*berm_cu_mem_retain_handle_fn)(berm_cu_mem_handle_t *handle, void *addr);   // cuMemRetainAllocationHandle, 11000
typedef berm_cu_result_t (*berm_cu_mem_export_fn)(void *shareable, berm_cu_mem_handle_t handle, int type,
    unsigned long long flags);                                                        // cuMemExportToShareableHandle, 10020
typedef berm_cu_result_t (*berm_cu_mem_import_fn)(berm_cu_mem_handle_t *handle, void *os_handle,
    int type);                                                                        // cuMemImportFromShareableHandle, 10020

typedef berm_cu_result_t (*berm_cu_stream_create_fn)(berm_cu_stream_t *stream, unsigned flags);       // cuStreamCreate, 2000
typedef berm_cu_result_t (*berm_cu_stream_create_with_priority_fn)(berm_cu_stream_t *stream, unsigned flags,
    int priority);                                                                    // cuStreamCreateWithPriority, 5050
typedef berm_cu_result_t (*berm_cu_stream_destroy_fn)(berm_cu_stream_t stream);       // cuStreamDestroy_v2, 4000
typedef berm_cu_result_t (*berm_cu_stream_synchronize_fn)(berm_cu_stream_t stream);   // cuStreamSynchronize, 2000
typedef berm_cu_result_t (*berm_cu_stream_query_fn)(berm_cu_stream_t stream);         // cuStreamQuery, 2000
typedef berm_cu_result_t (*berm_cu_stream_wait_event_fn)(berm_cu_stream_t stream, berm_cu_event_t event,
    unsigned flags);                                                                  // cuStreamWaitEvent, 3020
typedef berm_cu_result_t (*berm_cu_stream_get_id_fn)(berm_cu_stream_t stream, unsigned long long *id); // cuStreamGetId, 12000
typedef berm_cu_result_t (*berm_cu_stream_get_ctx_fn)(berm_cu_stream_t stream,
    berm_cu_context_t *context);                                                      // cuStreamGetCtx, 9020
typedef berm_cu_result_t (*berm_cu_stream_get_flags_fn)(berm_cu_stream_t stream, unsigned *flags);    // cuStreamGetFlags, 5050
typedef berm_cu_result_t (*berm_cu_stream_is_capturing_fn)(berm_cu_stream_t stream, int *status);     // cuStreamIsCapturing, 10000
typedef berm_cu_result_t (*berm_cu_stream_begin_capture_fn)(berm_cu_stream_t stream, int mode);       // cuStreamBeginCapture_v2, 10010
typedef berm_cu_result_t (*berm_cu_stream_end_capture_fn)(berm_cu_stream_t stream,
    berm_cu_graph_t *graph);                                                          // cuStreamEndCapture, 10000
typedef berm_cu_result_t (*berm_cu_stream_get_capture_info_fn)(berm_cu_stream_t stream, int *status,
    uint64_t *id, berm_cu_graph_t *graph, const berm_cu_graph_node_t **dependencies,
    size_t *dependency_count);                                                        // cuStreamGetCaptureInfo_v2, 11030
typedef berm_cu_result_t (*berm_cu_stream_get_capture_info_v3_fn)(berm_cu_stream_t stream, int *status,
    uint64_t *id, berm_cu_graph_t *graph, const berm_cu_graph_node_t **dependencies, const void **edges,
    size_t *dependency_count);                                                        // cuStreamGetCaptureInfo_v3, 12030
typedef berm_cu_result_t (*berm_cu_thread_exchange_capture_mode_fn)(int *mode);       // cuThreadExchangeStreamCaptureMode, 10010
typedef berm_cu_result_t (*berm_cu_graph_destroy_fn)(berm_cu_graph_t graph);          // cuGraphDestroy, 10000
typedef berm_cu_result_t (*berm_cu_launch_host_func_fn)(berm_cu_stream_t stream, berm_cu_host_fn fn,
    void *user_data);                                                                 // cuLaunchHostFunc, 10000

typedef berm_cu_result_t (*berm_cu_event_create_fn)(berm_cu_event_t *event, unsigned flags);          // cuEventCreate, 2000
typedef berm_cu_result_t (*berm_cu_event_destroy_fn)(berm_cu_event_t event);          // cuEventDestroy_v2, 4000
typedef berm_cu_result_t (*berm_cu_event_record_fn)(berm_cu_event_t event, berm_cu_stream_t stream);  // cuEventRecord, 2000
typedef berm_cu_result_t (*berm_cu_event_query_fn)(berm_cu_event_t event);            // cuEventQuery, 2000
typedef berm_cu_result_t (*berm_cu_event_synchronize_fn)(berm_cu_event_t event);      // cuEventSynchronize, 2000
typedef berm_cu_result_t (*berm_cu_event_elapsed_time_fn)(float *ms, berm_cu_event_t start,
    berm_cu_event_t end);                                                             // cuEventElapsedTime, 2000

typedef berm_cu_result_t (*berm_cu_memcpy_async_fn)(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from,
    size_t bytes, berm_cu_stream_t stream);              // cuMemcpyAsync, 4000; cuMemcpyDtoDAsync_v2, 3020
typedef berm_cu_result_t (*berm_cu_memcpy_htod_async_fn)(berm_cu_deviceptr_t to, const void *from,
    size_t bytes, berm_cu_stream_t stream);                                           // cuMemcpyHtoDAsync_v2, 3020
typedef berm_cu_result_t (*berm_cu_memcpy_dtoh_async_fn)(void *to, berm_cu_deviceptr_t from, size_t bytes,
    berm_cu_stream_t stream);                                                         // cuMemcpyDtoHAsync_v2, 3020
typedef berm_cu_result_t (*berm_cu_memset_d8_async_fn)(berm_cu_deviceptr_t to, unsigned char value,
    size_t bytes, berm_cu_stream_t stream);                                           // cuMemsetD8Async, 3020

typedef berm_cu_result_t (*berm_cu_device_get_p2p_attribute_fn)(int *value, int attribute,
    berm_cu_device_t from, berm_cu_device_t to);                                      // cuDeviceGetP2PAttribute, 8000
typedef berm_cu_result_t (*berm_cu_ctx_enable_peer_access_fn)(berm_cu_context_t peer, unsigned flags); // cuCtxEnablePeerAccess, 4000
typedef berm_cu_result_t (*berm_cu_ctx_disable_peer_access_fn)(berm_cu_context_t peer); // cuCtxDisablePeerAccess, 4000
typedef berm_cu_result_t (*berm_cu_memcpy_peer_fn)(berm_cu_deviceptr_t to, berm_cu_context_t to_context,
    berm_cu_deviceptr_t from, berm_cu_context_t from_context, size_t bytes);          // cuMemcpyPeer, 4000
typedef berm_cu_result_t (*berm_cu_memcpy_peer_async_fn)(berm_cu_deviceptr_t to, berm_cu_context_t to_context,
    berm_cu_deviceptr_t from, berm_cu_context_t from_context, size_t bytes,
    berm_cu_stream_t stream);                                                         // cuMemcpyPeerAsync, 4000

typedef berm_cu_result_t (*berm_cu_ipc_get_mem_handle_fn)(berm_cu_ipc_mem_handle_t *handle,
    berm_cu_deviceptr_t addr);                                                        // cuIpcGetMemHandle, 4010
typedef berm_cu_result_t (*berm_cu_ipc_open_mem_handle_fn)(berm_cu_deviceptr_t *addr,
    berm_cu_ipc_mem_handle_t handle, unsigned flags);                                 // cuIpcOpenMemHandle_v2, 11000
typedef berm_cu_result_t (*berm_cu_ipc_close_mem_handle_fn)(berm_cu_deviceptr_t addr); // cuIpcCloseMemHandle, 4010
typedef berm_cu_result_t (*berm_cu_ipc_get_event_handle_fn)(berm_cu_ipc_event_handle_t *handle,
    berm_cu_event_t event);                                                           // cuIpcGetEventHandle, 4010
typedef berm_cu_result_t (*berm_cu_ipc_open_event_handle_fn)(berm_cu_event_t *event,
    berm_cu_ipc_event_handle_t handle);                                               // cuIpcOpenEventHandle, 4010

typedef berm_cu_result_t (*berm_cu_mem_pool_create_fn)(berm_cu_mem_pool_t *pool,
    const berm_cu_mem_pool_props_t *props);                                           // cuMemPoolCreate, 11020
typedef berm_cu_result_t (*berm_cu_mem_pool_destroy_fn)(berm_cu_mem_pool_t pool);     // cuMemPoolDestroy, 11020
typedef berm_cu_result_t (*berm_cu_mem_pool_attribute_fn)(berm_cu_mem_pool_t pool, int attribute,
    void *value);                            // cuMemPoolSetAttribute, 11020; cuMemPoolGetAttribute, 11020
typedef berm_cu_result_t (*berm_cu_mem_pool_trim_to_fn)(berm_cu_mem_pool_t pool, size_t bytes_to_keep); // cuMemPoolTrimTo, 11020
typedef berm_cu_result_t (*berm_cu_mem_pool_set_access_fn)(berm_cu_mem_pool_t pool,
    const berm_cu_mem_access_t *access, size_t count);                                // cuMemPoolSetAccess, 11020
typedef berm_cu_result_t (*berm_cu_mem_pool_get_access_fn)(int *flags, berm_cu_mem_pool_t pool,
    berm_cu_mem_location_t *location);                                                // cuMemPoolGetAccess, 11020
typedef berm_cu_result_t (*berm_cu_device_get_mem_pool_fn)(berm_cu_mem_pool_t *pool,
    berm_cu_device_t device);                // cuDeviceGetDefaultMemPool, 11020; cuDeviceGetMemPool, 11020
typedef berm_cu_result_t (*berm_cu_device_set_mem_pool_fn)(berm_cu_device_t device,
    berm_cu_mem_pool_t pool);                                                         // cuDeviceSetMemPool, 11020
typedef berm_cu_result_t (*berm_cu_mem_alloc_async_fn)(berm_cu_deviceptr_t *addr, size_t bytes,
    berm_cu_stream_t stream);                                                         // cuMemAllocAsync, 11020
typedef berm_cu_result_t (*berm_cu_mem_alloc_from_pool_async_fn)(berm_cu_deviceptr_t *addr, size_t bytes,
    berm_cu_mem_pool_t pool, berm_cu_stream_t stream);                                // cuMemAllocFromPoolAsync, 11020
typedef berm_cu_result_t (*berm_cu_mem_free_async_fn)(berm_cu_deviceptr_t addr,
    berm_cu_stream_t stream);                                                         // cuMemFreeAsync, 11020

typedef berm_cu_result_t (*berm_cu_graph_get_nodes_fn)(berm_cu_graph_t graph, berm_cu_graph_node_t *nodes,
    size_t *count);                                                                   // cuGraphGetNodes, 10000
typedef berm_cu_result_t (*berm_cu_graph_instantiate_fn)(berm_cu_graph_exec_t *exec, berm_cu_graph_t graph,
    unsigned long long flags);                                                        // cuGraphInstantiateWithFlags, 11040
typedef berm_cu_result_t (*berm_cu_graph_launch_fn)(berm_cu_graph_exec_t exec,
    berm_cu_stream_t stream);                                                         // cuGraphLaunch, 10000
typedef berm_cu_result_t (*berm_cu_graph_exec_destroy_fn)(berm_cu_graph_exec_t exec); // cuGraphExecDestroy, 10000
typedef berm_cu_result_t (*berm_cu_stream_update_capture_fn)(berm_cu_stream_t stream,
    berm_cu_graph_node_t *nodes, size_t count, unsigned flags);                       // cuStreamUpdateCaptureDependencies, 11030
typedef berm_cu_result_t (*berm_cu_stream_update_capture_v2_fn)(berm_cu_stream_t stream,
    berm_cu_graph_node_t *nodes, const void *edges, size_t count, unsigned flags);    // cuStreamUpdateCaptureDependencies_v2, 12030
// clang-format on

#endif
