// SPDX-License-Identifier: Apache-2.0
// Backed mode: memory has contents, aliases alias, work acts in the order of virtual time.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

static simcuda_config_t config;

static void start_backed(void) {
    simcuda_config_default(&config);
    config.is_backed = 1;
    start_with(&config);
}

static volatile unsigned char *at(berm_cu_deviceptr_t addr) {
    return (volatile unsigned char *)(uintptr_t)addr;
}

// A kernel: writes `value` to [addr, addr + bytes), and counts itself.
typedef struct fill_kernel {
    berm_cu_deviceptr_t addr;
    size_t bytes;
    int value;
    int number; // of the kernel among all, once it has run
} fill_kernel_t;

static int kernels_run;

static void run_fill(void *argument) {
    fill_kernel_t *kernel = argument;
    memset((void *)(uintptr_t)kernel->addr, kernel->value, kernel->bytes);
    kernel->number = ++kernels_run;
}

static int launch_fill(berm_cu_stream_t stream, uint64_t ns, fill_kernel_t *kernel) {
    simcuda_access_t access = {kernel->addr, kernel->bytes, 1};
    return simcuda_launch_fn(stream, ns, &access, 1, run_fill, kernel);
}

Test(backed, new_memory_is_zero_and_keeps_what_is_written) {
    start_backed();
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(4));
    unsigned char out[16];
    cr_assert(*at(addr) == 0 && *at(addr + MIB(4) - 1) == 0);
    OK(cuMemcpyHtoD_v2(addr + 5, "hello", 6));
    OK(cuMemcpyDtoD_v2(addr + MIB(3), addr + 5, 6));
    OK(cuMemcpyDtoH_v2(out, addr + MIB(3), 6));
    cr_assert(memcmp(out, "hello", 6) == 0);
    OK(cuMemsetD8_v2(addr + 6, 'a', 2));
    OK(cuMemcpy((berm_cu_deviceptr_t)(uintptr_t)out, addr + 5, 6));
    cr_assert(memcmp(out, "haalo", 6) == 0);
    OK(cuMemUnmap(addr, MIB(4)));
    OK(cuMemMap(addr, MIB(4), 0, handle, 0));
    OK(cuMemSetAccess(addr, MIB(4), &read_write, 1));
    cr_assert(*at(addr + 5) == 'h', "unmapping loses nothing");
    OK(cuMemUnmap(addr, MIB(4)));
    OK(cuMemRelease(handle));
    (void)map_at(addr, MIB(4));
    cr_assert(*at(addr + 5) == 0, "new memory shows nothing of the old");
    HAZARDS(0);
}

Test(backed, aliases_alias) {
    start_backed();
    berm_cu_deviceptr_t addr = reserve(MIB(8));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    OK(cuMemMap(addr + MIB(4), MIB(2), 0, handle, 0));
    OK(cuMemSetAccess(addr + MIB(4), MIB(2), &read_write, 1));
    *at(addr + 77) = 9;
    cr_assert(*at(addr + MIB(4) + 77) == 9);
    OK(cuMemUnmap(addr, MIB(2)));
    OK(cuMemRelease(handle));
    cr_assert(*at(addr + MIB(4) + 77) == 9, "the other mapping keeps it");
}

Test(backed, plain_blocks_have_contents) {
    start_backed();
    berm_cu_deviceptr_t small[3], large;
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc_v2(&small[i], 1000));
        OK(cuMemsetD8Async(small[i], (unsigned char)(i + 1), 1000, NULL));
    }
    OK(cuMemAlloc_v2(&large, MIB(5)));
    OK(cuMemsetD8Async(large, 7, MIB(5), NULL));
    OK(cuCtxSynchronize());
    for (int i = 0; i < 3; i++)
        cr_assert(*at(small[i]) == i + 1 && *at(small[i] + 999) == i + 1);
    cr_assert(*at(large + MIB(5) - 1) == 7);
    for (int i = 0; i < 3; i++)
        OK(cuMemFree_v2(small[i]));
    OK(cuMemFree_v2(large));
    HAZARDS(0);
}

Test(backed, work_acts_when_it_is_due) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1), other = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    fill_kernel_t slow = {addr, 8, 1, 0}, quick = {addr + 64, 8, 2, 0}, last = {addr, 8, 3, 0};
    OK(launch_fill(stream, 1000000, &slow));
    OK(launch_fill(stream, 1000000, &last));
    OK(launch_fill(other, 10000, &quick));
    cr_assert(kernels_run == 0 && *at(addr) == 0);
    simcuda_advance_ns(10000);
    cr_assert(quick.number == 1 && *at(addr + 64) == 2 && slow.number == 0);
    simcuda_advance_ns(1000000);
    cr_assert(slow.number == 2 && *at(addr) == 1);
    OK(cuStreamSynchronize(stream));
    cr_assert(last.number == 3 && *at(addr) == 3);
    HAZARDS(0);
}

