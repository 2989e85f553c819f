// SPDX-License-Identifier: Apache-2.0
// What calls cost: base + per mapping + per MiB, for each preset and each call.
#include <string.h>

#include "sim_test.h"

static const char *const preset_names[] = {"fast", "typical", "slow"};

static uint64_t cost(const simcuda_cost_t *c, uint64_t mappings, uint64_t bytes) {
    return c->base_ns + c->per_mapping_ns * mappings + c->ns_per_mib * bytes / MIB(1);
}

static uint64_t clock_before;

static void mark_time(void) {
    clock_before = simcuda_now_ns();
}

#define TOOK(ns)                                                                                   \
    do {                                                                                           \
        uint64_t took_ = simcuda_now_ns() - clock_before;                                          \
        cr_assert(took_ == (ns), "took %llu, not %llu ns", (unsigned long long)took_,              \
                  (unsigned long long)(ns));                                                       \
        mark_time();                                                                               \
    } while (0)

static simcuda_config_t config_of(const char *preset) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    cr_assert(simcuda_costs_preset(preset, &config.costs) == 0);
    return config;
}

static void check_vmm_calls(const simcuda_costs_t *costs) {
    mark_time();
    berm_cu_deviceptr_t addr = reserve(MIB(64));
    TOOK(cost(&costs->reserve, 0, MIB(64)));
    berm_cu_mem_handle_t handles[3];
    for (int i = 0; i < 3; i++) {
        OK(cuMemCreate(&handles[i], MIB(4), &device_prop, 0));
        TOOK(cost(&costs->create, 0, MIB(4)));
        OK(cuMemMap(addr + (uint64_t)i * MIB(4), MIB(4), 0, handles[i], 0));
        TOOK(cost(&costs->map, 1, MIB(4)));
    }
    OK(cuMemSetAccess(addr, MIB(12), &read_write, 1));
    TOOK(cost(&costs->set_access, 3, MIB(12)));
    OK(cuMemUnmap(addr, MIB(8)));
    TOOK(cost(&costs->unmap, 2, MIB(8)));
    OK(cuMemUnmap(addr + MIB(8), MIB(4)));
    TOOK(cost(&costs->unmap, 1, MIB(4)));
    for (int i = 0; i < 3; i++) {
        OK(cuMemRelease(handles[i]));
        TOOK(cost(&costs->release, 0, MIB(4)));
    }
    OK(cuMemAddressFree(addr, MIB(64)));
    TOOK(cost(&costs->address_free, 0, MIB(64)));
}

static void check_other_calls(const simcuda_costs_t *costs) {
    mark_time();
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, MIB(32)));
    TOOK(cost(&costs->malloc_, 0, MIB(32)));
    OK(cuMemFree_v2(addr));
    TOOK(cost(&costs->free_, 0, MIB(32)));
    size_t free_bytes, total_bytes;
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    TOOK(costs->mem_info.base_ns);
    berm_cu_event_t event = event_new();
    TOOK(costs->other.base_ns);
    OK(cuEventRecord(event, NULL));
    TOOK(costs->event_record.base_ns);
    OK(cuEventQuery(event));
    TOOK(costs->event_query.base_ns);
    OK(cuStreamWaitEvent(NULL, event, 0));
    TOOK(costs->stream_wait.base_ns);
    OK(cuStreamQuery(NULL));
    TOOK(costs->event_query.base_ns);
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(NULL));
    OK(cuCtxSynchronize());
    TOOK(3 * costs->synchronize.base_ns);
}

Test(costs, every_call_in_every_preset) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(preset_names); i++) {
        simcuda_config_t config = config_of(preset_names[i]);
        start_with(&config);
        check_vmm_calls(&config.costs);
        check_other_calls(&config.costs);
        cr_assert(simcuda_wait_ns() == 0);
        cr_assert(simcuda_driver_ns() == simcuda_now_ns());
    }
}

// The published figures for one granule of 2 MiB (docs/simcuda.md).
Test(costs, presets_hold_the_published_figures) {
    static const struct {
        const char *name;
        uint64_t reserve, create, map, access, unmap, release, malloc_;
    } figures[] = {{"fast", 2000, 29000, 2000, 38000, 34000, 23000, 35000},
                   {"typical", 19000, 193000, 1500, 36000, 25600, 23000, 35000},
                   {"slow", 19000, 400000, 10000, 160000, 391000, 23000, 59000}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(figures); i++) {
        simcuda_costs_t costs;
        cr_assert(simcuda_costs_preset(figures[i].name, &costs) == 0);
        cr_assert(cost(&costs.reserve, 0, MIB(2)) == figures[i].reserve);
        cr_assert(cost(&costs.create, 0, MIB(2)) == figures[i].create);
        cr_assert(cost(&costs.map, 1, MIB(2)) == figures[i].map);
        cr_assert(cost(&costs.set_access, 1, MIB(2)) == figures[i].access);
        cr_assert(cost(&costs.unmap, 1, MIB(2)) == figures[i].unmap);
        cr_assert(cost(&costs.release, 0, MIB(2)) == figures[i].release);
        cr_assert(cost(&costs.malloc_, 0, MIB(2)) == figures[i].malloc_);
        cr_assert(costs.event_record.base_ns == 500 && costs.event_query.base_ns == 400);
        cr_assert(costs.stream_wait.base_ns == 3000 && costs.mem_info.base_ns == 10000);
    }
}

Test(costs, an_unknown_preset_is_refused) {
    simcuda_costs_t costs = {.map = {7, 0, 0}};
    cr_assert(simcuda_costs_preset("quick", &costs) == -1);
    cr_assert(simcuda_costs_preset(NULL, &costs) == -1);
    cr_assert(costs.map.base_ns == 7);
}

Test(costs, a_refused_call_costs_nothing) {
    start();
    mark_time();
    berm_cu_mem_handle_t handle;
    FAILS(cuMemCreate(&handle, 1, &device_prop, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(MIB(2), MIB(2)), BERM_CU_INVALID_VALUE);
    TOOK(0);
}

Test(costs, bytes_cost_in_proportion) {
    simcuda_config_t config = config_of("fast");
    config.costs = (simcuda_costs_t){.create = {5, 0, 1000}, .map = {0, 7, 3}};
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(GIB(1));
    mark_time();
    berm_cu_mem_handle_t handle = create(GIB(1));
    TOOK(5 + 1024 * 1000);
    OK(cuMemMap(addr, GIB(1), 0, handle, 0));
    TOOK(7 + 1024 * 3);
}

Test(costs, the_clock_stops_at_the_end_of_time) {
    simcuda_config_t config = config_of("fast");
    config.costs.map.base_ns = UINT64_MAX;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    (void)map_at(addr + MIB(2), MIB(2));
    OK(launch(NULL, UINT64_MAX, addr, 8, 0));
    OK(cuCtxSynchronize());
    simcuda_advance_ns(UINT64_MAX);
    cr_assert(simcuda_now_ns() == UINT64_C(1) << 63);
}
