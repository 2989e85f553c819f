// SPDX-License-Identifier: Apache-2.0
// Pools of the caller's: the calls of berm.h that make, route to and release them, and their
// statistics.
//
// Locks: the device's, but for routes (route.h), which are changed before it is taken or after.
#include <string.h>

#include "berm_introspect.h"
#include "front/heap.h"
#include "front/route.h"
#include "policy/cache.h"
#include "policy/source.h"

_Static_assert((int)BERM_POOL_PRIVATE == (int)BERM_GROUP_PRIVATE &&
                   (int)BERM_POOL_EXPORTABLE == (int)BERM_GROUP_EXPORTABLE &&
                   (int)BERM_POOL_PINNED == (int)BERM_GROUP_PINNED &&
                   (int)BERM_POOL_PLAIN == (int)BERM_GROUP_PLAIN &&
                   (int)BERM_POOL_RDMA == (int)BERM_GROUP_RDMA &&
                   (int)BERM_POOL_USE_ON_OOM == (int)BERM_GROUP_USE_ON_OOM &&
                   (int)BERM_POOL_NO_SPLIT == (int)BERM_GROUP_NO_SPLIT &&
                   (int)BERM_POOL_RESIZABLE == (int)BERM_GROUP_RESIZABLE,
               "public traits are the group's");

static const uint32_t traits_known = BERM_POOL_PRIVATE | BERM_POOL_EXPORTABLE | BERM_POOL_PINNED |
                                     BERM_POOL_PLAIN | BERM_POOL_RDMA | BERM_POOL_USE_ON_OOM |
                                     BERM_POOL_NO_SPLIT | BERM_POOL_RESIZABLE;
// What a pool of resizable blocks is beside that.
static const uint32_t traits_with_resizable =
    BERM_POOL_RESIZABLE | BERM_POOL_PINNED | BERM_POOL_RDMA;

berm_status_t berm__pool_unknown(const char *call, int ordinal, berm_pool_id_t id) {
    return berm__error_set(BERM_ERROR_POOL_UNKNOWN, "%s: no pool {%llu, %llu} on device %d", call,
                           (unsigned long long)id.high, (unsigned long long)id.low, ordinal);
}

static berm_status_t id_check(const char *call, berm_pool_id_t id) {
    if (!berm__pool_id_is_default(id))
        return BERM_OK;
    return berm__error_set(BERM_ERROR_ARGUMENT, "%s: {0, 0} is the default pool", call);
}

// After berm__heap_device_enter.
static void pool_leave(berm_device_t *device, bool is_pushed) {
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    berm__source_returns_settle(device);
}

// The group with the id and one more use, made where there is none; `options` NULL: as it is.
static berm_status_t group_retain(berm_device_t *device, berm_pool_id_t id,
                                  const berm_pool_options_t *options, uint32_t traits_new,
                                  berm_group_t **out) {
    bool has_source = options != NULL && options->source.alloc != NULL;
    bool is_plain = has_source || device->gpu.is_plain; // of every group there
    uint32_t traits = (options != NULL ? options->traits : traits_new) |
                      (is_plain ? (uint32_t)BERM_GROUP_PLAIN : 0);
    *out = berm__group_find(device, id);
    if (*out == NULL) {
        berm_status_t status = berm__group_create(device, id, traits, out);
        if (status == BERM_OK && has_source)
            status = berm__group_source_set(*out, &options->source);
        if (status != BERM_OK && *out != NULL)
            berm__group_destroy(*out);
        return status;
    }
    if (options != NULL &&
        ((*out)->traits != traits || !berm__source_is((*out)->source, &options->source)))
        return BERM_ERROR_STATE;
    (*out)->use_count++;
    return BERM_OK;
}

static berm_status_t retain_fail(const char *call, int ordinal, berm_pool_id_t id,
                                 berm_status_t status) {
    return berm__error_set(status, "%s: pool {%llu, %llu} on device %d: %s", call,
                           (unsigned long long)id.high, (unsigned long long)id.low, ordinal,
                           status == BERM_ERROR_STATE
                               ? "it exists, with other traits or another source"
                               : berm_status_text(status));
}

