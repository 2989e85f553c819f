// SPDX-License-Identifier: Apache-2.0
// Stream capture: what it forbids, to whom, and how it spreads and ends.
#include <pthread.h>

#include "sim_test.h"

static berm_cu_stream_t stream;

static void begin(int mode) {
    start();
    stream = stream_new(1);
    OK(cuStreamBeginCapture_v2(stream, mode));
}

static int status_of(berm_cu_stream_t s) {
    int status = -1;
    OK(cuStreamIsCapturing(s, &status));
    return status;
}

static void end_with(int result) {
    berm_cu_graph_t graph = (berm_cu_graph_t)(uintptr_t)1;
    FAILS(cuStreamEndCapture(stream, &graph), result);
    cr_assert((graph != NULL) == (result == BERM_CU_SUCCESS));
    cr_assert(status_of(stream) == BERM_CU_CAPTURE_STATUS_NONE);
    if (graph != NULL)
        OK(cuGraphDestroy(graph));
}

Test(capture, captured_work_does_not_run) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    uint64_t id = 0;
    int status = 0;
    size_t count = 9;
    berm_cu_graph_t graph = NULL;
    const berm_cu_graph_node_t *nodes;
    OK(launch(stream, 1000000, 0x1234, 8, 1)); // an address of nothing: judged at replay
    cr_assert(status_of(stream) == BERM_CU_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    cr_assert(status == BERM_CU_CAPTURE_STATUS_ACTIVE && id != 0 && graph != NULL);
    cr_assert(count == 1 && nodes != NULL && nodes[0] != NULL);
    end_with(BERM_CU_SUCCESS);
    OK(cuStreamQuery(stream));
    HAZARDS(0);
}

Test(capture, unsafe_calls_are_forbidden) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    end_with(BERM_CU_SUCCESS);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    berm_cu_event_t event = event_new();
    for (int i = 0; i < 9; i++) {
        berm_cu_deviceptr_t other;
        int result = 0;
        OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
        switch (i) {
        case 0:
            result = cuMemAlloc_v2(&other, 8);
            break;
        case 1:
            result = cuMemFree_v2(addr);
            break;
        case 2:
            result = cuEventQuery(event);
            break;
        case 3:
            result = cuEventSynchronize(event);
            break;
        case 4:
            result = cuStreamSynchronize(NULL);
            break;
        case 5:
            result = cuCtxSynchronize();
            break;
        case 6:
            result = cuMemMap(addr + MIB(2), MIB(2), 0, handle, 0);
            break;
        case 7:
            result = cuMemUnmap(addr, MIB(2));
            break;
        default:
            result = cuMemCreate(&handle, MIB(2), &device_prop, 0);
            break;
        }
        cr_assert(result == BERM_CU_STREAM_CAPTURE_UNSUPPORTED, "call %d: %d", i, result);
        cr_assert(status_of(stream) == BERM_CU_CAPTURE_STATUS_INVALIDATED);
        FAILS(launch(stream, 1, 0, 0, 0), BERM_CU_STREAM_CAPTURE_INVALIDATED);
        end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
    }
    OK(cuMemUnmap(addr, MIB(2))); // it was not done
}

Test(capture, relaxed_allows_unsafe_calls) {
    begin(BERM_CU_CAPTURE_RELAXED);
    berm_cu_deviceptr_t addr;
    OK(cuMemAlloc_v2(&addr, 8));
    OK(cuMemFree_v2(addr));
    end_with(BERM_CU_SUCCESS);
}

Test(capture, a_thread_may_exchange_its_mode) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    berm_cu_deviceptr_t addr;
    int mode = BERM_CU_CAPTURE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert(mode == BERM_CU_CAPTURE_GLOBAL);
    OK(cuMemAlloc_v2(&addr, 8));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert(mode == BERM_CU_CAPTURE_RELAXED);
    end_with(BERM_CU_SUCCESS);
    mode = 3;
    FAILS(cuThreadExchangeStreamCaptureMode(&mode), BERM_CU_INVALID_VALUE);
}

