// SPDX-License-Identifier: Apache-2.0
// The per-thread twins of functions that take a stream: for programs compiled so that the NULL
// stream is each thread's own. They differ in what NULL means and in nothing else; a call counts
// as one of the plain function.
#include "sim.h"

static berm_cu_stream_t twin(berm_cu_stream_t stream) {
    return stream == NULL ? BERM_CU_STREAM_PER_THREAD : stream;
}

berm_cu_result_t cuStreamSynchronize_ptsz(berm_cu_stream_t stream) {
    return cuStreamSynchronize(twin(stream));
}

berm_cu_result_t cuStreamQuery_ptsz(berm_cu_stream_t stream) {
    return cuStreamQuery(twin(stream));
}

berm_cu_result_t cuStreamWaitEvent_ptsz(berm_cu_stream_t stream, berm_cu_event_t event,
                                        unsigned flags) {
    return cuStreamWaitEvent(twin(stream), event, flags);
}

berm_cu_result_t cuStreamGetId_ptsz(berm_cu_stream_t stream, unsigned long long *id) {
    return cuStreamGetId(twin(stream), id);
}

berm_cu_result_t cuStreamGetCtx_ptsz(berm_cu_stream_t stream, berm_cu_context_t *context) {
    return cuStreamGetCtx(twin(stream), context);
}

berm_cu_result_t cuStreamGetFlags_ptsz(berm_cu_stream_t stream, unsigned *flags) {
    return cuStreamGetFlags(twin(stream), flags);
}

berm_cu_result_t cuStreamGetPriority_ptsz(berm_cu_stream_t stream, int *priority) {
    return cuStreamGetPriority(twin(stream), priority);
}

berm_cu_result_t cuStreamIsCapturing_ptsz(berm_cu_stream_t stream, int *status) {
    return cuStreamIsCapturing(twin(stream), status);
}

berm_cu_result_t cuStreamBeginCapture_v2_ptsz(berm_cu_stream_t stream, int mode) {
    return cuStreamBeginCapture_v2(twin(stream), mode);
}

berm_cu_result_t cuStreamEndCapture_ptsz(berm_cu_stream_t stream, berm_cu_graph_t *graph) {
    return cuStreamEndCapture(twin(stream), graph);
}

berm_cu_result_t cuStreamGetCaptureInfo_v2_ptsz(berm_cu_stream_t stream, int *status, uint64_t *id,
                                                berm_cu_graph_t *graph,
                                                const berm_cu_graph_node_t **dependencies,
                                                size_t *dependency_count) {
    return cuStreamGetCaptureInfo_v2(twin(stream), status, id, graph, dependencies,
                                     dependency_count);
}

berm_cu_result_t cuStreamGetCaptureInfo_v3_ptsz(berm_cu_stream_t stream, int *status, uint64_t *id,
                                                berm_cu_graph_t *graph,
                                                const berm_cu_graph_node_t **dependencies,
                                                const void **edges, size_t *dependency_count) {
    return cuStreamGetCaptureInfo_v3(twin(stream), status, id, graph, dependencies, edges,
                                     dependency_count);
}

berm_cu_result_t cuLaunchHostFunc_ptsz(berm_cu_stream_t stream, berm_cu_host_fn fn,
                                       void *user_data) {
    return cuLaunchHostFunc(twin(stream), fn, user_data);
}

berm_cu_result_t cuEventRecord_ptsz(berm_cu_event_t event, berm_cu_stream_t stream) {
    return cuEventRecord(event, twin(stream));
}

berm_cu_result_t cuMemcpyAsync_ptsz(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes,
                                    berm_cu_stream_t stream) {
    return cuMemcpyAsync(to, from, bytes, twin(stream));
}

berm_cu_result_t cuMemcpyDtoDAsync_v2_ptsz(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from,
                                           size_t bytes, berm_cu_stream_t stream) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, twin(stream));
}

berm_cu_result_t cuMemcpyHtoDAsync_v2_ptsz(berm_cu_deviceptr_t to, const void *from, size_t bytes,
                                           berm_cu_stream_t stream) {
    return cuMemcpyHtoDAsync_v2(to, from, bytes, twin(stream));
}

