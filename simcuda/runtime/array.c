// SPDX-License-Identifier: Apache-2.0
// Arrays of the stand-in runtime, by the driver's calls. An array's handle is the driver's.
//
// Locks: none here. May fail: as the driver.
#include "simcuda/runtime/runtime.h"

// cudaChannelFormatKind: signed, unsigned, float.
static int format_of(const cudart_channel_t *channel) {
    static const int formats[3][3] = {
        {BERM_CU_FORMAT_SINT8, BERM_CU_FORMAT_SINT16, BERM_CU_FORMAT_SINT32},
        {BERM_CU_FORMAT_UINT8, BERM_CU_FORMAT_UINT16, BERM_CU_FORMAT_UINT32},
        {0, BERM_CU_FORMAT_HALF, BERM_CU_FORMAT_FLOAT},
    };
    int size = channel->x == 8 ? 0 : channel->x == 16 ? 1 : channel->x == 32 ? 2 : -1;
    bool is_known = channel->kind >= 0 && channel->kind < 3 && size >= 0;
    return is_known ? formats[channel->kind][size] : 0;
}

static int describe(berm_cu_array3d_t *description, const cudart_channel_t *channel,
                    cudart_extent_t extent, unsigned flags) {
    if (channel == NULL)
        return BERM_CU_INVALID_VALUE;
    const int bits[] = {channel->x, channel->y, channel->z, channel->w};
    *description = (berm_cu_array3d_t){.width = extent.width,
                                       .height = extent.height,
                                       .depth = extent.depth,
                                       .format = format_of(channel),
                                       .flags = flags};
    while (description->channels < 4 && bits[description->channels] != 0)
        if (bits[description->channels++] != channel->x)
            return BERM_CU_INVALID_VALUE;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaMalloc3DArray(void **array, const cudart_channel_t *channel,
                                 cudart_extent_t extent, unsigned flags) {
    berm_cu_array3d_t description;
    if (array == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *array = NULL;
    int result = describe(&description, channel, extent, flags);
    if (result != BERM_CU_SUCCESS)
        return rt_finish(result);
    return RT_DRIVER(cuArray3DCreate_v2(array, &description));
}

cudart_error_t cudaMallocArray(void **array, const cudart_channel_t *channel, size_t width,
                               size_t height, unsigned flags) {
    return cudaMalloc3DArray(array, channel, (cudart_extent_t){width, height, 0}, flags);
}

cudart_error_t cudaMallocMipmappedArray(void **array, const cudart_channel_t *channel,
                                        cudart_extent_t extent, unsigned levels, unsigned flags) {
    berm_cu_array3d_t description;
    if (array == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *array = NULL;
    int result = describe(&description, channel, extent, flags);
    if (result != BERM_CU_SUCCESS)
        return rt_finish(result);
    return RT_DRIVER(cuMipmappedArrayCreate(array, &description, levels));
}

cudart_error_t cudaFreeArray(void *array) {
    return array == NULL ? BERM_CU_SUCCESS : RT_DRIVER(cuArrayDestroy(array));
}

cudart_error_t cudaFreeMipmappedArray(void *array) {
    return array == NULL ? BERM_CU_SUCCESS : RT_DRIVER(cuMipmappedArrayDestroy(array));
}
