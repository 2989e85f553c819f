// SPDX-License-Identifier: Apache-2.0
// Several devices: peers, access from another device, copies between them, and a device reset.
#include "sim_test.h"

static berm_cu_context_t contexts[4];

static void start_devices(int is_backed) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 4;
    config.is_backed = is_backed;
    OK(simcuda_reset(&config));
    OK(cuInit(0));
    for (int i = 0; i < 4; i++)
        OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    OK(cuCtxSetCurrent(contexts[0]));
}

static berm_cu_deviceptr_t alloc_on(int device, size_t bytes) {
    berm_cu_deviceptr_t addr = 0;
    OK(cuCtxSetCurrent(contexts[device]));
    OK(cuMemAlloc_v2(&addr, bytes));
    return addr;
}

// What a kernel on `device` meets at `addr`.
static simcuda_hazard_kind_t use_on(int device, berm_cu_deviceptr_t addr, int is_write) {
    simcuda_hazard_t hazard = {.kind = SIMCUDA_HAZARD_NONE};
    simcuda_hazards_clear();
    OK(cuCtxSetCurrent(contexts[device]));
    berm_cu_stream_t stream = stream_new(1);
    OK(launch(stream, 1000, addr, 8, is_write));
    (void)simcuda_hazard_read(0, &hazard);
    return hazard.kind;
}

Test(peers, plain_memory_needs_the_peer_enabled) {
    start_devices(0);
    int can;
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_assert(can == 1);
    OK(cuDeviceGetP2PAttribute(&can, BERM_CU_P2P_ACCESS_SUPPORTED, 0, 1));
    cr_assert(can == 1);
    FAILS(cuDeviceGetP2PAttribute(&can, BERM_CU_P2P_ACCESS_SUPPORTED, 0, 0),
          BERM_CU_INVALID_DEVICE);
    berm_cu_deviceptr_t addr = alloc_on(0, MIB(2));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuCtxEnablePeerAccess(contexts[0], 0));
    FAILS(cuCtxEnablePeerAccess(contexts[0], 0), BERM_CU_PEER_ACCESS_ALREADY_ENABLED);
    cr_assert(use_on(1, addr, 1) == SIMCUDA_HAZARD_NONE);
    OK(cuCtxSynchronize());
    cr_assert(use_on(1, alloc_on(0, 100), 0) == SIMCUDA_HAZARD_NONE, "later memory too");
    OK(cuCtxSynchronize());
    OK(cuCtxDisablePeerAccess(contexts[0]));
    FAILS(cuCtxDisablePeerAccess(contexts[0]), BERM_CU_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxSetCurrent(contexts[2]));
    OK(cuCtxEnablePeerAccess(contexts[3], 0)); // another one
    cr_assert(use_on(2, addr, 0) == SIMCUDA_HAZARD_USE_NO_ACCESS);
    cr_assert(use_on(1, addr, 0) == SIMCUDA_HAZARD_USE_NO_ACCESS);
}

Test(peers, a_free_waits_for_its_own_device_only) {
    start_devices(0);
    berm_cu_deviceptr_t addr = alloc_on(0, MIB(2));
    OK(launch(NULL, 1000000, addr, 8, 1));
    OK(cuMemFree_v2(addr));
    HAZARDS(0);
    addr = alloc_on(0, MIB(2));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuCtxEnablePeerAccess(contexts[0], 0));
    OK(launch(NULL, 100000000, addr, 8, 1));
    OK(cuMemFree_v2(addr));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
}

Test(peers, misuse) {
    start_devices(0);
    berm_cu_context_t second;
    FAILS(cuCtxEnablePeerAccess(contexts[1], 1), BERM_CU_INVALID_VALUE);
    FAILS(cuCtxEnablePeerAccess(contexts[0], 0), BERM_CU_INVALID_CONTEXT);
    FAILS(cuCtxEnablePeerAccess(NULL, 0), BERM_CU_INVALID_CONTEXT);
    FAILS(cuCtxDisablePeerAccess(NULL), BERM_CU_INVALID_CONTEXT);
    OK(cuCtxCreate_v2(&second, 0, 0));
    FAILS(cuCtxEnablePeerAccess(contexts[0], 0), BERM_CU_PEER_ACCESS_UNSUPPORTED);
    int result = BERM_CU_SUCCESS, enabled = 0;
    for (; result == BERM_CU_SUCCESS && enabled < 100; enabled += result == BERM_CU_SUCCESS) {
        berm_cu_context_t more;
        OK(cuCtxCreate_v2(&more, 0, 1));
        OK(cuCtxSetCurrent(second));
        result = cuCtxEnablePeerAccess(more, 0);
    }
    cr_assert(result == BERM_CU_TOO_MANY_PEERS && enabled == SIMCUDA_DEVICE_MAX);
}

