// SPDX-License-Identifier: Apache-2.0
// Events of the stand-in runtime.
//
// Locks: none here. May fail: as the driver; out parameters are cleared first.
#include "simcuda/runtime/runtime.h"

cudart_error_t cudaEventCreateWithFlags(berm_cu_event_t *event, unsigned flags) {
    if (event != NULL)
        *event = NULL;
    return RT_DRIVER(cuEventCreate(event, flags));
}

cudart_error_t cudaEventCreate(berm_cu_event_t *event) {
    return cudaEventCreateWithFlags(event, BERM_CU_EVENT_DEFAULT);
}

cudart_error_t cudaEventDestroy(berm_cu_event_t event) {
    return RT_DRIVER(cuEventDestroy_v2(event));
}

cudart_error_t cudaEventRecord(berm_cu_event_t event, berm_cu_stream_t stream) {
    return RT_DRIVER(cuEventRecord(event, stream));
}

cudart_error_t cudaEventRecordWithFlags(berm_cu_event_t event, berm_cu_stream_t stream,
                                        unsigned flags) {
    return RT_DRIVER(cuEventRecordWithFlags(event, stream, flags));
}

cudart_error_t cudaEventQuery(berm_cu_event_t event) {
    return RT_DRIVER(cuEventQuery(event));
}

cudart_error_t cudaEventSynchronize(berm_cu_event_t event) {
    return RT_DRIVER(cuEventSynchronize(event));
}

cudart_error_t cudaEventElapsedTime(float *ms, berm_cu_event_t start, berm_cu_event_t end) {
    if (ms != NULL)
        *ms = 0;
    return RT_DRIVER(cuEventElapsedTime(ms, start, end));
}

cudart_error_t cudaIpcGetEventHandle(berm_cu_ipc_event_handle_t *handle, berm_cu_event_t event) {
    if (handle == NULL)
        return rt_finish(BERM_CU_INVALID_VALUE);
    memset(handle, 0, sizeof *handle);
    return RT_DRIVER(cuIpcGetEventHandle(handle, event));
}

cudart_error_t cudaIpcOpenEventHandle(berm_cu_event_t *event, berm_cu_ipc_event_handle_t handle) {
    if (event != NULL)
        *event = NULL;
    return RT_DRIVER(cuIpcOpenEventHandle(event, handle));
}
