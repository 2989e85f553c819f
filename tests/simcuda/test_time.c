// SPDX-License-Identifier: Apache-2.0
// Streams, events and gates in virtual time. All calls are free here, so that times are plain.
#include <pthread.h>

#include "sim_test.h"

static void start_free(void) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.costs = (simcuda_costs_t){0};
    start_with(&config);
}

static int work(berm_cu_stream_t stream, uint64_t ns) {
    return simcuda_launch(stream, ns, NULL, 0);
}

#define NOW(ns)                                                                                    \
    cr_assert(simcuda_now_ns() == (ns), "now %llu", (unsigned long long)simcuda_now_ns())

Test(time, work_in_a_stream_runs_one_after_the_other) {
    start_free();
    berm_cu_stream_t stream = stream_new(1);
    OK(work(stream, 100));
    OK(work(stream, 50));
    NOW(0);
    FAILS(cuStreamQuery(stream), BERM_CU_NOT_READY);
    simcuda_advance_ns(149);
    FAILS(cuStreamQuery(stream), BERM_CU_NOT_READY);
    simcuda_advance_ns(1);
    OK(cuStreamQuery(stream));
    OK(work(stream, 10)); // starts now, not at the end of the earlier work
    OK(cuStreamSynchronize(stream));
    NOW(160);
    cr_assert(simcuda_wait_ns() == 10);
    cr_assert(simcuda_driver_ns() == 0);
}

Test(time, streams_run_side_by_side) {
    start_free();
    OK(work(stream_new(1), 100));
    OK(work(stream_new(1), 70));
    OK(cuCtxSynchronize());
    NOW(100);
}

Test(time, an_event_completes_with_the_work_before_it) {
    start_free();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t event = event_new();
    OK(cuEventQuery(event)); // never recorded
    OK(cuEventSynchronize(event));
    OK(work(stream, 100));
    OK(cuEventRecord(event, stream));
    OK(work(stream, 100));
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(event));
    NOW(100);
    OK(cuEventQuery(event));
    OK(cuEventRecord(event, stream)); // again: the later work
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(event));
    NOW(200);
}

Test(time, a_stream_waits_for_an_event) {
    start_free();
    berm_cu_stream_t first = stream_new(1), second = stream_new(1);
    berm_cu_event_t event = event_new();
    OK(work(first, 100));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(work(first, 1000));
    OK(work(second, 5));
    OK(cuStreamSynchronize(second));
    NOW(105);
}

Test(time, an_event_may_go_before_its_time) {
    start_free();
    berm_cu_stream_t first = stream_new(1), second = stream_new(1);
    berm_cu_event_t event = event_new();
    OK(work(first, 100));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(first));
    OK(work(second, 5));
    OK(cuStreamSynchronize(second));
    NOW(105);
}

