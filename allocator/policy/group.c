// SPDX-License-Identifier: Apache-2.0
// Groups of pools: see group.h.
#include "policy/group.h"

#include <stdatomic.h>

#include "host/mem.h"
#include "policy/pool.h"
#include "policy/source.h"

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
    const struct {
        uint32_t trait;
        int attribute;
    } needs[] = {{BERM_GROUP_RDMA, BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED},
                 {BERM_GROUP_EXPORTABLE, BERM_CU_ATTR_POSIX_FD_SUPPORTED}};
    berm_cu_mem_prop_t prop = device->gpu.prop;
    *out = NULL;
    const uint32_t mapped = BERM_GROUP_EXPORTABLE | BERM_GROUP_RESIZABLE; // never plain
    if ((traits & BERM_GROUP_PLAIN) != 0 ||
        device->gpu.is_plain) // a network card reaches it as it is
        return (traits & mapped) != 0 ? BERM_ERROR_UNSUPPORTED
                                      : berm__phys_store_plain(&device->phys, out);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(needs); i++) {
        bool has = true;
        berm_status_t status = BERM_OK;
        if ((traits & needs[i].trait) != 0)
            status = berm__gpu_has(&device->gpu, needs[i].attribute, &has);
        if (status != BERM_OK || !has)
            return status != BERM_OK ? status : BERM_ERROR_UNSUPPORTED;
    }
    if ((traits & BERM_GROUP_EXPORTABLE) != 0)
        prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    if ((traits & BERM_GROUP_RDMA) != 0)
        prop.alloc_flags.gpu_direct_rdma_capable = 1;
    const uint32_t owned = BERM_GROUP_EXPORTABLE | BERM_GROUP_NO_SPLIT;
    bool is_told_apart = (traits & BERM_GROUP_EXPORTABLE) != 0 && !device->gpu.shares_pages;
    return berm__phys_store(&device->phys, &prop, (traits & owned) != 0 && !is_told_apart, out);
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
    static atomic_uint_fast64_t serials;
    *group = (berm_group_t){.device = device,
                            .id = id,
                            .traits = traits,
                            .store = store,
                            .serial = atomic_fetch_add(&serials, 1) + 1,
                            .use_count = 1};
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

berm_status_t berm__group_source_set(berm_group_t *group, const berm_pool_source_t *source) {
    group->source = berm__source_make(source, group->device->gpu.ordinal, &group->source_last);
    return group->source != NULL ? BERM_OK : BERM_ERROR_OUT_OF_HOST_MEMORY;
}

void berm__group_destroy(berm_group_t *group) {
    if (group->source != NULL)
        berm__source_return_add(group->device, group->source_last);
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

// Nothing that was freed into the pool is in use any more: a graph may have it.
static bool pool_is_clean(const berm_pool_t *pool) {
    return berm__stream_has_passed(pool->stream, pool->used_ticket);
}

// The group's pool of the stream that a capture may allocate from, or NULL.
static berm_pool_t *pool_for_capture(berm_group_t *group, const berm_stream_ref_t *stream,
                                     uint64_t capture) {
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
        if (pool->stream == stream && (pool->capture_id == capture || pool_is_clean(pool)))
            return pool;
    return NULL;
}

static berm_status_t capture_ask(const berm_stream_ref_t *stream, uint64_t *capture) {
    bool is_pushed;
    berm_status_t status = berm__gpu_enter(stream->gpu, &is_pushed);
    if (status == BERM_OK)
        status = berm__capture_read(stream->gpu, stream->handle, capture);
    berm__gpu_leave(stream->gpu, is_pushed);
    return status;
}

// From now on the pool is the capture's, if there is one.
static void capture_set(berm_pool_t *pool, uint64_t capture) {
    berm_group_t *group = pool->group;
    if (capture != BERM_CAPTURE_NONE && pool->capture_id != capture)
        pool->capture_index = atomic_load(&group->device->request_count);
    pool->capture_id = capture;
    group->is_captured |= capture != BERM_CAPTURE_NONE;
}

berm_status_t berm__pool_capture_join(berm_pool_t *pool) {
    uint64_t capture;
    if (!berm__pool_has_order(pool))
        return BERM_OK;
    berm_status_t status = capture_ask(pool->stream, &capture);
    if (status != BERM_OK)
        return status;
    if (capture != BERM_CAPTURE_NONE && pool->capture_id != capture && !pool_is_clean(pool))
        return BERM_ERROR_CAPTURE;
    capture_set(pool, capture);
    return BERM_OK;
}

berm_status_t berm__group_pool(berm_group_t *group, berm_stream_ref_t *stream, berm_pool_t **out) {
    uint64_t capture = BERM_CAPTURE_NONE;
    berm_status_t status = BERM_OK;
    bool is_default = berm__group_is_default(group);
    *out = NULL;
    if (BERM_UNLIKELY(!is_default))
        status = capture_ask(stream, &capture);
    if (status != BERM_OK)
        return status;
    *out = capture == BERM_CAPTURE_NONE ? berm__group_pool_find(group, stream)
                                        : pool_for_capture(group, stream, capture);
    if (BERM_UNLIKELY(*out == NULL))
        status = berm__pool_make(group, stream, out);
    if (status != BERM_OK || is_default)
        return status;
    capture_set(*out, capture);
    return BERM_OK;
}

void berm__group_routes_set(berm_group_t *group, uint32_t routes) {
    berm_watch_t *watch = &group->device->watch;
    group->routes = routes;
    watch->capture_routes = 0;
    BERM_LIST_EACH (const berm_group_t, each, &group->device->groups, link)
        if (berm__group_is_private(each))
            watch->capture_routes += each->routes;
}

// What was freed while an earlier graph of the group was captured comes back before the next one
// is: else graphs that share a pool would not share its memory. Whatever fails here costs memory
// only.
static void deferred_settle(berm_pool_t *pool) {
    bool waited = pool->group->is_captured;
    (void)berm__deferred_process(pool, NULL);
    while (waited && atomic_load(&pool->deferred_bytes) != 0)
        if (berm__deferred_wait_oldest(pool, &waited) != BERM_OK)
            break;
}

void berm__group_refresh(berm_group_t *group) {
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        deferred_settle(pool);
        if (pool_is_clean(pool) || !berm__pool_has_order(pool))
            continue;
        // Whatever fails here costs memory only: the capture gets a pool of its own.
        (void)berm__stream_seal(pool->stream);
        (void)berm__stream_poll(pool->stream);
        if (group->is_captured && !pool_is_clean(pool))
            (void)berm__stream_wait(pool->stream, pool->used_ticket);
    }
}

bool berm__pool_is_captured(berm_pool_t *pool) {
    uint64_t id = BERM_CAPTURE_NONE;
    if (pool->capture_id == BERM_CAPTURE_NONE)
        return false;
    if (!pool->stream->is_retired && capture_ask(pool->stream, &id) != BERM_OK)
        return true;
    if (id == pool->capture_id)
        return true;
    pool->capture_id = BERM_CAPTURE_NONE;
    return false;
}
