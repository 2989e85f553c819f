// SPDX-License-Identifier: Apache-2.0
// The audit: walks everything and checks the numbered invariants, each as the comment of its struct
// states it (docs/invariants.md has the list). audit_segment.c has segments, audit_pool.c pools;
// here are streams, physical memory, figures and the address directory.
//
// Checks stop at the first that fails. A check relies only on what was checked before it: tilings
// first, sums last, so that a broken structure gives a number and no crash, as far as that goes.
//
// Cost: proportional to what is mapped, to the number of ranges and to deferred frees; long VOID
// ranges are sampled at their ends (audit_segment.c). Never calls the driver, allocates nothing.
// Locks: takes each device's in turn.
#include "front/audit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "front/heap.h"
#include "policy/cache.h"

int berm__audit_fail(const berm_audit_t *audit, int number, berm_addr_t addr, const char *format,
                     ...) {
    char where[96] = "", what[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    size_t length = 0;
    if (audit->pool != NULL)
        length = (size_t)snprintf(where, sizeof where, ", stream 0x%" PRIxPTR,
                                  (uintptr_t)audit->pool->stream->handle);
    if (addr != 0)
        (void)snprintf(where + length, sizeof where - length, ", address 0x%" PRIx64, addr);
    (void)snprintf(audit->error, audit->error_capacity, "I%d: device %d%s: %s", number,
                   audit->device->gpu.ordinal, where, what);
    return number;
}

// I20: passed < sealed tickets, rising < open.
static int stream_check(const berm_audit_t *audit, const berm_stream_ref_t *stream) {
    uint64_t last = stream->passed_ticket;
    bool is_right = stream->sealed_count <= BERM_STREAM_SEALED_MAX &&
                    stream->sealed_first < BERM_STREAM_SEALED_MAX && last >= BERM_TICKET_NONE;
    for (unsigned i = 0; is_right && i < stream->sealed_count; i++) {
        uint64_t ticket =
            stream->sealed[(stream->sealed_first + i) % BERM_STREAM_SEALED_MAX].ticket;
        is_right = ticket > last;
        last = ticket;
    }
    uint64_t open = atomic_load(&stream->open_ticket);
    if (is_right && open > last)
        return 0;
    return berm__audit_fail(audit, 20, 0,
                            "tickets of stream 0x%" PRIxPTR " are out of order: passed %" PRIu64
                            ", %u sealed, last %" PRIu64 ", open %" PRIu64,
                            (uintptr_t)stream->handle, stream->passed_ticket, stream->sealed_count,
                            last, open);
}

// One idle list: handles of `granules` each (0: of any size that has no list of its own), none of
// them mapped, all of this store, as many as counted (I11). Adds their granules to *total.
static int idle_list_check(const berm_audit_t *audit, const berm_store_t *store,
                           const berm_list_t *head, uint32_t granules, uint64_t expected,
                           uint64_t *total) {
    uint64_t count = 0;
    const char *wrong = NULL;
    for (const berm_list_t *link = head->next; link != head && count <= expected;
         link = link->next, count++) {
        const berm_phys_handle_t *handle =
            BERM_CONTAINER_OF((uintptr_t)link, berm_phys_handle_t, link);
        bool has_list = handle->granules == 1 || handle->granules == store->phys->large_granules;
        if (handle->segment != NULL)
            wrong = "mapped";
        else if (handle->store != store)
            wrong = "in another store than its own";
        else if (handle->is_exported)
            return berm__audit_fail(audit, 32, 0, "a handle that was exported is idle");
        else if (granules != 0 ? handle->granules != granules : has_list)
            wrong = "in the list of another size";
        if (wrong != NULL)
            return berm__audit_fail(audit, 11, 0, "an idle handle of %u granules is %s",
                                    handle->granules, wrong);
        *total += handle->granules;
    }
    if (count != expected)
        return berm__audit_fail(audit, 11, 0,
                                "%" PRIu64 " idle handles of %u granules are counted, and %s are "
                                "in the list",
                                expected, granules, count > expected ? "more" : "fewer");
    return 0;
}

// I11 of one store; adds what is idle in it to the sums.
static int store_check(const berm_audit_t *audit, const berm_store_t *store, uint64_t *idle,
                       uint64_t *idle_granules) {
    uint32_t large = store->phys->large_granules;
    uint64_t granules = 0, odd = 0;
    int broken =
        idle_list_check(audit, store, &store->idle_small, 1, store->idle_small_count, &granules);
    if (broken == 0)
        broken = idle_list_check(audit, store, &store->idle_large, large, store->idle_large_count,
                                 &granules);
    if (broken == 0)
        broken = idle_list_check(audit, store, &store->idle_odd, 0, store->idle_odd_count, &odd);
    if (broken == 0 && odd != store->idle_odd_granules)
        broken = berm__audit_fail(
            audit, 11, 0, "%" PRIu64 " granules in odd handles are counted, %" PRIu64 " are idle",
            store->idle_odd_granules, odd);
    *idle += store->idle_small_count + store->idle_large_count + store->idle_odd_count;
    *idle_granules += granules + odd;
    return broken;
}

// I30: the idle handles that only one pool may use name its lists.
static int aliased_check(const berm_audit_t *audit, const berm_pool_t *pool, uint64_t *idle,
                         uint64_t *idle_granules) {
    const berm_aliased_t *aliased = &pool->aliased;
    const berm_list_t *const heads[] = {&aliased->small, &aliased->large};
    uint64_t counted = aliased->small_count + aliased->large_count, count = 0;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(heads); i++) {
        const berm_list_t *link = heads[i]->next;
        for (; link != heads[i] && count <= counted; link = link->next, count++) {
            const berm_phys_handle_t *handle =
                BERM_CONTAINER_OF((uintptr_t)link, berm_phys_handle_t, link);
            if (handle->aliased != aliased || handle->segment != NULL)
                return berm__audit_fail(audit, 30, 0, "a handle aliased for a pool is %s",
                                        handle->segment != NULL ? "mapped" : "of another");
            *idle_granules += handle->granules;
        }
    }
    *idle += count;
    if (count == counted)
        return 0;
    return berm__audit_fail(audit, 30, 0, "%" PRIu64 " aliased handles are counted, %s are listed",
                            counted, count > counted ? "more" : "fewer");
}

