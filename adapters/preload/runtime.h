// SPDX-License-Identifier: Apache-2.0
// The runtime's functions that this library defines, with the binary interface of libcudart 11 to
// 13. Errors of the runtime are the driver's numbers, and its handles are the driver's.
#ifndef PRELOAD_RUNTIME_H
#define PRELOAD_RUNTIME_H

#include "base/cuda_abi.h"
#include "base/defs.h"

typedef int preload_error_t; // cudaError_t

// clang-format off
#define PRELOAD_API BERM_EXPORT preload_error_t
PRELOAD_API cudaMalloc(void **addr, size_t bytes);
PRELOAD_API cudaFree(void *addr);
PRELOAD_API cudaMallocAsync(void **addr, size_t bytes, berm_cu_stream_t stream);
PRELOAD_API cudaMallocAsync_ptsz(void **addr, size_t bytes, berm_cu_stream_t stream);
PRELOAD_API cudaMallocFromPoolAsync(void **addr, size_t bytes, berm_cu_mem_pool_t pool, berm_cu_stream_t stream);
PRELOAD_API cudaMallocFromPoolAsync_ptsz(void **addr, size_t bytes, berm_cu_mem_pool_t pool, berm_cu_stream_t stream);
PRELOAD_API cudaFreeAsync(void *addr, berm_cu_stream_t stream);
PRELOAD_API cudaFreeAsync_ptsz(void *addr, berm_cu_stream_t stream);
PRELOAD_API cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
PRELOAD_API cudaIpcGetMemHandle(berm_cu_ipc_mem_handle_t *handle, void *addr);
PRELOAD_API cudaDeviceEnablePeerAccess(int peer, unsigned flags);
PRELOAD_API cudaDeviceDisablePeerAccess(int peer);
PRELOAD_API cudaMemPoolSetAccess(berm_cu_mem_pool_t pool, const berm_cu_mem_access_t *access, size_t count);
PRELOAD_API cudaStreamDestroy(berm_cu_stream_t stream);
PRELOAD_API cudaStreamBeginCapture(berm_cu_stream_t stream, int mode);
PRELOAD_API cudaStreamBeginCapture_ptsz(berm_cu_stream_t stream, int mode);
PRELOAD_API cudaStreamBeginCaptureToGraph(berm_cu_stream_t stream, berm_cu_graph_t graph,
    const berm_cu_graph_node_t *dependencies, const void *edges, size_t count, int mode);
PRELOAD_API cudaStreamBeginCaptureToGraph_ptsz(berm_cu_stream_t stream, berm_cu_graph_t graph,
    const berm_cu_graph_node_t *dependencies, const void *edges, size_t count, int mode);
PRELOAD_API cudaDeviceReset(void);
PRELOAD_API cudaGetLastError(void);
PRELOAD_API cudaPeekAtLastError(void);
PRELOAD_API cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags, int *status);
PRELOAD_API cudaGetDriverEntryPoint_ptsz(const char *symbol, void **fn, unsigned long long flags, int *status);
PRELOAD_API cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned version,
    unsigned long long flags, int *status);
PRELOAD_API cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **fn, unsigned version,
    unsigned long long flags, int *status);
#undef PRELOAD_API
// clang-format on

#endif
