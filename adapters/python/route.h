// SPDX-License-Identifier: Apache-2.0
// What the Python package needs beside libberm. Thread-safe. Driver: never. Waits: never. Streams:
// none.
#ifndef BERM_PYTHON_ROUTE_H
#define BERM_PYTHON_ROUTE_H

#include "berm.h"

// The calling thread's number; not 0.
BERM_API intptr_t berm_python_thread(void);
// A berm_pool_filter_fn: true in the thread whose number `context` is.
BERM_API bool berm_python_route_thread(berm_stream_t stream, void *context);

#endif
