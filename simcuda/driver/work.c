// SPDX-License-Identifier: Apache-2.0
// Work: modelled kernels, gates, copies, fills and host functions.
//
// Everything is a piece of work that takes time in a stream and touches ranges. There are no
// contents: copies move nothing, and a copy to the host writes zeros. Speeds are estimates of a
// data-centre GPU; docs/simcuda.md lists them.
// Locks: the state's, by sim_enter or sim_lock. May fail: no host memory; work is then not queued,
// or queued with its use not recorded in full.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum {
    COPY_BASE_NS = 2000,
    COPY_DEVICE_BYTES_PER_NS = 1000,
    COPY_HOST_BYTES_PER_NS = 25,
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

int sim_work_launch(sim_stream_t *stream, sim_issue_t *issue, const simcuda_access_t *accesses,
                    size_t count) {
    int result = accesses_check(accesses, count);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (stream->capture != NULL) {
        result = sim_capture_state(stream);
        if (result == BERM_CU_SUCCESS) {
            stream->capture_ops++;
            stream->merged_into = NULL;
        }
        return result;
    }
    result = sim_capture_check_legacy(stream);
    if (result == BERM_CU_SUCCESS)
        result = sim_queue_issue(stream, issue);
    for (size_t i = 0; result == BERM_CU_SUCCESS && i < count; i++) {
        if (!sim_use(stream, issue, &accesses[i]))
            result = BERM_CU_OUT_OF_MEMORY;
    }
    return result;
}

// --- kernels and gates ---------------------------------------------------------------------------

// The stream a kernel may be launched on: one of the current context, which has no sticky error.
static sim_stream_t *launch_stream(void *handle, int *result) {
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
        sim_issue_t issue = {.duration_ns = duration_ns};
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

// --- copies and fills ----------------------------------------------------------------------------

typedef struct copy {
    sim_stream_t *stream;
    uint64_t to, from; // 0: not device memory
    uint64_t bytes;
    bool waits; // the host waits for the end
} copy_t;

static int copy_run(const copy_t *copy) {
    simcuda_access_t accesses[2];
    size_t count = 0;
    if (copy->bytes == 0)
        return BERM_CU_SUCCESS;
    if (copy->from != 0)
        accesses[count++] = (simcuda_access_t){copy->from, copy->bytes, 0};
    if (copy->to != 0)
        accesses[count++] = (simcuda_access_t){copy->to, copy->bytes, 1};
    uint64_t speed =
        copy->from != 0 && copy->to != 0 ? COPY_DEVICE_BYTES_PER_NS : COPY_HOST_BYTES_PER_NS;
    sim_issue_t issue = {.duration_ns = COPY_BASE_NS + copy->bytes / speed};
    sim_charge(&sim.config.costs.other, 0, 0);
    int result = sim_work_launch(copy->stream, &issue, accesses, count);
    if (result == BERM_CU_SUCCESS && copy->waits) {
        sim_wait_stream(copy->stream);
        result = sim_context_observe(copy->stream->context);
    }
    return result;
}

// Addresses that are not the device's are the host's: unified addressing.
static uint64_t device_side(uint64_t addr) {
    return sim_address_is_device(addr) ? addr : 0;
}

static int copy_unified(sim_fn_t fn, uint64_t to, uint64_t from, uint64_t bytes,
                        berm_cu_stream_t handle, bool waits) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (bytes > 0 && (to == 0 || from == 0))
        return BERM_CU_INVALID_VALUE;
    copy_t copy = {sim_stream_get(handle, &result), device_side(to), device_side(from), bytes,
                   waits};
    return copy.stream == NULL ? result : copy_run(&copy);
}

static int copy_to_device(sim_fn_t fn, uint64_t to, const void *from, uint64_t bytes,
                          berm_cu_stream_t handle, bool waits) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (bytes > 0 && (to == 0 || from == NULL))
        return BERM_CU_INVALID_VALUE;
    copy_t copy = {sim_stream_get(handle, &result), to, 0, bytes, waits};
    return copy.stream == NULL ? result : copy_run(&copy);
}

static int copy_to_host(sim_fn_t fn, void *to, uint64_t from, uint64_t bytes,
                        berm_cu_stream_t handle, bool waits) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (bytes > 0 && (to == NULL || from == 0))
        return BERM_CU_INVALID_VALUE;
    copy_t copy = {sim_stream_get(handle, &result), 0, from, bytes, waits};
    if (copy.stream == NULL)
        return result;
    result = copy_run(&copy);
    if (result == BERM_CU_SUCCESS && bytes > 0 && copy.stream->capture == NULL)
        memset(to, 0, bytes);
    return result;
}

