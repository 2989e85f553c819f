// SPDX-License-Identifier: Apache-2.0
// Free ranges of a segment: see ranges.h for what it promises and for invariants I1 to I4.
//
// Bins: a size of n units (512 B) lies in level L and linear step s. Sizes below 16 units have
// level 0 and s = n; above, L = floor(lg n) - 3 and s = the four bits after the leading one. So a
// bin's sizes differ by less than 1/16, and all of a bin above the request's own is large enough.
#include "core/ranges.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"

// How far a bin is walked in search of a closer or an aligned fit before a larger bin is tried.
enum {
    BIN_WALK_MAX = 8
};

typedef struct bin {
    unsigned level;
    unsigned linear;
} bin_t;

static bin_t bin_of(uint64_t size_bytes) {
    uint64_t units = size_bytes / BERM_RANGE_UNIT_BYTES;
    if (units < BERM_BIN_LINEAR)
        return (bin_t){0, (unsigned)units};
    unsigned lg = berm__bit_highest(units);
    return (bin_t){lg - BERM_BIN_LINEAR_LG + 1,
                   (unsigned)(units >> (lg - BERM_BIN_LINEAR_LG)) & (BERM_BIN_LINEAR - 1)};
}

static berm_bins_t *bins_for(berm_ranges_t *ranges, berm_range_state_t state) {
    return state == BERM_RANGE_FREE   ? &ranges->free
           : state == BERM_RANGE_VOID ? &ranges->voids
                                      : NULL;
}

// Puts a range into the bin of its size, if its state has bins.
static void bin_insert(berm_ranges_t *ranges, berm_range_t *range) {
    berm_bins_t *bins = bins_for(ranges, (berm_range_state_t)range->state);
    if (bins == NULL)
        return;
    bin_t bin = bin_of(range->size_bytes);
    berm__list_push_front(&bins->bins[bin.level][bin.linear], &range->as.bin);
    bins->linear_bits[bin.level] = bins->linear_bits[bin.level] | (1u << bin.linear);
    bins->level_bits |= UINT64_C(1) << bin.level;
    if (range->state == BERM_RANGE_FREE)
        ranges->free_bytes += range->size_bytes;
}

// Takes a range out of its bin, if it is in one.
static void bin_remove(berm_ranges_t *ranges, berm_range_t *range) {
    berm_bins_t *bins = bins_for(ranges, berm__range_state(range));
    if (bins == NULL)
        return;
    bin_t bin = bin_of(range->size_bytes);
    berm__list_remove(&range->as.bin);
    if (range->state == BERM_RANGE_FREE)
        ranges->free_bytes -= range->size_bytes;
    if (!berm__list_is_empty(&bins->bins[bin.level][bin.linear]))
        return;
    bins->linear_bits[bin.level] = bins->linear_bits[bin.level] & ~(1u << bin.linear);
    if (bins->linear_bits[bin.level] == 0)
        bins->level_bits &= ~(UINT64_C(1) << bin.level);
}

// The first bin that is not empty, from `bin` upwards; false at the end.
static bool bin_seek(const berm_bins_t *bins, bin_t *bin) {
    unsigned linear =
        bin->linear < BERM_BIN_LINEAR ? bins->linear_bits[bin->level] & (~0u << bin->linear) : 0;
    if (linear == 0) {
        uint64_t levels =
            bin->level + 1 < 64 ? bins->level_bits & (~UINT64_C(0) << (bin->level + 1)) : 0;
        if (levels == 0)
            return false;
        bin->level = berm__bit_lowest(levels);
        linear = bins->linear_bits[bin->level];
    }
    bin->linear = berm__bit_lowest(linear);
    return true;
}

// The first bin that is not empty, below `bin` downwards; false at the end.
static bool bin_seek_down(const berm_bins_t *bins, bin_t *bin) {
    unsigned linear = bins->linear_bits[bin->level];
    if (bin->linear < BERM_BIN_LINEAR)
        linear &= (1u << bin->linear) - 1;
    if (linear == 0) {
        uint64_t levels = bins->level_bits & ((UINT64_C(1) << bin->level) - 1);
        if (levels == 0)
            return false;
        bin->level = berm__bit_highest(levels);
        linear = bins->linear_bits[bin->level];
    }
    bin->linear = berm__bit_highest(linear);
    return true;
}

static berm_range_t *range_of_bin(berm_list_t *link) {
    return BERM_CONTAINER_OF(link, berm_range_t, as.bin);
}

static berm_range_t *bin_head_range(berm_bins_t *bins, bin_t bin) {
    return range_of_bin(bins->bins[bin.level][bin.linear].next);
}

