// SPDX-License-Identifier: Apache-2.0
// Kinds of devices: presets and device files, as the driver, the runtime and NVML tell them, and
// the memory that a context takes.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_test.h"
#include "simcuda/runtime/cudart.h"

static char path[64];

static const char *file_with(const char *text) {
    (void)snprintf(path, sizeof(path), "/tmp/simcuda-gpu-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
    return path;
}

static simcuda_gpu_t preset(const char *name) {
    simcuda_gpu_t gpu;
    char error[512] = "";
    cr_assert(simcuda_gpu_read(name, &gpu, error, sizeof(error)) == 0, "%s", error);
    return gpu;
}

static int attribute(int number) {
    int value = -1;
    OK(cuDeviceGetAttribute(&value, number, 0));
    return value;
}

static void function_find(const char *library_name, const char *name, void *function) {
    char file[4096];
    const char *folder = getenv("BERM_LIBDIR");
    (void)snprintf(file, sizeof(file), "%s/simcuda/%s", folder != NULL ? folder : ".",
                   library_name);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library != NULL, "%s", dlerror());
    void *found = dlsym(library, name);
    cr_assert(found != NULL, "no %s", name);
    memcpy(function, &found, sizeof(found));
}

// --- presets -------------------------------------------------------------------------------------

// What each preset must say, apart from the table in gpu.c: the figures that programs decide by.
static const struct expected {
    const char *name, *device;
    int least_mib, most_mib; // of memory
    int major, minor, multiprocessors;
} expected[] = {
    {"T4-16", "Tesla T4", 14500, 15360, 7, 5, 40},
    {"L4-24", "NVIDIA L4", 22400, 23034, 8, 9, 58},
    {"RTX4090-24", "NVIDIA GeForce RTX 4090", 24000, 24564, 8, 9, 128},
    {"A100-40", "NVIDIA A100-SXM4-40GB", 40000, 40960, 8, 0, 108},
    {"A100-80", "NVIDIA A100-SXM4-80GB", 81000, 81920, 8, 0, 108},
    {"H100-80", "NVIDIA H100 80GB HBM3", 81000, 81559, 9, 0, 132},
    {"H200-141", "NVIDIA H200", 143000, 143771, 9, 0, 132},
    {"B200-192", "NVIDIA B200", 182000, 183359, 10, 0, 148},
};

Test(gpu, every_preset_is_listed_and_is_its_device) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(expected); i++) {
        const struct expected *e = &expected[i];
        simcuda_gpu_t gpu = preset(e->name);
        cr_assert(strcmp(simcuda_gpu_name(i), e->name) == 0);
        cr_assert(strcmp(gpu.name, e->device) == 0);
        cr_assert(gpu.memory_bytes >= MIB((uint64_t)e->least_mib), "%s", e->name);
        cr_assert(gpu.memory_bytes < MIB((uint64_t)e->most_mib), "%s", e->name);
        cr_assert(gpu.capability_major == e->major && gpu.capability_minor == e->minor);
        cr_assert(gpu.multiprocessors == e->multiprocessors);
        cr_assert(gpu.context_bytes > 0 && gpu.context_bytes < GIB(1));
        // A device made of it starts, and a block of shared memory has its reserved part.
        simcuda_config_t config;
        simcuda_config_default(&config);
        simcuda_config_gpu(&config, &gpu);
        cr_assert(simcuda_reset(&config) == 0, "%s", e->name);
    }
    cr_assert(simcuda_gpu_name(BERM_ARRAY_LENGTH(expected)) == NULL);
}

