// SPDX-License-Identifier: Apache-2.0
// An intrusive ordered set of nodes with a key of three numbers, compared in order: what a caching
// allocator keeps its free blocks in, (stream, size, address). Keys in one set are distinct.
// A treap with parent links: insert, remove and the searches take O(log n) expected, next is O(1)
// amortised. The same operations give the same tree.
#ifndef STRESS_BASELINES_ORDERED_SET_H
#define STRESS_BASELINES_ORDERED_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"

typedef struct ordered_key {
    uint64_t first, second, third;
} ordered_key_t;

typedef struct ordered_node {
    ordered_key_t key;
    struct ordered_node *parent, *left, *right;
    uint64_t priority;
    bool is_member; // kept by the set; zero it before the first insert
} ordered_node_t;

typedef struct ordered_set {
    ordered_node_t *root;
    size_t count;
    berm_rng_t rng;
} ordered_set_t;

void ordered_set_init(ordered_set_t *set);
// The node is in no set and its key is not in this one.
void ordered_set_insert(ordered_set_t *set, ordered_node_t *node, ordered_key_t key);
void ordered_set_remove(ordered_set_t *set, ordered_node_t *node);

// NULL where there is none.
ordered_node_t *ordered_set_at_least(const ordered_set_t *set,
                                     ordered_key_t key);                        // smallest >= key
ordered_node_t *ordered_set_below(const ordered_set_t *set, ordered_key_t key); // largest < key
ordered_node_t *ordered_set_first(const ordered_set_t *set);
ordered_node_t *ordered_set_last(const ordered_set_t *set);
ordered_node_t *ordered_node_next(const ordered_node_t *node);

// Order of keys and heap order of priorities; for tests and audits. O(n), no recursion.
bool ordered_set_is_valid(const ordered_set_t *set);

#endif
