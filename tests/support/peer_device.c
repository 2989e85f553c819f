// SPDX-License-Identifier: Apache-2.0
// See peer_device.h. Calls of the driver count twice where a fault is meant for berm's.
#include "tests/support/peer_device.h"

#include <string.h>

#include "base/cuda_abi.h"
#include "tests/support/heap_fixture.h"
#include "tests/support/simcuda_forward.h"

enum {
    STREAM_NON_BLOCKING = 1
};

static struct {
    berm_cu_context_t context;
    berm_cu_stream_t stream;
} peers[SIMCUDA_DEVICE_MAX];

#define CU_LOAD(variable, symbol)                                                                  \
    do {                                                                                           \
        void *function_ = simcuda_symbol(symbol);                                                  \
        memcpy(&(variable), &function_, sizeof(variable));                                         \
    } while (0)

#define TWICE(call) ((call) == BERM_CU_SUCCESS || (call) == BERM_CU_SUCCESS)

int peer_access_of(berm_addr_t addr, int device) {
    berm_cu_mem_get_access_fn get_access;
    berm_cu_mem_location_t location = {BERM_CU_MEM_LOCATION_DEVICE, device};
    unsigned long long flags = 0;
    CU_LOAD(get_access, "cuMemGetAccess");
    HEAP_INSIST(TWICE(get_access(&flags, &location, addr)));
    return (int)flags;
}

static void context_push(berm_cu_context_t context) {
    berm_cu_ctx_push_current_fn push;
    CU_LOAD(push, "cuCtxPushCurrent_v2");
    HEAP_INSIST(TWICE(push(context)));
}

static void context_pop(void) {
    berm_cu_ctx_pop_current_fn pop;
    berm_cu_context_t popped = NULL;
    CU_LOAD(pop, "cuCtxPopCurrent_v2");
    HEAP_INSIST(TWICE(pop(&popped)));
}

void *peer_stream(int device) {
    if (peers[device].stream != NULL)
        return peers[device].stream;
    berm_cu_primary_ctx_retain_fn retain;
    berm_cu_stream_create_fn create;
    CU_LOAD(retain, "cuDevicePrimaryCtxRetain");
    CU_LOAD(create, "cuStreamCreate");
    HEAP_INSIST(TWICE(retain(&peers[device].context, device)));
    context_push(peers[device].context);
    HEAP_INSIST(TWICE(create(&peers[device].stream, STREAM_NON_BLOCKING)));
    context_pop();
    return peers[device].stream;
}

void peer_follow(int device, void *other) {
    heap_stream_follow(peer_stream(device), other);
}

void peer_use(int device, berm_addr_t addr, uint64_t size_bytes, uint64_t duration_ns) {
    void *stream = peer_stream(device);
    context_push(peers[device].context);
    heap_use(stream, addr, size_bytes, duration_ns);
    context_pop();
}

void peer_devices_end(void) {
    berm_cu_stream_synchronize_fn synchronize;
    berm_cu_stream_destroy_fn destroy;
    berm_cu_primary_ctx_release_fn release;
    CU_LOAD(synchronize, "cuStreamSynchronize");
    CU_LOAD(destroy, "cuStreamDestroy_v2");
    CU_LOAD(release, "cuDevicePrimaryCtxRelease_v2");
    for (int device = 0; device < SIMCUDA_DEVICE_MAX; device++) {
        if (peers[device].stream == NULL)
            continue;
        HEAP_INSIST(TWICE(synchronize(peers[device].stream)));
        HEAP_INSIST(TWICE(destroy(peers[device].stream)));
        HEAP_INSIST(TWICE(release(device)));
        peers[device].stream = NULL;
    }
}
