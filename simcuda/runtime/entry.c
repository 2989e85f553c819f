// SPDX-License-Identifier: Apache-2.0
// The driver's functions by name. One that PyTorch insists on finding, and calls only in features
// that are not modelled, is a stand-in that says NOT_SUPPORTED.
//
// Locks: none. May fail: an unknown name, which is told as the real runtime tells it.
#include "simcuda/runtime/runtime.h"

static berm_cu_result_t no_write_value(berm_cu_stream_t stream, berm_cu_deviceptr_t addr,
                                       uint32_t value, unsigned flags) {
    (void)stream;
    (void)addr;
    (void)value;
    (void)flags;
    return rt_unsupported("cuStreamWriteValue32");
}

// ISO C has no cast from a function's address to an object's; POSIX has the same representation.
static void *entry_substitute(const char *symbol) {
    __typeof__(&no_write_value) write_value = no_write_value;
    void *fn = NULL;
    if (strcmp(symbol, "cuStreamWriteValue32") == 0)
        memcpy(&fn, &write_value, sizeof fn);
    return fn;
}

cudart_error_t cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned version,
                                                unsigned long long flags, int *status) {
    if (symbol == NULL || fn == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    int query = BERM_CU_PROC_SYMBOL_NOT_FOUND;
    *fn = NULL;
    int result = cuGetProcAddress_v2(symbol, fn, (int)version, flags, &query);
    if (*fn == NULL && (*fn = entry_substitute(symbol)) != NULL) {
        query = BERM_CU_PROC_FOUND;
        result = BERM_CU_SUCCESS;
    }
    if (status != NULL)
        *status = query;
    // Who asks for the status is told by it alone.
    if (result == BERM_CU_NOT_FOUND && status != NULL)
        return BERM_CU_SUCCESS;
    if (result == BERM_CU_SUCCESS && *fn == NULL && status == NULL)
        result = BERM_CU_NOT_FOUND;
    return rt_finish(result);
}

cudart_error_t cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
                                       int *status) {
    int version = 0;
    (void)cudaRuntimeGetVersion(&version);
    return cudaGetDriverEntryPointByVersion(symbol, fn, (unsigned)version, flags, status);
}