static bool range_fits(const berm_range_t *range, uint64_t base, uint64_t size_bytes,
                       uint64_t alignment_bytes) {
    uint64_t start = berm__align_up(base + range->start_bytes, alignment_bytes) - base;
    uint64_t skipped = start - range->start_bytes;
    return skipped <= range->size_bytes && range->size_bytes - skipped >= size_bytes;
}

// The smallest range of a bin that fits, among the first `walk_max`; NULL if none does.
static berm_range_t *bin_best(berm_bins_t *bins, bin_t bin, uint64_t base, uint64_t size_bytes,
                              uint64_t alignment_bytes, uint64_t walk_max) {
    berm_list_t *head = &bins->bins[bin.level][bin.linear];
    berm_range_t *best = NULL;
    for (berm_list_t *link = head->next; link != head && walk_max > 0;
         link = link->next, walk_max--) {
        berm_range_t *range = range_of_bin(link);
        if (range_fits(range, base, size_bytes, alignment_bytes) &&
            (best == NULL || range->size_bytes < best->size_bytes))
            best = range;
    }
    return best;
}

// The same for any address: of the own bin's first ranges the smallest that fits, else what was
// freed last in the next larger bin, where everything fits.
static berm_range_t *find_unaligned(berm_ranges_t *ranges, uint64_t size_bytes) {
    bin_t own = bin_of(size_bytes), larger = {own.level, own.linear + 1};
    berm_range_t *range =
        bin_best(&ranges->free, own, 0, size_bytes, BERM_RANGE_UNIT_BYTES, BIN_WALK_MAX);
    if (range != NULL)
        return range;
    if (bin_seek(&ranges->free, &larger))
        return bin_head_range(&ranges->free, larger);
    // Only the own bin can still hold a fit, beyond the bounded walk.
    return bin_best(&ranges->free, own, 0, size_bytes, BERM_RANGE_UNIT_BYTES, UINT64_MAX);
}

berm_range_t *berm__ranges_find(berm_ranges_t *ranges, uint64_t base, uint64_t size_bytes,
                                uint64_t alignment_bytes) {
    if (size_bytes > ranges->span_bytes)
        return NULL;
    if (BERM_LIKELY(alignment_bytes <= BERM_RANGE_UNIT_BYTES))
        return find_unaligned(ranges, size_bytes);
    for (uint64_t walk_max = BIN_WALK_MAX;; walk_max = UINT64_MAX) {
        for (bin_t bin = bin_of(size_bytes); bin_seek(&ranges->free, &bin); bin.linear++) {
            berm_range_t *range =
                bin_best(&ranges->free, bin, base, size_bytes, alignment_bytes, walk_max);
            if (range != NULL)
                return range;
        }
        if (walk_max == UINT64_MAX) // any bin may have held a fit beyond the bounded walk
            return NULL;
    }
}

// A new node right after `range` in address order.
static berm_range_t *range_insert_after(berm_ranges_t *ranges, berm_range_t *range,
                                        uint64_t start_bytes, uint64_t size_bytes) {
    berm_range_t *node = berm__node_slab_take(ranges->nodes);
    BERM_INSIST(node != NULL, "range nodes are reserved before they are needed");
    *node = (berm_range_t){.start_bytes = start_bytes,
                           .size_bytes = size_bytes,
                           .prev = range,
                           .next = range->next,
                           .state = range->state};
    if (range->next != NULL)
        range->next->prev = node;
    range->next = node;
    return node;
}

static void range_drop(berm_ranges_t *ranges, berm_range_t *range) {
    if (range->prev != NULL)
        range->prev->next = range->next;
    else
        ranges->first = range->next;
    if (range->next != NULL)
        range->next->prev = range->prev;
    berm__node_slab_give(ranges->nodes, range);
}

berm_range_t *berm__ranges_carve(berm_ranges_t *ranges, berm_range_t *range, uint64_t start_bytes,
                                 uint64_t size_bytes, berm_range_state_t state) {
    uint64_t end = range->start_bytes + range->size_bytes;
    uint64_t cut_end = start_bytes + size_bytes;
    BERM_INSIST(start_bytes >= range->start_bytes && cut_end <= end && size_bytes > 0,
                "carve lies inside its range");
    bin_remove(ranges, range);
    if (cut_end < end) {
        berm_range_t *right = range_insert_after(ranges, range, cut_end, end - cut_end);
        range->size_bytes = cut_end - range->start_bytes;
        bin_insert(ranges, right);
    }
    if (start_bytes > range->start_bytes) {
        berm_range_t *cut = range_insert_after(ranges, range, start_bytes, size_bytes);
        range->size_bytes = start_bytes - range->start_bytes;
        bin_insert(ranges, range);
        range = cut;
    }
    range->state = (uint8_t)state;
    bin_insert(ranges, range);
    return range;
}

