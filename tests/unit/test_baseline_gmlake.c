// SPDX-License-Identifier: Apache-2.0
// The GMLake model: splitting, stitching, the use of views and their end, with exact figures.
#include "base/rng.h"
#include "stress/baselines/gmlake_space.h"

#define BASELINE_OPS stress_gmlake_ops
#include "tests/unit/baseline_helpers.h"

static bool is_refused(uint64_t size_bytes) {
    uint64_t addr = 0;
    return ops->alloc(a, size_bytes, stress_work_stream(work, 0), &addr) == STRESS_OUT_OF_MEMORY;
}

Test(baseline_gmlake, has_pytorch_sizes) {
    open_device(BERM_GIB(1), "");
    (void)alloc(512);
    cr_assert(figures().reserved_bytes == BERM_MIB(2));
    uint64_t first = alloc(BERM_MIB(3));
    cr_assert(figures().reserved_bytes == BERM_MIB(22));
    cr_assert(alloc(BERM_MIB(1) + 1) == first + BERM_MIB(4), "3 MiB take two granules");
    (void)alloc(BERM_MIB(30));
    cr_assert(figures().reserved_bytes == BERM_MIB(52));
    cr_assert(figures().allocated_bytes == BERM_MIB(36) + 512);
    cr_assert(stress_device_calls().of[BERM_DRV_CREATE] == 25);
    close_device();
}

Test(baseline_gmlake, joins_in_a_segment) {
    open_device(BERM_GIB(1), "");
    uint64_t first = alloc(BERM_MIB(4)), second = alloc(BERM_MIB(4));
    release(first);
    release(second);
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(20));
    cr_assert(alloc(BERM_MIB(20)) == first && figures().reserved_bytes == BERM_MIB(20));
    close_device();
}

// Two free blocks of 20 and 30 MiB with a live one between them.
static uint64_t fragment(void) {
    uint64_t first = alloc(BERM_MIB(20)), wall = alloc(BERM_MIB(10)), second = alloc(BERM_MIB(30));
    release(first);
    release(second);
    return wall;
}

Test(baseline_gmlake, stitches_free_blocks_above_the_limit) {
    open_device(BERM_GIB(1), "fragLimit:33554432");
    uint64_t wall = fragment();
    uint64_t view = alloc(BERM_MIB(40));
    cr_assert(figures().reserved_bytes == BERM_MIB(60), "no new memory");
    cr_assert(figures().moved_bytes == BERM_MIB(40));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(10));
    release(view);
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(40),
              "the view is kept");
    stress_calls_t before = stress_device_calls();
    cr_assert(alloc(BERM_MIB(40)) == view, "and used again, without a call");
    stress_calls_t after = stress_device_calls();
    cr_assert(stress_calls_memory(&after) == stress_calls_memory(&before));
    release(view);
    release(wall);
    close_device();
}

Test(baseline_gmlake, does_not_stitch_below_the_limit) {
    open_device(BERM_GIB(1), "");
    (void)fragment();
    (void)alloc(BERM_MIB(40));
    cr_assert(figures().reserved_bytes == BERM_MIB(100) && figures().moved_bytes == 0);
    close_device();
}

Test(baseline_gmlake, a_block_in_use_blocks_its_views) {
    open_device(BERM_MIB(60), "fragLimit:33554432");
    (void)fragment();
    uint64_t view = alloc(BERM_MIB(40));
    release(view);
    // 30 MiB by its own address: the view has lost granules.
    uint64_t block = alloc(BERM_MIB(30));
    cr_assert(block != view);
    cr_assert(is_refused(BERM_MIB(40)));
    check();
    release(block);
    (void)alloc(BERM_MIB(40));
    cr_assert(figures().reserved_bytes <= BERM_MIB(60));
    close_device();
}

Test(baseline_gmlake, hands_out_the_first_part_of_a_view) {
    open_device(BERM_GIB(1), "fragLimit:33554432");
    (void)fragment();
    uint64_t view = alloc(BERM_MIB(50));
    release(view);
    cr_assert(alloc(BERM_MIB(36)) == view, "no primitive block has 36 MiB");
    cr_assert(figures().allocated_bytes == BERM_MIB(46));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(14));
    release(view);
    close_device();
}

