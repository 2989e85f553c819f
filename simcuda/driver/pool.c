// SPDX-License-Identifier: Apache-2.0
// Memory pools: the calls. Which memory a request gets is in piece.c.
//
// Allocating and freeing are points in a stream: to the hunt for hazards they write the block, so
// that a use not ordered after the one or before the other is a race. Pools belong to a device and
// outlive contexts. Locks: the state's, by sim_enter.
#include "pool.h"

#include <stdlib.h>
#include <string.h>

// --- pools ---------------------------------------------------------------------------------------

static sim_pool_t *pool_create(int device, uint64_t bytes_max) {
    sim_pool_t *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->handle = sim_table_add(&sim.pools, pool);
    if (pool->handle == 0) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->bytes_max = bytes_max;
    pool->access[device] = BERM_CU_MEM_ACCESS_READWRITE;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    berm__list_init(&pool->free_pieces);
    berm__list_init(&pool->areas);
    berm__list_push_back(&sim.pool_list, &pool->node);
    return pool;
}

sim_pool_t *sim_pool_default(int device) {
    sim_device_t *owner = &sim.devices[device];
    if (owner->default_pool == NULL) {
        owner->default_pool = pool_create(device, 0);
        if (owner->default_pool != NULL)
            owner->default_pool->is_default = true;
    }
    return owner->default_pool;
}

static sim_pool_t *pool_current(int device) {
    sim_device_t *owner = &sim.devices[device];
    return owner->pool != NULL ? owner->pool : sim_pool_default(device);
}

static sim_pool_t *pool_get(berm_cu_mem_pool_t handle) {
    return sim_table_get(&sim.pools, (uint64_t)(uintptr_t)handle);
}

static int pool_make(berm_cu_mem_pool_t *out, const berm_cu_mem_pool_props_t *props) {
    sim_charge(&sim.config.costs.other, 0, 0);
    if (out == NULL || props == NULL || props->type != BERM_CU_MEM_ALLOCATION_PINNED ||
        props->location.type != BERM_CU_MEM_LOCATION_DEVICE ||
        props->win32_security_attributes != NULL || props->usage != 0)
        return BERM_CU_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(props->reserved); i++) {
        if (props->reserved[i] != 0)
            return BERM_CU_INVALID_VALUE;
    }
    if (!sim_device_is_valid(props->location.id))
        return BERM_CU_INVALID_DEVICE;
    if (props->handle_types != BERM_CU_MEM_HANDLE_NONE) // pools are not passed between processes
        return BERM_CU_NOT_SUPPORTED;
    sim_pool_t *pool = pool_create(props->location.id, props->max_size);
    if (pool == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    *out = (berm_cu_mem_pool_t)(uintptr_t)pool->handle;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemPoolCreate(berm_cu_mem_pool_t *pool, const berm_cu_mem_pool_props_t *props) {
    int result = sim_enter(SIM_FN_cuMemPoolCreate);
    if (result == BERM_CU_SUCCESS)
        result = pool_make(pool, props);
    return sim_leave(result);
}

// Blocks that are in use stay until they are freed.
berm_cu_result_t cuMemPoolDestroy(berm_cu_mem_pool_t handle) {
    int result = sim_enter(SIM_FN_cuMemPoolDestroy);
    if (result == BERM_CU_SUCCESS) {
        sim_pool_t *pool = pool_get(handle);
        if (pool == NULL || pool->is_default) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            if (sim.devices[pool->device].pool == pool)
                sim.devices[pool->device].pool = NULL;
            sim_table_remove(&sim.pools, pool->handle);
            pool->handle = 0;
            sim_pools_release();
        }
    }
    return sim_leave(result);
}

