// SPDX-License-Identifier: Apache-2.0
// The adversaries. Each works at any unit: the sizes it asks for are multiples of it.
//
// Bounds: O(blocks^2) in a game. Determinism: no numbers are drawn.
// Locks: none. May fail: as game.h says; loops end once the game is over.
#include "base/bits.h"
#include "stress/adversary/game.h"

enum {
    BEST_FIT_ROUNDS = 24,
    COMB_ROUNDS = 6,
    SAWTOOTH_TEETH = 20,
    SAWTOOTH_SIZES = 7,
    SAWTOOTH_KEPT_PARTS = 16, // of the budget, one stays
    DRIFT_STEPS = 32,
    SEQUENCES = 48, // of kv-growth, at most
};

// --- Robson --------------------------------------------------------------------------------------

// Whether the block covers an address that is `offset` modulo `period`.
static bool covers(const game_block_t *block, uint64_t offset, uint64_t period) {
    return (offset + period - block->addr % period) % period < block->size_bytes;
}

static size_t robson_count(const game_t *g, uint64_t offset, uint64_t period) {
    size_t count = 0;
    for (size_t i = 0; i < g->count; i++)
        count += covers(&g->blocks[i], offset, period);
    return count;
}

// J. M. Robson 1971: sizes double. Before each phase it keeps the blocks that cover one place in
// each period of the coming size, the place that most do; so no gap holds such a block.
static void play_robson(game_t *g) {
    uint64_t offset = 0;
    game_fill(g, g->unit_bytes);
    for (uint64_t size = 2 * g->unit_bytes; size <= g->budget_bytes / 8 && !g->is_over; size *= 2) {
        uint64_t other = offset + size / 2;
        if (robson_count(g, other, size) > robson_count(g, offset, size))
            offset = other;
        for (size_t i = 0; i < g->count; i++)
            g->blocks[i].is_doomed = !covers(&g->blocks[i], offset, size);
        game_free_doomed(g);
        game_fill(g, size);
    }
}

// --- best fit ------------------------------------------------------------------------------------

// Frees all it can without a gap that holds `size_bytes`.
static void free_without_gap(game_t *g, uint64_t size_bytes) {
    uint64_t kept_end = g->count > 0 ? g->blocks[0].addr : 0;
    for (size_t i = 0; i < g->count; i++) {
        game_block_t *block = &g->blocks[i];
        uint64_t next = i + 1 < g->count ? g->blocks[i + 1].addr : game_end(block);
        block->is_doomed = next - kept_end < size_bytes;
        if (!block->is_doomed)
            kept_end = game_end(block);
    }
    game_free_doomed(g);
}

// Asks, round after round, for a unit more than any gap has.
static void play_best_fit(game_t *g) {
    uint64_t size = 2 * g->unit_bytes;
    game_fill(g, size);
    for (int round = 0; round < BEST_FIT_ROUNDS && !g->is_over; round++) {
        size += g->unit_bytes;
        free_without_gap(g, size);
        game_fill(g, size);
    }
}

// --- comb ----------------------------------------------------------------------------------------

// Every second tooth by address goes; then large blocks, which no gap between teeth holds.
static void play_comb(game_t *g) {
    for (int round = 0; round < COMB_ROUNDS && !g->is_over; round++) {
        game_fill(g, g->unit_bytes);
        for (size_t i = 0; i < g->count; i++)
            g->blocks[i].is_doomed = i % 2 == (size_t)round % 2;
        game_free_doomed(g);
        game_fill(g, berm__align_up(g->budget_bytes / 5, g->unit_bytes));
        for (size_t i = 0; i < g->count; i++)
            g->blocks[i].is_doomed = g->blocks[i].size_bytes > g->unit_bytes;
        game_free_doomed(g);
    }
}

// --- handles -------------------------------------------------------------------------------------

// For allocators that grow in pieces larger than the unit: large blocks, then units in their place,
// of which one in each eight stays, then large blocks again.
static void play_handles(game_t *g) {
    uint64_t large = 16 * g->unit_bytes;
    game_fill(g, large);
    for (size_t i = 0; i < g->count; i++)
        g->blocks[i].is_doomed = true;
    game_free_doomed(g);
    game_fill(g, g->unit_bytes);
    for (size_t i = 0; i < g->count; i++)
        g->blocks[i].is_doomed = g->blocks[i].addr / g->unit_bytes % 8 != 0;
    game_free_doomed(g);
    game_fill(g, large);
}

