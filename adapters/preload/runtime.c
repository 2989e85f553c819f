// SPDX-License-Identifier: Apache-2.0
// The runtime's functions, for programs linked with a shared libcudart. One that carries its own
// copy of the runtime comes by the driver's functions instead (lookup.c), and so does a runtime
// that is opened by a program.
//
// An error that berm gives is kept for cudaGetLastError, as the runtime keeps its own.
#include "runtime.h"

#include "counts.h"
#include "peers.h"
#include "place.h"
#include "real.h"
#include "serve.h"
#include "share.h"

static _Thread_local preload_error_t last_error;

static preload_error_t finish(int result) {
    if (result != BERM_CU_SUCCESS)
        last_error = result;
    return result;
}

static void *pointer_of(berm_addr_t addr) {
    return (void *)(uintptr_t)addr; // NOLINT(performance-no-int-to-ptr): the interface wants it
}

static berm_addr_t addr_of(const void *pointer) {
    return (berm_addr_t)(uintptr_t)pointer;
}

static berm_cu_stream_t own_default(berm_cu_stream_t stream) {
    return stream == NULL ? BERM_CU_STREAM_PER_THREAD : stream;
}

// The runtime's own call, with what it asks of the driver left to the driver.
#define PASS(count, symbol, caller, ...)                                                           \
    __extension__({                                                                                \
        if (!serve_inside())                                                                       \
            preload_count(count, 1);                                                               \
        serve_enter();                                                                             \
        preload_error_t passed_ = REAL_RUNTIME(symbol, caller, __VA_ARGS__);                       \
        serve_leave();                                                                             \
        passed_;                                                                                   \
    })

// --- requests and frees --------------------------------------------------------------------------

preload_error_t cudaMalloc(void **addr, size_t bytes) {
    int result = BERM_CU_SUCCESS;
    berm_addr_t at = 0;
    const void *caller = PRELOAD_CALLER();
    if (addr != NULL && bytes != 0 && !serve_inside() &&
        serve_alloc(place_of_runtime(caller), bytes, BERM_STREAM_NONE, &at, &result)) {
        *addr = pointer_of(at);
        return finish(result);
    }
    return PASS(COUNT_PASSED, cudaMalloc, caller, addr, bytes);
}

preload_error_t cudaFree(void *addr) {
    int result = BERM_CU_SUCCESS;
    if (addr == NULL)
        return REAL_RUNTIME(cudaFree, PRELOAD_CALLER(), addr);
    if (serve_free(addr_of(addr), BERM_STREAM_NONE, &result))
        return finish(result);
    return PASS(COUNT_FREES_PASSED, cudaFree, PRELOAD_CALLER(), addr);
}

// The runtime's default streams are those of its own device's context.
static void bind_default(berm_cu_stream_t stream, const void *caller) {
    if (stream == NULL || stream == BERM_CU_STREAM_LEGACY || stream == BERM_CU_STREAM_PER_THREAD)
        (void)place_of_runtime(caller);
}

static bool malloc_async(void **addr, size_t bytes, berm_cu_stream_t stream, const void *caller,
                         int *result) {
    berm_addr_t at = 0;
    if (addr == NULL || bytes == 0 || serve_inside())
        return false;
    bind_default(stream, caller);
    if (!serve_alloc(serve_place_async(stream), bytes, stream, &at, result))
        return false;
    *addr = pointer_of(at);
    (void)finish(*result);
    return true;
}

preload_error_t cudaMallocAsync(void **addr, size_t bytes, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (malloc_async(addr, bytes, stream, PRELOAD_CALLER(), &result))
        return result;
    return PASS(COUNT_PASSED, cudaMallocAsync, PRELOAD_CALLER(), addr, bytes, stream);
}

preload_error_t cudaMallocAsync_ptsz(void **addr, size_t bytes, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (malloc_async(addr, bytes, own_default(stream), PRELOAD_CALLER(), &result))
        return result;
    return PASS(COUNT_PASSED, cudaMallocAsync_ptsz, PRELOAD_CALLER(), addr, bytes, stream);
}

static bool malloc_from_pool(void **addr, size_t bytes, berm_cu_mem_pool_t pool,
                             berm_cu_stream_t stream, const void *caller, int *result) {
    berm_addr_t at = 0;
    if (addr == NULL || bytes == 0 || serve_inside())
        return false;
    bind_default(stream, caller);
    if (!serve_alloc(serve_place_pool(pool, stream), bytes, stream, &at, result))
        return false;
    *addr = pointer_of(at);
    (void)finish(*result);
    return true;
}

preload_error_t cudaMallocFromPoolAsync(void **addr, size_t bytes, berm_cu_mem_pool_t pool,
                                        berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (malloc_from_pool(addr, bytes, pool, stream, PRELOAD_CALLER(), &result))
        return result;
    return PASS(COUNT_PASSED, cudaMallocFromPoolAsync, PRELOAD_CALLER(), addr, bytes, pool, stream);
}

preload_error_t cudaMallocFromPoolAsync_ptsz(void **addr, size_t bytes, berm_cu_mem_pool_t pool,
                                             berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (malloc_from_pool(addr, bytes, pool, own_default(stream), PRELOAD_CALLER(), &result))
        return result;
    return PASS(COUNT_PASSED, cudaMallocFromPoolAsync_ptsz, PRELOAD_CALLER(), addr, bytes, pool,
                stream);
}

