// SPDX-License-Identifier: Apache-2.0
// stress/calibrate/timing.c and the fit of costs.c: noise never gives negative costs, failures
// leave nothing on the device.
#include <criterion/criterion.h>
#include <string.h>

#include "stress/calibrate/calibrate.h"

enum {
    SET_ACCESS = 5, // as in costs.c
};

#define MIB (UINT64_C(1) << 20)

static stress_calibrate_timing_t timing;

static void point(uint64_t mappings, uint64_t mib, uint64_t ns) {
    timing.points[timing.count++] = (stress_calibrate_point_t){
        .index = SET_ACCESS, .mappings = mappings, .bytes = mib * MIB, .median_ns = ns};
}

static simcuda_cost_t fit(void) {
    stress_calibrate_fit(&timing);
    return *stress_calibrate_cost(&timing.costs, SET_ACCESS);
}

Test(timing, fit_tells_calls_mappings_and_bytes_apart) {
    cr_assert(strcmp(stress_calibrate_call_name(SET_ACCESS), "set_access") == 0);
    point(256, 512, 1000 + 256 * 30 + 512 * 7);
    point(1, 32, 1000 + 30 + 32 * 7);
    point(1, 2, 1000 + 30 + 2 * 7);
    point(16, 32, 9); // between the ends: not looked at
    simcuda_cost_t cost = fit();
    cr_assert(cost.base_ns == 1000 && cost.per_mapping_ns == 30 && cost.ns_per_mib == 7);
}

Test(timing, fit_never_goes_below_zero) {
    point(1, 2, 5000);
    point(1, 32, 4000);
    point(256, 512, 3000);
    simcuda_cost_t cost = fit();
    cr_assert(cost.base_ns == 5000 && cost.per_mapping_ns == 0 && cost.ns_per_mib == 0);
    timing.count = 0;
    point(1, 2, 10);
    point(1, 32, 10);
    point(256, 512, 25600);
    cost = fit();
    cr_assert(cost.base_ns == 0 && cost.per_mapping_ns == 100);
    timing.count = 0;
    cost = fit();
    cr_assert(cost.base_ns == 0 && cost.per_mapping_ns == 0 && cost.ns_per_mib == 0);
}

static unsigned calls_left;

static berm_cu_result_t access_fails_later(berm_cu_deviceptr_t addr, size_t bytes,
                                           const berm_cu_mem_access_t *access,
                                           size_t access_count) {
    if (calls_left == 0)
        return BERM_CU_NOT_SUPPORTED;
    calls_left--;
    return stress_driver_raw()->set_access(addr, bytes, access, access_count);
}

Test(timing, a_failing_call_is_named_and_nothing_stays) {
    char error[256] = "";
    const stress_device_options_t options = {.name = "sim"};
    stress_calibrate_driver_t driver;
    cr_assert(stress_device_open(&options, error, sizeof error) == 0, "%s", error);
    cr_assert(stress_calibrate_open(&driver, error, sizeof error) == 0, "%s", error);
    stress_driver_t changed = *driver.d;
    changed.set_access = access_fails_later;
    driver.d = &changed;
    for (unsigned n = 0; n < 6; n++) {
        calls_left = n;
        cr_assert(stress_calibrate_measure(&driver, 1, NULL, &timing, error, sizeof error) == -1);
        cr_assert(strstr(error, "cuMemSetAccess failed with CUresult 801") != NULL, "%s", error);
        simcuda_ledger_t ledger;
        stress_simcuda()->ledger_read(-1, &ledger);
        cr_assert(ledger.reservations == 0 && ledger.handles == 0 && ledger.mappings == 0);
        cr_assert(ledger.streams == 0 && ledger.events == 0);
    }
    stress_device_close();
}
