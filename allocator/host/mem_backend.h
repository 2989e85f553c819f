// SPDX-License-Identifier: Apache-2.0
// What a backend of host/mem.h supplies. Only mem.c and the backends include this.
// `begin` is called once, before the first alloc, and says whether the process has the backend.
// `alloc` returns zeroed memory aligned to 16 bytes for a size of at least 1, or NULL.
// Both alloc and free are thread-safe.
#ifndef BERM_HOST_MEM_BACKEND_H
#define BERM_HOST_MEM_BACKEND_H

#include <stdbool.h>

#include "base/defs.h"

enum {
    BERM_MEM_LINE_BYTES = 64, // blocks above it are whole cache lines
};

typedef struct berm_mem_ops {
    const char *name;
    bool (*begin)(void);
    void *(*alloc)(size_t size_bytes);
    void (*free)(void *memory, size_t size_bytes);
} berm_mem_ops_t;

extern const berm_mem_ops_t berm__mem_ops_mmap;
extern const berm_mem_ops_t berm__mem_ops_jemalloc;

#endif