// I10, I11, I17, I30.
static int phys_check(const berm_audit_t *audit) {
    const berm_phys_t *phys = &audit->device->phys;
    uint64_t idle = 0, idle_granules = 0;
    int broken = 0;
    for (unsigned i = 0; i < phys->store_count && broken == 0; i++)
        broken = store_check(audit, &phys->stores[i], &idle, &idle_granules);
    BERM_LIST_EACH (const berm_pool_t, pool, &audit->device->pools, link)
        if (broken == 0)
            broken = aliased_check(audit, pool, &idle, &idle_granules);
    uint64_t leaving = 0;
    if (broken == 0)
        broken = berm__audit_exports(audit, &leaving);
    if (broken != 0)
        return broken;
    idle += leaving + phys->stray_count;
    idle_granules += phys->leaving_granules;
    if (phys->stale_mappings != audit->sums.stale_mappings ||
        phys->stale_bytes != audit->sums.stale_bytes)
        return berm__audit_fail(audit, 30, 0,
                                "%" PRIu64 " mappings of %" PRIu64 " bytes are stale, %" PRIu64
                                " of %" PRIu64 " are counted",
                                audit->sums.stale_mappings, audit->sums.stale_bytes,
                                phys->stale_mappings, phys->stale_bytes);
    uint64_t bytes = audit->sums.mapped_bytes + audit->sums.plain_slack_bytes + phys->stray_bytes +
                     (idle_granules << phys->gpu->lg_granule);
    uint64_t mappings = audit->sums.mapped_handles - audit->sums.plain_handles;
    if (phys->mapping_count != mappings)
        return berm__audit_fail(
            audit, 17, 0, "%" PRIu64 " handles stand in segments, %" PRIu64 " mappings are counted",
            mappings, phys->mapping_count);
    uint64_t handles = audit->sums.mapped_handles - audit->sums.extra_views + idle;
    if (phys->handle_count != handles || phys->reserved_bytes != bytes)
        return berm__audit_fail(audit, 10, 0,
                                "%" PRIu64 " handles of %" PRIu64 " bytes are mapped or idle, "
                                "%" PRIu64 " of %" PRIu64 " bytes are counted",
                                handles, bytes, phys->handle_count, phys->reserved_bytes);
    return 0;
}

static int figure_check(const berm_audit_t *audit, const char *name, uint64_t kept,
                        uint64_t summed) {
    if (kept == summed)
        return 0;
    return berm__audit_fail(audit, 12, 0,
                            "%s is %" PRIu64 " for the device, %" PRIu64 " over its pools", name,
                            kept, summed);
}

// The device's share of I12 and I16, and the sum in I19.
static int figures_check(const berm_audit_t *audit) {
    const berm_device_t *device = audit->device;
    const berm_audit_sums_t *sums = &audit->sums;
    int broken = figure_check(audit, "requested", device->requested.current, sums->requested_bytes);
    if (broken == 0)
        broken = figure_check(audit, "allocated", device->allocated.current, sums->allocated_bytes);
    if (broken == 0)
        broken = figure_check(audit, "blocks", device->blocks.current, sums->blocks);
    if (broken == 0)
        broken = figure_check(audit, "active", device->active.current,
                              sums->allocated_bytes + sums->awaited_bytes);
    if (broken == 0 && device->poisoned_bytes != sums->poisoned_bytes)
        broken = berm__audit_fail(audit, 16, 0,
                                  "%" PRIu64 " bytes are poisoned, %" PRIu64 " are counted",
                                  sums->poisoned_bytes, device->poisoned_bytes);
    if (broken == 0 && device->address_bytes != sums->address_bytes)
        broken = berm__audit_fail(audit, 19, 0,
                                  "segments span %" PRIu64 " bytes, %" PRIu64 " are counted",
                                  sums->address_bytes, device->address_bytes);
    return broken;
}

