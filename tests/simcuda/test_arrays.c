// SPDX-License-Identifier: Apache-2.0
// Arrays and managed memory: what they occupy, how they go, and what is refused.
#include <string.h>

#include "sim_test.h"

#define CALL(status, call) cr_assert((int)(call) == (status), "%s", #call)

static uint64_t used_bytes(void) {
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    return ledger.used_bytes;
}

Test(arrays, occupy_what_their_elements_do) {
    start();
    const struct {
        berm_cu_array3d_t what;
        unsigned levels; // 0: no mipmaps
        uint64_t bytes;
    } rows[] = {
        {{1000, 0, 0, BERM_CU_FORMAT_UINT8, 1, 0}, 0, 1000},
        {{1024, 1024, 0, BERM_CU_FORMAT_FLOAT, 4, 0}, 0, MIB(16)},
        {{256, 256, 64, BERM_CU_FORMAT_HALF, 2, 0}, 0, MIB(16)},
        {{512, 512, 6, BERM_CU_FORMAT_UINT32, 1, 1 /* layered */}, 0, MIB(6)},
        {{1024, 1024, 0, BERM_CU_FORMAT_UINT32, 1, 0}, 3, MIB(4) + MIB(1) + MIB(1) / 4},
        {{1024, 1024, 4, BERM_CU_FORMAT_UINT8, 1, 1 /* layered */}, 2, MIB(4) + MIB(1)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *array = NULL;
        simcuda_ledger_t ledger;
        if (rows[i].levels == 0)
            OK(cuArray3DCreate_v2(&array, &rows[i].what));
        else
            OK(cuMipmappedArrayCreate(&array, &rows[i].what, rows[i].levels));
        simcuda_ledger_read(0, &ledger);
        cr_assert(ledger.allocations == 1 && ledger.allocation_bytes == rows[i].bytes);
        cr_assert(ledger.used_bytes >= rows[i].bytes);
        CALL(BERM_CU_INVALID_VALUE, cuMemFree_v2((uint64_t)(uintptr_t)array));
        OK(rows[i].levels == 0 ? cuArrayDestroy(array) : cuMipmappedArrayDestroy(array));
        cr_assert(used_bytes() == 0);
    }
    HAZARDS(6); // the frees that were refused
}

Test(arrays, wrong_descriptions_and_handles) {
    start();
    const berm_cu_array3d_t good = {64, 64, 0, BERM_CU_FORMAT_FLOAT, 1, 0};
    berm_cu_array3d_t wrong[6];
    void *array = (void *)7;
    for (size_t i = 0; i < 6; i++)
        wrong[i] = good;
    wrong[0].width = 0;
    wrong[1].format = 99;
    wrong[2].channels = 3;
    wrong[3].channels = 0;
    wrong[4].flags = 1u << 20;
    wrong[5].format = 0;
    for (size_t i = 0; i < 6; i++)
        CALL(BERM_CU_INVALID_VALUE, cuArray3DCreate_v2(&array, &wrong[i]));
    CALL(BERM_CU_INVALID_VALUE, cuArray3DCreate_v2(NULL, &good));
    CALL(BERM_CU_INVALID_VALUE, cuArray3DCreate_v2(&array, NULL));
    CALL(BERM_CU_INVALID_VALUE, cuArrayCreate_v2(&array, NULL));
    CALL(BERM_CU_INVALID_VALUE, cuMipmappedArrayCreate(&array, &good, 0));
    CALL(BERM_CU_INVALID_VALUE, cuMipmappedArrayCreate(&array, &good, 33));
    wrong[0] = good;
    wrong[0].width = wrong[0].height = (size_t)1 << 40;
    CALL(BERM_CU_OUT_OF_MEMORY, cuArray3DCreate_v2(&array, &wrong[0]));
    wrong[0].height = 1;
    CALL(BERM_CU_OUT_OF_MEMORY, cuArray3DCreate_v2(&array, &wrong[0]));
    cr_assert(array == (void *)7, "written on failure");
    CALL(BERM_CU_INVALID_HANDLE, cuArrayDestroy(NULL));
    CALL(BERM_CU_INVALID_HANDLE, cuArrayDestroy((void *)8));
    HAZARDS(0);
}

Test(managed, is_reached_by_the_host_and_occupies_no_device) {
    start();
    berm_cu_deviceptr_t addr = 0, base = 0;
    size_t bytes = 0;
    int is_managed = 0, type = 0;
    OK(cuMemAllocManaged(&addr, MIB(8), 1));
    memset((void *)(uintptr_t)addr, 5, MIB(8));
    cr_assert(used_bytes() == 0);
    OK(cuMemGetAddressRange_v2(&base, &bytes, addr + 1000));
    cr_assert(base == addr && bytes == MIB(8));
    OK(cuPointerGetAttribute(&is_managed, BERM_CU_POINTER_IS_MANAGED, addr));
    OK(cuPointerGetAttribute(&type, BERM_CU_POINTER_MEMORY_TYPE, addr + MIB(8) - 1));
    cr_assert(is_managed == 1 && type == BERM_CU_MEMORYTYPE_DEVICE);
    OK(cuMemFree_v2(addr));
    CALL(BERM_CU_INVALID_VALUE, cuMemAllocManaged(NULL, 1, 1));
    CALL(BERM_CU_INVALID_VALUE, cuMemAllocManaged(&addr, 0, 1));
    CALL(BERM_CU_INVALID_VALUE, cuMemAllocManaged(&addr, 1, 0));
    CALL(BERM_CU_INVALID_VALUE, cuMemAllocManaged(&addr, 1, 3));
    CALL(BERM_CU_OUT_OF_MEMORY, cuMemAllocManaged(&addr, SIZE_MAX, 1));
    OK(cuMemAllocManaged(&addr, 1, 2)); // goes with its context
    OK(cuDevicePrimaryCtxReset_v2(0));
    HAZARDS(0);
}
