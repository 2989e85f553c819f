// SPDX-License-Identifier: Apache-2.0
// What a stand-in asks of the device: work on a stream, and what an address is.
//
// Locks: none. May fail: the driver's refusals, which stay for the caller's next call.
#include <string.h>

#include "simcuda/driver/entries.h"
#include "simcuda/include/simcuda.h"
#include "simcuda/standins/standin.h"

// How long a library's call keeps its stream busy: an assumed figure, docs/standins.md says so.
static const uint64_t WORK_NS = 20000;

// The counters of the driver; absent from one that is older than they are.
extern void simcuda_stub_hit(const char *library, const char *name) __attribute__((weak));

void standin_hit(const char *library, const char *name) {
    if (simcuda_stub_hit != NULL)
        simcuda_stub_hit(library, name);
}

void standin_work(berm_cu_stream_t stream) {
    (void)simcuda_launch(stream, WORK_NS, NULL, 0);
}

static berm_cu_stream_t stream_of(uint64_t value) {
    return (berm_cu_stream_t)(uintptr_t)value; // NOLINT(performance-no-int-to-ptr)
}

void standin_work_of(uint64_t handle) {
    standin_work(stream_of(standin_get(handle, STANDIN_SLOT_STREAM, 0)));
}

bool standin_is_host(const void *addr) {
    enum {
        DEVICE = 2
    }; // CU_MEMORYTYPE_DEVICE
    int type = 0;
    if ((uintptr_t)addr < 4096)
        return false;
    int result = cuPointerGetAttribute(&type, BERM_CU_POINTER_MEMORY_TYPE,
                                       (berm_cu_deviceptr_t)(uintptr_t)addr);
    return result != BERM_CU_SUCCESS || type != DEVICE;
}

void standin_clear(uint64_t stream, void *addr, size_t bytes) {
    if ((uintptr_t)addr < 4096)
        return;
    if (standin_is_host(addr))
        memset(addr, 0, bytes);
    else
        (void)cuMemsetD8Async((berm_cu_deviceptr_t)(uintptr_t)addr, 0, bytes, stream_of(stream));
}
