// SPDX-License-Identifier: Apache-2.0
// Runs the rules of rules_arguments.c and rules_memory.c, each in a place of its own: fresh
// addresses, three handles and a stream, all given back afterwards whatever the driver did.
//
// A place that cannot be made (a sticky error of the context, no memory) makes its rule "not
// tested", with the CUresult. Nothing runs on the device when addresses or handles change.
// Bound: 4 units of device memory. Locks: none; one thread. Nothing is allocated on the host.
#include "stress/calibrate/rules.h"

#include <string.h>

#include "base/defs.h"

uint64_t stress_place_at(const stress_place_t *p, unsigned unit) {
    return p->addr + unit * p->unit_bytes;
}

static uint64_t handle_bytes(const stress_place_t *p, stress_place_handle_t handle) {
    return handle == STRESS_PLACE_WIDE ? 2 * p->unit_bytes : p->unit_bytes;
}

int stress_place_map(stress_place_t *p, unsigned unit, stress_place_handle_t handle) {
    uint64_t addr = stress_place_at(p, unit), bytes = handle_bytes(p, handle);
    int result = p->d->mem_map(addr, bytes, 0, p->handles[handle], 0);
    if (result != BERM_CU_SUCCESS) { // else a rule that wants a refusal would take this for it
        p->is_wrong = true;
        (void)snprintf(p->detail, sizeof p->detail, "cuMemMap of a whole handle failed");
    } else if (p->mapping_count < STRESS_PLACE_MAPPINGS) {
        p->mappings[p->mapping_count].addr = addr;
        p->mappings[p->mapping_count++].bytes = bytes;
    }
    return result;
}

int stress_place_access(stress_place_t *p, unsigned unit, unsigned count) {
    return p->d->set_access(stress_place_at(p, unit), count * p->unit_bytes, &p->c->access, 1);
}

static int place_make(stress_place_t *p, const stress_calibrate_driver_t *c) {
    memset(p, 0, sizeof *p);
    p->c = c;
    p->d = c->d;
    p->unit_bytes = c->unit_bytes;
    int result = p->d->stream_create(&p->stream, BERM_CU_STREAM_NON_BLOCKING);
    if (result != BERM_CU_SUCCESS)
        p->stream = NULL;
    if (result == BERM_CU_SUCCESS)
        result = p->d->address_reserve(&p->addr, STRESS_PLACE_UNITS * p->unit_bytes, 0, 0, 0);
    for (int i = 0; result == BERM_CU_SUCCESS && i < STRESS_PLACE_HANDLES; i++) {
        result = p->d->mem_create(&p->handles[i], handle_bytes(p, (stress_place_handle_t)i),
                                  &c->prop, 0);
        p->is_made[i] = result == BERM_CU_SUCCESS;
    }
    return result;
}

// Errors do not count here: a rule may have unmapped or freed already.
static void place_clear(stress_place_t *p) {
    if (p->stream != NULL) {
        (void)p->d->stream_synchronize(p->stream);
        (void)p->d->stream_destroy(p->stream);
    }
    for (size_t i = 0; i < p->mapping_count; i++)
        (void)p->d->mem_unmap(p->mappings[i].addr, p->mappings[i].bytes);
    for (int i = 0; i < STRESS_PLACE_HANDLES; i++)
        if (p->is_made[i])
            (void)p->d->mem_release(p->handles[i]);
    if (p->addr != 0)
        (void)p->d->address_free(p->addr, STRESS_PLACE_UNITS * p->unit_bytes);
}

static void rule_run(const stress_calibrate_driver_t *c, const stress_rule_t *rule,
                     stress_rule_result_t *out) {
    *out = (stress_rule_result_t){.name = rule->name,
                                  .text = rule->text,
                                  .is_needed = rule->is_needed,
                                  .verdict = STRESS_VERDICT_NOT_TESTED,
                                  .wanted = rule->wanted};
    if (rule->check == NULL) {
        (void)snprintf(out->detail, sizeof out->detail, "%s", rule->why);
        return;
    }
    stress_place_t place;
    out->result = place_make(&place, c);
    if (out->result == BERM_CU_SUCCESS) {
        out->result = rule->check(&place);
        bool is_right = out->result == rule->wanted && !place.is_wrong;
        out->verdict = is_right ? STRESS_VERDICT_OK : STRESS_VERDICT_DIFFERS;
        memcpy(out->detail, place.detail, sizeof out->detail);
    } else {
        (void)snprintf(out->detail, sizeof out->detail, "no memory, addresses or stream for it");
    }
    place_clear(&place);
}

const char *stress_verdict_name(stress_verdict_t verdict) {
    switch (verdict) {
    case STRESS_VERDICT_OK:
        return "ok";
    case STRESS_VERDICT_DIFFERS:
        return "differs";
    case STRESS_VERDICT_NOT_TESTED:
        break;
    }
    return "not tested";
}

size_t stress_calibrate_rules(const stress_calibrate_driver_t *c, stress_rule_result_t *results) {
    size_t count = 0;
    for (size_t i = 0; i < stress_rules_of_arguments_count && count < STRESS_CALIBRATE_RULES_MAX;
         i++)
        rule_run(c, &stress_rules_of_arguments[i], &results[count++]);
    for (size_t i = 0; i < stress_rules_of_memory_count && count < STRESS_CALIBRATE_RULES_MAX; i++)
        rule_run(c, &stress_rules_of_memory[i], &results[count++]);
    return count;
}

// A rule with a check that could not be run is broken too: nothing says that it holds.
size_t stress_calibrate_broken(const stress_rule_result_t *results, size_t count) {
    size_t broken = 0;
    for (size_t i = 0; i < count; i++)
        broken += results[i].is_needed && results[i].verdict != STRESS_VERDICT_OK;
    return broken;
}
