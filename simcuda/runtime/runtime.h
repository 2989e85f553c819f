// SPDX-License-Identifier: Apache-2.0
// What the files of the stand-in runtime share. Every function of it is a thin skin over the
// driver's: no memory, stream or event is known here but pinned host memory.
//
// CONTEXT. A thread that has no current context gets the primary one of its device at its first
// call that needs one: the call is made, and only when the driver says that there is no context is
// one made current and the call repeated. So a hit costs no driver call, and a reset of the
// simulated device is survived.
#ifndef SIMCUDA_RUNTIME_RUNTIME_H
#define SIMCUDA_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <string.h>

#include "simcuda/driver/entries.h"
#include "simcuda/runtime/cudart.h"

// Whether `result` says that there was no context and one has now been made current.
bool rt_bind(int result);
// Keeps an error for cudaGetLastError; returns it.
int rt_finish(int result);

// A driver call with all of that; `call` is evaluated a second time after a context was made.
#define RT_DRIVER(call)                                                                            \
    __extension__({                                                                                \
        int rt_result_ = (call);                                                                   \
        if (rt_bind(rt_result_))                                                                   \
            rt_result_ = (call);                                                                   \
        rt_finish(rt_result_);                                                                     \
    })

// The device of the calling thread.
int rt_device(void);

// A function that has no stand-in: counted by simcuda_runtime_stub_hits, and printed once a process
// for each caller where SIMCUDA_LOG is set. Returns NOT_SUPPORTED.
int rt_unsupported(const char *name);

// The name a kernel was registered by; NULL: it was not.
const char *rt_kernel_name(const void *host_function);

// Whether `addr` lies in pinned host memory of cudaHostAlloc, or memory that is
// registered.
bool rt_host_is_pinned(const void *addr);

// Calls of functions that have no stand-in, since the process began.
BERM_EXPORT uint64_t simcuda_runtime_stub_hits(void);

static inline berm_cu_deviceptr_t rt_addr(const void *pointer) {
    return (berm_cu_deviceptr_t)(uintptr_t)pointer;
}

static inline void *rt_pointer(berm_cu_deviceptr_t addr) {
    return (void *)(uintptr_t)addr; // NOLINT(performance-no-int-to-ptr): the interface wants it
}

#endif
