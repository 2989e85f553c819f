// SPDX-License-Identifier: Apache-2.0
// Contexts: the primary one of each device and created ones, the stack of each thread, and errors
// that stick to a context after an illegal access.
//
// A fault has a time. The first call that waits or asks (synchronise, query) once the host's clock
// has reached it returns it; from then on every call on the context does, until the context is
// destroyed or reset. Destroying a context frees what cuMemAlloc gave it and its streams and
// events; memory of the VMM calls belongs to the process and stays.
// Locks: the state's, by sim_enter.
#include <stdlib.h>

#include "gpu.h"
#include "graph.h"
#include "ipc.h"
#include "module.h"
#include "pool.h"
#include "managed.h"

// --- the current one -----------------------------------------------------------------------------

// The thread's stack; emptied by a reset of the device.
static sim_thread_t *context_stack(void) {
    if (sim_thread.generation != sim.generation) {
        sim_thread.generation = sim.generation;
        sim_thread.depth = 0;
        sim_thread.capture_mode = BERM_CU_CAPTURE_GLOBAL;
    }
    return &sim_thread;
}

sim_context_t *sim_context_current(void) {
    const sim_thread_t *thread = context_stack();
    if (thread->depth == 0)
        return NULL;
    return sim_table_get(&sim.contexts, thread->current[thread->depth - 1]);
}

static sim_context_t *context_get(berm_cu_context_t handle) {
    return sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)handle);
}

static berm_cu_context_t context_handle(const sim_context_t *context) {
    return (berm_cu_context_t)(uintptr_t)(context != NULL ? context->handle : 0);
}

// --- life ----------------------------------------------------------------------------------------

// The first context of a device takes what a context takes there; the last gives it back. False:
// it does not fit.
static bool context_memory_take(int device) {
    sim_device_t *owner = &sim.devices[device];
    uint64_t bytes = sim.config.gpu.context_bytes;
    if (owner->contexts == 0) {
        if (bytes > sim_device_free_bytes(owner))
            return false;
        owner->context_bytes = bytes;
    }
    owner->contexts++;
    return true;
}

static void context_memory_give(int device) {
    sim_device_t *owner = &sim.devices[device];
    if (--owner->contexts == 0)
        owner->context_bytes = 0;
}

sim_context_t *sim_context_create(int device, bool is_primary, unsigned flags) {
    if (!context_memory_take(device))
        return NULL;
    sim_context_t *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        context_memory_give(device);
        return NULL;
    }
    context->device = device;
    context->is_primary = is_primary;
    context->flags = flags;
    berm__list_init(&context->streams);
    context->handle = sim_table_add(&sim.contexts, context);
    context->legacy = context->handle != 0 ? sim_stream_create(context, 0, 0) : NULL;
    if (context->legacy == NULL) {
        sim_table_remove(&sim.contexts, context->handle);
        context_memory_give(device);
        free(context);
        return NULL;
    }
    context->legacy->is_legacy = true;
    sim_table_remove(&sim.streams, context->legacy->handle); // the program names it otherwise
    context->legacy->handle = 0;
    berm__list_push_back(&sim.context_list, &context->node);
    return context;
}

static void context_destroy_events(const sim_context_t *context) {
    uint32_t index = 0;
    for (sim_event_t *event; (event = sim_table_each(&sim.events, &index)) != NULL;) {
        if (event->context != context)
            continue;
        sim_table_remove(&sim.events, event->handle);
        sim_event_free(event);
    }
}

// Waits for the device, as the driver does. Host functions still queued are forgotten only once
// their time has come: sim_leave runs them.
void sim_context_destroy(sim_context_t *context) {
    sim_wait_context(context);
    sim_effects_run();
    sim_execs_forget(context);
    sim_modules_forget(context);
    sim_malloc_free_all(context);
    sim_managed_free_all(context);
    context_destroy_events(context);
    while (!berm__list_is_empty(&context->streams)) {
        sim_stream_t *stream = BERM_CONTAINER_OF(context->streams.next, sim_stream_t, node);
        sim_stream_destroy(stream);
        sim_streams_reap(context);
    }
    if (sim.devices[context->device].primary == context)
        sim.devices[context->device].primary = NULL;
    sim_table_remove(&sim.contexts, context->handle);
    berm__list_remove(&context->node);
    context_memory_give(context->device);
    free(context);
}

// --- faults --------------------------------------------------------------------------------------

void sim_context_fault(sim_context_t *context, uint64_t at_ns) {
    if (context->has_fault && context->fault_ns <= at_ns)
        return;
    context->has_fault = true;
    context->fault_ns = at_ns;
}

