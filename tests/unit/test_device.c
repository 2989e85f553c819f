// SPDX-License-Identifier: Apache-2.0
// Opening a device: names, what is refused, and that calls are counted by kind.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/defs.h"
#include "stress/device.h"
#include "stress/device_calls.h"

static char error[512];

static int open_named(const char *name, uint64_t capacity_bytes, const char *latency) {
    const stress_device_options_t options = {
        .name = name, .capacity_bytes = capacity_bytes, .latency = latency};
    error[0] = '\0';
    return stress_device_open(&options, error, sizeof error);
}

Test(device, refuses_bad_names) {
    static const char *const bad[] = {
        "", "simulated", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999999999999"};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        cr_assert(open_named(bad[i], 0, NULL) == -1, "%s", bad[i]);
        cr_assert(strstr(error, "sim, cuda or cuda:N") != NULL, "%s", error);
    }
    cr_assert(open_named("cuda", 1, NULL) == -1);
    cr_assert(strstr(error, "capacity") != NULL);
}

Test(device, refuses_bad_latencies) {
    cr_assert(open_named("sim", 0, "/nonexistent/latency") == -1);
    cr_assert(strstr(error, "latency") != NULL);
}

Test(device, says_where_the_library_is_missing) {
    cr_assert(setenv("BERM_LIBCUDA_SIM", "/nonexistent/libcuda.so.1", 1) == 0);
    cr_assert(open_named("sim", 0, NULL) == -1);
    cr_assert(strstr(error, "BERM_LIBCUDA_SIM") != NULL);
}

Test(device, has_the_capacity_asked_for) {
    cr_assert(open_named("sim", BERM_MIB(101), NULL) == 0, "%s", error);
    size_t free_bytes = 0, total_bytes = 0;
    cr_assert(stress_driver()->mem_get_info(&free_bytes, &total_bytes) == BERM_CU_SUCCESS);
    cr_assert(total_bytes == BERM_MIB(100) && free_bytes == BERM_MIB(100), "whole granules");
    cr_assert(stress_device_reset(BERM_MIB(64), error, sizeof error) == 0);
    cr_assert(stress_driver()->mem_get_info(&free_bytes, &total_bytes) == BERM_CU_SUCCESS);
    cr_assert(total_bytes == BERM_MIB(64));
    cr_assert(stress_device_reset(1, error, sizeof error) == -1);
    stress_device_close();
}

static uint64_t counted(const stress_calls_t *before, berm_drv_kind_t kind) {
    stress_calls_t now = stress_device_calls();
    return stress_calls_minus(&now, before).of[kind];
}

static void use_everything(const stress_driver_t *d) {
    berm_cu_deviceptr_t addr = 0;
    berm_cu_event_t event = NULL;
    berm_cu_mem_handle_t handle = 0;
    const berm_cu_mem_prop_t prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                     .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
    const berm_cu_mem_access_t access = {prop.location, BERM_CU_MEM_ACCESS_READWRITE};
    cr_assert(d->mem_alloc(&addr, 512) == 0 && d->mem_free(addr) == 0);
    cr_assert(d->address_reserve(&addr, BERM_MIB(2), 0, 0, 0) == 0);
    cr_assert(d->mem_create(&handle, BERM_MIB(2), &prop, 0) == 0);
    cr_assert(d->mem_map(addr, BERM_MIB(2), 0, handle, 0) == 0);
    cr_assert(d->set_access(addr, BERM_MIB(2), &access, 1) == 0);
    cr_assert(d->mem_unmap(addr, BERM_MIB(2)) == 0 && d->mem_release(handle) == 0);
    cr_assert(d->address_free(addr, BERM_MIB(2)) == 0);
    cr_assert(d->event_create(&event, BERM_CU_EVENT_DISABLE_TIMING) == 0);
    cr_assert(d->event_record(event, NULL) == 0 && d->event_synchronize(event) == 0);
    cr_assert(d->event_query(event) == 0 && d->stream_wait_event(NULL, event, 0) == 0);
    cr_assert(d->stream_synchronize(NULL) == 0);
    size_t free_bytes = 0, total_bytes = 0;
    cr_assert(d->mem_get_info(&free_bytes, &total_bytes) == 0);
    cr_assert(d->event_destroy(event) == 0);
}

Test(device, counts_calls_by_kind) {
    cr_assert(open_named("sim", 0, NULL) == 0, "%s", error);
    const stress_calls_t before = stress_device_calls();
    use_everything(stress_driver());
    for (int kind = 0; kind < BERM_DRV_OTHER; kind++)
        cr_assert(counted(&before, (berm_drv_kind_t)kind) == (kind == BERM_DRV_SYNCHRONIZE ? 2 : 1),
                  "%s", stress_call_name((berm_drv_kind_t)kind));
    cr_assert(counted(&before, BERM_DRV_OTHER) == 3);
    stress_calls_t all = stress_device_calls();
    all = stress_calls_minus(&all, &before);
    cr_assert(stress_calls_memory(&all) == 9 && stress_calls_all(&all) == 17);
    cr_assert(stress_device_driver_ns() > 0);
    stress_device_close();
}

// What a real device would be counted with.
Test(device, wrappers_count_the_same) {
    cr_assert(open_named("sim", 0, NULL) == 0, "%s", error);
    stress_driver_t wrapped;
    stress_driver_wrap(stress_driver_raw(), &wrapped);
    use_everything(&wrapped);
    stress_calls_t all = stress_calls_of_wrappers();
    cr_assert(stress_calls_memory(&all) == 9);
    cr_assert(all.of[BERM_DRV_SYNCHRONIZE] == 2 && all.of[BERM_DRV_EVENT_QUERY] == 1);
    cr_assert(all.of[BERM_DRV_OTHER] == 1, "making and ending events is not counted");
    cr_assert(stress_driver_ns_of_wrappers() > 0);
    stress_device_close();
}
