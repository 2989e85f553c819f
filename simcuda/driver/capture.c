// SPDX-License-Identifier: Apache-2.0
// Stream capture: what may be called while one is in progress, how it spreads to other streams by
// events, and how it is broken. Captured work is not run and touches nothing: it becomes a step of
// a graph (graph.c), after the steps its stream's last work or wait stands for.
//
// A capture belongs to the thread that began it. In the thread's mode GLOBAL, a capture of its own
// that is not RELAXED, or another thread's that is GLOBAL, forbids unsafe calls; in THREAD_LOCAL
// only its own; in RELAXED none. A refused call invalidates the captures that forbade it.
// Locks: the state's.
#include <stdlib.h>

#include "graph.h"

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
    sim_deps_free(&stream->capture_deps);
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

void sim_capture_destroy(sim_capture_t *capture) {
    capture_each(capture, stream_leave, NULL);
    if (capture->graph != NULL)
        sim_graph_destroy(capture->graph);
    berm__list_remove(&capture->node);
    free(capture->told);
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

int sim_capture_add(sim_stream_t *stream, const sim_issue_t *issue,
                    const simcuda_access_t *accesses, size_t count) {
    int result = sim_capture_state(stream);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (issue->gate != NULL) // a gate opens once: it cannot be launched again
        return sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
    sim_graph_t *graph = stream->capture->graph;
    uint32_t number = graph->plan->count;
    sim_deps_t after = {0};
    if (!sim_deps_add(&after, number) || !sim_graph_add(graph, stream->context->handle, issue,
                                                        accesses, count, &stream->capture_deps)) {
        sim_deps_free(&after);
        return BERM_CU_OUT_OF_MEMORY;
    }
    sim_deps_free(&stream->capture_deps);
    stream->capture_deps = after;
    stream->capture_ops++;
    stream->merged_into = NULL;
    return BERM_CU_SUCCESS;
}

int sim_capture_record(sim_stream_t *stream, sim_event_t *event) {
    int result = sim_capture_state(stream);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (!sim_deps_set(&event->capture_deps, &stream->capture_deps))
        return BERM_CU_OUT_OF_MEMORY;
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
    if (!sim_deps_add_all(&stream->capture_deps, &event->capture_deps))
        return sim_capture_refuse(from, BERM_CU_OUT_OF_MEMORY);
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
    sim_graph_t *graph = capture != NULL && sim_thread_number() ? sim_graph_create() : NULL;
    if (graph == NULL) {
        free(capture);
        return BERM_CU_OUT_OF_MEMORY;
    }
    graph->is_capturing = true;
    *capture = (sim_capture_t){.id = sim_id_next(),
                               .mode = mode,
                               .status = BERM_CU_CAPTURE_STATUS_ACTIVE,
                               .thread = sim_thread.number,
                               .origin = stream,
                               .graph = graph};
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
        *graph = (berm_cu_graph_t)(uintptr_t)capture->graph->handle;
        capture->graph->is_capturing = false;
        capture->graph = NULL; // the caller's now
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
static sim_stream_t *capture_ask(berm_cu_stream_t handle, int *status, int *result) {
    sim_charge(&sim.config.costs.other, 0, 0);
    *result = BERM_CU_INVALID_VALUE;
    if (status == NULL)
        return NULL;
    sim_stream_t *stream = sim_stream_get(handle, result);
    if (stream == NULL)
        return NULL;
    if (stream->is_legacy && capture_behind_legacy(stream) != NULL) {
        *result = BERM_CU_STREAM_CAPTURE_IMPLICIT;
        return NULL;
    }
    *status = stream->capture == NULL ? BERM_CU_CAPTURE_STATUS_NONE : stream->capture->status;
    return *status == BERM_CU_CAPTURE_STATUS_ACTIVE ? stream : NULL;
}

berm_cu_result_t cuStreamIsCapturing(berm_cu_stream_t stream, int *status) {
    int result = sim_enter(SIM_FN_cuStreamIsCapturing);
    if (result == BERM_CU_SUCCESS)
        (void)capture_ask(stream, status, &result);
    return sim_leave(result);
}

// The dependencies told last stay in place until the capture is asked again, or ends.
static bool capture_tell(const sim_stream_t *stream, const berm_cu_graph_node_t **dependencies) {
    sim_capture_t *capture = stream->capture;
    uint32_t count = stream->capture_deps.count;
    berm_cu_graph_node_t *told = realloc(capture->told, (count + 1) * sizeof(*told));
    if (told == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        told[i] = sim_graph_node(capture->graph, stream->capture_deps.items[i]);
    capture->told = told;
    *dependencies = count > 0 ? told : NULL;
    return true;
}

// The out parameters after `status` are optional, and written for an active capture only.
static int capture_info(berm_cu_stream_t handle, int *status, uint64_t *id, berm_cu_graph_t *graph,
                        const berm_cu_graph_node_t **dependencies, size_t *dependency_count) {
    int result;
    if (dependencies != NULL)
        *dependencies = NULL;
    const sim_stream_t *stream = capture_ask(handle, status, &result);
    if (stream == NULL)
        return result;
    if (dependencies != NULL && !capture_tell(stream, dependencies))
        return BERM_CU_OUT_OF_MEMORY;
    if (id != NULL)
        *id = stream->capture->id;
    if (graph != NULL)
        *graph = (berm_cu_graph_t)(uintptr_t)stream->capture->graph->handle;
    if (dependency_count != NULL)
        *dependency_count = stream->capture_deps.count;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuStreamGetCaptureInfo_v2(berm_cu_stream_t stream, int *status, uint64_t *id,
                                           berm_cu_graph_t *graph,
                                           const berm_cu_graph_node_t **dependencies,
                                           size_t *dependency_count) {
    int result = sim_enter(SIM_FN_cuStreamGetCaptureInfo_v2);
    if (result == BERM_CU_SUCCESS)
        result = capture_info(stream, status, id, graph, dependencies, dependency_count);
    return sim_leave(result);
}

berm_cu_result_t cuStreamGetCaptureInfo_v3(berm_cu_stream_t stream, int *status, uint64_t *id,
                                           berm_cu_graph_t *graph,
                                           const berm_cu_graph_node_t **dependencies,
                                           const void **edges, size_t *dependency_count) {
    int result = sim_enter(SIM_FN_cuStreamGetCaptureInfo_v3);
    if (result == BERM_CU_SUCCESS) {
        if (edges != NULL)
            *edges = NULL; // all edges are whole dependencies
        result = capture_info(stream, status, id, graph, dependencies, dependency_count);
    }
    return sim_leave(result);
}

static int capture_update(berm_cu_stream_t handle, const berm_cu_graph_node_t *nodes, size_t count,
                          unsigned flags) {
    int result;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (flags > BERM_CU_CAPTURE_DEPENDENCIES_SET || (nodes == NULL && count > 0))
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL)
        return result;
    if (stream->capture == NULL)
        return BERM_CU_ILLEGAL_STATE;
    result = sim_capture_state(stream);
    sim_deps_t deps = {0};
    if (flags == BERM_CU_CAPTURE_DEPENDENCIES_ADD && !sim_deps_set(&deps, &stream->capture_deps))
        result = BERM_CU_OUT_OF_MEMORY;
    for (size_t i = 0; result == BERM_CU_SUCCESS && i < count; i++) {
        uint32_t step = sim_graph_step(stream->capture->graph, nodes[i]);
        if (step == UINT32_MAX)
            result = BERM_CU_INVALID_VALUE;
        else if (!sim_deps_add(&deps, step))
            result = BERM_CU_OUT_OF_MEMORY;
    }
    if (result != BERM_CU_SUCCESS) {
        sim_deps_free(&deps);
        return result;
    }
    sim_deps_free(&stream->capture_deps);
    stream->capture_deps = deps;
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuStreamUpdateCaptureDependencies(berm_cu_stream_t stream,
                                                   berm_cu_graph_node_t *nodes, size_t count,
                                                   unsigned flags) {
    int result = sim_enter(SIM_FN_cuStreamUpdateCaptureDependencies);
    if (result == BERM_CU_SUCCESS)
        result = capture_update(stream, nodes, count, flags);
    return sim_leave(result);
}

// Edges with data are for dependent launch within a graph, which is not modelled.
berm_cu_result_t cuStreamUpdateCaptureDependencies_v2(berm_cu_stream_t stream,
                                                      berm_cu_graph_node_t *nodes,
                                                      const void *edges, size_t count,
                                                      unsigned flags) {
    int result = sim_enter(SIM_FN_cuStreamUpdateCaptureDependencies_v2);
    if (result == BERM_CU_SUCCESS)
        result =
            edges != NULL ? BERM_CU_NOT_SUPPORTED : capture_update(stream, nodes, count, flags);
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
