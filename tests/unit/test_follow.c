// SPDX-License-Identifier: Apache-2.0
// core/follow.h: a plan followed exactly, with requests replaced, missing, extra and swapped, from
// another place, and not at all; failures of host memory.
#include <criterion/criterion.h>

#include "base/rng.h"
#include "core/follow.h"
#include "host/mem.h"

enum {
    COUNT = 1000
};

static uint64_t sizes[COUNT];

static berm_follow_t *follow_begin(uint64_t kinds) {
    berm_rng_t rng;
    berm__rng_seed(&rng, kinds);
    for (int i = 0; i < COUNT; i++)
        sizes[i] = 512 * (1 + berm__rng_below(&rng, kinds));
    berm_follow_t *follow = berm__follow_create(sizes, COUNT);
    cr_assert(follow != NULL);
    return follow;
}

// One request. Returns the item it was served as.
static uint32_t request(berm_follow_t *follow, uint64_t size) {
    uint32_t item = berm__follow_find(follow, size);
    if (item == BERM_FOLLOW_NONE)
        berm__follow_skip(follow, size);
    else
        berm__follow_accept(follow, item);
    return item;
}

Test(follow, an_exact_pass_is_served_in_order) {
    const uint64_t kinds[] = {1, 2, 10, 1000};
    for (size_t k = 0; k < BERM_ARRAY_LENGTH(kinds); k++) {
        berm_follow_t *follow = follow_begin(kinds[k]);
        for (uint32_t i = 0; i < 3 * COUNT; i++) {
            cr_assert(berm__follow_cursor(follow) == i % COUNT);
            cr_assert(request(follow, sizes[i % COUNT]) == i % COUNT);
        }
        cr_assert(berm__follow_match_permille(follow) == 1000);
        berm__follow_destroy(follow);
    }
    cr_assert(berm__mem_held_bytes() == 0);
}

Test(follow, plans_of_few_items_go_round) {
    const uint64_t few[] = {512, 1024, 1536};
    for (uint32_t count = 1; count <= 3; count++) {
        berm_follow_t *follow = berm__follow_create(few, count);
        cr_assert(follow != NULL);
        for (uint32_t i = 0; i < 30; i++)
            cr_assert(request(follow, few[i % count]) == i % count);
        cr_assert(request(follow, 4096) == BERM_FOLLOW_NONE);
        cr_assert(request(follow, few[0]) == 0);
        berm__follow_destroy(follow);
    }
}

// Of what did not change, nearly all is served as itself, and no item twice in a pass.
static void follow_changed(uint64_t kinds, uint32_t replaced, uint32_t moved, uint32_t least) {
    berm_follow_t *follow = follow_begin(kinds);
    berm_rng_t rng;
    berm__rng_seed(&rng, 17);
    uint32_t unchanged = 0, right = 0;
    for (int pass = 0; pass < 10; pass++)
        for (uint32_t i = 0; i < COUNT; i++) {
            if (berm__rng_below(&rng, 1000) < replaced) {
                (void)request(follow, 512 * (2000 + berm__rng_below(&rng, 100)));
                continue;
            }
            if (berm__rng_below(&rng, 1000) < moved) {
                if (berm__rng_below(&rng, 2) == 0)
                    continue;
                cr_assert(request(follow, 512 * 3000) == BERM_FOLLOW_NONE);
            }
            unchanged++;
            uint32_t item = request(follow, sizes[i]);
            cr_assert(item == BERM_FOLLOW_NONE || sizes[item] == sizes[i]);
            right += item == i;
        }
    cr_assert(right >= unchanged / 1000 * least, "%u of %u", right, unchanged);
    uint32_t permille = berm__follow_match_permille(follow);
    cr_assert(permille < 1000 && permille + 3 * (replaced + moved) >= 1000, "%u", permille);
    berm__follow_destroy(follow);
}

Test(follow, changed_requests_are_tolerated) {
    follow_changed(1000, 50, 0, 995);
    follow_changed(20, 50, 0, 950);
    follow_changed(1000, 0, 20, 980);
    follow_changed(20, 0, 20, 850);
    follow_changed(200, 50, 20, 950);
}

// A request out of its place is none, and the next finds the way back: an equal item nearby is not
// taken away from the request that is due there.
Test(follow, a_neighbour_comes_first) {
    berm_follow_t *follow = follow_begin(1 << 30);
    for (uint32_t i = 0; i < COUNT; i += 20) {
        for (uint32_t j = 0; j < 8; j++)
            cr_assert(request(follow, sizes[i + j]) == i + j);
        cr_assert(request(follow, sizes[i + 9]) == BERM_FOLLOW_NONE);
        cr_assert(request(follow, sizes[i + 8]) == i + 8);
        for (uint32_t j = 9; j < 20 && i + j < COUNT; j++)
            cr_assert(request(follow, sizes[i + j]) == i + j);
    }
    cr_assert(berm__follow_match_permille(follow) >= 950);
    berm__follow_destroy(follow);
}

// What is due is what stands there, whatever the sizes before were.
Test(follow, due_goes_on_with_requests_that_are_none) {
    berm_follow_t *follow = follow_begin(1 << 30);
    cr_assert(berm__follow_due(follow) == 0);
    cr_assert(request(follow, sizes[0]) == 0);
    cr_assert(berm__follow_due(follow) == 1);
    cr_assert(request(follow, 7) == BERM_FOLLOW_NONE);
    cr_assert(berm__follow_due(follow) == 2);
    cr_assert(request(follow, sizes[2]) == 2);
    berm__follow_pass(follow, 3);
    cr_assert(berm__follow_due(follow) == 4 && berm__follow_match_permille(follow) < 1000);
    berm__follow_destroy(follow);
}

