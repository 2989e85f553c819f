// SPDX-License-Identifier: Apache-2.0
// The extent hooks, called by hand: how pages of 4 KiB become granules of 2 MiB, and back.
#include <criterion/criterion.h>
#include <stdbool.h>

#include "base/defs.h"
#include "stress/baselines/jemalloc_extents.h"

static jemalloc_device_t shared;
static jemalloc_extents_t extents;
static char *base;

static void begin(uint64_t limit_bytes) {
    char error[256] = "";
    const stress_device_options_t device = {
        .name = "sim", .capacity_bytes = BERM_MIB(64), .is_strict = true};
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    shared = (jemalloc_device_t){
        .granule_bytes = BERM_MIB(2), .page_bytes = 4096, .limit_bytes = limit_bytes};
    shared.prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    shared.prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    jemalloc_extents_init(&extents, &shared, NULL);
    bool zero = true, commit = false;
    base = extents.hooks.alloc(&extents.hooks, NULL, BERM_MIB(10), 4096, &zero, &commit, 0);
    cr_assert(base != NULL && !zero && !commit && shared.reserved_bytes == 0);
}

static void end(void) {
    uint64_t reserved_bytes = 0;
    cr_assert(jemalloc_extents_fault(&extents, &reserved_bytes) == NULL);
    cr_assert(reserved_bytes == shared.reserved_bytes);
    jemalloc_extents_destroy(&extents);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.used_bytes == 0 && ledger.reservations == 0 && shared.reserved_bytes == 0);
    stress_device_close();
}

// Offsets from the base; true when it worked.
static bool commit(uint64_t offset, uint64_t length) {
    return !extents.hooks.commit(&extents.hooks, base, BERM_MIB(10), offset, length, 0);
}

static bool decommit(uint64_t offset, uint64_t length) {
    return !extents.hooks.decommit(&extents.hooks, base, BERM_MIB(10), offset, length, 0);
}

Test(jemalloc_extents, maps_a_granule_for_its_first_page) {
    begin(UINT64_MAX);
    cr_assert(commit(4096, 4096) && shared.reserved_bytes == BERM_MIB(2));
    cr_assert(commit(8192, BERM_MIB(1)) && shared.reserved_bytes == BERM_MIB(2));
    cr_assert(commit(BERM_MIB(2) - 4096, 8192) && shared.reserved_bytes == BERM_MIB(4));
    cr_assert(shared.commits == 3 && shared.commits_unaligned == 3);
    cr_assert(commit(BERM_MIB(4), BERM_MIB(4)) && shared.reserved_bytes == BERM_MIB(8));
    cr_assert(shared.commits_unaligned == 3);
    end();
}

Test(jemalloc_extents, unmaps_a_granule_with_its_last_page) {
    begin(UINT64_MAX);
    cr_assert(commit(0, BERM_MIB(3)) && shared.reserved_bytes == BERM_MIB(4));
    cr_assert(decommit(0, BERM_MIB(2) - 4096) && shared.reserved_bytes == BERM_MIB(4));
    cr_assert(decommit(BERM_MIB(2) - 4096, 8192) && shared.reserved_bytes == BERM_MIB(2));
    cr_assert(decommit(BERM_MIB(2) + 4096, BERM_MIB(1) - 4096) && shared.reserved_bytes == 0);
    cr_assert(shared.decommits == 3 && shared.host_waits == 3);
    cr_assert(shared.reserved_peak_bytes == BERM_MIB(4));
    end();
}

Test(jemalloc_extents, a_refused_commit_has_no_effect) {
    begin(BERM_MIB(6));
    cr_assert(commit(BERM_MIB(4), 4096));
    // Granules 0 and 1 would fit, 3 would not; 2 is there already.
    cr_assert(!commit(0, BERM_MIB(8)));
    cr_assert(shared.reserved_bytes == BERM_MIB(2) && !shared.is_failing);
    uint64_t reserved_bytes = 0;
    cr_assert(jemalloc_extents_fault(&extents, &reserved_bytes) == NULL);
    cr_assert(commit(0, BERM_MIB(4)) && shared.reserved_bytes == BERM_MIB(6));
    end();
}

Test(jemalloc_extents, says_what_it_refuses) {
    begin(UINT64_MAX);
    jemalloc_hooks_t *hooks = &extents.hooks;
    bool zero = false, is_committed = false;
    char *other = hooks->alloc(hooks, NULL, BERM_MIB(2), BERM_MIB(4), &zero, &is_committed, 0);
    cr_assert(other != NULL && (uintptr_t)other % BERM_MIB(4) == 0);
    cr_assert(hooks->alloc(hooks, base, BERM_MIB(2), 4096, &zero, &is_committed, 0) == NULL,
              "a wanted address");
    cr_assert(hooks->dalloc(hooks, base, BERM_MIB(10), false, 0), "addresses are kept");
    cr_assert(hooks->purge_lazy(hooks, base, BERM_MIB(10), 0, 4096, 0));
    cr_assert(!hooks->split(hooks, base, BERM_MIB(10), 4096, BERM_MIB(10) - 4096, true, 0));
    cr_assert(!hooks->merge(hooks, base, 4096, base + 4096, 4096, true, 0));
    cr_assert(hooks->merge(hooks, base, 4096, other, 4096, true, 0), "another reservation");
    end();
}

Test(jemalloc_extents, commits_at_once_where_asked) {
    begin(UINT64_MAX);
    bool zero = false, is_committed = true;
    cr_assert(extents.hooks.alloc(&extents.hooks, NULL, BERM_MIB(3), 4096, &zero, &is_committed,
                                  0) != NULL);
    cr_assert(is_committed && shared.reserved_bytes == BERM_MIB(4));
    is_committed = true;
    cr_assert(extents.hooks.alloc(&extents.hooks, NULL, BERM_MIB(200), 4096, &zero, &is_committed,
                                  0) == NULL);
    cr_assert(shared.reserved_bytes == BERM_MIB(4));
    end();
}

Test(jemalloc_extents, audit_sees_broken_state) {
    begin(UINT64_MAX);
    cr_assert(commit(0, 4096));
    ordered_node_t *node = ordered_set_first(&extents.reservations);
    jemalloc_granule_t *granules = BERM_CONTAINER_OF(node, jemalloc_reservation_t, node)->granules;
    uint64_t reserved_bytes = 0;
    granules[1].pages = 1;
    cr_assert(jemalloc_extents_fault(&extents, &reserved_bytes)[0] == '1');
    granules[1].pages = 0;
    granules[0].pages = 513;
    cr_assert(jemalloc_extents_fault(&extents, &reserved_bytes)[0] == '2');
    granules[0].pages = 1;
    end();
}
