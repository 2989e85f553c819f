// SPDX-License-Identifier: Apache-2.0
// Graphs: what a capture makes, how it is launched, and the hazards of memory it still names.
#include <string.h>

#include "sim_test.h"

static berm_cu_stream_t stream;

static void begin(void) {
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_RELAXED));
}

static berm_cu_graph_t end(void) {
    berm_cu_graph_t graph = NULL;
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

// Ends the capture, and makes what can be launched.
static berm_cu_graph_exec_t end_exec(void) {
    berm_cu_graph_t graph = end();
    berm_cu_graph_exec_t exec = NULL;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); // the exec has its own
    return exec;
}

static size_t nodes_of(berm_cu_graph_t graph) {
    size_t count = 99;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static uint64_t launch_ns(berm_cu_graph_exec_t exec) {
    OK(cuStreamSynchronize(stream));
    uint64_t before = simcuda_now_ns();
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    return simcuda_now_ns() - before;
}

// `other` joins the capture after what is in `from` so far.
static void fork_to(berm_cu_stream_t other, berm_cu_stream_t from) {
    berm_cu_event_t event = event_new();
    OK(cuEventRecord(event, from));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuEventDestroy_v2(event));
}

static void start_graph(void) {
    start();
    stream = stream_new(1);
}

Test(graph, has_a_node_for_each_piece_of_work) {
    start_graph();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    begin();
    berm_cu_graph_t empty = end();
    cr_assert(nodes_of(empty) == 0);
    begin();
    OK(launch(stream, 1000, addr, 8, 1));
    OK(cuMemsetD8Async(addr, 0, 8, stream));
    OK(cuMemcpyDtoDAsync_v2(addr + 64, addr, 8, stream));
    OK(cuEventRecord(event_new(), stream)); // is no node
    berm_cu_graph_t graph = end();
    berm_cu_graph_node_t nodes[5];
    size_t count = 5;
    OK(cuGraphGetNodes(graph, nodes, &count));
    cr_assert(count == 3 && nodes[0] != nodes[1] && nodes[2] != NULL && nodes[3] == NULL);
    OK(cuGraphDestroy(graph));
    FAILS(cuGraphGetNodes(graph, NULL, &count), BERM_CU_INVALID_VALUE);
    FAILS(cuGraphDestroy(graph), BERM_CU_INVALID_VALUE);
}

Test(graph, runs_as_its_work_would) {
    start_graph();
    berm_cu_stream_t other = stream_new(1);
    begin();
    OK(launch(stream, 1000000, 0, 0, 0));
    OK(launch(stream, 1000000, 0, 0, 0));
    berm_cu_graph_exec_t chain = end_exec();
    begin();
    OK(launch(stream, 1000000, 0, 0, 0));
    fork_to(other, stream);
    OK(launch(stream, 2000000, 0, 0, 0));
    OK(launch(other, 3000000, 0, 0, 0)); // the last step waits for this one
    fork_to(stream, other);
    OK(launch(stream, 1000000, 0, 0, 0));
    berm_cu_graph_exec_t diamond = end_exec();
    uint64_t ns = launch_ns(chain);
    cr_assert(ns >= 2000000 && ns < 2010000, "%llu", (unsigned long long)ns);
    ns = launch_ns(diamond);
    cr_assert(ns >= 5000000 && ns < 5010000, "%llu", (unsigned long long)ns);
    OK(cuGraphLaunch(diamond, stream));
    OK(cuGraphLaunch(diamond, other)); // one exec does not run beside itself
    uint64_t before = simcuda_now_ns();
    OK(cuCtxSynchronize());
    ns = simcuda_now_ns() - before;
    cr_assert(ns > 9900000 && ns < 10010000, "%llu", (unsigned long long)ns);
    OK(cuGraphExecDestroy(chain));
    OK(cuGraphExecDestroy(diamond));
    FAILS(cuGraphLaunch(chain, stream), BERM_CU_INVALID_VALUE);
    FAILS(cuGraphExecDestroy(chain), BERM_CU_INVALID_VALUE);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.streams == 2, "streams of branches are not the program's");
    HAZARDS(0);
}