Test(gpu, the_driver_tells_the_preset) {
    setenv("SIMCUDA_GPU", "A100-80", 1);
    start();
    simcuda_gpu_t gpu = preset("A100-80");
    char name[64];
    size_t total_bytes = 0, free_bytes = 0;
    OK(cuDeviceGetName(name, sizeof(name), 0));
    cr_assert(strcmp(name, gpu.name) == 0);
    OK(cuDeviceTotalMem_v2(&total_bytes, 0));
    cr_assert(total_bytes == gpu.memory_bytes);
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(total_bytes == gpu.memory_bytes);
    cr_assert(free_bytes == gpu.memory_bytes - gpu.context_bytes);
    cr_assert(attribute(BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR) == 8);
    cr_assert(attribute(BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR) == 0);
    cr_assert(attribute(BERM_CU_ATTR_MULTIPROCESSOR_COUNT) == 108);
    cr_assert(attribute(BERM_CU_ATTR_CLOCK_RATE) == 1410000);
    cr_assert(attribute(BERM_CU_ATTR_MEMORY_CLOCK_RATE) == 1593000);
    cr_assert(attribute(BERM_CU_ATTR_MEMORY_BUS_WIDTH) == 5120);
    cr_assert(attribute(BERM_CU_ATTR_L2_CACHE_SIZE) == 40 << 20);
    cr_assert(attribute(BERM_CU_ATTR_MAX_THREADS_PER_MULTIPROCESSOR) == 2048);
    cr_assert(attribute(BERM_CU_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR) == 32);
    cr_assert(attribute(BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) == 164 << 10);
    cr_assert(attribute(BERM_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 163 << 10);
    cr_assert(attribute(BERM_CU_ATTR_ECC_ENABLED) == 1);
    cr_assert(attribute(BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED) == 1);
}

Test(gpu, a_device_without_peers_and_rdma) {
    setenv("SIMCUDA_GPU", "RTX4090-24", 1);
    setenv("SIMCUDA_DEVICES", "2", 1);
    start();
    int can = 1;
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_assert(can == 0);
    cr_assert(attribute(BERM_CU_ATTR_RDMA_WITH_VMM_SUPPORTED) == 0);
    cr_assert(attribute(BERM_CU_ATTR_ECC_ENABLED) == 0);
    cr_assert(attribute(BERM_CU_ATTR_VMM_SUPPORTED) == 1);
}

static void runtime_tells_the_preset(const char *library) {
    simcuda_gpu_t gpu = preset("T4-16");
    __typeof__(&cudaGetDeviceProperties) get_properties;
    __typeof__(&cudaMemGetInfo) get_info;
    __typeof__(&cudaOccupancyMaxActiveBlocksPerMultiprocessor) occupancy;
    __typeof__(&cudaFuncGetAttributes) get_attributes;
    function_find(library, "cudaGetDeviceProperties", &get_properties);
    function_find(library, "cudaMemGetInfo", &get_info);
    function_find(library, "cudaOccupancyMaxActiveBlocksPerMultiprocessor", &occupancy);
    function_find(library, "cudaFuncGetAttributes", &get_attributes);
    cudart_device_prop_t prop;
    OK(get_properties(&prop, 0));
    cr_assert(strcmp(prop.name, "Tesla T4") == 0 && prop.total_global_mem == gpu.memory_bytes);
    cr_assert(prop.major == 7 && prop.minor == 5 && prop.multi_processor_count == 40);
    cr_assert(prop.shared_mem_per_multiprocessor == 64 << 10 &&
              prop.reserved_shared_mem_per_block == 0);
    cr_assert(prop.memory_bus_width == 256 && prop.ecc_enabled == 1 &&
              prop.l2_cache_size == 4 << 20 && prop.max_threads_per_multi_processor == 1024);
    size_t free_bytes = 0, total_bytes = 0;
    OK(get_info(&free_bytes, &total_bytes));
    cr_assert(total_bytes == gpu.memory_bytes && total_bytes - free_bytes == gpu.context_bytes);
    int blocks = 0;
    OK(occupancy(&blocks, &prop, 32, 0)); // any address stands for a kernel
    cr_assert(blocks == 16, "%d", blocks);
    OK(occupancy(&blocks, &prop, 512, 0));
    cr_assert(blocks == 2, "%d", blocks);
    cudart_func_attributes_t attributes;
    OK(get_attributes(&attributes, &prop));
    cr_assert(attributes.binary_version == 75);
}

Test(gpu, the_runtime_tells_the_preset) {
    setenv("SIMCUDA_GPU", "T4-16", 1);
    runtime_tells_the_preset("libcudart.so.13");
}

Test(gpu, nvml_tells_the_preset) {
    setenv("SIMCUDA_GPU", "L4-24", 1);
    simcuda_gpu_t gpu = preset("L4-24");
    struct {
        unsigned long long total_bytes, free_bytes, used_bytes;
    } memory;
    void *device = NULL;
    char name[96];
    int major = 0, minor = 0;
    unsigned count = 1;
    int (*init)(void);
    int (*by_index)(unsigned, void **);
    int (*get_name)(void *, char *, unsigned);
    int (*get_memory)(void *, void *);
    int (*get_capability)(void *, int *, int *);
    int (*get_processes)(void *, unsigned *, void *);
    function_find("libnvidia-ml.so.1", "nvmlInit_v2", &init);
    function_find("libnvidia-ml.so.1", "nvmlDeviceGetHandleByIndex_v2", &by_index);
    function_find("libnvidia-ml.so.1", "nvmlDeviceGetName", &get_name);
    function_find("libnvidia-ml.so.1", "nvmlDeviceGetMemoryInfo", &get_memory);
    function_find("libnvidia-ml.so.1", "nvmlDeviceGetCudaComputeCapability", &get_capability);
    function_find("libnvidia-ml.so.1", "nvmlDeviceGetComputeRunningProcesses", &get_processes);
    OK(init());
    OK(by_index(0, &device));
    OK(get_name(device, name, sizeof(name)));
    cr_assert(strcmp(name, "NVIDIA L4") == 0);
    OK(get_capability(device, &major, &minor));
    cr_assert(major == 8 && minor == 9);
    OK(get_memory(device, &memory));
    cr_assert(memory.total_bytes == gpu.memory_bytes && memory.used_bytes == 0);
    make_current(0);
    OK(get_memory(device, &memory));
    cr_assert(memory.used_bytes == gpu.context_bytes);
    OK(get_processes(device, &count, NULL));
    cr_assert(count == 0, "the program's own context is no other process");
    simcuda_device_lose(0);
    cr_assert(get_memory(device, &memory) != 0 && memory.total_bytes == 0);
}

// --- memory of contexts --------------------------------------------------------------------------

Test(gpu, the_first_context_takes_memory_and_the_last_gives_it_back) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    simcuda_gpu_t gpu = preset("H100-80");
    simcuda_config_gpu(&config, &gpu);
    config.devices = 2;
    cr_assert(simcuda_reset(&config) == 0);
    OK(cuInit(0));
    simcuda_ledger_t ledger;
    uint64_t free_bytes, total_bytes;
    berm_cu_context_t context, second;
    cr_assert(simcuda_memory_read(0, &free_bytes, &total_bytes) == 0);
    cr_assert(free_bytes == gpu.memory_bytes && total_bytes == gpu.memory_bytes);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxCreate_v2(&second, 0, 0));
    cr_assert(simcuda_memory_read(0, &free_bytes, &total_bytes) == 0);
    cr_assert(free_bytes == gpu.memory_bytes - gpu.context_bytes);
    cr_assert(simcuda_memory_read(1, &free_bytes, &total_bytes) == 0);
    cr_assert(free_bytes == gpu.memory_bytes);
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.context_bytes == gpu.context_bytes && ledger.used_bytes == 0);
    simcuda_ledger_read(-1, &ledger);
    cr_assert(ledger.context_bytes == gpu.context_bytes);
    OK(cuDevicePrimaryCtxReset_v2(0));
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.context_bytes == gpu.context_bytes, "the other context is there");
    OK(cuCtxDestroy_v2(second));
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.context_bytes == 0);
    cr_assert(simcuda_memory_read(2, &free_bytes, &total_bytes) == -1 && total_bytes == 0);
}

