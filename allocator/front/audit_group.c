// SPDX-License-Identifier: Apache-2.0
// The audit of groups: which pools they have, and whose (I23), which are released (I25), and pools
// that are spare (I24).
//
// Locks: the device's. Calls no driver, allocates nothing.
#include "front/audit.h"

#include <inttypes.h>

static int pool_fail(const berm_audit_t *audit, const berm_pool_t *pool, const char *what) {
    return berm__audit_fail(audit, 23, 0, "the pool of stream 0x%" PRIxPTR " %s",
                            (uintptr_t)pool->stream->handle, what);
}

// Of one pool: the one of its stream, if its group is the default; its segments draw on the group's
// store.
static int pool_check(const berm_audit_t *audit, const berm_pool_t *pool) {
    const berm_group_t *group = pool->group;
    bool is_of_stream = pool->stream->pool == pool;
    if (is_of_stream != berm__group_is_default(group))
        return pool_fail(audit, pool,
                         is_of_stream ? "in the default group is of another"
                                      : "in the default group is not its stream's");
    BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link)
        if (segment->store != group->store)
            return pool_fail(audit, pool, "has a segment of another store than its group's");
    return 0;
}

// Each pool of the device's list is in a group's list, and the other way round.
static int groups_check(const berm_audit_t *audit) {
    uint64_t in_groups = 0, in_list = 0;
    BERM_LIST_EACH (const berm_group_t, group, &audit->device->groups, link) {
        BERM_LIST_EACH (const berm_pool_t, pool, &group->pools, group_link) {
            in_groups++;
            if (pool->group != group)
                return pool_fail(audit, pool, "is in the list of another group than its own");
        }
    }
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->pools, link)
        in_list++;
    if (in_groups != in_list || in_list != audit->device->pool_count)
        return berm__audit_fail(audit, 23, 0,
                                "%" PRIu64 " pools are in groups, %" PRIu64
                                " in the device's list, %u are counted",
                                in_groups, in_list, audit->device->pool_count);
    return 0;
}

static int stream_check(const berm_audit_t *audit, const berm_stream_ref_t *stream) {
    uint32_t count = 0;
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->pools, link)
        count += pool->stream == stream;
    if (count == stream->pool_count)
        return 0;
    return berm__audit_fail(audit, 23, 0, "stream 0x%" PRIxPTR " has %u pools, %u are counted",
                            (uintptr_t)stream->handle, count, stream->pool_count);
}

// I25.
static int released_check(const berm_audit_t *audit) {
    uint32_t count = 0;
    BERM_LIST_EACH (const berm_group_t, group, &audit->device->groups, link) {
        const berm_stream_ref_t *context = group->context;
        count += group->use_count == 0;
        bool is_right = context == NULL ||
                        (group->use_count == 0 && group->context_ticket <= context->open_ticket &&
                         context->handle == BERM_STREAM_NONE);
        if (!is_right)
            return berm__audit_fail(audit, 25, 0,
                                    "a pool with %" PRIu64 " uses waits for ticket %" PRIu64
                                    ", the open one is %" PRIu64,
                                    group->use_count, group->context_ticket, context->open_ticket);
    }
    if (count == audit->device->released_count)
        return 0;
    return berm__audit_fail(audit, 25, 0, "%u groups are released, %u are counted", count,
                            audit->device->released_count);
}

int berm__audit_groups(const berm_audit_t *audit) {
    int broken = groups_check(audit);
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->pools, link)
        if (broken == 0)
            broken = pool_check(audit, pool);
    BERM_LIST_EACH (const berm_stream_ref_t, stream, &audit->device->streams, link)
        if (broken == 0)
            broken = stream_check(audit, stream);
    return broken == 0 ? released_check(audit) : broken;
}

int berm__audit_spares(berm_audit_t *audit) {
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->spares, link) {
        bool is_empty = pool->group == NULL && pool->stream == NULL && !pool->is_default &&
                        pool->taken_blocks == 0 && berm__list_is_empty(&pool->deferred);
        BERM_LIST_EACH (const berm_segment_t, segment, &pool->segments, link) {
            audit->sums.address_bytes += segment->span_bytes;
            const berm_range_t *range = segment->ranges.first;
            is_empty = is_empty && segment->mapped_bytes == 0 && range->next == NULL &&
                       range->state == BERM_RANGE_VOID && range->size_bytes == segment->span_bytes;
        }
        if (!is_empty)
            return berm__audit_fail(audit, 24, 0, "a spare pool has a group, a stream or memory");
    }
    return 0;
}
