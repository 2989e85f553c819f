// SPDX-License-Identifier: Apache-2.0
// The stand-in runtime: thin over the driver, every out parameter written, and what it does not
// have says so. test_cudart12.c has the same for the other library.
#include "simcuda/driver/entries.h"
#include "tests/simcuda/cudart_test.h"

TestSuite(cudart, .init = library_open);

Test(cudart, allocates_without_a_context_of_the_program) {
    FUNCTION(cudaMalloc)
    FUNCTION(cudaFree)
    FUNCTION(cudaMemGetInfo)
    FUNCTION(cudaPointerGetAttributes)
    void *addr = NULL;
    cr_assert(cudaMalloc_(&addr, 5 << 20) == 0);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.used_bytes == 6 << 20 && ledger.contexts_retained == 1);
    cudart_pointer_attributes_t attributes;
    cr_assert(cudaPointerGetAttributes_(&attributes, (char *)addr + 100) == 0);
    cr_assert(attributes.type == CUDART_MEMORY_DEVICE && attributes.device == 0);
    size_t free_bytes = 0, total_bytes = 0;
    cr_assert(cudaMemGetInfo_(&free_bytes, &total_bytes) == 0);
    cr_assert(total_bytes - free_bytes == 6 << 20);
    cr_assert(cudaFree_(addr) == 0);
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.used_bytes == 0);
}

Test(cudart, rows_have_a_pitch) {
    FUNCTION(cudaMallocPitch)
    FUNCTION(cudaFree)
    void *addr = NULL;
    size_t pitch = 0;
    simcuda_ledger_t ledger;
    cr_assert(cudaMallocPitch_(&addr, &pitch, 1000, 3000) == 0 && addr != NULL && pitch == 1024);
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.allocation_bytes == 1024 * 3000);
    cr_assert(cudaFree_(addr) == 0);
    cr_assert(cudaMallocPitch_(&addr, &pitch, 0, 3000) == 0 && addr == NULL && pitch == 0);
    cr_assert(cudaMallocPitch_(&addr, NULL, 1000, 3000) == 1);
    cr_assert(cudaMallocPitch_(NULL, &pitch, 1000, 3000) == 1);
    cr_assert(cudaMallocPitch_(&addr, &pitch, SIZE_MAX, 1) == 2 && addr == NULL);
    cr_assert(cudaMallocPitch_(&addr, &pitch, 1 << 20, SIZE_MAX) == 2);
    berm_cu_deviceptr_t at = 0;
    cr_assert(cuMemAllocPitch_v2(&at, &pitch, 1000, 3, 5) == BERM_CU_INVALID_VALUE);
    cr_assert(cuMemAllocPitch_v2(&at, &pitch, 1000, 3, 16) == 0 && at != 0 && pitch == 1024);
    cr_assert(cuMemFree_v2(at) == 0);
}

Test(cudart, survives_a_reset_of_the_device) {
    FUNCTION(cudaMalloc)
    void *addr = NULL;
    cr_assert(cudaMalloc_(&addr, 1 << 20) == 0);
    cr_assert(simcuda_reset(NULL) == 0);
    cr_assert(cudaMalloc_(&addr, 1 << 20) == 0);
}

Test(cudart, sizes_of_zero_and_null_arguments) {
    FUNCTION(cudaMalloc)
    FUNCTION(cudaFree)
    FUNCTION(cudaGetDevice)
    FUNCTION(cudaGetLastError)
    FUNCTION(cudaPeekAtLastError)
    void *addr = &addr;
    cr_assert(cudaMalloc_(&addr, 0) == 0 && addr == NULL);
    cr_assert(cudaFree_(NULL) == 0);
    cr_assert(cudaMalloc_(NULL, 1) == 1);
    cr_assert(cudaGetDevice_(NULL) == 1);
    cr_assert(cudaPeekAtLastError_() == 1);
    cr_assert(cudaGetLastError_() == 1 && cudaGetLastError_() == 0);
}

