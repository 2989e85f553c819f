// SPDX-License-Identifier: Apache-2.0
// The naive allocator on the strict simulated device: placement, stealing with waits, its audit,
// and every driver call of a miss failing.
#include <dlfcn.h>
#include <string.h>

#include "stress/baselines/naive_space.h"

#define BASELINE_OPS stress_naive_ops
#include "tests/unit/baseline_helpers.h"

// Every block is written for a millisecond: pages that move without a wait would be a hazard.
static void open_headroom(uint64_t capacity_bytes, double headroom_pct, const char *conf) {
    const stress_work_options_t modelled = {
        .work_ns = 1000000, .host_ns = 4000, .lag_ns = 1000000000};
    open_modelled(capacity_bytes, headroom_pct, conf, &modelled);
}

Test(baseline_naive, packs_blocks_into_pages) {
    open_headroom(BERM_GIB(1), 2, "");
    uint64_t first = alloc_on(BERM_MIB(1), 0), second = alloc_on(BERM_MIB(2), 0);
    cr_assert(second == first + BERM_MIB(1), "it starts in the page that was begun");
    cr_assert(figures().reserved_bytes == BERM_MIB(4));
    uint64_t third = alloc_on(600, 0);
    cr_assert(third == second + BERM_MIB(2));
    release(second);
    cr_assert(alloc_on(BERM_MIB(1) - 1024, 0) == third + 1024,
              "the best fit is the rest of the page");
    cr_assert(ops->largest_free(a, stress_work_stream(work, 0)) == BERM_MIB(2));
    close_device();
}

Test(baseline_naive, steals_after_a_wait_and_from_any_stream) {
    open_headroom(BERM_MIB(16), 0, "");
    uint64_t blocks[4];
    for (uint32_t i = 0; i < 4; i++)
        blocks[i] = alloc_on(BERM_MIB(4), i % 2);
    release(blocks[0]);
    release(blocks[1]);
    cr_assert(ops->largest_obtainable(a, stress_work_stream(work, 0)) == BERM_MIB(8));
    (void)alloc_on(BERM_MIB(8), 0);
    cr_assert(figures().moved_bytes == BERM_MIB(8) && figures().host_waits == 2);
    cr_assert(figures().reserved_bytes == BERM_MIB(16));
    uint64_t addr = 0;
    cr_assert(try_alloc(512, 0, &addr) == STRESS_OUT_OF_MEMORY);
    close_device();
}

Test(baseline_naive, grows_within_the_headroom_and_moves_beyond) {
    open_headroom(BERM_GIB(1), 50, "");
    uint64_t first = alloc_on(BERM_MIB(8), 0);
    (void)alloc_on(BERM_MIB(8), 1);
    release(first);
    // Live is 16 MiB again, reserved may be 24: it grows.
    (void)alloc_on(BERM_MIB(8), 1);
    cr_assert(figures().reserved_bytes == BERM_MIB(24) && figures().moved_bytes == 0);
    // Live 24, reserved may be 36: four pages are made, one moves.
    (void)alloc_on(BERM_MIB(14), 1);
    cr_assert(figures().reserved_bytes == BERM_MIB(38) && figures().moved_bytes == 0,
              "live 30 allows 45");
    (void)alloc_on(BERM_MIB(8), 1);
    cr_assert(figures().reserved_bytes == BERM_MIB(46));
    close_device();
}

Test(baseline_naive, takes_victims_in_the_order_asked_for) {
    for (int largest = 0; largest < 2; largest++) {
        open_headroom(BERM_MIB(24), 0, largest ? "victims:largest" : "victims:smallest");
        uint64_t small = alloc_on(BERM_MIB(2), 0);
        (void)alloc_on(BERM_MIB(2), 0);
        uint64_t large = alloc_on(BERM_MIB(18), 0);
        (void)alloc_on(BERM_MIB(2), 0);
        release(small);
        release(large);
        (void)alloc_on(BERM_MIB(2), 1);
        uint64_t left = ops->largest_free(a, stress_work_stream(work, 0));
        cr_assert(left == (largest ? BERM_MIB(16) : BERM_MIB(18)));
        close_device();
    }
}

Test(baseline_naive, refuses_bad_calls) {
    open_headroom(BERM_MIB(16), 2, "");
    uint64_t addr = 0;
    cr_assert(try_alloc(0, 0, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(try_alloc(UINT64_MAX, 0, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(try_alloc(BERM_GIB(1), 0, &addr) == STRESS_OUT_OF_MEMORY);
    cr_assert(ops->free(a, 512, 0, NULL) == STRESS_ERROR);
    close_device();
}

Test(baseline_naive, audit_sees_broken_state) {
    open_headroom(BERM_MIB(64), 2, "");
    (void)alloc_on(BERM_MIB(5), 0);
    naive_space_t *space = (naive_space_t *)a; // its first member
    stress_figures_t sums;
    naive_node_t *live = space->first, *rest = live->next;
    cr_assert(live->state == NAIVE_LIVE && rest->state == NAIVE_FREE);
    rest->addr += 512;
    cr_assert(naive_space_audit(space, &sums) == 1);
    rest->addr -= 512;
    live->state = NAIVE_FREE;
    cr_assert(naive_space_audit(space, &sums) == 2);
    live->state = NAIVE_LIVE;
    rest->state = NAIVE_LIVE;
    cr_assert(naive_space_audit(space, &sums) == 3);
    rest->state = NAIVE_FREE;
    space->whole_pages++;
    cr_assert(naive_space_audit(space, &sums) == 4);
    space->whole_pages--;
    live->requested_bytes++;
    cr_assert(ops->audit(a, error, sizeof error) == 5);
    live->requested_bytes--;
    close_device();
}

// A miss that creates, steals, maps: the n-th call of each kind fails; nothing is lost.
Test(baseline_naive, survives_every_failing_call) {
    static const char *const names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                        "cuStreamSynchronize"};
    int (*fault_nth)(const char *, uint64_t, uint64_t, int) = NULL;
    void (*faults_clear)(void) = NULL;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(names); i++) {
        for (uint64_t nth = 1; nth <= 8; nth++) {
            open_headroom(BERM_MIB(20), 0, "");
            void *library = dlopen("libcuda.so.1", RTLD_NOW);
            void *found = dlsym(library, "simcuda_fault_nth");
            memcpy(&fault_nth, &found, sizeof found);
            found = dlsym(library, "simcuda_faults_clear");
            memcpy(&faults_clear, &found, sizeof found);
            uint64_t first = alloc_on(BERM_MIB(4), 0);
            (void)alloc_on(BERM_MIB(8), 1);
            release(first);
            uint64_t addr = 0;
            cr_assert(fault_nth(names[i], nth, 1, nth % 2 ? 999 : BERM_CU_OUT_OF_MEMORY) == 0);
            (void)try_alloc(BERM_MIB(12), 1, &addr); // audits whatever happened
            faults_clear();
            check();
            if (addr == 0)
                cr_assert(try_alloc(BERM_MIB(12), 1, &addr) == STRESS_OK, "%s %d", names[i],
                          (int)nth);
            close_device();
            (void)dlclose(library);
        }
    }
}
