// SPDX-License-Identifier: Apache-2.0
// libcudart.so.12: all that test_cudart.c and test_cudart_launch.c say of libcudart.so.13, and the
// forms of functions and structures that only CUDA 12 has.
#define CUDART_MAJOR 12
#include "tests/simcuda/test_cudart.c"
#include "tests/simcuda/test_cudart_launch.c"

#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies
#undef cudaGraphNodeGetDependencies

static void old_find(const char *name, void *function) {
    void *found = dlvsym(library, name, CUDART_LIBRARY);
    cr_assert(found != NULL, "no %s", name);
    memcpy(function, &found, sizeof found);
}

TestSuite(cudart12, .init = library_open);

Test(cudart12, it_says_that_it_is_of_cuda_12) {
    FUNCTION(cudaRuntimeGetVersion)
    int version = 0;
    cr_assert(cudaRuntimeGetVersion_(&version) == 0 && version / 1000 == 12);
    cr_assert(dlvsym(library, "cudaMalloc", "libcudart.so.13") == NULL);
    cr_assert(dlvsym(library, "cudaGetDeviceProperties", CUDART_LIBRARY) == NULL,
              "this name is of the layout of CUDA 11");
}

Test(cudart12, structures_end_where_those_of_cuda_12_end) {
    FUNCTION(cudaMalloc)
    FUNCTION(cudaPointerGetAttributes)
    struct {
        cudart_pointer_attributes_t attributes;
        unsigned char after[64];
    } room;
    cudart_device_prop_t prop;
    int (*get_properties)(cudart_device_prop_t *, int);
    void *addr = NULL;
    cr_assert(sizeof room.attributes == 24);
    cr_assert(cudaMalloc_(&addr, 4096) == 0);
    memset(&room, 0xa5, sizeof room);
    cr_assert(cudaPointerGetAttributes_(&room.attributes, addr) == 0);
    cr_assert(room.attributes.type == CUDART_MEMORY_DEVICE);
    for (size_t i = 0; i < sizeof room.after; i++)
        cr_assert(room.after[i] == 0xa5);
    old_find("cudaGetDeviceProperties_v2", &get_properties);
    cr_assert(get_properties(&prop, 0) == 0);
    cr_assert(prop.clock_rate > 0 && prop.memory_clock_rate > 0 && prop.device_overlap == 1);
    cr_assert(prop.multi_processor_count == 132 && prop.max_blocks_per_multi_processor == 32);
}

Test(cudart12, captures_are_told_in_three_ways) {
    FUNCTION(cudaStreamCreateWithFlags)
    FUNCTION(cudaStreamBeginCapture)
    FUNCTION(cudaStreamEndCapture)
    FUNCTION(cudaLaunchKernel)
    int (*info)(berm_cu_stream_t, int *, unsigned long long *);
    int (*info_v2)(berm_cu_stream_t, int *, unsigned long long *, berm_cu_graph_t *,
                   const berm_cu_graph_node_t **, size_t *);
    int (*info_v3)(berm_cu_stream_t, int *, unsigned long long *, berm_cu_graph_t *,
                   const berm_cu_graph_node_t **, const void **, size_t *);
    int (*update)(berm_cu_stream_t, berm_cu_graph_node_t *, size_t, unsigned);
    old_find("cudaStreamGetCaptureInfo", &info);
    old_find("cudaStreamGetCaptureInfo_v2", &info_v2);
    old_find("cudaStreamGetCaptureInfo_v3", &info_v3);
    old_find("cudaStreamUpdateCaptureDependencies", &update);
    berm_cu_stream_t stream = NULL;
    berm_cu_graph_t graph = NULL, told = NULL;
    const berm_cu_graph_node_t *nodes = NULL;
    const void *edges = NULL;
    int status = 9;
    unsigned long long id = 0, id_v2 = 0, id_v3 = 0;
    size_t count = 9;
    cr_assert(cudaStreamCreateWithFlags_(&stream, BERM_CU_STREAM_NON_BLOCKING) == 0);
    cr_assert(info(stream, &status, &id) == 0 && status == BERM_CU_CAPTURE_STATUS_NONE);
    cr_assert(cudaStreamBeginCapture_(stream, BERM_CU_CAPTURE_RELAXED) == 0);
    cr_assert(cudaLaunchKernel_(&add_kernel, one, one, NULL, 0, stream) == 0);
    cr_assert(info(stream, &status, &id) == 0 && status == BERM_CU_CAPTURE_STATUS_ACTIVE);
    cr_assert(info_v2(stream, &status, &id_v2, &told, &nodes, &count) == 0 && told != NULL);
    cr_assert(count == 1 && nodes != NULL && id_v2 == id);
    cr_assert(info_v3(stream, &status, &id_v3, &told, &nodes, &edges, &count) == 0);
    cr_assert(count == 1 && id_v3 == id);
    cr_assert(update(stream, NULL, 0, 1) == 0, "set: nothing comes before what follows");
    cr_assert(info_v2(stream, &status, &id, NULL, &nodes, &count) == 0 && count == 0);
    cr_assert(cudaStreamEndCapture_(stream, &graph) == 0 && graph != NULL);
}

Test(cudart12, what_both_have_has_the_same_meaning) {
    int (*elapsed)(float *, berm_cu_event_t, berm_cu_event_t);
    int (*dependencies)(berm_cu_graph_node_t, berm_cu_graph_node_t *, size_t *);
    FUNCTION(cudaEventCreate)
    FUNCTION(cudaEventRecord)
    FUNCTION(cudaEventSynchronize)
    berm_cu_event_t start = NULL, end = NULL;
    float ms = -1;
    size_t count = 7;
    old_find("cudaEventElapsedTime_v2", &elapsed);
    old_find("cudaGraphNodeGetDependencies", &dependencies);
    cr_assert(cudaEventCreate_(&start) == 0 && cudaEventCreate_(&end) == 0);
    cr_assert(cudaEventRecord_(start, NULL) == 0);
    cr_assert(simcuda_launch(NULL, 3000000, NULL, 0) == 0);
    cr_assert(cudaEventRecord_(end, NULL) == 0 && cudaEventSynchronize_(end) == 0);
    cr_assert(elapsed(&ms, start, end) == 0 && ms >= 3 && ms < 3.1F, "%f", (double)ms);
    cr_assert(dependencies(NULL, NULL, &count) == BERM_CU_NOT_SUPPORTED && count == 0);
}
