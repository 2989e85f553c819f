// SPDX-License-Identifier: Apache-2.0
// Host memory for berm's own records. A free names the size it got, so no block has a header.
//
// Small and middling records come from one of three backends, chosen before the first use; large
// tables that fill slowly come from berm__mem_reserve, which is mmap in every backend.
// All functions are thread-safe; they take a lock of rank HOST and never call the driver.
#ifndef BERM_HOST_MEM_H
#define BERM_HOST_MEM_H

#include <stdbool.h>

#include "base/defs.h"

typedef enum berm_mem_backend {
    BERM_MEM_AUTO,     // libc in sanitizer builds; jemalloc if the process carries it; else mmap
    BERM_MEM_MMAP,     // 1 MiB chunks from the kernel; never enters the process's malloc
    BERM_MEM_LIBC,     // calloc and free, where sanitizers can watch
    BERM_MEM_JEMALLOC, // one private arena of the process's jemalloc
} berm_mem_backend_t;

// Chooses the backend. False, and nothing changed, if memory of another is held now or if the
// process has no such backend. Without this call the first allocation chooses BERM_MEM_AUTO.
BERM_NODISCARD bool berm__mem_backend_select(berm_mem_backend_t backend);

// "mmap", "libc" or "jemalloc": the backend in use (chosen now if none was). Static string.
const char *berm__mem_backend_name(void);

// Zeroed memory, aligned to 16 bytes; NULL when there is none. Size 0 is allowed. More than 64
// bytes are whole cache lines, which no other block shares: threads that write records of their own
// never slow each other down.
BERM_NODISCARD void *berm__mem_alloc(size_t size_bytes);

// Gives memory back; size_bytes is what it was allocated with. NULL is allowed.
void berm__mem_free(void *memory, size_t size_bytes);

// Page-aligned zero pages that cost memory only once written; NULL on failure or for size 0.
BERM_NODISCARD void *berm__mem_reserve(size_t size_bytes);
void berm__mem_unreserve(void *memory, size_t size_bytes);

// Exact sums of the sizes asked for: allocated and not freed; reserved and not given back.
uint64_t berm__mem_held_bytes(void);
uint64_t berm__mem_reserved_bytes(void);

// Test hook: of the allocations (alloc and reserve) from now on, counted from 1, the numbers nth to
// nth + count - 1 fail; count 0 is for ever, nth 0 clears. Restarts berm__mem_calls at 0.
void berm__mem_fault_nth(uint64_t nth, uint64_t count);

// Allocations tried since the last berm__mem_fault_nth, failed ones included.
uint64_t berm__mem_calls(void);

#endif
