// SPDX-License-Identifier: Apache-2.0
// The device in its process: initialisation, environment, reset, contexts, fork, threads.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

Test(process, nothing_works_before_init) {
    int count;
    berm_cu_deviceptr_t addr;
    const char *name = NULL;
    FAILS(cuDeviceGetCount(&count), BERM_CU_NOT_INITIALIZED);
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_NOT_INITIALIZED);
    FAILS(cuMemAddressReserve(&addr, MIB(2), 0, 0, 0), BERM_CU_NOT_INITIALIZED);
    FAILS(launch(NULL, 1, 0, 0, 0), BERM_CU_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&count));
    OK(cuGetErrorName(BERM_CU_NOT_INITIALIZED, &name));
    cr_assert(strcmp(name, "CUDA_ERROR_NOT_INITIALIZED") == 0);
    FAILS(cuGetErrorName(12345, &name), BERM_CU_INVALID_VALUE);
    cr_assert(name == NULL);
    OK(cuGetErrorString(BERM_CU_OUT_OF_MEMORY, &name));
    FAILS(cuInit(1), BERM_CU_INVALID_VALUE);
    OK(cuInit(0));
    OK(cuInit(0));
    FAILS(cuMemAlloc_v2(&addr, 8), BERM_CU_INVALID_CONTEXT);
    OK(cuMemAddressReserve(&addr, MIB(2), 0, 0, 0)); // needs no context
}

Test(process, devices_and_attributes) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.devices = 3;
    OK(simcuda_reset(&config));
    OK(cuInit(0));
    int count = 0, device = -1, value = -1;
    size_t bytes = 0;
    char text[32];
    berm_cu_uuid_t a, b;
    OK(cuDeviceGetCount(&count));
    cr_assert(count == 3);
    OK(cuDeviceGet(&device, 2));
    FAILS(cuDeviceGet(&device, 3), BERM_CU_INVALID_DEVICE);
    FAILS(cuDeviceGet(&device, -1), BERM_CU_INVALID_DEVICE);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    cr_assert(bytes == GIB(80));
    OK(cuDeviceGetName(text, sizeof(text), 0));
    cr_assert(text[0] != '\0');
    OK(cuDeviceGetUuid_v2(&a, 0));
    OK(cuDeviceGetUuid_v2(&b, 1));
    cr_assert(memcmp(&a, &b, sizeof(a)) != 0);
    OK(cuDeviceGetAttribute(&value, BERM_CU_ATTR_VMM_SUPPORTED, 0));
    cr_assert(value == 1);
    OK(cuDeviceGetAttribute(&value, BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, 0));
    cr_assert(value == 9);
    FAILS(cuDeviceGetAttribute(&value, 0, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuDeviceGetAttribute(&value, 100000, 0), BERM_CU_INVALID_VALUE);
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    cr_assert(value == 1);
    OK(cuDeviceGetPCIBusId(text, sizeof(text), 2));
    OK(cuDeviceGetByPCIBusId(&device, text));
    cr_assert(device == 2);
    FAILS(cuDeviceGetByPCIBusId(&device, "nonsense"), BERM_CU_INVALID_VALUE);
}

Test(process, the_environment_decides) {
    setenv("SIMCUDA_MEMORY", "24G", 1);
    setenv("SIMCUDA_DEVICES", "2", 1);
    setenv("SIMCUDA_LATENCY", "slow", 1);
    setenv("SIMCUDA_VMM", "0", 1);
    setenv("SIMCUDA_OUTSIDE", "512M", 1);
    start();
    size_t free_bytes, total_bytes;
    int count, value;
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(total_bytes == GIB(24) && free_bytes == GIB(24) - MIB(512));
    OK(cuDeviceGetCount(&count));
    cr_assert(count == 2);
    OK(cuDeviceGetAttribute(&value, BERM_CU_ATTR_VMM_SUPPORTED, 1));
    cr_assert(value == 0);
    uint64_t now = simcuda_now_ns();
    berm_cu_deviceptr_t addr;
    OK(cuMemAlloc_v2(&addr, MIB(2)));
    cr_assert(simcuda_now_ns() - now == 59000);
    OK(simcuda_reset(NULL)); // the environment has had its say
    start();
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(total_bytes == GIB(80));
}