Test(backed, work_that_ends_together_acts_in_order) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    fill_kernel_t kernels[8];
    OK(launch(stream, 1000, 0, 0, 0));
    for (int i = 0; i < 8; i++) {
        kernels[i] = (fill_kernel_t){addr, 8, i, 0};
        OK(launch_fill(stream, 0, &kernels[i]));
    }
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 8; i++)
        cr_assert(kernels[i].number == i + 1);
    cr_assert(*at(addr) == 7);
}

Test(backed, copies_take_what_is_there_at_their_time) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    char in[4] = "one", out[4] = "", again[4] = "";
    OK(launch(stream, 1000, 0, 0, 0));
    OK(cuMemcpyHtoDAsync_v2(addr, in, 4, stream));
    OK(cuMemcpyDtoHAsync_v2(out, addr, 4, stream));
    OK(cuMemsetD8Async(addr, 'x', 3, stream));
    OK(cuMemcpyDtoHAsync_v2(again, addr, 4, stream));
    memcpy(in, "two", 4); // not read yet: as pinned memory
    cr_assert(out[0] == '\0');
    OK(cuStreamSynchronize(stream));
    cr_assert(strcmp(out, "two") == 0 && strcmp(again, "xxx") == 0);
}

Test(backed, work_behind_a_gate_acts_when_it_opens) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    uint64_t gate;
    (void)map_at(addr, MIB(2));
    fill_kernel_t kernel = {addr, 8, 4, 0};
    OK(simcuda_gate(stream, NULL, 0, &gate));
    OK(launch_fill(stream, 500, &kernel));
    OK(cuMemsetD8Async(addr + 4, 5, 1, stream));
    simcuda_advance_ns(1000000);
    cr_assert(*at(addr) == 0);
    OK(simcuda_gate_open(gate));
    OK(cuStreamSynchronize(stream));
    cr_assert(*at(addr + 3) == 4 && *at(addr + 4) == 5 && *at(addr + 5) == 4);
    OK(simcuda_gate(stream, NULL, 0, &gate));
    OK(launch_fill(stream, 500, &kernel)); // left behind by the reset below
    OK(simcuda_reset(&config));
}

static void see_byte(void *argument) {
    unsigned char *seen = argument;
    berm_cu_deviceptr_t addr;
    memcpy(&addr, seen, sizeof(addr));
    seen[sizeof(addr)] = *at(addr);
}

Test(backed, host_functions_see_what_was_before_them) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    unsigned char seen[2][sizeof(addr) + 1];
    (void)map_at(addr, MIB(2));
    for (int i = 0; i < 2; i++) {
        memcpy(seen[i], &addr, sizeof(addr));
        OK(cuMemsetD8Async(addr, (unsigned char)(i + 1), 1, stream));
        OK(cuLaunchHostFunc(stream, see_byte, seen[i]));
    }
    OK(cuMemsetD8Async(addr, 3, 1, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert(seen[0][sizeof(addr)] == 1 && seen[1][sizeof(addr)] == 2 && *at(addr) == 3);
}

static void touch(berm_cu_deviceptr_t addr, int is_write) {
    if (is_write)
        *at(addr) = 1;
    else
        (void)*at(addr);
}

// Whether touching the address kills a process. The parent's memory is not the child's: a thread
// of a fork would have none, so the child makes a device of its own.
static int faults(int flags, int is_write, int stage) {
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(20); // a failed assertion here ends nothing by itself
        start_backed();
        berm_cu_mem_access_t access = read_write;
        access.flags = flags;
        berm_cu_deviceptr_t addr = reserve(MIB(2));
        berm_cu_mem_handle_t handle = create(MIB(2));
        OK(cuMemMap(addr, MIB(2), 0, handle, 0));
        if (stage > 0)
            OK(cuMemSetAccess(addr, MIB(2), &access, 1));
        if (stage > 1)
            OK(cuMemUnmap(addr, MIB(2)));
        (void)signal(SIGSEGV, _exit); // exits with the signal's number
        touch(addr, is_write);
        _exit(0);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == SIGSEGV;
}

Test(backed, the_host_may_touch_what_a_device_may) {
    cr_assert(faults(BERM_CU_MEM_ACCESS_NONE, 0, 0), "mapped, without access");
    cr_assert(!faults(BERM_CU_MEM_ACCESS_READWRITE, 1, 1));
    cr_assert(!faults(BERM_CU_MEM_ACCESS_READ, 0, 1));
    cr_assert(faults(BERM_CU_MEM_ACCESS_READ, 1, 1), "read only");
    cr_assert(faults(BERM_CU_MEM_ACCESS_NONE, 0, 1));
    cr_assert(faults(BERM_CU_MEM_ACCESS_READWRITE, 0, 2), "unmapped");
}

Test(backed, a_forked_child_has_no_device_memory) {
    start_backed();
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    *at(addr) = 1;
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, _exit);
        *at(addr) = 2;
        _exit(0);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == SIGSEGV && *at(addr) == 1);
}