Test(graph, branches_race_and_joined_ones_do_not) {
    start_graph();
    berm_cu_stream_t other = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    for (int is_joined = 0; is_joined < 2; is_joined++) {
        begin();
        fork_to(other, stream);
        OK(launch(other, 1000, addr, 8, 1));
        if (is_joined)
            fork_to(stream, other);
        OK(launch(stream, 1000, addr, 8, 1));
        if (!is_joined)
            fork_to(stream, other);
        berm_cu_graph_exec_t exec = end_exec();
        simcuda_hazards_clear();
        (void)launch_ns(exec);
        HAZARDS((uint64_t)!is_joined);
    }
}

// An event recorded as external is a node: the launch records it, not the capture.
Test(graph, records_external_events) {
    start_graph();
    berm_cu_event_t first = event_new(), last = event_new();
    float ms = 0;
    FAILS(cuEventRecordWithFlags(first, stream, BERM_CU_EVENT_RECORD_EXTERNAL),
          BERM_CU_INVALID_VALUE); // in a capture only
    begin();
    OK(cuEventRecordWithFlags(first, stream, BERM_CU_EVENT_RECORD_EXTERNAL));
    OK(launch(stream, 3000000, 0, 0, 0));
    OK(cuEventRecordWithFlags(last, stream, BERM_CU_EVENT_RECORD_EXTERNAL));
    berm_cu_graph_t graph = end();
    cr_assert(nodes_of(graph) == 3);
    berm_cu_graph_exec_t exec = NULL;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuEventQuery(last)); // not recorded yet
    OK(cuGraphLaunch(exec, stream));
    FAILS(cuEventQuery(last), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(last));
    OK(cuEventElapsedTime(&ms, first, last));
    cr_assert(ms >= 2.9 && ms < 3.5, "%g ms", (double)ms);
    OK(cuEventDestroy_v2(last)); // a launch passes by what is gone
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

Test(graph, launches_are_ordered_with_the_stream) {
    start_graph();
    berm_cu_stream_t other = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    begin();
    fork_to(other, stream);
    OK(launch(other, 1000, addr, 8, 1));
    fork_to(stream, other);
    OK(launch(stream, 1000, 0, 0, 0));
    berm_cu_graph_exec_t exec = end_exec();
    OK(launch(stream, 1000, addr, 8, 1));
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(launch(stream, 1000, addr, 8, 1));
    HAZARDS(0);
    OK(launch(other, 1000, addr, 8, 1)); // the stream of the capture is not that of the launch
    HAZARDS(1);
}

Test(graph, memory_freed_under_a_live_graph) {
    start_graph();
    berm_cu_deviceptr_t addr = reserve(MIB(4)), plain;
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    OK(cuMemAlloc_v2(&plain, 4096));
    begin();
    OK(launch(stream, 1000, addr, 8, 1));
    OK(launch(stream, 1000, plain, 8, 0));
    berm_cu_graph_exec_t exec = end_exec();
    (void)launch_ns(exec);
    HAZARDS(0);
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemMap(addr, MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(addr, MIB(2), &read_write, 1));
    (void)launch_ns(exec); // what is there now counts
    HAZARDS(0);
    OK(cuMemFree_v2(plain));
    OK(cuGraphLaunch(exec, stream));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_UNMAPPED);
    FAILS(cuStreamSynchronize(stream), BERM_CU_ILLEGAL_ADDRESS);
}

Test(graph, unmapping_under_a_launched_graph) {
    start_graph();
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    begin();
    OK(launch(stream, 1000000, addr, 8, 1));
    berm_cu_graph_exec_t exec = end_exec();
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemUnmap(addr, MIB(2)));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
}

static int host_calls;

static void count_call(void *unused) {
    (void)unused;
    host_calls++;
}

static void add_one(void *argument) {
    berm_cu_deviceptr_t addr = *(berm_cu_deviceptr_t *)argument;
    ++*(volatile unsigned char *)(uintptr_t)addr;
}

