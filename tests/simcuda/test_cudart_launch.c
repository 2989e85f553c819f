// SPDX-License-Identifier: Apache-2.0
// Kernels, graphs, pools and registered memory of the stand-in runtime, as programs compiled with
// nvcc use them.
#include "tests/simcuda/cudart_test.h"

static const cudart_dim3_t one = {1, 1, 1};
static char add_kernel, spin, variable; // host functions are known by their addresses only

static void **registration; // a program's, until it ends

static void registration_end(void) {
    FUNCTION(__cudaUnregisterFatBinary)
    if (registration != NULL)
        __cudaUnregisterFatBinary_(registration);
}

TestSuite(cudart_launch, .init = library_open, .fini = registration_end);

static void kernels_register(void) {
    FUNCTION(__cudaRegisterFatBinary)
    FUNCTION(__cudaRegisterFatBinaryEnd)
    FUNCTION(__cudaRegisterFunction)
    void **handle = registration = __cudaRegisterFatBinary_(NULL);
    cr_assert(handle != NULL);
    __cudaRegisterFunction_(handle, &add_kernel, NULL, "_Z3addPf", -1, NULL, NULL, NULL, NULL,
                            NULL);
    __cudaRegisterFunction_(handle, &spin, NULL, "_ZN12_GLOBAL__N_111spin_kernelEl", -1, NULL, NULL,
                            NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd_(handle);
}

// A launch as the compiler writes it: configuration pushed, popped by the stub, kernel found.
static int launch(const void *kernel, void **arguments, berm_cu_stream_t stream) {
    FUNCTION(__cudaPushCallConfiguration)
    FUNCTION(__cudaPopCallConfiguration)
    FUNCTION(__cudaGetKernel)
    FUNCTION(__cudaLaunchKernel)
    cudart_dim3_t grid, block;
    size_t shared_bytes = 0;
    berm_cu_stream_t popped = NULL;
    const void *handle = NULL;
    cr_assert(__cudaPushCallConfiguration_((cudart_dim3_t){7, 1, 1}, (cudart_dim3_t){64, 2, 1}, 96,
                                           stream) == 0);
    cr_assert(__cudaPopCallConfiguration_(&grid, &block, &shared_bytes, &popped) == 0);
    cr_assert(grid.x == 7 && block.x == 64 && block.y == 2 && shared_bytes == 96);
    cr_assert(popped == stream);
    cr_assert(__cudaPopCallConfiguration_(&grid, &block, &shared_bytes, &popped) ==
              CUDART_MISSING_CONFIGURATION);
    cr_assert(__cudaGetKernel_(&handle, kernel) == 0);
    return __cudaLaunchKernel_(handle, grid, block, arguments, shared_bytes, popped);
}

Test(cudart_launch, kernels_take_modelled_time_in_their_stream) {
    FUNCTION(cudaStreamCreate)
    FUNCTION(cudaStreamQuery)
    FUNCTION(cudaStreamSynchronize)
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.kernel_ns = 1000000;
    config.launch_ns = 500;
    cr_assert(simcuda_reset(&config) == 0);
    kernels_register();
    berm_cu_stream_t stream = NULL;
    cr_assert(cudaStreamCreate_(&stream) == 0);
    uint64_t before = simcuda_now_ns();
    cr_assert(launch(&add_kernel, NULL, stream) == 0);
    cr_assert(simcuda_now_ns() == before + 500);
    cr_assert(cudaStreamQuery_(stream) == BERM_CU_NOT_READY);
    cr_assert(cudaStreamSynchronize_(stream) == 0);
    cr_assert(simcuda_now_ns() >= before + 1000000);
    simcuda_counters_t counters;
    simcuda_counters_read(&counters);
    cr_assert(counters.kernels == 1 && counters.copies == 0 && counters.host_reads == 0);
}

Test(cudart_launch, the_spin_kernel_takes_the_cycles_it_is_asked_for) {
    FUNCTION(cudaStreamSynchronize)
    FUNCTION(cudaDeviceGetAttribute)
    kernels_register();
    int64_t cycles = 3000000;
    void *arguments[] = {&cycles};
    int khz = 0;
    cr_assert(cudaDeviceGetAttribute_(&khz, BERM_CU_ATTR_CLOCK_RATE, 0) == 0 && khz > 0);
    uint64_t before = simcuda_now_ns();
    cr_assert(launch(&spin, arguments, NULL) == 0);
    cr_assert(cudaStreamSynchronize_(NULL) == 0);
    uint64_t took = simcuda_now_ns() - before, asked = (uint64_t)(3e6 * 1e6 / khz);
    cr_assert(took >= asked && took < asked + 100000, "%llu", (unsigned long long)took);
}

Test(cudart_launch, bad_launches_say_what_is_wrong) {
    FUNCTION(cudaLaunchKernel)
    FUNCTION(cudaLaunchKernelExC)
    FUNCTION(cudaGetLastError)
    cudart_dim3_t none = {0, 1, 1}, many = {1024, 2, 1};
    cr_assert(cudaLaunchKernel_(NULL, one, one, NULL, 0, NULL) == CUDART_INVALID_DEVICE_FUNCTION);
    cr_assert(cudaLaunchKernel_(&spin, none, one, NULL, 0, NULL) == CUDART_INVALID_CONFIGURATION);
    cr_assert(cudaLaunchKernel_(&spin, one, many, NULL, 0, NULL) == CUDART_INVALID_CONFIGURATION);
    cr_assert(cudaGetLastError_() == CUDART_INVALID_CONFIGURATION && cudaGetLastError_() == 0);
    // Unless the size may come from what a kernel should have computed.
    cr_assert(cudaLaunchKernel_(&add_kernel, one, one, NULL, 0, NULL) == 0);
    cr_assert(cudaLaunchKernel_(&spin, none, one, NULL, 0, NULL) == 0);
    cr_assert(cudaLaunchKernel_(&spin, one, many, NULL, 0, NULL) == CUDART_INVALID_CONFIGURATION);
    cr_assert(cudaLaunchKernelExC_(NULL, &spin, NULL) == BERM_CU_INVALID_VALUE);
    cudart_launch_config_t config = {.grid = one, .block = one};
    cr_assert(cudaLaunchKernelExC_(&config, &add_kernel, NULL) == 0);
}

Test(cudart_launch, every_kernel_of_a_large_program_is_known) {
    enum {
        KERNELS = 5000
    };
    FUNCTION(__cudaRegisterFunction)
    FUNCTION(cudaStreamSynchronize)
    static char functions[KERNELS];
    for (int i = 0; i < KERNELS; i++)
        __cudaRegisterFunction_(NULL, &functions[i], NULL, i == 4321 ? "spin_kernel" : "other", -1,
                                NULL, NULL, NULL, NULL, NULL);
    int64_t cycles = 1500000000;
    void *arguments[] = {&cycles};
    uint64_t before = simcuda_now_ns();
    cr_assert(launch(&functions[4321], arguments, NULL) == 0);
    cr_assert(cudaStreamSynchronize_(NULL) == 0);
    cr_assert(simcuda_now_ns() - before > 100000000, "its name was not found");
}

Test(cudart_launch, attributes_and_occupancy_are_written) {
    FUNCTION(cudaFuncGetAttributes)
    FUNCTION(cudaFuncSetAttribute)
    FUNCTION(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
    cudart_func_attributes_t attributes;
    memset(&attributes, 0xff, sizeof attributes);
    cr_assert(cudaFuncGetAttributes_(&attributes, &add_kernel) == 0);
    cr_assert(attributes.max_threads_per_block == 1024 && attributes.registers > 0);
    cr_assert(attributes.local_bytes == 0 && attributes.reserved[15] == 0);
    cr_assert(cudaFuncSetAttribute_(&add_kernel, 8, 65536) == 0);
    cr_assert(cudaFuncSetAttribute_(NULL, 8, 1) == CUDART_INVALID_DEVICE_FUNCTION);
    int blocks = 0;
    cr_assert(cudaOccupancyMaxActiveBlocksPerMultiprocessor_(&blocks, &add_kernel, 256, 0) == 0);
    cr_assert(blocks == 8);
    cr_assert(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor_(&blocks, &add_kernel, 256, 100 << 10) == 0);
    cr_assert(blocks == 2);
    cr_assert(cudaOccupancyMaxActiveBlocksPerMultiprocessor_(&blocks, &add_kernel, 0, 0) ==
              BERM_CU_INVALID_VALUE);
}

Test(cudart_launch, variables_have_memory_of_their_own) {
    FUNCTION(__cudaRegisterVar)
    FUNCTION(cudaGetSymbolAddress)
    FUNCTION(cudaGetSymbolSize)
    FUNCTION(cudaMemcpyToSymbol)
    void *addr = NULL, *again = NULL;
    size_t bytes = 0;
    cr_assert(cudaGetSymbolAddress_(&addr, &variable) == CUDART_INVALID_SYMBOL && addr == NULL);
    __cudaRegisterVar_(NULL, &variable, NULL, "variable", 0, 4096, 0, 0);
    cr_assert(cudaGetSymbolAddress_(&addr, &variable) == 0 && addr != NULL);
    cr_assert(cudaGetSymbolAddress_(&again, &variable) == 0 && again == addr);
    cr_assert(cudaGetSymbolSize_(&bytes, &variable) == 0 && bytes == 4096);
    char from[16] = {0};
    cr_assert(cudaMemcpyToSymbol_(&variable, from, 16, 4080, CUDART_COPY_HOST_TO_DEVICE) == 0);
    cr_assert(cudaMemcpyToSymbol_(&variable, from, 16, 4081, CUDART_COPY_HOST_TO_DEVICE) ==
              BERM_CU_INVALID_VALUE);
}

static void count_up(void *data) {
    ++*(int *)data;
}

Test(cudart_launch, graphs_run_and_keep_their_objects) {
    FUNCTION(cudaStreamCreateWithFlags)
    FUNCTION(cudaStreamBeginCapture)
    FUNCTION(cudaStreamEndCapture)
    FUNCTION(cudaStreamSynchronize)
    FUNCTION(cudaGraphInstantiate)
    FUNCTION(cudaGraphLaunch)
    FUNCTION(cudaGraphGetNodes)
    FUNCTION(cudaGraphDestroy)
    FUNCTION(cudaGraphExecDestroy)
    FUNCTION(cudaUserObjectCreate)
    FUNCTION(cudaUserObjectRelease)
    FUNCTION(cudaGraphRetainUserObject)
    berm_cu_stream_t stream = NULL;
    berm_cu_graph_t graph = NULL;
    berm_cu_graph_exec_t exec = NULL;
    cudart_user_object_t *object = NULL;
    int destroyed = 0;
    size_t nodes = 0;
    kernels_register();
    cr_assert(cudaStreamCreateWithFlags_(&stream, BERM_CU_STREAM_NON_BLOCKING) == 0);
    cr_assert(cudaStreamBeginCapture_(stream, BERM_CU_CAPTURE_RELAXED) == 0);
    cr_assert(launch(&add_kernel, NULL, stream) == 0);
    cr_assert(cudaStreamEndCapture_(stream, &graph) == 0 && graph != NULL);
    cr_assert(cudaGraphGetNodes_(graph, NULL, &nodes) == 0 && nodes == 1);
    cr_assert(cudaUserObjectCreate_(&object, &destroyed, count_up, 1, 0) == BERM_CU_INVALID_VALUE);
    cr_assert(cudaUserObjectCreate_(&object, &destroyed, count_up, 1,
                                    CUDART_USER_OBJECT_NO_DESTRUCTOR_SYNC) == 0);
    cr_assert(cudaGraphRetainUserObject_(graph, object, 1, 0) == 0);
    cr_assert(cudaUserObjectRelease_(object, 1) == 0);
    cr_assert(cudaGraphInstantiate_(&exec, graph, 0) == 0 && exec != NULL);
    cr_assert(cudaGraphDestroy_(graph) == 0 && destroyed == 0);
    uint64_t before = simcuda_now_ns();
    cr_assert(cudaGraphLaunch_(exec, stream) == 0 && cudaStreamSynchronize_(stream) == 0);
    cr_assert(simcuda_now_ns() > before);
    cr_assert(cudaGraphExecDestroy_(exec) == 0 && destroyed == 1);
}

Test(cudart_launch, pools_and_processes_are_the_drivers) {
    FUNCTION(cudaMallocAsync)
    FUNCTION(cudaFreeAsync)
    FUNCTION(cudaDeviceGetDefaultMemPool)
    FUNCTION(cudaMemPoolGetAttribute)
    FUNCTION(cudaMemPoolTrimTo)
    FUNCTION(cudaIpcGetMemHandle)
    FUNCTION(cudaMalloc)
    FUNCTION(cudaFree)
    void *addr = NULL;
    berm_cu_mem_pool_t pool = NULL;
    uint64_t used = 0;
    cr_assert(cudaDeviceGetDefaultMemPool_(&pool, 0) == 0 && pool != NULL);
    cr_assert(cudaMallocAsync_(&addr, 1 << 20, NULL) == 0 && addr != NULL);
    cr_assert(cudaMemPoolGetAttribute_(pool, BERM_CU_POOL_USED_MEM_CURRENT, &used) == 0);
    cr_assert(used >= 1 << 20);
    cr_assert(cudaFreeAsync_(addr, NULL) == 0 && cudaFreeAsync_(NULL, NULL) == 0);
    cr_assert(cudaMemPoolTrimTo_(pool, 0) == 0);
    berm_cu_ipc_mem_handle_t handle;
    memset(&handle, 0xff, sizeof handle);
    cr_assert(cudaIpcGetMemHandle_(&handle, NULL) != 0 && handle.reserved[63] == 0);
    cr_assert(cudaMalloc_(&addr, 4 << 20) == 0);
    cr_assert(cudaIpcGetMemHandle_(&handle, addr) == 0);
    cr_assert(cudaFree_(addr) == 0);
}

static void stream_callback(berm_cu_stream_t stream, cudart_error_t error, void *data) {
    (void)stream;
    cr_assert(error == 0);
    count_up(data);
}

Test(cudart_launch, callbacks_rows_and_registered_memory) {
    FUNCTION(cudaStreamAddCallback)
    FUNCTION(cudaStreamSynchronize)
    FUNCTION(cudaHostRegister)
    FUNCTION(cudaHostUnregister)
    FUNCTION(cudaPointerGetAttributes)
    FUNCTION(cudaMemcpy2D)
    FUNCTION(cudaMalloc)
    int called = 0;
    cr_assert(cudaStreamAddCallback_(NULL, NULL, NULL, 0) == BERM_CU_INVALID_VALUE);
    cr_assert(cudaStreamAddCallback_(NULL, stream_callback, &called, 0) == 0);
    cr_assert(cudaStreamSynchronize_(NULL) == 0 && called == 1);
    static char buffer[4096];
    memset(buffer, 1, sizeof buffer);
    cudart_pointer_attributes_t attributes;
    cr_assert(cudaHostUnregister_(buffer) == CUDART_HOST_MEMORY_NOT_REGISTERED);
    cr_assert(cudaHostRegister_(buffer, sizeof buffer, 0) == 0);
    cr_assert(cudaHostRegister_(buffer, 1, 0) == CUDART_HOST_MEMORY_ALREADY_REGISTERED);
    cr_assert(cudaPointerGetAttributes_(&attributes, buffer + 100) == 0);
    cr_assert(attributes.type == CUDART_MEMORY_HOST);
    cr_assert(cudaHostUnregister_(buffer) == 0);
    void *addr = NULL;
    cr_assert(cudaMalloc_(&addr, 1 << 20) == 0);
    cr_assert(cudaMemcpy2D_(buffer, 64, addr, 128, 32, 4, CUDART_COPY_DEVICE_TO_HOST) == 0);
    cr_assert(buffer[0] == 0 && buffer[31] == 0 && buffer[32] == 1 && buffer[64 * 3 + 31] == 0);
    cr_assert(cudaMemcpy2D_(buffer, 16, addr, 128, 32, 4, CUDART_COPY_DEVICE_TO_HOST) ==
              CUDART_INVALID_PITCH);
    simcuda_counters_t counters;
    simcuda_counters_read(&counters);
    cr_assert(counters.host_reads == 4 && counters.host_read_bytes == 4 * 32);
}

Test(cudart_launch, libraries_are_the_drivers) {
    FUNCTION(cudaLibraryLoadData)
    FUNCTION(cudaLibraryGetKernel)
    FUNCTION(cudaLibraryUnload)
    FUNCTION(cudaLaunchKernel)
    static const char ptx[] = ".version 8.0\n.visible .entry scale() { ret; }\n";
    sim_cu_library_t loaded = NULL;
    sim_cu_kernel_t kernel = NULL;
    cr_assert(cudaLibraryLoadData_(NULL, ptx, NULL, NULL, 0, NULL, NULL, 0) ==
              BERM_CU_INVALID_VALUE);
    cr_assert(cudaLibraryLoadData_(&loaded, ptx, NULL, NULL, 0, NULL, NULL, 0) == 0);
    cr_assert(cudaLibraryGetKernel_(&kernel, loaded, "scale") == 0 && kernel != NULL);
    cr_assert(cudaLaunchKernel_(kernel, one, one, NULL, 0, NULL) == 0);
    cr_assert(cudaLibraryGetKernel_(&kernel, loaded, "shift") == BERM_CU_NOT_FOUND);
    cr_assert(kernel == NULL);
    cr_assert(cudaLibraryUnload_(loaded) == 0);
    cr_assert(cudaLibraryUnload_(loaded) == BERM_CU_INVALID_HANDLE);
}