static long resident_kib(void) {
    struct rusage usage;
    cr_assert(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

Test(backed, memory_is_taken_when_it_is_written) {
    start_backed();
    long before = resident_kib();
    berm_cu_deviceptr_t addr = reserve(GIB(64)), plain;
    for (uint64_t i = 0; i < 32; i++)
        (void)map_at(addr + i * GIB(2), GIB(2));
    OK(cuMemAlloc_v2(&plain, GIB(8)));
    OK(cuMemsetD8_v2(plain, 1, MIB(1)));
    OK(cuCtxSynchronize());
    cr_assert(*at(plain + MIB(1) - 1) == 1);
    cr_assert(resident_kib() - before < 64 * 1024, "%ld KiB", resident_kib() - before);
}

Test(backed, work_on_memory_that_is_gone_is_not_done) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    berm_cu_mem_handle_t handle = map_at(addr, MIB(2));
    fill_kernel_t kernel = {addr, 8, 1, 0};
    OK(launch_fill(stream, 1000000, &kernel));
    OK(cuMemUnmap(addr, MIB(2)));
    HAZARDS(1);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_UNMAPPED_UNDER_WORK);
    FAILS(cuStreamSynchronize(stream), BERM_CU_ILLEGAL_ADDRESS);
    cr_assert(kernel.number == 0);
    (void)handle;
}

Test(backed, work_of_two_devices_on_memory_that_is_gone) {
    simcuda_config_default(&config);
    config.is_backed = 1;
    config.devices = 2;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    berm_cu_mem_access_t access = read_write;
    access.location.id = 1;
    OK(cuMemSetAccess(addr, MIB(2), &access, 1));
    fill_kernel_t first = {addr, 8, 1, 0}, second = {addr + 64, 8, 1, 0};
    OK(launch_fill(NULL, 1000000, &first));
    make_current(1);
    OK(launch_fill(NULL, 2000000, &second));
    OK(cuMemUnmap(addr, MIB(2)));
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    make_current(0);
    FAILS(cuCtxSynchronize(), BERM_CU_ILLEGAL_ADDRESS);
    cr_assert(first.number == 0 && second.number == 0);
}

Test(backed, work_on_addresses_of_nothing_is_not_done) {
    start_backed();
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    char out[8] = "kept";
    OK(cuMemcpyDtoHAsync_v2(out, addr, 4, stream));
    HAZARDS(1);
    FAILS(cuStreamSynchronize(stream), BERM_CU_ILLEGAL_ADDRESS);
    cr_assert(strcmp(out, "kept") == 0);
}

Test(backed, a_stale_mapping_reads_zeros_and_loses_writes) {
    simcuda_config_default(&config);
    config.is_backed = 1;
    config.stale_map_ns = 1000000;
    start_with(&config);
    berm_cu_deviceptr_t addr = reserve(MIB(4));
    (void)map_at(addr, MIB(2));
    char out[4] = "abc";
    *at(addr) = 'z';
    OK(cuMemcpyDtoH_v2(out, addr, 1));
    cr_assert(out[0] == '\0');
    OK(cuMemsetD8Async(addr, 'w', 1, NULL));
    OK(cuCtxSynchronize());
    cr_assert(*at(addr) == 'z');
    HAZARDS(2);
    cr_assert(hazard_kind(0) == SIMCUDA_HAZARD_STALE_MAP);
    simcuda_advance_ns(1000000);
    OK(cuMemcpyDtoH_v2(out, addr, 1));
    cr_assert(out[0] == 'z');
}

