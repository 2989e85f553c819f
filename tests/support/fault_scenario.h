// SPDX-License-Identifier: Apache-2.0
// What the fault tests run again and again, with another call failing each time. A scenario starts
// berm, uses it like a program that goes on after a failure, and ends it; it must come to its end
// whatever fails once.
#ifndef BERM_TESTS_FAULT_SCENARIO_H
#define BERM_TESTS_FAULT_SCENARIO_H

#include <stdbool.h>

#include "tests/support/heap_fixture.h"

typedef struct fault_scenario {
    const char *name;
    heap_fixture_options_t options; // stays_stopped is set
    void (*run)(void);              // between berm_init and berm_shutdown
} fault_scenario_t;

// The last is long: 2,000 random operations.
extern const fault_scenario_t fault_scenarios[];
extern const unsigned fault_scenario_count;

// What a run saw of its one failure.
typedef struct fault_outcome {
    unsigned failed_calls; // of berm
    unsigned failed_again; // and failed when it was tried once more
    unsigned seen[BERM_STATUS_COUNT];
    uint64_t poisoned_bytes;   // at the end
    uint64_t planned_requests; // the same
} fault_outcome_t;

// A device is made and `arm` called; berm is started, the scenario runs, the audit and the ledger
// are checked, berm is stopped; nothing may be left. Aborts with a line where something does not
// hold. A status that `allows` says no to, too.
void fault_scenario_run(const fault_scenario_t *scenario, void (*arm)(void *context), void *context,
                        bool (*allows)(berm_status_t status), fault_outcome_t *outcome);

#endif