void berm__ranges_lift(berm_ranges_t *ranges, berm_range_t *range, berm_range_state_t state) {
    bin_remove(ranges, range);
    range->state = (uint8_t)state;
    bin_insert(ranges, range);
}

void berm__ranges_absorb_next(berm_ranges_t *ranges, berm_range_t *range) {
    berm_range_t *next = range->next;
    BERM_ASSERT(next != NULL && bins_for(ranges, (berm_range_state_t)next->state) == NULL &&
                    bins_for(ranges, (berm_range_state_t)range->state) == NULL,
                "absorbed ranges are lifted out of their bins first");
    range->size_bytes += next->size_bytes;
    range_drop(ranges, next);
}

berm_range_t *berm__ranges_settle(berm_ranges_t *ranges, berm_range_t *range,
                                  berm_range_state_t state) {
    bin_remove(ranges, range);
    range->state = (uint8_t)state;
    range->owner = NULL;
    range->is_slab = 0;
    range->is_pinned = 0;
    if (bins_for(ranges, state) == NULL)
        return range;
    berm_range_t *next = range->next;
    if (next != NULL && berm__range_state(next) == state) {
        bin_remove(ranges, next);
        range->size_bytes += next->size_bytes;
        range_drop(ranges, next);
    }
    berm_range_t *prev = range->prev;
    if (prev != NULL && berm__range_state(prev) == state) {
        bin_remove(ranges, prev);
        prev->size_bytes += range->size_bytes;
        range_drop(ranges, range);
        range = prev;
    }
    bin_insert(ranges, range);
    return range;
}

const berm_range_t *berm__ranges_largest_free(const berm_ranges_t *ranges) {
    bin_t bin = {BERM_BIN_LEVELS - 1, BERM_BIN_LINEAR};
    if (!bin_seek_down(&ranges->free, &bin))
        return NULL;
    const berm_list_t *head = &ranges->free.bins[bin.level][bin.linear];
    const berm_range_t *largest = NULL;
    for (berm_list_t *link = head->next; link != head; link = link->next) {
        const berm_range_t *range = range_of_bin(link);
        if (largest == NULL || range->size_bytes > largest->size_bytes)
            largest = range;
    }
    return largest;
}

berm_range_t *berm__ranges_bin_first(berm_ranges_t *ranges, uint64_t size_bytes) {
    bin_t bin = bin_of(size_bytes);
    return bin_seek(&ranges->free, &bin) ? bin_head_range(&ranges->free, bin) : NULL;
}

berm_range_t *berm__ranges_bin_next(berm_ranges_t *ranges, berm_range_t *range) {
    bin_t bin = bin_of(range->size_bytes);
    if (range->as.bin.next != &ranges->free.bins[bin.level][bin.linear])
        return range_of_bin(range->as.bin.next);
    bin.linear++;
    return bin_seek(&ranges->free, &bin) ? bin_head_range(&ranges->free, bin) : NULL;
}

berm_range_t *berm__ranges_bin_last(berm_ranges_t *ranges) {
    bin_t bin = {BERM_BIN_LEVELS - 1, BERM_BIN_LINEAR};
    return bin_seek_down(&ranges->free, &bin) ? bin_head_range(&ranges->free, bin) : NULL;
}

berm_range_t *berm__ranges_bin_prev(berm_ranges_t *ranges, berm_range_t *range) {
    bin_t bin = bin_of(range->size_bytes);
    if (range->as.bin.next != &ranges->free.bins[bin.level][bin.linear])
        return range_of_bin(range->as.bin.next);
    return bin_seek_down(&ranges->free, &bin) ? bin_head_range(&ranges->free, bin) : NULL;
}

berm_range_t *berm__ranges_find_void(berm_ranges_t *ranges, uint64_t size_bytes) {
    for (bin_t bin = bin_of(size_bytes); bin_seek(&ranges->voids, &bin); bin.linear++) {
        // A larger bin than the request's own has only ranges that fit.
        berm_range_t *range =
            bin_best(&ranges->voids, bin, 0, size_bytes, BERM_RANGE_UNIT_BYTES, BIN_WALK_MAX);
        if (range != NULL)
            return range;
    }
    return NULL;
}

berm_range_t *berm__ranges_largest_void(berm_ranges_t *ranges) {
    bin_t bin = {BERM_BIN_LEVELS - 1, BERM_BIN_LINEAR};
    return bin_seek_down(&ranges->voids, &bin) ? bin_head_range(&ranges->voids, bin) : NULL;
}