// --- sawtooth ------------------------------------------------------------------------------------

// Up to the budget in blocks of one size, down to a 16th, kept as far apart as can be; the next
// tooth has another size.
static void play_sawtooth(game_t *g) {
    for (uint64_t tooth = 0; tooth < SAWTOOTH_TEETH && !g->is_over; tooth++) {
        game_fill(g, g->unit_bytes * (1 + 5 * tooth % SAWTOOTH_SIZES));
        uint64_t part = g->budget_bytes / SAWTOOTH_KEPT_PARTS, kept_bytes = 0, next = 0;
        uint64_t distance = g->count > 0
                                ? (game_end(&g->blocks[g->count - 1]) - g->blocks[0].addr) /
                                      (part / g->unit_bytes + 1)
                                : 0;
        for (size_t i = 0; i < g->count; i++) {
            game_block_t *block = &g->blocks[i];
            block->is_doomed = block->addr < next || kept_bytes + block->size_bytes > part;
            if (block->is_doomed)
                continue;
            kept_bytes += block->size_bytes;
            next = block->addr + distance;
        }
        game_free_doomed(g);
    }
}

// --- drift ---------------------------------------------------------------------------------------

// The block whose addresses, once free, make the smallest gap; `count` if there is none.
static size_t smallest_gap(const game_t *g) {
    size_t best = g->count;
    uint64_t best_bytes = UINT64_MAX;
    for (size_t i = 0; i < g->count; i++) {
        uint64_t gap_bytes = game_gap_bytes(g, i);
        if (gap_bytes < best_bytes) {
            best_bytes = gap_bytes;
            best = i;
        }
    }
    return best;
}

// Sizes grow slowly; what is freed for a block is what leaves the smallest gap.
static void play_drift(game_t *g) {
    game_fill(g, 2 * g->unit_bytes);
    for (uint64_t step = 1; step <= DRIFT_STEPS && !g->is_over; step++) {
        uint64_t size = g->unit_bytes * (2 + step);
        for (uint64_t made = 0; made < g->budget_bytes / 4 && !g->is_over; made += size) {
            while (!g->is_over && !game_fits(g, size))
                game_free(g, smallest_gap(g));
            (void)game_alloc(g, size);
        }
    }
}

// --- kv growth -----------------------------------------------------------------------------------

static size_t largest_block(const game_t *g) {
    size_t best = 0;
    for (size_t i = 1; i < g->count; i++)
        if (g->blocks[i].size_bytes > g->blocks[best].size_bytes)
            best = i;
    return best;
}

// A sequence grows: a larger block, then the old one goes. It is the one whose old block leaves the
// smallest gap. When the budget is used up the longest sequence ends.
static void play_kv_growth(game_t *g) {
    uint64_t turns = 16 * (g->budget_bytes / g->unit_bytes);
    turns = berm__min_u64(turns, 16384);
    for (uint64_t turn = 0; turn < turns && !g->is_over; turn++) {
        if (g->count < SEQUENCES) {
            while (!g->is_over && !game_fits(g, g->unit_bytes))
                game_free(g, largest_block(g));
            (void)game_alloc(g, g->unit_bytes);
            continue;
        }
        size_t old = smallest_gap(g);
        uint64_t addr = g->blocks[old].addr;
        uint64_t size = g->blocks[old].size_bytes + g->unit_bytes;
        if (!game_fits(g, size)) {
            game_free(g, largest_block(g));
            continue;
        }
        if (!game_alloc(g, size))
            continue;
        while (g->blocks[old].addr != addr) // the new block may stand before it
            old++;
        game_free(g, old);
    }
}

const adversary_kind_t adversary_kinds[] = {
    {"robson", "sizes double; keeps what covers one place in each period of the next size",
     play_robson},
    {"best-fit", "asks for a unit more than any gap has; keeps what stops gaps from joining",
     play_best_fit},
    {"comb", "frees every second block by address, then asks for large ones", play_comb},
    {"handles", "large blocks, units in their place, of which one in 8 stays, and large ones again",
     play_handles},
    {"sawtooth", "up in one size, down to blocks far apart, up in another", play_sawtooth},
    {"drift", "sizes grow slowly; frees what leaves the smallest gap", play_drift},
    {"kv-growth", "caches are made anew, a unit larger; grows the one that leaves the smallest gap",
     play_kv_growth},
    {NULL, NULL, NULL},
};
