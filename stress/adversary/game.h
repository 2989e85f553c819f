// SPDX-License-Identifier: Apache-2.0
// Internal to stress/adversary: one adversary against one allocator. The adversary asks for blocks,
// sees their addresses, and chooses what to free by them. The game keeps the blocks in the order of
// their addresses, their bytes within a budget, and the figures.
//
// Every block is written by a kernel after its alloc and read by one before its free, on one
// stream, as in a replay. After a refusal or a failure is_over is set and every call does nothing.
#ifndef STRESS_ADVERSARY_GAME_H
#define STRESS_ADVERSARY_GAME_H

#include "stress/adversary/adversary.h"
#include "stress/trace/u64_map.h"
#include "stress/work.h"

typedef struct game_block {
    uint64_t addr, size_bytes;
    bool is_doomed; // game_free_doomed frees it
} game_block_t;

typedef struct game {
    const stress_allocator_ops_t *ops;
    stress_allocator_t *allocator;
    stress_work_t *work;
    stress_adversary_result_t *result;
    uint64_t unit_bytes, budget_bytes; // of the smallest block; of all live ones
    uint64_t live_bytes;
    game_block_t *blocks; // by address
    size_t count, capacity;
    trace_u64_map_t pins; // granule to the number of live blocks that touch it
    uint64_t granule_bytes, pinned_granules;
    uint64_t growth_bytes; // of berm's large handles; 0 for others
    simcuda_ledger_t base; // before the allocator was made
    bool is_over;
} game_t;

// True when the request was served. It must fit in the budget.
bool game_alloc(game_t *game, uint64_t size_bytes);
void game_free(game_t *game, size_t index);
void game_free_doomed(game_t *game);
// Asks for blocks of this size for as long as the budget allows.
void game_fill(game_t *game, uint64_t size_bytes);
// The free addresses around block `index`, were it freed: from the end of the block before to the
// start of the one after. At the ends of the heap: to its own.
uint64_t game_gap_bytes(const game_t *game, size_t index);

static inline uint64_t game_end(const game_block_t *block) {
    return block->addr + block->size_bytes;
}

static inline bool game_fits(const game_t *game, uint64_t size_bytes) {
    return !game->is_over && game->live_bytes + size_bytes <= game->budget_bytes;
}

typedef struct adversary_kind {
    const char *name, *summary;
    void (*play)(game_t *game);
} adversary_kind_t;

extern const adversary_kind_t adversary_kinds[]; // ends with a row without a name

#endif
