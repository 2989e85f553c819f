// SPDX-License-Identifier: Apache-2.0
// Every host allocation of every scenario fails once: no crash, no hazard, the audit holds, berm
// and the device's ledger agree, nothing is left at the end, and what failed works when it is tried
// again. The only failure there may be is OUT_OF_HOST_MEMORY.
#include <criterion/criterion.h>

#include "host/mem.h"
#include "tests/support/fault_scenario.h"

static void fault_arm(void *context) {
    const uint64_t *nth = context;
    berm__mem_fault_nth(*nth, 1);
}

static bool status_is_plausible(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_HOST_MEMORY;
}

static void scenario_fail_each(const fault_scenario_t *scenario, bool has_retries) {
    uint64_t nth = 0;
    fault_outcome_t outcome;
    fault_scenario_run(scenario, fault_arm, &nth, status_is_plausible, &outcome);
    uint64_t count = berm__mem_calls();
    cr_assert(count > 5);
    for (nth = 1; nth <= count; nth++) {
        fault_scenario_run(scenario, fault_arm, &nth, status_is_plausible, &outcome);
        cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
        cr_assert(outcome.failed_calls <= 1, "%s: %u calls fail for one allocation, number %llu",
                  scenario->name, outcome.failed_calls, (unsigned long long)nth);
        cr_assert(!has_retries || outcome.failed_again == 0);
    }
}

Test(fault_host, short_scenarios) {
    for (unsigned i = 0; i + 1 < fault_scenario_count; i++)
        scenario_fail_each(&fault_scenarios[i], true);
}

Test(fault_host, replay) {
    scenario_fail_each(&fault_scenarios[fault_scenario_count - 1], false);
}

// For ever: nothing works, and nothing breaks.
static void fault_arm_for_ever(void *context) {
    const uint64_t *nth = context;
    berm__mem_fault_nth(*nth, 0);
}

Test(fault_host, no_memory_for_ever) {
    for (uint64_t nth = 1; nth <= 40; nth++) {
        for (unsigned i = 0; i + 1 < fault_scenario_count; i++) {
            fault_outcome_t outcome;
            fault_scenario_run(&fault_scenarios[i], fault_arm_for_ever, &nth, status_is_plausible,
                               &outcome);
            berm__mem_fault_nth(0, 0);
            cr_assert(berm__mem_held_bytes() == 0 && berm__mem_reserved_bytes() == 0);
        }
    }
}
