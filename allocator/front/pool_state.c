// SPDX-License-Identifier: Apache-2.0
// The calls of berm.h that take the state of a private pool and restore it. Locks: the device's;
// callbacks are called when it is given back, from lists that nobody else has.
#include "policy/pool_state.h"

#include "berm.h"
#include "front/heap.h"
#include "front/thread.h"

static berm_status_t state_fail(const char *call, int ordinal, berm_status_t status) {
    return berm__error_set(status, "%s, device %d: %s", call, ordinal, berm_status_text(status));
}

static berm_status_t take_check(const berm_group_t *group, int ordinal) {
    const uint32_t apart = BERM_GROUP_EXPORTABLE | BERM_GROUP_NO_SPLIT | BERM_GROUP_RESIZABLE;
    if ((group->traits & apart) != 0)
        return berm__error_set(BERM_ERROR_UNSUPPORTED,
                               "berm_pool_state_take: pool {%llu, %llu} on device %d has blocks "
                               "that own their memory or grow, which is not kept for them",
                               (unsigned long long)group->id.high,
                               (unsigned long long)group->id.low, ordinal);
    if (!berm__group_is_private(group))
        return berm__error_set(
            BERM_ERROR_STATE,
            "berm_pool_state_take: pool {%llu, %llu} on device %d is not "
            "private, so that its memory may leave it: make it BERM_POOL_PRIVATE",
            (unsigned long long)group->id.high, (unsigned long long)group->id.low, ordinal);
    return BERM_OK;
}

berm_status_t berm_pool_state_take(int ordinal, berm_pool_id_t id, berm_pool_state_t **state) {
    berm_device_t *device;
    bool is_running;
    if (state == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pool_state_take: state is NULL");
    *state = NULL;
    if (berm__pool_id_is_default(id))
        return berm__error_set(BERM_ERROR_ARGUMENT,
                               "berm_pool_state_take: {0, 0} is the default pool");
    berm_status_t status = berm__heap_device_look(ordinal, &device, &is_running);
    if (status != BERM_OK)
        return status;
    if (device == NULL)
        return berm__pool_unknown("berm_pool_state_take", ordinal, id);
    berm__mutex_lock(&device->lock);
    berm_group_t *group = berm__group_find(device, id);
    if (group != NULL) {
        status = take_check(group, ordinal);
        if (status == BERM_OK && berm__pool_state_take(group, state) != BERM_OK)
            status = state_fail("berm_pool_state_take", ordinal, BERM_ERROR_OUT_OF_HOST_MEMORY);
    }
    berm__mutex_unlock(&device->lock);
    return group != NULL ? status : berm__pool_unknown("berm_pool_state_take", ordinal, id);
}

// The group that the state is of, if it is in use still.
static berm_group_t *group_of(berm_device_t *device, const berm_pool_state_t *state) {
    BERM_LIST_EACH (berm_group_t, group, &device->groups, link)
        if (group->serial == state->serial && group->use_count > 0)
            return group;
    return NULL;
}

static berm_status_t restore_fail(const berm_pool_state_t *state, berm_status_t status) {
    const char *why = berm_status_text(status);
    if (status == BERM_ERROR_POOL_UNKNOWN)
        why = "the pool that the state was taken from has been released";
    if (status == BERM_ERROR_STATE)
        why = "addresses of the state are pinned, or were lost to an error of the driver";
    return berm__error_set(status, "berm_pool_state_restore, device %d: %s", state->ordinal, why);
}

// Notes what the restored pool's blocks were and are. Locked.
static void events_note(const berm_group_t *group, const berm_pool_state_t *state,
                        const berm_state_delta_t *delta) {
    berm_ring_t *ring = berm__thread_ring(atomic_load(&berm__heap.epoch));
    berm_ring_where_t where = {.ordinal = state->ordinal, .pool = group->id};
    for (size_t i = 0; ring != NULL && i < delta->count; i++) {
        const berm_state_freed_t *freed = &delta->freed[i];
        const berm_segment_t *segment = berm__addr_dir_find(&berm__heap.dir, freed->addr);
        where.stream = ((const berm_pool_t *)segment->pool)->stream->handle;
        berm__ring_once(ring, &where, BERM_RING_FREE, freed->addr, freed->requested_bytes, 0);
    }
    for (size_t i = 0; ring != NULL && i < state->count; i++) {
        const berm_state_block_t *block = &state->blocks[i];
        where.stream = ((const berm_pool_t *)block->segment->pool)->stream->handle;
        berm__ring_once(ring, &where, BERM_RING_ALLOC, block->addr, block->requested_bytes, 0);
    }
}

berm_status_t berm_pool_state_restore(const berm_pool_state_t *state, berm_pool_change_fn freed,
                                      berm_pool_change_fn allocated, void *context) {
    berm_device_t *device;
    berm_state_delta_t delta = {0};
    bool is_running, is_pushed;
    if (state == NULL)
        return berm__error_set(BERM_ERROR_ARGUMENT, "berm_pool_state_restore: state is NULL");
    berm_status_t status = berm__heap_device_look(state->ordinal, &device, &is_running);
    if (status == BERM_OK && device == NULL)
        status = restore_fail(state, BERM_ERROR_POOL_UNKNOWN);
    if (status == BERM_OK)
        status = berm__heap_device_enter(state->ordinal, &device, &is_pushed);
    if (status != BERM_OK)
        return status;
    berm_group_t *group = group_of(device, state);
    status =
        group != NULL ? berm__pool_state_restore(group, state, &delta) : BERM_ERROR_POOL_UNKNOWN;
    if (status == BERM_OK)
        events_note(group, state, &delta);
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__mutex_unlock(&device->lock);
    for (size_t i = 0; status == BERM_OK && freed != NULL && i < delta.count; i++)
        freed(context, delta.freed[i].addr, delta.freed[i].requested_bytes);
    for (size_t i = 0; status == BERM_OK && allocated != NULL && i < state->count; i++)
        allocated(context, state->blocks[i].addr, state->blocks[i].requested_bytes);
    berm__state_delta_destroy(&delta);
    return status == BERM_OK ? BERM_OK : restore_fail(state, status);
}

void berm_pool_state_destroy(berm_pool_state_t *state) {
    berm__pool_state_destroy(state);
}
