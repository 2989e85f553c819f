// SPDX-License-Identifier: Apache-2.0
// The audit of one segment: its tiling (I1 to I4), handles behind its granules (I5, I6), slots (I7)
// and tickets (I8). Also sums what is mapped and poisoned.
//
// Cost: every granule and slot of what is mapped is looked at. Of a VOID range, where nothing ever
// was in most of hundreds of gigabytes of addresses, only the first and the last 64 granules and
// their slots are: a stray entry in the middle of a long one is not found.
//
// Locks: the device's. Calls no driver, allocates nothing.
#include "front/audit.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "policy/source.h"

#define SAMPLE_GRANULES UINT64_C(64)

static berm_addr_t granule_addr(const berm_segment_t *segment, uint64_t granule) {
    return segment->base + (granule << segment->gpu->lg_granule);
}

// I5: VOID, STALE and POISONED ranges are whole granules.
static int whole_check(const berm_audit_t *audit, const berm_segment_t *segment,
                       const berm_range_t *range) {
    if ((range->state != BERM_RANGE_VOID && range->state != BERM_RANGE_STALE &&
         range->state != BERM_RANGE_POISONED) ||
        berm__is_aligned(range->start_bytes | range->size_bytes, segment->gpu->granule_bytes))
        return 0;
    return berm__audit_fail(audit, 5, segment->base + range->start_bytes,
                            "a %s range is not of whole granules",
                            berm__range_state_name((berm_range_state_t)range->state));
}

// I5: a VOID range has no handle, nor has a STALE one.
static int void_check(const berm_audit_t *audit, const berm_segment_t *segment,
                      const berm_range_t *range) {
    uint64_t first = berm__segment_granule_of(segment, range->start_bytes);
    uint64_t count = berm__segment_granule_of(segment, range->size_bytes);
    for (uint64_t i = 0; i < count; i++) {
        if (i == SAMPLE_GRANULES && count > 2 * SAMPLE_GRANULES)
            i = count - SAMPLE_GRANULES;
        if (segment->handle_of[first + i] != NULL)
            return berm__audit_fail(audit, 5, granule_addr(segment, first + i),
                                    "a granule of a %s range has a handle",
                                    berm__range_state_name((berm_range_state_t)range->state));
    }
    return 0;
}

// I6: the handle that begins at a granule stands as often in a row as it has granules.
static int handle_check(const berm_audit_t *audit, const berm_segment_t *segment,
                        uint64_t granule) {
    const berm_phys_handle_t *handle = segment->handle_of[granule];
    uint64_t end = berm__segment_granule_of(segment, segment->span_bytes), at = granule;
    while (at < end && segment->handle_of[at] == handle)
        at++;
    bool begins = granule == 0 || segment->handle_of[granule - 1] != handle;
    if (segment->has_views) // each granule for itself: I34
        begins = handle->granules == 1;
    else if (handle->views != 1)
        begins = false;
    if (!begins || (!segment->has_views && at - granule != handle->granules))
        return berm__audit_fail(audit, 6, granule_addr(segment, granule),
                                "a handle of %u granules stands %" PRIu64 " times in a row%s",
                                handle->granules, at - granule, begins ? "" : ", and once before");
    if (handle->segment != segment)
        return berm__audit_fail(audit, 6, granule_addr(segment, granule),
                                "a handle that stands in a segment %s",
                                handle->segment == NULL ? "is idle" : "names another");
    if (handle->store != segment->store)
        return berm__audit_fail(audit, 22, granule_addr(segment, granule),
                                "a handle stands in a segment of another store");
    return 0;
}

// I8: the ticket of a mapped granule is one that its stream has given out.
static int ticket_check(const berm_audit_t *audit, const berm_segment_t *segment,
                        uint64_t granule) {
    const berm_stream_ref_t *stream = audit->pool->stream;
    uint64_t ticket = segment->ticket_of[granule];
    if (ticket >= BERM_TICKET_NONE &&
        (ticket < stream->open_ticket || (ticket == stream->open_ticket && stream->is_open_used)))
        return 0;
    return berm__audit_fail(audit, 8, granule_addr(segment, granule),
                            "a granule has ticket %" PRIu64 ", the open one is %" PRIu64
                            " and %s used",
                            ticket, stream->open_ticket, stream->is_open_used ? "is" : "is not");
}

