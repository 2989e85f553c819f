// SPDX-License-Identifier: Apache-2.0
// The PyTorch model: its sizes, and small histories on the simulated device with the figures that
// PyTorch's rules give.
#include <string.h>

#include "stress/baselines/pytorch_blocks.h"

#define BASELINE_OPS stress_pytorch_ops
#include "tests/unit/baseline_helpers.h"

static uint64_t mallocs(void) {
    return stress_device_calls().of[BERM_DRV_MALLOC];
}

// --- sizes ---------------------------------------------------------------------------------------

static pytorch_sizes_t sizes_of(const char *conf) {
    pytorch_sizes_t sizes;
    cr_assert(pytorch_sizes_parse(&sizes, conf, error, sizeof error), "%s", error);
    return sizes;
}

Test(baseline_pytorch, rounds_requests) {
    const pytorch_sizes_t sizes = sizes_of("");
    cr_assert(pytorch_round(&sizes, 1) == 512);
    cr_assert(pytorch_round(&sizes, 511) == 512);
    cr_assert(pytorch_round(&sizes, 512) == 512);
    cr_assert(pytorch_round(&sizes, 513) == 1024);
    cr_assert(pytorch_round(&sizes, 1000001) == 1000448);
}

Test(baseline_pytorch, rounds_by_divisions) {
    const pytorch_sizes_t sizes = sizes_of("roundup_power2_divisions:4");
    cr_assert(pytorch_round(&sizes, 1200) == 1536, "at most 512 * 4: by 512");
    cr_assert(pytorch_round(&sizes, 2048) == 2048);
    cr_assert(pytorch_round(&sizes, 3000) == 3072);
    cr_assert(pytorch_round(&sizes, 5000) == 5120);
    cr_assert(pytorch_round(&sizes, 8192) == 8192, "a power of two is unchanged");
    cr_assert(pytorch_round(&sizes, BERM_MIB(1200)) == BERM_MIB(1280));
}

Test(baseline_pytorch, sizes_segments) {
    const pytorch_sizes_t sizes = sizes_of("");
    cr_assert(pytorch_segment_bytes(&sizes, 512) == BERM_MIB(2));
    cr_assert(pytorch_segment_bytes(&sizes, BERM_MIB(1)) == BERM_MIB(2));
    cr_assert(pytorch_segment_bytes(&sizes, BERM_MIB(1) + 512) == BERM_MIB(20));
    cr_assert(pytorch_segment_bytes(&sizes, BERM_MIB(10) - 512) == BERM_MIB(20));
    cr_assert(pytorch_segment_bytes(&sizes, BERM_MIB(10)) == BERM_MIB(10));
    cr_assert(pytorch_segment_bytes(&sizes, BERM_MIB(10) + 512) == BERM_MIB(12));
}

Test(baseline_pytorch, decides_splits) {
    const pytorch_sizes_t sizes = sizes_of("");
    cr_assert(pytorch_must_split(&sizes, true, 512, 1024));
    cr_assert(!pytorch_must_split(&sizes, true, 512, 512));
    cr_assert(!pytorch_must_split(&sizes, false, BERM_MIB(2), BERM_MIB(3)), "1 MiB is not more");
    cr_assert(pytorch_must_split(&sizes, false, BERM_MIB(2), BERM_MIB(3) + 512));
}

Test(baseline_pytorch, refuses_bad_options) {
    static const char *const bad[] = {
        "expandable_segments:True",
        "max_split_size_mb",
        "max_split_size_mb:x",
        "max_split_size_mb:0",
        "max_split_size_mb:10",
        "roundup_power2_divisions:3",
        ",",
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        pytorch_sizes_t sizes;
        cr_assert(!pytorch_sizes_parse(&sizes, bad[i], error, sizeof error), "%s", bad[i]);
    }
}

// --- histories -----------------------------------------------------------------------------------

Test(baseline_pytorch, splits_and_joins_small_blocks) {
    open_device(BERM_GIB(1), "");
    uint64_t first = alloc(100), second = alloc(512), third = alloc(1);
    cr_assert(second == first + 512 && third == second + 512);
    cr_assert(figures().reserved_bytes == BERM_MIB(2));
    cr_assert(figures().allocated_bytes == 1536 && figures().requested_bytes == 613);
    release(second);
    cr_assert(alloc(300) == second, "the best fit is the hole");
    release(first);
    release(third);
    release(second);
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(1),
              "a larger request would go to the large pool");
    cr_assert(alloc(BERM_MIB(1)) == first && mallocs() == 1);
    close_device();
}

Test(baseline_pytorch, keeps_small_and_large_apart) {
    open_device(BERM_GIB(1), "");
    (void)alloc(BERM_MIB(2));
    (void)alloc(BERM_KIB(512));
    cr_assert(figures().reserved_bytes == BERM_MIB(22));
    close_device();
}

Test(baseline_pytorch, does_not_split_off_a_megabyte) {
    open_device(BERM_GIB(1), "");
    (void)alloc(BERM_MIB(2));
    (void)alloc(BERM_MIB(17) + BERM_KIB(512));
    cr_assert(figures().reserved_bytes == BERM_MIB(20));
    cr_assert(figures().allocated_bytes == BERM_MIB(20), "the block keeps its last 512 KiB");
    close_device();
}

