// SPDX-License-Identifier: Apache-2.0
// Segments from a pool's source: see source.h.
#include "front/source.h"

#include "base/bits.h"
#include "policy/source.h"
#include "vmm/plain.h"

// What a segment is asked for in: small requests share one, and so do middling ones.
static const struct {
    uint64_t request_bytes, segment_bytes;
} roomy[] = {{BERM_MIB(1), BERM_MIB(2)}, {BERM_MIB(10) - 1, BERM_MIB(20)}};

// A segment that the request fits in, of whole granules.
static uint64_t exact_bytes(const berm_group_t *group, const berm_want_t *want) {
    uint64_t granule = group->device->gpu.granule_bytes;
    uint64_t slack = want->alignment_bytes > BERM_CELL_BYTES ? want->alignment_bytes : 0;
    uint64_t least = berm__align_up(want->size_bytes, want->alignment_bytes) <= BERM_SMALL_MAX_BYTES
                         ? berm__size_class_slab_bytes(BERM_SIZE_CLASS_COUNT - 1)
                         : want->size_bytes + slack;
    return berm__align_up(least, granule);
}

static uint64_t roomy_bytes(const berm_group_t *group, const berm_want_t *want, uint64_t exact) {
    if ((group->traits & BERM_GROUP_NO_SPLIT) != 0)
        return exact;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(roomy); i++)
        if (want->size_bytes <= roomy[i].request_bytes)
            return berm__max_u64(
                exact, berm__align_up(roomy[i].segment_bytes, group->device->gpu.granule_bytes));
    return exact;
}

// Calls the source with no lock held.
static berm_addr_t source_call(berm_device_t *device, const berm_source_t *source, uint64_t bytes,
                               berm_stream_t stream) {
    bool is_pushed;
    berm_addr_t addr = 0;
    berm__callout_begin(device);
    if (berm__gpu_enter(&device->gpu, &is_pushed) == BERM_OK)
        addr = source->calls.alloc(source->calls.context, bytes, source->ordinal, stream);
    berm__gpu_leave(&device->gpu, is_pushed);
    berm__callout_end(device);
    return addr;
}

static bool has_room(berm_addr_t addr, uint64_t bytes, uint64_t span_bytes) {
    return berm__align_up(addr, BERM_CELL_BYTES) + span_bytes <= addr + bytes;
}

// Memory with room for the span at a multiple of a cell, in `use`, which gives it back; its address
// is 0 if there is none. The device's lock is given back meanwhile.
static void memory_ask(berm_device_t *device, berm_source_return_t *use, uint64_t span_bytes,
                       berm_stream_t stream) {
    const berm_pool_source_t *calls = &use->source->calls;
    for (uint64_t bytes = span_bytes;; bytes += device->gpu.granule_bytes) {
        use->addr = source_call(device, use->source, bytes, stream);
        use->size_bytes = bytes;
        use->stream = stream;
        if (use->addr == 0 || has_room(use->addr, bytes, span_bytes))
            return;
        berm_addr_t addr = use->addr;
        use->addr = 0;
        berm__callout_begin(device);
        calls->free(calls->context, addr, bytes, use->source->ordinal, stream);
        berm__callout_end(device);
        if (bytes > span_bytes) // a granule more has room wherever it begins
            return;
    }
}

// A segment of the group made of the memory. On failure it is still the caller's to give back.
static berm_status_t memory_adopt(berm_group_t *group, berm_source_return_t *use,
                                  uint64_t span_bytes, berm_stream_t handle) {
    berm_device_t *device = group->device;
    berm_stream_ref_t *stream;
    berm_segment_t *segment;
    berm_pool_t *pool;
    if (berm__device_growth_bytes(device) < use->size_bytes)
        return BERM_ERROR_LIMIT;
    berm_status_t status = berm__device_stream(device, handle, &stream);
    if (status == BERM_OK)
        status = berm__group_pool(group, stream, &pool);
    if (status == BERM_OK)
        status = berm__plain_adopt(group->store, device->dir, span_bytes, pool, use->addr,
                                   use->size_bytes, &segment);
    if (status != BERM_OK)
        return status;
    berm__mutex_lock(&pool->lock);
    status = berm__plain_open(segment, &pool->range_nodes);
    if (status == BERM_OK) {
        segment->source_return = use;
        berm__list_push_back(&pool->segments, &segment->link);
    }
    berm__mutex_unlock(&pool->lock);
    if (status != BERM_OK)
        berm__plain_forget(segment);
    return status;
}