Test(baseline_gmlake, does_not_waste_large_views) {
    open_device(BERM_GIB(1), "fragLimit:33554432,reuseLimit:1");
    (void)fragment();
    release(alloc(BERM_MIB(50)));
    uint64_t other = alloc(BERM_MIB(36));
    cr_assert(figures().moved_bytes == BERM_MIB(86), "stitched again");
    release(other);
    close_device();
}

Test(baseline_gmlake, gives_segments_and_their_views_back) {
    open_device(BERM_MIB(60), "fragLimit:33554432");
    uint64_t wall = fragment();
    uint64_t view = alloc(BERM_MIB(40)); // 30 and 10 of the 20
    release(view);
    release(wall);
    (void)alloc(BERM_MIB(60));
    cr_assert(figures().reserved_bytes == BERM_MIB(60));
    close_device();
}

Test(baseline_gmlake, a_live_view_survives_the_loss_of_its_end) {
    open_device(BERM_MIB(100), "fragLimit:33554432");
    (void)fragment();
    uint64_t view = alloc(BERM_MIB(50)); // 30, then 20
    release(view);
    view = alloc(BERM_MIB(34)); // 30 and 4 of the 20: that segment stays, split
    release(view);
    uint64_t narrow = alloc(BERM_MIB(30));
    release(narrow);
    view = alloc(BERM_MIB(34));
    (void)alloc(BERM_MIB(40));
    cr_assert(is_refused(BERM_MIB(60)), "and everything unsplit was released");
    check();
    release(view);
    close_device();
}

Test(baseline_gmlake, drops_the_oldest_views) {
    open_device(BERM_GIB(4), "fragLimit:33554432,autoGC:1");
    uint64_t walls[12], holes[12];
    for (int i = 0; i < 12; i++) {
        holes[i] = alloc(BERM_MIB(100));
        walls[i] = alloc(BERM_MIB(10));
    }
    for (int i = 0; i < 12; i++)
        release(holes[i]);
    // Views of 200, 300, ... MiB: together more than 1 GiB.
    for (uint64_t i = 2; i <= 6; i++)
        release(alloc(BERM_MIB(100 * i)));
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    uint64_t segments_bytes = BERM_MIB(12 * 100) + BERM_MIB(120);
    cr_assert(ledger.reserved_address_bytes <= segments_bytes + BERM_GIB(1));
    cr_assert(figures().host_waits > 0);
    for (int i = 0; i < 12; i++)
        release(walls[i]);
    close_device();
}

Test(baseline_gmlake, holds_together_under_random_use) {
    open_device(BERM_MIB(700), "fragLimit:2097152");
    berm_rng_t rng;
    berm__rng_seed(&rng, 5);
    uint64_t live[24] = {0};
    for (int i = 0; i < 3000; i++) {
        uint64_t *slot = &live[berm__rng_below(&rng, 24)];
        if (*slot != 0) {
            release(*slot);
            *slot = 0;
            continue;
        }
        uint64_t size_bytes = BERM_KIB(512) + berm__rng_below(&rng, BERM_MIB(60));
        if (ops->alloc(a, size_bytes, stress_work_stream(work, 0), slot) != STRESS_OK)
            *slot = 0;
        else
            cr_assert(stress_work_use(work, 0, *slot, size_bytes, true) == 0);
        check();
    }
    cr_assert(figures().moved_bytes > 0);
    close_device();
}

Test(baseline_gmlake, refuses_bad_calls) {
    open_device(BERM_GIB(1), "");
    cr_assert(is_refused(0) && is_refused(UINT64_C(1) << 60) && is_refused(BERM_GIB(2)));
    cr_assert(ops->free(a, 0x1234, 0, NULL) == STRESS_ERROR);
    uint64_t addr = alloc(BERM_MIB(2));
    release(addr);
    cr_assert(ops->free(a, addr, 0, NULL) == STRESS_ERROR, "freed twice");
    static const char *const bad[] = {"fragLimit", "fragLimit:", "fragLimit:x", "autoGC:0", "a:1"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        const stress_allocator_options_t options = {.conf = bad[i], .limit_bytes = UINT64_MAX};
        cr_assert(ops->create(&options, error, sizeof error) == NULL, "%s", bad[i]);
    }
    close_device();
}
