// SPDX-License-Identifier: Apache-2.0
// A program that calls the driver directly, linked with libcuda. Run by test_preload.sh with and
// without libberm_preload.so.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload_test.h"
#include "simcuda/driver/entries.h"

enum {
    OK = BERM_CU_SUCCESS,
};

static berm_cu_context_t primary;

static void start(void) {
    GIVES(OK, cuInit(0));
    GIVES(OK, cuDevicePrimaryCtxRetain(&primary, 0));
    GIVES(OK, cuCtxSetCurrent(primary));
}

static bool is_berms_addr(berm_cu_deviceptr_t addr) {
    return is_berms((const void *)(uintptr_t)addr);
}

static berm_cu_deviceptr_t take(size_t bytes) {
    berm_cu_deviceptr_t addr = 0;
    GIVES(OK, cuMemAlloc_v2(&addr, bytes));
    CHECK(is_berms_addr(addr) == is_preloaded(), "%zu bytes", bytes);
    return addr;
}

static void case_basic(void) {
    berm_cu_deviceptr_t addrs[100];
    // Before there is a driver or a context each call says so.
    GIVES(BERM_CU_NOT_INITIALIZED, cuMemAlloc_v2(&addrs[0], 1));
    GIVES(OK, cuInit(0));
    GIVES(BERM_CU_INVALID_CONTEXT, cuMemAlloc_v2(&addrs[0], 1));
    GIVES(BERM_CU_INVALID_CONTEXT, cuMemFree_v2(4096));
    start();
    GIVES(BERM_CU_INVALID_VALUE, cuMemAlloc_v2(&addrs[0], 0));
    GIVES(BERM_CU_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    GIVES(BERM_CU_OUT_OF_MEMORY, cuMemAlloc_v2(&addrs[0], SIZE_MAX / 4));
    for (size_t i = 0; i < 100; i++)
        addrs[i] = take(i * 77777 + 1);
    for (size_t i = 0; i < 100; i++)
        GIVES(OK, cuMemFree_v2(addrs[i]));
    if (is_preloaded()) {
        GIVES(BERM_CU_INVALID_VALUE, cuMemFree_v2(addrs[3]));
        CHECK(stats_of(0).blocks.current == 0, "blocks are left");
    }
}

// A context of the program's own: its memory is the driver's, before and after berm has started.
static void case_context(void) {
    berm_cu_context_t own, popped;
    berm_cu_deviceptr_t addr = 0, mine;
    start();
    GIVES(OK, cuCtxCreate_v2(&own, 0, 0));
    GIVES(OK, cuMemAlloc_v2(&addr, MIB));
    CHECK(!is_berms_addr(addr), "memory of a context that berm does not know");
    GIVES(OK, cuMemFree_v2(addr));
    GIVES(OK, cuCtxPopCurrent_v2(&popped));
    mine = take(MIB);
    GIVES(OK, cuCtxPushCurrent_v2(own));
    GIVES(OK, cuMemAlloc_v2(&addr, MIB));
    CHECK(!is_berms_addr(addr), "memory of a context that berm does not know");
    GIVES(OK, cuMemFree_v2(addr));
    GIVES(OK, cuMemFree_v2(mine));
    GIVES(OK, cuCtxDestroy_v2(own));
}

// A program that only has a context of its own gets no primary one for it.
static void case_created_only(void) {
    berm_cu_context_t own;
    berm_cu_deviceptr_t addr = 0;
    unsigned flags = 0;
    int is_active = 1;
    GIVES(OK, cuInit(0));
    GIVES(OK, cuCtxCreate_v2(&own, 0, 0));
    GIVES(OK, cuMemAlloc_v2(&addr, MIB));
    GIVES(OK, cuMemFree_v2(addr));
    GIVES(OK, cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    CHECK(!is_active, "a primary context was made");
    GIVES(OK, cuCtxDestroy_v2(own));
}

static void case_range(void) {
    start();
    berm_cu_deviceptr_t addr = take(5 * MIB + 100), base = 0;
    size_t bytes = 0;
    GIVES(OK, cuMemGetAddressRange_v2(&base, &bytes, addr + 3 * MIB));
    CHECK(base == addr && bytes == 5 * MIB + 100, "%zu bytes", bytes);
    GIVES(OK, cuMemGetAddressRange_v2(&base, NULL, addr));
    GIVES(OK, cuMemFree_v2(addr));
}

// Requests of the driver's own find what berm keeps idle.
static void case_room(void) {
    size_t free_bytes = 0, total_bytes = 0;
    berm_cu_mem_handle_t handle = 0;
    berm_cu_mem_prop_t prop = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                               .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
    start();
    GIVES(OK, cuMemGetInfo_v2(&free_bytes, &total_bytes));
    size_t most = free_bytes / 4 * 3 / (2 * MIB) * (2 * MIB);
    GIVES(OK, cuMemFree_v2(take(most)));
    GIVES(OK, cuMemCreate(&handle, most, &prop, 0));
    GIVES(OK, cuMemRelease(handle));
    GIVES(OK, cuMemFree_v2(take(most)));
    berm_cu_context_t own;
    GIVES(OK, cuCtxCreate_v2(&own, 0, 0)); // its requests are the driver's
    GIVES(OK, cuCtxSetCurrent(primary));
    GIVES(OK, cuMemCreate(&handle, most, &prop, 0));
    GIVES(BERM_CU_OUT_OF_MEMORY, cuMemCreate(&handle, most, &prop, 0));
}

// By legacy handle, to another process, where the option ipc gives blocks memory of their own.
static void ipc_child(const berm_cu_ipc_mem_handle_t *handle) {
    berm_cu_deviceptr_t addr = 0;
    start();
    GIVES(OK, cuIpcOpenMemHandle_v2(&addr, *handle, BERM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    simcuda_access_t access = {addr, 4 * MIB, 1};
    GIVES(OK, simcuda_launch(NULL, 1000, &access, 1));
    GIVES(OK, cuCtxSynchronize());
    GIVES(OK, cuIpcCloseMemHandle(addr));
    no_hazards();
    exit(0);
}

static void ipc_to_child(bool works) {
    int pipes[2], status = 0;
    berm_cu_ipc_mem_handle_t handle;
    CHECK(pipe(pipes) == 0, "pipe");
    pid_t child = fork(); // before CUDA is used
    if (child == 0) {
        (void)close(pipes[1]);
        if (read(pipes[0], &handle, sizeof handle) == (ssize_t)sizeof handle)
            ipc_child(&handle);
        exit(3);
    }
    (void)close(pipes[0]);
    start();
    berm_cu_deviceptr_t small = take(1000), addr = take(4 * MIB), again = take(4 * MIB);
    if (works) {
        GIVES(OK, cuIpcGetMemHandle(&handle, addr));
        CHECK(write(pipes[1], &handle, sizeof handle) == (ssize_t)sizeof handle, "write");
    } else {
        GIVES(BERM_CU_INVALID_VALUE, cuIpcGetMemHandle(&handle, addr));
        GIVES(BERM_CU_INVALID_VALUE, cuIpcGetMemHandle(&handle, addr)); // said once only
    }
    (void)close(pipes[1]);
    CHECK(waitpid(child, &status, 0) == child && status == (works ? 0 : 3 << 8), "the child: %d",
          status);
    GIVES(OK, cuMemFree_v2(small));
    GIVES(OK, cuMemFree_v2(addr));
    GIVES(OK, cuMemFree_v2(again));
}

static void case_ipc(void) {
    ipc_to_child(true);
}

static void case_ipc_refused(void) {
    ipc_to_child(!is_preloaded());
}

// Access of the second device to the first one's memory, asked of the driver.
static void case_peers(void) {
    berm_cu_context_t second;
    berm_cu_stream_t stream;
    start();
    berm_cu_deviceptr_t before = take(4 * MIB);
    GIVES(OK, cuDevicePrimaryCtxRetain(&second, 1));
    GIVES(OK, cuCtxSetCurrent(second));
    GIVES(OK, cuCtxEnablePeerAccess(primary, 0));
    GIVES(BERM_CU_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(primary, 0));
    GIVES(OK, cuStreamCreate(&stream, 1));
    simcuda_access_t access = {before, 4 * MIB, 1};
    GIVES(OK, simcuda_launch(stream, 100000000, &access, 1));
    if (!is_preloaded()) // the simulated driver's cuMemFree waits for its own device only
        GIVES(OK, cuCtxSynchronize());
    GIVES(OK, cuCtxSetCurrent(primary));
    GIVES(OK, cuMemFree_v2(before)); // the second device is at work on it
    berm_cu_deviceptr_t after = take(4 * MIB);
    access.addr = after;
    GIVES(OK, simcuda_launch(NULL, 1000, &access, 1));
    GIVES(OK, cuCtxSynchronize());
    GIVES(OK, cuMemFree_v2(after));
    GIVES(OK, cuCtxSetCurrent(second));
    GIVES(OK, cuStreamDestroy_v2(stream));
    GIVES(OK, cuCtxDisablePeerAccess(primary));
    GIVES(BERM_CU_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(primary));
}

// The default pool's memory is made accessible to the second device, so berm's is.
static void case_pool_peers(void) {
    berm_cu_mem_pool_t pool;
    berm_cu_context_t second;
    berm_cu_stream_t stream, other;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_access_t access = {{BERM_CU_MEM_LOCATION_DEVICE, 1}, BERM_CU_MEM_ACCESS_READWRITE};
    start();
    GIVES(OK, cuDevicePrimaryCtxRetain(&second, 1));
    GIVES(OK, cuDeviceGetDefaultMemPool(&pool, 0));
    GIVES(OK, cuMemPoolSetAccess(pool, &access, 1));
    GIVES(OK, cuStreamCreate(&stream, 1));
    GIVES(OK, cuMemAllocAsync(&addr, MIB, stream));
    CHECK(is_berms_addr(addr) == is_preloaded(), "not served");
    GIVES(OK, cuStreamSynchronize(stream));
    GIVES(OK, cuCtxSetCurrent(second));
    GIVES(OK, cuStreamCreate(&other, 1));
    simcuda_access_t used = {addr, MIB, 1};
    GIVES(OK, simcuda_launch(other, 1000, &used, 1));
    GIVES(OK, cuCtxSynchronize());
    GIVES(OK, cuCtxSetCurrent(primary));
    GIVES(OK, cuMemFreeAsync(addr, stream));
    GIVES(OK, cuStreamDestroy_v2(stream));
}

// A default stream of each thread's own.
static void *per_thread(void *argument) {
    (void)argument;
    GIVES(OK, cuCtxSetCurrent(primary));
    for (int i = 0; i < 100; i++) {
        berm_cu_deviceptr_t addr = 0;
        GIVES(OK, cuMemAllocAsync_ptsz(&addr, MIB, NULL));
        CHECK(is_berms_addr(addr) == is_preloaded(), "not served");
        simcuda_access_t access = {addr, MIB, 1};
        GIVES(OK, simcuda_launch(BERM_CU_STREAM_PER_THREAD, 10000, &access, 1));
        GIVES(OK, cuMemFreeAsync_ptsz(addr, NULL));
    }
    return NULL;
}

static void case_per_thread(void) {
    pthread_t threads[4];
    start();
    for (int i = 0; i < 4; i++)
        GIVES(OK, pthread_create(&threads[i], NULL, per_thread, NULL));
    for (int i = 0; i < 4; i++)
        GIVES(OK, pthread_join(threads[i], NULL));
}

// A request in a pool that the program has set, or in a capture, is not berm's.
static void case_async_passed(void) {
    berm_cu_mem_pool_t pool, usual;
    berm_cu_stream_t stream;
    berm_cu_deviceptr_t addr = 0;
    berm_cu_mem_pool_props_t props = {.type = BERM_CU_MEM_ALLOCATION_PINNED,
                                      .location = {BERM_CU_MEM_LOCATION_DEVICE, 0}};
    start();
    GIVES(OK, cuStreamCreate(&stream, 1));
    GIVES(OK, cuDeviceGetDefaultMemPool(&usual, 0));
    GIVES(OK, cuMemPoolCreate(&pool, &props));
    GIVES(OK, cuDeviceSetMemPool(0, pool));
    GIVES(OK, cuMemAllocAsync(&addr, MIB, stream));
    CHECK(!is_berms_addr(addr), "the program has set a pool");
    GIVES(OK, cuMemFreeAsync(addr, stream));
    GIVES(OK, cuDeviceSetMemPool(0, usual));
    GIVES(OK, cuMemAllocAsync(&addr, MIB, stream));
    CHECK(is_berms_addr(addr) == is_preloaded(), "not served");
    GIVES(OK, cuMemFreeAsync(addr, stream));
    GIVES(BERM_CU_INVALID_HANDLE, cuMemAllocAsync(&addr, MIB, (berm_cu_stream_t)(uintptr_t)64));
    GIVES(OK, cuStreamDestroy_v2(stream));
    GIVES(OK, cuMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
    static const test_case_t cases[] = {
        {"basic", case_basic},
        {"context", case_context},
        {"created_only", case_created_only},
        {"range", case_range},
        {"room", case_room},
        {"ipc", case_ipc},
        {"ipc_refused", case_ipc_refused},
        {"peers", case_peers},
        {"pool_peers", case_pool_peers},
        {"per_thread", case_per_thread},
        {"async_passed", case_async_passed},
    };
    return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
