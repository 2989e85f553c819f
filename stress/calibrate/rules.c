// SPDX-License-Identifier: Apache-2.0
// Runs the rules of rules_arguments.c, rules_memory.c and rules_kernels.c, each in a place of its
// own: fresh addresses, three handles and a stream, all given back afterwards whatever the driver
// did. Those with kernels run in processes of their own, where they may end their context.
//
// A place that cannot be made (a sticky error of the context, no memory) makes its rule "not
// tested", with the CUresult.
// Bound: 4 units of device memory. Locks: none; one thread. Nothing is allocated on the host.
#include "stress/calibrate/rules.h"

#include <string.h>

#include <unistd.h>

#include "base/defs.h"
#include "stress/child.h"

enum {
    CHILD_SECONDS = 120, // a kernel that never ends must not hold up the command
};

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
    stress_kernels_close(&p->kernels);
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

static stress_rule_result_t rule_result(const stress_rule_t *rule) {
    return (stress_rule_result_t){.name = rule->name,
                                  .text = rule->text,
                                  .is_needed = rule->is_needed,
                                  .verdict = STRESS_VERDICT_NOT_TESTED,
                                  .wanted = rule->wanted};
}

static bool has_kernels(const stress_rule_t *rule) {
    return rule >= stress_rules_of_kernels &&
           rule < stress_rules_of_kernels + stress_rules_of_kernels_count;
}

static void rule_run(const stress_calibrate_driver_t *c, const stress_rule_t *rule,
                     stress_rule_result_t *out) {
    stress_place_t place;
    *out = rule_result(rule);
    out->result = place_make(&place, c);
    if (out->result != BERM_CU_SUCCESS) {
        (void)snprintf(out->detail, sizeof out->detail, "no memory, addresses or stream for it");
    } else if (has_kernels(rule) &&
               stress_kernels_open(&place.kernels, c, out->detail, sizeof out->detail) != 0) {
        out->result = BERM_CU_SUCCESS; // of the rule's calls; `detail` says why there are none
    } else {
        out->result = rule->check(&place);
        bool is_right = out->result == rule->wanted && !place.is_wrong;
        out->verdict = is_right ? STRESS_VERDICT_OK : STRESS_VERDICT_DIFFERS;
        if (is_right && place.is_untested)
            out->verdict = STRESS_VERDICT_NOT_TESTED;
        memcpy(out->detail, place.detail, sizeof out->detail);
    }
    place_clear(&place);
}