Test(process, a_bad_environment_is_reported) {
    static const char *const bad[][2] = {
        {"SIMCUDA_MEMORY", "lots"},   {"SIMCUDA_MEMORY", "12X"},
        {"SIMCUDA_MEMORY", "1"},      {"SIMCUDA_MEMORY", "99999999999999999999"},
        {"SIMCUDA_DEVICES", "0"},     {"SIMCUDA_DEVICES", "17"},
        {"SIMCUDA_LATENCY", "quick"}, {"SIMCUDA_STRICT", "yes"},
        {"SIMCUDA_OUTSIDE", "81G"},   {"SIMCUDA_VMM", ""}};
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        pid_t child = fork();
        if (child == 0) { // nothing was initialised: the child has a device of its own
            setenv(bad[i][0], bad[i][1], 1);
            _exit(cuInit(0));
        }
        int status = -1;
        cr_assert(waitpid(child, &status, 0) == child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == BERM_CU_INVALID_VALUE, "%s=%s",
                  bad[i][0], bad[i][1]);
    }
}

Test(process, reset_checks_what_it_is_given) {
    simcuda_config_t good, bad;
    simcuda_config_default(&good);
    start();
    (void)create(MIB(2));
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = good;                                                                                \
        bad.change;                                                                                \
        FAILS(simcuda_reset(&bad), -1);                                                            \
    } while (0)
    REFUSED(size = 8);
    REFUSED(devices = 0);
    REFUSED(devices = 17);
    REFUSED(granule_bytes = 3000000);
    REFUSED(granule_bytes = 512);
    REFUSED(memory_bytes = 0);
    REFUSED(outside_bytes = GIB(81));
    REFUSED(address_bytes = 0);
    REFUSED(address_bytes = UINT64_MAX);
    REFUSED(driver_version = 7);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.handles == 1, "nothing changed");
}

Test(process, reset_destroys_everything) {
    start();
    berm_cu_deviceptr_t addr = reserve(MIB(8)), plain;
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    berm_cu_stream_t stream = stream_new(0), capturing = stream_new(1);
    berm_cu_event_t event = event_new();
    uint64_t gate;
    int count;
    OK(cuMemAlloc_v2(&plain, 100));
    OK(launch(stream, 1000, addr, 8, 1));
    simcuda_access_t access = {addr, 8, 1};
    OK(simcuda_gate(stream, &access, 1, &gate));
    OK(cuEventRecord(event, stream));
    OK(cuStreamBeginCapture_v2(capturing, BERM_CU_CAPTURE_RELAXED));
    OK(simcuda_fault_nth("cuMemCreate", 1, 0, BERM_CU_UNKNOWN));
    OK(simcuda_reset(NULL));
    cr_assert(simcuda_now_ns() == 0 && simcuda_calls(NULL) == 0);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.used_bytes == 0 && ledger.mappings_peak == 0);
    OK(cuDeviceGetCount(&count)); // the process is still initialised
    FAILS(cuCtxSynchronize(), BERM_CU_INVALID_CONTEXT);
    start();
    FAILS(cuStreamQuery(stream), BERM_CU_INVALID_HANDLE);
    FAILS(cuMemRelease(handle), BERM_CU_INVALID_VALUE);
    (void)create(MIB(2));
}

