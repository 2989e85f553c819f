// SPDX-License-Identifier: Apache-2.0
// Stream capture: what may be called while one is in progress, how it spreads to other streams by
// events, and how it is broken. Captured work is not run and touches nothing; a graph is an object
// with a handle and no nodes.
//
// A capture belongs to the thread that began it. In the thread's mode GLOBAL, a capture of its own
// that is not RELAXED, or another thread's that is GLOBAL, forbids unsafe calls; in THREAD_LOCAL
// only its own; in RELAXED none. A refused call invalidates the captures that forbade it.
// Locks: the state's.
#include <stdlib.h>

#include "sim.h"

static sim_capture_t *capture_of(berm_list_t *node) {
    return BERM_CONTAINER_OF(node, sim_capture_t, node);
}

int sim_capture_refuse(sim_capture_t *capture, int result) {
    if (capture->status == BERM_CU_CAPTURE_STATUS_INVALIDATED)
        return BERM_CU_STREAM_CAPTURE_INVALIDATED;
    capture->status = BERM_CU_CAPTURE_STATUS_INVALIDATED;
    return result;
}

int sim_capture_state(const sim_stream_t *stream) {
    return stream->capture->status == BERM_CU_CAPTURE_STATUS_INVALIDATED
               ? BERM_CU_STREAM_CAPTURE_INVALIDATED
               : BERM_CU_SUCCESS;
}

sim_capture_t *sim_capture_find(uint64_t id) {
    for (berm_list_t *at = sim.captures.next; at != &sim.captures; at = at->next) {
        if (capture_of(at)->id == id)
            return capture_of(at);
    }
    return NULL;
}

static bool capture_forbids(const sim_capture_t *capture) {
    bool is_mine = capture->thread == sim_thread.number;
    if (is_mine)
        return capture->mode != BERM_CU_CAPTURE_RELAXED;
    return capture->mode == BERM_CU_CAPTURE_GLOBAL &&
           sim_thread.capture_mode == BERM_CU_CAPTURE_GLOBAL;
}

