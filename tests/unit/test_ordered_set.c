// SPDX-License-Identifier: Apache-2.0
// The ordered set against a plain array, its searches, and its validator against broken trees.
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

#include "stress/baselines/ordered_set.h"

enum {
    NODES = 400
};

static ordered_node_t nodes[NODES];

static bool key_less(ordered_key_t a, ordered_key_t b) {
    if (a.first != b.first)
        return a.first < b.first;
    if (a.second != b.second)
        return a.second < b.second;
    return a.third < b.third;
}

// Few values in each part, so that all three decide; the index makes keys distinct.
static ordered_key_t key_draw(berm_rng_t *rng, size_t index) {
    return (ordered_key_t){berm__rng_below(rng, 3), berm__rng_below(rng, 8), index};
}

// The member with the smallest key that is not less than `key`, or the largest that is.
static ordered_node_t *reference(ordered_key_t key, bool wants_below) {
    ordered_node_t *best = NULL;
    for (size_t i = 0; i < NODES; i++) {
        ordered_node_t *at = &nodes[i];
        if (!at->is_member || key_less(at->key, key) != wants_below)
            continue;
        if (best == NULL || key_less(at->key, best->key) != wants_below)
            best = at;
    }
    return best;
}

Test(ordered_set, agrees_with_a_plain_array) {
    ordered_set_t set;
    berm_rng_t rng;
    ordered_set_init(&set);
    berm__rng_seed(&rng, 7);
    size_t count = 0;
    for (int step = 0; step < 20000; step++) {
        size_t i = (size_t)berm__rng_below(&rng, NODES);
        if (nodes[i].is_member) {
            ordered_set_remove(&set, &nodes[i]);
            count--;
        } else {
            ordered_set_insert(&set, &nodes[i], key_draw(&rng, i));
            count++;
        }
        cr_assert(set.count == count);
        ordered_key_t key = key_draw(&rng, (size_t)berm__rng_below(&rng, NODES));
        cr_assert(ordered_set_at_least(&set, key) == reference(key, false));
        cr_assert(ordered_set_below(&set, key) == reference(key, true));
        if (step % 100 == 0)
            cr_assert(ordered_set_is_valid(&set));
    }
    const ordered_key_t least = {0, 0, 0}, most = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    cr_assert(ordered_set_first(&set) == ordered_set_at_least(&set, least));
    cr_assert(ordered_set_last(&set) == ordered_set_below(&set, most));
}

Test(ordered_set, walks_in_order) {
    ordered_set_t set;
    ordered_set_init(&set);
    cr_assert(ordered_set_first(&set) == NULL && ordered_set_last(&set) == NULL);
    for (size_t i = 0; i < NODES; i++)
        ordered_set_insert(&set, &nodes[i], (ordered_key_t){i * 37 % NODES, 0, 0});
    uint64_t expected = 0;
    for (ordered_node_t *at = ordered_set_first(&set); at != NULL; at = ordered_node_next(at))
        cr_assert(at->key.first == expected++);
    cr_assert(expected == NODES);
}

// Depth stays logarithmic when keys arrive in order: 400 nodes, a chain would be 400 deep.
Test(ordered_set, stays_shallow_for_sorted_keys) {
    ordered_set_t set;
    ordered_set_init(&set);
    for (size_t i = 0; i < NODES; i++)
        ordered_set_insert(&set, &nodes[i], (ordered_key_t){i, 0, 0});
    int deepest = 0;
    for (size_t i = 0; i < NODES; i++) {
        int depth = 0;
        for (const ordered_node_t *at = &nodes[i]; at != NULL; at = at->parent)
            depth++;
        deepest = depth > deepest ? depth : deepest;
    }
    cr_assert(deepest < 40, "depth %d", deepest);
}

Test(ordered_set, validator_sees_broken_trees) {
    ordered_set_t set;
    ordered_set_init(&set);
    for (size_t i = 0; i < 16; i++)
        ordered_set_insert(&set, &nodes[i], (ordered_key_t){i, 0, 0});
    cr_assert(ordered_set_is_valid(&set));
    nodes[3].key.first = 12;
    cr_assert(!ordered_set_is_valid(&set), "order of keys");
    nodes[3].key.first = 3;
    ordered_node_t *child = set.root->left != NULL ? set.root->left : set.root->right;
    uint64_t priority = child->priority;
    child->priority = UINT64_MAX;
    cr_assert(!ordered_set_is_valid(&set), "order of priorities");
    child->priority = priority;
    set.count++;
    cr_assert(!ordered_set_is_valid(&set), "count");
    set.count--;
    cr_assert(ordered_set_is_valid(&set));
}

Test(ordered_set, insert_twice_aborts, .signal = SIGABRT) {
    ordered_set_t set;
    ordered_set_init(&set);
    ordered_set_insert(&set, &nodes[0], (ordered_key_t){1, 0, 0});
    ordered_set_insert(&set, &nodes[0], (ordered_key_t){2, 0, 0});
}

Test(ordered_set, remove_of_a_stranger_aborts, .signal = SIGABRT) {
    ordered_set_t set;
    ordered_set_init(&set);
    ordered_set_remove(&set, &nodes[0]);
}
