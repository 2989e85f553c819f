// SPDX-License-Identifier: Apache-2.0
// Groups of pools: see group.h.
#include "policy/group.h"

#include "host/mem.h"
#include "policy/pool.h"

void berm__group_init_default(berm_group_t *group, berm_device_t *device) {
    *group = (berm_group_t){.device = device,
                            .traits = device->gpu.is_plain ? BERM_GROUP_PLAIN : 0,
                            .store = &device->phys.stores[0],
                            .use_count = 1};
    berm__list_init(&group->pools);
    berm__list_init(&device->groups);
    berm__list_push_back(&device->groups, &group->link);
}

// The store for handles with the properties that the traits ask for.
static berm_status_t store_of(berm_device_t *device, uint32_t traits, berm_store_t **out) {
    berm_cu_mem_prop_t prop = device->gpu.prop;
    *out = NULL;
    berm_gpu_t *gpu = &device->gpu;
    if ((traits & BERM_GROUP_PLAIN) != 0) // a network card reaches it as it is
        return (traits & BERM_GROUP_EXPORTABLE) != 0 ? BERM_ERROR_UNSUPPORTED
                                                     : berm__phys_store_plain(&device->phys, out);
    bool is_missing = ((traits & BERM_GROUP_RDMA) != 0 &&
                       !berm__gpu_has(gpu, BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED)) ||
                      ((traits & BERM_GROUP_EXPORTABLE) != 0 &&
                       !berm__gpu_has(gpu, BERM_CU_ATTR_POSIX_FD_SUPPORTED));
    if (is_missing)
        return BERM_ERROR_UNSUPPORTED;
    if ((traits & BERM_GROUP_EXPORTABLE) != 0)
        prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    if ((traits & BERM_GROUP_RDMA) != 0)
        prop.alloc_flags.gpu_direct_rdma_capable = 1;
    return berm__phys_store(&device->phys, &prop, out);
}

berm_status_t berm__group_create(berm_device_t *device, berm_pool_id_t id, uint32_t traits,
                                 berm_group_t **out) {
    berm_store_t *store;
    *out = NULL;
    if (device->gpu.is_plain)
        traits |= BERM_GROUP_PLAIN;
    berm_status_t status = store_of(device, traits, &store);
    if (status != BERM_OK)
        return status;
    berm_group_t *group = berm__mem_alloc(sizeof *group);
    if (group == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    *group = (berm_group_t){
        .device = device, .id = id, .traits = traits, .store = store, .use_count = 1};
    berm__list_init(&group->pools);
    berm__list_push_back(&device->groups, &group->link);
    *out = group;
    return BERM_OK;
}

berm_group_t *berm__group_find(berm_device_t *device, berm_pool_id_t id) {
    BERM_LIST_EACH (berm_group_t, group, &device->groups, link)
        if (group->id.high == id.high && group->id.low == id.low && group->use_count > 0)
            return group;
    return NULL;
}

void berm__group_destroy(berm_group_t *group) {
    berm__list_remove(&group->link);
    if (!berm__group_is_default(group))
        berm__mem_free(group, sizeof *group);
}

berm_pool_t *berm__group_pool_find(const berm_group_t *group, const berm_stream_ref_t *stream) {
    if (berm__group_is_default(group))
        return stream->pool;
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
        if (pool->stream == stream)
            return pool;
    return NULL;
}

berm_status_t berm__group_pool(berm_group_t *group, berm_stream_ref_t *stream, berm_pool_t **out) {
    *out = berm__group_pool_find(group, stream);
    return BERM_LIKELY(*out != NULL) ? BERM_OK : berm__pool_make(group, stream, out);
}