int sim_capture_check_unsafe(void) {
    int result = BERM_CU_SUCCESS;
    if (sim_thread.capture_mode == BERM_CU_CAPTURE_RELAXED)
        return result;
    for (berm_list_t *at = sim.captures.next; at != &sim.captures; at = at->next) {
        if (capture_forbids(capture_of(at))) {
            (void)sim_capture_refuse(capture_of(at), 0);
            result = BERM_CU_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

// The capturing blocking stream that use of this legacy stream would wait for; NULL: none.
static sim_stream_t *capture_behind_legacy(const sim_stream_t *legacy) {
    const berm_list_t *streams = &legacy->context->streams;
    for (berm_list_t *at = streams->next; at != streams; at = at->next) {
        sim_stream_t *stream = BERM_CONTAINER_OF(at, sim_stream_t, node);
        if (stream->capture != NULL && (stream->flags & BERM_CU_STREAM_NON_BLOCKING) == 0)
            return stream;
    }
    return NULL;
}

int sim_capture_check_legacy(const sim_stream_t *stream) {
    if (!stream->is_legacy || berm__list_is_empty(&sim.captures))
        return BERM_CU_SUCCESS;
    sim_stream_t *capturing = capture_behind_legacy(stream);
    if (capturing == NULL)
        return BERM_CU_SUCCESS;
    (void)sim_capture_refuse(capturing->capture, 0);
    return BERM_CU_STREAM_CAPTURE_IMPLICIT;
}

bool sim_capture_refuse_context(const sim_context_t *context) {
    bool is_any = false;
    for (berm_list_t *at = context->streams.next; at != &context->streams; at = at->next) {
        const sim_stream_t *stream = BERM_CONTAINER_OF(at, sim_stream_t, node);
        if (stream->capture == NULL)
            continue;
        (void)sim_capture_refuse(stream->capture, 0);
        is_any = true;
    }
    return is_any;
}

// --- membership ----------------------------------------------------------------------------------

// Calls `visit` on each stream of the capture.
static void capture_each(const sim_capture_t *capture,
                         void (*visit)(sim_stream_t *stream, void *argument), void *argument) {
    for (berm_list_t *at = sim.context_list.next; at != &sim.context_list; at = at->next) {
        sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
        for (berm_list_t *s = context->streams.next; s != &context->streams; s = s->next) {
            sim_stream_t *stream = BERM_CONTAINER_OF(s, sim_stream_t, node);
            if (stream->capture == capture)
                visit(stream, argument);
        }
    }
}

static void stream_leave(sim_stream_t *stream, void *unused) {
    (void)unused;
    stream->capture = NULL;
    stream->merged_into = NULL;
    stream->capture_ops = 0;
}

static void stream_forget(sim_stream_t *stream, void *gone) {
    if (stream->merged_into == gone)
        stream->merged_into = NULL;
}

// Whether the last work here is waited for, in some steps, by the origin.
static void stream_check_joined(sim_stream_t *stream, void *is_joined) {
    const sim_stream_t *at = stream;
    for (uint32_t steps = 0; at->merged_into != NULL && steps <= sim.slot_count; steps++)
        at = at->merged_into;
    if (at != stream->capture->origin)
        *(bool *)is_joined = false;
}

static void graph_destroy(uint64_t handle) {
    free(sim_table_get(&sim.graphs, handle));
    sim_table_remove(&sim.graphs, handle);
}

void sim_capture_destroy(sim_capture_t *capture) {
    capture_each(capture, stream_leave, NULL);
    graph_destroy(capture->graph);
    berm__list_remove(&capture->node);
    free(capture);
}

void sim_capture_end_stream(sim_stream_t *stream) {
    sim_capture_t *capture = stream->capture;
    (void)sim_capture_refuse(capture, 0);
    capture_each(capture, stream_forget, stream);
    if (capture->origin == stream)
        sim_capture_destroy(capture);
    else
        stream_leave(stream, NULL);
}

int sim_capture_record(sim_stream_t *stream, sim_event_t *event) {
    int result = sim_capture_state(stream);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (event->mark != NULL)
        sim_mark_drop(event->mark);
    event->mark = NULL;
    event->capture_id = stream->capture->id;
    event->capture_ops = stream->capture_ops;
    event->capture_stream_id = stream->id;
    return BERM_CU_SUCCESS;
}

typedef struct merge {
    const sim_event_t *event;
    sim_stream_t *into;
} merge_t;

static void stream_merge(sim_stream_t *stream, void *argument) {
    const merge_t *merge = argument;
    if (stream->id == merge->event->capture_stream_id && stream != merge->into &&
        stream->capture_ops == merge->event->capture_ops)
        stream->merged_into = merge->into;
}

// A wait that has a capturing stream or a captured event on one side at least.
int sim_capture_wait(sim_stream_t *stream, sim_event_t *event) {
    sim_capture_t *from = sim_capture_find(event->capture_id);
    if (stream->capture != NULL) {
        int result = sim_capture_state(stream);
        if (result != BERM_CU_SUCCESS)
            return result;
        if (event->capture_id == 0 && event->mark == NULL)
            return BERM_CU_SUCCESS; // never recorded: nothing to wait for
        if (from == NULL)
            return sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_ISOLATION);
        if (from != stream->capture) {
            (void)sim_capture_refuse(from, 0);
            return sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_MERGE);
        }
    } else {
        if (from == NULL)
            return BERM_CU_STREAM_CAPTURE_ISOLATION;
        if (from->status == BERM_CU_CAPTURE_STATUS_INVALIDATED)
            return BERM_CU_STREAM_CAPTURE_INVALIDATED;
        if (stream->is_legacy)
            return sim_capture_refuse(from, BERM_CU_STREAM_CAPTURE_IMPLICIT);
        stream->capture = from; // the capture spreads to this stream
        stream->capture_ops = 0;
    }
    stream->capture_ops++;
    stream->merged_into = NULL;
    merge_t merge = {event, stream};
    capture_each(from, stream_merge, &merge);
    return BERM_CU_SUCCESS;
}

// --- calls ---------------------------------------------------------------------------------------

static int capture_begin(berm_cu_stream_t handle, int mode) {
    int result;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (mode < BERM_CU_CAPTURE_GLOBAL || mode > BERM_CU_CAPTURE_RELAXED)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL)
        return result;
    if (stream->is_legacy)
        return BERM_CU_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL)
        return BERM_CU_ILLEGAL_STATE;
    sim_capture_t *capture = calloc(1, sizeof(*capture));
    sim_graph_t *graph = calloc(1, sizeof(*graph));
    if (graph != NULL)
        graph->handle = sim_table_add(&sim.graphs, graph);
    if (capture == NULL || graph == NULL || graph->handle == 0 || !sim_thread_number()) {
        if (graph != NULL && graph->handle != 0)
            sim_table_remove(&sim.graphs, graph->handle);
        free(graph);
        free(capture);
        return BERM_CU_OUT_OF_MEMORY;
    }
    *capture = (sim_capture_t){.id = sim_id_next(),
                               .mode = mode,
                               .status = BERM_CU_CAPTURE_STATUS_ACTIVE,
                               .thread = sim_thread.number,
                               .origin = stream,
                               .graph = graph->handle};
    berm__list_push_back(&sim.captures, &capture->node);
    stream->capture = capture;
    stream->capture_ops = 0;
    stream->merged_into = NULL;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuStreamBeginCapture_v2(berm_cu_stream_t stream, int mode) {
    int result = sim_enter(SIM_FN_cuStreamBeginCapture_v2);
    if (result == BERM_CU_SUCCESS)
        result = capture_begin(stream, mode);
    return sim_leave(result);
}

