// SPDX-License-Identifier: Apache-2.0
// See capture.h.
#include "tests/support/capture.h"

#include <string.h>

#include "base/cuda_abi.h"
#include "tests/support/simcuda_forward.h"

// A fault that is meant for berm may hit a test's own call: the second try counts.
#define CALL_TWICE(type, symbol, ...)                                                              \
    do {                                                                                           \
        type function_;                                                                            \
        void *found_ = simcuda_symbol(symbol);                                                     \
        memcpy(&function_, &found_, sizeof function_);                                             \
        HEAP_INSIST(function_(__VA_ARGS__) == BERM_CU_SUCCESS ||                                   \
                    function_(__VA_ARGS__) == BERM_CU_SUCCESS);                                    \
    } while (0)

void heap_capture_begin(void *stream, int mode) {
    CALL_TWICE(berm_cu_stream_begin_capture_fn, "cuStreamBeginCapture_v2", stream, mode);
}

void heap_capture_fork(void *other, void *stream) {
    heap_stream_follow(other, stream);
}

int heap_capture_is_whole(void *stream) {
    int status = BERM_CU_CAPTURE_STATUS_NONE;
    CALL_TWICE(berm_cu_stream_is_capturing_fn, "cuStreamIsCapturing", stream, &status);
    return status == BERM_CU_CAPTURE_STATUS_ACTIVE;
}

void *heap_capture_end(void *stream) {
    berm_cu_graph_t graph = NULL;
    berm_cu_graph_exec_t exec = NULL;
    CALL_TWICE(berm_cu_stream_end_capture_fn, "cuStreamEndCapture", stream, &graph);
    CALL_TWICE(berm_cu_graph_instantiate_fn, "cuGraphInstantiateWithFlags", &exec, graph, 0);
    CALL_TWICE(berm_cu_graph_destroy_fn, "cuGraphDestroy", graph);
    return exec;
}

void heap_capture_drop(void *stream) {
    berm_cu_graph_t graph = NULL;
    berm_cu_stream_end_capture_fn end;
    void *found = simcuda_symbol("cuStreamEndCapture");
    memcpy(&end, &found, sizeof end);
    (void)end(stream, &graph);
    if (graph != NULL)
        CALL_TWICE(berm_cu_graph_destroy_fn, "cuGraphDestroy", graph);
}

void heap_capture_break(void) {
    berm_cu_mem_alloc_fn alloc;
    berm_cu_deviceptr_t addr = 0;
    void *found = simcuda_symbol("cuMemAlloc_v2");
    memcpy(&alloc, &found, sizeof alloc);
    HEAP_INSIST(alloc(&addr, 8) == BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
}

void heap_graph_launch(void *graph, void *stream) {
    CALL_TWICE(berm_cu_graph_launch_fn, "cuGraphLaunch", graph, stream);
}

void heap_graph_destroy(void *graph) {
    CALL_TWICE(berm_cu_graph_exec_destroy_fn, "cuGraphExecDestroy", graph);
}

bool heap_filter_stream(berm_stream_t stream, void *context) {
    return stream == context;
}
