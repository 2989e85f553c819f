// SPDX-License-Identifier: Apache-2.0
// Tickets and their events: see stream.h. When the ring of sealed tickets is full the newest event
// is recorded anew, later: its older ticket then passes a little late, never early.
#include "policy/stream.h"

#include <string.h>

#include "base/insist.h"

void berm__stream_init(berm_stream_ref_t *stream, berm_gpu_t *gpu, berm_stream_t handle,
                       uint64_t *host_waits) {
    memset(stream, 0, sizeof *stream);
    berm__list_init(&stream->link);
    stream->gpu = gpu;
    stream->handle = handle;
    stream->passed_ticket = BERM_TICKET_NONE;
    atomic_init(&stream->open_ticket, BERM_TICKET_NONE + 1);
    stream->host_waits = host_waits;
}

static berm_sealed_t *sealed_at(berm_stream_ref_t *stream, unsigned index) {
    return &stream->sealed[(stream->sealed_first + index) % BERM_STREAM_SEALED_MAX];
}

static berm_status_t event_take(berm_stream_ref_t *stream, berm_cu_event_t *event) {
    berm_drv_t *drv = stream->gpu->drv;
    if (stream->context == NULL)
        return berm__gpu_event_take(stream->gpu, event);
    berm_cu_result_t result = berm__gpu_push(stream->gpu, stream->context);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    result = BERM_DRV_CALL(drv, OTHER, event_create, event, BERM_CU_EVENT_DISABLE_TIMING);
    berm__gpu_pop(stream->gpu);
    return berm__drv_status(result);
}

static void event_give(berm_stream_ref_t *stream, berm_cu_event_t event) {
    if (stream->context == NULL)
        berm__gpu_event_give(stream->gpu, event);
    else
        berm__gpu_event_destroy(stream->gpu, event);
}

static void sealed_pass_oldest(berm_stream_ref_t *stream) {
    berm_sealed_t *oldest = sealed_at(stream, 0);
    stream->passed_ticket = oldest->ticket;
    event_give(stream, oldest->event);
    stream->sealed_first = (stream->sealed_first + 1) % BERM_STREAM_SEALED_MAX;
    stream->sealed_count--;
}

void berm__stream_destroy(berm_stream_ref_t *stream) {
    while (stream->sealed_count > 0)
        sealed_pass_oldest(stream);
}

// Whether a capture forbids to record or ask about the stream.
static berm_status_t stream_is_captured(const berm_stream_ref_t *stream, bool *is_captured) {
    uint64_t id = BERM_CAPTURE_NONE;
    if (stream->handle == BERM_STREAM_NONE || stream->is_retired)
        return berm__capture_any(stream->gpu, stream->watch, is_captured);
    berm_status_t status = berm__capture_read(stream->gpu, stream->handle, &id);
    *is_captured = id != BERM_CAPTURE_NONE;
    return status;
}

// Where no event can be had for a ticket that was just closed: waits for everything, which needs
// none: for the device, or for a stream that is not surely one of the device's context. All work of
// one that was retired is done. Should even that fail, or a capture forbid it, which is BERM_OK,
// the ticket counts as used again, and the next seal covers it.
static berm_status_t work_wait(berm_stream_ref_t *stream, uint64_t ticket) {
    berm_drv_t *drv = stream->gpu->drv;
    bool is_one = stream->is_elsewhere && !stream->is_retired, is_any = false;
    berm_status_t status = BERM_OK;
    if (!is_one)
        status = berm__capture_any(stream->gpu, stream->watch, &is_any);
    if (status != BERM_OK || is_any) {
        atomic_store_explicit(&stream->is_open_used, true, memory_order_relaxed);
        return status;
    }
    berm_cu_result_t result = is_one ? BERM_DRV_CALL(drv, SYNCHRONIZE, stream_synchronize,
                                                     (berm_cu_stream_t)stream->handle)
                                     : berm__gpu_synchronize(stream->gpu);
    ++*stream->host_waits;
    if (result != BERM_CU_SUCCESS) {
        atomic_store_explicit(&stream->is_open_used, true, memory_order_relaxed);
        return berm__drv_status(result);
    }
    while (stream->sealed_count > 0)
        sealed_pass_oldest(stream);
    stream->passed_ticket = ticket;
    return BERM_OK;
}

