// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, the linker, and launches of the kernels in them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_test.h"

static const char ptx[] = "// made by hand\n.version 8.0\n.target sm_80\n"
                          ".visible .entry add_one(.param .u64 a) { ret; }\n"
                          ".visible .entry\tadd_two (.param .u64 a) { ret; }\n";
static const char blind[64]; // an image that cannot be looked into

static sim_cu_module_t module_new(const void *image) {
    sim_cu_module_t module = NULL;
    OK(cuModuleLoadData(&module, image));
    return module;
}

static sim_cu_function_t function_new(const void *image, const char *name) {
    sim_cu_function_t function = NULL;
    OK(cuModuleGetFunction(&function, module_new(image), name));
    return function;
}

static int launch_blocks(sim_cu_function_t function, unsigned blocks, unsigned threads,
                         berm_cu_stream_t stream) {
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, NULL, NULL);
}

// --- names ---------------------------------------------------------------------------------------

Test(modules, names_of_ptx_are_found_and_no_others) {
    start();
    sim_cu_module_t module = module_new(ptx);
    sim_cu_function_t one = NULL, again = NULL, two = NULL;
    OK(cuModuleGetFunction(&one, module, "add_one"));
    OK(cuModuleGetFunction(&again, module, "add_one"));
    OK(cuModuleGetFunction(&two, module, "add_two"));
    cr_assert(one != NULL && one == again && two != one);
    FAILS(cuModuleGetFunction(&two, module, "add"), BERM_CU_NOT_FOUND);
    FAILS(cuModuleGetFunction(&two, module, "add_three"), BERM_CU_NOT_FOUND);
    FAILS(cuModuleGetFunction(&two, module, "param"), BERM_CU_NOT_FOUND);
    FAILS(cuModuleGetFunction(&two, module, ""), BERM_CU_INVALID_VALUE);
    FAILS(cuModuleGetFunction(&two, module, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuModuleGetFunction(NULL, module, "add_one"), BERM_CU_INVALID_VALUE);
    const char *name = NULL;
    sim_cu_module_t owner = NULL;
    OK(cuFuncGetName(&name, one));
    cr_assert(strcmp(name, "add_one") == 0);
    OK(cuFuncGetModule(&owner, one));
    cr_assert(owner == module);
}

// An ELF file of one table of strings and one (empty) section header.
static size_t elf_make(char *image) {
    static const char strings[] = "\0.strtab\0add_one\0";
    uint64_t sections_at = 64 + sizeof(strings);
    uint16_t size = 64, count = 1;
    memset(image, 0, 256);
    memcpy(image, "\177ELF", 4);
    memcpy(image + 0x28, &sections_at, sizeof(sections_at));
    memcpy(image + 0x3a, &size, sizeof(size));
    memcpy(image + 0x3c, &count, sizeof(count));
    memcpy(image + 64, strings, sizeof(strings));
    return (size_t)sections_at + size;
}

Test(modules, names_of_elf_files_are_found_and_no_others) {
    start();
    char image[256];
    (void)elf_make(image);
    sim_cu_module_t module = module_new(image);
    sim_cu_function_t function = NULL;
    memset(image, 0, sizeof(image)); // a copy was taken
    OK(cuModuleGetFunction(&function, module, "add_one"));
    FAILS(cuModuleGetFunction(&function, module, "one"), BERM_CU_NOT_FOUND);
    FAILS(cuModuleGetFunction(&function, module, "add_two"), BERM_CU_NOT_FOUND);
}

Test(modules, images_that_are_none) {
    start();
    sim_cu_module_t module = NULL;
    FAILS(cuModuleLoadData(&module, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuModuleLoadData(NULL, ptx), BERM_CU_INVALID_VALUE);
    FAILS(cuModuleLoadData(&module, "// no PTX"), BERM_CU_INVALID_IMAGE);
    OK(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
    OK(cuModuleLoadFatBinary(&module, blind));
    sim_cu_function_t function = NULL;
    OK(cuModuleGetFunction(&function, module, "whatever"));
}

Test(modules, files) {
    start();
    char path[] = "/tmp/simcuda-module-XXXXXX", image[256];
    sim_cu_module_t module = NULL;
    sim_cu_function_t function = NULL;
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, ptx, strlen(ptx)) == (ssize_t)strlen(ptx));
    OK(cuModuleLoad(&module, path));
    OK(cuModuleGetFunction(&function, module, "add_two"));
    size_t bytes = elf_make(image);
    cr_assert(ftruncate(fd, 0) == 0 && pwrite(fd, image, bytes, 0) == (ssize_t)bytes);
    OK(cuModuleLoad(&module, path));
    cr_assert(ftruncate(fd, (off_t)bytes - 1) == 0);
    FAILS(cuModuleLoad(&module, path), BERM_CU_INVALID_IMAGE);
    cr_assert(ftruncate(fd, 20) == 0);
    FAILS(cuModuleLoad(&module, path), BERM_CU_INVALID_IMAGE);
    cr_assert(ftruncate(fd, 0) == 0);
    FAILS(cuModuleLoad(&module, path), BERM_CU_INVALID_IMAGE);
    (void)close(fd);
    (void)unlink(path);
    FAILS(cuModuleLoad(&module, path), BERM_CU_FILE_NOT_FOUND);
    FAILS(cuModuleLoad(&module, NULL), BERM_CU_INVALID_VALUE);
}

// --- lives ---------------------------------------------------------------------------------------

Test(modules, kernels_go_with_their_module) {
    start();
    sim_cu_module_t module = module_new(ptx);
    sim_cu_function_t function = NULL;
    OK(cuModuleGetFunction(&function, module, "add_one"));
    OK(launch_blocks(function, 1, 32, NULL));
    OK(cuModuleUnload(module));
    FAILS(launch_blocks(function, 1, 32, NULL), BERM_CU_INVALID_HANDLE);
    FAILS(cuModuleUnload(module), BERM_CU_INVALID_HANDLE);
    FAILS(cuModuleGetFunction(&function, module, "add_one"), BERM_CU_INVALID_HANDLE);
    FAILS(launch_blocks(NULL, 1, 32, NULL), BERM_CU_INVALID_HANDLE);
}

Test(modules, modules_are_a_contexts_and_libraries_are_not) {
    start();
    sim_cu_module_t module = module_new(ptx);
    sim_cu_function_t function = NULL, of_library = NULL;
    sim_cu_library_t library = NULL;
    sim_cu_kernel_t kernel = NULL;
    berm_cu_context_t context;
    OK(cuModuleGetFunction(&function, module, "add_one"));
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add_one"));
    FAILS(cuLibraryGetKernel(&kernel, library, "add_three"), BERM_CU_NOT_FOUND);
    FAILS(cuModuleUnload((sim_cu_module_t)(void *)library), BERM_CU_INVALID_HANDLE);
    FAILS(cuLibraryUnload((sim_cu_library_t)(void *)module), BERM_CU_INVALID_HANDLE);
    OK(cuCtxCreate_v2(&context, 0, 0));
    FAILS(launch_blocks(function, 1, 32, NULL), BERM_CU_INVALID_HANDLE);
    FAILS(cuModuleUnload(module), BERM_CU_INVALID_HANDLE);
    OK(cuKernelGetFunction(&of_library, kernel));
    OK(launch_blocks(of_library, 1, 32, NULL));
    OK(launch_blocks((sim_cu_function_t)(void *)kernel, 1, 32, NULL));
    FAILS(cuFuncGetModule(&module, of_library), BERM_CU_NOT_FOUND);
    OK(cuCtxDestroy_v2(context));
    OK(cuDevicePrimaryCtxReset_v2(0));
    make_current(0);
    FAILS(launch_blocks(function, 1, 32, NULL), BERM_CU_INVALID_HANDLE);
    OK(launch_blocks(of_library, 1, 32, NULL));
    OK(cuLibraryUnload(library));
    FAILS(launch_blocks(of_library, 1, 32, NULL), BERM_CU_INVALID_HANDLE);
    const char *name = NULL;
    FAILS(cuKernelGetName(&name, kernel), BERM_CU_INVALID_HANDLE);
}

// --- launches ------------------------------------------------------------------------------------

Test(modules, a_launch_is_work_of_its_stream) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.kernel_ns = 1000000;
    config.launch_ns = 700;
    start_with(&config);
    sim_cu_function_t function = function_new(ptx, "add_one");
    berm_cu_stream_t stream = stream_new(BERM_CU_STREAM_NON_BLOCKING);
    uint64_t before = simcuda_now_ns();
    OK(launch_blocks(function, 5, 128, stream));
    cr_assert(simcuda_now_ns() == before + 700);
    FAILS(cuStreamQuery(stream), BERM_CU_NOT_READY);
    OK(cuStreamSynchronize(stream));
    cr_assert(simcuda_now_ns() >= before + 1000000);
    simcuda_counters_t counters;
    simcuda_counters_read(&counters);
    cr_assert(counters.kernels == 1);
    sim_cu_launch_config_t ex = {.grid_x = 1,
                                 .grid_y = 1,
                                 .grid_z = 1,
                                 .block_x = 32,
                                 .block_y = 1,
                                 .block_z = 1,
                                 .stream = stream};
    OK(cuLaunchKernelEx(&ex, function, NULL, NULL));
    FAILS(cuStreamQuery(stream), BERM_CU_NOT_READY);
    ex.attribute_count = 1;
    FAILS(cuLaunchKernelEx(&ex, function, NULL, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuLaunchKernelEx(NULL, function, NULL, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuLaunchKernelEx_ptsz(NULL, function, NULL, NULL), BERM_CU_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    OK(cuLaunchKernel_ptsz(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    FAILS(cuStreamQuery(BERM_CU_STREAM_PER_THREAD), BERM_CU_NOT_READY);
    HAZARDS(0);
}

Test(modules, a_captured_launch_is_a_step) {
    start();
    sim_cu_function_t function = function_new(ptx, "add_one");
    berm_cu_stream_t stream = stream_new(BERM_CU_STREAM_NON_BLOCKING);
    berm_cu_graph_t graph = NULL;
    sim_cu_module_t module = NULL;
    size_t nodes = 0;
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_THREAD_LOCAL));
    OK(launch_blocks(function, 5, 128, stream));
    FAILS(cuModuleLoadData(&module, ptx), BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    (void)cuStreamEndCapture(stream, &graph);
    OK(cuStreamBeginCapture_v2(stream, BERM_CU_CAPTURE_RELAXED));
    OK(cuModuleLoadData(&module, ptx));
    OK(launch_blocks(function, 5, 128, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    cr_assert(nodes == 1);
}

Test(modules, launches_that_hardware_refuses) {
    start();
    sim_cu_function_t f = function_new(ptx, "add_one");
    void *parameters[1] = {NULL}, *extra[1] = {NULL};
#define REFUSED(gx, gy, gz, bx, by, bz, shared)                                                    \
    FAILS(cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL),                     \
          BERM_CU_INVALID_VALUE)
    REFUSED(0, 1, 1, 1, 1, 1, 0);
    REFUSED(1, 0, 1, 1, 1, 1, 0);
    REFUSED(1, 1, 0, 1, 1, 1, 0);
    REFUSED(1, 1, 1, 0, 1, 1, 0);
    REFUSED(0x80000000U, 1, 1, 1, 1, 1, 0);
    REFUSED(1, 65536, 1, 1, 1, 1, 0);
    REFUSED(1, 1, 65536, 1, 1, 1, 0);
    REFUSED(1, 1, 1, 1025, 1, 1, 0);
    REFUSED(1, 1, 1, 1, 1, 65, 0);
    REFUSED(1, 1, 1, 32, 33, 1, 0);
    REFUSED(1, 1, 1, 65536, 65536, 1, 0); // 2^32 threads
    REFUSED(1, 1, 1, 1, 1, 1, (48 << 10) + 1);
    FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra), BERM_CU_INVALID_VALUE);
    OK(cuLaunchKernel(f, INT32_MAX, 65535, 65535, 16, 1, 64, 48 << 10, NULL, parameters, NULL));
    OK(cuFuncSetAttribute(f, BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, 227 << 10));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 227 << 10, NULL, parameters, NULL));
    simcuda_counters_t counters;
    simcuda_counters_read(&counters);
    cr_assert(counters.kernels == 2);
}

Test(modules, cooperative_launches_must_fit) {
    start();
    sim_cu_function_t f = function_new(ptx, "add_one");
    unsigned room = 132 * 8; // blocks of 256 threads
    OK(cuLaunchCooperativeKernel(f, room, 1, 1, 256, 1, 1, 0, NULL, NULL));
    FAILS(cuLaunchCooperativeKernel(f, room + 1, 1, 1, 256, 1, 1, 0, NULL, NULL),
          BERM_CU_COOPERATIVE_LAUNCH_TOO_LARGE);
    FAILS(cuLaunchCooperativeKernel(f, INT32_MAX, 65535, 65535, 256, 1, 1, 0, NULL, NULL),
          BERM_CU_COOPERATIVE_LAUNCH_TOO_LARGE);
}

Test(modules, attributes) {
    start();
    sim_cu_function_t f = function_new(ptx, "add_one");
    int value = 0;
    OK(cuFuncGetAttribute(&value, BERM_CU_FUNC_BINARY_VERSION, f));
    cr_assert(value == 90);
    OK(cuFuncGetAttribute(&value, BERM_CU_FUNC_MAX_THREADS_PER_BLOCK, f));
    cr_assert(value == 1024);
    FAILS(cuFuncGetAttribute(&value, BERM_CU_FUNC_ATTRIBUTES, f), BERM_CU_INVALID_VALUE);
    FAILS(cuFuncGetAttribute(&value, -1, f), BERM_CU_INVALID_VALUE);
    FAILS(cuFuncGetAttribute(NULL, 0, f), BERM_CU_INVALID_VALUE);
    FAILS(cuFuncSetAttribute(f, BERM_CU_FUNC_REGISTERS, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuFuncSetAttribute(f, BERM_CU_FUNC_CLUSTER_MUST_BE_SET, 1), BERM_CU_INVALID_VALUE);
    FAILS(cuFuncSetAttribute(f, BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (227 << 10) + 1),
          BERM_CU_INVALID_VALUE);
    FAILS(cuFuncSetAttribute(f, BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT, 101),
          BERM_CU_INVALID_VALUE);
    OK(cuFuncSetAttribute(f, BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT, 100));
    OK(cuFuncGetAttribute(&value, BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT, f));
    cr_assert(value == 100);
    OK(cuFuncSetCacheConfig(f, 3));
    FAILS(cuFuncSetCacheConfig(f, 4), BERM_CU_INVALID_VALUE);
    sim_cu_kernel_t kernel = (sim_cu_kernel_t)(void *)f;
    OK(cuKernelSetAttribute(BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, 65536, kernel, 0));
    OK(cuKernelGetAttribute(&value, BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, kernel, 0));
    cr_assert(value == 65536);
    FAILS(cuKernelGetAttribute(&value, 0, kernel, 1), BERM_CU_INVALID_DEVICE);
    FAILS(cuKernelSetAttribute(BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, 1, kernel, 1),
          BERM_CU_INVALID_DEVICE);
}

static size_t one_kib_a_thread(int threads) {
    return (size_t)threads << 10;
}

Test(modules, occupancy) {
    start();
    sim_cu_function_t f = function_new(ptx, "add_one");
    int blocks = 0, grid = 0, threads = 0;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 0));
    cr_assert(blocks == 8, "%d", blocks); // 2,048 threads
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1, 0));
    cr_assert(blocks == 32, "%d", blocks);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 48 << 10));
    cr_assert(blocks == 4, "%d", blocks); // 49 of 228 KiB each
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, (48 << 10) + 1));
    cr_assert(blocks == 0, "it has not opted in");
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 1025, 0, 0));
    cr_assert(blocks == 0);
    FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0), BERM_CU_INVALID_VALUE);
    FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 1, 0, 2),
          BERM_CU_INVALID_VALUE);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, NULL, 0, 0));
    cr_assert(threads == 1024 && grid == 264, "%d %d", threads, grid);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, NULL, 0, 100));
    cr_assert(threads == 96 || threads == 64, "%d", threads);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, f, one_kib_a_thread, 0, 0));
    cr_assert(threads == 32 && grid == 132 * 6, "%d %d", threads, grid); // 33 of 228 KiB each
}

