// SPDX-License-Identifier: Apache-2.0
// The ordered set: see ordered_set.h. What the nodes mean is left to the allocators.
//
// Layout: a binary tree by key, a heap by priority; priorities are drawn from a seeded generator,
// so that the expected depth is O(log n) whatever the order of keys.
// Invariants (ordered_set_is_valid): 1. in-order keys strictly increase; 2. a child's priority is
// not above its parent's; 3. parent links match; 4. count is the number of nodes.
// Locks: none; one thread at a time. Nothing can fail: nodes are the caller's.
#include "stress/baselines/ordered_set.h"

#include "base/insist.h"

static inline bool key_less(const ordered_key_t *a, const ordered_key_t *b) {
    if (a->first != b->first)
        return a->first < b->first;
    if (a->second != b->second)
        return a->second < b->second;
    return a->third < b->third;
}

void ordered_set_init(ordered_set_t *set) {
    set->root = NULL;
    set->count = 0;
    berm__rng_seed(&set->rng, 0x6f72646572656473);
}

// Puts `to` in the place that `from` has under its parent.
static void set_replace(ordered_set_t *set, const ordered_node_t *from, ordered_node_t *to) {
    ordered_node_t *parent = from->parent;
    if (parent == NULL)
        set->root = to;
    else if (parent->left == from)
        parent->left = to;
    else
        parent->right = to;
    if (to != NULL)
        to->parent = parent;
}

// Lifts `node` above its parent, keeping the order of keys.
static void set_rotate_up(ordered_set_t *set, ordered_node_t *node) {
    ordered_node_t *parent = node->parent;
    set_replace(set, parent, node);
    if (parent->left == node) {
        parent->left = node->right;
        if (node->right != NULL)
            node->right->parent = parent;
        node->right = parent;
    } else {
        parent->right = node->left;
        if (node->left != NULL)
            node->left->parent = parent;
        node->left = parent;
    }
    parent->parent = node;
}

void ordered_set_insert(ordered_set_t *set, ordered_node_t *node, ordered_key_t key) {
    BERM_INSIST(!node->is_member, "node is in a set already");
    node->key = key;
    node->left = node->right = node->parent = NULL;
    node->priority = berm__rng_next(&set->rng);
    node->is_member = true;
    ordered_node_t **link = &set->root;
    while (*link != NULL) {
        node->parent = *link;
        BERM_ASSERT(key_less(&key, &(*link)->key) || key_less(&(*link)->key, &key),
                    "key is in the set already");
        link = key_less(&key, &(*link)->key) ? &(*link)->left : &(*link)->right;
    }
    *link = node;
    set->count++;
    while (node->parent != NULL && node->parent->priority < node->priority)
        set_rotate_up(set, node);
}

void ordered_set_remove(ordered_set_t *set, ordered_node_t *node) {
    BERM_INSIST(node->is_member, "node is not in the set");
    while (node->left != NULL && node->right != NULL)
        set_rotate_up(set, node->left->priority > node->right->priority ? node->left : node->right);
    set_replace(set, node, node->left != NULL ? node->left : node->right);
    node->is_member = false;
    set->count--;
}

ordered_node_t *ordered_set_at_least(const ordered_set_t *set, ordered_key_t key) {
    ordered_node_t *best = NULL;
    for (ordered_node_t *at = set->root; at != NULL;) {
        if (key_less(&at->key, &key)) {
            at = at->right;
        } else {
            best = at;
            at = at->left;
        }
    }
    return best;
}

ordered_node_t *ordered_set_below(const ordered_set_t *set, ordered_key_t key) {
    ordered_node_t *best = NULL;
    for (ordered_node_t *at = set->root; at != NULL;) {
        if (key_less(&at->key, &key)) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}

static ordered_node_t *node_leftmost(ordered_node_t *node) {
    while (node != NULL && node->left != NULL)
        node = node->left;
    return node;
}

ordered_node_t *ordered_set_first(const ordered_set_t *set) {
    return node_leftmost(set->root);
}

ordered_node_t *ordered_set_last(const ordered_set_t *set) {
    ordered_node_t *node = set->root;
    while (node != NULL && node->right != NULL)
        node = node->right;
    return node;
}

ordered_node_t *ordered_node_next(const ordered_node_t *node) {
    if (node->right != NULL)
        return node_leftmost(node->right);
    while (node->parent != NULL && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

static bool node_is_valid(const ordered_node_t *node) {
    if (!node->is_member)
        return false;
    const ordered_node_t *children[2] = {node->left, node->right};
    for (int i = 0; i < 2; i++) {
        const ordered_node_t *child = children[i];
        if (child != NULL && (child->parent != node || child->priority > node->priority))
            return false;
    }
    return true;
}

bool ordered_set_is_valid(const ordered_set_t *set) {
    size_t count = 0;
    const ordered_node_t *last = NULL;
    for (const ordered_node_t *at = ordered_set_first(set); at != NULL;
         at = ordered_node_next(at)) {
        if (!node_is_valid(at) || (last != NULL && !key_less(&last->key, &at->key)))
            return false;
        last = at;
        if (++count > set->count)
            return false;
    }
    return count == set->count;
}
