// SPDX-License-Identifier: Apache-2.0
// Events: a mark in a stream, asked for or waited for later. An event never recorded is complete.
//
// Locks: the state's, by sim_enter. An event whose mark cannot be made keeps its old one.
#include <stdlib.h>

#include "graph.h"
#include "pool.h"

static sim_event_t *event_get(berm_cu_event_t handle) {
    return sim_table_get(&sim.events, (uint64_t)(uintptr_t)handle);
}

void sim_event_free(sim_event_t *event) {
    if (event->mark != NULL)
        sim_mark_drop(event->mark);
    free(event->capture_deps.items);
    free(event);
}

sim_event_t *sim_event_create(unsigned flags, int *result) {
    sim_event_t *event = calloc(1, sizeof(*event));
    *result = BERM_CU_OUT_OF_MEMORY;
    if (event == NULL || (event->handle = sim_table_add(&sim.events, event)) == 0) {
        free(event);
        return NULL;
    }
    event->context = sim_context_current();
    event->flags = flags;
    *result = BERM_CU_SUCCESS;
    return event;
}

berm_cu_result_t cuEventCreate(berm_cu_event_t *out, unsigned flags) {
    int result = sim_enter(SIM_FN_cuEventCreate);
    if (result == BERM_CU_SUCCESS) {
        unsigned known =
            BERM_CU_EVENT_BLOCKING_SYNC | BERM_CU_EVENT_DISABLE_TIMING | BERM_CU_EVENT_INTERPROCESS;
        bool is_ipc_timed = (flags & BERM_CU_EVENT_INTERPROCESS) != 0 &&
                            (flags & BERM_CU_EVENT_DISABLE_TIMING) == 0;
        const sim_event_t *event = NULL;
        sim_charge(&sim.config.costs.other, 0, 0);
        if (out == NULL || (flags & ~known) != 0 || is_ipc_timed)
            result = BERM_CU_INVALID_VALUE;
        else
            event = sim_event_create(flags, &result);
        if (event != NULL)
            *out = (berm_cu_event_t)(uintptr_t)event->handle;
    }
    return sim_leave(result);
}

berm_cu_result_t cuEventDestroy_v2(berm_cu_event_t handle) {
    int result = sim_enter(SIM_FN_cuEventDestroy_v2);
    if (result == BERM_CU_SUCCESS) {
        sim_event_t *event = event_get(handle);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (event == NULL) {
            result = BERM_CU_INVALID_HANDLE;
        } else {
            sim_table_remove(&sim.events, event->handle);
            sim_event_free(event);
        }
    }
    return sim_leave(result);
}

// --- record --------------------------------------------------------------------------------------

// A mark nobody else looks at: the event's own where that is so.
static sim_mark_t *event_fresh_mark(const sim_event_t *event) {
    if (event->mark != NULL && event->mark->refs == 1 &&
        event->mark->clock_count == sim.slot_count) {
        event->mark->refs++;
        return event->mark;
    }
    return sim_mark_create();
}