Test(baseline_pytorch, takes_the_smallest_that_fits) {
    open_device(BERM_GIB(1), "");
    uint64_t large = alloc(BERM_MIB(64)), middle = alloc(BERM_MIB(32)), small = alloc(BERM_MIB(16));
    release(large);
    release(small);
    release(middle);
    cr_assert(alloc(BERM_MIB(30)) == middle);
    cr_assert(alloc(BERM_MIB(16)) == small);
    cr_assert(mallocs() == 3);
    close_device();
}

Test(baseline_pytorch, keeps_streams_apart) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc_on(BERM_MIB(20), 0);
    release(addr);
    cr_assert(alloc_on(BERM_MIB(20), 1) != addr);
    cr_assert(figures().reserved_bytes == BERM_MIB(40));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(20));
    cr_assert(ops->largest_free(a, stress_work_stream(work, 1)) == 0);
    close_device();
}

Test(baseline_pytorch, releases_and_retries) {
    open_device(BERM_MIB(64), "");
    uint64_t first = alloc(BERM_MIB(20)), second = alloc(BERM_MIB(20)), pin = alloc(BERM_MIB(2));
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, BERM_MIB(40), stress_work_stream(work, 0), &addr) ==
              STRESS_OUT_OF_MEMORY);
    release(first);
    release(second);
    cr_assert(ops->largest_obtainable(a, stress_work_stream(work, 0)) == BERM_MIB(44));
    (void)alloc(BERM_MIB(40));
    cr_assert(figures().reserved_bytes == BERM_MIB(60), "the segment in use stays");
    cr_assert(a->retries == 2 && figures().host_waits == 2);
    release(pin);
    close_device();
}

Test(baseline_pytorch, obeys_a_limit) {
    open_device(BERM_GIB(1), "");
    a->limit_bytes = BERM_MIB(21);
    uint64_t addr = 0;
    (void)alloc(BERM_MIB(2));
    cr_assert(ops->alloc(a, 512, stress_work_stream(work, 0), &addr) == STRESS_OUT_OF_MEMORY);
    close_device();
}

Test(baseline_pytorch, defers_blocks_that_another_stream_uses) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc(BERM_MIB(20));
    void *side = NULL;
    cr_assert(stress_work_side_begin(work, 0, 0, addr, BERM_MIB(20), &side) == 0);
    cr_assert(ops->record_stream(a, addr, side) == STRESS_OK);
    cr_assert(ops->record_stream(a, addr, side) == STRESS_OK, "twice is once");
    release(addr);
    cr_assert(figures().active_bytes == BERM_MIB(20) && figures().allocated_bytes == 0);
    uint64_t other = alloc(BERM_MIB(20));
    cr_assert(other != addr && stress_device_calls().of[BERM_DRV_EVENT_QUERY] == 1);
    release(other);
    cr_assert(stress_work_side_end(work, 0) == 0);
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(20));
    cr_assert(figures().active_bytes == 0);
    uint64_t lower = addr < other ? addr : other;
    cr_assert(alloc(BERM_MIB(20)) == lower, "equal sizes: the lower address");
    close_device();
}

Test(baseline_pytorch, max_split_size_keeps_large_blocks_whole) {
    open_device(BERM_MIB(256), "max_split_size_mb:64");
    uint64_t large = alloc(BERM_MIB(100));
    release(large);
    (void)alloc(BERM_MIB(30));
    cr_assert(mallocs() == 2, "a request below the limit takes no block above it");
    cr_assert(alloc(BERM_MIB(90)) == large, "a large one may, within 20 MiB");
    release(large);
    (void)alloc(BERM_MIB(70));
    cr_assert(mallocs() == 3, "but not beyond");
    (void)alloc(BERM_MIB(120));
    cr_assert(figures().reserved_bytes == BERM_MIB(220), "the oversize block went first");
    close_device();
}

Test(baseline_pytorch, refuses_bad_calls) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = 0;
    cr_assert(ops->alloc(a, UINT64_C(1) << 60, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->alloc(a, 0, NULL, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->free(a, 0x1234, 0, NULL) == STRESS_ERROR);
    cr_assert(ops->record_stream(a, 0x1234, NULL) == STRESS_ERROR);
    uint64_t block = alloc(512);
    release(block);
    cr_assert(ops->free(a, block, 0, NULL) == STRESS_ERROR, "freed twice");
    close_device();
}

Test(baseline_pytorch, audit_sees_broken_state) {
    open_device(BERM_GIB(1), "");
    uint64_t addr = alloc(512);
    pytorch_block_t *block = addr_map_find(&a->live, addr);
    block->next->addr += 512;
    cr_assert(ops->audit(a, error, sizeof error) == 1);
    block->next->addr -= 512;
    block->is_allocated = false;
    cr_assert(ops->audit(a, error, sizeof error) == 3);
    block->is_allocated = true;
    a->figures.reserved_bytes++;
    cr_assert(ops->audit(a, error, sizeof error) == 4);
    a->figures.reserved_bytes--;
    close_device();
}