static berm_status_t options_check(const berm_pool_options_t *options) {
    if (options == NULL)
        return BERM_OK;
    if (options->size != sizeof *options)
        return berm__error_set(BERM_ERROR_VERSION,
                               "berm_pool_create: options of %zu bytes, this library knows %zu",
                               options->size, sizeof *options);
    if ((options->traits & ~traits_known) != 0 || options->reserved_ != 0)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pool_create: unknown traits 0x%x",
                               options->traits & ~traits_known);
    const berm_pool_source_t *source = &options->source;
    if ((source->alloc == NULL) != (source->free == NULL))
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_create: a source has both alloc and free");
    if (source->alloc != NULL && (options->traits & BERM_POOL_EXPORTABLE) != 0)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_create: EXPORTABLE and a source exclude each other: "
                               "only a handle of the driver can be exported as a descriptor");
    const uint32_t pair = BERM_POOL_EXPORTABLE | BERM_POOL_PLAIN;
    if ((options->traits & pair) == pair)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_create: EXPORTABLE and PLAIN exclude each other: only a "
                               "handle of the driver can be exported as a descriptor");
    if ((options->traits & BERM_POOL_RESIZABLE) != 0 &&
        (source->alloc != NULL || (options->traits & ~traits_with_resizable) != 0))
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_create: RESIZABLE goes with PINNED and RDMA only: the "
                               "driver's pages are mapped behind a block as it grows");
    const uint32_t lending = BERM_POOL_PRIVATE | BERM_POOL_USE_ON_OOM;
    if ((options->traits & lending) == lending)
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_create: PRIVATE and USE_ON_OOM exclude each other: a "
                               "graph uses its memory at every launch");
    return BERM_OK;
}

// An exportable or resizable pool on a device whose memory is plain throughout.
static berm_status_t mapped_refuse(int ordinal, berm_pool_id_t id, uint32_t traits) {
    return berm__error_set(BERM_ERROR_UNSUPPORTED,
                           "berm_pool_create: pool {%llu, %llu} on device %d: %s, and plain "
                           "memory is not %s",
                           (unsigned long long)id.high, (unsigned long long)id.low, ordinal,
                           berm__heap.options.backing == BERM_BACKING_PLAIN
                               ? "the option backing is plain"
                               : "it has no virtual memory management, so backing:auto is plain",
                           (traits & BERM_POOL_EXPORTABLE) != 0 ? "EXPORTABLE" : "RESIZABLE");
}

berm_status_t berm_pool_create(int ordinal, berm_pool_id_t id, const berm_pool_options_t *options) {
    berm_device_t *device;
    berm_group_t *group;
    bool is_pushed;
    berm_status_t status = id_check("berm_pool_create", id);
    if (status == BERM_OK)
        status = options_check(options);
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = group_retain(device, id, options, 0, &group);
    bool is_plain = device->gpu.is_plain;
    pool_leave(device, is_pushed);
    if (status == BERM_ERROR_UNSUPPORTED && is_plain)
        return mapped_refuse(ordinal, id, options != NULL ? options->traits : 0);
    return status == BERM_OK ? status : retain_fail("berm_pool_create", ordinal, id, status);
}

static void routes_end(uint64_t serial, bool all) {
    berm__route_remove(serial, all);
    berm__heap_hits_update();
}

berm_status_t berm_pool_release(int ordinal, berm_pool_id_t id) {
    berm_device_t *device;
    bool is_pushed, is_last = false;
    uint64_t serial = 0;
    berm_status_t status = id_check("berm_pool_release", id);
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    berm_group_t *group = berm__group_find(device, id);
    status = group != NULL ? BERM_OK : BERM_ERROR_POOL_UNKNOWN;
    if (group != NULL) {
        is_last = group->use_count == 1;
        serial = group->serial;
        uint32_t routes = group->routes;
        if (is_last)
            berm__group_routes_set(group, 0);
        status = berm__group_release(group);
        if (status != BERM_OK && is_last)
            berm__group_routes_set(group, routes);
    }
    pool_leave(device, is_pushed);
    if (status == BERM_OK && is_last)
        routes_end(serial, true); // those that were begun and not ended
    if (status == BERM_ERROR_POOL_UNKNOWN)
        return berm__pool_unknown("berm_pool_release", ordinal, id);
    return status == BERM_OK ? status : retain_fail("berm_pool_release", ordinal, id, status);
}

