// SPDX-License-Identifier: Apache-2.0
// Host memory that runs out: for each n, the n-th allocation of a scenario fails. Every call then
// says OUT_OF_MEMORY or succeeds, nothing crashes, and what is left can be cleaned up.
#include <stdlib.h>

#include "sim_test.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif

#ifdef HAS_OWN_MALLOC
Test(host_memory, every_allocation_of_a_scenario) {
    cr_skip("SKIP: the address sanitizer has the allocator this test replaces");
}
#else
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);

static long countdown = -1; // allocations until the one that fails; -1: none fails

static int is_failing(void) {
    return countdown >= 0 && countdown-- == 0;
}

void *malloc(size_t size) {
    return is_failing() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return is_failing() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size) {
    return is_failing() ? NULL : __libc_realloc(pointer, size);
}

static int worst; // the last result that was not SUCCESS

// Counts a result; true for SUCCESS.
static int good(int result) {
    if (result != BERM_CU_SUCCESS)
        worst = result;
    cr_assert(result == BERM_CU_SUCCESS || result == BERM_CU_OUT_OF_MEMORY, "%d", result);
    return result == BERM_CU_SUCCESS;
}

typedef struct scene {
    berm_cu_deviceptr_t addr, plain, small;
    berm_cu_mem_handle_t handle;
    berm_cu_stream_t streams[20];
    berm_cu_event_t event;
    int is_mapped;
} scene_t;

static void scene_memory(scene_t *s) {
    if (!good(cuMemAddressReserve(&s->addr, MIB(8), 0, 0, 0)) ||
        !good(cuMemCreate(&s->handle, MIB(4), &device_prop, 0)))
        return;
    s->is_mapped = good(cuMemMap(s->addr, MIB(4), 0, s->handle, 0));
    if (s->is_mapped)
        OK(cuMemSetAccess(s->addr, MIB(4), &read_write, 1));
    (void)good(cuMemAlloc_v2(&s->plain, MIB(5)));
    (void)good(cuMemAlloc_v2(&s->small, 700));
}

static void scene_work(scene_t *s) {
    uint64_t gate = 0;
    for (int i = 0; i < 20; i++) // more than the first slots
        (void)good(cuStreamCreate(&s->streams[i], 0));
    if (!good(cuEventCreate(&s->event, 0)) || !s->is_mapped || s->streams[0] == NULL ||
        s->streams[1] == NULL)
        return;
    (void)good(launch(s->streams[0], 100, s->addr, MIB(1), 1));
    (void)good(launch(s->streams[0], 100, s->addr + 100, 50, 0));
    (void)good(cuEventRecord(s->event, s->streams[0]));
    (void)good(cuStreamWaitEvent(s->streams[1], s->event, 0));
    (void)good(cuCtxRecordEvent(NULL, s->event));
    simcuda_access_t access = {s->addr, 8, 1};
    int has_gate = good(simcuda_gate(s->streams[0], &access, 1, &gate));
    (void)good(cuEventRecord(s->event, s->streams[0]));
    (void)good(launch(NULL, 100, s->addr, 8, 0));
    (void)good(launch(BERM_CU_STREAM_PER_THREAD, 100, s->addr, 8, 0));
    (void)good(cuStreamWaitEvent(s->streams[1], s->event, 0));
    if (has_gate)
        OK(simcuda_gate_open(gate));
}

static void scene_end(scene_t *s) {
    OK(cuCtxSynchronize());
    if (s->is_mapped)
        OK(cuMemUnmap(s->addr, MIB(4)));
    if (s->handle != 0)
        OK(cuMemRelease(s->handle));
    if (s->addr != 0)
        OK(cuMemAddressFree(s->addr, MIB(8)));
    if (s->plain != 0)
        OK(cuMemFree_v2(s->plain));
    if (s->small != 0)
        OK(cuMemFree_v2(s->small));
    if (s->event != NULL)
        OK(cuEventDestroy_v2(s->event));
    for (int i = 0; i < 20; i++) {
        if (s->streams[i] != NULL)
            OK(cuStreamDestroy_v2(s->streams[i]));
    }
}

Test(host_memory, every_allocation_of_a_scenario) {
    long n = 0;
    for (;; n++) {
        scene_t scene = {0};
        simcuda_ledger_t ledger;
        worst = BERM_CU_SUCCESS;
        OK(simcuda_reset(NULL));
        start();
        countdown = n;
        scene_memory(&scene);
        scene_work(&scene);
        int has_failed = countdown < 0;
        countdown = -1;
        scene_end(&scene);
        simcuda_ledger_read(-1, &ledger);
        cr_assert(ledger.used_bytes == 0 && ledger.handles == 0 && ledger.mappings == 0);
        cr_assert(ledger.reservations == 0 && ledger.streams == 0 && ledger.events == 0);
        if (!has_failed)
            break;
        cr_assert(worst == BERM_CU_OUT_OF_MEMORY, "allocation %ld", n);
    }
    cr_assert(n > 40, "%ld", n);
}

