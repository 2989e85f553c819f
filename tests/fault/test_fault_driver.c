// SPDX-License-Identifier: Apache-2.0
// Every driver call of every scenario fails once, with each of five results: no crash, no hazard,
// the audit holds, berm and the device's ledger agree, and after berm_shutdown nothing is left on
// the device or on the host, poisoned ranges included. A call of berm that fails gives a status
// that says what happened, and works when it is tried again.
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "berm_introspect.h"
#include "host/mem.h"
#include "tests/support/fault_scenario.h"

typedef struct driver_fault {
    uint64_t nth; // 0: none
    int result;
    uint64_t calls_before; // of the fixture, before the scenario
} driver_fault_t;

static void fault_arm(void *context) {
    driver_fault_t *fault = context;
    fault->calls_before = simcuda_calls(NULL);
    if (fault->nth != 0)
        cr_assert(simcuda_fault_nth(NULL, fault->nth, 1, fault->result) == 0);
}

// A driver whose entries cannot be asked for is none, or has no VMM.
static bool status_is_plausible(berm_status_t status) {
    switch (status) {
    case BERM_ERROR_OUT_OF_DEVICE_MEMORY:
    case BERM_ERROR_OUT_OF_ADDRESSES:
    case BERM_ERROR_CEILING:
    case BERM_ERROR_LIMIT:
    case BERM_ERROR_DRIVER:
    case BERM_ERROR_NO_DRIVER:
    case BERM_ERROR_NO_VMM:
    case BERM_ERROR_UNSUPPORTED: // also an attribute that the driver does not know
    case BERM_ERROR_IMPORT_FD:
    case BERM_ERROR_IMPORT_SIZE:
        return true;
    default:
        return false;
    }
}

static void nothing_is_held(void) {
    cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
}

// Runs the scenario whole and says how many driver calls it makes.
static uint64_t calls_count(const fault_scenario_t *scenario) {
    driver_fault_t none = {0};
    fault_outcome_t outcome;
    fault_scenario_run(scenario, fault_arm, &none, status_is_plausible, &outcome);
    nothing_is_held();
    cr_assert(outcome.failed_calls == 0, "%s fails without a fault", scenario->name);
    // Those named so are about a plan: one is made, and serves.
    cr_assert(strncmp(scenario->name, "plan", 4) != 0 || outcome.planned_requests > 30, "%s: %llu",
              scenario->name, (unsigned long long)outcome.planned_requests);
    return simcuda_calls(NULL) - none.calls_before;
}

static unsigned poisoned_runs; // those that left a poisoned range
static uint64_t runs;          // of one scenario with one call that fails

static void scenario_fail_each(const fault_scenario_t *scenario, int result) {
    uint64_t count = calls_count(scenario), fired = 0;
    cr_assert(count > 30);
    for (uint64_t nth = 1; nth <= count; nth++) {
        driver_fault_t fault = {.nth = nth, .result = result};
        fault_outcome_t outcome;
        fault_scenario_run(scenario, fault_arm, &fault, status_is_plausible, &outcome);
        nothing_is_held();
        fired += simcuda_faults_fired();
        poisoned_runs += outcome.poisoned_bytes > 0;
        // What cannot be found stays away until berm starts anew, and what is poisoned takes its
        // part of a limit or of the device. A block that grows has what addresses it got, up to
        // what is poisoned there.
        bool is_short =
            outcome.seen[BERM_ERROR_LIMIT] > 0 || outcome.seen[BERM_ERROR_OUT_OF_DEVICE_MEMORY] > 0;
        bool is_at_end =
            strcmp(scenario->name, "grow") == 0 && outcome.seen[BERM_ERROR_OUT_OF_ADDRESSES] > 0;
        cr_assert(outcome.failed_again == 0 || outcome.seen[BERM_ERROR_NO_VMM] > 0 ||
                      outcome.seen[BERM_ERROR_UNSUPPORTED] > 0 ||
                      (is_short && outcome.poisoned_bytes > 0) || is_at_end,
                  "%s: what failed with call %llu fails again", scenario->name,
                  (unsigned long long)nth);
    }
    cr_assert(fired == count);
    runs += count;
    cr_log_info("%s: %llu driver calls, each failed once with %d", scenario->name,
                (unsigned long long)count, result);
}

static void scenarios_fail(int result) {
    for (unsigned i = 0; i + 1 < fault_scenario_count; i++)
        scenario_fail_each(&fault_scenarios[i], result);
    cr_assert(poisoned_runs > 0);
    cr_log_info("%llu runs of %u scenarios with result %d", (unsigned long long)runs,
                fault_scenario_count - 1, result);
}

Test(fault_driver, out_of_memory) {
    scenarios_fail(BERM_CU_OUT_OF_MEMORY);
}

Test(fault_driver, invalid_value) {
    scenarios_fail(BERM_CU_INVALID_VALUE);
}

Test(fault_driver, unknown) {
    scenarios_fail(BERM_CU_UNKNOWN);
}

Test(fault_driver, not_supported) {
    scenarios_fail(BERM_CU_NOT_SUPPORTED);
}

Test(fault_driver, not_permitted) {
    scenarios_fail(BERM_CU_NOT_PERMITTED);
}

Test(fault_driver, replay_out_of_memory) {
    scenario_fail_each(&fault_scenarios[fault_scenario_count - 1], BERM_CU_OUT_OF_MEMORY);
}

Test(fault_driver, replay_unknown) {
    scenario_fail_each(&fault_scenarios[fault_scenario_count - 1], BERM_CU_UNKNOWN);
}
