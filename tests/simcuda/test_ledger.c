// SPDX-License-Identifier: Apache-2.0
// The device's account, its capacity, cuMemAlloc's granules and what is known of an address.
#include "sim_test.h"

static simcuda_ledger_t ledger_of(int device) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(device, &ledger);
    return ledger;
}

Test(ledger, counts_and_peaks) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(64));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(4));
    OK(cuMemMap(addr + MIB(4), MIB(4), 0, handle, 0));
    berm_cu_event_t event = event_new();
    berm_cu_stream_t stream = stream_new(0);
    simcuda_ledger_t ledger = ledger_of(0);
    cr_assert(ledger.reservations == 1 && ledger.reserved_address_bytes == MIB(64));
    cr_assert(ledger.handles == 1 && ledger.handle_bytes == MIB(4));
    cr_assert(ledger.mappings == 2 && ledger.mapped_bytes == MIB(8));
    cr_assert(ledger.used_bytes == MIB(4));
    cr_assert(ledger.events == 1 && ledger.streams == 1 && ledger.contexts_retained == 1);
    OK(cuMemUnmap(addr, MIB(8)));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(addr, MIB(64)));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    ledger = ledger_of(-1);
    cr_assert(ledger.mappings_peak == 2 && ledger.address_bytes_peak == MIB(64));
    cr_assert(ledger.used_bytes_peak == MIB(4));
    ledger.mappings_peak = ledger.address_bytes_peak = ledger.used_bytes_peak = 0;
    const unsigned char *bytes = (const unsigned char *)&ledger;
    for (size_t i = 0; i < sizeof(ledger); i++)
        cr_assert(bytes[i] == 0, "not empty");
}

Test(ledger, the_peak_counts_memory_that_is_not_mapped) {
    start();
    OK(cuMemRelease(create(MIB(6))));
    OK(cuMemRelease(create(MIB(2))));
    cr_assert(ledger_of(0).used_bytes_peak == MIB(6));
    cr_assert(ledger_of(-1).used_bytes_peak == MIB(6));
    cr_assert(ledger_of(0).used_bytes == 0);
}

Test(ledger, each_device_has_its_own) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 2;
    config.memory_bytes = GIB(1);
    start_with(&config);
    berm_cu_mem_prop_t prop = device_prop;
    berm_cu_mem_handle_t handle;
    prop.location.id = 1;
    OK(cuMemCreate(&handle, GIB(1), &prop, 0));
    FAILS(cuMemCreate(&handle, MIB(2), &prop, 0), BERM_CU_OUT_OF_MEMORY);
    (void)create(MIB(2));
    prop.location = (berm_cu_mem_location_t){BERM_CU_MEM_LOCATION_HOST, 0};
    OK(cuMemCreate(&handle, GIB(4), &prop, 0));
    cr_assert(ledger_of(0).used_bytes == MIB(2));
    cr_assert(ledger_of(1).used_bytes == GIB(1));
    cr_assert(ledger_of(-1).used_bytes == GIB(5) + MIB(2));
    cr_assert(ledger_of(-2).used_bytes == 0 && ledger_of(99).used_bytes == 0);
}

Test(ledger, other_processes) {
    start();
    size_t free_bytes, total_bytes;
    OK(simcuda_outside_set(0, GIB(79)));
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(free_bytes == GIB(1) && total_bytes == GIB(80));
    (void)create(GIB(1));
    FAILS(simcuda_outside_set(0, GIB(79) + 1), -1);
    FAILS(simcuda_outside_set(1, 0), -1);
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(free_bytes == 0);
    OK(simcuda_outside_set(0, 0));
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(free_bytes == GIB(79));
}

Test(malloc_, small_blocks_share_a_granule) {
    start();
    berm_cu_deviceptr_t blocks[4096];
    for (int i = 0; i < 4096; i++) {
        OK(cuMemAlloc_v2(&blocks[i], 512));
        cr_assert(blocks[i] % 512 == 0);
    }
    cr_assert(ledger_of(0).used_bytes == MIB(2));
    cr_assert(ledger_of(0).allocations == 4096 && ledger_of(0).allocation_bytes == MIB(2));
    berm_cu_deviceptr_t more;
    OK(cuMemAlloc_v2(&more, 1));
    cr_assert(ledger_of(0).used_bytes == MIB(4));
    OK(cuMemFree_v2(blocks[7]));
    OK(cuMemFree_v2(blocks[8]));
    berm_cu_deviceptr_t again;
    OK(cuMemFree_v2(more));
    OK(cuMemAlloc_v2(&again, 1000)); // the two holes
    cr_assert(again == blocks[7]);
    OK(cuMemFree_v2(again));
    for (int i = 0; i < 4096; i++) {
        if (i != 7 && i != 8)
            OK(cuMemFree_v2(blocks[i]));
    }
    cr_assert(ledger_of(0).used_bytes == 0 && ledger_of(0).allocations == 0);
    HAZARDS(0);
}

