// SPDX-License-Identifier: Apache-2.0
// The invariants of plans' arenas, I34 and I35, broken by hand: the audit must give the number.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "policy/learn.h"
#include "tests/support/heap_inside.h"
#include "tests/support/periodic.h"

#define GRANULE BERM_KIB(256)

static char error[256];
static periodic_t work;
static berm_planned_t *planned;

// The audit must give `number`, and a line that names it.
static void audit_expect(int number) {
    error[0] = '\0';
    int found = berm__audit_run(error, sizeof error);
    cr_assert(found == number, "expected I%d, the audit says I%d: %s", number, found, error);
    char name[8];
    (void)snprintf(name, sizeof name, "I%d: ", number);
    cr_assert(number == 0 || strncmp(error, name, strlen(name)) == 0, "%s", error);
}

// Breaks a member, expects the number, and mends it.
#define BREAKS(number, member, value)                                                              \
    do {                                                                                           \
        __typeof__(member) kept_ = (member);                                                       \
        (member) = (value);                                                                        \
        audit_expect(number);                                                                      \
        (member) = kept_;                                                                          \
        audit_expect(0);                                                                           \
    } while (0)

// A plan in force, with blocks in its arena.
static void plan_make(bool is_aliased) {
    heap_fixture_begin(
        &(heap_fixture_options_t){.granule_bytes = GRANULE,
                                  .berm = is_aliased ? "growth_handle:256K,headroom:1,remap:alias"
                                                     : "growth_handle:256K,headroom:4"});
    void *stream = heap_stream_create();
    if (is_aliased)
        periodic_init(&work, stream, 60, GRANULE, 1, 20, 20, 3);
    else
        periodic_init(&work, stream, 100, 512, 200, 8000, 20, 3);
    periodic_run(&work, 6);
    for (int i = 0; i < 30; i++)
        cr_assert(periodic_step(&work) == BERM_OK);
    planned = &heap_pool(stream)->learn->planned;
    cr_assert(planned->segment != NULL && planned->taken_count > 3);
    cr_assert(planned->plan->is_aliased == is_aliased);
    audit_expect(0);
}

// The first block of the arena at or after a number of others.
static berm_range_t *taken_range(unsigned skip) {
    for (uint64_t cell = 0;; cell++)
        if (planned->range_of[cell] != NULL && skip-- == 0)
            return planned->range_of[cell];
}

static void arena_break(void) {
    berm_range_t *range = taken_range(1), *other = taken_range(2);
    uint64_t cell = range->start_bytes / BERM_CELL_BYTES;
    BREAKS(34, planned->taken_count, planned->taken_count + 1);
    BREAKS(34, planned->taken_count, planned->taken_count - 1);
    BREAKS(34, planned->range_of[cell], other);
    berm__cells_remove(&planned->taken, cell);
    audit_expect(34);
    berm__cells_insert(&planned->taken, cell);
    audit_expect(0);
}

Test(audit_plan, I34_the_blocks_of_an_arena) {
    plan_make(false);
    arena_break();
    BERM_TEST_END_INSIDE();
}

Test(audit_plan, I34_the_blocks_of_an_aliased_arena) {
    plan_make(true);
    berm_range_t *range = taken_range(1);
    uint64_t cell = range->start_bytes / BERM_CELL_BYTES;
    BREAKS(34, planned->taken_count, planned->taken_count + 1);
    BREAKS(34, planned->range_of[cell], taken_range(2));
    BERM_TEST_END_INSIDE();
}

// A set that has a cell where nothing starts.
Test(audit_plan, I34_a_cell_too_many) {
    plan_make(false);
    uint64_t cell = 0;
    while (planned->range_of[cell] != NULL)
        cell++;
    berm__cells_insert(&planned->taken, cell);
    audit_expect(34);
    berm__cells_remove(&planned->taken, cell);
    audit_expect(0);
    BERM_TEST_END_INSIDE();
}

Test(audit_plan, I35_pages_are_used_once_and_stand_where_they_should) {
    plan_make(true);
    const berm_segment_t *segment = planned->segment;
    berm_pages_t *pages = &planned->pages;
    uint64_t granule = taken_range(1)->start_bytes >> segment->gpu->lg_granule;
    berm_page_t *page = &pages->pages[planned->plan->page_of[granule]];
    BREAKS(35, page->is_used, false);
    BREAKS(35, page->handle->views, page->handle->views + 1);
    berm_page_t *idle = NULL, *twice = NULL;
    for (uint32_t i = 0; i < planned->plan->page_count; i++) {
        if (!pages->pages[i].is_used)
            idle = &pages->pages[i];
        if (pages->pages[i].handle != NULL && pages->pages[i].handle->views > 1)
            twice = &pages->pages[i];
    }
    cr_assert(idle != NULL && twice != NULL);
    BREAKS(35, idle->is_used, true);
    BREAKS(35, twice->handle, page != twice ? page->handle : idle->handle);
    // A page that two blocks have.
    uint32_t *page_of =
        &planned->plan->page_of[taken_range(2)->start_bytes >> segment->gpu->lg_granule];
    BREAKS(35, *page_of, planned->plan->page_of[granule]);
    BERM_TEST_END_INSIDE();
}