Test(backed, copies_and_fills_act_at_launch_where_others_carry_out_kernels) {
    simcuda_config_default(&config);
    config.is_backed = config.acts_at_launch = 1;
    start_with(&config);
    berm_cu_stream_t stream = stream_new(1);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    simcuda_access_t access = {addr, 64, 1};
    char out[4] = "abc";
    uint64_t gate;
    OK(simcuda_gate(stream, &access, 1, &gate)); // nothing behind it may end
    OK(cuMemcpyHtoDAsync_v2(addr, "z", 1, stream));
    cr_assert(*at(addr) == 'z');
    *at(addr) = 'k'; // a kernel of this stream
    OK(cuMemsetD8Async(addr + 1, 'w', 1, stream));
    OK(cuMemcpyDtoHAsync_v2(out, addr, 2, stream));
    cr_assert(strcmp(out, "kwc") == 0);
    OK(simcuda_gate_open(gate));
    OK(cuStreamSynchronize(stream));
    cr_assert(*at(addr) == 'k', "they act once");
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_GLOBAL));
    OK(cuMemsetD8Async(addr, 'g', 1, stream));
    berm_cu_graph_t graph;
    berm_cu_graph_exec_t exec;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    cr_assert(*at(addr) == 'k', "what a graph does is the others' too");
    HAZARDS(0);
    OK(cuMemcpyHtoDAsync_v2(addr + MIB(4), "z", 1, stream));
    FAILS(cuStreamSynchronize(stream), BERM_CU_ILLEGAL_ADDRESS);
}

static int inner_result, inner_launch;

static void run_driver_call(void *unused) {
    berm_cu_deviceptr_t addr;
    (void)unused;
    inner_result = cuMemAlloc_v2(&addr, 8);
    inner_launch = simcuda_launch_fn(NULL, 1, NULL, 0, run_driver_call, NULL);
    (void)simcuda_now_ns();
}

Test(backed, kernels_are_device_code) {
    start_backed();
    OK(simcuda_launch_fn(NULL, 1, NULL, 0, run_driver_call, NULL));
    OK(cuCtxSynchronize());
    cr_assert(inner_result == BERM_CU_NOT_PERMITTED && inner_launch == BERM_CU_NOT_PERMITTED);
    FAILS(simcuda_launch_fn(NULL, 1, NULL, 0, NULL, NULL), BERM_CU_INVALID_VALUE);
    OK(simcuda_reset(NULL));
    start();
    FAILS(simcuda_launch_fn(NULL, 1, NULL, 0, run_driver_call, NULL), BERM_CU_NOT_SUPPORTED);
}

Test(backed, the_environment_asks_for_it) {
    setenv("SIMCUDA_BACKED", "1", 1);
    start();
    berm_cu_deviceptr_t addr;
    OK(cuMemAlloc_v2(&addr, 8));
    OK(cuMemsetD8_v2(addr, 3, 8));
    OK(cuCtxSynchronize());
    cr_assert(*at(addr + 7) == 3);
}

Test(backed, reset_takes_all_back) {
    for (int i = 0; i < 20; i++) {
        start_backed();
        berm_cu_deviceptr_t addr = reserve(MIB(64));
        (void)map_at(addr, MIB(64));
        *at(addr + MIB(1)) = 1;
        fill_kernel_t kernel = {addr, 8, 1, 0};
        OK(launch_fill(NULL, 1000, &kernel));
    }
    cr_assert(kernels_run == 0);
}

// --- order against a model -----------------------------------------------------------------------

enum {
    MODEL_BLOCKS = 24,
    MODEL_STREAMS = 4,
    MODEL_BYTES = 4096,
    MODEL_STEPS = 20000
};

typedef struct check_kernel {
    berm_cu_deviceptr_t addr;
    unsigned char expected, next;
} check_kernel_t;

static int wrong_bytes;

// Expects one value everywhere and writes another.
static void run_check(void *argument) {
    check_kernel_t *kernel = argument;
    volatile unsigned char *bytes = at(kernel->addr);
    wrong_bytes += bytes[0] != kernel->expected || bytes[MODEL_BYTES - 1] != kernel->expected;
    memset((void *)(uintptr_t)kernel->addr, kernel->next, MODEL_BYTES);
    free(kernel);
}