void sim_device_fault(int device) {
    for (berm_list_t *at = sim.context_list.next; at != &sim.context_list; at = at->next) {
        sim_context_t *context = BERM_CONTAINER_OF(at, sim_context_t, node);
        if (context->device == device)
            sim_context_fault(context, sim.now_ns);
    }
}

int sim_context_observe(sim_context_t *context) {
    if (context->has_fault && context->fault_ns <= sim.now_ns)
        context->sticky = BERM_CU_ILLEGAL_ADDRESS;
    return context->sticky;
}

// --- the primary context -------------------------------------------------------------------------

static int primary_enter(sim_fn_t fn, int device) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (!sim_device_is_valid(device))
        return BERM_CU_INVALID_DEVICE;
    sim_charge(&sim.config.costs.other, 0, 0);
    return sim.devices[device].is_lost ? BERM_CU_DEVICE_UNAVAILABLE : BERM_CU_SUCCESS;
}

berm_cu_result_t cuDevicePrimaryCtxRetain(berm_cu_context_t *context, berm_cu_device_t device) {
    int result = primary_enter(SIM_FN_cuDevicePrimaryCtxRetain, device);
    if (result == BERM_CU_SUCCESS && context == NULL)
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS) {
        sim_device_t *owner = &sim.devices[device];
        if (owner->primary == NULL)
            owner->primary = sim_context_create(device, true, owner->primary_flags);
        *context = context_handle(owner->primary);
        if (owner->primary == NULL)
            result = BERM_CU_OUT_OF_MEMORY;
        else
            owner->primary_refs++;
    }
    return sim_leave(result);
}

berm_cu_result_t cuDevicePrimaryCtxRelease_v2(berm_cu_device_t device) {
    int result = primary_enter(SIM_FN_cuDevicePrimaryCtxRelease_v2, device);
    if (result == BERM_CU_SUCCESS) {
        sim_device_t *owner = &sim.devices[device];
        if (owner->primary_refs == 0)
            result = BERM_CU_INVALID_CONTEXT;
        else if (--owner->primary_refs == 0 && owner->primary != NULL)
            sim_context_destroy(owner->primary);
    }
    return sim_leave(result);
}

// The handle dies, the references stay: the next retain makes a new context.
berm_cu_result_t cuDevicePrimaryCtxReset_v2(berm_cu_device_t device) {
    int result = primary_enter(SIM_FN_cuDevicePrimaryCtxReset_v2, device);
    if (result == BERM_CU_SUCCESS && sim.devices[device].primary != NULL)
        sim_context_destroy(sim.devices[device].primary);
    return sim_leave(result);
}

