// SPDX-License-Identifier: Apache-2.0
// Between the rules and what runs them: a fresh place on the device for each rule.
#ifndef STRESS_CALIBRATE_RULES_H
#define STRESS_CALIBRATE_RULES_H

#include "stress/calibrate/kernels.h"

enum {
    STRESS_PLACE_UNITS = 8,    // reserved addresses
    STRESS_PLACE_MAPPINGS = 8, // made by one rule
};

typedef enum stress_place_handle {
    STRESS_PLACE_A,    // one unit
    STRESS_PLACE_B,    // one unit
    STRESS_PLACE_WIDE, // two units
    STRESS_PLACE_HANDLES,
} stress_place_handle_t;

typedef struct stress_place {
    const stress_calibrate_driver_t *c;
    const stress_driver_t *d;
    uint64_t unit_bytes;
    berm_cu_deviceptr_t addr; // of STRESS_PLACE_UNITS units
    berm_cu_mem_handle_t handles[STRESS_PLACE_HANDLES];
    bool is_made[STRESS_PLACE_HANDLES];
    berm_cu_stream_t stream;
    struct {
        uint64_t addr, bytes;
    } mappings[STRESS_PLACE_MAPPINGS];
    size_t mapping_count;
    stress_kernels_t kernels; // of rules with kernels
    bool is_wrong;            // the calls' results were right, what they did was not
    bool is_untested;         // it turned out that the rule cannot be tested here
    char detail[96];          // what, or empty
} stress_place_t;

// What rules.c checks, in the order of the output: the first refuse, the others work.
typedef struct stress_rule {
    const char *name, *text;
    bool is_needed;
    int wanted;
    int (*check)(stress_place_t *place);
} stress_rule_t;

extern const stress_rule_t stress_rules_of_arguments[], stress_rules_of_memory[],
    stress_rules_of_kernels[];
extern const size_t stress_rules_of_arguments_count, stress_rules_of_memory_count,
    stress_rules_of_kernels_count;

// Runs `call` unless an earlier one has failed.
#define STRESS_THEN(result, call)                                                                  \
    do {                                                                                           \
        if ((result) == BERM_CU_SUCCESS)                                                           \
            (result) = (call);                                                                     \
    } while (0)

// The address of a unit.
uint64_t stress_place_at(const stress_place_t *place, unsigned unit);
// Maps all of a handle at a unit, which every rule expects to succeed; what is mapped is unmapped
// after the rule. The CUresult.
int stress_place_map(stress_place_t *place, unsigned unit, stress_place_handle_t handle);
// Gives access to units [unit, unit + count).
int stress_place_access(stress_place_t *place, unsigned unit, unsigned count);

#endif
