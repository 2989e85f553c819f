// SPDX-License-Identifier: Apache-2.0
// Libraries of kernels that a program loads by itself: the driver's. Their kernels are launched as
// those that are registered.
//
// Locks: none. May fail: as the driver.
#include "simcuda/runtime/runtime.h"

cudart_error_t cudaLibraryLoadData(sim_cu_library_t *library, const void *image, int *jit_options,
                                   void **jit_values, unsigned jit_count, int *options,
                                   void **values, unsigned count) {
    if (library != NULL)
        *library = NULL;
    return RT_DRIVER(cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options,
                                       values, count));
}

cudart_error_t cudaLibraryUnload(sim_cu_library_t library) {
    return RT_DRIVER(cuLibraryUnload(library));
}

cudart_error_t cudaLibraryGetKernel(sim_cu_kernel_t *kernel, sim_cu_library_t library,
                                    const char *name) {
    if (kernel != NULL)
        *kernel = NULL;
    return RT_DRIVER(cuLibraryGetKernel(kernel, library, name));
}