Test(cudart, out_of_memory_is_told_and_kept) {
    FUNCTION(cudaMalloc)
    FUNCTION(cudaGetLastError)
    FUNCTION(cudaGetErrorName)
    FUNCTION(cudaGetErrorString)
    void *addr = &addr;
    cr_assert(cudaMalloc_(&addr, (size_t)1 << 40) == 2 && addr == NULL);
    cr_assert(cudaGetLastError_() == 2);
    cr_assert(strcmp(cudaGetErrorName_(2), "cudaErrorMemoryAllocation") == 0);
    cr_assert(strcmp(cudaGetErrorString_(2), "out of memory") == 0);
    cr_assert(cudaGetErrorName_(123456) != NULL && cudaGetErrorString_(123456) != NULL);
    cr_assert(strcmp(cudaGetErrorName_(0), "cudaSuccess") == 0);
    cr_assert(strcmp(cudaGetErrorName_(400), "cudaErrorInvalidResourceHandle") == 0);
    cr_assert(strcmp(cudaGetErrorName_(700), "cudaErrorIllegalAddress") == 0);
    // Every error of the driver has a name of the runtime's and words.
    for (int error = 0; error < 1000; error++) {
        const char *driver_name = NULL;
        if (cuGetErrorName(error, &driver_name) == 0)
            cr_assert(strncmp(cudaGetErrorName_(error), "cuda", 4) == 0, "%s", driver_name);
        if (strncmp(cudaGetErrorName_(error), "cuda", 4) == 0)
            cr_assert(strncmp(cudaGetErrorString_(error), "unrec", 5) != 0, "%d", error);
    }
}

Test(cudart, properties_of_the_device) {
    FUNCTION(cudaGetDeviceProperties)
    FUNCTION(cudaGetDeviceCount)
    FUNCTION(cudaSetDevice)
    cudart_device_prop_t prop;
    int count = 0;
    cr_assert(cudaGetDeviceCount_(&count) == 0 && count == 1);
    memset(&prop, 0xff, sizeof prop);
    cr_assert(cudaGetDeviceProperties_(&prop, 0) == 0);
    cr_assert(prop.total_global_mem == (size_t)80 << 30);
    cr_assert(prop.major == 9 && prop.warp_size == 32 && prop.name[0] != '\0');
    for (size_t i = 0; i < sizeof prop.reserved / sizeof *prop.reserved; i++)
        cr_assert(prop.reserved[i] == 0);
    cr_assert(cudaGetDeviceProperties_(&prop, 7) == 101);
    cr_assert(cudaSetDevice_(7) == 101);
    cr_assert(cudaSetDevice_(0) == 0);
}

Test(cudart, streams_and_events) {
    FUNCTION(cudaStreamCreateWithPriority)
    FUNCTION(cudaStreamDestroy)
    FUNCTION(cudaStreamGetCaptureInfo)
    FUNCTION(cudaEventCreateWithFlags)
    FUNCTION(cudaEventRecord)
    FUNCTION(cudaEventQuery)
    FUNCTION(cudaEventSynchronize)
    FUNCTION(cudaEventDestroy)
    berm_cu_stream_t stream = NULL;
    berm_cu_event_t event = NULL;
    cr_assert(cudaStreamCreateWithPriority_(&stream, BERM_CU_STREAM_NON_BLOCKING, 0) == 0);
    cr_assert(cudaEventCreateWithFlags_(&event, BERM_CU_EVENT_DISABLE_TIMING) == 0);
    cr_assert(simcuda_launch(stream, 1000000000, NULL, 0) == 0);
    cr_assert(cudaEventRecord_(event, stream) == 0);
    cr_assert(cudaEventQuery_(event) == BERM_CU_NOT_READY);
    cr_assert(cudaEventSynchronize_(event) == 0 && cudaEventQuery_(event) == 0);
    int status = 9;
    unsigned long long id = 9;
    cr_assert(cudaStreamGetCaptureInfo_(stream, &status, &id, NULL, NULL, NULL, NULL) == 0);
    cr_assert(status == BERM_CU_CAPTURE_STATUS_NONE);
    cr_assert(cudaStreamGetCaptureInfo_(stream, NULL, &id, NULL, NULL, NULL, NULL) == 1);
    cr_assert(cudaEventDestroy_(event) == 0 && cudaStreamDestroy_(stream) == 0);
}

