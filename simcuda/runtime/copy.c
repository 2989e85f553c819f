// SPDX-License-Identifier: Apache-2.0
// Copies and fills of the stand-in runtime. The kind decides which of the driver's copies is made;
// "default" looks at the pointers, as unified addressing does.
//
// Locks: none here. May fail: as the driver.
#include "simcuda/runtime/runtime.h"

static bool is_device(const void *addr) {
    int device = 0;
    int result = cuPointerGetAttribute(&device, BERM_CU_POINTER_DEVICE_ORDINAL, rt_addr(addr));
    if (rt_bind(result))
        result = cuPointerGetAttribute(&device, BERM_CU_POINTER_DEVICE_ORDINAL, rt_addr(addr));
    return result == BERM_CU_SUCCESS;
}

static int copy_kind(const void *to, const void *from, int kind) {
    if (kind != CUDART_COPY_DEFAULT)
        return kind;
    if (is_device(to))
        return is_device(from) ? CUDART_COPY_DEVICE_TO_DEVICE : CUDART_COPY_HOST_TO_DEVICE;
    return is_device(from) ? CUDART_COPY_DEVICE_TO_HOST : CUDART_COPY_HOST_TO_HOST;
}

cudart_error_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    if (to == NULL || from == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    switch (copy_kind(to, from, kind)) {
    case CUDART_COPY_HOST_TO_HOST:
        memmove(to, from, bytes);
        return BERM_CU_SUCCESS;
    case CUDART_COPY_HOST_TO_DEVICE:
        return RT_DRIVER(cuMemcpyHtoD_v2(rt_addr(to), from, bytes));
    case CUDART_COPY_DEVICE_TO_HOST:
        return RT_DRIVER(cuMemcpyDtoH_v2(to, rt_addr(from), bytes));
    case CUDART_COPY_DEVICE_TO_DEVICE:
        return RT_DRIVER(cuMemcpyDtoD_v2(rt_addr(to), rt_addr(from), bytes));
    default:
        return rt_finish(BERM_CU_INVALID_VALUE);
    }
}

cudart_error_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                               berm_cu_stream_t stream) {
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    if (to == NULL || from == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    switch (copy_kind(to, from, kind)) {
    case CUDART_COPY_HOST_TO_HOST: {
        int result = RT_DRIVER(cuStreamSynchronize(stream));
        if (result == BERM_CU_SUCCESS)
            memmove(to, from, bytes);
        return result;
    }
    case CUDART_COPY_HOST_TO_DEVICE:
        return RT_DRIVER(cuMemcpyHtoDAsync_v2(rt_addr(to), from, bytes, stream));
    case CUDART_COPY_DEVICE_TO_HOST:
        return RT_DRIVER(cuMemcpyDtoHAsync_v2(to, rt_addr(from), bytes, stream));
    case CUDART_COPY_DEVICE_TO_DEVICE:
        return RT_DRIVER(cuMemcpyDtoDAsync_v2(rt_addr(to), rt_addr(from), bytes, stream));
    default:
        return rt_finish(BERM_CU_INVALID_VALUE);
    }
}

// A copy of `height` rows of `width` bytes; rows that lie together are one copy.
cudart_error_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                 size_t width, size_t height, int kind, berm_cu_stream_t stream) {
    if (width > to_pitch || width > from_pitch)
        return rt_finish(CUDART_INVALID_PITCH);
    if (width == to_pitch && width == from_pitch)
        return cudaMemcpyAsync(to, from, width * height, kind, stream);
    for (size_t row = 0; row < height; row++) {
        int result =
            cudaMemcpyAsync(rt_pointer(rt_addr(to) + row * to_pitch),
                            rt_pointer(rt_addr(from) + row * from_pitch), width, kind, stream);
        if (result != BERM_CU_SUCCESS)
            return result;
    }
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t width, size_t height, int kind) {
    int result = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL);
    return result != BERM_CU_SUCCESS ? result : cudaStreamSynchronize(NULL);
}

cudart_error_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                   size_t bytes, berm_cu_stream_t stream) {
    int count = 0;
    int result = RT_DRIVER(cuDeviceGetCount(&count));
    if (result != BERM_CU_SUCCESS)
        return result;
    if (to_device < 0 || to_device >= count || from_device < 0 || from_device >= count)
        return rt_finish(BERM_CU_INVALID_DEVICE);
    return cudaMemcpyAsync(to, from, bytes, CUDART_COPY_DEVICE_TO_DEVICE, stream);
}

cudart_error_t cudaMemset(void *to, int value, size_t bytes) {
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    return RT_DRIVER(cuMemsetD8_v2(rt_addr(to), (unsigned char)value, bytes));
}

cudart_error_t cudaMemsetAsync(void *to, int value, size_t bytes, berm_cu_stream_t stream) {
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    return RT_DRIVER(cuMemsetD8Async(rt_addr(to), (unsigned char)value, bytes, stream));
}

cudart_error_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                              size_t bytes) {
    int result = cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
    return result != BERM_CU_SUCCESS ? result : cudaStreamSynchronize(NULL);
}
