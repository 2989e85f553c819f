// SPDX-License-Identifier: Apache-2.0
// The driver's own requests besides cuMemAlloc: see room.h. berm's own cuMemCreate does not come
// here, since libberm looks its functions up for itself.
#include "room.h"

#include "driver.h"
#include "real.h"

berm_cu_result_t cuMemAllocPitch_v2(berm_cu_deviceptr_t *addr, size_t *pitch, size_t width_bytes,
                                    size_t height, unsigned element_bytes) {
    return ROOM_TRY(
        REAL_DRIVER(cuMemAllocPitch_v2, addr, pitch, width_bytes, height, element_bytes));
}

berm_cu_result_t cuMemAllocManaged(berm_cu_deviceptr_t *addr, size_t bytes, unsigned flags) {
    return ROOM_TRY(REAL_DRIVER(cuMemAllocManaged, addr, bytes, flags));
}

berm_cu_result_t cuArrayCreate_v2(void **array, const void *description) {
    return ROOM_TRY(REAL_DRIVER(cuArrayCreate_v2, array, description));
}

berm_cu_result_t cuArray3DCreate_v2(void **array, const void *description) {
    return ROOM_TRY(REAL_DRIVER(cuArray3DCreate_v2, array, description));
}

berm_cu_result_t cuMipmappedArrayCreate(void **array, const void *description, unsigned levels) {
    return ROOM_TRY(REAL_DRIVER(cuMipmappedArrayCreate, array, description, levels));
}

berm_cu_result_t cuMemCreate(berm_cu_mem_handle_t *handle, size_t bytes,
                             const berm_cu_mem_prop_t *prop, unsigned long long flags) {
    return ROOM_TRY(REAL_DRIVER(cuMemCreate, handle, bytes, prop, flags));
}
