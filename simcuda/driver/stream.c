// SPDX-License-Identifier: Apache-2.0
// Stream objects and the calls on them; how work runs in them is queue.c's, capture capture.c's.
//
// A destroyed stream stays in its context's list until the host has seen its work done, as the
// driver keeps it until the work has completed. Locks: the state's, by sim_enter.
#include <stdlib.h>

#include "pool.h"

static berm_cu_stream_t stream_handle(const sim_stream_t *stream) {
    return (berm_cu_stream_t)(uintptr_t)stream->handle;
}

sim_stream_t *sim_stream_create(sim_context_t *context, unsigned flags, int priority) {
    sim_streams_reap(context);
    sim_stream_t *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return NULL;
    stream->id = sim_id_next();
    if (!sim_slot_take(stream->id, &stream->slot)) {
        free(stream);
        return NULL;
    }
    if (sim_clock_create(&stream->clock))
        stream->handle = sim_table_add(&sim.streams, stream);
    if (stream->handle == 0) {
        sim_slot_give(stream->slot, sim.slots[stream->slot].last);
        free(stream->clock);
        free(stream);
        return NULL;
    }
    stream->clock[stream->slot] = sim.slots[stream->slot].last;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    berm__list_init(&stream->pending);
    berm__list_push_back(&context->streams, &stream->node);
    return stream;
}

void sim_stream_destroy(sim_stream_t *stream) {
    if (stream->capture != NULL)
        sim_capture_end_stream(stream);
    sim_table_remove(&sim.streams, stream->handle);
    stream->handle = 0;
    stream->is_destroyed = true;
}

void sim_streams_reap(sim_context_t *context) {
    for (berm_list_t *at = context->streams.next, *next; at != &context->streams; at = next) {
        sim_stream_t *stream = BERM_CONTAINER_OF(at, sim_stream_t, node);
        next = at->next;
        if (!stream->is_destroyed || !berm__list_is_empty(&stream->pending) ||
            sim.host_clock[stream->slot] < stream->clock[stream->slot])
            continue;
        sim_slot_give(stream->slot, stream->clock[stream->slot]);
        berm__list_remove(&stream->node);
        free(stream->clock);
        free(stream);
    }
}

// A stream made for the driver's own use, or named by a special handle: not in the table.
static sim_stream_t *stream_create_unnamed(sim_context_t *context, unsigned flags) {
    sim_stream_t *stream = sim_stream_create(context, flags, 0);
    if (stream != NULL) {
        sim_table_remove(&sim.streams, stream->handle);
        stream->handle = 0;
    }
    return stream;
}

static sim_stream_t *stream_per_thread(sim_context_t *context) {
    for (berm_list_t *at = context->streams.next; at != &context->streams; at = at->next) {
        sim_stream_t *stream = BERM_CONTAINER_OF(at, sim_stream_t, node);
        if (stream->thread != 0 && stream->thread == sim_thread.number && !stream->is_destroyed)
            return stream;
    }
    sim_stream_t *stream = sim_thread_number() ? stream_create_unnamed(context, 0) : NULL;
    if (stream != NULL)
        stream->thread = sim_thread.number;
    return stream;
}

void sim_streams_thread_exit(uint64_t thread) {
    for (berm_list_t *at = sim.context_list.next; at != &sim.context_list; at = at->next) {
        sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
        for (berm_list_t *s = context->streams.next; s != &context->streams; s = s->next) {
            sim_stream_t *stream = BERM_CONTAINER_OF(s, sim_stream_t, node);
            if (stream->thread == thread)
                sim_stream_destroy(stream);
        }
    }
}

sim_stream_t *sim_stream_get(berm_cu_stream_t handle, int *result) {
    if ((uintptr_t)handle > (uintptr_t)BERM_CU_STREAM_PER_THREAD) {
        sim_stream_t *stream = sim_table_get(&sim.streams, (uint64_t)(uintptr_t)handle);
        *result = stream == NULL ? BERM_CU_INVALID_HANDLE : BERM_CU_SUCCESS;
        return stream;
    }
    sim_context_t *context = sim_context_current();
    if (context == NULL) {
        *result = BERM_CU_INVALID_CONTEXT;
        return NULL;
    }
    sim_stream_t *stream =
        handle == BERM_CU_STREAM_PER_THREAD ? stream_per_thread(context) : context->legacy;
    *result = stream == NULL ? BERM_CU_OUT_OF_MEMORY : BERM_CU_SUCCESS;
    return stream;
}

// --- create, destroy -----------------------------------------------------------------------------

