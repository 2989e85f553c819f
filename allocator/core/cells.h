// SPDX-License-Identifier: Apache-2.0
// A set of cell numbers below a bound, and which of them is the nearest below: bits in words, and
// above each level of words one that says which of them are not 0. With 64 to a word, a set of a
// million cells has four levels.
//
// Constant time for bounds up to 2^30. Locks: the owner's. Memory: host/mem.h, when it is made.
#ifndef BERM_CORE_CELLS_H
#define BERM_CORE_CELLS_H

#include <stdbool.h>

#include "base/defs.h"

enum {
    BERM_CELLS_LEVELS = 5
};

#define BERM_CELL_NONE UINT64_MAX

typedef struct berm_cells {
    uint64_t *words[BERM_CELLS_LEVELS]; // the highest level in use is one word
    uint64_t word_count;                // of all levels
    unsigned levels;
} berm_cells_t;

// An empty set of numbers below `bound`, 1 to 2^30. False without host memory.
BERM_NODISCARD bool berm__cells_init(berm_cells_t *cells, uint64_t bound);
// A set that was not made, all zero, is allowed.
void berm__cells_destroy(berm_cells_t *cells);

void berm__cells_insert(berm_cells_t *cells, uint64_t cell);
void berm__cells_remove(berm_cells_t *cells, uint64_t cell);
bool berm__cells_has(const berm_cells_t *cells, uint64_t cell);
// The highest number in the set that is at most `cell`, or BERM_CELL_NONE.
uint64_t berm__cells_at_or_below(const berm_cells_t *cells, uint64_t cell);

#endif
