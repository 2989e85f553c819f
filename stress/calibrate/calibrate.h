// SPDX-License-Identifier: Apache-2.0
// What `berm calibrate` does, on the driver that stress_device_open has loaded: measure what driver
// calls cost the host, fit a latency file (stress/latency.h) to that, and check that the driver
// obeys the rules berm relies on. Not thread-safe; one device at a time.
#ifndef STRESS_CALIBRATE_CALIBRATE_H
#define STRESS_CALIBRATE_CALIBRATE_H

#include <stdio.h>

#include "stress/calibrate/module_abi.h"
#include "stress/device.h"

enum {
    STRESS_CALIBRATE_POINTS_MAX = 64,
    STRESS_CALIBRATE_REPEATS_MAX = 10000,
    STRESS_CALIBRATE_CALLS = 15,
    STRESS_CALIBRATE_RULES_MAX = 40,
};

// For kernels; NULL where the driver has not got them.
typedef struct stress_module_calls {
    stress_cu_module_load_data_fn load_data;
    stress_cu_module_get_function_fn get_function;
    stress_cu_module_unload_fn unload;
    stress_cu_launch_kernel_fn launch;
    stress_cu_launch_kernel_ex_fn launch_ex;
} stress_module_calls_t;

// Functions that only the checks use, which stress_driver_t has not.
typedef struct stress_calibrate_driver {
    const stress_driver_t *d;
    berm_cu_driver_get_version_fn get_version;
    berm_cu_device_get_name_fn get_name;
    berm_cu_memcpy_htod_async_fn copy_to_device;
    berm_cu_memcpy_dtoh_async_fn copy_to_host;
    berm_cu_memset_d8_async_fn fill;
    berm_cu_context_t context;
    berm_cu_mem_prop_t prop;
    berm_cu_mem_access_t access;
    char name[128];
    int version;         // as cuDriverGetVersion: 13000 for 13.0
    uint64_t unit_bytes; // the granule, and at least 2 MiB
    uint64_t granule_bytes;
    bool is_backed;   // memory has contents
    bool has_modules; // kernels are PTX; else host functions of the simulated device
    int capability_major;
    stress_module_calls_t module;
} stress_calibrate_driver_t;

// After stress_device_open. 0, or -1 with a line in `error`.
int stress_calibrate_open(stress_calibrate_driver_t *driver, char *error, size_t error_capacity);
// A simulated device is made anew with memory that has contents; nothing happens on a real one.
int stress_calibrate_back(stress_calibrate_driver_t *driver, char *error, size_t error_capacity);

// --- costs -----------------------------------------------------------------------------------

// One kind of call in one size. `mappings` and `bytes` are what it covered, 0 where neither counts.
typedef struct stress_calibrate_point {
    const char *call;     // as in latency files: "set_access"
    const char *function; // "cuMemSetAccess"
    int index;            // of the call, below STRESS_CALIBRATE_CALLS
    uint64_t mappings, bytes;
    uint64_t median_ns, p99_ns;
} stress_calibrate_point_t;

typedef struct stress_calibrate_timing {
    unsigned repeats;
    size_t count;
    stress_calibrate_point_t points[STRESS_CALIBRATE_POINTS_MAX];
    simcuda_costs_t costs; // fitted to them
} stress_calibrate_timing_t;

// `progress` may be NULL. 0, or -1 with a line in `error`; then nothing stays on the device.
int stress_calibrate_measure(const stress_calibrate_driver_t *driver, unsigned repeats,
                             void (*progress)(uint64_t done, uint64_t total),
                             stress_calibrate_timing_t *timing, char *error, size_t error_capacity);

// Fills timing->costs from its points.
void stress_calibrate_fit(stress_calibrate_timing_t *timing);
const char *stress_calibrate_call_name(int index);     // "reserve"; NULL past the last
const char *stress_calibrate_call_function(int index); // "cuMemAddressReserve"
simcuda_cost_t *stress_calibrate_cost(simcuda_costs_t *costs, int index);
// The clock that costs are measured with: the simulated device's, or the real one.
uint64_t stress_calibrate_now_ns(void);

// --- rules -----------------------------------------------------------------------------------

typedef enum stress_verdict {
    STRESS_VERDICT_OK,
    STRESS_VERDICT_DIFFERS,
    STRESS_VERDICT_NOT_TESTED,
} stress_verdict_t;

typedef struct stress_rule_result {
    const char *name; // "unmap_several"
    const char *text; // the rule in words
    bool is_needed;   // berm does not work where it is broken
    stress_verdict_t verdict;
    int wanted, result; // CUresults: what the rule says, what the driver said
    char detail[96];    // more about the verdict, or empty
} stress_rule_result_t;

const char *stress_verdict_name(stress_verdict_t verdict); // "ok", "differs", "not tested"
// Checks all rules and returns how many there are; `results` has STRESS_CALIBRATE_RULES_MAX. Rules
// with kernels may end their context, so each runs in a process of its own (stress_child_ask).
size_t stress_calibrate_rules(const stress_calibrate_driver_t *driver,
                              stress_rule_result_t *results);
// One of them, in this process. False where there is none of that name.
bool stress_calibrate_rule(const stress_calibrate_driver_t *driver, const char *name,
                           stress_rule_result_t *result);
// In a process that was started for one rule: checks it and answers. The process's exit status.
int stress_calibrate_answer(const char *question);
// Of those: needed and broken.
size_t stress_calibrate_broken(const stress_rule_result_t *results, size_t count);

// Whether remap:alias may be used on this device with this driver: OK when every rule that it
// stands on holds, DIFFERS when one is broken, NOT_TESTED when one could not be tested.
typedef struct stress_alias_verdict {
    stress_verdict_t verdict;
    char why[200];
} stress_alias_verdict_t;

void stress_calibrate_alias(const stress_rule_result_t *results, size_t count,
                            stress_alias_verdict_t *alias);
const char *stress_alias_name(stress_verdict_t verdict); // "passed", "failed", "not run"

// The latency file: what it is and the verdict on aliases in comments, then every cost.
void stress_calibrate_write(FILE *file, const stress_calibrate_driver_t *driver,
                            stress_calibrate_timing_t *timing, const stress_alias_verdict_t *alias);

#endif