Test(gpu, memory_of_a_context_is_not_the_programs) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = MIB(64);
    config.gpu.context_bytes = MIB(22);
    start_with(&config);
    berm_cu_mem_handle_t handle;
    FAILS(cuMemCreate(&handle, MIB(44), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
    OK(cuMemCreate(&handle, MIB(42), &device_prop, 0));
    cr_assert(simcuda_outside_set(0, 1) == -1);
    OK(cuMemRelease(handle));
    cr_assert(simcuda_outside_set(0, MIB(42)) == 0);
    FAILS(cuMemCreate(&handle, MIB(2), &device_prop, 0), BERM_CU_OUT_OF_MEMORY);
}

Test(gpu, a_context_that_does_not_fit_is_refused) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = MIB(64);
    config.gpu.context_bytes = MIB(32);
    cr_assert(simcuda_reset(&config) == 0);
    OK(cuInit(0));
    berm_cu_context_t context = NULL;
    cr_assert(simcuda_outside_set(0, MIB(40)) == 0);
    FAILS(cuDevicePrimaryCtxRetain(&context, 0), BERM_CU_OUT_OF_MEMORY);
    FAILS(cuCtxCreate_v2(&context, 0, 0), BERM_CU_OUT_OF_MEMORY);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.context_bytes == 0 && ledger.contexts_retained == 0);
    cr_assert(simcuda_outside_set(0, MIB(32)) == 0);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
}

// --- files and the environment -------------------------------------------------------------------