Test(process, contexts) {
    start();
    berm_cu_context_t primary, made, current;
    berm_cu_device_t device;
    unsigned flags;
    int active;
    OK(cuCtxGetCurrent(&primary));
    OK(cuCtxCreate_v4(&made, NULL, BERM_CU_CTX_SCHED_SPIN, 0));
    OK(cuCtxGetCurrent(&current));
    cr_assert(current == made && made != primary);
    OK(cuCtxGetFlags(&flags));
    cr_assert(flags == BERM_CU_CTX_SCHED_SPIN);
    OK(cuCtxPushCurrent_v2(primary));
    OK(cuCtxGetDevice(&device));
    cr_assert(device == 0);
    OK(cuCtxPopCurrent_v2(&current));
    cr_assert(current == primary);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_context_t of_stream;
    OK(cuStreamGetCtx(stream, &of_stream));
    cr_assert(of_stream == made);
    OK(cuCtxSetCurrent(primary));
    FAILS(cuEventRecord(event_new(), stream), BERM_CU_INVALID_HANDLE);
    FAILS(launch(stream, 1, 0, 0, 0), BERM_CU_INVALID_HANDLE);
    FAILS(cuCtxDestroy_v2(primary), BERM_CU_INVALID_CONTEXT);
    OK(cuCtxDestroy_v2(made));
    FAILS(cuStreamQuery(stream), BERM_CU_INVALID_HANDLE);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert(active == 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    FAILS(cuDevicePrimaryCtxRelease_v2(0), BERM_CU_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert(active == 0);
    FAILS(cuCtxSynchronize(), BERM_CU_INVALID_CONTEXT);
}

Test(process, the_stack_of_contexts_has_an_end) {
    start();
    berm_cu_context_t context;
    OK(cuCtxGetCurrent(&context));
    int result = BERM_CU_SUCCESS, pushed = 1;
    while ((result = cuCtxPushCurrent_v2(context)) == BERM_CU_SUCCESS && pushed < 1000)
        pushed++;
    cr_assert(result == BERM_CU_OUT_OF_MEMORY);
    while (cuCtxPopCurrent_v2(NULL) == BERM_CU_SUCCESS)
        pushed--;
    cr_assert(pushed == 0);
}

Test(process, a_forked_child_is_refused) {
    start();
    pid_t child = fork();
    if (child == 0) {
        berm_cu_deviceptr_t addr;
        int refused = cuInit(0) == BERM_CU_NOT_INITIALIZED &&
                      cuMemAlloc_v2(&addr, 8) == BERM_CU_NOT_INITIALIZED &&
                      cuCtxSynchronize() == BERM_CU_NOT_INITIALIZED && simcuda_reset(NULL) == -1 &&
                      simcuda_now_ns() == 0 && launch(NULL, 1, 0, 0, 0) == BERM_CU_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuCtxSynchronize()); // the parent goes on
}

static void *thread_churn(void *failures) {
    make_current(0);
    for (int i = 0; i < 2000; i++) {
        berm_cu_deviceptr_t addr = 0;
        berm_cu_stream_t stream = NULL;
        int ok = cuMemAlloc_v2(&addr, (size_t)(i % 7 + 1) << 18) == BERM_CU_SUCCESS;
        ok = ok && cuStreamCreate(&stream, 1) == BERM_CU_SUCCESS;
        ok = ok && launch(stream, 100, addr, 1000, 1) == BERM_CU_SUCCESS;
        ok = ok && cuMemFree_v2(addr) == BERM_CU_SUCCESS;
        ok = ok && cuStreamDestroy_v2(stream) == BERM_CU_SUCCESS;
        *(int *)failures += !ok;
    }
    return NULL;
}

Test(process, threads_and_a_fork_among_them) {
    start();
    pthread_t threads[3];
    int failures[3] = {0};
    for (int i = 0; i < 3; i++)
        cr_assert(pthread_create(&threads[i], NULL, thread_churn, &failures[i]) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(cuCtxSynchronize() == BERM_CU_NOT_INITIALIZED ? 0 : 1);
        int status = -1;
        cr_assert(waitpid(child, &status, 0) == child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert(pthread_join(threads[i], NULL) == 0);
        cr_assert(failures[i] == 0);
    }
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.allocations == 0 && ledger.used_bytes == 0 && ledger.streams == 0);
    HAZARDS(0);
}