// --- pools, graphs and contents ------------------------------------------------------------------

static void run_nothing(void *unused) {
    (void)unused;
}

static void more_pools(berm_cu_stream_t a, berm_cu_stream_t b) {
    berm_cu_deviceptr_t first = 0, second = 0;
    if (a == NULL || b == NULL)
        return;
    if (good(cuMemAllocAsync(&first, 1000, a)))
        (void)good(launch(a, 100, first, 1000, 1));
    (void)good(cuMemAllocAsync(&second, MIB(31), b));
    if (first != 0 && good(cuMemFreeAsync(first, a)))
        first = 0;
    countdown = first != 0 ? -1 : countdown;
    if (first != 0)
        OK(cuMemFreeAsync(first, a));
    if (second != 0 && !good(cuMemFreeAsync(second, b))) {
        countdown = -1;
        OK(cuMemFreeAsync(second, b));
    }
}

// A call of a capture, which an earlier failure may have broken.
static void captured(int result) {
    if (result != BERM_CU_STREAM_CAPTURE_INVALIDATED)
        (void)good(result);
}

static void more_graph(berm_cu_stream_t a, berm_cu_stream_t b, berm_cu_deviceptr_t addr) {
    berm_cu_event_t event = NULL;
    berm_cu_graph_t graph = NULL;
    berm_cu_graph_exec_t exec = NULL;
    if (a == NULL || b == NULL || addr == 0 || !good(cuEventCreate(&event, 0)))
        return;
    if (good(cuStreamBeginCapture_v2(a, BERM_CU_CAPTURE_RELAXED))) {
        simcuda_access_t access = {addr, 8, 1};
        captured(cuEventRecord(event, a));
        captured(cuStreamWaitEvent(b, event, 0));
        captured(simcuda_launch_fn(b, 100, &access, 1, run_nothing, NULL));
        captured(cuEventRecord(event, b));
        captured(cuStreamWaitEvent(a, event, 0));
        captured(cuLaunchHostFunc(a, run_nothing, NULL));
        (void)cuStreamEndCapture(a, &graph); // a step that was lost may leave it unjoined
    }
    if (graph != NULL && good(cuGraphInstantiateWithFlags(&exec, graph, 0))) {
        (void)good(cuGraphLaunch(exec, a));
        (void)good(cuGraphLaunch(exec, a));
        OK(cuGraphExecDestroy(exec));
    }
    if (graph != NULL)
        OK(cuGraphDestroy(graph));
    OK(cuEventDestroy_v2(event));
}

// One run of the scenario with the n-th allocation failing; false: there are fewer.
static int more_once(long n) {
    simcuda_config_t config;
    simcuda_ledger_t ledger;
    berm_cu_stream_t a = NULL, b = NULL;
    berm_cu_deviceptr_t plain = 0;
    simcuda_config_default(&config);
    config.is_backed = 1;
    start_with(&config);
    worst = BERM_CU_SUCCESS;
    countdown = n;
    (void)good(cuStreamCreate(&a, 1));
    (void)good(cuStreamCreate(&b, 1));
    (void)good(cuMemAlloc_v2(&plain, 4096));
    more_graph(a, b, plain);
    if (plain != 0)
        (void)good(cuMemsetD8Async(plain, 1, 8, NULL));
    more_pools(a, b);
    int has_failed = countdown < 0;
    countdown = -1;
    OK(cuCtxSynchronize());
    if (plain != 0)
        OK(cuMemFree_v2(plain));
    OK(cuDevicePrimaryCtxReset_v2(0));
    make_current(0);
    OK(cuCtxSynchronize()); // pools give back what is free
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.used_bytes == 0 && ledger.allocations == 0 && ledger.pool_bytes == 0);
    cr_assert(ledger.streams == 0 && ledger.events == 0);
    return has_failed;
}

Test(host_memory, every_allocation_of_pools_graphs_and_contents) {
    long n = 0;
    while (more_once(n))
        n++;
    cr_assert(n > 40, "%ld", n);
}

Test(host_memory, making_the_device_itself) {
    berm_cu_context_t context = NULL;
    OK(simcuda_reset(NULL));
    countdown = 0;
    FAILS(simcuda_reset(NULL), -1);
    countdown = -1;
    OK(simcuda_reset(NULL));
    OK(cuInit(0));
    for (long n = 0; context == NULL; n++) {
        countdown = n;
        int result = cuDevicePrimaryCtxRetain(&context, 0);
        countdown = -1;
        cr_assert(result == (context == NULL ? BERM_CU_OUT_OF_MEMORY : BERM_CU_SUCCESS));
        cr_assert(n < 100);
    }
    OK(cuDevicePrimaryCtxRelease_v2(0));
}
#endif
