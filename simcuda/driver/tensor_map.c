// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what a kernel that copies tiles is told of a tensor. Kernels do nothing here, so a
// map holds what it was made of, in the 128 bytes that are opaque to programs. Its arguments are
// held to the bounds that are documented. Locks: the state's, by sim_enter.
#include <string.h>

#include "sim.h"

enum {
    MAP_BYTES = 128,
    MAP_ALIGNMENT = 64,
    RANK_MAX = 5,
    BOX_MAX = 256,
    ELEMENT_STRIDE_MAX = 8,
    DATA_TYPE_MAX = 15, // CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B
};

typedef struct tensor_map {
    uint64_t addr;
    uint32_t rank;
    int32_t data_type, interleave, swizzle, promotion, fill;
    uint32_t box[RANK_MAX], element_strides[RANK_MAX];
    uint64_t dims[RANK_MAX];
} tensor_map_t;

_Static_assert(sizeof(tensor_map_t) <= MAP_BYTES, "a map holds what it was made of");

static bool is_aligned(const void *pointer, uintptr_t bytes) {
    return ((uintptr_t)pointer & (bytes - 1)) == 0;
}

static bool extents_are_right(uint32_t rank, const uint64_t *dims, const uint64_t *strides,
                              const uint32_t *box, const uint32_t *element_strides) {
    if (rank == 0 || rank > RANK_MAX || dims == NULL || box == NULL || element_strides == NULL ||
        (rank > 1 && strides == NULL))
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] == 0 || dims[i] > UINT64_C(1) << 32 || box[i] == 0 || box[i] > BOX_MAX ||
            element_strides[i] == 0 || element_strides[i] > ELEMENT_STRIDE_MAX)
            return false;
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (strides[i] % 16 != 0 || strides[i] >= UINT64_C(1) << 40)
            return false;
    return true;
}

berm_cu_result_t cuTensorMapEncodeTiled(void *map, int data_type, uint32_t rank, void *addr,
                                        const uint64_t *dims, const uint64_t *strides,
                                        const uint32_t *box, const uint32_t *element_strides,
                                        int interleave, int swizzle, int promotion, int fill) {
    int result = sim_enter(SIM_FN_cuTensorMapEncodeTiled);
    if (result != BERM_CU_SUCCESS)
        return sim_leave(result);
    if (map == NULL || !is_aligned(map, MAP_ALIGNMENT) || addr == NULL || !is_aligned(addr, 16) ||
        data_type < 0 || data_type > DATA_TYPE_MAX ||
        !extents_are_right(rank, dims, strides, box, element_strides))
        return sim_leave(BERM_CU_INVALID_VALUE);
    tensor_map_t made = {.addr = (uintptr_t)addr,
                         .rank = rank,
                         .data_type = data_type,
                         .interleave = interleave,
                         .swizzle = swizzle,
                         .promotion = promotion,
                         .fill = fill};
    memcpy(made.dims, dims, rank * sizeof *dims);
    memcpy(made.box, box, rank * sizeof *box);
    memcpy(made.element_strides, element_strides, rank * sizeof *element_strides);
    memset(map, 0, MAP_BYTES);
    memcpy(map, &made, sizeof made);
    return sim_leave(BERM_CU_SUCCESS);
}
