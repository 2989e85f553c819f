// SPDX-License-Identifier: Apache-2.0
// Every row of the misuse table: what is done wrong, and the result it must have.
#include <string.h>
#include <unistd.h>

#include "sim_test.h"

#define ODD (MIB(2) + 4096)

Test(misuse, create_not_a_granule_multiple_or_flags_or_zero) {
    start();
    berm_cu_mem_handle_t handle = 0;
    FAILS(cuMemCreate(&handle, ODD, &device_prop, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemCreate(&handle, 0, &device_prop, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemCreate(NULL, MIB(2), &device_prop, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemCreate(&handle, MIB(2), NULL, 0), BERM_CU_INVALID_VALUE);
    HAZARDS(0);
}

Test(misuse, create_with_impossible_properties) {
    start();
    berm_cu_mem_handle_t handle = 0;
    berm_cu_mem_prop_t prop = device_prop;
    prop.type = 0;
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_INVALID_VALUE);
    prop = device_prop;
    prop.location.id = 5;
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_INVALID_DEVICE);
    prop = device_prop;
    prop.location.type = BERM_CU_MEM_LOCATION_HOST;
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_INVALID_VALUE);
    prop = device_prop;
    prop.requested_handle_types = 64;
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_INVALID_VALUE);
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_WIN32;
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_NOT_SUPPORTED);
}

Test(misuse, reserve_not_a_granule_multiple_or_flags_or_zero) {
    start();
    berm_cu_deviceptr_t addr = 0;
    FAILS(cuMemAddressReserve(&addr, ODD, 0, 0, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressReserve(&addr, 0, 0, 0, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressReserve(&addr, MIB(2), 0, 0, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressReserve(&addr, MIB(2), MIB(3), 0, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressReserve(NULL, MIB(2), 0, 0, 0), BERM_CU_INVALID_VALUE);
}

Test(misuse, reserve_aligns_and_ignores_hints) {
    start();
    berm_cu_deviceptr_t addr = 0;
    (void)reserve(MIB(2));
    OK(cuMemAddressReserve(&addr, MIB(2), GIB(1), 0x1234, 0));
    cr_assert(addr % GIB(1) == 0);
    cr_assert(addr > UINT64_C(0x7fffffffffff), "no host address");
}

Test(misuse, map_not_granular_flags_offset_zero) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    berm_cu_mem_handle_t handle = create(MIB(4));
    FAILS(cuMemMap(addr + 4096, MIB(2), 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, ODD, 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, 0, 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, MIB(2), 0, handle, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, MIB(2), MIB(2), handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(UINT64_MAX - MIB(2) + 1, MIB(2), 0, handle, 0), BERM_CU_INVALID_VALUE);
}

Test(misuse, map_outside_over_or_longer) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    berm_cu_mem_handle_t handle = create(MIB(4));
    FAILS(cuMemMap(MIB(64), MIB(2), 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr + MIB(6), MIB(4), 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, MIB(6), 0, handle, 0), BERM_CU_INVALID_VALUE);
    OK(cuMemMap(addr + MIB(2), MIB(4), 0, handle, 0));
    FAILS(cuMemMap(addr, MIB(4), 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr + MIB(4), MIB(4), 0, handle, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemMap(addr, MIB(2), 0, 12345, 0), BERM_CU_INVALID_VALUE);
    OK(cuMemMap(addr, MIB(2), 0, handle, 0)); // an alias of the first half
}

Test(misuse, set_access_over_a_hole_or_cutting) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    berm_cu_mem_handle_t handle = create(MIB(4));
    OK(cuMemMap(addr, MIB(4), 0, handle, 0));
    FAILS(cuMemSetAccess(addr, MIB(8), &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr, MIB(2), &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr + MIB(2), MIB(2), &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr + MIB(4), MIB(2), &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr, 0, &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr, MIB(4), NULL, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr, MIB(4), &read_write, 0), BERM_CU_INVALID_VALUE);
    unsigned long long flags = 9;
    OK(cuMemGetAccess(&flags, &read_write.location, addr));
    cr_assert(flags == BERM_CU_MEM_ACCESS_NONE, "refused calls change nothing");
    OK(cuMemSetAccess(addr, MIB(4), &read_write, 1));
    OK(cuMemGetAccess(&flags, &read_write.location, addr + 77));
    cr_assert(flags == BERM_CU_MEM_ACCESS_READWRITE);
}

Test(misuse, set_access_with_an_impossible_device) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    berm_cu_mem_access_t access = read_write;
    access.location.id = 1;
    FAILS(cuMemSetAccess(addr, MIB(2), &access, 1), BERM_CU_INVALID_DEVICE);
    access = read_write;
    access.flags = 2;
    FAILS(cuMemSetAccess(addr, MIB(2), &access, 1), BERM_CU_INVALID_VALUE);
}

Test(misuse, set_access_for_a_peer) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 2;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    berm_cu_mem_access_t peer = read_write;
    peer.location.id = 1;
    make_current(1);
    OK(launch(NULL, 1000, addr, 8, 0)); // no access yet
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_NO_ACCESS);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(1));
    make_current(1);
    OK(cuMemSetAccess(addr, MIB(2), &peer, 1));
    OK(launch(NULL, 1000, addr, 8, 1));
    OK(cuCtxSynchronize());
    HAZARDS(1);
}

