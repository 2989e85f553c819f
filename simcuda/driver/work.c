// SPDX-License-Identifier: Apache-2.0
// Work: modelled kernels, gates and host functions; copies and fills are in copy.c.
//
// Everything is a piece of work that takes time in a stream and touches ranges. What it does in
// backed mode is carried out by contents.c.
// Locks: the state's, by sim_enter or sim_lock. May fail: no host memory; work is then not queued,
// or queued with its use not recorded in full.
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum {
    HOST_FUNCTION_NS = 100000,
};

static int accesses_check(const simcuda_access_t *accesses, size_t count) {
    uint64_t end;
    if (accesses == NULL && count > 0)
        return BERM_CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!berm__add_checked(accesses[i].addr, accesses[i].size_bytes, &end))
            return BERM_CU_INVALID_VALUE;
    }
    return BERM_CU_SUCCESS;
}

// Queues what the work will do: at its end, or at its start if it has overtaken the work before.
static void work_queue_effect(sim_stream_t *stream, const sim_issue_t *issue,
                              sim_effect_t *effect) {
    effect->reads_stale = issue->reads_stale;
    effect->writes_stale = issue->writes_stale;
    if (sim.config.acts_at_launch && effect->action.kind != SIM_ACTION_KERNEL)
        sim_effect_act(effect, sim.now_ns);
    else if (issue->pending != NULL)
        sim_stream_add_effect(stream, effect);
    else
        sim_effect_queue(effect, issue->is_early ? issue->start_ns : issue->end_ns);
}