preload_error_t cudaFreeAsync(void *addr, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (addr != NULL && serve_free_async(addr_of(addr), stream, &result))
        return finish(result);
    return PASS(COUNT_FREES_PASSED, cudaFreeAsync, PRELOAD_CALLER(), addr, stream);
}

preload_error_t cudaFreeAsync_ptsz(void *addr, berm_cu_stream_t stream) {
    int result = BERM_CU_SUCCESS;
    if (addr != NULL && serve_free_async(addr_of(addr), own_default(stream), &result))
        return finish(result);
    return PASS(COUNT_FREES_PASSED, cudaFreeAsync_ptsz, PRELOAD_CALLER(), addr, stream);
}

// --- questions -----------------------------------------------------------------------------------

preload_error_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    // What the driver's function below adds is added here once, whichever way the runtime asks it.
    serve_enter();
    int result = REAL_RUNTIME(cudaMemGetInfo, PRELOAD_CALLER(), free_bytes, total_bytes);
    serve_leave();
    if (result == BERM_CU_SUCCESS)
        share_free_bytes(place_current(), free_bytes, *total_bytes);
    return result;
}

preload_error_t cudaIpcGetMemHandle(berm_cu_ipc_mem_handle_t *handle, void *addr) {
    int result = BERM_CU_SUCCESS;
    if (share_handle(handle, addr_of(addr), &result))
        return finish(result);
    return REAL_RUNTIME(cudaIpcGetMemHandle, PRELOAD_CALLER(), handle, addr);
}

preload_error_t cudaGetLastError(void) {
    preload_error_t own = last_error, error = REAL_RUNTIME(cudaGetLastError, PRELOAD_CALLER());
    last_error = BERM_CU_SUCCESS;
    return own != BERM_CU_SUCCESS ? own : error;
}

preload_error_t cudaPeekAtLastError(void) {
    preload_error_t error = REAL_RUNTIME(cudaPeekAtLastError, PRELOAD_CALLER());
    return last_error != BERM_CU_SUCCESS ? last_error : error;
}

// --- told to berm --------------------------------------------------------------------------------

preload_error_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    const void *caller = PRELOAD_CALLER();
    int result = REAL_RUNTIME(cudaDeviceEnablePeerAccess, caller, peer, flags);
    if (result != BERM_CU_SUCCESS && result != BERM_CU_PEER_ACCESS_ALREADY_ENABLED)
        return result;
    int told = peers_enable(peer, place_of_runtime(caller));
    if (told == BERM_CU_SUCCESS)
        return result;
    if (result == BERM_CU_SUCCESS)
        (void)REAL_RUNTIME(cudaDeviceDisablePeerAccess, caller, peer);
    return finish(told);
}

preload_error_t cudaDeviceDisablePeerAccess(int peer) {
    const void *caller = PRELOAD_CALLER();
    int result = REAL_RUNTIME(cudaDeviceDisablePeerAccess, caller, peer);
    if (result == BERM_CU_SUCCESS)
        peers_disable(peer, place_of_runtime(caller));
    return result;
}

preload_error_t cudaMemPoolSetAccess(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access,
                                     size_t count) {
    int result = REAL_RUNTIME(cudaMemPoolSetAccess, PRELOAD_CALLER(), pool, access, count);
    return result == BERM_CU_SUCCESS ? finish(peers_of_pool(pool, access, count)) : result;
}

preload_error_t cudaStreamDestroy(berm_cu_stream_t stream) {
    serve_stream_ends(stream);
    return REAL_RUNTIME(cudaStreamDestroy, PRELOAD_CALLER(), stream);
}

preload_error_t cudaStreamBeginCapture(berm_cu_stream_t stream, int mode) {
    serve_capture_begins(stream);
    return REAL_RUNTIME(cudaStreamBeginCapture, PRELOAD_CALLER(), stream, mode);
}

preload_error_t cudaStreamBeginCapture_ptsz(berm_cu_stream_t stream, int mode) {
    serve_capture_begins(own_default(stream));
    return REAL_RUNTIME(cudaStreamBeginCapture_ptsz, PRELOAD_CALLER(), stream, mode);
}

preload_error_t cudaStreamBeginCaptureToGraph(berm_cu_stream_t stream, berm_cu_graph_t graph,
                                              const berm_cu_graph_node_t *dependencies,
                                              const void *edges, size_t count, int mode) {
    serve_capture_begins(stream);
    return REAL_RUNTIME(cudaStreamBeginCaptureToGraph, PRELOAD_CALLER(), stream, graph,
                        dependencies, edges, count, mode);
}

preload_error_t cudaStreamBeginCaptureToGraph_ptsz(berm_cu_stream_t stream, berm_cu_graph_t graph,
                                                   const berm_cu_graph_node_t *dependencies,
                                                   const void *edges, size_t count, int mode) {
    serve_capture_begins(own_default(stream));
    return REAL_RUNTIME(cudaStreamBeginCaptureToGraph_ptsz, PRELOAD_CALLER(), stream, graph,
                        dependencies, edges, count, mode);
}

preload_error_t cudaDeviceReset(void) {
    serve_reset(place_of_runtime(PRELOAD_CALLER()));
    return REAL_RUNTIME(cudaDeviceReset, PRELOAD_CALLER());
}
