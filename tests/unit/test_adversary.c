// SPDX-License-Identifier: Apache-2.0
// Adversaries: berm's bound and its figures hold, allocators that do not move pages lose far more,
// and what would be a finding is one.
#include <criterion/criterion.h>
#include <string.h>

#include "base/defs.h"
#include "stress/adversary/adversary.h"
#include "stress/baselines/baselines.h"

static char error[512];

static stress_adversary_options_t options_of(const char *kind, const stress_allocator_ops_t *ops,
                                             uint64_t unit_bytes) {
    return (stress_adversary_options_t){.kind = kind,
                                        .ops = ops,
                                        .conf = "",
                                        .headroom_pct = -1,
                                        .unit_bytes = unit_bytes,
                                        .live_bytes = 512 * unit_bytes};
}

static stress_adversary_result_t play(const stress_adversary_options_t *options) {
    const stress_device_options_t device = {.name = "sim"};
    stress_adversary_result_t result;
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    int status = stress_adversary_run(options, &result, error, sizeof error);
    stress_device_close();
    cr_assert(status == 0, "%s", error);
    return result;
}

static void expect_good(const stress_adversary_result_t *r) {
    cr_assert(stress_adversary_is_good(r),
              "%s %s: reserved %llu, bound %llu, refused %d, hazards %llu, leaked %llu: %s %s",
              r->kind, r->allocator, (unsigned long long)r->peak_reserved_bytes,
              (unsigned long long)r->bound_bytes, r->is_refused, (unsigned long long)r->hazards,
              (unsigned long long)r->leaked, r->failure, r->first_hazard);
}

// The most that berm may reserve for a byte live, by adversary: of whole granules, and of blocks of
// an eighth of one. The second are what it was measured to need, and a little.
static const struct {
    const char *kind;
    double granules, eighths;
} most[] = {
    {"robson", 1.02, 2.52},    {"best-fit", 1.02, 2.60}, {"comb", 1.02, 1.45},
    {"handles", 1.02, 1.92},   {"sawtooth", 1.02, 1.60}, {"drift", 1.02, 2.60},
    {"kv-growth", 1.02, 1.90},
};

Test(adversary, the_table_is_complete) {
    size_t count = 0;
    for (; stress_adversary_name(count) != NULL; count++) {
        cr_assert(strcmp(stress_adversary_name(count), most[count].kind) == 0);
        cr_assert(stress_adversary_summary(count)[0] != '\0');
    }
    cr_assert(count == BERM_ARRAY_LENGTH(most));
}

Test(adversary, of_whole_granules_costs_berm_the_headroom_only) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(most); i++) {
        stress_adversary_options_t options =
            options_of(most[i].kind, &stress_berm_ops, BERM_MIB(2));
        options.conf = "growth_handle:2M,learned_placement:off";
        stress_adversary_result_t r = play(&options);
        expect_good(&r);
        cr_assert(r.has_bound && r.reserved_over_live <= most[i].granules, "%s: %.4f", most[i].kind,
                  r.reserved_over_live);
        // Of a page without a live byte nothing is lost: live is pinned, and no more.
        cr_assert(r.peak_pinned_bytes == r.peak_live_bytes);
    }
}

Test(adversary, of_whole_granules_is_served_on_a_device_one_granule_larger_than_live) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(most); i++) {
        stress_adversary_options_t options =
            options_of(most[i].kind, &stress_berm_ops, BERM_MIB(2));
        options.conf = "growth_handle:2M";
        options.capacity_bytes = options.live_bytes + BERM_MIB(2);
        stress_adversary_result_t r = play(&options);
        expect_good(&r);
    }
}

Test(adversary, keeps_to_its_bound_with_default_options_and_each_mode) {
    static const char *const confs[] = {"", "remap:alias", "headroom:0", "headroom:10",
                                        "learned_placement:off"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(most); i++) {
        for (size_t j = 0; j < BERM_ARRAY_LENGTH(confs); j++) {
            stress_adversary_options_t options =
                options_of(most[i].kind, &stress_berm_ops, BERM_MIB(2));
            options.conf = confs[j];
            stress_adversary_result_t r = play(&options);
            expect_good(&r);
            options = options_of(most[i].kind, &stress_berm_ops, BERM_KIB(64));
            options.conf = confs[j];
            r = play(&options);
            expect_good(&r);
        }
    }
}

Test(adversary, below_granules_costs_what_they_pin) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(most); i++) {
        stress_adversary_options_t options =
            options_of(most[i].kind, &stress_berm_ops, BERM_KIB(256));
        options.live_bytes = BERM_MIB(512);
        options.conf = "learned_placement:off";
        stress_adversary_result_t r = play(&options);
        expect_good(&r);
        cr_assert(r.reserved_over_live <= most[i].eighths, "%s: %.4f", most[i].kind,
                  r.reserved_over_live);
        // A block touches its granules and at most one more at each end.
        cr_assert(r.peak_pinned_bytes <= r.peak_live_bytes + 2 * 2048 * BERM_MIB(2));
    }
}