Test(cudart, pinned_host_memory) {
    FUNCTION(cudaHostAlloc)
    FUNCTION(cudaFreeHost)
    FUNCTION(cudaPointerGetAttributes)
    FUNCTION(cudaHostGetDevicePointer)
    void *addr = NULL, *on_device = NULL;
    char own = 0;
    // Far more than there is: nothing is taken before it is touched.
    cr_assert(cudaHostAlloc_(&addr, (size_t)1 << 40, 0) == 0);
    memset(addr, 1, 4096);
    cudart_pointer_attributes_t attributes;
    cr_assert(cudaPointerGetAttributes_(&attributes, (char *)addr + 5) == 0);
    cr_assert(attributes.type == CUDART_MEMORY_HOST);
    cr_assert(cudaPointerGetAttributes_(&attributes, &own) == 0);
    cr_assert(attributes.type == CUDART_MEMORY_UNREGISTERED);
    cr_assert(cudaHostGetDevicePointer_(&on_device, addr, 0) == 0 && on_device == addr);
    cr_assert(cudaHostGetDevicePointer_(&on_device, &own, 0) == 1 && on_device == NULL);
    cr_assert(cudaFreeHost_(addr) == 0);
    cr_assert(cudaFreeHost_(addr) == 1);
}

Test(cudart, entry_points) {
    FUNCTION(cudaGetDriverEntryPointByVersion)
    void *fn = NULL;
    int status = 9;
    cr_assert(cudaGetDriverEntryPointByVersion_("cuMemCreate", &fn, 12000, 0, &status) == 0);
    cr_assert(fn != NULL && status == CUDART_ENTRY_FOUND);
    cr_assert(cudaGetDriverEntryPointByVersion_("cuNoSuch", &fn, 12000, 0, &status) == 0);
    cr_assert(fn == NULL && status == CUDART_ENTRY_NOT_FOUND);
    cr_assert(cudaGetDriverEntryPointByVersion_("cuNoSuch", &fn, 12000, 0, NULL) != 0);
    // PyTorch does not start without these two; the second says no when called.
    cr_assert(cudaGetDriverEntryPointByVersion_("cuMemsetD32Async", &fn, 12000, 0, &status) == 0);
    cr_assert(fn != NULL && status == CUDART_ENTRY_FOUND);
    cr_assert(cudaGetDriverEntryPointByVersion_("cuStreamWriteValue32", &fn, 12000, 0, &status) ==
              0);
    cr_assert(fn != NULL && status == CUDART_ENTRY_FOUND);
}

Test(cudart, what_is_missing_says_so) {
    FUNCTION(cudaGraphNodeGetDependencies)
    FUNCTION(cudaGetLastError)
    uint64_t (*hits)(void);
    void *found = dlsym(library, "simcuda_runtime_stub_hits");
    cr_assert(found != NULL);
    memcpy(&hits, &found, sizeof found);
    uint64_t before = hits();
    size_t count = 7;
    cr_assert(cudaGraphNodeGetDependencies_(NULL, NULL, NULL, &count) == BERM_CU_NOT_SUPPORTED);
    cr_assert(count == 0 && hits() == before + 1);
    cr_assert(cudaGetLastError_() == BERM_CU_NOT_SUPPORTED);
    const char *library_name = NULL, *name = NULL;
    uint64_t of_name = 0;
    cr_assert(simcuda_stub_read(0, &library_name, &name, &of_name) == 0);
    cr_assert(strncmp(name, "cudaGraphNodeGetDependencies", 28) == 0 &&
              of_name == 1); // _v2 for CUDA 12
    cr_assert(strcmp(library_name, "cudart") == 0);
    cr_assert(simcuda_stub_read(1, &library_name, &name, &of_name) == -1);
}
