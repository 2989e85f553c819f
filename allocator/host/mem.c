// SPDX-License-Identifier: Apache-2.0
// Host memory: choice of the backend, exact counting and injected faults. The backends themselves
// are mem_mmap.c, mem_jemalloc.c and, below, libc.
//
// M1  held_bytes is the sum of the sizes of live allocations, reserved_bytes of live reservations
// M2  the backend changes only while held_bytes is 0, so a free goes where its alloc came from
//
// Locks: one of rank HOST while a backend is chosen; else atomics. Allocations may fail: NULL, and
// nothing was counted but the call. Frees cannot fail.
#include "host/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/insist.h"
#include "host/lock.h"
#include "host/mem_backend.h"

#if !defined(BERM_HOST_LIBC)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BERM_HOST_LIBC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define BERM_HOST_LIBC 1
#endif
#endif
#endif

static berm_mutex_t choice_mutex = BERM_MUTEX_INITIALIZER(BERM_LOCK_HOST, "host memory backend");
static _Atomic(const berm_mem_ops_t *) chosen;
static _Atomic(uint64_t) held_bytes;
static _Atomic(uint64_t) reserved_bytes;
static _Atomic(uint64_t) calls;
static _Atomic(uint64_t) fault_first; // 0: no faults
static _Atomic(uint64_t) fault_last;

static bool libc_begin(void) {
    return true;
}

static void *libc_alloc(size_t size_bytes) {
    if (size_bytes <= BERM_MEM_LINE_BYTES)
        return calloc(1, size_bytes);
    size_t whole_bytes = berm__align_up(size_bytes, BERM_MEM_LINE_BYTES);
    void *memory = aligned_alloc(BERM_MEM_LINE_BYTES, whole_bytes);
    if (memory != NULL)
        memset(memory, 0, size_bytes);
    return memory;
}

static void libc_free(void *memory, size_t size_bytes) {
    (void)size_bytes;
    free(memory);
}

static const berm_mem_ops_t libc_ops = {"libc", libc_begin, libc_alloc, libc_free};

static const berm_mem_ops_t *backend_auto(void) {
#ifdef BERM_HOST_LIBC
    return &libc_ops;
#else
    return berm__mem_ops_jemalloc.begin() ? &berm__mem_ops_jemalloc : &berm__mem_ops_mmap;
#endif
}

static const berm_mem_ops_t *backend_of(berm_mem_backend_t backend) {
    switch (backend) {
    case BERM_MEM_AUTO:
        return backend_auto();
    case BERM_MEM_MMAP:
        return &berm__mem_ops_mmap;
    case BERM_MEM_LIBC:
        return &libc_ops;
    case BERM_MEM_JEMALLOC:
        return &berm__mem_ops_jemalloc;
    }
    return NULL;
}

static const berm_mem_ops_t *backend_in_use(void) {
    const berm_mem_ops_t *ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (BERM_LIKELY(ops != NULL))
        return ops;
    berm__mutex_lock(&choice_mutex);
    ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (ops == NULL) {
        ops = backend_auto();
        atomic_store_explicit(&chosen, ops, memory_order_release);
    }
    berm__mutex_unlock(&choice_mutex);
    return ops;
}

bool berm__mem_backend_select(berm_mem_backend_t backend) {
    berm__mutex_lock(&choice_mutex);
    const berm_mem_ops_t *ops = backend_of(backend);
    bool is_in_use = ops != NULL && ops == atomic_load_explicit(&chosen, memory_order_relaxed);
    bool is_possible = is_in_use || (ops != NULL && berm__mem_held_bytes() == 0 && ops->begin());
    if (is_possible)
        atomic_store_explicit(&chosen, ops, memory_order_release);
    berm__mutex_unlock(&choice_mutex);
    return is_possible;
}

const char *berm__mem_backend_name(void) {
    return backend_in_use()->name;
}

// Counts a try; true if the test hook wants it to fail.
static bool call_fails(void) {
    uint64_t number = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    uint64_t first = atomic_load_explicit(&fault_first, memory_order_relaxed);
    if (BERM_LIKELY(first == 0))
        return false;
    return number >= first && number <= atomic_load_explicit(&fault_last, memory_order_relaxed);
}

void *berm__mem_alloc(size_t size_bytes) {
    if (call_fails() || size_bytes > PTRDIFF_MAX)
        return NULL;
    void *memory = backend_in_use()->alloc(size_bytes != 0 ? size_bytes : 1);
    if (memory != NULL)
        atomic_fetch_add_explicit(&held_bytes, size_bytes, memory_order_relaxed);
    return memory;
}

void berm__mem_free(void *memory, size_t size_bytes) {
    if (memory == NULL)
        return;
    uint64_t before = atomic_load_explicit(&held_bytes, memory_order_relaxed);
    BERM_INSIST(before >= size_bytes, "host memory is freed with the size it was allocated with");
    backend_in_use()->free(memory, size_bytes != 0 ? size_bytes : 1);
    atomic_fetch_sub_explicit(&held_bytes, size_bytes, memory_order_relaxed);
}

void *berm__mem_reserve(size_t size_bytes) {
    if (call_fails() || size_bytes == 0 || size_bytes > PTRDIFF_MAX)
        return NULL;
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    // Huge pages would commit 2 MiB for each word written.
    (void)madvise(memory, size_bytes, MADV_NOHUGEPAGE);
    atomic_fetch_add_explicit(&reserved_bytes, size_bytes, memory_order_relaxed);
    return memory;
}

void berm__mem_unreserve(void *memory, size_t size_bytes) {
    if (memory == NULL)
        return;
    int failed = munmap(memory, size_bytes);
    BERM_INSIST(failed == 0, "unreserve names a whole reservation");
    atomic_fetch_sub_explicit(&reserved_bytes, size_bytes, memory_order_relaxed);
}

uint64_t berm__mem_held_bytes(void) {
    return atomic_load_explicit(&held_bytes, memory_order_relaxed);
}

uint64_t berm__mem_reserved_bytes(void) {
    return atomic_load_explicit(&reserved_bytes, memory_order_relaxed);
}

void berm__mem_fault_nth(uint64_t nth, uint64_t count) {
    uint64_t last = count == 0 || nth > UINT64_MAX - count ? UINT64_MAX : nth + count - 1;
    atomic_store_explicit(&fault_first, 0, memory_order_relaxed);
    atomic_store_explicit(&fault_last, last, memory_order_relaxed);
    atomic_store_explicit(&calls, 0, memory_order_relaxed);
    atomic_store_explicit(&fault_first, nth, memory_order_relaxed);
}

uint64_t berm__mem_calls(void) {
    return atomic_load_explicit(&calls, memory_order_relaxed);
}