// The context covers the stream: it cannot be waited for in any mode, and the try breaks the
// capture.
Test(capture, a_context_with_a_capture_cannot_be_waited_for) {
    begin(BERM_CU_CAPTURE_RELAXED);
    FAILS(cuCtxSynchronize(), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
    OK(cuCtxSynchronize());
}

static void *thread_alloc(void *result) {
    berm_cu_deviceptr_t addr;
    make_current(0);
    *(int *)result = cuMemAlloc_v2(&addr, 8);
    return NULL;
}

static int alloc_in_another_thread(void) {
    pthread_t thread;
    int result = -1;
    cr_assert(pthread_create(&thread, NULL, thread_alloc, &result) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    return result;
}

Test(capture, global_forbids_other_threads) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    cr_assert(alloc_in_another_thread() == BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
}

Test(capture, thread_local_does_not) {
    begin(BERM_CU_CAPTURE_THREAD_LOCAL);
    cr_assert(alloc_in_another_thread() == BERM_CU_SUCCESS);
    end_with(BERM_CU_SUCCESS);
}

Test(capture, captured_events_may_not_be_asked) {
    begin(BERM_CU_CAPTURE_RELAXED);
    berm_cu_event_t event = event_new();
    OK(cuEventRecord(event, stream));
    FAILS(cuEventQuery(event), BERM_CU_CAPTURED_EVENT);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
    FAILS(cuEventQuery(event), BERM_CU_CAPTURED_EVENT);
    FAILS(cuEventSynchronize(event), BERM_CU_CAPTURED_EVENT);
    OK(cuEventRecord(event, stream));
    OK(cuEventQuery(event));
}

Test(capture, the_capturing_stream_may_not_be_asked) {
    for (int i = 0; i < 3; i++) {
        unsigned long long id;
        begin(BERM_CU_CAPTURE_RELAXED);
        int result = i == 0   ? cuStreamQuery(stream)
                     : i == 1 ? cuStreamSynchronize(stream)
                              : cuStreamGetId(stream, &id);
        cr_assert(result == BERM_CU_STREAM_CAPTURE_UNSUPPORTED, "call %d", i);
        end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
    }
}

Test(capture, the_legacy_stream) {
    start();
    berm_cu_graph_t graph;
    int status;
    FAILS(cuStreamBeginCapture_v2(NULL, BERM_CU_CAPTURE_GLOBAL),
          BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    stream = stream_new(0);
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_RELAXED));
    FAILS(cuStreamIsCapturing(NULL, &status), BERM_CU_STREAM_CAPTURE_IMPLICIT);
    cr_assert(status_of(stream) == BERM_CU_CAPTURE_STATUS_ACTIVE);
    FAILS(launch(NULL, 1, 0, 0, 0), BERM_CU_STREAM_CAPTURE_IMPLICIT);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_STREAM_CAPTURE_INVALIDATED);
    OK(launch(NULL, 1, 0, 0, 0));
}

Test(capture, a_context_event) {
    begin(BERM_CU_CAPTURE_RELAXED);
    FAILS(cuCtxRecordEvent(NULL, event_new()), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
}

Test(capture, spreads_by_events_and_must_be_joined) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    berm_cu_stream_t other = stream_new(1);
    berm_cu_event_t fork_event = event_new(), join_event = event_new();
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    cr_assert(status_of(other) == BERM_CU_CAPTURE_STATUS_ACTIVE);
    OK(launch(other, 1, 0, 0, 0));
    OK(cuEventRecord(join_event, other));
    OK(cuStreamWaitEvent(stream, join_event, 0));
    end_with(BERM_CU_SUCCESS);
    cr_assert(status_of(other) == BERM_CU_CAPTURE_STATUS_NONE);

    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    OK(cuEventRecord(join_event, other));
    OK(cuStreamWaitEvent(stream, join_event, 0));
    OK(launch(other, 1, 0, 0, 0)); // after the join
    berm_cu_graph_t graph;
    FAILS(cuStreamEndCapture(other, &graph), BERM_CU_STREAM_CAPTURE_UNMATCHED);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    end_with(BERM_CU_STREAM_CAPTURE_UNJOINED);
}

Test(capture, isolation_and_merging) {
    begin(BERM_CU_CAPTURE_RELAXED);
    berm_cu_stream_t other = stream_new(1);
    berm_cu_event_t outside = event_new(), inside = event_new();
    OK(cuStreamWaitEvent(stream, outside, 0)); // never recorded: nothing to wait for
    OK(cuEventRecord(outside, other));
    FAILS(cuStreamWaitEvent(stream, outside, 0), BERM_CU_STREAM_CAPTURE_ISOLATION);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_RELAXED));
    OK(cuStreamBeginCapture_v2(other, BERM_CU_CAPTURE_RELAXED));
    OK(cuEventRecord(inside, other));
    FAILS(cuStreamWaitEvent(stream, inside, 0), BERM_CU_STREAM_CAPTURE_MERGE);
    cr_assert(status_of(other) == BERM_CU_CAPTURE_STATUS_INVALIDATED);
    end_with(BERM_CU_STREAM_CAPTURE_INVALIDATED);
}

Test(capture, ends_that_do_not_match) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    berm_cu_graph_t graph;
    FAILS(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL), BERM_CU_ILLEGAL_STATE);
    FAILS(cuStreamBeginCapture_v2(stream, 3), BERM_CU_INVALID_VALUE);
    FAILS(cuStreamEndCapture(stream, NULL), BERM_CU_INVALID_VALUE);
    end_with(BERM_CU_SUCCESS);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_ILLEGAL_STATE);
}

Test(capture, a_stream_destroyed_while_capturing) {
    begin(BERM_CU_CAPTURE_GLOBAL);
    berm_cu_deviceptr_t addr;
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemAlloc_v2(&addr, 8)); // the capture is gone
}

Test(capture, edits_of_mappings_by_switch) {
    setenv("SIMCUDA_CAPTURE_EDITS", "1", 1);
    start();
    stream = stream_new(BERM_CU_STREAM_NON_BLOCKING);
    berm_cu_graph_t graph = NULL;
    berm_cu_deviceptr_t addr = 0;
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    FAILS(cuMemAlloc_v2(&addr, MIB(2)), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_STREAM_CAPTURE_INVALIDATED);
    simcuda_config_t config;
    simcuda_config_default(&config);
    start_with(&config);
    stream = stream_new(BERM_CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    FAILS(cuMemAddressReserve(&addr, MIB(2), 0, 0, 0), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
}
