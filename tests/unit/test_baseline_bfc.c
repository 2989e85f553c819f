// SPDX-License-Identifier: Apache-2.0
// The BFC model: regions, bins, splitting and joining, with exact figures.
#define BASELINE_OPS stress_bfc_ops
#include "tests/unit/baseline_helpers.h"

Test(baseline_bfc, doubles_its_regions) {
    open_device(BERM_GIB(1), "");
    (void)alloc(1);
    cr_assert(figures().reserved_bytes == BERM_MIB(2) && figures().allocated_bytes == 256);
    (void)alloc(BERM_MIB(2));
    cr_assert(figures().reserved_bytes == BERM_MIB(2 + 4));
    (void)alloc(BERM_MIB(2));
    cr_assert(figures().reserved_bytes == BERM_MIB(2 + 4), "the second half of that region");
    (void)alloc(BERM_MIB(100));
    cr_assert(figures().reserved_bytes == BERM_MIB(2 + 4 + 128), "doubled until it fits");
    (void)alloc(BERM_MIB(100));
    cr_assert(figures().reserved_bytes == BERM_MIB(2 + 4 + 128 + 128),
              "that doubling was the step already");
    (void)alloc(BERM_MIB(130));
    cr_assert(figures().reserved_bytes == BERM_MIB(2 + 4 + 128 + 128 + 256));
    close_device();
}

Test(baseline_bfc, splits_only_when_half_is_left) {
    open_device(BERM_GIB(1), "");
    uint64_t first = alloc(BERM_MIB(1) + 256);
    cr_assert(figures().allocated_bytes == BERM_MIB(2), "less than as much again is left");
    release(first);
    cr_assert(alloc(BERM_MIB(1)) == first && figures().allocated_bytes == BERM_MIB(1));
    cr_assert(alloc(BERM_MIB(1)) == first + BERM_MIB(1));
    close_device();
}

Test(baseline_bfc, splits_off_128_mib) {
    open_device(BERM_GIB(1), "growth:off");
    (void)alloc(BERM_MIB(896));
    cr_assert(figures().reserved_bytes == BERM_GIB(1));
    cr_assert(figures().allocated_bytes == BERM_MIB(896));
    cr_assert(ops->largest_free(a, NULL) == BERM_MIB(128));
    close_device();
}

Test(baseline_bfc, takes_the_smallest_of_the_first_bin) {
    open_device(BERM_GIB(1), "");
    uint64_t blocks[6];
    static const uint64_t sizes[6] = {7680, 256, 5120, 256, 6144, 256};
    for (int i = 0; i < 6; i++)
        blocks[i] = alloc(sizes[i]);
    release(blocks[0]);
    release(blocks[2]);
    release(blocks[4]);
    cr_assert(alloc(4608) == blocks[2]);
    cr_assert(alloc(5632) == blocks[4]);
    cr_assert(alloc(5632) == blocks[0]);
    close_device();
}

Test(baseline_bfc, joins_neighbours) {
    open_device(BERM_GIB(1), "");
    uint64_t first = alloc(BERM_KIB(512)), second = alloc(BERM_KIB(512)), third = alloc(512);
    release(first);
    release(third);
    release(second);
    cr_assert(ops->largest_free(a, NULL) == BERM_MIB(2));
    cr_assert(alloc(BERM_MIB(2)) == first && figures().reserved_bytes == BERM_MIB(2));
    close_device();
}

Test(baseline_bfc, gives_free_regions_back_when_full) {
    open_device(BERM_MIB(64), "");
    uint64_t first = alloc(BERM_MIB(32)), pin = alloc(BERM_MIB(2));
    cr_assert(figures().reserved_bytes == BERM_MIB(64));
    release(first);
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, BERM_MIB(60), stress_work_stream(work, 0), &addr) ==
              STRESS_OUT_OF_MEMORY);
    release(pin);
    cr_assert(ops->largest_obtainable(a, NULL) == BERM_MIB(64));
    (void)alloc(BERM_MIB(60));
    cr_assert(figures().reserved_bytes == BERM_MIB(64));
    close_device();
}

Test(baseline_bfc, waits_before_another_stream_gets_memory) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc_on(BERM_MIB(2), 0);
    release(addr);
    cr_assert(alloc_on(BERM_MIB(2), 1) == addr && figures().host_waits == 1);
    release(addr);
    cr_assert(alloc_on(BERM_MIB(2), 1) == addr && figures().host_waits == 1, "the same stream");
    release(addr);
    uint64_t low = alloc_on(BERM_MIB(1), 0), high = alloc_on(BERM_MIB(1), 1);
    release(low);
    release(high);
    (void)alloc_on(BERM_MIB(2), 0);
    cr_assert(figures().host_waits == 3, "joined from both: the other one is waited for");
    close_device();
}

Test(baseline_bfc, refuses_bad_calls) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, 0, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->alloc(a, BERM_GIB(2), NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->free(a, 0x1234, 0, NULL) == STRESS_ERROR);
    const stress_allocator_options_t options = {.conf = "growth:x", .limit_bytes = UINT64_MAX};
    cr_assert(ops->create(&options, error, sizeof error) == NULL);
    close_device();
}