// The names and texts of an answer are another process's.
static void rule_ask(const stress_rule_t *rule, stress_rule_result_t *out) {
    char error[sizeof out->detail] = "";
    stress_rule_result_t answer;
    *out = rule_result(rule);
    stress_child_end_t end =
        stress_child_ask(rule->name, &answer, sizeof answer, error, sizeof error);
    if (end == STRESS_CHILD_ANSWERED) {
        out->verdict = answer.verdict;
        out->result = answer.result;
        memcpy(out->detail, answer.detail, sizeof out->detail);
        return;
    }
    out->verdict = end == STRESS_CHILD_SILENT ? STRESS_VERDICT_DIFFERS : STRESS_VERDICT_NOT_TESTED;
    memcpy(out->detail, error, sizeof out->detail);
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

// The rule with that number; NULL past the last.
static const stress_rule_t *rule_at(size_t number) {
    const struct {
        const stress_rule_t *rules;
        size_t count;
    } groups[] = {
        {stress_rules_of_arguments, stress_rules_of_arguments_count},
        {stress_rules_of_memory, stress_rules_of_memory_count},
        {stress_rules_of_kernels, stress_rules_of_kernels_count},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(groups); i++) {
        if (number < groups[i].count)
            return &groups[i].rules[number];
        number -= groups[i].count;
    }
    return NULL;
}

size_t stress_calibrate_rules(const stress_calibrate_driver_t *c, stress_rule_result_t *results) {
    size_t count = 0;
    for (const stress_rule_t *rule;
         count < STRESS_CALIBRATE_RULES_MAX && (rule = rule_at(count)) != NULL; count++) {
        if (has_kernels(rule))
            rule_ask(rule, &results[count]);
        else
            rule_run(c, rule, &results[count]);
    }
    return count;
}

bool stress_calibrate_rule(const stress_calibrate_driver_t *c, const char *name,
                           stress_rule_result_t *result) {
    for (size_t i = 0; rule_at(i) != NULL; i++) {
        if (strcmp(rule_at(i)->name, name) != 0)
            continue;
        rule_run(c, rule_at(i), result);
        return true;
    }
    return false;
}

int stress_calibrate_answer(const char *question) {
    static stress_calibrate_driver_t driver;
    char error[512] = "";
    stress_rule_result_t result = {.verdict = STRESS_VERDICT_NOT_TESTED};
    (void)alarm(CHILD_SECONDS);
    if (stress_calibrate_open(&driver, error, sizeof error) != 0 ||
        stress_calibrate_back(&driver, error, sizeof error) != 0)
        (void)snprintf(result.detail, sizeof result.detail, "%.90s", error);
    else if (!stress_calibrate_rule(&driver, question, &result))
        return 2;
    return stress_child_reply(&result, sizeof result) == 0 ? 0 : 2;
}

// A rule with a check that could not be run is broken too: nothing says that it holds.
size_t stress_calibrate_broken(const stress_rule_result_t *results, size_t count) {
    size_t broken = 0;
    for (size_t i = 0; i < count; i++)
        broken += results[i].is_needed && results[i].verdict != STRESS_VERDICT_OK;
    return broken;
}

// --- aliases -------------------------------------------------------------------------------------

static const char *const alias_needs[] = {
    "access_several", "unmap_several", "unmap_between", "remap_contents", "alias_order",
    "access_many",    "alias_kernels", "map_busy",      "alias_moves",
};

static const stress_rule_result_t *result_of(const stress_rule_result_t *results, size_t count,
                                             const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(results[i].name, name) == 0)
            return &results[i];
    return NULL;
}

void stress_calibrate_alias(const stress_rule_result_t *results, size_t count,
                            stress_alias_verdict_t *alias) {
    const stress_rule_result_t *broken = NULL, *untested = NULL;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(alias_needs); i++) {
        const stress_rule_result_t *result = result_of(results, count, alias_needs[i]);
        if (result == NULL)
            continue;
        if (result->verdict == STRESS_VERDICT_DIFFERS && broken == NULL)
            broken = result;
        // Without contents nothing was seen of what it is about.
        bool is_tested = result->verdict != STRESS_VERDICT_NOT_TESTED &&
                         strstr(result->detail, "contents not checked") == NULL;
        if (!is_tested && untested == NULL)
            untested = result;
    }
    const stress_rule_result_t *why = broken != NULL ? broken : untested;
    alias->verdict = broken != NULL     ? STRESS_VERDICT_DIFFERS
                     : untested != NULL ? STRESS_VERDICT_NOT_TESTED
                                        : STRESS_VERDICT_OK;
    if (why != NULL)
        (void)snprintf(alias->why, sizeof alias->why, "%s: %s", why->name,
                       why->detail[0] != '\0' ? why->detail : "another CUresult than wanted");
    else
        (void)snprintf(alias->why, sizeof alias->why,
                       "all %zu rules it stands on hold; never with dependent launch",
                       BERM_ARRAY_LENGTH(alias_needs));
}

const char *stress_alias_name(stress_verdict_t verdict) {
    switch (verdict) {
    case STRESS_VERDICT_OK:
        return "passed";
    case STRESS_VERDICT_DIFFERS:
        return "failed";
    case STRESS_VERDICT_NOT_TESTED:
        break;
    }
    return "not run";
}