Test(misuse, unmap_of_unmapped_or_part) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(12));
    (void)map_at(addr, MIB(4));
    (void)map_at(addr + MIB(4), MIB(2));
    FAILS(cuMemUnmap(addr + MIB(8), MIB(2)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(addr, MIB(2)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(addr + MIB(2), MIB(2)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(addr, MIB(8)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(addr, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemUnmap(addr + 1, MIB(4)), BERM_CU_INVALID_VALUE);
    OK(cuMemUnmap(addr, MIB(6))); // two whole mappings in one call
    FAILS(cuMemUnmap(addr, MIB(6)), BERM_CU_INVALID_VALUE);
    HAZARDS(0);
}

Test(misuse, address_free_of_another_size_or_with_mappings) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    (void)map_at(addr, MIB(2));
    FAILS(cuMemAddressFree(addr, MIB(4)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressFree(addr + MIB(2), MIB(6)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAddressFree(addr, MIB(8)), BERM_CU_INVALID_VALUE);
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemAddressFree(addr, MIB(8)));
    FAILS(cuMemAddressFree(addr, MIB(8)), BERM_CU_INVALID_VALUE);
}

Test(misuse, create_beyond_memory_reserve_beyond_addresses) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = MIB(8);
    config.outside_bytes = MIB(2);
    config.address_bytes = MIB(16);
    start_with(&config);
    berm_cu_mem_handle_t handle = 0;
    berm_cu_deviceptr_t addr = 0;
    FAILS(cuMemCreate(&handle, MIB(8), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemCreate(&handle, MIB(6), &device_prop, 0));
    FAILS(cuMemAlloc_v2(&addr, 1), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemRelease(handle));
    OK(cuMemAlloc_v2(&addr, MIB(6)));
    FAILS(cuMemAddressReserve(&addr, MIB(18), 0, 0, 0), BERM_CU_OUT_OF_MEMORY);
    addr = reserve(MIB(16));
    FAILS(cuMemAddressReserve(&addr, MIB(2), 0, 0, 0), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemAddressFree(addr, MIB(16)));
    (void)reserve(MIB(16));
}

Test(misuse, export_without_requested_type) {
    start();
    int fd = -1;
    berm_cu_mem_handle_t handle = create(MIB(2));
    FAILS(cuMemExportToShareableHandle(&fd, handle, BERM_CU_MEM_HANDLE_POSIX_FD, 0),
          BERM_CU_INVALID_VALUE);
    FAILS(cuMemExportToShareableHandle(&fd, handle, BERM_CU_MEM_HANDLE_WIN32, 0),
          BERM_CU_INVALID_VALUE);
}

Test(misuse, export_and_import_in_one_process) {
    start();
    int fd = -1;
    berm_cu_mem_prop_t prop = device_prop;
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_POSIX_FD;
    berm_cu_mem_handle_t handle = 0, again = 0;
    OK(cuMemCreate(&handle, MIB(2), &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, BERM_CU_MEM_HANDLE_POSIX_FD, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, BERM_CU_MEM_HANDLE_POSIX_FD));
    cr_assert(again == handle);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(again));
    FAILS(cuMemRelease(again), BERM_CU_INVALID_VALUE);
    simcuda_hazards_clear();
    // the descriptor keeps the memory: it comes back as another handle
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, BERM_CU_MEM_HANDLE_POSIX_FD));
    cr_assert(again != handle);
    OK(cuMemRelease(again));
    (void)close(fd);
    HAZARDS(0);
}

Test(misuse, import_of_a_bad_handle_or_type) {
    start();
    berm_cu_mem_handle_t handle = 0;
    int pipes[2];
    cr_assert(pipe(pipes) == 0);
    FAILS(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)pipes[0],
                                         BERM_CU_MEM_HANDLE_POSIX_FD),
          BERM_CU_INVALID_VALUE);
    FAILS(
        cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, BERM_CU_MEM_HANDLE_POSIX_FD),
        BERM_CU_INVALID_VALUE);
    FAILS(cuMemImportFromShareableHandle(&handle, NULL, BERM_CU_MEM_HANDLE_WIN32),
          BERM_CU_NOT_SUPPORTED);
}