// The granules of a range that is not VOID, from *at on (what is before was checked with the range
// before): all have handles. A POISONED one may have none where mapping failed.
static int mapped_check(berm_audit_t *audit, const berm_segment_t *segment,
                        const berm_range_t *range, uint64_t *at) {
    uint64_t end =
        berm__segment_granule_of(segment, range->start_bytes + range->size_bytes - 1) + 1;
    *at = berm__max_u64(*at, berm__segment_granule_of(segment, range->start_bytes));
    while (*at < end) {
        const berm_phys_handle_t *handle = segment->handle_of[*at];
        if (handle == NULL && range->state != BERM_RANGE_POISONED)
            return berm__audit_fail(audit, 5, granule_addr(segment, *at),
                                    "a granule of a %s range has no handle",
                                    berm__range_state_name((berm_range_state_t)range->state));
        if (handle == NULL) {
            ++*at;
            continue;
        }
        int broken = handle_check(audit, segment, *at);
        for (uint64_t i = 0; broken == 0 && i < handle->granules; i++)
            broken = ticket_check(audit, segment, *at + i);
        if (broken != 0)
            return broken;
        if (handle->is_exported && range->state == BERM_RANGE_FREE)
            return berm__audit_fail(audit, 32, granule_addr(segment, *at),
                                    "a handle that was exported is behind a free range");
        audit->sums.mapped_handles++;
        if (segment->has_views) { // each page once, below
            ++*at;
            continue;
        }
        if (handle->is_exported)
            audit->sums.exported_bytes += (uint64_t)handle->granules << segment->gpu->lg_granule;
        audit->sums.pins_of_handles += handle->pins;
        if (handle->pins > 0)
            audit->sums.pinned_bytes += (uint64_t)handle->granules << segment->gpu->lg_granule;
        audit->sums.mapped_bytes += (uint64_t)handle->granules << segment->gpu->lg_granule;
        *at += handle->granules;
    }
    return 0;
}

// I30: the list of stale ranges has each of them once, under a ticket that was given out.
static int stale_check(berm_audit_t *audit, const berm_segment_t *segment) {
    uint64_t listed = 0, tiled = 0, open = audit->pool->stream->open_ticket;
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        tiled += range->state == BERM_RANGE_STALE;
        if (range->state != BERM_RANGE_POISONED || range->mappings == 0)
            continue;
        audit->sums.stale_mappings += range->mappings;
        audit->sums.stale_bytes += range->size_bytes;
    }
    const berm_range_t *range = segment->stale;
    for (; range != NULL && listed <= tiled; range = range->as.stale.next, listed++) {
        if (range->state != BERM_RANGE_STALE || range->mappings == 0 ||
            range->as.stale.ticket < BERM_TICKET_NONE || range->as.stale.ticket > open)
            return berm__audit_fail(audit, 30, segment->base + range->start_bytes,
                                    "a %s range of %u mappings is in the list of stale ones, under "
                                    "ticket %" PRIu64,
                                    berm__range_state_name((berm_range_state_t)range->state),
                                    range->mappings, range->as.stale.ticket);
        audit->sums.stale_mappings += range->mappings;
        audit->sums.stale_bytes += range->size_bytes;
    }
    if (listed == tiled)
        return 0;
    return berm__audit_fail(audit, 30, segment->base,
                            "%" PRIu64 " ranges are stale, %s are in their list", tiled,
                            listed > tiled ? "more" : "fewer");
}