Test(time, elapsed_time) {
    start_free();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t from = event_new(), to = event_new(), untimed;
    float ms = 0;
    FAILS(cuEventElapsedTime(&ms, from, to), BERM_CU_INVALID_HANDLE);
    OK(cuEventRecord(from, stream));
    OK(work(stream, 2500000));
    OK(cuEventRecord(to, stream));
    FAILS(cuEventElapsedTime(&ms, from, to), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(to));
    OK(cuEventElapsedTime(&ms, from, to));
    cr_assert(ms > 2.49f && ms < 2.51f);
    OK(cuEventCreate(&untimed, BERM_CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(untimed, stream));
    FAILS(cuEventElapsedTime(&ms, from, untimed), BERM_CU_INVALID_HANDLE);
}

Test(time, the_legacy_stream_waits_for_blocking_streams_and_they_for_it) {
    start_free();
    berm_cu_stream_t blocking = stream_new(0), free_running = stream_new(1);
    OK(work(blocking, 100));
    OK(work(free_running, 1000));
    OK(work(NULL, 10));    // after 100
    OK(work(blocking, 1)); // after 110
    OK(cuStreamSynchronize(blocking));
    NOW(111);
    OK(work(BERM_CU_STREAM_LEGACY, 10));
    OK(cuStreamSynchronize(NULL));
    NOW(121);
    OK(cuCtxSynchronize());
    NOW(1000);
}

Test(time, synchronising_the_legacy_stream_covers_blocking_ones) {
    start_free();
    OK(work(stream_new(0), 100));
    OK(work(stream_new(1), 500));
    FAILS(cuStreamQuery(NULL), BERM_CU_NOT_READY);
    OK(cuStreamSynchronize(NULL));
    NOW(100);
}

static void *thread_work(void *unused) {
    (void)unused;
    make_current(0);
    OK(work(BERM_CU_STREAM_PER_THREAD, 40));
    unsigned long long id = 0, again = 0;
    OK(cuStreamGetId(BERM_CU_STREAM_PER_THREAD, &id));
    OK(cuStreamGetId_ptsz(NULL, &again));
    cr_assert(id == again);
    return (void *)(uintptr_t)id;
}

Test(time, each_thread_has_a_default_stream) {
    start_free();
    pthread_t thread;
    void *other = NULL;
    unsigned long long id = 0, legacy = 0;
    OK(work(BERM_CU_STREAM_PER_THREAD, 100));
    OK(cuStreamGetId(BERM_CU_STREAM_PER_THREAD, &id));
    OK(cuStreamGetId(NULL, &legacy));
    cr_assert(pthread_create(&thread, NULL, thread_work, NULL) == 0);
    cr_assert(pthread_join(thread, &other) == 0);
    cr_assert(id != legacy && id != (uintptr_t)other && legacy != (uintptr_t)other);
    OK(cuStreamSynchronize_ptsz(NULL));
    NOW(100);
    OK(work(NULL, 1)); // per-thread streams are blocking ones
    OK(work(BERM_CU_STREAM_PER_THREAD, 1));
    OK(cuCtxSynchronize());
    NOW(102);
}

Test(time, a_context_event_covers_all_streams) {
    start_free();
    berm_cu_context_t context;
    berm_cu_event_t event = event_new();
    OK(cuCtxGetCurrent(&context));
    OK(work(stream_new(1), 100));
    OK(work(stream_new(0), 300));
    OK(cuCtxRecordEvent(context, event));
    OK(work(stream_new(1), 900));
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(event));
    NOW(300);
}

Test(time, a_gate_ends_when_it_is_opened) {
    start_free();
    berm_cu_stream_t stream = stream_new(1), other = stream_new(1);
    berm_cu_event_t event = event_new();
    uint64_t gate = 0;
    OK(simcuda_gate(stream, NULL, 0, &gate));
    OK(work(stream, 10));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(work(other, 5));
    simcuda_advance_ns(1000000);
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    FAILS(cuStreamQuery(other), BERM_CU_NOT_READY);
    OK(simcuda_gate_open(gate));
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    OK(cuEventSynchronize(event));
    NOW(1000010);
    OK(cuStreamSynchronize(other));
    NOW(1000015);
    OK(simcuda_gate_open(gate)); // once more does nothing
    HAZARDS(0);
}

Test(time, gates_and_the_legacy_stream) {
    start_free();
    berm_cu_stream_t blocking = stream_new(0);
    uint64_t gate = 0;
    OK(simcuda_gate(blocking, NULL, 0, &gate));
    OK(work(NULL, 10));
    OK(work(blocking, 10));
    simcuda_advance_ns(50);
    FAILS(cuStreamQuery(NULL), BERM_CU_NOT_READY);
    OK(simcuda_gate_open(gate));
    OK(cuStreamSynchronize(blocking));
    NOW(70);
}