Test(malloc_, large_blocks_take_whole_granules) {
    start();
    berm_cu_deviceptr_t addr;
    OK(cuMemAlloc_v2(&addr, MIB(3)));
    cr_assert(ledger_of(0).used_bytes == MIB(4));
    cr_assert(ledger_of(0).allocation_bytes == MIB(3));
    FAILS(cuMemAlloc_v2(&addr, GIB(80)), BERM_CU_OUT_OF_MEMORY);
    FAILS(cuMemAlloc_v2(&addr, SIZE_MAX), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemFree_v2(addr));
}

Test(malloc_, a_context_takes_its_memory_along) {
    start();
    berm_cu_deviceptr_t addr;
    berm_cu_context_t context;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&addr, MIB(3)));
    OK(cuMemAlloc_v2(&addr, 100));
    (void)stream_new(0);
    (void)event_new();
    OK(cuCtxDestroy_v2(context));
    cr_assert(ledger_of(0).used_bytes == 0);
    cr_assert(ledger_of(0).streams == 0 && ledger_of(0).events == 0);
    FAILS(cuCtxSetCurrent(context), BERM_CU_INVALID_CONTEXT);
}

Test(addresses, terabytes_cost_nothing_and_come_back) {
    start();
    for (int i = 0; i < 1000; i++) { // a thousand times a tenth of all there is
        berm_cu_deviceptr_t addr = reserve(GIB(1024) * 12);
        OK(cuMemAddressFree(addr, GIB(1024) * 12));
    }
    (void)reserve(GIB(1024) * 100);
}

Test(addresses, freed_addresses_rest) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    OK(cuMemAddressFree(addr, MIB(2)));
    cr_assert(reserve(MIB(2)) != addr);
}

Test(pointer, ranges_are_single_mappings) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8)), base = 0;
    size_t bytes = 0;
    (void)map_at(addr, MIB(2));
    (void)map_at(addr + MIB(2), MIB(4));
    OK(cuMemGetAddressRange_v2(&base, &bytes, addr + MIB(3)));
    cr_assert(base == addr + MIB(2) && bytes == MIB(4));
    FAILS(cuMemGetAddressRange_v2(&base, &bytes, addr + MIB(7)), BERM_CU_NOT_FOUND);
    OK(cuMemAlloc_v2(&addr, 1000));
    OK(cuMemGetAddressRange_v2(&base, &bytes, addr + 999));
    cr_assert(base == addr && bytes == 1000);
}

Test(pointer, attributes) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8)), plain = 0;
    unsigned type = 0;
    int ordinal = -5, mapped = -5, capable = -5;
    uint64_t start_addr = 0;
    berm_cu_context_t context, owner = NULL;
    (void)map_at(addr, MIB(2));
    OK(cuMemAlloc_v2(&plain, 64));
    OK(cuCtxGetCurrent(&context));
    OK(cuPointerGetAttribute(&type, BERM_CU_POINTER_MEMORY_TYPE, addr));
    cr_assert(type == BERM_CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&start_addr, BERM_CU_POINTER_RANGE_START, addr + MIB(1)));
    cr_assert(start_addr == addr);
    OK(cuPointerGetAttribute(&mapped, BERM_CU_POINTER_MAPPED, addr + MIB(4)));
    cr_assert(mapped == 0);
    OK(cuPointerGetAttribute(&owner, BERM_CU_POINTER_CONTEXT, plain));
    cr_assert(owner == context);
    OK(cuPointerGetAttribute(&capable, BERM_CU_POINTER_IS_LEGACY_IPC_CAPABLE, plain));
    cr_assert(capable == 1);
    FAILS(cuPointerGetAttribute(&type, BERM_CU_POINTER_MEMORY_TYPE, addr + MIB(4)),
          BERM_CU_INVALID_VALUE);
    FAILS(cuPointerGetAttribute(&type, 999, addr), BERM_CU_INVALID_VALUE);
    int attributes[2] = {BERM_CU_POINTER_DEVICE_ORDINAL, BERM_CU_POINTER_MEMORY_TYPE};
    void *data[2] = {&ordinal, &type};
    OK(cuPointerGetAttributes(2, attributes, data, 12345)); // not the device's: no error
    cr_assert(ordinal == -1 && type == 0);
    FAILS(cuPointerGetAttributes(0, attributes, data, addr), BERM_CU_INVALID_VALUE);
}