static int granules_check(berm_audit_t *audit, const berm_segment_t *segment) {
    uint64_t at = 0, poisoned_bytes = 0, mapped_before = audit->sums.mapped_bytes;
    int broken = 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL && broken == 0;
         range = range->next) {
        if (range->state == BERM_RANGE_POISONED)
            poisoned_bytes += range->size_bytes;
        broken = whole_check(audit, segment, range);
        if (broken == 0)
            broken = range->state == BERM_RANGE_VOID || range->state == BERM_RANGE_STALE
                         ? void_check(audit, segment, range)
                         : mapped_check(audit, segment, range, &at);
    }
    if (broken == 0)
        broken = berm__audit_arena(audit, segment);
    if (broken == 0)
        broken = stale_check(audit, segment);
    audit->sums.poisoned_bytes += poisoned_bytes;
    if (broken == 0 && poisoned_bytes != segment->poisoned_bytes)
        broken = berm__audit_fail(audit, 16, segment->base,
                                  "%" PRIu64 " bytes of the segment are poisoned, %" PRIu64
                                  " are counted",
                                  poisoned_bytes, segment->poisoned_bytes);
    uint64_t mapped_bytes = audit->sums.mapped_bytes - mapped_before;
    if (broken == 0 && mapped_bytes != segment->mapped_bytes)
        broken =
            berm__audit_fail(audit, 22, segment->base,
                             "%" PRIu64 " bytes of the segment are mapped, %" PRIu64 " are counted",
                             mapped_bytes, segment->mapped_bytes);
    return broken;
}

// I28. Sums what a plain segment's allocation has beside its span.
static int plain_check(berm_audit_t *audit, const berm_segment_t *segment) {
    const char *wrong = NULL;
    uint64_t granules = segment->span_bytes >> segment->gpu->lg_granule;
    if (segment->is_plain != segment->store->is_plain)
        wrong = "is plain and its store is not, or the other way round";
    else if (!segment->is_plain)
        return 0;
    else if (!berm__is_aligned(segment->base, BERM_CELL_BYTES) ||
             segment->base < segment->plain_addr ||
             segment->base + segment->span_bytes > segment->plain_addr + segment->plain_bytes)
        wrong = "does not lie in its allocation";
    else if (segment->handle_of[0] == NULL || segment->handle_of[0]->granules != granules)
        wrong = "is not of one handle";
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next)
        if (range->state == BERM_RANGE_VOID)
            wrong = "has a void range";
    if (wrong != NULL)
        return berm__audit_fail(audit, 28, segment->base, "a segment %s", wrong);
    audit->sums.plain_handles++;
    audit->sums.plain_slack_bytes += segment->plain_bytes - segment->span_bytes;
    return 0;
}

// I36.
static int source_check(berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_pool_t *pool = segment->pool;
    const berm_source_return_t *last = segment->source_return;
    const berm_source_t *source = pool->group != NULL ? pool->group->source : NULL;
    const char *wrong = NULL;
    if ((last != NULL) != (source != NULL && segment->is_plain))
        wrong = "has a source and its pool none, or the other way round";
    else if (last == NULL)
        return 0;
    else if (last->source != source)
        wrong = "is of another source than its pool";
    else if (last->addr != segment->plain_addr || last->size_bytes != segment->plain_bytes)
        wrong = "would not go back as it came";
    return wrong == NULL ? 0 : berm__audit_fail(audit, 36, segment->base, "a segment %s", wrong);
}

// I37.
static int resizable_check(berm_audit_t *audit, const berm_segment_t *segment) {
    const berm_pool_t *pool = segment->pool;
    unsigned blocks = 0;
    bool has_slab = false;
    if (pool->group == NULL || !berm__pool_is_resizable(pool))
        return 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL; range = range->next) {
        blocks += range->state == BERM_RANGE_LIVE || range->state == BERM_RANGE_AWAITED ||
                  range->state == BERM_RANGE_HELD;
        has_slab |= range->state == BERM_RANGE_LIVE && range->is_slab;
    }
    if (blocks <= 1 && !has_slab)
        return 0;
    return berm__audit_fail(audit, 37, segment->base, "%u blocks%s in a segment of one block",
                            blocks, has_slab ? ", slabs too," : "");
}

