// SPDX-License-Identifier: Apache-2.0
// What the tests of the simulated device share. Each test runs in a process of its own, so the
// device is fresh: start() initialises it and makes the first device's primary context current.
#ifndef TESTS_SIMCUDA_SIM_TEST_H
#define TESTS_SIMCUDA_SIM_TEST_H

#include <criterion/criterion.h>

#include "base/bits.h"
#include "base/rng.h"
#include "simcuda.h"
#include "simcuda/driver/entries.h"

#define MIB(n) BERM_MIB(n)
#define GIB(n) BERM_GIB(n)

#define OK(call) FAILS(call, BERM_CU_SUCCESS)
#define FAILS(call, result)                                                                        \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        cr_assert(got_ == (result), "%s: got %d, not %s", #call, got_, #result);                   \
    } while (0)
#define HAZARDS(n)                                                                                 \
    cr_assert(simcuda_hazard_count() == (n), "hazards: %llu, not %d",                              \
              (unsigned long long)simcuda_hazard_count(), (int)(n))

static const berm_cu_mem_prop_t device_prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                               .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
static const berm_cu_mem_access_t read_write = {{BERM_CU_MEM_LOCATION_DEVICE, 0},
                                                BERM_CU_MEM_ACCESS_READWRITE};

static inline void make_current(int device) {
    berm_cu_context_t context;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}

static inline void start(void) {
    OK(cuInit(0));
    make_current(0);
}

// A device of its own making; NULL costs leave the preset.
static inline void start_with(const simcuda_config_t *config) {
    cr_assert(simcuda_reset(config) == 0);
    start();
}

static inline berm_cu_deviceptr_t reserve(uint64_t bytes) {
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAddressReserve(&addr, bytes, 0, 0, 0));
    return addr;
}

static inline berm_cu_mem_handle_t create(uint64_t bytes) {
    berm_cu_mem_handle_t handle = 0;
    OK(cuMemCreate(&handle, bytes, &device_prop, 0));
    return handle;
}

// Memory of one new handle at `addr`, with access.
static inline berm_cu_mem_handle_t map_at(berm_cu_deviceptr_t addr, uint64_t bytes) {
    berm_cu_mem_handle_t handle = create(bytes);
    OK(cuMemMap(addr, bytes, 0, handle, 0));
    OK(cuMemSetAccess(addr, bytes, &read_write, 1));
    return handle;
}

static inline berm_cu_stream_t stream_new(unsigned flags) {
    berm_cu_stream_t stream = NULL;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

static inline berm_cu_event_t event_new(void) {
    berm_cu_event_t event = NULL;
    OK(cuEventCreate(&event, BERM_CU_EVENT_DEFAULT));
    return event;
}

static inline int launch(berm_cu_stream_t stream, uint64_t ns, uint64_t addr, uint64_t bytes,
                         int is_write) {
    simcuda_access_t access = {addr, bytes, is_write};
    return simcuda_launch(stream, ns, &access, 1);
}

static inline simcuda_hazard_kind_t hazard_kind(uint64_t index) {
    simcuda_hazard_t hazard = {0};
    cr_assert(simcuda_hazard_read(index, &hazard) == 0);
    cr_assert(hazard.text[0] != '\0');
    return hazard.kind;
}

#endif
