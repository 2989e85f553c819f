// SPDX-License-Identifier: Apache-2.0
// A heap sort that can stop after any element: see planner_inside.h.
#include "core/planner_inside.h"

static bool is_before(const planner_sort_t *sort, uint32_t a, uint32_t b) {
    return sort->keys[a] != sort->keys[b] ? sort->keys[a] < sort->keys[b] : a < b;
}

// Restores the heap (largest first) of the first `count` items below `at`.
static uint32_t sift(planner_sort_t *sort, uint32_t at, uint32_t count) {
    uint32_t *order = sort->order, item = order[at], steps = 1;
    for (uint32_t child; (child = 2 * at + 1) < count; at = child, steps++) {
        if (child + 1 < count && is_before(sort, order[child], order[child + 1]))
            child++;
        if (!is_before(sort, item, order[child]))
            break;
        order[at] = order[child];
    }
    order[at] = item;
    return steps;
}

void planner__sort_begin(planner_sort_t *sort, uint32_t *order, const uint64_t *keys,
                         uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    *sort = (planner_sort_t){
        .order = order, .keys = keys, .count = count, .to_sift = count / 2, .to_pop = count};
}

bool planner__sort_step(planner_sort_t *sort, uint64_t *done, uint64_t until) {
    while (sort->to_sift > 0 && *done < until)
        *done += 2 * sift(sort, --sort->to_sift, sort->count);
    while (sort->to_sift == 0 && sort->to_pop > 1 && *done < until) {
        uint32_t last = --sort->to_pop, item = sort->order[last];
        sort->order[last] = sort->order[0];
        sort->order[0] = item;
        *done += 2 * sift(sort, 0, last);
    }
    return sort->to_sift == 0 && sort->to_pop <= 1;
}
