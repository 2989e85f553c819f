// SPDX-License-Identifier: Apache-2.0
// The map of live blocks: see shadow.h. O(log n) each. Invariant: blocks in the map do not overlap.
#include "stress/shadow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/defs.h"

enum {
    ALIGNMENT_DEFAULT_BYTES = 512
};

typedef struct shadow_block {
    ordered_node_t node;
    uint64_t size_bytes;
} shadow_block_t;

static shadow_block_t *block_of(ordered_node_t *node) {
    return node == NULL ? NULL : BERM_CONTAINER_OF(node, shadow_block_t, node);
}

void shadow_init(shadow_t *shadow) {
    ordered_set_init(&shadow->blocks);
    shadow->alignment_bytes = ALIGNMENT_DEFAULT_BYTES;
}

void shadow_destroy(shadow_t *shadow) {
    for (ordered_node_t *at = ordered_set_first(&shadow->blocks); at != NULL;) {
        ordered_node_t *next = ordered_node_next(at);
        ordered_set_remove(&shadow->blocks, at);
        free(block_of(at));
        at = next;
    }
}

bool shadow_add(shadow_t *shadow, uint64_t addr, uint64_t size_bytes, char *error,
                size_t error_capacity) {
    if (addr == 0 || addr % shadow->alignment_bytes != 0 || addr > UINT64_MAX - size_bytes) {
        (void)snprintf(error, error_capacity,
                       "block at 0x%" PRIx64 " of %" PRIu64 " byte%s is not aligned to %" PRIu32,
                       addr, size_bytes, BERM_PLURAL(size_bytes), shadow->alignment_bytes);
        return false;
    }
    const ordered_key_t key = {addr, 0, 0};
    const shadow_block_t *next = block_of(ordered_set_at_least(&shadow->blocks, key));
    const shadow_block_t *prev = block_of(ordered_set_below(&shadow->blocks, key));
    const shadow_block_t *other = NULL;
    if (next != NULL && next->node.key.first < addr + size_bytes)
        other = next;
    else if (prev != NULL && prev->node.key.first + prev->size_bytes > addr)
        other = prev;
    if (other != NULL) {
        (void)snprintf(error, error_capacity,
                       "block at 0x%" PRIx64 " of %" PRIu64
                       " bytes overlaps the live one at 0x%" PRIx64 " of %" PRIu64,
                       addr, size_bytes, other->node.key.first, other->size_bytes);
        return false;
    }
    shadow_block_t *block = calloc(1, sizeof *block);
    if (block == NULL) {
        (void)snprintf(error, error_capacity, "no memory for the map of live blocks");
        return false;
    }
    block->size_bytes = size_bytes;
    ordered_set_insert(&shadow->blocks, &block->node, key);
    return true;
}

void shadow_remove(shadow_t *shadow, uint64_t addr) {
    ordered_node_t *node = ordered_set_at_least(&shadow->blocks, (ordered_key_t){addr, 0, 0});
    if (node == NULL || node->key.first != addr)
        return;
    ordered_set_remove(&shadow->blocks, node);
    free(block_of(node));
}