Test(gpu, a_file_changes_a_preset) {
    simcuda_gpu_t gpu, a100 = preset("A100-40");
    char error[512] = "";
    OK(simcuda_gpu_read(file_with("# mine\npreset=A100-40\n name = Own GPU # here\n"
                                  "capability=12.1\nmemory_bytes=20G\ncontext_bytes=0\n"
                                  "multiprocessors=7\n"),
                        &gpu, error, sizeof(error)));
    (void)unlink(path);
    cr_assert(strcmp(gpu.name, "Own GPU") == 0 && gpu.memory_bytes == GIB(20));
    cr_assert(gpu.capability_major == 12 && gpu.capability_minor == 1);
    cr_assert(gpu.context_bytes == 0 && gpu.multiprocessors == 7);
    cr_assert(gpu.clock_khz == a100.clock_khz && gpu.l2_bytes == a100.l2_bytes);
    OK(simcuda_gpu_read(file_with("multiprocessors=9\n"), &gpu, error, sizeof(error)));
    (void)unlink(path);
    cr_assert(gpu.memory_bytes == GIB(80) && gpu.multiprocessors == 9 && gpu.context_bytes == 0);
}

Test(gpu, bad_files_are_refused_with_their_line) {
    static const char *const bad[] = {"multiprocessors\n",
                                      "preset=A100\n",
                                      "cores=1\n",
                                      "multiprocessors=0\n",
                                      "multiprocessors=-1\n",
                                      "memory_bytes=1Q\n",
                                      "memory_bytes=200T\n",
                                      "clock_khz=3G\n",
                                      "has_ecc=2\n",
                                      "threads_per_multiprocessor=512\n",
                                      "name=\n",
                                      "capability=9\n",
                                      "capability=9.x\n",
                                      "capability=9.01\n",
                                      "capability=0.1\n",
                                      "capability=100.0\n"};
    simcuda_gpu_t gpu;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(bad); i++) {
        char text[128], error[512] = "";
        (void)snprintf(text, sizeof(text), "preset=L4-24\n%s", bad[i]);
        FAILS(simcuda_gpu_read(file_with(text), &gpu, error, sizeof(error)), -1);
        (void)unlink(path);
        cr_assert(strstr(error, ":2: ") != NULL, "%s: %s", bad[i], error);
    }
    char error[512] = "";
    FAILS(simcuda_gpu_read(file_with("shared_multiprocessor_bytes=100K\n"), &gpu, error,
                           sizeof(error)),
          -1);
    (void)unlink(path);
    cr_assert(strstr(error, "shared_block_bytes") != NULL, "%s", error);
    FAILS(simcuda_gpu_read("A100", &gpu, error, sizeof(error)), -1);
    cr_assert(strstr(error, "A100 is neither T4-16,") != NULL && strstr(error, "B200-192 nor a "),
              "%s", error);
    FAILS(simcuda_gpu_read(NULL, &gpu, error, sizeof(error)), -1);
}

Test(gpu, memory_of_the_environment_goes_before_the_presets) {
    setenv("SIMCUDA_GPU", "A100-80", 1);
    setenv("SIMCUDA_MEMORY", "8G", 1);
    start();
    size_t free_bytes = 0, total_bytes = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(total_bytes == GIB(8));
    cr_assert(free_bytes == GIB(8) - preset("A100-80").context_bytes);
    cr_assert(attribute(BERM_CU_ATTR_MULTIPROCESSOR_COUNT) == 108);
    simcuda_config_t config;
    cr_assert(simcuda_config_read(&config) == 0);
    cr_assert(config.memory_bytes == GIB(8) && config.gpu.memory_bytes > GIB(79));
}

Test(gpu, a_file_of_the_environment_is_the_device) {
    setenv("SIMCUDA_GPU", file_with("name=Own\nmemory_bytes=3G\ncontext_bytes=10M\n"), 1);
    start();
    (void)unlink(path);
    size_t free_bytes = 0, total_bytes = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    cr_assert(total_bytes == GIB(3) && free_bytes == GIB(3) - MIB(10));
}

Test(gpu, an_unknown_device_of_the_environment_is_refused) {
    setenv("SIMCUDA_GPU", "A100-81", 1);
    FAILS(cuInit(0), BERM_CU_INVALID_VALUE);
}

Test(gpu, memory_that_the_context_fills_is_refused) {
    setenv("SIMCUDA_GPU", "H100-80", 1);
    setenv("SIMCUDA_MEMORY", "521M", 1);
    FAILS(cuInit(0), BERM_CU_INVALID_VALUE);
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.memory_bytes = MIB(64);
    config.gpu.context_bytes = MIB(63);
    cr_assert(simcuda_reset(&config) == -1);
    config.gpu.context_bytes = MIB(62);
    cr_assert(simcuda_reset(&config) == 0);
    config.gpu.multiprocessors = 0;
    cr_assert(simcuda_reset(&config) == -1);
    config.gpu.multiprocessors = -5;
    cr_assert(simcuda_reset(&config) == -1);
    config.gpu.multiprocessors = 5;
    memset(config.gpu.name, 'x', sizeof(config.gpu.name));
    cr_assert(simcuda_reset(&config) == -1, "a name without an end");
}
