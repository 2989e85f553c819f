// SPDX-License-Identifier: Apache-2.0
// Blocks by address, pins and figures of one game: see game.h.
//
// Bounds: O(blocks) an alloc or free, for their order; O(size / granule) for the pins.
// Locks: none; one thread. May fail: for want of host memory or by the allocator, kept in the
// result's `failure`.
#include "stress/adversary/game.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void game_fail(game_t *g, const char *what, uint64_t size_bytes) {
    if (g->result->failure[0] == '\0')
        (void)snprintf(g->result->failure, sizeof g->result->failure,
                       "alloc %" PRIu64 ": %s of %" PRIu64 " bytes failed", g->result->allocs, what,
                       size_bytes);
    g->is_over = true;
}

// `step` is 1 for a block that came and -1 for one that goes.
static void pins_change(game_t *g, const game_block_t *block, int step) {
    uint64_t last = (game_end(block) - 1) / g->granule_bytes;
    for (uint64_t granule = block->addr / g->granule_bytes; granule <= last; granule++) {
        uint32_t before = trace_u64_map_get(&g->pins, granule);
        before = before == TRACE_MAP_NONE ? 0 : before;
        uint32_t after = before + (uint32_t)step;
        if (trace_u64_map_set(&g->pins, granule, after) != 0) {
            game_fail(g, "host memory for pins", block->size_bytes);
            return;
        }
        g->pinned_granules = g->pinned_granules + (after > 0) - (before > 0);
    }
    uint64_t pinned_bytes = g->pinned_granules * g->granule_bytes;
    if (pinned_bytes > g->result->peak_pinned_bytes)
        g->result->peak_pinned_bytes = pinned_bytes;
}

// Index of the first block at or above `addr`.
static size_t game_find(const game_t *g, uint64_t addr) {
    size_t low = 0, high = g->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (g->blocks[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool game_insert(game_t *g, uint64_t addr, uint64_t size_bytes) {
    if (g->count == g->capacity) {
        size_t capacity = g->capacity == 0 ? 1024 : g->capacity * 2;
        game_block_t *blocks = realloc(g->blocks, capacity * sizeof *blocks);
        if (blocks == NULL)
            return false;
        g->blocks = blocks;
        g->capacity = capacity;
    }
    size_t at = game_find(g, addr);
    if ((at < g->count && g->blocks[at].addr < addr + size_bytes) ||
        (at > 0 && game_end(&g->blocks[at - 1]) > addr))
        return false;
    memmove(&g->blocks[at + 1], &g->blocks[at], (g->count - at) * sizeof *g->blocks);
    g->blocks[at] = (game_block_t){addr, size_bytes, false};
    g->count++;
    pins_change(g, &g->blocks[at], 1);
    return true;
}

// Handles are of a granule or of growth_bytes, so their number and their bytes tell how many are
// large.
static void game_beside_measure(game_t *g) {
    simcuda_ledger_t ledger;
    if (g->growth_bytes <= g->granule_bytes)
        return;
    stress_simcuda()->ledger_read(-1, &ledger);
    uint64_t bytes = ledger.used_bytes - g->base.used_bytes;
    uint64_t beside_bytes = bytes - (ledger.handles - g->base.handles) * g->granule_bytes;
    if (beside_bytes > g->result->peak_beside_bytes)
        g->result->peak_beside_bytes = beside_bytes;
}

bool game_alloc(game_t *g, uint64_t size_bytes) {
    stress_adversary_result_t *result = g->result;
    if (!game_fits(g, size_bytes))
        return false;
    uint64_t addr = 0;
    stress_work_step(g->work);
    stress_result_t status =
        g->ops->alloc(g->allocator, size_bytes, stress_work_stream(g->work, 0), &addr);
    if (status == STRESS_OUT_OF_MEMORY) {
        result->is_refused = g->is_over = true;
        result->refused_live_bytes = g->live_bytes;
        result->refused_size_bytes = size_bytes;
        return false;
    }
    if (status != STRESS_OK) {
        game_fail(g, "alloc", size_bytes);
        return false;
    }
    result->allocs++;
    result->served_bytes += size_bytes;
    g->live_bytes += size_bytes;
    if (g->live_bytes > result->peak_live_bytes)
        result->peak_live_bytes = g->live_bytes;
    game_beside_measure(g);
    if (!game_insert(g, addr, size_bytes))
        game_fail(g, "a block that overlaps another, or host memory for a block,", size_bytes);
    else if (stress_work_use(g->work, 0, addr, size_bytes, true) != 0)
        game_fail(g, "a kernel that writes a block", size_bytes);
    return !g->is_over;
}

static void block_free(game_t *g, const game_block_t *block) {
    if (g->is_over)
        return;
    stress_work_step(g->work);
    if (stress_work_use(g->work, 0, block->addr, block->size_bytes, false) != 0)
        game_fail(g, "a kernel that reads a block", block->size_bytes);
    else if (g->ops->free(g->allocator, block->addr, block->size_bytes,
                          stress_work_stream(g->work, 0)) != STRESS_OK)
        game_fail(g, "free", block->size_bytes);
    pins_change(g, block, -1);
    g->live_bytes -= block->size_bytes;
    g->result->frees++;
}

void game_free(game_t *g, size_t index) {
    if (g->is_over)
        return;
    block_free(g, &g->blocks[index]);
    g->count--;
    memmove(&g->blocks[index], &g->blocks[index + 1], (g->count - index) * sizeof *g->blocks);
}

void game_free_doomed(game_t *g) {
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (g->blocks[i].is_doomed && !g->is_over)
            block_free(g, &g->blocks[i]);
        else
            g->blocks[kept++] = g->blocks[i];
    }
    g->count = kept;
}

void game_fill(game_t *g, uint64_t size_bytes) {
    while (game_fits(g, size_bytes) && game_alloc(g, size_bytes))
        continue;
}

uint64_t game_gap_bytes(const game_t *g, size_t index) {
    uint64_t start = index > 0 ? game_end(&g->blocks[index - 1]) : g->blocks[index].addr;
    uint64_t end = index + 1 < g->count ? g->blocks[index + 1].addr : game_end(&g->blocks[index]);
    return end - start;
}
