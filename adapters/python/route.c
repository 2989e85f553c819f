// SPDX-License-Identifier: Apache-2.0
// libberm_python.so: the filter of routes that berm.pool() makes. It is called by every thread that
// allocates, with no lock of berm's held, so that it must not wait for Python's.
#include "adapters/python/route.h"

#include <unistd.h>

static _Thread_local pid_t own;

intptr_t berm_python_thread(void) {
    if (own == 0)
        own = gettid();
    return own;
}

bool berm_python_route_thread(berm_stream_t stream, void *context) {
    (void)stream;
    return (intptr_t)context == berm_python_thread();
}