// --- slots (I7) --------------------------------------------------------------------------------

// The first slot in [at, end) that has not `value`, or end. Most of an audit's time is spent here:
// a heap has a slot for each 64 KiB of its addresses.
static uint64_t slots_differ(const berm_segment_t *segment, uint64_t at, uint64_t end,
                             uintptr_t value) {
    const _Atomic(uintptr_t) *cells = segment->cells;
    for (; at + 4 <= end; at += 4) {
        uintptr_t differs = (atomic_load_explicit(&cells[at], memory_order_relaxed) ^ value) |
                            (atomic_load_explicit(&cells[at + 1], memory_order_relaxed) ^ value) |
                            (atomic_load_explicit(&cells[at + 2], memory_order_relaxed) ^ value) |
                            (atomic_load_explicit(&cells[at + 3], memory_order_relaxed) ^ value);
        if (differs != 0)
            break;
    }
    while (at < end && atomic_load_explicit(&cells[at], memory_order_relaxed) == value)
        at++;
    return at;
}

// Slots [*at, end) have `value`; of long runs of nothing only the ends are looked at.
static int slots_check(const berm_audit_t *audit, const berm_segment_t *segment, uint64_t *at,
                       uint64_t end, uintptr_t value, bool is_sampled) {
    uint64_t sample = SAMPLE_GRANULES * (segment->gpu->granule_bytes / BERM_CELL_BYTES);
    if (*at >= end)
        return 0;
    if (is_sampled && end - *at > 2 * sample) {
        uint64_t low_end = *at + sample;
        uint64_t low = slots_differ(segment, *at, low_end, value);
        *at = low < low_end ? low : slots_differ(segment, end - sample, end, value);
    } else {
        *at = slots_differ(segment, *at, end, value);
    }
    if (*at == end)
        return 0;
    return berm__audit_fail(audit, 7, segment->base + *at * BERM_CELL_BYTES,
                            "a slot holds 0x%" PRIxPTR ", not 0x%" PRIxPTR,
                            berm__segment_cell_read(segment, *at * BERM_CELL_BYTES), value);
}

// A slot that is cut by the end of a range is left to the range that covers its end, unless a block
// begins in it.
static int range_slots_check(const berm_audit_t *audit, const berm_segment_t *segment,
                             const berm_range_t *range, uint64_t *at) {
    uint64_t first = range->start_bytes / BERM_CELL_BYTES;
    uint64_t end = (range->start_bytes + range->size_bytes) / BERM_CELL_BYTES;
    if (range->state != BERM_RANGE_LIVE)
        return slots_check(audit, segment, at, end, 0, range->state == BERM_RANGE_VOID);
    if (*at > first)
        return berm__audit_fail(audit, 7, segment->base + range->start_bytes,
                                "two blocks begin in one slot");
    int broken = slots_check(audit, segment, at, first, 0, false);
    if (broken == 0 && range->is_slab)
        return slots_check(audit, segment, at, end, (uintptr_t)range->owner | BERM_CELL_IS_SLAB,
                           false);
    if (broken == 0)
        broken = slots_check(audit, segment, at, first + 1, (uintptr_t)range, false);
    return broken != 0 ? broken : slots_check(audit, segment, at, end, 0, false);
}

int berm__audit_segment(berm_audit_t *audit, const berm_segment_t *segment) {
    char line[160]; // "I1: …"
    int broken = berm__ranges_check(&segment->ranges, line, sizeof line);
    if (broken != 0)
        return berm__audit_fail(audit, broken, segment->base, "%s", strchr(line, ' ') + 1);
    broken = plain_check(audit, segment);
    if (broken == 0)
        broken = source_check(audit, segment);
    if (broken == 0)
        broken = resizable_check(audit, segment);
    if (broken == 0)
        broken = granules_check(audit, segment);
    uint64_t at = 0;
    for (const berm_range_t *range = segment->ranges.first; range != NULL && broken == 0;
         range = range->next)
        broken = range_slots_check(audit, segment, range, &at);
    return broken;
}
