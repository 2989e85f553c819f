// SPDX-License-Identifier: Apache-2.0
// The jemalloc backend: one private arena of the jemalloc that the process carries already. berm
// never loads jemalloc (Debian's cannot be loaded late) and never reads or sets its options; the
// references are weak and null where there is none.
//
// The arena keeps berm's records out of the application's fragmentation and gives an exact account
// (`stats.arenas.<i>`). No thread cache: host/node_slab.h takes chunks, not nodes. The arena
// is made once and stays.
//
// Locks: none of berm's; jemalloc's own are taken below any of ours, and it never calls berm.
// Fails where jemalloc does. Only the first berm__mem_backend_select or alloc calls `begin`.
#include "host/mem_backend.h"

#include <stdatomic.h>

#include "base/bits.h"
#include "base/insist.h"

// Signatures and flag encodings of jemalloc's stable interface (4.0 and later), declared here
// because its header is not a build dependency of the library.
extern int mallctl(const char *name, void *old, size_t *old_length, void *new_, size_t new_length)
    __attribute__((weak));
extern void *mallocx(size_t size_bytes, int flags) __attribute__((weak));
extern void sdallocx(void *memory, size_t size_bytes, int flags) __attribute__((weak));

#define FLAG_ALIGN_16   4 // log2
#define FLAG_ALIGN_LINE 6
#define FLAG_ZERO       0x40
#define FLAG_NO_TCACHE  (1 << 8)
#define FLAG_ARENA(i)   ((int)((i) + 1) << 20)
#define ARENA_INDEX_MAX 2046u // what the flags have room for

static _Atomic(int) arena_flags; // 0: no arena yet

static bool jemalloc_begin(void) {
    if (atomic_load_explicit(&arena_flags, memory_order_relaxed) != 0)
        return true;
    if (mallctl == NULL || mallocx == NULL || sdallocx == NULL)
        return false;
    unsigned arena = 0;
    size_t length = sizeof arena;
    if (mallctl("arenas.create", &arena, &length, NULL, 0) != 0 || arena > ARENA_INDEX_MAX)
        return false;
    int flags = FLAG_ARENA(arena) | FLAG_NO_TCACHE;
    atomic_store_explicit(&arena_flags, flags, memory_order_relaxed);
    return true;
}

static int flags_for(size_t size_bytes) {
    return atomic_load_explicit(&arena_flags, memory_order_relaxed) |
           (size_bytes > BERM_MEM_LINE_BYTES ? FLAG_ALIGN_LINE : FLAG_ALIGN_16);
}

static size_t whole_bytes(size_t size_bytes) {
    return size_bytes > BERM_MEM_LINE_BYTES ? berm__align_up(size_bytes, BERM_MEM_LINE_BYTES)
                                            : size_bytes;
}

static void *jemalloc_alloc(size_t size_bytes) {
    return mallocx(whole_bytes(size_bytes), flags_for(size_bytes) | FLAG_ZERO);
}

static void jemalloc_free(void *memory, size_t size_bytes) {
    sdallocx(memory, whole_bytes(size_bytes), flags_for(size_bytes));
}

const berm_mem_ops_t berm__mem_ops_jemalloc = {"jemalloc", jemalloc_begin, jemalloc_alloc,
                                               jemalloc_free};