Test(adversary, allocators_that_do_not_move_pages_lose) {
    static const struct {
        const char *kind;
        double least;
    } lost[] = {{"robson", 3.5}, {"best-fit", 2}, {"comb", 1.39}, {"handles", 1.7}, {"drift", 2}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(lost); i++) {
        stress_adversary_options_t options =
            options_of(lost[i].kind, &stress_expandable_ops, BERM_MIB(2));
        stress_adversary_result_t r = play(&options);
        expect_good(&r);
        cr_assert(!r.has_bound && r.reserved_over_live >= lost[i].least, "%s: %.4f", lost[i].kind,
                  r.reserved_over_live);
        options.ops = &stress_pytorch_ops;
        r = play(&options);
        expect_good(&r);
    }
}

Test(adversary, a_request_that_is_refused_is_a_finding) {
    stress_adversary_options_t options = options_of("robson", &stress_expandable_ops, BERM_MIB(2));
    options.capacity_bytes = options.live_bytes + BERM_MIB(64);
    stress_adversary_result_t r = play(&options);
    cr_assert(r.is_refused && !stress_adversary_is_good(&r));
    cr_assert(r.refused_live_bytes + r.refused_size_bytes <= options.live_bytes);
    cr_assert(r.failure[0] == '\0' && r.leaked == 0 && r.hazards == 0, "%s", r.failure);
}

Test(adversary, more_than_the_bound_is_a_finding) {
    stress_adversary_options_t options = options_of("comb", &stress_berm_ops, BERM_MIB(2));
    stress_adversary_result_t r = play(&options);
    expect_good(&r);
    r.peak_reserved_bytes = r.bound_bytes;
    cr_assert(stress_adversary_is_good(&r));
    r.peak_reserved_bytes++;
    cr_assert(!stress_adversary_is_good(&r));
    r.peak_reserved_bytes = 0;
    r.hazards = 1;
    cr_assert(!stress_adversary_is_good(&r));
    r.hazards = 0;
    r.leaked = 1;
    cr_assert(!stress_adversary_is_good(&r));
}

// Without moving pages berm is another allocator that loses, and the bound says so.
Test(adversary, remap_off_breaks_the_bound) {
    stress_adversary_options_t options = options_of("robson", &stress_berm_ops, BERM_MIB(2));
    options.conf = "remap:off";
    stress_adversary_result_t r = play(&options);
    cr_assert(r.peak_reserved_bytes > r.bound_bytes * 3 / 2 && !stress_adversary_is_good(&r));
}

// An allocator that gives a block out twice.
static stress_allocator_ops_t broken;

static stress_result_t broken_alloc(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                                    uint64_t *addr) {
    static uint64_t first;
    if (first == 0)
        return stress_expandable_ops.alloc(a, size_bytes, stream, addr) == STRESS_OK
                   ? (first = *addr, STRESS_OK)
                   : STRESS_ERROR;
    *addr = first;
    return STRESS_OK;
}

Test(adversary, a_block_given_out_twice_is_a_failure) {
    broken = stress_expandable_ops;
    broken.alloc = broken_alloc;
    stress_adversary_options_t options = options_of("comb", &broken, BERM_MIB(2));
    stress_adversary_result_t r = play(&options);
    cr_assert(!stress_adversary_is_good(&r));
    cr_assert(strstr(r.failure, "overlaps another") != NULL, "%s", r.failure);
}

static void refuse(const stress_adversary_options_t *options, const char *word) {
    const stress_device_options_t device = {.name = "sim"};
    stress_adversary_result_t result;
    cr_assert(stress_device_open(&device, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_adversary_run(options, &result, error, sizeof error) == -1);
    cr_assert(strstr(error, word) != NULL, "%s", error);
    stress_device_close();
}

Test(adversary, refuses_what_it_cannot_play) {
    stress_adversary_options_t options = options_of("chess", &stress_berm_ops, BERM_MIB(2));
    refuse(&options, "chess: no such adversary");
    options = options_of("comb", &stress_berm_ops, 1000);
    refuse(&options, "no multiple of 512");
    options = options_of("comb", &stress_berm_ops, BERM_MIB(2));
    options.live_bytes = 63 * BERM_MIB(2);
    refuse(&options, "less than 64 of them");
    options.live_bytes = 100 * BERM_MIB(2) + 1;
    refuse(&options, "no multiple of the unit");
    options = options_of("comb", &stress_rmm_pool_ops, BERM_MIB(2));
    refuse(&options, "a process of their own");
    options = options_of("comb", &stress_berm_ops, BERM_MIB(2));
    options.conf = "headroom:x";
    refuse(&options, "");
}
