// SPDX-License-Identifier: Apache-2.0
// Injected failures, and the names functions are counted and failed by.
//
// A call that a rule fails has been counted and has no other effect: no time passes, nothing
// changes. Every rule that matches sees the call; the first in order of creation that fires gives
// the result. Locks: the state's.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef struct fn_names {
    const char *symbol;
    const char *name;
} fn_names_t;

// clang-format off
static const fn_names_t fn_names[SIM_FN_COUNT] = {
#define SIM_FN(symbol, name, version, rules, type)        [SIM_FN_##symbol] = {#symbol, #name},
#define SIM_FN_STREAM(symbol, name, version, rules, type) [SIM_FN_##symbol] = {#symbol, #name},
#include "functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
};
// clang-format on

const char *sim_fn_name(sim_fn_t fn) {
    return fn_names[fn].name;
}

const char *sim_fn_symbol(sim_fn_t fn) {
    return fn_names[fn].symbol;
}

// NULL is every function; a name is the symbol, or the name it has for cuGetProcAddress.
static bool fn_matches(int fn, const char *name) {
    return name == NULL || strcmp(name, fn_names[fn].name) == 0 ||
           strcmp(name, fn_names[fn].symbol) == 0;
}

int sim_fault_draw(sim_fn_t fn) {
    int result = BERM_CU_SUCCESS;
    for (berm_list_t *at = sim.faults.next; at != &sim.faults; at = at->next) {
        sim_fault_t *fault = BERM_CONTAINER_OF(at, sim_fault_t, node);
        if (!fault->matches[fn])
            continue;
        fault->seen++;
        bool fires = fault->per_million != 0
                         ? berm__rng_below(&fault->rng, 1000000) < fault->per_million
                         : fault->seen >= fault->first && fault->seen <= fault->last;
        if (fires && result == BERM_CU_SUCCESS)
            result = fault->result;
    }
    if (result != BERM_CU_SUCCESS)
        sim.faults_fired++;
    return result;
}

void sim_faults_destroy(void) {
    while (!berm__list_is_empty(&sim.faults)) {
        sim_fault_t *fault = BERM_CONTAINER_OF(sim.faults.next, sim_fault_t, node);
        berm__list_remove(&fault->node);
        free(fault);
    }
}

// Adds a copy of `rule` for functions called `name`; -1 for a name no function has.
static int fault_add(const char *name, const sim_fault_t *rule) {
    if (rule->result == BERM_CU_SUCCESS || !sim_lock())
        return -1;
    bool is_known = false;
    sim_fault_t *fault = malloc(sizeof(*fault));
    if (fault != NULL) {
        *fault = *rule;
        for (int fn = 0; fn < SIM_FN_COUNT; fn++) {
            fault->matches[fn] = fn_matches(fn, name);
            is_known = is_known || fault->matches[fn];
        }
    }
    if (is_known)
        berm__list_push_back(&sim.faults, &fault->node);
    else
        free(fault);
    sim_unlock();
    return is_known ? 0 : -1;
}

int simcuda_fault_nth(const char *name, uint64_t nth, uint64_t count, int result) {
    if (nth == 0)
        return -1;
    sim_fault_t rule = {.result = result, .first = nth, .last = UINT64_MAX};
    if (count != 0 && count - 1 <= UINT64_MAX - nth)
        rule.last = nth + (count - 1);
    return fault_add(name, &rule);
}

int simcuda_fault_random(const char *name, uint32_t per_million, uint64_t seed, int result) {
    if (per_million == 0 || per_million > 1000000)
        return -1;
    sim_fault_t rule = {.result = result, .per_million = per_million};
    berm__rng_seed(&rule.rng, seed);
    return fault_add(name, &rule);
}

void simcuda_faults_clear(void) {
    if (!sim_lock())
        return;
    sim_faults_destroy();
    sim_unlock();
}

uint64_t simcuda_faults_fired(void) {
    if (!sim_lock())
        return 0;
    uint64_t fired = sim.faults_fired;
    sim_unlock();
    return fired;
}

uint64_t simcuda_calls(const char *name) {
    if (!sim_lock())
        return 0;
    uint64_t calls = 0;
    for (int fn = 0; fn < SIM_FN_COUNT; fn++)
        calls += fn_matches(fn, name) ? sim.calls[fn] : 0;
    sim_unlock();
    return calls;
}
