// SPDX-License-Identifier: Apache-2.0
// The ordered map behind reservations, mappings, free addresses and uses: a treap.
//
// Bound: O(log n) expected for insert, remove and search; next is amortised O(1).
// Invariants: (1) keys in symmetric order; (2) no node has a lower priority than its parent.
// Locks: the caller's. Nothing here can fail.
#include "tree.h"

// Puts `replacement` (or NULL) where `node` hangs from its parent.
static void tree_replace(sim_tree_t *tree, const sim_node_t *node, sim_node_t *replacement) {
    sim_node_t *parent = node->parent;
    if (parent == NULL)
        tree->root = replacement;
    else if (parent->left == node)
        parent->left = replacement;
    else
        parent->right = replacement;
    if (replacement != NULL)
        replacement->parent = parent;
}

// Rotates `node` above its parent.
static void tree_rotate_up(sim_tree_t *tree, sim_node_t *node) {
    sim_node_t *parent = node->parent;
    sim_node_t *child;
    tree_replace(tree, parent, node);
    if (parent->left == node) {
        child = node->right;
        parent->left = child;
        node->right = parent;
    } else {
        child = node->left;
        parent->right = child;
        node->left = parent;
    }
    if (child != NULL)
        child->parent = parent;
    parent->parent = node;
}

void sim_tree_insert(sim_tree_t *tree, sim_node_t *node, uint64_t key) {
    sim_node_t *parent = NULL;
    for (sim_node_t *at = tree->root; at != NULL; at = key < at->key ? at->left : at->right)
        parent = at;
    *node = (sim_node_t){.parent = parent, .key = key, .priority = berm__rng_next(&tree->rng)};
    if (parent == NULL)
        tree->root = node;
    else if (key < parent->key)
        parent->left = node;
    else
        parent->right = node;
    while (node->parent != NULL && node->parent->priority > node->priority)
        tree_rotate_up(tree, node);
    tree->count++;
}

void sim_tree_remove(sim_tree_t *tree, sim_node_t *node) {
    while (node->left != NULL && node->right != NULL)
        tree_rotate_up(tree,
                       node->left->priority < node->right->priority ? node->left : node->right);
    tree_replace(tree, node, node->left != NULL ? node->left : node->right);
    tree->count--;
}

sim_node_t *sim_tree_floor(const sim_tree_t *tree, uint64_t key) {
    sim_node_t *best = NULL;
    for (sim_node_t *at = tree->root; at != NULL;) {
        if (at->key <= key) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}

sim_node_t *sim_tree_ceil(const sim_tree_t *tree, uint64_t key) {
    sim_node_t *best = NULL;
    for (sim_node_t *at = tree->root; at != NULL;) {
        if (at->key >= key) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

sim_node_t *sim_tree_first(const sim_tree_t *tree) {
    return sim_tree_ceil(tree, 0);
}

sim_node_t *sim_tree_next(const sim_node_t *node) {
    if (node->right != NULL) {
        sim_node_t *at = node->right;
        while (at->left != NULL)
            at = at->left;
        return at;
    }
    while (node->parent != NULL && node->parent->right == node)
        node = node->parent;
    return node->parent;
}