Test(graph, replays_contents_and_host_functions) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.is_backed = 1;
    start_with(&config);
    stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    volatile unsigned char *bytes = (volatile unsigned char *)(uintptr_t)addr;
    simcuda_access_t access = {addr, 1, 1};
    begin();
    OK(cuMemcpyDtoDAsync_v2(addr + 1, addr, 1, stream));
    OK(simcuda_launch_fn(stream, 1000, &access, 1, add_one, &addr));
    OK(cuMemsetD8Async(addr + 2, 9, 1, stream));
    OK(cuLaunchHostFunc(stream, count_call, NULL));
    berm_cu_graph_exec_t exec = end_exec();
    OK(cuStreamSynchronize(stream));
    cr_assert(bytes[0] == 0 && bytes[2] == 0 && host_calls == 0);
    for (int i = 0; i < 5; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert(bytes[0] == 5 && bytes[1] == 4 && bytes[2] == 9 && host_calls == 5);
    HAZARDS(0);
}

Test(graph, dependencies_can_be_read_and_changed) {
    start_graph();
    int status;
    uint64_t id;
    size_t count;
    berm_cu_graph_t graph;
    const berm_cu_graph_node_t *nodes;
    berm_cu_graph_node_t first, unknown = (berm_cu_graph_node_t)(uintptr_t)7;
    FAILS(cuStreamUpdateCaptureDependencies(stream, NULL, 0, BERM_CU_CAPTURE_DEPENDENCIES_SET),
          BERM_CU_ILLEGAL_STATE);
    begin();
    OK(launch(stream, 1000000, 0, 0, 0));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    cr_assert(count == 1);
    first = nodes[0];
    FAILS(cuGraphDestroy(graph), BERM_CU_INVALID_VALUE); // it is the capture's
    OK(cuStreamUpdateCaptureDependencies(stream, NULL, 0, BERM_CU_CAPTURE_DEPENDENCIES_SET));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    cr_assert(count == 0);
    OK(launch(stream, 1000000, 0, 0, 0)); // beside the first
    FAILS(cuStreamUpdateCaptureDependencies(stream, &unknown, 1, BERM_CU_CAPTURE_DEPENDENCIES_ADD),
          BERM_CU_INVALID_VALUE);
    FAILS(cuStreamUpdateCaptureDependencies(stream, &first, 1, 2), BERM_CU_INVALID_VALUE);
    OK(cuStreamUpdateCaptureDependencies_v2(stream, &first, NULL, 1,
                                            BERM_CU_CAPTURE_DEPENDENCIES_ADD));
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    cr_assert(count == 2);
    OK(launch(stream, 1000000, 0, 0, 0)); // after both
    uint64_t ns = launch_ns(end_exec());
    cr_assert(ns >= 2000000 && ns < 2010000, "%llu", (unsigned long long)ns);
}

Test(graph, misuse) {
    start_graph();
    berm_cu_graph_exec_t exec = NULL;
    berm_cu_graph_t graph;
    uint64_t gate;
    berm_cu_stream_t other = stream_new(1);
    begin();
    fork_to(other, stream);
    OK(launch(stream, 1, 0, 0, 0));
    OK(launch(other, 1, 0, 0, 0));
    fork_to(stream, other);
    graph = end();
    FAILS(cuGraphInstantiateWithFlags(NULL, graph, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuGraphInstantiateWithFlags(&exec, graph, 1 << 30), BERM_CU_INVALID_VALUE);
    FAILS(cuGraphInstantiateWithFlags(&exec, NULL, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuGraphLaunch(NULL, stream), BERM_CU_INVALID_VALUE);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    begin();
    FAILS(cuGraphLaunch(exec, stream), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_STREAM_CAPTURE_INVALIDATED);
    begin();
    FAILS(simcuda_gate(stream, NULL, 0, &gate), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(stream, &graph), BERM_CU_STREAM_CAPTURE_INVALIDATED);
    OK(cuDevicePrimaryCtxReset_v2(0));
    make_current(0);
    FAILS(cuGraphLaunch(exec, NULL), BERM_CU_CONTEXT_IS_DESTROYED);
    OK(cuGraphExecDestroy(exec));
}