berm_range_t *berm__ranges_at(const berm_ranges_t *ranges, uint64_t offset_bytes) {
    berm_range_t *range = ranges->first;
    while (range != NULL && range->start_bytes + range->size_bytes <= offset_bytes)
        range = range->next;
    return range;
}

static void bins_init(berm_bins_t *bins) {
    for (unsigned level = 0; level < BERM_BIN_LEVELS; level++)
        for (unsigned linear = 0; linear < BERM_BIN_LINEAR; linear++)
            berm__list_init(&bins->bins[level][linear]);
}

bool berm__ranges_init(berm_ranges_t *ranges, uint64_t span_bytes, berm_node_slab_t *nodes) {
    *ranges = (berm_ranges_t){.span_bytes = span_bytes, .nodes = nodes};
    bins_init(&ranges->free);
    bins_init(&ranges->voids);
    berm_range_t *all = berm__node_slab_take(nodes);
    if (all == NULL)
        return false;
    *all = (berm_range_t){.size_bytes = span_bytes, .state = BERM_RANGE_VOID};
    ranges->first = all;
    bin_insert(ranges, all);
    return true;
}

void berm__ranges_destroy(berm_ranges_t *ranges) {
    while (ranges->first != NULL)
        range_drop(ranges, ranges->first);
}

// I3: bins hold ranges of their state and sizes, as many as there are, and the bitmaps agree.
static bool bins_agree(const berm_bins_t *bins, berm_range_state_t state, uint64_t count) {
    uint64_t binned = 0;
    for (unsigned level = 0; level < BERM_BIN_LEVELS; level++) {
        for (unsigned linear = 0; linear < BERM_BIN_LINEAR; linear++) {
            const berm_list_t *head = &bins->bins[level][linear];
            bool bit = (bins->linear_bits[level] >> linear & 1) != 0;
            if (bit == berm__list_is_empty(head))
                return false;
            for (berm_list_t *link = head->next; link != head; link = link->next, binned++) {
                const berm_range_t *range = range_of_bin(link);
                bin_t bin = bin_of(range->size_bytes);
                if (range->state != state || bin.level != level || bin.linear != linear)
                    return false;
            }
        }
        bool level_bit = (bins->level_bits >> level & 1) != 0;
        if (level_bit != (bins->linear_bits[level] != 0))
            return false;
    }
    return binned == count && bins->level_bits >> BERM_BIN_LEVELS == 0;
}

int berm__ranges_check(const berm_ranges_t *ranges, char *error, size_t error_capacity) {
    uint64_t at = 0, free_bytes = 0, free_count = 0, void_count = 0;
    const berm_range_t *prev = NULL;
    for (const berm_range_t *range = ranges->first; range != NULL; range = range->next) {
        int broken = 0;
        if (range->start_bytes != at || range->size_bytes == 0 || range->prev != prev)
            broken = 1;
        else if (prev != NULL && prev->state == range->state &&
                 (range->state == BERM_RANGE_FREE || range->state == BERM_RANGE_VOID))
            broken = 2;
        if (broken != 0) {
            (void)snprintf(error, error_capacity, "I%d: range at offset 0x%" PRIx64 ", %s", broken,
                           range->start_bytes,
                           berm__range_state_name((berm_range_state_t)range->state));
            return broken;
        }
        if (range->state == BERM_RANGE_FREE) {
            free_bytes += range->size_bytes;
            free_count++;
        }
        void_count += range->state == BERM_RANGE_VOID;
        at += range->size_bytes;
        prev = range;
    }
    int broken = 0;
    if (at != ranges->span_bytes)
        broken = 1;
    else if (!bins_agree(&ranges->free, BERM_RANGE_FREE, free_count) ||
             !bins_agree(&ranges->voids, BERM_RANGE_VOID, void_count))
        broken = 3;
    else if (free_bytes != ranges->free_bytes)
        broken = 4;
    if (broken != 0)
        (void)snprintf(error, error_capacity,
                       "I%d: ranges end at 0x%" PRIx64 " of 0x%" PRIx64 ", %" PRIu64
                       " free bytes counted, %" PRIu64 " kept",
                       broken, at, ranges->span_bytes, free_bytes, ranges->free_bytes);
    return broken;
}

const char *berm__range_state_name(berm_range_state_t state) {
    static const char *const names[BERM_RANGE_STATE_COUNT] = {
        "free", "void", "live", "awaited", "busy", "held", "cached", "stale", "poisoned"};
    return state < BERM_RANGE_STATE_COUNT ? names[state] : "unknown";
}