berm_cu_result_t cuDevicePrimaryCtxSetFlags_v2(berm_cu_device_t device, unsigned flags) {
    int result = primary_enter(SIM_FN_cuDevicePrimaryCtxSetFlags_v2, device);
    if (result == BERM_CU_SUCCESS) {
        if ((flags & ~(unsigned)BERM_CU_CTX_FLAGS_MASK) != 0) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            sim.devices[device].primary_flags = flags;
            if (sim.devices[device].primary != NULL)
                sim.devices[device].primary->flags = flags;
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuDevicePrimaryCtxGetState(berm_cu_device_t device, unsigned *flags, int *active) {
    int result = primary_enter(SIM_FN_cuDevicePrimaryCtxGetState, device);
    if (result == BERM_CU_SUCCESS) {
        if (flags == NULL || active == NULL) {
            result = BERM_CU_INVALID_VALUE;
        } else {
            *flags = sim.devices[device].primary_flags;
            *active = sim.devices[device].primary != NULL;
        }
    }
    return sim_leave(result);
}

// --- created contexts ----------------------------------------------------------------------------

static int context_push(uint64_t handle) {
    sim_thread_t *thread = context_stack();
    if (thread->depth == SIM_CURRENT_MAX)
        return BERM_CU_OUT_OF_MEMORY;
    thread->current[thread->depth++] = handle;
    return BERM_CU_SUCCESS;
}

static int context_create(sim_fn_t fn, berm_cu_context_t *context, unsigned flags, int device) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (context == NULL || (flags & ~(unsigned)BERM_CU_CTX_FLAGS_MASK) != 0)
        return BERM_CU_INVALID_VALUE;
    if (!sim_device_is_valid(device))
        return BERM_CU_INVALID_DEVICE;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (context_stack()->depth == SIM_CURRENT_MAX)
        return BERM_CU_OUT_OF_MEMORY;
    sim_context_t *made = sim_context_create(device, false, flags);
    *context = context_handle(made);
    return made == NULL ? BERM_CU_OUT_OF_MEMORY : context_push(made->handle);
}

berm_cu_result_t cuCtxCreate_v2(berm_cu_context_t *context, unsigned flags,
                                berm_cu_device_t device) {
    return sim_leave(context_create(SIM_FN_cuCtxCreate_v2, context, flags, device));
}

// Execution affinity and other parameters are for partitioned devices: there are none here.
berm_cu_result_t cuCtxCreate_v3(berm_cu_context_t *context, void *affinity, int count,
                                unsigned flags, berm_cu_device_t device) {
    int result = context_create(SIM_FN_cuCtxCreate_v3,
                                affinity != NULL || count != 0 ? NULL : context, flags, device);
    return sim_leave(result);
}

berm_cu_result_t cuCtxCreate_v4(berm_cu_context_t *context, void *params, unsigned flags,
                                berm_cu_device_t device) {
    int result =
        context_create(SIM_FN_cuCtxCreate_v4, params != NULL ? NULL : context, flags, device);
    return sim_leave(result);
}

berm_cu_result_t cuCtxDestroy_v2(berm_cu_context_t handle) {
    int result = sim_enter(SIM_FN_cuCtxDestroy_v2);
    if (result == BERM_CU_SUCCESS) {
        sim_context_t *context = context_get(handle);
        if (context == NULL || context->is_primary) {
            result = BERM_CU_INVALID_CONTEXT;
        } else {
            sim_thread_t *thread = context_stack();
            if (sim_context_current() == context)
                thread->depth--;
            sim_charge(&sim.config.costs.other, 0, 0);
            sim_context_destroy(context);
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxGetCurrent(berm_cu_context_t *context) {
    int result = sim_enter(SIM_FN_cuCtxGetCurrent);
    if (result == BERM_CU_SUCCESS) {
        if (context == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *context = context_handle(sim_context_current());
        sim_charge(&sim.config.costs.other, 0, 0);
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxSetCurrent(berm_cu_context_t handle) {
    int result = sim_enter(SIM_FN_cuCtxSetCurrent);
    if (result == BERM_CU_SUCCESS) {
        sim_thread_t *thread = context_stack();
        sim_charge(&sim.config.costs.other, 0, 0);
        if (handle != NULL && context_get(handle) == NULL) {
            result = BERM_CU_INVALID_CONTEXT;
        } else {
            if (thread->depth > 0)
                thread->depth--;
            if (handle != NULL)
                result = context_push((uint64_t)(uintptr_t)handle);
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxPushCurrent_v2(berm_cu_context_t handle) {
    int result = sim_enter(SIM_FN_cuCtxPushCurrent_v2);
    if (result == BERM_CU_SUCCESS) {
        sim_charge(&sim.config.costs.other, 0, 0);
        result = context_get(handle) == NULL ? BERM_CU_INVALID_CONTEXT
                                             : context_push((uint64_t)(uintptr_t)handle);
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxPopCurrent_v2(berm_cu_context_t *context) {
    int result = sim_enter(SIM_FN_cuCtxPopCurrent_v2);
    if (result == BERM_CU_SUCCESS) {
        sim_thread_t *thread = context_stack();
        sim_charge(&sim.config.costs.other, 0, 0);
        if (thread->depth == 0) {
            result = BERM_CU_INVALID_CONTEXT;
        } else {
            if (context != NULL)
                *context = context_handle(sim_context_current());
            thread->depth--;
        }
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxGetDevice(berm_cu_device_t *device) {
    int result = sim_enter(SIM_FN_cuCtxGetDevice);
    if (result == BERM_CU_SUCCESS) {
        if (device == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *device = sim_context_current()->device;
        sim_charge(&sim.config.costs.other, 0, 0);
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxGetFlags(unsigned *flags) {
    int result = sim_enter(SIM_FN_cuCtxGetFlags);
    if (result == BERM_CU_SUCCESS) {
        if (flags == NULL)
            result = BERM_CU_INVALID_VALUE;
        else
            *flags = sim_context_current()->flags;
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    int result = sim_enter(SIM_FN_cuCtxGetStreamPriorityRange);
    if (result == BERM_CU_SUCCESS) {
        if (least != NULL)
            *least = 0;
        if (greatest != NULL)
            *greatest = -5;
    }
    return sim_leave(result);
}

berm_cu_result_t cuCtxSynchronize(void) {
    int result = sim_enter(SIM_FN_cuCtxSynchronize);
    if (result == BERM_CU_SUCCESS) {
        sim_context_t *context = sim_context_current();
        sim_charge(&sim.config.costs.synchronize, 0, 0);
        // A handle that covers a capturing stream cannot be waited for, in any mode of the thread.
        if (sim_capture_refuse_context(context))
            return sim_leave(BERM_CU_STREAM_CAPTURE_UNSUPPORTED);
        sim_wait_context(context);
        sim_pools_release();
        result = sim_context_observe(context);
    }
    return sim_leave(result);
}
