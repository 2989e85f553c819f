// SPDX-License-Identifier: Apache-2.0
// The driver's functions that berm answers or is told of. Each tries berm, and calls the driver's
// own for the rest; so a null pointer, a size of 0, an unknown address and a missing context get
// the driver's own answer.
#include "driver.h"

#include "counts.h"
#include "place.h"
#include "real.h"
#include "room.h"
#include "serve.h"
#include "share.h"

// A default stream of each thread's own is handle 0 for programs compiled so.
static berm_cu_stream_t own_default(berm_cu_stream_t stream) {
    return stream == NULL ? BERM_CU_STREAM_PER_THREAD : stream;
}

static void count_passed(preload_count_t kind) {
    if (!serve_inside())
        preload_count(kind, 1);
}

// --- requests ------------------------------------------------------------------------------------

berm_cu_result_t cuMemAlloc_v2(berm_cu_deviceptr_t *addr, size_t bytes) {
    int result = BERM_CU_SUCCESS;
    if (addr != NULL && bytes != 0 && !serve_inside() &&
        serve_alloc(place_current(), bytes, BERM_STREAM_NONE, addr, &result))
        return result;
    count_passed(COUNT_PASSED);
    return ROOM_TRY(REAL_DRIVER(cuMemAlloc_v2, addr, bytes));
}

berm_cu_result_t cuMemAllocAsync(berm_cu_deviceptr_t *addr, size_t bytes, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (addr != NULL && bytes != 0 && !serve_inside() &&
        serve_alloc(serve_place_async(stream), bytes, stream, addr, &result))
        return result;
    count_passed(COUNT_PASSED);
    return ROOM_TRY(REAL_DRIVER(cuMemAllocAsync, addr, bytes, stream));
}

berm_cu_result_t cuMemAllocAsync_ptsz(berm_cu_deviceptr_t *addr, size_t bytes,
                                      berm_cu_stream_t stream) {
    return cuMemAllocAsync(addr, bytes, own_default(stream));
}

berm_cu_result_t cuMemAllocFromPoolAsync(berm_cu_deviceptr_t *addr, size_t bytes,
                                         berm_cu_mem_pool_t pool, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (addr != NULL && bytes != 0 && !serve_inside() &&
        serve_alloc(serve_place_pool(pool, stream), bytes, stream, addr, &result))
        return result;
    count_passed(COUNT_PASSED);
    return ROOM_TRY(REAL_DRIVER(cuMemAllocFromPoolAsync, addr, bytes, pool, stream));
}

berm_cu_result_t cuMemAllocFromPoolAsync_ptsz(berm_cu_deviceptr_t *addr, size_t bytes,
                                              berm_cu_mem_pool_t pool, berm_cu_stream_t stream) {
    return cuMemAllocFromPoolAsync(addr, bytes, pool, own_default(stream));
}

// --- frees ---------------------------------------------------------------------------------------

berm_cu_result_t cuMemFree_v2(berm_cu_deviceptr_t addr) {
    int result = BERM_CU_SUCCESS;
    if (addr != 0 && serve_free(addr, BERM_STREAM_NONE, &result))
        return result;
    count_passed(COUNT_FREES_PASSED);
    return REAL_DRIVER(cuMemFree_v2, addr);
}

berm_cu_result_t cuMemFreeAsync(berm_cu_deviceptr_t addr, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (addr != 0 && serve_free_async(addr, stream, &result))
        return result;
    count_passed(COUNT_FREES_PASSED);
    return REAL_DRIVER(cuMemFreeAsync, addr, stream);
}

berm_cu_result_t cuMemFreeAsync_ptsz(berm_cu_deviceptr_t addr, berm_cu_stream_t stream) {
    return cuMemFreeAsync(addr, own_default(stream));
}

// --- questions -----------------------------------------------------------------------------------

berm_cu_result_t cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    int result = REAL_DRIVER(cuMemGetInfo_v2, free_bytes, total_bytes);
    if (result == BERM_CU_SUCCESS && !serve_inside())
        share_free_bytes(place_current(), free_bytes, *total_bytes);
    return result;
}

berm_cu_result_t cuMemGetAddressRange_v2(berm_cu_deviceptr_t *base, size_t *bytes,
                                         berm_cu_deviceptr_t addr) {
    if (share_range(base, bytes, addr))
        return BERM_CU_SUCCESS;
    return REAL_DRIVER(cuMemGetAddressRange_v2, base, bytes, addr);
}

berm_cu_result_t cuIpcGetMemHandle(berm_cu_ipc_mem_handle_t *handle, berm_cu_deviceptr_t addr) {
    int result = BERM_CU_SUCCESS;
    if (share_handle(handle, addr, &result))
        return result;
    return REAL_DRIVER(cuIpcGetMemHandle, handle, addr);
}

// --- streams and contexts ------------------------------------------------------------------------

berm_cu_result_t cuStreamDestroy_v2(berm_cu_stream_t stream) {
    serve_stream_ends(stream);
    return REAL_DRIVER(cuStreamDestroy_v2, stream);
}

berm_cu_result_t cuStreamBeginCapture_v2(berm_cu_stream_t stream, int mode) {
    serve_capture_begins(stream);
    return REAL_DRIVER(cuStreamBeginCapture_v2, stream, mode);
}

berm_cu_result_t cuStreamBeginCapture_v2_ptsz(berm_cu_stream_t stream, int mode) {
    return cuStreamBeginCapture_v2(own_default(stream), mode);
}

berm_cu_result_t cuStreamBeginCaptureToGraph(berm_cu_stream_t stream, berm_cu_graph_t graph,
                                             const berm_cu_graph_node_t *dependencies,
                                             const void *edges, size_t count, int mode) {
    serve_capture_begins(stream);
    return REAL_DRIVER(cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count,
                       mode);
}

berm_cu_result_t cuStreamBeginCaptureToGraph_ptsz(berm_cu_stream_t stream, berm_cu_graph_t graph,
                                                  const berm_cu_graph_node_t *dependencies,
                                                  const void *edges, size_t count, int mode) {
    return cuStreamBeginCaptureToGraph(own_default(stream), graph, dependencies, edges, count,
                                       mode);
}

berm_cu_result_t cuDevicePrimaryCtxReset(berm_cu_device_t device) {
    serve_reset(device);
    return REAL_DRIVER(cuDevicePrimaryCtxReset, device);
}

berm_cu_result_t cuDevicePrimaryCtxReset_v2(berm_cu_device_t device) {
    serve_reset(device);
    return REAL_DRIVER(cuDevicePrimaryCtxReset_v2, device);
}