static int event_record(sim_event_t *event, sim_stream_t *stream, sim_context_t *wait_all) {
    sim_mark_t *mark = event_fresh_mark(event);
    if (mark == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    sim_issue_t issue = {.mark = mark, .wait_all = wait_all};
    int result = sim_queue_issue(stream, &issue);
    if (result != BERM_CU_SUCCESS) {
        sim_mark_drop(mark);
        return result;
    }
    if (event->mark != NULL)
        sim_mark_drop(event->mark);
    event->mark = mark;
    event->capture_id = 0;
    return BERM_CU_SUCCESS;
}

// A launch has come to the step that records the event; one that is gone is passed by.
void sim_event_mark(uint64_t handle, sim_mark_t *mark) {
    sim_event_t *event = sim_table_get(&sim.events, handle);
    if (event == NULL)
        return;
    if (event->mark != NULL)
        sim_mark_drop(event->mark);
    mark->refs++;
    event->mark = mark;
    event->capture_id = 0;
}

static int event_record_on(berm_cu_event_t event_handle, berm_cu_stream_t stream_handle,
                           unsigned flags) {
    int result;
    sim_event_t *event = event_get(event_handle);
    sim_charge(&sim.config.costs.event_record, 0, 0);
    if (event == NULL)
        return BERM_CU_INVALID_HANDLE;
    if ((flags & ~(unsigned)BERM_CU_EVENT_RECORD_EXTERNAL) != 0)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(stream_handle, &result);
    if (stream == NULL)
        return result;
    if (stream->context != event->context)
        return BERM_CU_INVALID_HANDLE;
    bool is_external = (flags & BERM_CU_EVENT_RECORD_EXTERNAL) != 0;
    if (stream->capture != NULL && is_external) {
        const sim_issue_t issue = {.event = event->handle};
        return sim_capture_add(stream, &issue, NULL, 0);
    }
    if (stream->capture != NULL)
        return sim_capture_record(stream, event);
    if (is_external)
        return BERM_CU_INVALID_VALUE;
    result = sim_capture_check_legacy(stream);
    return result != BERM_CU_SUCCESS ? result : event_record(event, stream, NULL);
}

berm_cu_result_t cuEventRecord(berm_cu_event_t event, berm_cu_stream_t stream) {
    int result = sim_enter(SIM_FN_cuEventRecord);
    if (result == BERM_CU_SUCCESS)
        result = event_record_on(event, stream, 0);
    return sim_leave(result);
}

berm_cu_result_t cuEventRecordWithFlags(berm_cu_event_t event, berm_cu_stream_t stream,
                                        unsigned flags) {
    int result = sim_enter(SIM_FN_cuEventRecordWithFlags);
    if (result == BERM_CU_SUCCESS)
        result = event_record_on(event, stream, flags);
    return sim_leave(result);
}

// The event of a whole context is recorded on a stream of the driver's own that follows all others.
static int event_record_context(berm_cu_context_t context_handle, berm_cu_event_t event_handle) {
    sim_context_t *context =
        context_handle == NULL ? sim_context_current()
                               : sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)context_handle);
    sim_event_t *event = event_get(event_handle);
    sim_charge(&sim.config.costs.event_record, 0, 0);
    if (!sim.config.has_ctx_event)
        return BERM_CU_NOT_SUPPORTED;
    if (context == NULL)
        return BERM_CU_INVALID_CONTEXT;
    if (event == NULL || event->context != context)
        return BERM_CU_INVALID_HANDLE;
    if (sim_capture_refuse_context(context))
        return BERM_CU_STREAM_CAPTURE_UNSUPPORTED;
    if (context->recorder == NULL) {
        context->recorder = sim_stream_create(context, BERM_CU_STREAM_NON_BLOCKING, 0);
        if (context->recorder == NULL)
            return BERM_CU_OUT_OF_MEMORY;
        sim_table_remove(&sim.streams, context->recorder->handle);
        context->recorder->handle = 0;
    }
    return event_record(event, context->recorder, context);
}

berm_cu_result_t cuCtxRecordEvent(berm_cu_context_t context, berm_cu_event_t event) {
    int result = sim_enter(SIM_FN_cuCtxRecordEvent);
    if (result == BERM_CU_SUCCESS)
        result = event_record_context(context, event);
    return sim_leave(result);
}

// --- wait and ask --------------------------------------------------------------------------------

// Refuses what may not be asked of an event recorded in a capture, and breaks that capture.
static int event_refuse_captured(const sim_event_t *event) {
    if (event->capture_id == 0)
        return BERM_CU_SUCCESS;
    sim_capture_t *capture = sim_capture_find(event->capture_id);
    if (capture != NULL)
        return sim_capture_refuse(capture, BERM_CU_CAPTURED_EVENT);
    return BERM_CU_CAPTURED_EVENT;
}

