// SPDX-License-Identifier: Apache-2.0
// cudaGetDeviceProperties: what the driver's attributes say, and what they do not, alike for all
// devices.
//
// Locks: none. May fail: an unknown device; the whole structure is zero then.
#include "simcuda/runtime/runtime.h"

static int attribute(int number, int device) {
    int value = 0;
    (void)cuDeviceGetAttribute(&value, number, device);
    return value;
}

static void properties_of_attributes(cudart_device_prop_t *p, int device) {
    p->warp_size = attribute(BERM_CU_ATTR_WARP_SIZE, device);
    p->max_threads_per_block = attribute(BERM_CU_ATTR_MAX_THREADS_PER_BLOCK, device);
    p->major = attribute(BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, device);
    p->minor = attribute(BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR, device);
    p->multi_processor_count = attribute(BERM_CU_ATTR_MULTIPROCESSOR_COUNT, device);
    p->integrated = attribute(BERM_CU_ATTR_INTEGRATED, device);
    p->can_map_host_memory = attribute(BERM_CU_ATTR_CAN_MAP_HOST_MEMORY, device);
    p->concurrent_kernels = attribute(BERM_CU_ATTR_CONCURRENT_KERNELS, device);
    p->pci_bus_id = attribute(BERM_CU_ATTR_PCI_BUS_ID, device);
    p->pci_device_id = attribute(BERM_CU_ATTR_PCI_DEVICE_ID, device);
    p->pci_domain_id = attribute(BERM_CU_ATTR_PCI_DOMAIN_ID, device);
    p->async_engine_count = attribute(BERM_CU_ATTR_ASYNC_ENGINE_COUNT, device);
    p->unified_addressing = attribute(BERM_CU_ATTR_UNIFIED_ADDRESSING, device);
    p->memory_bus_width = attribute(BERM_CU_ATTR_MEMORY_BUS_WIDTH, device);
    p->ecc_enabled = attribute(BERM_CU_ATTR_ECC_ENABLED, device);
    p->l2_cache_size = attribute(BERM_CU_ATTR_L2_CACHE_SIZE, device);
    p->max_threads_per_multi_processor =
        attribute(BERM_CU_ATTR_MAX_THREADS_PER_MULTIPROCESSOR, device);
    p->stream_priorities_supported = attribute(BERM_CU_ATTR_STREAM_PRIORITIES_SUPPORTED, device);
    p->managed_memory = attribute(BERM_CU_ATTR_MANAGED_MEMORY, device);
    p->pageable_memory_access = attribute(BERM_CU_ATTR_PAGEABLE_MEMORY_ACCESS, device);
    p->concurrent_managed_access = attribute(BERM_CU_ATTR_CONCURRENT_MANAGED_ACCESS, device);
    p->memory_pools_supported = attribute(BERM_CU_ATTR_MEMORY_POOLS_SUPPORTED, device);
    p->gpu_direct_rdma_supported = attribute(BERM_CU_ATTR_RDMA_SUPPORTED, device);
}

static void properties_of_launches(cudart_device_prop_t *p, int device) {
    p->shared_mem_per_block = (size_t)attribute(BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK, device);
    p->shared_mem_per_block_optin =
        (size_t)attribute(BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
    p->shared_mem_per_multiprocessor =
        (size_t)attribute(BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
    p->reserved_shared_mem_per_block =
        p->shared_mem_per_multiprocessor - p->shared_mem_per_block_optin;
    p->total_const_mem = (size_t)attribute(BERM_CU_ATTR_TOTAL_CONSTANT_MEMORY, device);
    p->regs_per_block = attribute(BERM_CU_ATTR_MAX_REGISTERS_PER_BLOCK, device);
    p->regs_per_multiprocessor = attribute(BERM_CU_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR, device);
    p->max_blocks_per_multi_processor =
        attribute(BERM_CU_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR, device);
    for (int i = 0; i < 3; i++) {
        p->max_threads_dim[i] = attribute(BERM_CU_ATTR_MAX_BLOCK_DIM_X + i, device);
        p->max_grid_size[i] = attribute(BERM_CU_ATTR_MAX_GRID_DIM_X + i, device);
    }
    p->mem_pitch = (size_t)attribute(BERM_CU_ATTR_MAX_PITCH, device);
    p->texture_alignment = (size_t)attribute(BERM_CU_ATTR_TEXTURE_ALIGNMENT, device);
    p->cooperative_launch = attribute(BERM_CU_ATTR_COOPERATIVE_LAUNCH, device);
}

// What programs print and the driver is not asked for.
static void properties_of_model(cudart_device_prop_t *p) {
    p->texture_pitch_alignment = 32;
    p->surface_alignment = 512;
    p->global_l1_cache_supported = 1;
    p->local_l1_cache_supported = 1;
}

// What CUDA 13 took out of the structure.
static void properties_of_12(cudart_device_prop_t *p, int device) {
#if CUDART_MAJOR < 13
    p->clock_rate = attribute(BERM_CU_ATTR_CLOCK_RATE, device);
    p->memory_clock_rate = attribute(BERM_CU_ATTR_MEMORY_CLOCK_RATE, device);
    p->compute_mode = attribute(BERM_CU_ATTR_COMPUTE_MODE, device);
    p->device_overlap = p->async_engine_count > 0;
#else
    (void)p;
    (void)device;
#endif
}

cudart_error_t cudaGetDeviceProperties(cudart_device_prop_t *prop, int device) {
    if (prop == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(prop, 0, sizeof *prop);
    berm_cu_uuid_t uuid = {{0}};
    int result = RT_DRIVER(cuDeviceGetName(prop->name, (int)sizeof prop->name, device));
    if (result == BERM_CU_SUCCESS)
        result = RT_DRIVER(cuDeviceTotalMem_v2(&prop->total_global_mem, device));
    if (result == BERM_CU_SUCCESS)
        result = RT_DRIVER(cuDeviceGetUuid_v2(&uuid, device));
    if (result != BERM_CU_SUCCESS)
        return result;
    memcpy(prop->uuid, uuid.bytes, sizeof prop->uuid);
    properties_of_attributes(prop, device);
    properties_of_launches(prop, device);
    properties_of_model(prop);
    properties_of_12(prop, device);
    return result;
}
