// SPDX-License-Identifier: Apache-2.0
// The list of hazards: uses of memory that hardware lets pass in silence.
//
// The first SIM_HAZARDS_KEPT are kept with their words, all are counted. In strict mode the first
// one is printed and aborts. Locks: the state's.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static const char *const hazard_names[SIMCUDA_HAZARD_KIND_COUNT] = {
    [SIMCUDA_HAZARD_NONE] = "none",
    [SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK] = "unmapped-under-work",
    [SIMCUDA_HAZARD_USE_UNMAPPED] = "use-unmapped",
    [SIMCUDA_HAZARD_USE_NO_ACCESS] = "use-no-access",
    [SIMCUDA_HAZARD_RACE] = "race",
    [SIMCUDA_HAZARD_ALIAS] = "alias",
    [SIMCUDA_HAZARD_STALE_MAP] = "stale-map",
    [SIMCUDA_HAZARD_EDIT_UNDER_WORK] = "edit-under-work",
    [SIMCUDA_HAZARD_DOUBLE_RELEASE] = "double-release",
    [SIMCUDA_HAZARD_RETAIN_UNMAPPED] = "retain-unmapped",
    [SIMCUDA_HAZARD_DOUBLE_FREE] = "double-free",
    [SIMCUDA_HAZARD_DEADLOCK] = "deadlock",
};

const char *simcuda_hazard_name(simcuda_hazard_kind_t kind) {
    unsigned index = (unsigned)kind;
    return index < SIMCUDA_HAZARD_KIND_COUNT ? hazard_names[index] : "unknown";
}

void sim_hazard(simcuda_hazard_kind_t kind, uint64_t addr, const char *format, ...) {
    simcuda_hazard_t hazard = {.kind = kind, .addr = addr, .at_ns = sim.now_ns};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(hazard.text, sizeof(hazard.text), format, arguments);
    va_end(arguments);
    if (sim.hazard_count < SIM_HAZARDS_KEPT)
        sim.hazards[sim.hazard_count] = hazard;
    sim.hazard_count++;
    sim.hazard_count_of[kind]++;
    if (sim.config.is_strict) {
        (void)fprintf(stderr, "simcuda: hazard %s at 0x%llx, %llu ns: %s\n",
                      simcuda_hazard_name(kind), (unsigned long long)addr,
                      (unsigned long long)hazard.at_ns, hazard.text);
        abort();
    }
}

uint64_t simcuda_hazard_count(void) {
    if (!sim_lock())
        return 0;
    uint64_t count = sim.hazard_count;
    sim_unlock();
    return count;
}

uint64_t simcuda_hazard_count_of(simcuda_hazard_kind_t kind) {
    if ((unsigned)kind >= SIMCUDA_HAZARD_KIND_COUNT || !sim_lock())
        return 0;
    uint64_t count = sim.hazard_count_of[kind];
    sim_unlock();
    return count;
}

int simcuda_hazard_read(uint64_t index, simcuda_hazard_t *hazard) {
    if (!sim_lock())
        return -1;
    bool is_kept = index < sim.hazard_count && index < SIM_HAZARDS_KEPT;
    if (is_kept)
        *hazard = sim.hazards[index];
    sim_unlock();
    return is_kept ? 0 : -1;
}

void simcuda_hazards_clear(void) {
    if (!sim_lock())
        return;
    sim.hazard_count = 0;
    memset(sim.hazard_count_of, 0, sizeof sim.hazard_count_of);
    sim_unlock();
}
