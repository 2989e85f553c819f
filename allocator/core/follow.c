// SPDX-License-Identifier: Apache-2.0
// The place in a cyclic plan: see follow.h.
//
// Places are counted on and on: place v is item v % count in pass v / count, so that going round
// the end of the period is no special case. served[item] is the last place it was served at, plus
// 1; a place is open exactly if served of its item is not above it.
#include "core/follow.h"

#include "base/bits.h"
#include "host/mem.h"

enum {
    NEAR = 4,            // how far a request is looked for from the cursor
    MISFIT_SKIP = 2,     // misfit rises by this with a request that is no item, and falls by 1
    MISFIT_TO_ALIGN = 8, // the cursor is moved from here on
    MISFIT_MAX = 32,
    GRAM = 8,       // for a place that the last so many sizes lead to,
    GRAM_MATCH = 6, // of which so many must be the same in the neighbourhood
};

#define GRAM_TWICE (UINT32_MAX - 1) // in the table: more than one item has this hash

struct berm_follow {
    uint64_t *sizes, *served; // by item
    uint64_t *hits;           // a ring of `count` bits, one a request: was it accepted?
    uint32_t *grams;          // by hash of GRAM sizes: the item that begins them, BERM_FOLLOW_NONE
    uint32_t count, gram_mask;
    uint32_t ahead, behind; // the reach; no item is within it twice
    uint32_t hit_at, hit_count;
    uint32_t item;         // at the cursor
    uint32_t misfit;       // see MISFIT_SKIP
    uint32_t skipped;      // requests since the last that was an item: each stood for one, perhaps
    uint64_t cursor;       // a place
    uint64_t recent[GRAM]; // the last sizes, the latest last
};

