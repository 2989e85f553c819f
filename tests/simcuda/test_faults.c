// SPDX-License-Identifier: Apache-2.0
// Injected failures: by number, by chance, by name; a failed call has no other effect.
#include "sim_test.h"

Test(faults, the_nth_call_of_one_function) {
    start();
    berm_cu_mem_handle_t handle = 0;
    OK(simcuda_fault_nth("cuMemCreate", 2, 2, BERM_CU_OUT_OF_MEMORY));
    OK(cuMemCreate(&handle, MIB(2), &device_prop, 0));
    (void)reserve(MIB(2)); // another function does not count
    simcuda_ledger_t before, after;
    uint64_t now = simcuda_now_ns(), calls = simcuda_calls("cuMemCreate");
    simcuda_ledger_read(0, &before);
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
    simcuda_ledger_read(0, &after);
    cr_assert(after.handles == before.handles && after.used_bytes == before.used_bytes);
    cr_assert(simcuda_now_ns() == now);
    cr_assert(simcuda_calls("cuMemCreate") == calls + 2);
    cr_assert(simcuda_faults_fired() == 2);
    OK(cuMemCreate(&handle, MIB(2), &device_prop, 0));
}

Test(faults, names_with_and_without_version) {
    start();
    berm_cu_deviceptr_t addr;
    OK(simcuda_fault_nth("cuMemAlloc", 1, 1, BERM_CU_UNKNOWN));
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_UNKNOWN);
    OK(simcuda_fault_nth("cuMemAlloc_v2", 1, 1, BERM_CU_UNKNOWN));
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_UNKNOWN);
    OK(cuMemAlloc_v2(&addr, 8));
    cr_assert(simcuda_calls("cuMemAlloc") == 3 && simcuda_calls("cuMemAlloc_v2") == 3);
}

Test(faults, any_function_and_for_ever) {
    start();
    size_t a, b;
    OK(simcuda_fault_nth(NULL, 2, 0, BERM_CU_TIMEOUT));
    OK(cuMemGetInfo_v2(&a, &b));
    FAILS(cuCtxSynchronize(), BERM_CU_TIMEOUT);
    FAILS(cuMemGetInfo_v2(&a, &b), BERM_CU_TIMEOUT);
    FAILS(cuMemFree_v2(1), BERM_CU_TIMEOUT);
    HAZARDS(0);
    simcuda_faults_clear();
    OK(cuMemGetInfo_v2(&a, &b));
    cr_assert(simcuda_faults_fired() == 3);
}

Test(faults, rules_add_up) {
    start();
    size_t a, b;
    OK(simcuda_fault_nth("cuMemGetInfo", 1, 1, BERM_CU_UNKNOWN));
    OK(simcuda_fault_nth("cuMemGetInfo", 3, 1, BERM_CU_TIMEOUT));
    FAILS(cuMemGetInfo_v2(&a, &b), BERM_CU_UNKNOWN);
    OK(cuMemGetInfo_v2(&a, &b));
    FAILS(cuMemGetInfo_v2(&a, &b), BERM_CU_TIMEOUT);
}

static int count_random(uint64_t seed) {
    int failed = 0;
    size_t a, b;
    OK(simcuda_reset(NULL));
    start();
    OK(simcuda_fault_random("cuMemGetInfo", 100000, seed, BERM_CU_UNKNOWN));
    for (int i = 0; i < 2000; i++)
        failed += cuMemGetInfo_v2(&a, &b) != BERM_CU_SUCCESS;
    return failed;
}

Test(faults, by_chance_and_repeatable) {
    int failed = count_random(1);
    cr_assert(failed > 140 && failed < 260, "%d of 2000", failed);
    cr_assert(count_random(1) == failed);
}

Test(faults, impossible_rules_are_refused) {
    start();
    FAILS(simcuda_fault_nth("cuMemWish", 1, 1, BERM_CU_UNKNOWN), -1);
    FAILS(simcuda_fault_nth("cuMemCreate", 0, 1, BERM_CU_UNKNOWN), -1);
    FAILS(simcuda_fault_nth("cuMemCreate", 1, 1, BERM_CU_SUCCESS), -1);
    FAILS(simcuda_fault_random("cuMemCreate", 0, 1, BERM_CU_UNKNOWN), -1);
    FAILS(simcuda_fault_random("cuMemCreate", 1000001, 1, BERM_CU_UNKNOWN), -1);
    (void)create(MIB(2));
}

// Fails each call of a scenario in turn: whatever fails, undoing what succeeded empties the device.
static int scenario(void) {
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_handle_t handle = 0;
    int is_mapped = 0;
    int result = cuMemAddressReserve(&addr, MIB(4), 0, 0, 0);
    if (result == BERM_CU_SUCCESS)
        result = cuMemCreate(&handle, MIB(4), &device_prop, 0);
    if (result == BERM_CU_SUCCESS) {
        result = cuMemMap(addr, MIB(4), 0, handle, 0);
        is_mapped = result == BERM_CU_SUCCESS;
    }
    if (result == BERM_CU_SUCCESS)
        result = cuMemSetAccess(addr, MIB(4), &read_write, 1);
    simcuda_faults_clear();
    if (is_mapped)
        OK(cuMemUnmap(addr, MIB(4)));
    if (handle != 0)
        OK(cuMemRelease(handle));
    if (addr != 0)
        OK(cuMemAddressFree(addr, MIB(4)));
    return result;
}

Test(faults, every_call_of_a_scenario) {
    start();
    uint64_t nth = 1;
    simcuda_ledger_t ledger;
    for (;; nth++) {
        OK(simcuda_fault_nth(NULL, nth, 1, BERM_CU_OPERATING_SYSTEM));
        int result = scenario();
        simcuda_ledger_read(-1, &ledger);
        cr_assert(ledger.used_bytes == 0 && ledger.mappings == 0 && ledger.reservations == 0);
        if (result == BERM_CU_SUCCESS)
            break;
        cr_assert(result == BERM_CU_OPERATING_SYSTEM);
    }
    cr_assert(nth == 5);
}

Test(faults, a_lost_device) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 2;
    start_with(&config);
    berm_cu_deviceptr_t addr;
    int count = 0;
    simcuda_device_lose(0);
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_DEVICE_UNAVAILABLE);
    FAILS(cuCtxSynchronize(), BERM_CU_DEVICE_UNAVAILABLE);
    FAILS(launch(NULL, 1, 0, 0, 0), BERM_CU_DEVICE_UNAVAILABLE);
    OK(cuDeviceGetCount(&count));
    OK(cuCtxSetCurrent(NULL));
    berm_cu_context_t context;
    FAILS(cuDevicePrimaryCtxRetain(&context, 0), BERM_CU_DEVICE_UNAVAILABLE);
    OK(simcuda_reset(NULL));
    start();
    OK(cuMemAlloc_v2(&addr, 8));
}