static int stream_create(sim_fn_t fn, berm_cu_stream_t *out, unsigned flags, int priority) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (out == NULL || (flags & ~(unsigned)BERM_CU_STREAM_NON_BLOCKING) != 0)
        return BERM_CU_INVALID_VALUE;
    sim_charge(&sim.config.costs.other, 0, 0);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    sim_stream_t *stream = sim_stream_create(sim_context_current(), flags, priority);
    if (stream == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    *out = stream_handle(stream);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuStreamCreate(berm_cu_stream_t *stream, unsigned flags) {
    return sim_leave(stream_create(SIM_FN_cuStreamCreate, stream, flags, 0));
}

berm_cu_result_t cuStreamCreateWithPriority(berm_cu_stream_t *stream, unsigned flags,
                                            int priority) {
    return sim_leave(stream_create(SIM_FN_cuStreamCreateWithPriority, stream, flags, priority));
}

berm_cu_result_t cuStreamDestroy_v2(berm_cu_stream_t handle) {
    int result = sim_enter(SIM_FN_cuStreamDestroy_v2);
    if (result == BERM_CU_SUCCESS) {
        sim_stream_t *stream = sim_table_get(&sim.streams, (uint64_t)(uintptr_t)handle);
        sim_charge(&sim.config.costs.other, 0, 0);
        if (stream == NULL)
            result = BERM_CU_INVALID_HANDLE;
        else
            sim_stream_destroy(stream);
    }
    return sim_leave(result);
}

// --- wait and ask --------------------------------------------------------------------------------

berm_cu_result_t cuStreamSynchronize(berm_cu_stream_t handle) {
    int result = sim_enter(SIM_FN_cuStreamSynchronize);
    sim_stream_t *stream = NULL;
    if (result == BERM_CU_SUCCESS)
        stream = sim_stream_get(handle, &result);
    if (stream != NULL) {
        sim_charge(&sim.config.costs.synchronize, 0, 0);
        if (stream->capture != NULL) {
            result = sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
        } else {
            sim_wait_stream(stream);
            sim_pools_release();
            result = sim_context_observe(stream->context);
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuStreamQuery(berm_cu_stream_t handle) {
    int result = sim_enter(SIM_FN_cuStreamQuery);
    sim_stream_t *stream = NULL;
    if (result == BERM_CU_SUCCESS)
        stream = sim_stream_get(handle, &result);
    if (stream != NULL) {
        sim_charge(&sim.config.costs.event_query, 0, 0);
        if (stream->capture != NULL) {
            result = sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
        } else if ((result = sim_context_observe(stream->context)) == BERM_CU_SUCCESS) {
            if (sim_stream_is_done(stream))
                sim_wait_stream(stream); // takes no time; what it saw is ordered from here on
            else
                result = BERM_CU_NOT_READY;
        }
    }
    return sim_leave(result);
}

// --- properties ----------------------------------------------------------------------------------

// Enters and finds the stream; NULL with *result set.
static sim_stream_t *stream_enter(sim_fn_t fn, berm_cu_stream_t handle, const void *out,
                                  int *result) {
    *result = sim_enter(fn);
    if (*result != BERM_CU_SUCCESS)
        return NULL;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (out == NULL) {
        *result = BERM_CU_INVALID_VALUE;
        return NULL;
    }
    return sim_stream_get(handle, result);
}

// Refused to a capturing stream: an allocator must know its streams before a capture begins.
berm_cu_result_t cuStreamGetId(berm_cu_stream_t handle, unsigned long long *id) {
    int result;
    const sim_stream_t *stream = stream_enter(SIM_FN_cuStreamGetId, handle, id, &result);
    if (stream != NULL) {
        if (stream->capture != NULL)
            result = sim_capture_refuse(stream->capture, BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
        else
            *id = stream->id;
    }
    return sim_leave(result);
}

berm_cu_result_t cuStreamGetCtx(berm_cu_stream_t handle, berm_cu_context_t *context) {
    int result;
    const sim_stream_t *stream = stream_enter(SIM_FN_cuStreamGetCtx, handle, context, &result);
    if (stream != NULL)
        *context = (berm_cu_context_t)(uintptr_t)stream->context->handle;
    return sim_leave(result);
}

berm_cu_result_t cuStreamGetFlags(berm_cu_stream_t handle, unsigned *flags) {
    int result;
    const sim_stream_t *stream = stream_enter(SIM_FN_cuStreamGetFlags, handle, flags, &result);
    if (stream != NULL)
        *flags = stream->flags;
    return sim_leave(result);
}

berm_cu_result_t cuStreamGetPriority(berm_cu_stream_t handle, int *priority) {
    int result;
    const sim_stream_t *stream =
        stream_enter(SIM_FN_cuStreamGetPriority, handle, priority, &result);
    if (stream != NULL)
        *priority = stream->priority;
    return sim_leave(result);
}
