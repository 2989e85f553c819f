// SPDX-License-Identifier: Apache-2.0
// An intrusive ordered map from 64-bit keys: a treap with parent links, so that a neighbour is
// found from a node. Priorities are drawn from a fixed seed: the same calls build the same tree.
// Insert, remove and search take O(log n) expected steps; nothing is allocated.
#ifndef SIM_TREE_H
#define SIM_TREE_H

#include "base/defs.h"
#include "base/rng.h"

typedef struct sim_node {
    struct sim_node *left;
    struct sim_node *right;
    struct sim_node *parent;
    uint64_t key;
    uint64_t priority;
} sim_node_t;

typedef struct sim_tree {
    sim_node_t *root;
    uint64_t count;
    berm_rng_t rng;
} sim_tree_t;

// Keys are distinct; a zeroed sim_tree_t is an empty tree.
void sim_tree_insert(sim_tree_t *tree, sim_node_t *node, uint64_t key);
void sim_tree_remove(sim_tree_t *tree, sim_node_t *node);

// The node with the greatest key at most `key`, with the least key at least `key`; NULL if none.
sim_node_t *sim_tree_floor(const sim_tree_t *tree, uint64_t key);
sim_node_t *sim_tree_ceil(const sim_tree_t *tree, uint64_t key);
sim_node_t *sim_tree_first(const sim_tree_t *tree);
sim_node_t *sim_tree_next(const sim_node_t *node);

#endif