Test(misuse, fabric_without_imex) {
    start();
    berm_cu_mem_prop_t prop = device_prop;
    prop.requested_handle_types = BERM_CU_MEM_HANDLE_FABRIC;
    berm_cu_mem_handle_t handle = 0;
    berm_cu_fabric_handle_t fabric = {{0}};
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_NOT_PERMITTED);
    handle = create(MIB(2));
    FAILS(cuMemExportToShareableHandle(&fabric, handle, BERM_CU_MEM_HANDLE_FABRIC, 0),
          BERM_CU_NOT_PERMITTED);
    FAILS(cuMemImportFromShareableHandle(&handle, &fabric, BERM_CU_MEM_HANDLE_FABRIC),
          BERM_CU_NOT_PERMITTED);
}

Test(misuse, more_than_the_ceilings) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.mappings_max = 2;
    config.handles_max = 2;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    berm_cu_mem_handle_t first = create(MIB(2)), handle = create(MIB(2));
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemMap(addr, MIB(2), 0, first, 0));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, first, 0));
    FAILS(cuMemMap(addr + MIB(4), MIB(2), 0, handle, 0), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemMap(addr + MIB(4), MIB(2), 0, handle, 0));
}

Test(misuse, release_of_a_dead_handle) {
    start();
    berm_cu_mem_handle_t handle = create(MIB(2));
    OK(cuMemRelease(handle));
    FAILS(cuMemRelease(handle), BERM_CU_INVALID_VALUE);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_DOUBLE_RELEASE);
    berm_cu_mem_handle_t next = create(MIB(2)); // takes the place of the dead one
    cr_assert(next != handle);
    FAILS(cuMemRelease(handle), BERM_CU_INVALID_VALUE);
    HAZARDS(2);
    OK(cuMemRelease(next));
    FAILS(cuMemRelease(0), BERM_CU_INVALID_VALUE);
}

Test(misuse, release_while_mapped_and_retain) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2)), again = 0;
    OK(cuMemRelease(handle)); // memory stays: it is mapped
    FAILS(cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0), BERM_CU_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(addr + 100)));
    cr_assert(again == handle);
    OK(cuMemRelease(again));
    OK(cuMemUnmap(addr, MIB(2)));
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.handles == 0 && ledger.used_bytes == 0);
    HAZARDS(0);
}