// Takes a use away again, of a pool that could not be routed to.
static void retain_undo(berm_device_t *device, berm_pool_id_t id, uint64_t serial) {
    bool is_pushed;
    berm__mutex_lock(&device->lock);
    berm_group_t *group = berm__group_find(device, id);
    if (group != NULL && group->serial == serial) {
        berm__group_routes_set(group, group->routes - 1);
        if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK)
            (void)berm__group_release(group); // a use that stays, if that fails too
        berm__gpu_leave(&device->gpu, is_pushed);
    }
    berm__mutex_unlock(&device->lock);
}

berm_status_t berm_pool_route_begin(int ordinal, berm_pool_id_t id, berm_pool_filter_fn filter,
                                    void *context) {
    berm_device_t *device;
    berm_group_t *group;
    bool is_pushed;
    uint64_t serial = 0;
    berm_status_t status = id_check("berm_pool_route_begin", id);
    if (status == BERM_OK && filter == NULL)
        status = berm__error_set(BERM_ERROR_ARGUMENT, "berm_pool_route_begin: filter is NULL");
    if (status == BERM_OK)
        status = berm__heap_device_enter(ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    status = group_retain(device, id, NULL, BERM_GROUP_PRIVATE, &group);
    if (status == BERM_OK) {
        serial = group->serial;
        berm__group_refresh(group);
        berm__group_routes_set(group, group->routes + 1);
    }
    pool_leave(device, is_pushed);
    if (status == BERM_OK) {
        status = berm__route_add(ordinal, serial, id, filter, context);
        if (status == BERM_OK)
            berm__heap_hits_update();
        else
            retain_undo(device, id, serial);
    }
    return status == BERM_OK ? status : retain_fail("berm_pool_route_begin", ordinal, id, status);
}

berm_status_t berm_pool_route_end(int ordinal, berm_pool_id_t id) {
    berm_device_t *device;
    berm_status_t status = id_check("berm_pool_route_end", id);
    if (status == BERM_OK)
        status = berm__heap_ready();
    if (status == BERM_OK)
        status = berm__heap_device(ordinal, &device);
    if (status != BERM_OK)
        return status;
    uint64_t serial = 0;
    berm__mutex_lock(&device->lock);
    berm_group_t *group = berm__group_find(device, id);
    if (group != NULL && group->routes > 0) {
        serial = group->serial;
        berm__group_routes_set(group, group->routes - 1);
    }
    berm__mutex_unlock(&device->lock);
    if (serial == 0)
        return berm__pool_unknown("berm_pool_route_end", ordinal, id);
    routes_end(serial, false);
    return BERM_OK;
}

// --- statistics --------------------------------------------------------------------------------

static void pool_add(berm_pool_t *pool, berm_pool_stats_t *stats) {
    berm__mutex_lock(&pool->lock);
    berm_pool_live_t live = berm__pool_live_read(pool);
    berm__mutex_unlock(&pool->lock);
    stats->parts++;
    stats->blocks += live.blocks;
    stats->requested_bytes += live.requested_bytes;
    stats->allocated_bytes += live.allocated_bytes;
    stats->awaited_bytes += atomic_load(&pool->deferred_bytes);
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
        stats->reserved_bytes += segment->mapped_bytes;
}

static berm_status_t stats_fill(berm_device_t *device, berm_pool_id_t id,
                                berm_pool_stats_t *stats) {
    berm__mutex_lock(&device->lock);
    berm__caches_claim(device); // what they do without a lock stands still
    const berm_group_t *group = berm__group_find(device, id);
    if (group != NULL) {
        stats->traits = group->traits | (group->is_captured ? BERM_POOL_PRIVATE : 0);
        stats->uses = group->use_count;
        stats->routes = group->routes;
        BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link)
            pool_add(pool, stats);
    }
    berm__caches_release(device);
    berm__mutex_unlock(&device->lock);
    return group != NULL ? BERM_OK : BERM_ERROR_POOL_UNKNOWN;
}

berm_status_t berm_pool_stats_read(int ordinal, berm_pool_id_t id, berm_pool_stats_t *stats) {
    bool is_running;
    if (stats == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pool_stats_read: stats is NULL");
    berm_device_t *device;
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    berm_pool_stats_t filled = {.size = sizeof filled, .device = ordinal};
    status = device != NULL ? stats_fill(device, id, &filled)
                            : (berm__pool_id_is_default(id) ? BERM_OK : BERM_ERROR_POOL_UNKNOWN);
    if (status != BERM_OK)
        return berm__pool_unknown("berm_pool_stats_read", ordinal, id);
    return berm__struct_give(stats, stats->size, &filled, sizeof filled);
}
