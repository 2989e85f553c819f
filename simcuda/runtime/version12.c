// SPDX-License-Identifier: Apache-2.0
// What only libcudart.so.12 has: forms of functions that CUDA 13 took away or changed. The forms
// that stayed are in the other files, under the names that cudart.h gives them for 12.
//
// Locks: none. May fail: as the forms that stayed.
#include "simcuda/runtime/runtime.h"

#if CUDART_MAJOR < 13

#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies
#undef cudaGraphNodeGetDependencies

// clang-format off
#define CUDART_API BERM_EXPORT cudart_error_t
CUDART_API cudaStreamGetCaptureInfo(berm_cu_stream_t stream, int *status, unsigned long long *id);
CUDART_API cudaStreamGetCaptureInfo_v2(berm_cu_stream_t stream, int *status, unsigned long long *id,
    berm_cu_graph_t *graph, const berm_cu_graph_node_t **dependencies, size_t *count);
CUDART_API cudaStreamUpdateCaptureDependencies(berm_cu_stream_t stream, berm_cu_graph_node_t *dependencies,
    size_t count, unsigned flags);
CUDART_API cudaGraphNodeGetDependencies(berm_cu_graph_node_t node, berm_cu_graph_node_t *dependencies,
    size_t *count);
CUDART_API cudaEventElapsedTime_v2(float *ms, berm_cu_event_t start, berm_cu_event_t end);
#undef CUDART_API
// clang-format on

cudart_error_t cudaStreamGetCaptureInfo(berm_cu_stream_t stream, int *status,
                                        unsigned long long *id) {
    return cudaStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

cudart_error_t cudaStreamGetCaptureInfo_v2(berm_cu_stream_t stream, int *status,
                                           unsigned long long *id, berm_cu_graph_t *graph,
                                           const berm_cu_graph_node_t **dependencies,
                                           size_t *count) {
    return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

cudart_error_t cudaStreamUpdateCaptureDependencies(berm_cu_stream_t stream,
                                                   berm_cu_graph_node_t *dependencies, size_t count,
                                                   unsigned flags) {
    return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}

cudart_error_t cudaGraphNodeGetDependencies(berm_cu_graph_node_t node,
                                            berm_cu_graph_node_t *dependencies, size_t *count) {
    return cudaGraphNodeGetDependencies_v2(node, dependencies, NULL, count);
}

cudart_error_t cudaEventElapsedTime_v2(float *ms, berm_cu_event_t start, berm_cu_event_t end) {
    return cudaEventElapsedTime(ms, start, end);
}

#endif