static uint64_t counted(const atomic_uint_fast64_t *up, const atomic_uint_fast64_t *down) {
    return atomic_load(up) - atomic_load(down);
}

// I39.
static int tags_check(const berm_audit_t *audit) {
    for (unsigned tag = 1; tag < BERM_TAG_NUMBERS; tag++) {
        const berm_tag_count_t *count = &audit->device->tags[tag];
        uint64_t blocks = counted(&count->blocks_up, &count->blocks_down);
        uint64_t requested = counted(&count->requested_up, &count->requested_down);
        uint64_t allocated = counted(&count->allocated_up, &count->allocated_down);
        if (blocks != audit->sums.tags[tag].blocks ||
            requested != audit->sums.tags[tag].requested_bytes ||
            allocated != audit->sums.tags[tag].allocated_bytes)
            return berm__audit_fail(audit, 39, 0,
                                    "%" PRIu64 " blocks of %" PRIu64 " bytes have tag %u, %" PRIu64
                                    " of %" PRIu64 " are counted",
                                    audit->sums.tags[tag].blocks,
                                    audit->sums.tags[tag].requested_bytes, tag, blocks, requested);
    }
    return 0;
}

// I19: both ends of a segment lead to it.
static int address_check(const berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_addr_t ends[] = {segment->base, segment->base + segment->span_bytes - 1};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(ends); i++)
        if (berm__addr_dir_find(segment->dir, ends[i]) != segment)
            return berm__audit_fail(audit, 19, ends[i],
                                    "the address directory does not lead to the segment");
    return 0;
}

static int pool_check(berm_audit_t *audit, const berm_pool_t *pool) {
    audit->pool = pool;
    int broken = 0;
    for (const berm_list_t *link = pool->segments.next; link != &pool->segments && broken == 0;
         link = link->next) {
        const berm_segment_t *segment = BERM_CONTAINER_OF((uintptr_t)link, berm_segment_t, link);
        if (!segment->is_plain)
            audit->sums.address_bytes += segment->span_bytes;
        broken = address_check(audit, segment);
        if (broken == 0)
            broken = berm__audit_segment(audit, segment);
    }
    if (broken == 0)
        broken = berm__audit_pool(audit);
    audit->pool = NULL;
    return broken;
}

static int device_check(berm_audit_t *audit) {
    const berm_device_t *device = audit->device;
    if (device->phys.reserved_bytes < device->active.current)
        return berm__audit_fail(audit, 18, 0,
                                "%" PRIu64 " bytes are active, only %" PRIu64 " reserved",
                                device->active.current, device->phys.reserved_bytes);
    int broken = 0;
    for (const berm_list_t *link = device->streams.next; link != &device->streams && broken == 0;
         link = link->next)
        broken = stream_check(audit, BERM_CONTAINER_OF((uintptr_t)link, berm_stream_ref_t, link));
    if (broken == 0)
        broken = berm__audit_groups(audit);
    for (const berm_list_t *link = device->pools.next; link != &device->pools && broken == 0;
         link = link->next)
        broken = pool_check(audit, BERM_CONTAINER_OF((uintptr_t)link, berm_pool_t, link));
    if (broken == 0)
        broken = berm__audit_spares(audit);
    if (broken == 0)
        broken = phys_check(audit);
    if (broken == 0)
        broken = berm__audit_share(audit);
    if (broken == 0)
        broken = berm__audit_pins(audit);
    if (broken == 0)
        broken = tags_check(audit);
    return broken != 0 ? broken : figures_check(audit);
}

int berm__audit_run(char *error, size_t error_capacity) {
    int broken = 0;
    for (int ordinal = 0; ordinal < BERM_DEVICES_MAX && broken == 0; ordinal++) {
        berm_device_t *device = berm__heap_device_opened(ordinal);
        if (device == NULL)
            continue;
        berm_audit_t audit = {.device = device, .error = error, .error_capacity = error_capacity};
        berm__mutex_lock(&device->lock);
        berm__caches_claim(device);
        broken = berm__audit_caches(&audit);
        berm__device_freeze(device);
        if (broken == 0)
            broken = device_check(&audit);
        berm__device_thaw(device);
        berm__mutex_unlock(&device->lock);
    }
    return broken != 0 ? broken : berm__ring_check(error, error_capacity);
}

berm_status_t berm_audit(int *invariant) {
    bool is_running;
    if (invariant != NULL)
        *invariant = 0;
    berm_status_t status = berm__heap_peek(&is_running);
    if (status != BERM_OK || !is_running)
        return status;
    char error[200];
    int broken = berm__audit_run(error, sizeof error);
    if (broken == 0)
        return BERM_OK;
    if (invariant != NULL)
        *invariant = broken;
    return berm__error_set(BERM_ERROR_CORRUPTION, "%s", error);
}
