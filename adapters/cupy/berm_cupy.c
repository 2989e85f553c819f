// SPDX-License-Identifier: Apache-2.0
// See berm_cupy.h.
#include "adapters/cupy/berm_cupy.h"

#include <stdio.h>

#include "adapters/tagged.h"

// CuPy gives -1 when it fails, at the end of Python for one: BERM_STREAM_NONE, which is always
// safe.
static berm_stream_t stream_current(const berm_cupy_t *cupy, int device) {
    if (cupy == NULL || cupy->stream == NULL)
        return BERM_STREAM_NONE;
    return (berm_stream_t)cupy->stream(device);
}

void *berm_cupy_malloc(const berm_cupy_t *cupy, size_t size_bytes, int device) {
    berm_addr_t addr = 0;
    if (size_bytes == 0 || berm_tagged_alloc(BERM_CUPY_TAG, size_bytes, device,
                                             stream_current(cupy, device), &addr) != BERM_OK)
        return NULL;
    return (void *)(uintptr_t)addr;
}

void berm_cupy_free(const berm_cupy_t *cupy, void *block, int device) {
    if (block == NULL)
        return;
    berm_status_t status = berm_free((uintptr_t)block, device, stream_current(cupy, device));
    if (!berm_free_is_over(status))
        (void)fprintf(stderr, "berm: CuPy frees %p of GPU %d: %s: %s\n", block, device,
                      berm_status_name(status), berm_error_message());
}
