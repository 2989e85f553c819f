// SPDX-License-Identifier: Apache-2.0
// Streams and stream captures of the stand-in runtime.
//
// Locks: none here. May fail: as the driver; out parameters are cleared first.
#include <stdlib.h>

#include "simcuda/runtime/runtime.h"

cudart_error_t cudaStreamCreate(berm_cu_stream_t *stream) {
    return RT_DRIVER(cuStreamCreate(stream, BERM_CU_STREAM_DEFAULT));
}

cudart_error_t cudaStreamCreateWithFlags(berm_cu_stream_t *stream, unsigned flags) {
    return RT_DRIVER(cuStreamCreate(stream, flags));
}

cudart_error_t cudaStreamCreateWithPriority(berm_cu_stream_t *stream, unsigned flags,
                                            int priority) {
    return RT_DRIVER(cuStreamCreateWithPriority(stream, flags, priority));
}

cudart_error_t cudaStreamDestroy(berm_cu_stream_t stream) {
    return RT_DRIVER(cuStreamDestroy_v2(stream));
}

cudart_error_t cudaStreamSynchronize(berm_cu_stream_t stream) {
    return RT_DRIVER(cuStreamSynchronize(stream));
}

cudart_error_t cudaStreamQuery(berm_cu_stream_t stream) {
    return RT_DRIVER(cuStreamQuery(stream));
}

cudart_error_t cudaStreamWaitEvent(berm_cu_stream_t stream, berm_cu_event_t event, unsigned flags) {
    return RT_DRIVER(cuStreamWaitEvent(stream, event, flags));
}

cudart_error_t cudaStreamGetId(berm_cu_stream_t stream, unsigned long long *id) {
    if (id != NULL)
        *id = 0;
    return RT_DRIVER(cuStreamGetId(stream, id));
}

cudart_error_t cudaStreamGetPriority(berm_cu_stream_t stream, int *priority) {
    if (priority != NULL)
        *priority = 0;
    return RT_DRIVER(cuStreamGetPriority(stream, priority));
}

cudart_error_t cudaStreamGetFlags(berm_cu_stream_t stream, unsigned *flags) {
    if (flags != NULL)
        *flags = 0;
    return RT_DRIVER(cuStreamGetFlags(stream, flags));
}

cudart_error_t cudaLaunchHostFunc(berm_cu_stream_t stream, berm_cu_host_fn fn, void *user_data) {
    return RT_DRIVER(cuLaunchHostFunc(stream, fn, user_data));
}

// A callback that is told the stream and its state; run as a host function.
typedef struct callback {
    cudart_stream_callback_fn fn;
    berm_cu_stream_t stream;
    void *data;
} callback_t;

static void callback_run(void *argument) {
    callback_t callback = *(callback_t *)argument;
    free(argument);
    callback.fn(callback.stream, BERM_CU_SUCCESS, callback.data);
}

cudart_error_t cudaStreamAddCallback(berm_cu_stream_t stream, cudart_stream_callback_fn fn,
                                     void *data, unsigned flags) {
    if (fn == NULL || flags != 0)
        return rt_finish(BERM_CU_INVALID_VALUE);
    callback_t *callback = malloc(sizeof *callback);
    if (callback == NULL)
        return rt_finish(BERM_CU_OUT_OF_MEMORY);
    *callback = (callback_t){.fn = fn, .stream = stream, .data = data};
    int result = RT_DRIVER(cuLaunchHostFunc(stream, callback_run, callback));
    if (result != BERM_CU_SUCCESS)
        free(callback);
    return result;
}

// --- captures ------------------------------------------------------------------------------------

cudart_error_t cudaStreamIsCapturing(berm_cu_stream_t stream, int *status) {
    if (status != NULL)
        *status = BERM_CU_CAPTURE_STATUS_NONE;
    return RT_DRIVER(cuStreamIsCapturing(stream, status));
}

cudart_error_t cudaStreamBeginCapture(berm_cu_stream_t stream, int mode) {
    return RT_DRIVER(cuStreamBeginCapture_v2(stream, mode));
}

cudart_error_t cudaStreamEndCapture(berm_cu_stream_t stream, berm_cu_graph_t *graph) {
    if (graph != NULL)
        *graph = NULL;
    return RT_DRIVER(cuStreamEndCapture(stream, graph));
}

cudart_error_t cudaStreamGetCaptureInfo(berm_cu_stream_t stream, int *status,
                                        unsigned long long *id, berm_cu_graph_t *graph,
                                        const berm_cu_graph_node_t **dependencies,
                                        const void **edges, size_t *count) {
    if (status == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    uint64_t number = 0;
    *status = BERM_CU_CAPTURE_STATUS_NONE;
    int result = RT_DRIVER(
        cuStreamGetCaptureInfo_v3(stream, status, &number, graph, dependencies, edges, count));
    if (id != NULL)
        *id = number;
    return result;
}

cudart_error_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    return RT_DRIVER(cuThreadExchangeStreamCaptureMode(mode));
}

cudart_error_t cudaStreamUpdateCaptureDependencies(berm_cu_stream_t stream,
                                                   berm_cu_graph_node_t *dependencies,
                                                   const void *edges, size_t count,
                                                   unsigned flags) {
    return RT_DRIVER(
        cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags));
}