Test(time, a_context_event_waits_for_gates) {
    start_free();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_event_t event = event_new();
    uint64_t gate = 0;
    OK(simcuda_gate(stream, NULL, 0, &gate));
    OK(cuCtxRecordEvent(NULL, event));
    FAILS(cuEventQuery(event), BERM_CU_NOT_READY);
    OK(cuEventRecord(event, NULL)); // taken over by an idle stream
    OK(cuEventQuery(event));
    OK(simcuda_gate_open(gate));
    OK(cuCtxSynchronize());
}

Test(time, free_waits_for_the_device) {
    start_free();
    berm_cu_deviceptr_t addr = 0;
    OK(cuMemAlloc_v2(&addr, 4096));
    OK(work(stream_new(1), 500)); // touches nothing of it
    OK(cuMemFree_v2(addr));
    NOW(500);
    cr_assert(simcuda_wait_ns() == 500);
}

Test(time, map_drains_where_the_switch_says_so) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.costs = (simcuda_costs_t){0};
    config.drains_map = 1;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    berm_cu_mem_handle_t handle = create(MIB(2));
    OK(work(NULL, 100));
    OK(cuMemMap(addr, MIB(2), 0, handle, 0));
    NOW(100);
    OK(work(NULL, 100));
    OK(cuMemSetAccess(addr, MIB(2), &read_write, 1));
    NOW(200);
    OK(launch(NULL, 100, addr, 8, 1));
    OK(cuMemUnmap(addr, MIB(2)));
    NOW(300);
    HAZARDS(0);
}

Test(time, copies_take_time_and_the_synchronous_ones_wait) {
    start_free();
    berm_cu_deviceptr_t addr = 0;
    char buffer[4096];
    buffer[0] = 'x';
    OK(cuMemAlloc_v2(&addr, MIB(1)));
    OK(cuMemcpyHtoD_v2(addr, buffer, sizeof(buffer)));
    NOW(2000 + 4096 / 25);
    OK(cuMemcpyDtoH_v2(buffer, addr, sizeof(buffer)));
    cr_assert(buffer[0] == 0, "there are no contents");
    uint64_t now = simcuda_now_ns();
    berm_cu_stream_t stream = stream_new(1);
    OK(cuMemsetD8Async(addr, 0, MIB(1), stream));
    OK(cuMemcpyAsync(addr, addr + 4096, 4096, stream));
    NOW(now);
    OK(cuStreamSynchronize(stream));
    NOW(now + 2000 + MIB(1) / 1000 + 2000 + 4);
    HAZARDS(0);
    OK(cuMemcpyDtoDAsync_v2(addr + MIB(1) - 10, addr, 20, stream));
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_USE_UNMAPPED);
}

static int host_calls;

static void host_function(void *data) {
    int count = 0;
    host_calls += *(int *)data;
    FAILS(cuDeviceGetCount(&count), BERM_CU_NOT_PERMITTED);
}

Test(time, host_functions_run_when_due) {
    start_free();
    berm_cu_stream_t stream = stream_new(1);
    int data = 3;
    OK(work(stream, 1000));
    OK(cuLaunchHostFunc(stream, host_function, &data));
    cr_assert(host_calls == 0);
    simcuda_advance_ns(1000);
    cr_assert(host_calls == 0);
    simcuda_advance_ns(100000);
    cr_assert(host_calls == 3);
    OK(cuLaunchHostFunc(stream, host_function, &data));
    OK(cuStreamSynchronize(stream));
    cr_assert(host_calls == 6);
    FAILS(cuLaunchHostFunc(stream, NULL, NULL), BERM_CU_INVALID_VALUE);
}

Test(time, the_same_calls_give_the_same_times) {
    uint64_t first = 0;
    for (int round = 0; round < 2; round++) {
        start_with(NULL);
        berm_cu_deviceptr_t addr = reserve(MIB(8));
        (void)map_at(addr, MIB(8));
        OK(launch(NULL, 12345, addr, 8, 1));
        OK(cuCtxSynchronize());
        if (round == 0)
            first = simcuda_now_ns();
        cr_assert(simcuda_now_ns() == first);
    }
}
