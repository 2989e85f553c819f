// SPDX-License-Identifier: Apache-2.0
// Handles of a device: see phys.h for invariants I10, I11 and I22. Metadata is secured before the
// driver is called, so a handle that exists is always accounted for.
#include "vmm/phys.h"

#include <string.h>

#include "base/bits.h"

static void store_init(berm_store_t *store, berm_phys_t *phys, const berm_cu_mem_prop_t *prop) {
    *store = (berm_store_t){.phys = phys, .prop = *prop};
    berm__list_init(&store->spare_segments);
    berm__list_init(&store->idle_small);
    berm__list_init(&store->idle_large);
    berm__list_init(&store->idle_odd);
}

void berm__phys_init(berm_phys_t *phys, berm_gpu_t *gpu, uint64_t large_bytes) {
    memset(phys, 0, sizeof *phys);
    phys->gpu = gpu;
    uint64_t granules = large_bytes >> gpu->lg_granule;
    phys->large_granules = granules < 1 ? 1 : (uint32_t)granules;
    store_init(&phys->stores[0], phys, &gpu->prop);
    phys->stores[0].is_plain = gpu->is_plain;
    phys->store_count = 1;
    berm__list_init(&phys->leaving);
    berm__list_init(&phys->strays);
    berm__node_slab_init(&phys->nodes, sizeof(berm_phys_handle_t));
}

void berm__phys_destroy(berm_phys_t *phys) {
    berm__node_slab_destroy(&phys->nodes);
}

static bool prop_is_equal(const berm_cu_mem_prop_t *a, const berm_cu_mem_prop_t *b) {
    return a->type == b->type && a->requested_handle_types == b->requested_handle_types &&
           a->location.type == b->location.type && a->location.id == b->location.id &&
           a->alloc_flags.compression_type == b->alloc_flags.compression_type &&
           a->alloc_flags.gpu_direct_rdma_capable == b->alloc_flags.gpu_direct_rdma_capable &&
           a->alloc_flags.usage == b->alloc_flags.usage;
}

berm_status_t berm__phys_store(berm_phys_t *phys, const berm_cu_mem_prop_t *prop, bool is_whole,
                               berm_store_t **out) {
    *out = NULL;
    for (unsigned i = 0; i < phys->store_count; i++) {
        if (!phys->stores[i].is_plain && phys->stores[i].is_whole == is_whole &&
            prop_is_equal(&phys->stores[i].prop, prop)) {
            *out = &phys->stores[i];
            return BERM_OK;
        }
    }
    size_t granule_bytes = 0;
    berm_status_t status =
        berm__drv_status(BERM_DRV_CALL(phys->gpu->drv, OTHER, mem_get_granularity, &granule_bytes,
                                       prop, BERM_CU_MEM_GRANULARITY_MINIMUM));
    if (status != BERM_OK)
        return status;
    bool fits = granule_bytes != 0 && phys->gpu->granule_bytes % granule_bytes == 0;
    if (!fits || phys->store_count == BERM_STORES_MAX)
        return BERM_ERROR_UNSUPPORTED;
    *out = &phys->stores[phys->store_count++];
    store_init(*out, phys, prop);
    (*out)->is_whole = is_whole;
    return BERM_OK;
}

berm_status_t berm__phys_store_plain(berm_phys_t *phys, berm_store_t **out) {
    *out = NULL;
    for (unsigned i = 0; i < phys->store_count; i++)
        if (phys->stores[i].is_plain)
            *out = &phys->stores[i];
    if (*out != NULL)
        return BERM_OK;
    if (phys->store_count == BERM_STORES_MAX)
        return BERM_ERROR_UNSUPPORTED;
    *out = &phys->stores[phys->store_count++];
    store_init(*out, phys, &phys->gpu->prop);
    (*out)->is_plain = true;
    return BERM_OK;
}

uint64_t berm__phys_idle_granules(const berm_phys_t *phys) {
    uint64_t granules = 0;
    for (unsigned i = 0; i < phys->store_count; i++)
        granules += berm__store_idle_granules(&phys->stores[i]);
    return granules;
}

static uint64_t handle_bytes(const berm_phys_t *phys, const berm_phys_handle_t *handle) {
    return (uint64_t)handle->granules << phys->gpu->lg_granule;
}