static uint32_t gram_mix(uint32_t hash, uint64_t size) {
    uint64_t mixed = (hash ^ size) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

static uint32_t gram_of_item(const berm_follow_t *follow, uint32_t item) {
    uint32_t hash = 0;
    for (uint32_t i = 0; i < GRAM; i++)
        hash = gram_mix(hash, follow->sizes[(item + i) % follow->count]);
    return hash & follow->gram_mask;
}

static uint32_t gram_of_recent(const berm_follow_t *follow) {
    uint32_t hash = 0;
    for (uint32_t i = 0; i < GRAM; i++)
        hash = gram_mix(hash, follow->recent[i]);
    return hash & follow->gram_mask;
}

static void grams_fill(berm_follow_t *follow) {
    for (uint32_t i = 0; i <= follow->gram_mask; i++)
        follow->grams[i] = BERM_FOLLOW_NONE;
    for (uint32_t item = 0; item < follow->count; item++) {
        uint32_t *entry = &follow->grams[gram_of_item(follow, item)];
        *entry = *entry == BERM_FOLLOW_NONE ? item : GRAM_TWICE;
    }
}

static size_t hits_bytes(const berm_follow_t *follow) {
    return ((size_t)follow->count / 64 + 1) * sizeof(uint64_t);
}

static bool follow_allocate(berm_follow_t *follow) {
    const size_t count = follow->count;
    follow->sizes = berm__mem_alloc(count * sizeof(uint64_t));
    follow->served = berm__mem_alloc(count * sizeof(uint64_t));
    follow->hits = berm__mem_alloc(hits_bytes(follow));
    follow->grams = berm__mem_alloc(((size_t)follow->gram_mask + 1) * sizeof(uint32_t));
    return follow->sizes != NULL && follow->served != NULL && follow->hits != NULL &&
           follow->grams != NULL;
}

berm_follow_t *berm__follow_create(const uint64_t *size_bytes, uint32_t item_count) {
    if (item_count == 0 || item_count >= UINT32_MAX / 8)
        return NULL;
    berm_follow_t *follow = berm__mem_alloc(sizeof *follow);
    if (follow == NULL)
        return NULL;
    follow->count = item_count;
    follow->gram_mask = (UINT32_C(4) << berm__bit_highest(item_count)) - 1;
    follow->ahead = (uint32_t)berm__min_u64(BERM_FOLLOW_REACH, item_count / 2);
    follow->behind = (uint32_t)berm__min_u64(BERM_FOLLOW_REACH, (item_count - 1) / 2);
    if (!follow_allocate(follow)) {
        berm__follow_destroy(follow);
        return NULL;
    }
    for (uint32_t i = 0; i < item_count; i++)
        follow->sizes[i] = size_bytes[i];
    for (size_t i = 0; i < hits_bytes(follow) / sizeof(uint64_t); i++)
        follow->hits[i] = UINT64_MAX;
    follow->hit_count = item_count;
    // What lies behind it has places too, even if the plan is followed backwards for long.
    follow->cursor = (uint64_t)item_count << 20;
    grams_fill(follow);
    return follow;
}

void berm__follow_destroy(berm_follow_t *follow) {
    if (follow == NULL)
        return;
    berm__mem_free(follow->sizes, follow->count * sizeof(uint64_t));
    berm__mem_free(follow->served, follow->count * sizeof(uint64_t));
    berm__mem_free(follow->hits, hits_bytes(follow));
    berm__mem_free(follow->grams, ((size_t)follow->gram_mask + 1) * sizeof(uint32_t));
    berm__mem_free(follow, sizeof *follow);
}

static uint32_t item_ahead(const berm_follow_t *follow, uint32_t distance) {
    uint32_t item = follow->item + distance;
    return item < follow->count ? item : item - follow->count;
}

static uint32_t item_behind(const berm_follow_t *follow, uint32_t distance) {
    return follow->item >= distance ? follow->item - distance
                                    : follow->item + follow->count - distance;
}

static bool is_open(const berm_follow_t *follow, uint32_t item, uint64_t place) {
    return follow->served[item] <= place;
}

// An open item of that size so far from the cursor, or BERM_FOLLOW_NONE.
static uint32_t item_try(const berm_follow_t *follow, uint64_t size_bytes, int32_t distance) {
    uint32_t far = (uint32_t)(distance < 0 ? -distance : distance);
    if (far > (distance < 0 ? follow->behind : follow->ahead))
        return BERM_FOLLOW_NONE;
    uint32_t item = distance < 0 ? item_behind(follow, far) : item_ahead(follow, far);
    uint64_t place = distance < 0 ? follow->cursor - far : follow->cursor + far;
    return follow->sizes[item] == size_bytes && is_open(follow, item, place) ? item
                                                                             : BERM_FOLLOW_NONE;
}

// Where the plan is followed only the cursor's item counts: a request of another size is mostly an
// item whose size has changed, and an equal one nearby will be asked for by itself. After such
// requests the item is looked for where each of them stood for one, then where fewer did (they were
// extra), then further on (some are missing), then behind.
uint32_t berm__follow_find(const berm_follow_t *follow, uint64_t size_bytes) {
    const int32_t skipped = (int32_t)berm__min_u64(follow->skipped, NEAR);
    uint32_t item = BERM_FOLLOW_NONE;
    for (int32_t at = skipped; at >= 0 && item == BERM_FOLLOW_NONE; at--)
        item = item_try(follow, size_bytes, at);
    for (int32_t i = 1; skipped > 0 && i <= NEAR && item == BERM_FOLLOW_NONE; i++) {
        item = item_try(follow, size_bytes, skipped + i);
        if (item == BERM_FOLLOW_NONE)
            item = item_try(follow, size_bytes, -i);
    }
    return item;
}

uint32_t berm__follow_due(const berm_follow_t *follow) {
    uint32_t distance = (uint32_t)berm__min_u64(follow->skipped, NEAR);
    return item_ahead(follow, distance % follow->count);
}

static void cursor_set(berm_follow_t *follow, uint64_t place) {
    follow->skipped = 0;
    follow->cursor = place;
    follow->item = (uint32_t)(place % follow->count);
}

static void cursor_advance(berm_follow_t *follow) {
    follow->cursor++;
    follow->item = item_ahead(follow, 1);
}

// Notes the size and whether it was accepted.
static void request_note(berm_follow_t *follow, uint64_t size_bytes, bool is_hit) {
    for (uint32_t i = 0; i + 1 < GRAM; i++)
        follow->recent[i] = follow->recent[i + 1];
    follow->recent[GRAM - 1] = size_bytes;
    uint64_t bit = UINT64_C(1) << follow->hit_at % 64, *word = &follow->hits[follow->hit_at / 64];
    follow->hit_count -= (*word & bit) != 0;
    follow->hit_count += is_hit;
    *word = is_hit ? *word | bit : *word & ~bit;
    follow->hit_at = follow->hit_at + 1 < follow->count ? follow->hit_at + 1 : 0;
}

// The request was that item; the cursor goes behind it.
static void item_take(berm_follow_t *follow, uint32_t item, bool is_served) {
    uint64_t place = follow->cursor;
    if (item != follow->item) {
        uint32_t distance =
            item > follow->item ? item - follow->item : item + follow->count - follow->item;
        place = distance <= follow->ahead ? place + distance : place - (follow->count - distance);
    }
    follow->served[item] = place + 1;
    request_note(follow, follow->sizes[item], is_served);
    follow->skipped = 0;
    follow->misfit -= follow->misfit > 0;
    follow->cursor = place;
    follow->item = item;
    cursor_advance(follow);
    for (uint32_t i = 0; i < BERM_FOLLOW_REACH && !is_open(follow, follow->item, follow->cursor);
         i++)
        cursor_advance(follow);
}

void berm__follow_accept(berm_follow_t *follow, uint32_t item) {
    item_take(follow, item, true);
}

void berm__follow_pass(berm_follow_t *follow, uint32_t item) {
    item_take(follow, item, false);
}

// How many of the last sizes stand right before an item.
static uint32_t gram_matches(const berm_follow_t *follow, uint32_t item) {
    uint32_t matches = 0, at = item;
    for (uint32_t i = GRAM; i-- > 0;) {
        at = at > 0 ? at - 1 : follow->count - 1;
        matches += follow->sizes[at] == follow->recent[i];
    }
    return matches;
}

// Moves the cursor to where, in its neighbourhood, most of the last sizes stand right before it.
// What lies ahead of there and has been served was so by mistake.
static bool align(berm_follow_t *follow) {
    uint32_t best = gram_matches(follow, follow->item);
    uint64_t place = follow->cursor;
    for (uint32_t i = 1; i <= follow->ahead && best < GRAM; i++)
        for (int side = 0; side < 2; side++) {
            if (side == 1 && i > follow->behind)
                continue;
            uint32_t item = side == 0 ? item_ahead(follow, i) : item_behind(follow, i);
            uint32_t matches = gram_matches(follow, item);
            if (matches <= best)
                continue;
            best = matches;
            place = side == 0 ? follow->cursor + i : follow->cursor - i;
        }
    if (best < GRAM_MATCH || place == follow->cursor)
        return false;
    cursor_set(follow, place);
    follow->misfit = 0;
    for (uint32_t i = 0; i <= follow->ahead; i++) {
        uint64_t *served = &follow->served[item_ahead(follow, i)];
        *served = berm__min_u64(*served, place + i);
    }
    return true;
}

// Looks the last sizes up in the plan; if they stand at one place only, the cursor goes behind it.
static void seek_recent(berm_follow_t *follow) {
    uint32_t item = follow->grams[gram_of_recent(follow)];
    if (item == BERM_FOLLOW_NONE || item == GRAM_TWICE)
        return;
    uint32_t next = (item + GRAM) % follow->count;
    if (gram_matches(follow, next) < GRAM)
        return;
    berm__follow_seek(follow, next);
    follow->misfit = 0;
}

void berm__follow_skip(berm_follow_t *follow, uint64_t size_bytes) {
    request_note(follow, size_bytes, false);
    follow->skipped++;
    follow->misfit = (uint32_t)berm__min_u64(follow->misfit + MISFIT_SKIP, MISFIT_MAX);
    if (follow->misfit >= MISFIT_TO_ALIGN && !align(follow))
        seek_recent(follow);
}

// Two passes on, so that no place near the new one has been served.
void berm__follow_seek(berm_follow_t *follow, uint32_t item) {
    uint64_t pass = follow->cursor / follow->count + 2;
    cursor_set(follow, pass * follow->count + item);
}

uint32_t berm__follow_cursor(const berm_follow_t *follow) {
    return follow->item;
}

uint32_t berm__follow_match_permille(const berm_follow_t *follow) {
    return (uint32_t)((uint64_t)follow->hit_count * 1000 / follow->count);
}