Test(misuse, retain_of_an_unmapped_address) {
    start();
    berm_cu_mem_handle_t handle = 0;
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    FAILS(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr), BERM_CU_INVALID_VALUE);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_RETAIN_UNMAPPED);
}

Test(misuse, unmap_while_a_kernel_may_touch_the_range) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    OK(launch(NULL, 1000000, addr, 4096, 1));
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemRelease(handle));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    FAILS(launch(NULL, 1000, addr, 4096, 1), BERM_CU_ILLEGAL_ADDRESS);
    berm_cu_deviceptr_t plain = 0;
    FAILS(cuMemAlloc_v2(&plain, 512), BERM_CU_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(0));
    make_current(0);
    OK(cuCtxSynchronize());
}

Test(misuse, kernel_on_unmapped_addresses) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    (void)map_at(addr, MIB(2));
    OK(launch(NULL, 1000, addr + MIB(1), MIB(2), 0)); // runs over the end
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_UNMAPPED);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
}

Test(misuse, kernel_on_memory_without_access) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    OK(cuMemMap(addr, MIB(2), 0, create(MIB(2)), 0));
    OK(launch(NULL, 1000, addr, 8, 0));
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_NO_ACCESS);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
}

Test(misuse, kernel_writes_memory_that_is_read_only) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    berm_cu_mem_access_t read_only = read_write;
    read_only.flags = BERM_CU_MEM_ACCESS_READ;
    OK(cuMemMap(addr, MIB(2), 0, create(MIB(2)), 0));
    OK(cuMemSetAccess(addr, MIB(2), &read_only, 1));
    OK(launch(NULL, 1000, addr, 8, 0));
    HAZARDS(0);
    OK(launch(NULL, 1000, addr, 8, 1));
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_NO_ACCESS);
    HAZARDS(1);
}

Test(misuse, alias_write_and_read_not_ordered) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(addr + MIB(2), MIB(2), &read_write, 1));
    OK(launch(stream_new(1), 1000, addr, 4096, 1));
    OK(launch(stream_new(1), 1000, addr + MIB(2), 4096, 0));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_ALIAS);
    OK(cuCtxSynchronize()); // the data is undefined, the context is well
}

Test(misuse, forbidden_call_during_capture) {
    start();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_graph_t graph = NULL;
    berm_cu_deviceptr_t addr = 0;
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    FAILS(cuMemAlloc_v2(&addr, 512), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_STREAM_CAPTURE_INVALIDATED);
    cr_assert(graph == NULL);
}

Test(misuse, gfx12_kernel_soon_after_map) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.stale_map_ns = 1000000;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    OK(launch(NULL, 1000, addr, 8, 0));
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_STALE_MAP);
    OK(cuCtxSynchronize());
    simcuda_advance_ns(1000000);
    OK(launch(NULL, 1000, addr, 8, 0));
    HAZARDS(1);
}

static void volta(int drains, simcuda_hazard_kind_t expected, int result) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.faults_page_edits = 1;
    config.drains_map = drains;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    berm_cu_mem_handle_t other = create(MIB(2));
    OK(launch(NULL, 10000000, addr, 8, 0));
    OK(cuMemMap(addr + MIB(2), MIB(2), 0, other, 0)); // an unrelated entry
    if (expected != SIMCUDA_HAZARD_NONE)
        cr_assert(hazard_kind(0) == expected);
    else
        HAZARDS(0);
    FAILS(cuCtxSynchronize(), result);
}

Test(misuse, volta_page_edit_under_work) {
    volta(0, SIMCUDA_HAZARD_EDIT_UNDER_WORK, BERM_CU_ILLEGAL_ADDRESS);
}

Test(misuse, volta_that_drains_is_safe) {
    volta(1, SIMCUDA_HAZARD_NONE, BERM_CU_SUCCESS);
}