static berm_cu_result_t event_record(berm_stream_ref_t *stream, berm_cu_event_t event) {
    berm_drv_t *drv = stream->gpu->drv;
    if (stream->handle == BERM_STREAM_NONE)
        return BERM_DRV_CALL(drv, EVENT_RECORD, ctx_record_event, stream->gpu->context, event);
    return BERM_DRV_CALL(drv, EVENT_RECORD, event_record, event, (berm_cu_stream_t)stream->handle);
}

berm_status_t berm__stream_seal(berm_stream_ref_t *stream) {
    bool is_captured;
    if (!atomic_load(&stream->is_open_used))
        return BERM_OK;
    berm_status_t status = stream_is_captured(stream, &is_captured);
    if (status != BERM_OK || is_captured)
        return status;
    if (!atomic_exchange(&stream->is_open_used, false))
        return BERM_OK;
    uint64_t ticket = atomic_fetch_add(&stream->open_ticket, 1);
    bool is_context = stream->handle == BERM_STREAM_NONE;
    if (stream->is_retired || (is_context && !stream->gpu->has_ctx_event))
        return work_wait(stream, ticket);
    if (stream->sealed_count == BERM_STREAM_SEALED_MAX) {
        berm_sealed_t *newest = sealed_at(stream, stream->sealed_count - 1);
        if (event_record(stream, newest->event) != BERM_CU_SUCCESS)
            return work_wait(stream, ticket);
        newest->ticket = ticket;
        return BERM_OK;
    }
    berm_cu_event_t event = NULL;
    status = event_take(stream, &event);
    if (status == BERM_OK && event_record(stream, event) != BERM_CU_SUCCESS) {
        event_give(stream, event);
        status = BERM_ERROR_DRIVER;
    }
    if (status != BERM_OK)
        return work_wait(stream, ticket);
    stream->sealed_count++;
    *sealed_at(stream, stream->sealed_count - 1) =
        (berm_sealed_t){.ticket = ticket, .event = event};
    return BERM_OK;
}

berm_status_t berm__stream_poll(berm_stream_ref_t *stream) {
    bool is_captured;
    if (stream->sealed_count == 0)
        return BERM_OK;
    berm_status_t status = stream_is_captured(stream, &is_captured);
    if (status != BERM_OK || is_captured)
        return status;
    while (stream->sealed_count > 0) {
        berm_cu_result_t result =
            BERM_DRV_CALL(stream->gpu->drv, EVENT_QUERY, event_query, sealed_at(stream, 0)->event);
        if (result == BERM_CU_NOT_READY)
            return BERM_OK;
        if (result != BERM_CU_SUCCESS)
            return berm__drv_status(result);
        sealed_pass_oldest(stream);
    }
    return BERM_OK;
}

// The first event at or after the ticket; sealed_count if there is none.
static unsigned covering_find(berm_stream_ref_t *stream, uint64_t ticket) {
    unsigned covering = 0;
    while (covering < stream->sealed_count && sealed_at(stream, covering)->ticket < ticket)
        covering++;
    return covering;
}

berm_status_t berm__stream_wait(berm_stream_ref_t *stream, uint64_t ticket) {
    if (berm__stream_has_passed(stream, ticket))
        return BERM_OK;
    bool is_captured = false;
    berm_status_t status = BERM_OK;
    unsigned covering = covering_find(stream, ticket);
    if (covering == stream->sealed_count) {
        atomic_store_explicit(&stream->is_open_used, true, memory_order_relaxed);
        status = berm__stream_seal(stream);
        covering = covering_find(stream, ticket);
        is_captured = covering == stream->sealed_count;
    } else {
        status = stream_is_captured(stream, &is_captured);
    }
    if (status != BERM_OK || berm__stream_has_passed(stream, ticket))
        return status;
    if (is_captured)
        return BERM_ERROR_CAPTURE;
    BERM_INSIST(covering < stream->sealed_count, "a ticket is open, sealed or passed");
    berm_cu_result_t result = BERM_DRV_CALL(stream->gpu->drv, SYNCHRONIZE, event_synchronize,
                                            sealed_at(stream, covering)->event);
    if (result != BERM_CU_SUCCESS)
        return berm__drv_status(result);
    ++*stream->host_waits;
    while (!berm__stream_has_passed(stream, ticket))
        sealed_pass_oldest(stream);
    return BERM_OK;
}

berm_status_t berm__stream_wait_all(berm_stream_ref_t *stream) {
    uint64_t open = atomic_load(&stream->open_ticket);
    bool is_used = atomic_load(&stream->is_open_used);
    return berm__stream_wait(stream, is_used ? open : open - 1);
}