Test(peers, vmm_memory_goes_by_its_own_access) {
    start_devices(0);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuCtxEnablePeerAccess(contexts[0], 0));
    OK(cuCtxSetCurrent(contexts[2]));
    berm_cu_mem_access_t access = {{BERM_CU_MEM_LOCATION_DEVICE, 2}, BERM_CU_MEM_ACCESS_READ};
    OK(cuMemSetAccess(addr, MIB(2), &access, 1));
    cr_assert(use_on(2, addr, 0) == SIMCUDA_HAZARD_NONE);
    OK(cuCtxSynchronize());
    cr_assert(use_on(2, addr, 1) == SIMCUDA_HAZARD_USE_NO_ACCESS);
    cr_assert(use_on(1, addr, 0) == SIMCUDA_HAZARD_USE_NO_ACCESS, "peers do not matter");
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuCtxSynchronize()); // the device that has the memory is well
}

Test(peers, copies_need_no_access) {
    start_devices(1);
    berm_cu_deviceptr_t from = alloc_on(1, MIB(1)), to = alloc_on(2, MIB(1));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuMemsetD8_v2(from, 6, MIB(1)));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(contexts[0]));
    berm_cu_stream_t stream = stream_new(1);
    OK(cuMemcpyPeerAsync(to, contexts[2], from, contexts[1], 1000, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert(*(volatile unsigned char *)(uintptr_t)(to + 999) == 6);
    OK(cuMemcpyPeer(to + 1000, contexts[2], from, contexts[1], 1000));
    cr_assert(*(volatile unsigned char *)(uintptr_t)(to + 1999) == 6);
    OK(cuMemcpyDtoDAsync_v2(to + 2000, from, 1000, stream));
    OK(cuMemcpyPeerAsync(0, contexts[2], 0, contexts[1], 0, stream));
    FAILS(cuMemcpyPeerAsync(to, contexts[2], 0, contexts[1], 1, stream), BERM_CU_INVALID_VALUE);
    FAILS(cuMemcpyPeerAsync(to, NULL, from, contexts[1], 1, stream), BERM_CU_INVALID_CONTEXT);
    OK(cuStreamSynchronize(stream));
    HAZARDS(0);
    OK(cuMemcpyPeerAsync(to, contexts[2], to + MIB(1), contexts[2], 1, stream)); // past its end
    HAZARDS(1);
}

Test(reset, takes_what_the_context_owns_and_leaves_the_handles) {
    start_devices(0);
    berm_cu_deviceptr_t addr = reserve(MIB(2)), plain = alloc_on(0, MIB(2)), other, pooled;
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t event = event_new();
    simcuda_ledger_t ledger;
    OK(launch(stream, 1000, plain, 8, 1));
    OK(launch(stream, 1000, addr, 8, 1));
    OK(cuMemAllocAsync(&pooled, 100, stream));
    OK(cuDevicePrimaryCtxReset_v2(0));
    FAILS(cuCtxSynchronize(), BERM_CU_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    OK(cuCtxSetCurrent(contexts[0]));
    FAILS(cuStreamQuery(stream), BERM_CU_INVALID_HANDLE);
    FAILS(cuEventQuery(event), BERM_CU_INVALID_HANDLE);
    FAILS(cuMemFree_v2(plain), BERM_CU_INVALID_VALUE);
    simcuda_hazards_clear();
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.streams == 0 && ledger.events == 0 && ledger.handles == 1);
    cr_assert(ledger.mappings == 1 && ledger.allocations == 1 && ledger.pool_bytes == MIB(32));
    OK(launch(NULL, 1000, addr, 8, 1)); // mapped still
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemRelease(handle));
    HAZARDS(0);
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuMemAlloc_v2(&other, 8)); // other devices never noticed
}

Test(reset, ends_a_sticky_error) {
    start_devices(0);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    OK(launch(NULL, 1000, addr, 8, 1));
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuMemAlloc_v2(&addr, 8));
}

Test(lost, one_device_of_several) {
    start_devices(1);
    berm_cu_deviceptr_t addr = alloc_on(1, 100), more;
    simcuda_device_lose(1);
    FAILS(cuMemAlloc_v2(&more, 8), BERM_CU_DEVICE_UNAVAILABLE);
    FAILS(cuMemFree_v2(addr), BERM_CU_DEVICE_UNAVAILABLE);
    FAILS(launch(NULL, 1, addr, 8, 1), BERM_CU_DEVICE_UNAVAILABLE);
    OK(cuCtxSetCurrent(contexts[2]));
    OK(cuMemAlloc_v2(&more, 8));
}