static int fill(sim_fn_t fn, uint64_t to, uint64_t bytes, berm_cu_stream_t handle) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (bytes > 0 && to == 0)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL || bytes == 0)
        return result;
    simcuda_access_t access = {to, bytes, 1};
    sim_issue_t issue = {.duration_ns = COPY_BASE_NS + bytes / COPY_DEVICE_BYTES_PER_NS};
    sim_charge(&sim.config.costs.other, 0, 0);
    return sim_work_launch(stream, &issue, &access, 1);
}

berm_cu_result_t cuMemcpyAsync(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes,
                               berm_cu_stream_t stream) {
    return sim_leave(copy_unified(SIM_FN_cuMemcpyAsync, to, from, bytes, stream, false));
}

berm_cu_result_t cuMemcpyDtoDAsync_v2(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from,
                                      size_t bytes, berm_cu_stream_t stream) {
    return sim_leave(copy_unified(SIM_FN_cuMemcpyDtoDAsync_v2, to, from, bytes, stream, false));
}

berm_cu_result_t cuMemcpyHtoDAsync_v2(berm_cu_deviceptr_t to, const void *from, size_t bytes,
                                      berm_cu_stream_t stream) {
    return sim_leave(copy_to_device(SIM_FN_cuMemcpyHtoDAsync_v2, to, from, bytes, stream, false));
}

berm_cu_result_t cuMemcpyDtoHAsync_v2(void *to, berm_cu_deviceptr_t from, size_t bytes,
                                      berm_cu_stream_t stream) {
    return sim_leave(copy_to_host(SIM_FN_cuMemcpyDtoHAsync_v2, to, from, bytes, stream, false));
}

berm_cu_result_t cuMemsetD8Async(berm_cu_deviceptr_t to, unsigned char value, size_t bytes,
                                 berm_cu_stream_t stream) {
    (void)value;
    return sim_leave(fill(SIM_FN_cuMemsetD8Async, to, bytes, stream));
}

berm_cu_result_t cuMemcpy(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(copy_unified(SIM_FN_cuMemcpy, to, from, bytes, NULL, true));
}

berm_cu_result_t cuMemcpyDtoD_v2(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(copy_unified(SIM_FN_cuMemcpyDtoD_v2, to, from, bytes, NULL, false));
}

berm_cu_result_t cuMemcpyHtoD_v2(berm_cu_deviceptr_t to, const void *from, size_t bytes) {
    return sim_leave(copy_to_device(SIM_FN_cuMemcpyHtoD_v2, to, from, bytes, NULL, true));
}

berm_cu_result_t cuMemcpyDtoH_v2(void *to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(copy_to_host(SIM_FN_cuMemcpyDtoH_v2, to, from, bytes, NULL, true));
}

berm_cu_result_t cuMemsetD8_v2(berm_cu_deviceptr_t to, unsigned char value, size_t bytes) {
    (void)value;
    return sim_leave(fill(SIM_FN_cuMemsetD8_v2, to, bytes, NULL));
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
    sim_clock_host_join(due->mark->clock, due->mark->clock_count);
    sim_mark_drop(due->mark);
    return due;
}

static int launch_host_function(berm_cu_stream_t handle, berm_cu_host_fn fn, void *data) {
    int result;
    sim_charge(&sim.config.costs.other, 0, 0);
    if (fn == NULL)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL)
        return result;
    sim_callback_t *callback = calloc(1, sizeof(*callback));
    sim_mark_t *mark = sim_mark_create();
    if (callback != NULL && mark != NULL) {
        sim_issue_t issue = {.duration_ns = HOST_FUNCTION_NS, .mark = mark};
        result = sim_work_launch(stream, &issue, NULL, 0);
    } else {
        result = BERM_CU_OUT_OF_MEMORY;
    }
    if (result == BERM_CU_SUCCESS && stream->capture == NULL) {
        *callback = (sim_callback_t){.mark = mark, .fn = fn, .data = data};
        berm__list_push_back(&sim.callbacks, &callback->node);
        return result;
    }
    free(callback);
    if (mark != NULL)
        sim_mark_drop(mark);
    return result;
}

berm_cu_result_t cuLaunchHostFunc(berm_cu_stream_t stream, berm_cu_host_fn fn, void *user_data) {
    int result = sim_enter(SIM_FN_cuLaunchHostFunc);
    if (result == BERM_CU_SUCCESS)
        result = launch_host_function(stream, fn, user_data);
    return sim_leave(result);
}
