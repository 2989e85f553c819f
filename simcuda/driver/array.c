// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: memory of a device that programs reach by a handle, for textures.
// Kernels do nothing here, and the layout is the driver's secret, so an array is what it occupies:
// a block like one of cuMemAlloc, whose address nobody is told. Locks: the state's, by sim_enter.
#include <string.h>

#include "managed.h"

enum {
    LAYERED = 1,
    CUBEMAP = 4,
    FLAGS_KNOWN = 0x7f,
    LEVELS_MAX = 32
};

// The handle of an array: its block's address, which is even, and one.
static void *handle_of(uint64_t addr) {
    return (void *)(uintptr_t)(addr | 1);
}

static uint64_t element_bytes(const berm_cu_array3d_t *description) {
    uint64_t channels = description->channels;
    if (channels != 1 && channels != 2 && channels != 4)
        return 0;
    switch (description->format) {
    case BERM_CU_FORMAT_UINT8:
    case BERM_CU_FORMAT_SINT8:
        return channels;
    case BERM_CU_FORMAT_UINT16:
    case BERM_CU_FORMAT_SINT16:
    case BERM_CU_FORMAT_HALF:
        return 2 * channels;
    case BERM_CU_FORMAT_UINT32:
    case BERM_CU_FORMAT_SINT32:
    case BERM_CU_FORMAT_FLOAT:
        return 4 * channels;
    default:
        return 0;
    }
}

// What one level occupies; 0 where no address has so much.
static uint64_t level_bytes(const berm_cu_array3d_t *description, unsigned level) {
    uint64_t bytes = element_bytes(description);
    bool is_layered = (description->flags & (LAYERED | CUBEMAP)) != 0;
    const uint64_t extents[] = {description->width, description->height, description->depth};
    for (int i = 0; i < 3; i++) {
        bool shrinks = i < 2 || !is_layered;
        uint64_t extent = extents[i] >> (shrinks ? level : 0);
        if (!berm__mul_checked(bytes, extent > 0 ? extent : 1, &bytes))
            return 0;
    }
    return bytes <= SIM_ADDRESS_BYTES ? bytes : 0;
}

static int array_create(void **array, const berm_cu_array3d_t *description, unsigned levels) {
    uint64_t bytes = 0;
    if (array == NULL || description == NULL || description->width == 0 || levels == 0 ||
        levels > LEVELS_MAX || (description->flags & ~(unsigned)FLAGS_KNOWN) != 0 ||
        element_bytes(description) == 0)
        return BERM_CU_INVALID_VALUE;
    for (unsigned level = 0; level < levels; level++) {
        uint64_t more = level_bytes(description, level);
        if (more == 0 || more > SIM_ADDRESS_BYTES - bytes)
            return BERM_CU_OUT_OF_MEMORY;
        bytes += more;
    }
    uint64_t addr = 0;
    int result = sim_malloc_hidden(bytes, &addr);
    if (result == BERM_CU_SUCCESS)
        *array = handle_of(addr);
    return result;
}

static int array_destroy(void *array) {
    uintptr_t handle = (uintptr_t)array;
    return (handle & 1) == 0 ? BERM_CU_INVALID_HANDLE
                             : sim_malloc_hidden_free(handle & ~(uintptr_t)1);
}

berm_cu_result_t cuArrayCreate_v2(void **array, const berm_cu_array_t *description) {
    int result = sim_enter(SIM_FN_cuArrayCreate_v2);
    if (result != BERM_CU_SUCCESS)
        return sim_leave(result);
    if (description == NULL)
        return sim_leave(BERM_CU_INVALID_VALUE);
    const berm_cu_array3d_t whole = {.width = description->width,
                                     .height = description->height,
                                     .format = description->format,
                                     .channels = description->channels};
    return sim_leave(array_create(array, &whole, 1));
}

berm_cu_result_t cuArray3DCreate_v2(void **array, const berm_cu_array3d_t *description) {
    int result = sim_enter(SIM_FN_cuArray3DCreate_v2);
    if (result == BERM_CU_SUCCESS)
        result = array_create(array, description, 1);
    return sim_leave(result);
}

berm_cu_result_t cuArrayDestroy(void *array) {
    int result = sim_enter(SIM_FN_cuArrayDestroy);
    if (result == BERM_CU_SUCCESS)
        result = array_destroy(array);
    return sim_leave(result);
}

berm_cu_result_t cuMipmappedArrayCreate(void **array, const berm_cu_array3d_t *description,
                                        unsigned levels) {
    int result = sim_enter(SIM_FN_cuMipmappedArrayCreate);
    if (result == BERM_CU_SUCCESS)
        result = array_create(array, description, levels);
    return sim_leave(result);
}

berm_cu_result_t cuMipmappedArrayDestroy(void *array) {
    int result = sim_enter(SIM_FN_cuMipmappedArrayDestroy);
    if (result == BERM_CU_SUCCESS)
        result = array_destroy(array);
    return sim_leave(result);
}