berm_cu_result_t cuEventQuery(berm_cu_event_t handle) {
    int result = sim_enter(SIM_FN_cuEventQuery);
    if (result == BERM_CU_SUCCESS) {
        sim_event_t *event = event_get(handle);
        sim_charge(&sim.config.costs.event_query, 0, 0);
        result = event == NULL ? BERM_CU_INVALID_HANDLE : event_refuse_captured(event);
        if (result == BERM_CU_SUCCESS)
            result = sim_context_observe(event->context);
        if (result == BERM_CU_SUCCESS && event->mark != NULL) {
            if (sim_mark_is_done(event->mark))
                sim_wait_mark(event->mark); // takes no time; what it saw is ordered from here on
            else
                result = BERM_CU_NOT_READY;
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuEventSynchronize(berm_cu_event_t handle) {
    int result = sim_enter(SIM_FN_cuEventSynchronize);
    if (result == BERM_CU_SUCCESS) {
        sim_event_t *event = event_get(handle);
        sim_charge(&sim.config.costs.synchronize, 0, 0);
        result = event == NULL ? BERM_CU_INVALID_HANDLE : event_refuse_captured(event);
        if (result == BERM_CU_SUCCESS) {
            if (event->mark != NULL)
                sim_wait_mark(event->mark);
            sim_pools_release();
            result = sim_context_observe(event->context);
        }
    }
    return sim_leave(result);
}

static int stream_wait_event(berm_cu_stream_t stream_handle, berm_cu_event_t event_handle,
                             unsigned flags) {
    int result;
    sim_event_t *event = event_get(event_handle);
    sim_charge(&sim.config.costs.stream_wait, 0, 0);
    if (event == NULL)
        return BERM_CU_INVALID_HANDLE;
    if ((flags & ~(unsigned)BERM_CU_EVENT_WAIT_EXTERNAL) != 0)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(stream_handle, &result);
    if (stream == NULL)
        return result;
    if (stream->capture != NULL && (flags & BERM_CU_EVENT_WAIT_EXTERNAL) != 0)
        return sim_capture_state(stream);
    if (stream->capture != NULL || event->capture_id != 0)
        return sim_capture_wait(stream, event);
    result = sim_capture_check_legacy(stream);
    if (result != BERM_CU_SUCCESS || event->mark == NULL)
        return result;
    sim_issue_t issue = {.wait = event->mark};
    return sim_queue_issue(stream, &issue);
}

berm_cu_result_t cuStreamWaitEvent(berm_cu_stream_t stream, berm_cu_event_t event, unsigned flags) {
    int result = sim_enter(SIM_FN_cuStreamWaitEvent);
    if (result == BERM_CU_SUCCESS)
        result = stream_wait_event(stream, event, flags);
    return sim_leave(result);
}

static int event_elapsed(float *ms, berm_cu_event_t start_handle, berm_cu_event_t end_handle) {
    const sim_event_t *start = event_get(start_handle);
    const sim_event_t *end = event_get(end_handle);
    sim_charge(&sim.config.costs.event_query, 0, 0);
    if (ms == NULL)
        return BERM_CU_INVALID_VALUE;
    if (start == NULL || end == NULL || start->mark == NULL || end->mark == NULL ||
        ((start->flags | end->flags) & BERM_CU_EVENT_DISABLE_TIMING) != 0)
        return BERM_CU_INVALID_HANDLE;
    if (start->capture_id != 0 || end->capture_id != 0)
        return BERM_CU_CAPTURED_EVENT;
    if (!sim_mark_is_done(start->mark) || !sim_mark_is_done(end->mark))
        return BERM_CU_NOT_READY;
    *ms = (float)(((double)end->mark->at_ns - (double)start->mark->at_ns) / 1e6);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuEventElapsedTime(float *ms, berm_cu_event_t start, berm_cu_event_t end) {
    int result = sim_enter(SIM_FN_cuEventElapsedTime);
    if (result == BERM_CU_SUCCESS)
        result = event_elapsed(ms, start, end);
    return sim_leave(result);
}

berm_cu_result_t cuEventElapsedTime_v2(float *ms, berm_cu_event_t start, berm_cu_event_t end) {
    int result = sim_enter(SIM_FN_cuEventElapsedTime_v2);
    if (result == BERM_CU_SUCCESS)
        result = event_elapsed(ms, start, end);
    return sim_leave(result);
}
