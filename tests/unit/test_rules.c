// SPDX-License-Identifier: Apache-2.0
// stress/calibrate/rules.c: a driver that breaks a rule is caught, by the simulated driver with one
// function replaced.
#include <criterion/criterion.h>
#include <string.h>

#include "stress/calibrate/calibrate.h"

static stress_calibrate_driver_t driver;
static stress_driver_t changed;
static stress_rule_result_t results[STRESS_CALIBRATE_RULES_MAX];
static size_t count;

static void open_device(void) {
    char error[256] = "";
    const stress_device_options_t options = {.name = "sim"};
    cr_assert(stress_device_open(&options, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_calibrate_open(&driver, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_calibrate_back(&driver, error, sizeof error) == 0, "%s", error);
    changed = *driver.d;
    driver.d = &changed;
}

TestSuite(rules, .init = open_device, .fini = stress_device_close);

static const stress_rule_result_t *rule(const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(results[i].name, name) == 0)
            return &results[i];
    cr_assert(0, "no rule %s", name);
    return NULL;
}

static size_t run(void) {
    count = stress_calibrate_rules(&driver, results);
    return stress_calibrate_broken(results, count);
}

Test(rules, hold_and_leave_nothing_on_the_device) {
    size_t free_before = 0, free_after = 0, total = 0;
    cr_assert(changed.mem_get_info(&free_before, &total) == 0);
    cr_assert(run() == 0);
    cr_assert(run() == 0);
    cr_assert(changed.mem_get_info(&free_after, &total) == 0);
    cr_assert(free_before == free_after);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.reservations == 0 && ledger.handles == 0 && ledger.mappings == 0);
    cr_assert(ledger.streams == 0);
    cr_assert(stress_simcuda()->hazard_count() == 0);
}

// As drivers whose unmap takes exactly one mapping.
static berm_cu_result_t unmap_one(berm_cu_deviceptr_t addr, size_t bytes) {
    return bytes > 2 * driver.unit_bytes ? BERM_CU_INVALID_VALUE
                                         : stress_driver_raw()->mem_unmap(addr, bytes);
}

Test(rules, unmap_of_one_mapping_only_breaks_what_berm_needs) {
    changed.mem_unmap = unmap_one;
    cr_assert(run() == 1);
    cr_assert(rule("unmap_several")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("unmap_several")->result == BERM_CU_INVALID_VALUE);
    cr_assert(rule("unmap_between")->verdict == STRESS_VERDICT_OK);
}

static berm_cu_result_t create_never(berm_cu_mem_handle_t *handle, size_t bytes,
                                     const berm_cu_mem_prop_t *prop, unsigned long long flags) {
    int result = stress_driver_raw()->mem_create(handle, bytes, prop, flags);
    return result == BERM_CU_OUT_OF_MEMORY ? BERM_CU_UNKNOWN : result;
}

Test(rules, another_code_for_out_of_memory_is_broken) {
    changed.mem_create = create_never;
    cr_assert(run() == 1);
    cr_assert(rule("create_beyond")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("create_beyond")->result == BERM_CU_UNKNOWN);
    cr_assert(rule("create_beyond")->wanted == BERM_CU_OUT_OF_MEMORY);
}

static berm_cu_result_t fill_nothing(berm_cu_deviceptr_t to, unsigned char value, size_t bytes,
                                     berm_cu_stream_t stream) {
    (void)to, (void)value, (void)bytes, (void)stream;
    return BERM_CU_SUCCESS;
}

Test(rules, an_alias_that_shows_old_bytes_differs_and_is_not_needed) {
    driver.fill = fill_nothing;
    cr_assert(run() == 0);
    cr_assert(rule("alias_order")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("alias_order")->result == BERM_CU_SUCCESS);
    cr_assert(rule("alias_order")->detail[0] != '\0');
}

static berm_cu_result_t copy_nothing(berm_cu_deviceptr_t to, const void *from, size_t bytes,
                                     berm_cu_stream_t stream) {
    (void)to, (void)from, (void)bytes, (void)stream;
    return BERM_CU_SUCCESS;
}

Test(rules, lost_contents_break_what_berm_needs) {
    driver.copy_to_device = copy_nothing;
    cr_assert(run() == 3);
    cr_assert(rule("remap_contents")->verdict == STRESS_VERDICT_DIFFERS);
    driver.is_backed = false;
    cr_assert(run() == 0);
    cr_assert(strstr(rule("remap_contents")->detail, "not checked") != NULL);
}

static berm_cu_result_t map_never(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
                                  berm_cu_mem_handle_t handle, unsigned long long flags) {
    (void)addr, (void)bytes, (void)offset, (void)handle, (void)flags;
    return BERM_CU_INVALID_VALUE;
}

// The refusal that a rule wants must come from the call that it is about.
Test(rules, a_driver_that_refuses_all_is_not_taken_for_one_that_obeys) {
    changed.mem_map = map_never;
    cr_assert(run() == 4);
    cr_assert(rule("map_over")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("access_hole")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("unmap_part")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("map_flags")->verdict == STRESS_VERDICT_OK);
}

// And one that accepts all is cleaned up after.
static berm_cu_result_t map_anyhow(berm_cu_deviceptr_t addr, size_t bytes, size_t offset,
                                   berm_cu_mem_handle_t handle, unsigned long long flags) {
    (void)offset, (void)flags;
    return stress_driver_raw()->mem_map(addr, bytes, 0, handle, 0);
}

Test(rules, a_driver_that_accepts_flags_and_offsets_differs) {
    changed.mem_map = map_anyhow;
    cr_assert(run() == 0);
    cr_assert(rule("map_flags")->verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(rule("map_offset")->verdict == STRESS_VERDICT_DIFFERS);
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.reservations == 0 && ledger.handles == 0 && ledger.mappings == 0);
}

static berm_cu_result_t stream_never(berm_cu_stream_t *stream, unsigned flags) {
    (void)stream, (void)flags;
    return BERM_CU_ILLEGAL_ADDRESS;
}

Test(rules, what_cannot_be_tested_counts_as_broken) {
    changed.stream_create = stream_never;
    cr_assert(run() == 5);
    cr_assert(rule("unmap_several")->verdict == STRESS_VERDICT_NOT_TESTED);
    cr_assert(rule("unmap_several")->result == BERM_CU_ILLEGAL_ADDRESS);
    cr_assert(strcmp(stress_verdict_name(rule("unmap_several")->verdict), "not tested") == 0);
}
