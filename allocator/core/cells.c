// SPDX-License-Identifier: Apache-2.0
// A set of cell numbers: see cells.h.
#include "core/cells.h"

#include <string.h>

#include "base/bits.h"
#include "host/mem.h"

bool berm__cells_init(berm_cells_t *cells, uint64_t bound) {
    *cells = (berm_cells_t){0};
    uint64_t counts[BERM_CELLS_LEVELS], count = bound;
    do {
        count = (count + 63) / 64;
        counts[cells->levels++] = count;
        cells->word_count += count;
    } while (count > 1);
    uint64_t *words = berm__mem_alloc(cells->word_count * sizeof *words);
    for (unsigned level = 0; level < cells->levels && words != NULL; level++) {
        cells->words[level] = words;
        words += counts[level];
    }
    return words != NULL;
}

void berm__cells_destroy(berm_cells_t *cells) {
    if (cells->words[0] != NULL)
        berm__mem_free(cells->words[0], cells->word_count * sizeof *cells->words[0]);
    *cells = (berm_cells_t){0};
}

void berm__cells_insert(berm_cells_t *cells, uint64_t cell) {
    for (unsigned level = 0; level < cells->levels; level++, cell /= 64)
        cells->words[level][cell / 64] |= UINT64_C(1) << (cell % 64);
}

void berm__cells_remove(berm_cells_t *cells, uint64_t cell) {
    for (unsigned level = 0; level < cells->levels; level++, cell /= 64) {
        uint64_t *word = &cells->words[level][cell / 64];
        *word &= ~(UINT64_C(1) << (cell % 64));
        if (*word != 0)
            return;
    }
}

bool berm__cells_has(const berm_cells_t *cells, uint64_t cell) {
    return (cells->words[0][cell / 64] >> (cell % 64) & 1) != 0;
}

uint64_t berm__cells_at_or_below(const berm_cells_t *cells, uint64_t cell) {
    for (unsigned level = 0; level < cells->levels; level++) {
        uint64_t word = cells->words[level][cell / 64];
        word &= UINT64_MAX >> (63 - cell % 64);
        if (word != 0) {
            cell = cell / 64 * 64 + berm__bit_highest(word);
            while (level-- > 0)
                cell = cell * 64 + berm__bit_highest(cells->words[level][cell]);
            return cell;
        }
        if (cell < 64) // nothing is below in the level above either
            return BERM_CELL_NONE;
        cell = cell / 64 - 1;
    }
    return BERM_CELL_NONE;
}