berm_status_t berm__store_create(berm_store_t *store, uint32_t granules) {
    berm_phys_t *phys = store->phys;
    berm_phys_handle_t *handle = berm__node_slab_take(&phys->nodes);
    if (handle == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t size_bytes = (uint64_t)granules << phys->gpu->lg_granule;
    berm_cu_mem_handle_t created = 0;
    berm_cu_result_t result =
        BERM_DRV_CALL(phys->gpu->drv, CREATE, mem_create, &created, size_bytes, &store->prop, 0);
    if (result != BERM_CU_SUCCESS) {
        berm__node_slab_give(&phys->nodes, handle);
        return berm__drv_status(result);
    }
    *handle = (berm_phys_handle_t){.handle = created, .store = store, .granules = granules};
    berm__list_init(&handle->link);
    phys->handle_count++;
    phys->created_bytes += size_bytes;
    phys->reserved_bytes += size_bytes;
    if (phys->reserved_bytes > phys->reserved_peak_bytes)
        phys->reserved_peak_bytes = phys->reserved_bytes;
    berm__store_give(handle);
    return BERM_OK;
}

// The list for handles of a size, and its count.
static berm_list_t *idle_list(berm_store_t *store, uint32_t granules, uint64_t **count) {
    if (granules == 1) {
        *count = &store->idle_small_count;
        return &store->idle_small;
    }
    bool is_large = granules == store->phys->large_granules;
    *count = is_large ? &store->idle_large_count : &store->idle_odd_count;
    return is_large ? &store->idle_large : &store->idle_odd;
}

static void idle_remove(berm_phys_handle_t *handle) {
    uint64_t *count;
    berm_phys_t *phys = handle->store->phys;
    if (handle->is_exported) {
        berm__list_remove(&handle->link);
        phys->leaving_count--;
        phys->leaving_granules -= handle->granules;
        return;
    }
    berm_list_t *idle = idle_list(handle->store, handle->granules, &count);
    berm__list_remove(&handle->link);
    --*count;
    if (idle == &handle->store->idle_odd)
        handle->store->idle_odd_granules -= handle->granules;
}

static berm_phys_handle_t *idle_find(berm_store_t *store, uint32_t granules) {
    uint64_t *count;
    berm_list_t *idle = idle_list(store, granules, &count);
    BERM_LIST_EACH (berm_phys_handle_t, handle, idle, link)
        if (handle->granules == granules)
            return handle;
    return NULL;
}

bool berm__store_has(berm_store_t *store, uint32_t granules) {
    return idle_find(store, granules) != NULL;
}

berm_phys_handle_t *berm__store_take(berm_store_t *store, uint32_t granules) {
    berm_phys_handle_t *handle = idle_find(store, granules);
    if (handle != NULL)
        idle_remove(handle);
    return handle;
}

static berm_list_t *aliased_list(berm_aliased_t *aliased, uint32_t granules, uint64_t **count) {
    *count = granules == 1 ? &aliased->small_count : &aliased->large_count;
    return granules == 1 ? &aliased->small : &aliased->large;
}

void berm__aliased_init(berm_aliased_t *aliased) {
    *aliased = (berm_aliased_t){0};
    berm__list_init(&aliased->small);
    berm__list_init(&aliased->large);
}

berm_phys_handle_t *berm__aliased_take(berm_aliased_t *aliased, uint32_t granules) {
    uint64_t *count;
    berm_list_t *idle = aliased_list(aliased, granules, &count);
    if (berm__list_is_empty(idle))
        return NULL;
    berm_phys_handle_t *handle = BERM_CONTAINER_OF(idle->next, berm_phys_handle_t, link);
    berm__list_remove(&handle->link);
    --*count;
    return handle;
}

void berm__store_give(berm_phys_handle_t *handle) {
    uint64_t *count;
    berm_list_t *idle = handle->aliased != NULL
                            ? aliased_list(handle->aliased, handle->granules, &count)
                            : idle_list(handle->store, handle->granules, &count);
    berm_phys_t *phys = handle->store->phys;
    handle->segment = NULL;
    if (handle->is_exported) {
        berm__list_push_back(&phys->leaving, &handle->link);
        phys->leaving_count++;
        phys->leaving_granules += handle->granules;
        return;
    }
    berm__list_push_front(idle, &handle->link);
    ++*count;
    if (idle == &handle->store->idle_odd)
        handle->store->idle_odd_granules += handle->granules;
}

berm_status_t berm__phys_release(berm_phys_t *phys, berm_phys_handle_t *handle) {
    berm_cu_result_t result = BERM_DRV_CALL(phys->gpu->drv, RELEASE, mem_release, handle->handle);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    idle_remove(handle);
    phys->handle_count--;
    phys->reserved_bytes -= handle_bytes(phys, handle);
    phys->released_bytes += handle_bytes(phys, handle);
    if (handle->is_exported)
        phys->exported_bytes -= handle_bytes(phys, handle);
    berm__node_slab_give(&phys->nodes, handle);
    return BERM_OK;
}

berm_status_t berm__store_split_large(berm_store_t *store) {
    berm_phys_t *phys = store->phys;
    if (berm__list_is_empty(&store->idle_large))
        return BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    if (!berm__node_slab_reserve(&phys->nodes, phys->large_granules))
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    berm_status_t status = berm__phys_release(
        phys, BERM_CONTAINER_OF(store->idle_large.next, berm_phys_handle_t, link));
    if (status == BERM_OK)
        phys->split_bytes += (uint64_t)phys->large_granules << phys->gpu->lg_granule;
    for (uint32_t i = 0; i < phys->large_granules && status == BERM_OK; i++)
        status = berm__store_create(store, 1);
    return status;
}

// Releases the newest idle handles of one size while `may_go` of them are left to go and reserved
// is above keep_bytes.
static berm_status_t idle_release(berm_phys_t *phys, berm_list_t *idle, uint64_t may_go,
                                  uint64_t keep_bytes) {
    while (may_go-- > 0 && !berm__list_is_empty(idle) && phys->reserved_bytes > keep_bytes) {
        berm_status_t status =
            berm__phys_release(phys, BERM_CONTAINER_OF(idle->next, berm_phys_handle_t, link));
        if (status != BERM_OK)
            return status;
    }
    return BERM_OK;
}

berm_status_t berm__store_release_idle(berm_store_t *store, uint64_t keep_bytes) {
    berm_phys_t *phys = store->phys;
    uint64_t large_bytes = (uint64_t)phys->large_granules << phys->gpu->lg_granule;
    berm_status_t status = idle_release(phys, &store->idle_odd, UINT64_MAX, keep_bytes);
    uint64_t excess = phys->reserved_bytes - berm__min_u64(phys->reserved_bytes, keep_bytes);
    // Large ones where they fit in the excess, then small ones, then a large one if it takes one.
    if (status == BERM_OK)
        status = idle_release(phys, &store->idle_large, excess / large_bytes, keep_bytes);
    if (status == BERM_OK)
        status = idle_release(phys, &store->idle_small, UINT64_MAX, keep_bytes);
    return status == BERM_OK ? idle_release(phys, &store->idle_large, UINT64_MAX, keep_bytes)
                             : status;
}

berm_status_t berm__phys_release_leaving(berm_phys_t *phys) {
    return idle_release(phys, &phys->leaving, UINT64_MAX, 0);
}

void berm__phys_stray_add(berm_phys_t *phys, berm_phys_handle_t *stray) {
    berm__list_push_back(&phys->strays, &stray->link);
    phys->stray_count++;
    phys->stray_bytes += stray->ticket;
}

static berm_status_t strays_release(berm_phys_t *phys) {
    while (!berm__list_is_empty(&phys->strays)) {
        berm_phys_handle_t *stray = BERM_CONTAINER_OF(phys->strays.next, berm_phys_handle_t, link);
        uint64_t bytes = stray->ticket;
        berm_cu_result_t result = BERM_DRV_CALL(phys->gpu->drv, FREE, mem_free, stray->handle);
        if (result != BERM_CU_SUCCESS)
            return berm__drv_status(result);
        berm__list_remove(&stray->link);
        phys->stray_count--;
        phys->stray_bytes -= bytes;
        phys->handle_count--;
        phys->reserved_bytes -= bytes;
        phys->released_bytes += bytes;
        berm__node_slab_give(&phys->nodes, stray);
    }
    return BERM_OK;
}

berm_status_t berm__phys_release_idle(berm_phys_t *phys, uint64_t keep_bytes) {
    berm_status_t status = BERM_OK, strays = strays_release(phys);
    berm_status_t leaving = berm__phys_release_leaving(phys);
    for (unsigned i = phys->store_count; i-- > 0 && status == BERM_OK;)
        status = berm__store_release_idle(&phys->stores[i], keep_bytes);
    if (status == BERM_OK)
        status = leaving;
    return status == BERM_OK ? strays : status;
}

berm_status_t berm__store_release_newest(berm_store_t *store, uint64_t small, uint64_t large) {
    berm_status_t status = idle_release(store->phys, &store->idle_small, small, 0);
    return status == BERM_OK ? idle_release(store->phys, &store->idle_large, large, 0) : status;
}