Test(misuse, free_of_what_is_not_allocated) {
    start();
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, 1000));
    FAILS(cuMemFree_v2(addr + 512), BERM_CU_INVALID_VALUE);
    OK(cuMemFree_v2(addr));
    FAILS(cuMemFree_v2(addr), BERM_CU_INVALID_VALUE);
    cr_assert(hazard_kind(1) == SIMCUDA_HAZARD_DOUBLE_FREE);
    HAZARDS(2);
    FAILS(cuMemAlloc_v2(&addr, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuMemAlloc_v2(NULL, 1), BERM_CU_INVALID_VALUE);
}

Test(misuse, vmm_calls_leave_plain_memory_alone) {
    start();
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_handle_t handle = 0;
    OK(cuMemAlloc_v2(&addr, MIB(4)));
    FAILS(cuMemUnmap(addr, MIB(4)), BERM_CU_INVALID_VALUE);
    FAILS(cuMemSetAccess(addr, MIB(4), &read_write, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr), BERM_CU_INVALID_VALUE);
    HAZARDS(0);
}

Test(misuse, vmm_absent) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.has_vmm = 0;
    start_with(&config);
    int value = -1;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_handle_t handle = 0;
    size_t granularity = 0;
    OK(cuDeviceGetAttribute(&value, BERM_CU_ATTR_VMM_SUPPORTED, 0));
    cr_assert(value == 0);
    FAILS(cuMemAddressReserve(&addr, MIB(2), 0, 0, 0), BERM_CU_NOT_SUPPORTED);
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 0), BERM_CU_NOT_SUPPORTED);
    FAILS(cuMemGetAllocationGranularity(&granularity, &device_prop, 0), BERM_CU_NOT_SUPPORTED);
    FAILS(cuMemImportFromShareableHandle(&handle, NULL, BERM_CU_MEM_HANDLE_POSIX_FD),
          BERM_CU_NOT_SUPPORTED);
    OK(cuMemAlloc_v2(&addr, MIB(2)));
}

Test(misuse, made_up_handles_are_refused) {
    start();
    void *bad = (void *)(uintptr_t)0xdeadbeef;
    berm_cu_stream_t stream = bad;
    berm_cu_event_t event = bad;
    FAILS(cuStreamSynchronize(stream), BERM_CU_INVALID_HANDLE);
    FAILS(cuStreamDestroy_v2(stream), BERM_CU_INVALID_HANDLE);
    FAILS(cuStreamDestroy_v2(NULL), BERM_CU_INVALID_HANDLE);
    FAILS(cuEventQuery(event), BERM_CU_INVALID_HANDLE);
    FAILS(cuEventRecord(event, NULL), BERM_CU_INVALID_HANDLE);
    FAILS(cuEventDestroy_v2(NULL), BERM_CU_INVALID_HANDLE);
    FAILS(cuCtxSetCurrent(bad), BERM_CU_INVALID_CONTEXT);
    FAILS(cuGraphDestroy(bad), BERM_CU_INVALID_VALUE);
    FAILS(launch(stream, 1, 0, 0, 0), BERM_CU_INVALID_HANDLE);
    event = event_new();
    OK(cuEventDestroy_v2(event));
    FAILS(cuEventQuery(event), BERM_CU_INVALID_HANDLE);
}

Test(misuse, launch_with_impossible_ranges) {
    start();
    simcuda_access_t access = {UINT64_MAX - 5, 100, 0};
    uint64_t gate;
    FAILS(simcuda_launch(NULL, 1, &access, 1), BERM_CU_INVALID_VALUE);
    FAILS(simcuda_launch(NULL, 1, NULL, 1), BERM_CU_INVALID_VALUE);
    FAILS(simcuda_gate(NULL, &access, 1, &gate), BERM_CU_INVALID_VALUE);
    FAILS(simcuda_gate(NULL, NULL, 0, NULL), BERM_CU_INVALID_VALUE);
    FAILS(simcuda_gate_open(12345), BERM_CU_INVALID_VALUE);
    OK(cuCtxSynchronize());
    HAZARDS(0);
}