int sim_work_issue(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *accesses,
                   size_t count) {
    sim_effect_t *effect = NULL;
    bool has_effect = issue->action != NULL && sim.config.is_backed;
    if (has_effect && (effect = sim_effect_create(stream, issue, accesses, count)) == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    int result = sim_queue_issue(stream, issue);
    if (result != BERM_CU_SUCCESS) {
        free(effect);
        return result;
    }
    for (size_t i = 0; i < count; i++) {
        if (!sim_use(stream, issue, &accesses[i]))
            result = BERM_CU_OUT_OF_MEMORY;
    }
    if (effect != NULL)
        work_queue_effect(stream, issue, effect);
    return result;
}

int sim_work_launch(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *accesses,
                    size_t count) {
    int result = accesses_check(accesses, count);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (stream->capture != NULL)
        return sim_capture_add(stream, issue, accesses, count);
    result = sim_capture_check_legacy(stream);
    return result != BERM_CU_SUCCESS ? result : sim_work_issue(stream, issue, accesses, count);
}

// --- kernels and gates ---------------------------------------------------------------------------

// The stream a kernel may be launched on: one of the current context, which has no sticky error.
static sim_stream_t *launch_stream(void *handle, int *result) {
    sim_real_follow();
    *result = BERM_CU_NOT_INITIALIZED;
    if (!sim.is_init)
        return NULL;
    sim_context_t *context = sim_context_current();
    *result = BERM_CU_INVALID_CONTEXT;
    if (context == NULL)
        return NULL;
    *result = sim.devices[context->device].is_lost ? BERM_CU_DEVICE_UNAVAILABLE : context->sticky;
    if (*result != BERM_CU_SUCCESS)
        return NULL;
    sim_stream_t *stream = sim_stream_get(handle, result);
    if (stream != NULL && stream->context != context) {
        *result = BERM_CU_INVALID_HANDLE;
        return NULL;
    }
    return stream;
}

int simcuda_launch(void *stream_handle, uint64_t duration_ns, const simcuda_access_t *accesses,
                   size_t count) {
    int result;
    if (!sim_lock())
        return BERM_CU_NOT_INITIALIZED;
    sim_stream_t *stream = launch_stream(stream_handle, &result);
    if (stream != NULL) {
        sim_issue_t issue = {.duration_ns = duration_ns, .is_kernel = true};
        result = sim_work_launch(stream, &issue, accesses, count);
    }
    return sim_leave(result);
}

int sim_kernel_launch(sim_stream_t *stream, uint64_t duration_ns) {
    simcuda_cost_t cost = {.base_ns = sim.config.launch_ns};
    sim_issue_t issue = {.duration_ns = duration_ns != 0 ? duration_ns : sim.config.kernel_ns,
                         .is_kernel = true};
    sim_charge(&cost, 0, 0);
    int result = sim_work_launch(stream, &issue, NULL, 0);
    sim.counters.kernels += result == BERM_CU_SUCCESS;
    return result;
}

int simcuda_launch_kernel(void *stream_handle, uint64_t duration_ns) {
    int result;
    if (!sim_lock())
        return BERM_CU_NOT_INITIALIZED;
    sim_stream_t *stream = launch_stream(stream_handle, &result);
    if (stream != NULL)
        result = sim_kernel_launch(stream, duration_ns);
    return sim_leave(result);
}

int simcuda_launch_fn(void *stream_handle, uint64_t duration_ns, const simcuda_access_t *accesses,
                      size_t count, simcuda_kernel_fn fn, void *arg) {
    int result;
    if (fn == NULL)
        return BERM_CU_INVALID_VALUE;
    if (!sim_lock())
        return sim_thread.is_in_kernel ? BERM_CU_NOT_PERMITTED : BERM_CU_NOT_INITIALIZED;
    sim_stream_t *stream = launch_stream(stream_handle, &result);
    if (stream != NULL && !sim.config.is_backed) {
        result = BERM_CU_NOT_SUPPORTED;
    } else if (stream != NULL) {
        sim_action_t action = {.kind = SIM_ACTION_KERNEL, .fn = fn, .argument = arg};
        sim_issue_t issue = {.duration_ns = duration_ns, .is_kernel = true, .action = &action};
        result = sim_work_launch(stream, &issue, accesses, count);
    }
    return sim_leave(result);
}

int simcuda_gate(void *stream_handle, const simcuda_access_t *accesses, size_t count,
                 uint64_t *gate_number) {
    int result;
    if (gate_number == NULL)
        return BERM_CU_INVALID_VALUE;
    if (!sim_lock())
        return BERM_CU_NOT_INITIALIZED;
    sim_stream_t *stream = launch_stream(stream_handle, &result);
    if (stream != NULL) {
        sim_gate_t *gate = sim_gate_create();
        sim_issue_t issue = {.gate = gate};
        result =
            gate == NULL ? BERM_CU_OUT_OF_MEMORY : sim_work_launch(stream, &issue, accesses, count);
        if (result == BERM_CU_SUCCESS)
            *gate_number = gate->number;
        else if (gate != NULL)
            sim_gate_open_at(gate, sim.now_ns); // refused, or already queued: not to block anything
    }
    return sim_leave(result);
}

int simcuda_gate_open(uint64_t number) {
    int result = BERM_CU_INVALID_VALUE;
    if (!sim_lock())
        return BERM_CU_NOT_INITIALIZED;
    sim_real_follow();
    for (berm_list_t *at = sim.gates.next; at != &sim.gates; at = at->next) {
        sim_gate_t *gate = BERM_CONTAINER_OF(at, sim_gate_t, node);
        if (gate->number != number)
            continue;
        if (gate->open_ns == UINT64_MAX)
            sim_gate_open_at(gate, sim.now_ns);
        result = BERM_CU_SUCCESS;
        break;
    }
    return sim_leave(result);
}

// --- host functions ------------------------------------------------------------------------------

// The one that is due first. What the host function sees done, the host has seen done.
sim_callback_t *sim_callback_take(void) {
    sim_callback_t *due = NULL;
    for (berm_list_t *at = sim.callbacks.next; at != &sim.callbacks; at = at->next) {
        sim_callback_t *each = BERM_CONTAINER_OF(at, sim_callback_t, node);
        if (sim_mark_is_done(each->mark) && (due == NULL || each->mark->at_ns < due->mark->at_ns))
            due = each;
    }
    if (due == NULL)
        return NULL;
    berm__list_remove(&due->node);
    sim_effects_run_until(due->mark->at_ns); // it sees what was before it, and no more
    sim_clock_host_join(due->mark->clock, due->mark->clock_count);
    sim_mark_drop(due->mark);
    return due;
}

int sim_host_function_issue(sim_stream_t *stream, sim_issue_t *issue) {
    sim_callback_t *callback = calloc(1, sizeof(*callback));
    sim_mark_t *mark = issue->mark != NULL ? issue->mark : sim_mark_create();
    int result = BERM_CU_OUT_OF_MEMORY;
    if (callback != NULL && mark != NULL) {
        issue->mark = mark;
        result = sim_queue_issue(stream, issue);
    }
    if (result == BERM_CU_SUCCESS) {
        *callback = (sim_callback_t){
            .mark = mark, .fn = issue->action->fn, .data = issue->action->argument};
        berm__list_push_back(&sim.callbacks, &callback->node);
        return result;
    }
    free(callback);
    if (mark != NULL)
        sim_mark_drop(mark);
    return result;
}

static int launch_host_function(berm_cu_stream_t handle, berm_cu_host_fn fn, void *data) {
    int result;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (fn == NULL)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL)
        return result;
    sim_action_t action = {.kind = SIM_ACTION_HOST, .fn = fn, .argument = data};
    sim_issue_t issue = {.duration_ns = HOST_FUNCTION_NS, .action = &action};
    if (stream->capture != NULL)
        return sim_capture_add(stream, &issue, NULL, 0);
    result = sim_capture_check_legacy(stream);
    return result != BERM_CU_SUCCESS ? result : sim_host_function_issue(stream, &issue);
}

berm_cu_result_t cuLaunchHostFunc(berm_cu_stream_t stream, berm_cu_host_fn fn, void *user_data) {
    int result = sim_enter(SIM_FN_cuLaunchHostFunc);
    if (result == BERM_CU_SUCCESS)
        result = launch_host_function(stream, fn, user_data);
    return sim_leave(result);
}
