// SPDX-License-Identifier: Apache-2.0
// stress/calibrate: rules with kernels hold on the simulated device, and each is seen to break; the
// way to hardware's kernels, by functions that stand for the driver's.
#include <criterion/criterion.h>
#include <string.h>

#include "stress/calibrate/kernels.h"
#include "stress/child.h"

static stress_calibrate_driver_t driver;
static stress_driver_t changed;
static stress_rule_result_t result;

static void open_with(stress_device_options_t options) {
    char error[256] = "";
    options.name = "sim";
    options.is_backed = true;
    cr_assert(stress_device_open(&options, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_calibrate_open(&driver, error, sizeof error) == 0, "%s", error);
    driver.is_backed = true;
    changed = *driver.d;
    driver.d = &changed;
}

static stress_verdict_t rule(const char *name) {
    cr_assert(stress_calibrate_rule(&driver, name, &result), "no rule %s", name);
    cr_assert(strcmp(result.name, name) == 0 && !result.is_needed);
    return result.verdict;
}

#define OK(name) cr_assert(rule(name) == STRESS_VERDICT_OK, "%d %s", result.result, result.detail)
#define DIFFERS(name)                                                                              \
    cr_assert(rule(name) == STRESS_VERDICT_DIFFERS, "%d %s", result.result, result.detail)
#define NOT_TESTED(name)                                                                           \
    cr_assert(rule(name) == STRESS_VERDICT_NOT_TESTED, "%d %s", result.result, result.detail)
#define SAYS(text) cr_assert(strstr(result.detail, text) != NULL, "%s", result.detail)

Test(rules_kernels, hold_and_leave_nothing) {
    open_with((stress_device_options_t){0});
    for (int i = 0; i < 2; i++) {
        OK("access_many");
        OK("alias_kernels");
        OK("map_busy");
        OK("alias_moves");
        OK("map_waits");
        SAYS("under 30 ms of work");
    }
    simcuda_ledger_t ledger;
    stress_simcuda()->ledger_read(-1, &ledger);
    cr_assert(ledger.reservations == 0 && ledger.handles == 0 && ledger.mappings == 0);
    cr_assert(ledger.allocations == 0 && ledger.streams == 0 && ledger.events == 0);
    cr_assert(stress_simcuda()->hazard_count() == 0);
    cr_assert(!stress_calibrate_rule(&driver, "nothing", &result));
}

Test(rules_kernels, unmap_under_a_kernel_faults) {
    open_with((stress_device_options_t){0});
    OK("unmap_busy");
    SAYS("the kernel faults");
    cr_assert(stress_simcuda()->hazard_count() > 0);
}

Test(rules_kernels, unmap_under_a_kernel_may_wait) {
    open_with((stress_device_options_t){.drains_map = true});
    OK("unmap_busy");
    SAYS("it waits for the kernel");
}

static berm_cu_result_t unmap_nothing(berm_cu_deviceptr_t addr, size_t bytes) {
    (void)addr, (void)bytes;
    return BERM_CU_SUCCESS;
}

Test(rules_kernels, unmap_under_a_kernel_in_silence_differs) {
    open_with((stress_device_options_t){0});
    changed.mem_unmap = unmap_nothing;
    DIFFERS("unmap_busy");
    SAYS("in silence");
}

static berm_cu_result_t unmap_never(berm_cu_deviceptr_t addr, size_t bytes) {
    (void)addr, (void)bytes;
    return BERM_CU_NOT_PERMITTED;
}

Test(rules_kernels, unmap_under_a_kernel_may_be_refused) {
    open_with((stress_device_options_t){0});
    changed.mem_unmap = unmap_never;
    OK("unmap_busy");
    SAYS("it is refused");
    DIFFERS("alias_moves");
    cr_assert(result.result == BERM_CU_NOT_PERMITTED);
}

Test(rules_kernels, a_driver_that_drains_the_device_is_seen) {
    open_with((stress_device_options_t){.drains_map = true});
    DIFFERS("map_waits");
    SAYS("map 300");
    OK("map_busy"); // the first edit waited
    OK("alias_moves");
}

Test(rules_kernels, page_edits_that_fault_are_seen) {
    open_with((stress_device_options_t){.faults_page_edits = true});
    DIFFERS("map_busy");
    cr_assert(result.result == BERM_CU_ILLEGAL_ADDRESS, "%d", result.result);
}

Test(rules_kernels, aliases_break_under_dependent_launch) {
    open_with((stress_device_options_t){.pdl_overlap_ns = 3000000});
    DIFFERS("alias_moves");
    SAYS("wrong words");
}

// Access to the first mapping only.
static berm_cu_result_t access_first(berm_cu_deviceptr_t addr, size_t bytes,
                                     const berm_cu_mem_access_t *access, size_t count) {
    return stress_driver_raw()->set_access(
        addr, bytes < driver.unit_bytes ? bytes : driver.unit_bytes, access, count);
}

Test(rules_kernels, access_to_one_mapping_only_is_seen) {
    open_with((stress_device_options_t){0});
    changed.set_access = access_first;
    DIFFERS("access_many");
}

Test(rules_kernels, without_contents_nothing_is_tested) {
    open_with((stress_device_options_t){0});
    driver.is_backed = false;
    NOT_TESTED("alias_kernels");
    SAYS("no contents");
    cr_assert(result.result == BERM_CU_SUCCESS);
}

Test(rules_kernels, dependent_launch_is_left_out_on_the_simulated_device) {
    open_with((stress_device_options_t){0});
    NOT_TESTED("dependent_launch");
    SAYS("cannot wait inside");
}

// --- as on hardware ------------------------------------------------------------------------------

static const char *const function_names[] = {"berm_fill", "berm_check", "berm_fill_early",
                                             "berm_check_late", "berm_check_now"};
static int loaded, unloaded, launched, dependent;
static bool is_dependent_refused, is_late_blind;

static berm_cu_result_t fake_load(stress_cu_module_t *module, const void *image) {
    bool is_second = strstr(image, "griddepcontrol") != NULL;
    if (strncmp(image, ".version ", 9) != 0 || (is_second && is_dependent_refused))
        return BERM_CU_INVALID_VALUE;
    loaded++;
    *module = (stress_cu_module_t)(uintptr_t)(is_second ? 2 : 1);
    return BERM_CU_SUCCESS;
}

static berm_cu_result_t fake_unload(stress_cu_module_t module) {
    (void)module;
    unloaded++;
    return BERM_CU_SUCCESS;
}

// The first two are in module 1, the others in 2.
static berm_cu_result_t fake_function(stress_cu_function_t *function, stress_cu_module_t module,
                                      const char *name) {
    for (uintptr_t i = 0; i < sizeof function_names / sizeof function_names[0]; i++) {
        if (strcmp(name, function_names[i]) != 0 || (uintptr_t)module != (i < 2 ? 1 : 2))
            continue;
        *function = (stress_cu_function_t)(i + 1);
        return BERM_CU_SUCCESS;
    }
    return BERM_CU_NOT_FOUND;
}

// Does with host functions what the PTX does, from the parameters as the driver gets them.
static berm_cu_result_t fake_run(uintptr_t number, berm_cu_stream_t stream, void **parameters) {
    uint64_t addr, words, result_addr, ns;
    uint32_t value;
    memcpy(&addr, parameters[0], sizeof addr);
    memcpy(&words, parameters[1], sizeof words);
    memcpy(&result_addr, parameters[2], sizeof result_addr);
    memcpy(&ns, parameters[3], sizeof ns);
    memcpy(&value, parameters[4], sizeof value);
    bool is_fill = number == 1 || number == 3;
    // One that does not wait sees what was before; so does, in one test, one that waits.
    if (number == 5 || (number == 4 && is_late_blind))
        value--;
    stress_kernels_t kernels = {.c = &driver, .result_addr = result_addr};
    launched++;
    return stress_kernels_launch(&kernels, is_fill ? STRESS_KERNEL_FILL : STRESS_KERNEL_CHECK,
                                 stream, addr, words * 4, value, ns);
}

static berm_cu_result_t fake_launch(stress_cu_function_t function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes,
                                    berm_cu_stream_t stream, void **parameters, void **extra) {
    if (grid_x == 0 || block_x == 0 || block_x > 1024 || grid_y != 1 || grid_z != 1 ||
        block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != NULL)
        return BERM_CU_INVALID_VALUE;
    return fake_run((uintptr_t)function, stream, parameters);
}

static berm_cu_result_t fake_launch_ex(const stress_cu_launch_config_t *config,
                                       stress_cu_function_t function, void **parameters,
                                       void **extra) {
    if (config->attribute_count != 1 || config->attributes[0].id != 6 ||
        config->attributes[0].value.programmatic_allowed != 1)
        return BERM_CU_INVALID_VALUE;
    dependent++;
    return fake_launch(function, config->grid_x, config->grid_y, config->grid_z, config->block_x,
                       config->block_y, config->block_z, config->shared_bytes, config->stream,
                       parameters, extra);
}

static void open_hardware(int capability_major) {
    open_with((stress_device_options_t){0});
    driver.has_modules = true;
    driver.capability_major = capability_major;
    driver.module =
        (stress_module_calls_t){fake_load, fake_function, fake_unload, fake_launch, fake_launch_ex};
}

Test(rules_hardware, rules_hold_with_kernels_of_modules) {
    open_hardware(9);
    OK("access_many");
    OK("alias_kernels");
    OK("map_busy");
    OK("alias_moves");
    OK("map_waits");
    OK("dependent_launch");
    SAYS("8 of 8 kernels saw old words");
    cr_assert(launched > 200 && dependent >= 16 && loaded == 12 && unloaded == 12);
}

Test(rules_hardware, a_kernel_that_has_waited_and_sees_old_words_is_seen) {
    open_hardware(9);
    is_late_blind = true;
    DIFFERS("dependent_launch");
    SAYS("had waited");
}

Test(rules_hardware, dependent_launch_needs_device_and_driver) {
    open_hardware(8);
    NOT_TESTED("dependent_launch");
    SAYS("no dependent launch");
    OK("alias_kernels");
    driver.capability_major = 9;
    is_dependent_refused = true;
    NOT_TESTED("dependent_launch");
    is_dependent_refused = false;
    driver.module.launch_ex = NULL;
    NOT_TESTED("dependent_launch");
    cr_assert(loaded == unloaded);
}

static berm_cu_result_t load_never(stress_cu_module_t *module, const void *image) {
    (void)module, (void)image;
    return BERM_CU_INVALID_VALUE;
}

Test(rules_hardware, a_driver_without_a_compiler_tests_nothing) {
    open_hardware(9);
    driver.module.load_data = load_never;
    NOT_TESTED("alias_kernels");
    SAYS("refused the kernels: CUresult 1");
    driver.module.load_data = NULL;
    NOT_TESTED("alias_kernels");
    SAYS("no functions for kernels");
}

// --- the verdict on aliases ----------------------------------------------------------------------

static const char *const needs[] = {"access_several", "unmap_several", "unmap_between",
                                    "remap_contents", "alias_order",   "access_many",
                                    "alias_kernels",  "map_busy",      "alias_moves"};

enum {
    NEEDS = sizeof needs / sizeof needs[0],
};

static stress_rule_result_t results[NEEDS + 1];
static stress_alias_verdict_t alias;

static const char *verdict(void) {
    stress_calibrate_alias(results, NEEDS + 1, &alias);
    return stress_alias_name(alias.verdict);
}

Test(rules_alias, every_rule_it_stands_on_counts) {
    for (int i = 0; i < NEEDS; i++)
        results[i].name = needs[i];
    results[NEEDS] = (stress_rule_result_t){.name = "map_waits", .verdict = STRESS_VERDICT_DIFFERS};
    cr_assert(strcmp(verdict(), "passed") == 0);
    for (int i = 0; i < NEEDS; i++) {
        results[i].verdict = STRESS_VERDICT_NOT_TESTED;
        cr_assert(strcmp(verdict(), "not run") == 0);
        cr_assert(strstr(alias.why, needs[i]) != NULL, "%s", alias.why);
        results[(i + 1) % NEEDS].verdict = STRESS_VERDICT_DIFFERS; // weighs more
        cr_assert(strcmp(verdict(), "failed") == 0);
        cr_assert(strstr(alias.why, needs[(i + 1) % NEEDS]) != NULL, "%s", alias.why);
        results[(i + 1) % NEEDS].verdict = results[i].verdict = STRESS_VERDICT_OK;
    }
    (void)snprintf(results[4].detail, sizeof results[4].detail, "contents not checked: none");
    cr_assert(strcmp(verdict(), "not run") == 0);
}

// --- processes of their own ----------------------------------------------------------------------

Test(rules_child, without_a_command_there_is_no_process) {
    static stress_rule_result_t all[STRESS_CALIBRATE_RULES_MAX];
    open_with((stress_device_options_t){0});
    size_t count = stress_calibrate_rules(&driver, all);
    cr_assert(strcmp(all[count - 1].name, "unmap_busy") == 0);
    cr_assert(all[count - 1].verdict == STRESS_VERDICT_NOT_TESTED);
    cr_assert(strstr(all[count - 1].detail, "no process") != NULL);
    stress_calibrate_alias(all, count, &alias);
    cr_assert(alias.verdict == STRESS_VERDICT_NOT_TESTED);
    cr_assert(stress_child_question() == NULL);
}

// This program again, which does not know the question and ends in one way or another.
Test(rules_child, one_that_ends_without_an_answer_differs) {
    static char name[] = "test", option[] = "--list";
    static char *arguments[] = {name, option, NULL};
    static stress_rule_result_t all[STRESS_CALIBRATE_RULES_MAX];
    open_with((stress_device_options_t){0});
    stress_child_command_set(arguments);
    size_t count = stress_calibrate_rules(&driver, all);
    cr_assert(all[count - 1].verdict == STRESS_VERDICT_DIFFERS);
    cr_assert(strstr(all[count - 1].detail, "its process") != NULL, "%s", all[count - 1].detail);
}
