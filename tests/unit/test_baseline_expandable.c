// SPDX-License-Identifier: Apache-2.0
// The expandable model: small histories on the simulated device with the pages and addresses that
// PyTorch's rules for expandable segments give.
#include "stress/baselines/expandable_space.h"

#define BASELINE_OPS stress_expandable_ops
#include "tests/unit/baseline_helpers.h"

static uint64_t reserved(void) {
    stress_figures_t f;
    ops->figures(a, &f);
    return f.reserved_bytes;
}

Test(baseline_expandable, grows_page_by_page) {
    open_device(BERM_GIB(1), "");
    uint64_t first = alloc(BERM_MIB(2));
    cr_assert(reserved() == BERM_MIB(20));
    cr_assert(alloc(BERM_MIB(17)) == first + BERM_MIB(2));
    uint64_t third = alloc(BERM_MIB(8));
    cr_assert(third == first + BERM_MIB(19), "it begins in the rest of the first page");
    cr_assert(reserved() == BERM_MIB(40));
    cr_assert(stress_device_calls().of[BERM_DRV_RESERVE] == 1);
    cr_assert(stress_device_calls().of[BERM_DRV_CREATE] == 2);
    cr_assert(stress_device_calls().of[BERM_DRV_SET_ACCESS] == 2);
    close_device();
}

Test(baseline_expandable, has_small_pages_for_small_requests) {
    open_device(BERM_GIB(1), "");
    uint64_t small = alloc(BERM_MIB(1));
    cr_assert(reserved() == BERM_MIB(2));
    cr_assert(alloc(BERM_MIB(1)) == small + BERM_MIB(1));
    (void)alloc(512);
    cr_assert(reserved() == BERM_MIB(4));
    (void)alloc(BERM_MIB(1) + 512);
    cr_assert(reserved() == BERM_MIB(24), "the large pool has a segment of its own");
    close_device();
}

Test(baseline_expandable, splits_at_512_bytes) {
    open_device(BERM_GIB(1), "");
    (void)alloc(BERM_MIB(20) - 512);
    stress_figures_t f;
    ops->figures(a, &f);
    cr_assert(f.allocated_bytes == BERM_MIB(20) - 512, "native would keep the whole block");
    close_device();
}

Test(baseline_expandable, takes_the_growing_tail_last) {
    open_device(BERM_GIB(1), "");
    uint64_t hole = alloc(BERM_MIB(19)), wall = alloc(BERM_MIB(11)), tail = alloc(BERM_MIB(5));
    release(hole);
    // Free now: 19 MiB in the hole and, smaller but with unmapped addresses behind it, the tail.
    release(tail);
    cr_assert(reserved() == BERM_MIB(40));
    cr_assert(alloc(BERM_MIB(4)) == hole);
    cr_assert(wall == hole + BERM_MIB(19));
    close_device();
}

Test(baseline_expandable, keeps_streams_apart) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc_on(BERM_MIB(20), 0);
    release(addr);
    (void)alloc_on(BERM_MIB(20), 1);
    cr_assert(reserved() == BERM_MIB(40));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(20));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 1)) == 0);
    close_device();
}

Test(baseline_expandable, unmaps_whole_free_pages_and_fills_the_lowest_gap) {
    open_device(BERM_MIB(100), "");
    uint64_t first = alloc(BERM_MIB(30)), second = alloc(BERM_MIB(40)), third = alloc(BERM_MIB(25));
    cr_assert(reserved() == BERM_MIB(100) && third == first + BERM_MIB(70));
    release(second);
    // 45 MiB are in no run. Of the 40 MiB at offset 30 MiB the page from 40 to 60 MiB is free.
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, BERM_MIB(45), stress_work_stream(work, 0), &addr) ==
              STRESS_OUT_OF_MEMORY);
    check();
    cr_assert(reserved() == BERM_MIB(80));
    cr_assert(a->retries == 1);
    uint64_t again = alloc(BERM_MIB(35));
    cr_assert(again == second, "free, unmapped and free again: the lowest place");
    cr_assert(reserved() == BERM_MIB(100));
    release(first);
    release(again);
    release(third);
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(100));
    close_device();
}

Test(baseline_expandable, gives_up_a_segment_that_is_all_unmapped) {
    open_device(BERM_MIB(40), "");
    uint64_t addr = alloc_on(BERM_MIB(40), 0);
    release(addr);
    (void)alloc_on(BERM_MIB(40), 1);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.reservations == 1 && reserved() == BERM_MIB(40));
    close_device();
}

Test(baseline_expandable, waits_for_recorded_streams) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc(BERM_MIB(20));
    void *side = NULL;
    cr_assert(stress_work_side_begin(work, 0, 0, addr, BERM_MIB(20), &side) == 0);
    cr_assert(ops->record_stream(a, addr, side) == STRESS_OK);
    release(addr);
    cr_assert(alloc(BERM_MIB(20)) == addr + BERM_MIB(20));
    cr_assert(stress_work_side_end(work, 0) == 0);
    cr_assert(alloc(BERM_MIB(20)) == addr);
    close_device();
}

Test(baseline_expandable, obeys_a_limit) {
    open_device(BERM_GIB(1), "");
    a->limit_bytes = BERM_MIB(30);
    (void)alloc(BERM_MIB(2));
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, BERM_MIB(19), stress_work_stream(work, 0), &addr) ==
              STRESS_OUT_OF_MEMORY);
    cr_assert(ops->alloc(a, 0, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->free(a, 0x1000, 0, NULL) == STRESS_ERROR);
    close_device();
}

Test(baseline_expandable, refuses_bad_options) {
    open_device(BERM_GIB(1), "large_segment_size_mb:40");
    (void)alloc(BERM_MIB(2));
    cr_assert(reserved() == BERM_MIB(40));
    static const char *const bad[] = {"x:1", "max_split_size_mb:64", "large_segment_size_mb:3"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        const stress_allocator_options_t options = {.conf = bad[i], .limit_bytes = UINT64_MAX};
        cr_assert(ops->create(&options, error, sizeof error) == NULL, "%s", bad[i]);
    }
    close_device();
}

Test(baseline_expandable, audit_sees_broken_state) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc(BERM_MIB(2));
    pytorch_block_t *block = addr_map_find(&a->live, addr);
    pytorch_block_t *unmapped = block->next->next;
    cr_assert(expandable_is_unmapped(unmapped));
    block->next->addr += 512;
    cr_assert(ops->audit(a, error, sizeof error) == 1);
    block->next->addr -= 512;
    block->is_allocated = false;
    cr_assert(ops->audit(a, error, sizeof error) == 3);
    block->is_allocated = true;
    a->figures.reserved_bytes++;
    cr_assert(ops->audit(a, error, sizeof error) == 4);
    a->figures.reserved_bytes--;
    ordered_node_t *node = ordered_set_first(&expandable_of(a)->segments);
    expandable_segment_t *segment = BERM_CONTAINER_OF(node, expandable_segment_t, node);
    segment->handles[5] = 77;
    cr_assert(ops->audit(a, error, sizeof error) == 5);
    segment->handles[5] = 0;
    close_device();
}