// One segment of the span. OUT_OF_DEVICE_MEMORY: the source has none.
static berm_status_t segment_ask(berm_group_t *group, const berm_want_t *want,
                                 uint64_t span_bytes) {
    berm_device_t *device = group->device;
    uint64_t serial = group->serial;
    if (berm__device_growth_bytes(device) < span_bytes)
        return BERM_ERROR_LIMIT;
    berm_source_return_t *use = berm__source_use(group->source);
    if (use == NULL)
        return BERM_ERROR_OUT_OF_HOST_MEMORY;
    memory_ask(device, use, span_bytes, want->stream);
    berm_status_t status = use->addr != 0 ? BERM_OK : BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    bool is_used = false;
    if (status == BERM_OK) {
        group = berm__group_find(device, want->id);
        if (group != NULL && group->serial == serial) { // else the caller looks for it anew
            status = memory_adopt(group, use, span_bytes, want->stream);
            is_used = status == BERM_OK;
        }
    }
    if (!is_used)
        berm__source_return_add(device, use);
    return status;
}

// Gives back what the group has free, after a wait for its work if it must be.
static berm_status_t group_shrink(berm_group_t *group) {
    bool is_pushed;
    berm_status_t status = berm__gpu_enter(&group->device->gpu, &is_pushed);
    BERM_LIST_EACH (berm_pool_t, pool, &group->pools, group_link) {
        uint64_t released = 0;
        bool waited = true;
        if (status == BERM_OK)
            status = berm__deferred_process(pool, NULL);
        if (status == BERM_OK && berm__pool_has_order(pool))
            status = berm__stream_seal(pool->stream);
        while (status == BERM_OK && waited) {
            status = berm__plain_release(pool, UINT64_MAX, true, &released);
            waited = false;
            if (status == BERM_OK)
                status = berm__steal_wait(pool, &waited);
        }
    }
    berm__gpu_leave(&group->device->gpu, is_pushed);
    return status;
}

static bool is_none(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT;
}

berm_status_t berm__source_supply(berm_group_t *group, const berm_want_t *want,
                                  berm_source_step_t *step) {
    berm_device_t *device = group->device;
    uint64_t exact = exact_bytes(group, want), size = exact;
    berm_status_t status;
    if ((group->traits & BERM_GROUP_NO_SPLIT) != 0 && want->alignment_bytes > BERM_CELL_BYTES)
        return BERM_ERROR_ALIGNMENT;
    if (*step == BERM_SOURCE_ROOMY)
        size = roomy_bytes(group, want, exact);
    status = *step < BERM_SOURCE_SPENT ? segment_ask(group, want, size)
                                       : BERM_ERROR_OUT_OF_DEVICE_MEMORY;
    if (!is_none(status))
        return status;
    if (*step == BERM_SOURCE_ROOMY && size > exact) {
        *step = BERM_SOURCE_EXACT;
        return BERM_OK;
    }
    if (*step >= BERM_SOURCE_SHRUNK) {
        *step = BERM_SOURCE_SPENT;
        return status;
    }
    *step = BERM_SOURCE_SHRUNK;
    group = berm__group_find(device, want->id); // the lock was given back
    berm_status_t shrunk = group != NULL ? group_shrink(group) : BERM_OK;
    (void)berm__source_returns_settle_locked(device);
    device->retries++;
    return shrunk;
}