// A size that occurs twice near the cursor is served as two items, not as one twice.
Test(follow, an_item_is_served_once_in_a_pass) {
    const uint64_t plan[] = {512, 1024, 512, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 5632};
    berm_follow_t *follow = berm__follow_create(plan, 12);
    cr_assert(follow != NULL);
    cr_assert(request(follow, 512) == 0);
    cr_assert(request(follow, 512) == BERM_FOLLOW_NONE); // it stands for item 1, perhaps
    cr_assert(request(follow, 512) == 2);
    cr_assert(request(follow, 512) == BERM_FOLLOW_NONE);
    cr_assert(request(follow, 1024) == 1);
    cr_assert(berm__follow_cursor(follow) == 3); // item 2 is served already
    cr_assert(request(follow, 1536) == 3);
    berm__follow_destroy(follow);
}

// Every size several times, so that single sizes say nothing about the place.
Test(follow, a_lost_place_is_found_again) {
    const uint32_t jumps[] = {30, 60, 500, 940, 999};
    for (size_t k = 0; k < BERM_ARRAY_LENGTH(jumps); k++) {
        berm_follow_t *follow = follow_begin(50);
        uint32_t at = 0, lost = 0;
        for (; at < 100; at++)
            cr_assert(request(follow, sizes[at]) == at);
        at = (at + jumps[k]) % COUNT;
        for (int i = 0; i < COUNT; i++, at = (at + 1) % COUNT)
            lost += request(follow, sizes[at]) != at;
        cr_assert(lost < 60, "%u lost after a jump of %u", lost, jumps[k]);
        berm__follow_destroy(follow);
    }
}

// A plan that is five times the same: what was requested last leads to five places, and the nearest
// is the right one.
Test(follow, a_lost_place_is_found_nearby) {
    const int jumps[] = {-50, -30, 30, 50};
    for (size_t k = 0; k < BERM_ARRAY_LENGTH(jumps); k++) {
        berm__follow_destroy(follow_begin(50));
        for (int i = 200; i < COUNT; i++)
            sizes[i] = sizes[i - 200];
        berm_follow_t *follow = berm__follow_create(sizes, COUNT);
        cr_assert(follow != NULL);
        for (uint32_t i = 0; i < 300; i++)
            cr_assert(request(follow, sizes[i]) == i);
        uint32_t lost = 0, at = (uint32_t)(300 + jumps[k]);
        for (; at < COUNT; at++)
            lost += request(follow, sizes[at]) != at;
        cr_assert(lost < 40, "%u lost after a jump of %d", lost, jumps[k]);
        berm__follow_destroy(follow);
    }
}

Test(follow, seek_begins_a_pass_anew) {
    berm_follow_t *follow = follow_begin(1000);
    for (uint32_t i = 0; i < 500; i++)
        cr_assert(request(follow, sizes[i]) == i);
    berm__follow_seek(follow, 450);
    cr_assert(berm__follow_cursor(follow) == 450);
    for (uint32_t i = 450; i < COUNT; i++)
        cr_assert(request(follow, sizes[i]) == i);
    berm__follow_destroy(follow);
}

Test(follow, what_does_not_match_counts_against_it) {
    berm_follow_t *follow = follow_begin(100);
    cr_assert(berm__follow_match_permille(follow) == 1000);
    for (int i = 0; i < COUNT / 2; i++)
        cr_assert(request(follow, 512 * 1000) == BERM_FOLLOW_NONE);
    cr_assert(berm__follow_match_permille(follow) == 500);
    for (int i = 0; i < COUNT; i++)
        cr_assert(request(follow, 512 * 1000) == BERM_FOLLOW_NONE);
    cr_assert(berm__follow_match_permille(follow) == 0);
    berm__follow_destroy(follow);
}

// Backwards through the plan: nonsense, but bounded.
Test(follow, any_order_is_survived) {
    berm_follow_t *follow = follow_begin(8);
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    for (int i = 0; i < 200000; i++) {
        uint64_t size =
            i % 3 == 0 ? 512 * berm__rng_below(&rng, 10) : sizes[COUNT - 1 - (uint32_t)i % COUNT];
        uint32_t item = request(follow, size);
        cr_assert(item == BERM_FOLLOW_NONE || (item < COUNT && sizes[item] == size));
        cr_assert(berm__follow_cursor(follow) < COUNT);
        cr_assert(berm__follow_match_permille(follow) <= 1000);
    }
    berm__follow_destroy(follow);
}

Test(follow, a_failure_of_host_memory_is_an_answer) {
    uint64_t nth = 1;
    for (;; nth++) {
        berm__mem_fault_nth(nth, 1);
        berm_follow_t *follow = berm__follow_create((uint64_t[]){512, 1024}, 2);
        berm__mem_fault_nth(0, 0);
        if (follow != NULL) {
            berm__follow_destroy(follow);
            break;
        }
        cr_assert(berm__mem_held_bytes() == 0);
    }
    cr_assert(nth == 6, "%u", (unsigned)nth);
    cr_assert(berm__mem_held_bytes() == 0);
    cr_assert(berm__follow_create(sizes, 0) == NULL);
}
