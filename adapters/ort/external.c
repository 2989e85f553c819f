// SPDX-License-Identifier: Apache-2.0
// The functions for the provider options gpu_external_*: see berm_ort.h.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "adapters/ort/berm_ort.h"
#include "adapters/ort/bound.h"
#include "adapters/tagged.h"
#include "berm_introspect.h"

enum {
    DEVICES_MAX = 64
};

// Of each device: the stream bound, plus 1, so that what is zero is none (BERM_STREAM_NONE is -1).
static atomic_uintptr_t bound[DEVICES_MAX];

berm_stream_t berm_ort_bound(int device) {
    uintptr_t stream = 0;
    if (device >= 0 && device < DEVICES_MAX)
        stream = atomic_load_explicit(&bound[device], memory_order_acquire);
    return (berm_stream_t)(stream - 1);
}

berm_status_t berm_ort_stream_bind(int device, berm_stream_t stream) {
    if (device < 0 || device >= DEVICES_MAX)
        return BERM_ERROR_ARGUMENT;
    atomic_store_explicit(&bound[device], (uintptr_t)stream + 1, memory_order_release);
    return BERM_OK;
}

static int (*ctx_get_device)(int *device); // cuCtxGetDevice

static void driver_find(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library != NULL)
        *(void **)&ctx_get_device = dlsym(library, "cuCtxGetDevice");
}

// Of the thread's current context; 0 where it has none.
static int device_current(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int device = 0;
    (void)pthread_once(&once, driver_find);
    return ctx_get_device != NULL && ctx_get_device(&device) == 0 ? device : 0;
}

void *berm_ort_alloc(size_t size_bytes) {
    berm_addr_t addr = 0;
    int device = device_current();
    if (size_bytes == 0 || berm_tagged_alloc(BERM_ORT_TAG, size_bytes, device,
                                             berm_ort_bound(device), &addr) != BERM_OK)
        return NULL;
    return (void *)(uintptr_t)addr;
}

void berm_ort_free_on(berm_addr_t addr, int device) {
    berm_status_t status = berm_free(addr, device, berm_ort_bound(device));
    if (!berm_free_is_over(status))
        (void)fprintf(stderr, "berm: ONNX Runtime frees 0x%llx of GPU %d: %s: %s\n",
                      (unsigned long long)addr, device, berm_status_name(status),
                      berm_error_message());
}

void berm_ort_free(void *block) {
    int device = 0;
    berm_addr_t addr = (uintptr_t)block;
    if (block == NULL)
        return;
    if (berm_block_read(addr, NULL, &device, NULL) != BERM_OK)
        device = BERM_DEVICE_ANY; // berm_free says what is wrong with it
    berm_ort_free_on(addr, device);
}

void berm_ort_empty_cache(void) {
    int count;
    if (berm_device_count(&count) != BERM_OK)
        return;
    for (int device = 0; device < count; device++)
        (void)berm_decay_tick(device);
}