// --- the linker ----------------------------------------------------------------------------------

Test(modules, texts_are_linked) {
    static const char second[] = ".version 8.0\n.visible .entry add_three() { ret; }\n";
    start();
    sim_cu_linker_t linker = NULL;
    void *image = NULL;
    size_t bytes = 0;
    OK(cuLinkCreate_v2(0, NULL, NULL, &linker));
    OK(cuLinkAddData_v2(linker, 1, (void *)(uintptr_t)ptx, sizeof(ptx), "a", 0, NULL, NULL));
    OK(cuLinkAddData_v2(linker, 1, (void *)(uintptr_t)second, strlen(second), "b", 0, NULL, NULL));
    FAILS(cuLinkAddData_v2(linker, 1, NULL, 1, "c", 0, NULL, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuLinkAddFile_v2(linker, 1, "/no/such/file", 0, NULL, NULL), BERM_CU_FILE_NOT_FOUND);
    FAILS(cuLinkAddFile_v2(linker, 1, NULL, 0, NULL, NULL), BERM_CU_INVALID_VALUE);
    FAILS(cuLinkComplete(linker, NULL, &bytes), BERM_CU_INVALID_VALUE);
    OK(cuLinkComplete(linker, &image, &bytes));
    cr_assert(bytes == strlen(image) + 1);
    FAILS(cuLinkAddData_v2(linker, 1, (void *)(uintptr_t)ptx, sizeof(ptx), "d", 0, NULL, NULL),
          BERM_CU_INVALID_VALUE);
    sim_cu_module_t module = module_new(image);
    OK(cuLinkDestroy(linker));
    FAILS(cuLinkDestroy(linker), BERM_CU_INVALID_HANDLE);
    sim_cu_function_t function = NULL;
    OK(cuModuleGetFunction(&function, module, "add_one"));
    OK(cuModuleGetFunction(&function, module, "add_three"));
    FAILS(cuModuleGetFunction(&function, module, "add_four"), BERM_CU_NOT_FOUND);
}

Test(modules, other_inputs_make_a_blind_image) {
    start();
    sim_cu_linker_t linker = NULL;
    void *image = NULL;
    OK(cuLinkCreate_v2(0, NULL, NULL, &linker));
    FAILS(cuLinkCreate_v2(0, NULL, NULL, NULL), BERM_CU_INVALID_VALUE);
    OK(cuLinkAddData_v2(linker, 0, (void *)(uintptr_t)blind, sizeof(blind), "a", 0, NULL, NULL));
    OK(cuLinkAddData_v2(linker, 1, (void *)(uintptr_t)ptx, sizeof(ptx), "b", 0, NULL, NULL));
    OK(cuLinkComplete(linker, &image, NULL));
    (void)function_new(image, "whatever");
    cr_assert(simcuda_reset(NULL) == 0);
    FAILS(cuLinkDestroy(linker), BERM_CU_INVALID_HANDLE);
}

Test(modules, calls_can_be_made_to_fail) {
    start();
    sim_cu_module_t module = NULL;
    sim_cu_function_t f = function_new(ptx, "add_one");
    cr_assert(simcuda_fault_nth("cuModuleLoadData", 1, 1, BERM_CU_OUT_OF_MEMORY) == 0);
    cr_assert(simcuda_fault_nth("cuLaunchKernel", 1, 1, BERM_CU_LAUNCH_FAILED) == 0);
    FAILS(cuModuleLoadData(&module, ptx), BERM_CU_OUT_OF_MEMORY);
    cr_assert(module == NULL);
    FAILS(launch_blocks(f, 1, 1, NULL), BERM_CU_LAUNCH_FAILED);
    OK(launch_blocks(f, 1, 1, NULL));
    FAILS(launch_blocks(f, 1, 1, (berm_cu_stream_t)(uintptr_t)0x1234), BERM_CU_INVALID_HANDLE);
}

// --- tensor maps ---------------------------------------------------------------------------------

Test(tensor_maps, hold_what_they_are_made_of_and_check_it) {
    static _Alignas(64) unsigned char map[128], other[128];
    const uint64_t dims[] = {64, 32}, strides[] = {256};
    const uint32_t box[] = {16, 8}, steps[] = {1, 1}, large[] = {16, 257}, none[] = {0, 1};
    const uint64_t uneven[] = {250};
    void *addr = (void *)(uintptr_t)0x7000000000;
    start();
    OK(cuTensorMapEncodeTiled(map, 7, 2, addr, dims, strides, box, steps, 0, 0, 0, 0));
    OK(cuTensorMapEncodeTiled(other, 7, 2, (char *)addr + 16, dims, strides, box, steps, 0, 0, 0,
                              0));
    cr_assert(memcmp(map, other, sizeof map) != 0);
    OK(cuTensorMapEncodeTiled(other, 7, 2, addr, dims, strides, box, steps, 0, 0, 0, 0));
    cr_assert(memcmp(map, other, sizeof map) == 0);
    OK(cuTensorMapEncodeTiled(other, 7, 1, addr, dims, NULL, box, steps, 0, 0, 0, 0));
#define MAP_REFUSED(...)                                                                           \
    FAILS(cuTensorMapEncodeTiled(__VA_ARGS__, 0, 0, 0, 0), BERM_CU_INVALID_VALUE)
    MAP_REFUSED(NULL, 7, 2, addr, dims, strides, box, steps);
    MAP_REFUSED(map + 8, 7, 2, addr, dims, strides, box, steps);
    MAP_REFUSED(map, -1, 2, addr, dims, strides, box, steps);
    MAP_REFUSED(map, 16, 2, addr, dims, strides, box, steps);
    MAP_REFUSED(map, 7, 0, addr, dims, strides, box, steps);
    MAP_REFUSED(map, 7, 6, addr, dims, strides, box, steps);
    MAP_REFUSED(map, 7, 2, NULL, dims, strides, box, steps);
    MAP_REFUSED(map, 7, 2, (char *)addr + 8, dims, strides, box, steps);
    MAP_REFUSED(map, 7, 2, addr, dims, NULL, box, steps);
    MAP_REFUSED(map, 7, 2, addr, dims, uneven, box, steps);
    MAP_REFUSED(map, 7, 2, addr, dims, strides, large, steps);
    MAP_REFUSED(map, 7, 2, addr, dims, strides, box, none);
}
