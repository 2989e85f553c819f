// SPDX-License-Identifier: Apache-2.0
// Asking about captures: see capture.h. Asking breaks no capture, whatever its mode.
#include "policy/capture.h"

#include "policy/device.h"

berm_status_t berm__capture_read(berm_gpu_t *gpu, berm_stream_t handle, uint64_t *id) {
    berm_drv_t *drv = gpu->drv;
    berm_cu_stream_t stream = (berm_cu_stream_t)handle;
    berm_cu_result_t result = BERM_CU_SUCCESS;
    int status = BERM_CU_CAPTURE_STATUS_NONE;
    uint64_t found = BERM_CAPTURE_UNKNOWN;
    *id = BERM_CAPTURE_NONE;
    if (handle == BERM_STREAM_NONE)
        return BERM_OK;
    if (drv->stream_get_capture_info != NULL)
        result = BERM_DRV_CALL(drv, OTHER, stream_get_capture_info, stream, &status, &found, NULL,
                               NULL, NULL);
    else
        result = BERM_DRV_CALL(drv, OTHER, stream_is_capturing, stream, &status);
    // The legacy stream, while one that it waits for is captured: it may not be touched either.
    bool is_implicit = result == BERM_CU_STREAM_CAPTURE_IMPLICIT;
    if (is_implicit || (result == BERM_CU_SUCCESS && status != BERM_CU_CAPTURE_STATUS_NONE))
        *id = is_implicit || status != BERM_CU_CAPTURE_STATUS_ACTIVE ? BERM_CAPTURE_UNKNOWN : found;
    // A stream that is gone is not captured; what is asked of it next says what is wrong.
    bool is_answer =
        is_implicit || result == BERM_CU_INVALID_HANDLE || result == BERM_CU_CONTEXT_IS_DESTROYED;
    return is_answer ? BERM_OK : berm__drv_status(result);
}

berm_status_t berm__capture_any(berm_gpu_t *gpu, const berm_watch_t *watch, bool *is_any) {
    berm_status_t status = BERM_OK;
    *is_any = watch != NULL && watch->capture_routes > 0;
    if (watch == NULL)
        return BERM_OK;
    // One that berm has not seen, if it waits for the legacy stream as streams do by default.
    uint64_t id = BERM_CAPTURE_NONE;
    if (!*is_any)
        status = berm__capture_read(gpu, NULL, &id);
    *is_any = *is_any || id != BERM_CAPTURE_NONE;
    berm_stream_ref_t *stream = NULL;
    while (status == BERM_OK && !*is_any &&
           (stream = berm__device_stream_next(watch->device, stream)) != NULL) {
        if (!stream->is_retired && stream->handle != NULL)
            status = berm__capture_read(gpu, stream->handle, &id);
        *is_any = id != BERM_CAPTURE_NONE;
    }
    return status;
}