// Random kernels and copies over blocks; a stream that takes a block of another waits by event.
Test(backed, ordered_work_never_sees_a_wrong_byte) {
    start_backed();
    berm_rng_t rng;
    berm__rng_seed(&rng, 7);
    berm_cu_deviceptr_t addr = reserve(MIB(2));
    (void)map_at(addr, MIB(2));
    berm_cu_stream_t streams[MODEL_STREAMS];
    berm_cu_event_t event = event_new();
    unsigned char value[MODEL_BLOCKS] = {0};
    int owner[MODEL_BLOCKS] = {0};
    for (int i = 0; i < MODEL_STREAMS; i++)
        streams[i] = stream_new(1);
    for (int step = 0; step < MODEL_STEPS; step++) {
        size_t block = berm__rng_below(&rng, MODEL_BLOCKS);
        int stream = (int)berm__rng_below(&rng, MODEL_STREAMS);
        if (owner[block] != stream) {
            OK(cuEventRecord(event, streams[owner[block]]));
            OK(cuStreamWaitEvent(streams[stream], event, 0));
            owner[block] = stream;
        }
        check_kernel_t *kernel = malloc(sizeof(*kernel));
        cr_assert(kernel != NULL);
        *kernel = (check_kernel_t){addr + block * MODEL_BYTES, value[block],
                                   (unsigned char)berm__rng_below(&rng, 256)};
        value[block] = kernel->next;
        simcuda_access_t access = {kernel->addr, MODEL_BYTES, 1};
        OK(simcuda_launch_fn(streams[stream], berm__rng_below(&rng, 5000), &access, 1, run_check,
                             kernel));
        if (berm__rng_below(&rng, 50) == 0)
            simcuda_advance_ns(berm__rng_below(&rng, 100000));
    }
    OK(cuCtxSynchronize());
    cr_assert(wrong_bytes == 0, "%d", wrong_bytes);
    for (size_t i = 0; i < MODEL_BLOCKS; i++)
        cr_assert(*at(addr + i * MODEL_BYTES + 17) == value[i]);
    HAZARDS(0);
}

static void *thread_fills(void *argument) {
    berm_cu_deviceptr_t addr = *(berm_cu_deviceptr_t *)argument;
    make_current(0);
    berm_cu_stream_t stream = stream_new(1);
    fill_kernel_t kernels[2] = {{addr, 512, 1, 0}, {addr, 512, 2, 0}};
    for (int i = 0; i < 1000; i++) {
        OK(launch_fill(stream, 1000, &kernels[i % 2]));
        if (i % 10 == 9) {
            OK(cuStreamSynchronize(stream));
            cr_assert(*at(addr + 5) == 2);
        }
    }
    OK(cuStreamSynchronize(stream));
    return NULL;
}

Test(backed, threads) {
    start_backed();
    pthread_t threads[3];
    berm_cu_deviceptr_t addr = reserve(MIB(2)), parts[3];
    (void)map_at(addr, MIB(2));
    for (size_t i = 0; i < 3; i++) {
        parts[i] = addr + i * 4096;
        cr_assert(pthread_create(&threads[i], NULL, thread_fills, &parts[i]) == 0);
    }
    for (int i = 0; i < 3; i++)
        cr_assert(pthread_join(threads[i], NULL) == 0);
    cr_assert(kernels_run == 3000);
    HAZARDS(0);
}

Test(backed, wide_fills) {
    simcuda_config_t backed;
    simcuda_config_default(&backed);
    backed.is_backed = 1;
    start_with(&backed);
    berm_cu_deviceptr_t addr = 0;
    uint32_t words[4] = {0};
    OK(cuMemAlloc_v2(&addr, 4096));
    OK(cuMemsetD32Async(addr, 0x04030201, 3, NULL));
    OK(cuMemsetD16Async(addr + 2, 0x0605, 1, NULL));
    OK(cuMemcpyDtoH_v2(words, addr, sizeof(words)));
    cr_assert(words[0] == 0x06050201 && words[1] == 0x04030201 && words[2] == 0x04030201);
    cr_assert(words[3] == 0);
    OK(cuMemsetD16_v2(addr, 7, 2));
    OK(cuMemsetD32_v2(addr + 4, 9, 1));
    OK(cuMemsetD32Async_ptsz(addr + 8, 11, 1, NULL));
    OK(cuStreamSynchronize(BERM_CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(words, addr, sizeof(words)));
    cr_assert(words[0] == 0x00070007 && words[1] == 9 && words[2] == 11);
    FAILS(cuMemsetD32_v2(addr + 2, 1, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemsetD16_v2(addr + 1, 1, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuMemsetD32_v2(addr, 1, SIZE_MAX / 2), BERM_CU_INVALID_VALUE);
    HAZARDS(0);
}