static int device_pool(sim_fn_t fn, berm_cu_mem_pool_t *out, int device, bool wants_default) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (out == NULL)
        return BERM_CU_INVALID_VALUE;
    if (!sim_device_is_valid(device))
        return BERM_CU_INVALID_DEVICE;
    const sim_pool_t *pool = wants_default ? sim_pool_default(device) : pool_current(device);
    if (pool == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    *out = (berm_cu_mem_pool_t)(uintptr_t)pool->handle;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuDeviceGetDefaultMemPool(berm_cu_mem_pool_t *pool, berm_cu_device_t device) {
    return sim_leave(device_pool(SIM_FN_cuDeviceGetDefaultMemPool, pool, device, true));
}

berm_cu_result_t cuDeviceGetMemPool(berm_cu_mem_pool_t *pool, berm_cu_device_t device) {
    return sim_leave(device_pool(SIM_FN_cuDeviceGetMemPool, pool, device, false));
}

berm_cu_result_t cuDeviceSetMemPool(berm_cu_device_t device, berm_cu_mem_pool_t handle) {
    int result = sim_enter(SIM_FN_cuDeviceSetMemPool);
    if (result == BERM_CU_SUCCESS) {
        sim_pool_t *pool = pool_get(handle);
        if (!sim_device_is_valid(device))
            result = BERM_CU_INVALID_DEVICE;
        else if (pool == NULL || pool->device != device)
            result = BERM_CU_INVALID_VALUE;
        else
            sim.devices[device].pool = pool;
    }
    return sim_leave(result);
}

// --- attributes and access -----------------------------------------------------------------------

static int pool_set_attribute(sim_pool_t *pool, int attribute, const void *value) {
    uint64_t bytes = 0;
    if (attribute >= BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute <= BERM_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        int on;
        memcpy(&on, value, sizeof(on));
        pool->reuse[attribute - BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES] = on != 0;
        return BERM_CU_SUCCESS;
    }
    memcpy(&bytes, value, sizeof(bytes));
    if (attribute == BERM_CU_POOL_RELEASE_THRESHOLD)
        pool->release_threshold = bytes;
    else if (attribute == BERM_CU_POOL_RESERVED_MEM_HIGH && bytes == 0)
        pool->reserved_high = pool->reserved;
    else if (attribute == BERM_CU_POOL_USED_MEM_HIGH && bytes == 0)
        pool->used_high = pool->used;
    else
        return BERM_CU_INVALID_VALUE;
    return BERM_CU_SUCCESS;
}

static int pool_get_attribute(const sim_pool_t *pool, int attribute, void *value) {
    const uint64_t bytes[] = {pool->release_threshold, pool->reserved, pool->reserved_high,
                              pool->used, pool->used_high};
    if (attribute < BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        attribute > BERM_CU_POOL_USED_MEM_HIGH)
        return BERM_CU_INVALID_VALUE;
    if (attribute < BERM_CU_POOL_RELEASE_THRESHOLD)
        memcpy(value, &pool->reuse[attribute - BERM_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES],
               sizeof(int));
    else
        memcpy(value, &bytes[attribute - BERM_CU_POOL_RELEASE_THRESHOLD], sizeof(uint64_t));
    return BERM_CU_SUCCESS;
}

// Enters and finds the pool; NULL with *result set.
static sim_pool_t *pool_enter(sim_fn_t fn, berm_cu_mem_pool_t handle, int *result) {
    *result = sim_enter(fn);
    if (*result != BERM_CU_SUCCESS)
        return NULL;
    sim_charge(&sim.config.costs.other, 0, 0);
    sim_pool_t *pool = pool_get(handle);
    if (pool == NULL)
        *result = BERM_CU_INVALID_VALUE;
    return pool;
}

berm_cu_result_t cuMemPoolSetAttribute(berm_cu_mem_pool_t handle, int attribute, void *value) {
    int result;
    sim_pool_t *pool = pool_enter(SIM_FN_cuMemPoolSetAttribute, handle, &result);
    if (pool != NULL)
        result = value == NULL ? BERM_CU_INVALID_VALUE : pool_set_attribute(pool, attribute, value);
    return sim_leave(result);
}

berm_cu_result_t cuMemPoolGetAttribute(berm_cu_mem_pool_t handle, int attribute, void *value) {
    int result;
    const sim_pool_t *pool = pool_enter(SIM_FN_cuMemPoolGetAttribute, handle, &result);
    if (pool != NULL)
        result = value == NULL ? BERM_CU_INVALID_VALUE : pool_get_attribute(pool, attribute, value);
    return sim_leave(result);
}

berm_cu_result_t cuMemPoolTrimTo(berm_cu_mem_pool_t handle, size_t bytes_to_keep) {
    int result;
    sim_pool_t *pool = pool_enter(SIM_FN_cuMemPoolTrimTo, handle, &result);
    if (pool != NULL)
        sim_pool_trim(pool, bytes_to_keep);
    return sim_leave(result);
}

// Blocks there are, and blocks to come. A pool's own device keeps its access.
static int pool_set_access(sim_pool_t *pool, const berm_cu_mem_access_t *access, size_t count) {
    int result = sim_access_check(access, count);
    for (size_t i = 0; result == BERM_CU_SUCCESS && i < count; i++) {
        if (access[i].location.type != BERM_CU_MEM_LOCATION_DEVICE ||
            (access[i].location.id == pool->device &&
             access[i].flags != BERM_CU_MEM_ACCESS_READWRITE))
            result = BERM_CU_INVALID_VALUE;
    }
    if (result != BERM_CU_SUCCESS)
        return result;
    for (size_t i = 0; i < count; i++)
        pool->access[access[i].location.id] = (uint8_t)access[i].flags;
    for (sim_node_t *node = sim_tree_first(&pool->pieces); node != NULL;
         node = sim_tree_next(node)) {
        sim_mapping_t *mapping = BERM_CONTAINER_OF(node, sim_piece_t, node)->mapping;
        if (mapping != NULL)
            memcpy(mapping->access, pool->access, sizeof(mapping->access));
    }
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuMemPoolSetAccess(berm_cu_mem_pool_t handle, const berm_cu_mem_access_t *access,
                                    size_t count) {
    int result;
    sim_pool_t *pool = pool_enter(SIM_FN_cuMemPoolSetAccess, handle, &result);
    if (pool != NULL)
        result = pool_set_access(pool, access, count);
    return sim_leave(result);
}

berm_cu_result_t cuMemPoolGetAccess(int *flags, berm_cu_mem_pool_t handle,
                                    berm_cu_mem_location_t *location) {
    int result;
    const sim_pool_t *pool = pool_enter(SIM_FN_cuMemPoolGetAccess, handle, &result);
    if (pool != NULL) {
        if (flags == NULL || location == NULL || location->type != BERM_CU_MEM_LOCATION_DEVICE)
            result = BERM_CU_INVALID_VALUE;
        else if (!sim_device_is_valid(location->id))
            result = BERM_CU_INVALID_DEVICE;
        else
            *flags = pool->access[location->id];
    }
    return sim_leave(result);
}

// --- allocate and free ---------------------------------------------------------------------------

static int pool_alloc(sim_pool_t *pool, uint64_t bytes, sim_stream_t *stream, uint64_t *addr) {
    int result;
    sim_mark_t *wait = NULL;
    sim_piece_t *piece = sim_piece_take(pool, bytes, stream, &wait, &result);
    if (piece == NULL)
        return result;
    sim_issue_t issue = {.wait = wait, .is_copy = true};
    simcuda_access_t access = {piece->node.key, bytes, 1};
    result = sim_work_issue(stream, &issue, &access, 1);
    if (result != BERM_CU_SUCCESS) {
        sim_piece_free(piece, NULL, wait); // as it was
        return result;
    }
    if (wait != NULL)
        sim_mark_drop(wait);
    *addr = piece->node.key;
    return result;
}

// The stream a request names; NULL with *result set. `addr` is where the answer goes.
static sim_stream_t *alloc_stream(berm_cu_stream_t handle, const void *addr, uint64_t bytes,
                                  int *result) {
    sim_charge(&sim.config.costs.other, 0, 0);
    *result = BERM_CU_INVALID_VALUE;
    if (addr == NULL || bytes == 0)
        return NULL;
    sim_stream_t *stream = sim_stream_get(handle, result);
    if (stream == NULL)
        return NULL;
    if (stream->capture != NULL) // memory that belongs to a graph is not modelled
        *result = sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    else
        *result = sim_capture_check_legacy(stream);
    if (*result == BERM_CU_SUCCESS && bytes > sim.config.memory_bytes)
        *result = BERM_CU_OUT_OF_MEMORY;
    return *result == BERM_CU_SUCCESS ? stream : NULL;
}

berm_cu_result_t cuMemAllocAsync(berm_cu_deviceptr_t *addr, size_t bytes, berm_cu_stream_t handle) {
    int result = sim_enter(SIM_FN_cuMemAllocAsync);
    if (result == BERM_CU_SUCCESS) {
        sim_stream_t *stream = alloc_stream(handle, addr, bytes, &result);
        sim_pool_t *pool = stream != NULL ? pool_current(stream->context->device) : NULL;
        if (pool != NULL)
            result = pool_alloc(pool, bytes, stream, addr);
        else if (stream != NULL)
            result = BERM_CU_OUT_OF_MEMORY;
    }
    return sim_leave(result);
}

berm_cu_result_t cuMemAllocFromPoolAsync(berm_cu_deviceptr_t *addr, size_t bytes,
                                         berm_cu_mem_pool_t handle,
                                         berm_cu_stream_t stream_handle) {
    int result = sim_enter(SIM_FN_cuMemAllocFromPoolAsync);
    if (result == BERM_CU_SUCCESS) {
        sim_pool_t *pool = pool_get(handle);
        sim_stream_t *stream =
            alloc_stream(stream_handle, pool != NULL ? addr : NULL, bytes, &result);
        if (stream != NULL)
            result = pool_alloc(pool, bytes, stream, addr);
    }
    return sim_leave(result);
}

static int piece_free_async(sim_mapping_t *mapping, sim_stream_t *stream) {
    sim_mark_t *mark = sim_mark_create();
    if (mark == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    sim_issue_t issue = {.mark = mark, .is_copy = true};
    simcuda_access_t access = {mapping->node.key, mapping->size_bytes, 1};
    int result = sim_work_issue(stream, &issue, &access, 1);
    if (result == BERM_CU_SUCCESS)
        sim_piece_free(mapping->piece, stream, mark);
    else
        sim_mark_drop(mark);
    return result;
}

berm_cu_result_t cuMemFreeAsync(berm_cu_deviceptr_t addr, berm_cu_stream_t handle) {
    int result = sim_enter(SIM_FN_cuMemFreeAsync);
    if (result == BERM_CU_SUCCESS) {
        sim_stream_t *stream = alloc_stream(handle, &addr, 1, &result);
        sim_mapping_t *mapping = stream != NULL ? sim_mapping_at(addr) : NULL;
        if (mapping != NULL && mapping->piece != NULL && mapping->node.key == addr) {
            result = piece_free_async(mapping, stream);
        } else if (stream != NULL) {
            result = BERM_CU_INVALID_VALUE;
            if (addr != 0)
                sim_hazard(SIMCUDA_HAZARD_DOUBLE_FREE, addr,
                           "cuMemFreeAsync of 0x%llx, where no live block of a pool starts",
                           (unsigned long long)addr);
        }
    }
    return sim_leave(result);
}
