// SPDX-License-Identifier: Apache-2.0
// Pinned host memory of the stand-in runtime: pages of the system, taken when they are touched, so
// that a program's large staging buffers cost nothing until used; and the program's own memory that
// it has registered.
//
// Bounds: O(number of live buffers) a free and a question; programs keep few and large ones.
// Locks: one of this file; no driver call inside. May fail: out of memory, nothing changed then.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "simcuda/runtime/runtime.h"

typedef struct host_buffer {
    struct host_buffer *next;
    void *addr;
    size_t bytes;
    bool is_registered; // the program's own
} host_buffer_t;

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;
static host_buffer_t *host_buffers;

static void buffer_add(host_buffer_t *buffer) {
    (void)pthread_mutex_lock(&host_lock);
    buffer->next = host_buffers;
    host_buffers = buffer;
    (void)pthread_mutex_unlock(&host_lock);
}

// Takes the buffer that begins at `addr` out of the list; NULL: there is none of this kind.
static host_buffer_t *buffer_take(const void *addr, bool is_registered) {
    (void)pthread_mutex_lock(&host_lock);
    host_buffer_t **at = &host_buffers;
    while (*at != NULL && ((*at)->addr != addr || (*at)->is_registered != is_registered))
        at = &(*at)->next;
    host_buffer_t *buffer = *at;
    if (buffer != NULL)
        *at = buffer->next;
    (void)pthread_mutex_unlock(&host_lock);
    return buffer;
}

cudart_error_t cudaHostAlloc(void **addr, size_t bytes, unsigned flags) {
    (void)flags; // portable, mapped, write-combined: all the same here
    if (addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *addr = NULL;
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    host_buffer_t *buffer = malloc(sizeof *buffer);
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer == NULL || pages == MAP_FAILED) {
        free(buffer);
        if (pages != MAP_FAILED)
            (void)munmap(pages, bytes);
        return rt_finish(BERM_CU_OUT_OF_MEMORY);
    }
    *buffer = (host_buffer_t){.addr = pages, .bytes = bytes};
    buffer_add(buffer);
    *addr = pages;
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaMallocHost(void **addr, size_t bytes) {
    return cudaHostAlloc(addr, bytes, 0);
}

cudart_error_t cudaFreeHost(void *addr) {
    if (addr == NULL)
        return BERM_CU_SUCCESS;
    host_buffer_t *buffer = buffer_take(addr, false);
    if (buffer == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    (void)munmap(buffer->addr, buffer->bytes);
    free(buffer);
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaHostRegister(void *addr, size_t bytes, unsigned flags) {
    (void)flags;
    if (addr == NULL || bytes == 0)
        return rt_finish(BERM_CU_INVALID_VALUE);
    if (rt_host_is_pinned(addr))
        return rt_finish(CUDART_HOST_MEMORY_ALREADY_REGISTERED);
    host_buffer_t *buffer = malloc(sizeof *buffer);
    if (buffer == NULL)
        return rt_finish(BERM_CU_OUT_OF_MEMORY);
    *buffer = (host_buffer_t){.addr = addr, .bytes = bytes, .is_registered = true};
    buffer_add(buffer);
    return BERM_CU_SUCCESS;
}

cudart_error_t cudaHostUnregister(void *addr) {
    host_buffer_t *buffer = buffer_take(addr, true);
    if (buffer == NULL)
        return rt_finish(CUDART_HOST_MEMORY_NOT_REGISTERED);
    free(buffer);
    return BERM_CU_SUCCESS;
}

bool rt_host_is_pinned(const void *addr) {
    bool is_pinned = false;
    (void)pthread_mutex_lock(&host_lock);
    for (const host_buffer_t *at = host_buffers; at != NULL && !is_pinned; at = at->next)
        is_pinned = rt_addr(addr) - rt_addr(at->addr) < at->bytes;
    (void)pthread_mutex_unlock(&host_lock);
    return is_pinned;
}

cudart_error_t cudaHostGetDevicePointer(void **device_addr, void *addr, unsigned flags) {
    if (device_addr == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    *device_addr = NULL;
    if (flags != 0 || !rt_host_is_pinned(addr))
        return rt_finish(BERM_CU_INVALID_VALUE);
    *device_addr = addr;
    return BERM_CU_SUCCESS;
}