berm_cu_result_t cuMemcpyDtoHAsync_v2_ptsz(void *to, berm_cu_deviceptr_t from, size_t bytes,
                                           berm_cu_stream_t stream) {
    return cuMemcpyDtoHAsync_v2(to, from, bytes, twin(stream));
}

berm_cu_result_t cuMemsetD8Async_ptsz(berm_cu_deviceptr_t to, unsigned char value, size_t bytes,
                                      berm_cu_stream_t stream) {
    return cuMemsetD8Async(to, value, bytes, twin(stream));
}

berm_cu_result_t cuEventRecordWithFlags_ptsz(berm_cu_event_t event, berm_cu_stream_t stream,
                                             unsigned flags) {
    return cuEventRecordWithFlags(event, twin(stream), flags);
}

berm_cu_result_t cuMemcpyPeerAsync_ptsz(berm_cu_deviceptr_t to, berm_cu_context_t to_context,
                                        berm_cu_deviceptr_t from, berm_cu_context_t from_context,
                                        size_t bytes, berm_cu_stream_t stream) {
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, twin(stream));
}

berm_cu_result_t cuMemAllocAsync_ptsz(berm_cu_deviceptr_t *addr, size_t bytes,
                                      berm_cu_stream_t stream) {
    return cuMemAllocAsync(addr, bytes, twin(stream));
}

berm_cu_result_t cuMemAllocFromPoolAsync_ptsz(berm_cu_deviceptr_t *addr, size_t bytes,
                                              berm_cu_mem_pool_t pool, berm_cu_stream_t stream) {
    return cuMemAllocFromPoolAsync(addr, bytes, pool, twin(stream));
}

berm_cu_result_t cuMemFreeAsync_ptsz(berm_cu_deviceptr_t addr, berm_cu_stream_t stream) {
    return cuMemFreeAsync(addr, twin(stream));
}

berm_cu_result_t cuGraphLaunch_ptsz(berm_cu_graph_exec_t exec, berm_cu_stream_t stream) {
    return cuGraphLaunch(exec, twin(stream));
}

berm_cu_result_t cuStreamUpdateCaptureDependencies_ptsz(berm_cu_stream_t stream,
                                                        berm_cu_graph_node_t *nodes, size_t count,
                                                        unsigned flags) {
    return cuStreamUpdateCaptureDependencies(twin(stream), nodes, count, flags);
}

berm_cu_result_t cuStreamUpdateCaptureDependencies_v2_ptsz(berm_cu_stream_t stream,
                                                           berm_cu_graph_node_t *nodes,
                                                           const void *edges, size_t count,
                                                           unsigned flags) {
    return cuStreamUpdateCaptureDependencies_v2(twin(stream), nodes, edges, count, flags);
}

berm_cu_result_t cuLaunchKernel_ptsz(sim_cu_function_t function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes,
                                     berm_cu_stream_t stream, void **parameters, void **extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          twin(stream), parameters, extra);
}

berm_cu_result_t cuLaunchCooperativeKernel_ptsz(sim_cu_function_t function, unsigned grid_x,
                                                unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                unsigned block_y, unsigned block_z,
                                                unsigned shared_bytes, berm_cu_stream_t stream,
                                                void **parameters) {
    return cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                     shared_bytes, twin(stream), parameters);
}

berm_cu_result_t cuLaunchKernelEx_ptsz(const sim_cu_launch_config_t *config,
                                       sim_cu_function_t function, void **parameters,
                                       void **extra) {
    if (config == NULL)
        return cuLaunchKernelEx(NULL, function, parameters, extra);
    sim_cu_launch_config_t with_twin = *config;
    with_twin.stream = twin(config->stream);
    return cuLaunchKernelEx(&with_twin, function, parameters, extra);
}

berm_cu_result_t cuMemsetD16Async_ptsz(berm_cu_deviceptr_t to, unsigned short value, size_t count,
                                       berm_cu_stream_t stream) {
    return cuMemsetD16Async(to, value, count, twin(stream));
}

berm_cu_result_t cuMemsetD32Async_ptsz(berm_cu_deviceptr_t to, unsigned value, size_t count,
                                       berm_cu_stream_t stream) {
    return cuMemsetD32Async(to, value, count, twin(stream));
}