static int capture_end(berm_cu_stream_t handle, berm_cu_graph_t *graph) {
    int result;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (graph == NULL)
        return BERM_CU_INVALID_VALUE;
    *graph = NULL;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL)
        return result;
    sim_capture_t *capture = stream->capture;
    if (capture == NULL)
        return BERM_CU_ILLEGAL_STATE;
    if (capture->origin != stream)
        return sim_capture_refuse(capture, BERM_CU_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != BERM_CU_CAPTURE_RELAXED && capture->thread != sim_thread.number)
        return sim_capture_refuse(capture, BERM_CU_STREAM_CAPTURE_WRONG_THREAD);
    result = sim_capture_state(stream);
    bool is_joined = true;
    capture_each(capture, stream_check_joined, &is_joined);
    if (result == BERM_CU_SUCCESS && !is_joined)
        result = BERM_CU_STREAM_CAPTURE_UNJOINED;
    if (result == BERM_CU_SUCCESS) {
        *graph = (berm_cu_graph_t)(uintptr_t)capture->graph;
        capture->graph = 0; // the caller's now
    }
    sim_capture_destroy(capture);
    return result;
}

berm_cu_result_t cuStreamEndCapture(berm_cu_stream_t stream, berm_cu_graph_t *graph) {
    int result = sim_enter(SIM_FN_cuStreamEndCapture);
    if (result == BERM_CU_SUCCESS)
        result = capture_end(stream, graph);
    return sim_leave(result);
}

// Asking never breaks a capture. NULL, with *result set, unless *status is ACTIVE.
static const sim_capture_t *capture_ask(berm_cu_stream_t handle, int *status, int *result) {
    sim_charge(&sim.config.costs.other, 0, 0);
    *result = BERM_CU_INVALID_VALUE;
    if (status == NULL)
        return NULL;
    const sim_stream_t *stream = sim_stream_get(handle, result);
    if (stream == NULL)
        return NULL;
    if (stream->is_legacy && capture_behind_legacy(stream) != NULL) {
        *result = BERM_CU_STREAM_CAPTURE_IMPLICIT;
        return NULL;
    }
    *status = stream->capture == NULL ? BERM_CU_CAPTURE_STATUS_NONE : stream->capture->status;
    return *status == BERM_CU_CAPTURE_STATUS_ACTIVE ? stream->capture : NULL;
}

berm_cu_result_t cuStreamIsCapturing(berm_cu_stream_t stream, int *status) {
    int result = sim_enter(SIM_FN_cuStreamIsCapturing);
    if (result == BERM_CU_SUCCESS)
        (void)capture_ask(stream, status, &result);
    return sim_leave(result);
}

// The out parameters after `status` are optional, and written for an active capture only.
static int capture_info(berm_cu_stream_t stream, int *status, uint64_t *id, berm_cu_graph_t *graph,
                        size_t *dependency_count) {
    int result;
    const sim_capture_t *capture = capture_ask(stream, status, &result);
    if (capture == NULL)
        return result;
    if (id != NULL)
        *id = capture->id;
    if (graph != NULL)
        *graph = (berm_cu_graph_t)(uintptr_t)capture->graph;
    if (dependency_count != NULL)
        *dependency_count = 0;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuStreamGetCaptureInfo_v2(berm_cu_stream_t stream, int *status, uint64_t *id,
                                           berm_cu_graph_t *graph,
                                           const berm_cu_graph_node_t **dependencies,
                                           size_t *dependency_count) {
    int result = sim_enter(SIM_FN_cuStreamGetCaptureInfo_v2);
    if (result == BERM_CU_SUCCESS) {
        if (dependencies != NULL)
            *dependencies = NULL;
        result = capture_info(stream, status, id, graph, dependency_count);
    }
    return sim_leave(result);
}

berm_cu_result_t cuStreamGetCaptureInfo_v3(berm_cu_stream_t stream, int *status, uint64_t *id,
                                           berm_cu_graph_t *graph,
                                           const berm_cu_graph_node_t **dependencies,
                                           const void **edges, size_t *dependency_count) {
    int result = sim_enter(SIM_FN_cuStreamGetCaptureInfo_v3);
    if (result == BERM_CU_SUCCESS) {
        if (dependencies != NULL)
            *dependencies = NULL;
        if (edges != NULL)
            *edges = NULL;
        result = capture_info(stream, status, id, graph, dependency_count);
    }
    return sim_leave(result);
}

berm_cu_result_t cuThreadExchangeStreamCaptureMode(int *mode) {
    int result = sim_enter(SIM_FN_cuThreadExchangeStreamCaptureMode);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        if (mode == NULL || *mode < BERM_CU_CAPTURE_GLOBAL || *mode > BERM_CU_CAPTURE_RELAXED) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            int before = sim_thread.capture_mode;
            sim_thread.capture_mode = *mode;
            *mode = before;
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuGraphDestroy(berm_cu_graph_t graph) {
    int result = sim_enter(SIM_FN_cuGraphDestroy);
    if (result == BERM_CU_SUCCESS) {
        uint64_t handle = (uint64_t)(uintptr_t)graph;
        if (sim_table_get(&sim.graphs, handle) == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            graph_destroy(handle);
    }
    return sim_leave(result);
}
