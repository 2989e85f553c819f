// SPDX-License-Identifier: Apache-2.0
// Copies and fills.
//
// They reach memory of any device, as the driver's do: a kernel would need access of its own. In
// metadata mode copies move nothing, and a copy to the host writes zeros. Speeds are estimates of
// a data-centre GPU; docs/simcuda.md lists them. Locks: the state's, by sim_enter.
#include <string.h>

#include "sim.h"

enum {
    COPY_BASE_NS = 2000,
    COPY_DEVICE_BYTES_PER_NS = 1000,
    COPY_HOST_BYTES_PER_NS = 25,
};

typedef struct copy {
    sim_stream_t *stream;
    uint64_t to, from; // addresses of the device or of the host
    bool is_to_device, is_from_device;
    uint64_t bytes;
    bool waits; // the host waits for the end
} copy_t;

uint64_t sim_copy_ns(uint64_t bytes, bool is_host) {
    return COPY_BASE_NS + bytes / (is_host ? COPY_HOST_BYTES_PER_NS : COPY_DEVICE_BYTES_PER_NS);
}

// What a copy to the host finds in metadata mode.
static void copy_give_zeros(const copy_t *copy) {
    memset((void *)(uintptr_t)copy->to, 0, copy->bytes);
    if (!copy->is_from_device)
        return;
    sim.counters.host_reads++;
    sim.counters.host_read_bytes += copy->bytes;
}

static int copy_run(const copy_t *copy) {
    simcuda_access_t accesses[2];
    size_t count = 0;
    if (copy->bytes == 0)
        return BERM_CU_SUCCESS;
    if (copy->is_from_device)
        accesses[count++] = (simcuda_access_t){copy->from, copy->bytes, 0};
    if (copy->is_to_device)
        accesses[count++] = (simcuda_access_t){copy->to, copy->bytes, 1};
    sim_action_t action = {
        .kind = SIM_ACTION_COPY, .to = copy->to, .from = copy->from, .bytes = copy->bytes};
    sim_issue_t issue = {
        .duration_ns = sim_copy_ns(copy->bytes, count < 2), .is_copy = true, .action = &action};
    sim_charge(&sim.config.costs.other, 0, 0);
    int result = sim_work_launch(copy->stream, &issue, accesses, count);
    if (result != BERM_CU_SUCCESS)
        return result;
    sim.counters.copies++;
    if (!sim.config.is_backed && !copy->is_to_device && copy->stream->capture == NULL)
        copy_give_zeros(copy);
    if (copy->waits) {
        sim_wait_stream(copy->stream);
        result = sim_context_observe(copy->stream->context);
    }
    return result;
}

// `to` and `from` say what the addresses are; DETECT is by the address (unified addressing).
typedef enum side {
    SIDE_DEVICE,
    SIDE_HOST,
    SIDE_DETECT,
} side_t;

static bool side_is_device(side_t side, uint64_t addr) {
    return side == SIDE_DEVICE || (side == SIDE_DETECT && sim_address_is_device(addr));
}

static int copy_enter(sim_fn_t fn, side_t to_side, uint64_t to, side_t from_side, uint64_t from,
                      uint64_t bytes, berm_cu_stream_t handle, bool waits) {
    int result = sim_enter(fn);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (bytes > 0 && (to == 0 || from == 0))
        return BERM_CU_INVALID_VALUE;
    copy_t copy = {.stream = sim_stream_get(handle, &result),
                   .to = to,
                   .from = from,
                   .is_to_device = side_is_device(to_side, to),
                   .is_from_device = side_is_device(from_side, from),
                   .bytes = bytes,
                   .waits = waits};
    return copy.stream == NULL ? result : copy_run(&copy);
}

// `count` values of `width` bytes.
static int fill(sim_fn_t fn, uint64_t to, uint32_t value, uint32_t width, uint64_t count,
                berm_cu_stream_t handle) {
    int result = sim_enter(fn);
    uint64_t bytes;
    if (result != BERM_CU_SUCCESS)
        return result;
    if (!berm__mul_checked(count, width, &bytes) || (bytes > 0 && to == 0) || to % width != 0)
        return BERM_CU_INVALID_VALUE;
    sim_stream_t *stream = sim_stream_get(handle, &result);
    if (stream == NULL || bytes == 0)
        return result;
    simcuda_access_t access = {to, bytes, 1};
    sim_action_t action = {
        .kind = SIM_ACTION_FILL, .value = value, .width = width, .to = to, .bytes = bytes};
    sim_issue_t issue = {
        .duration_ns = sim_copy_ns(bytes, false), .is_copy = true, .action = &action};
    sim_charge(&sim.config.costs.other, 0, 0);
    return sim_work_launch(stream, &issue, &access, 1);
}

static uint64_t host(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

// --- in a stream ---------------------------------------------------------------------------------

berm_cu_result_t cuMemcpyAsync(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes,
                               berm_cu_stream_t stream) {
    return sim_leave(
        copy_enter(SIM_FN_cuMemcpyAsync, SIDE_DETECT, to, SIDE_DETECT, from, bytes, stream, false));
}

berm_cu_result_t cuMemcpyDtoDAsync_v2(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from,
                                      size_t bytes, berm_cu_stream_t stream) {
    return sim_leave(copy_enter(SIM_FN_cuMemcpyDtoDAsync_v2, SIDE_DETECT, to, SIDE_DETECT, from,
                                bytes, stream, false));
}

berm_cu_result_t cuMemcpyHtoDAsync_v2(berm_cu_deviceptr_t to, const void *from, size_t bytes,
                                      berm_cu_stream_t stream) {
    return sim_leave(copy_enter(SIM_FN_cuMemcpyHtoDAsync_v2, SIDE_DEVICE, to, SIDE_HOST, host(from),
                                bytes, stream, false));
}

berm_cu_result_t cuMemcpyDtoHAsync_v2(void *to, berm_cu_deviceptr_t from, size_t bytes,
                                      berm_cu_stream_t stream) {
    return sim_leave(copy_enter(SIM_FN_cuMemcpyDtoHAsync_v2, SIDE_HOST, host(to), SIDE_DEVICE, from,
                                bytes, stream, false));
}

berm_cu_result_t cuMemsetD8Async(berm_cu_deviceptr_t to, unsigned char value, size_t bytes,
                                 berm_cu_stream_t stream) {
    return sim_leave(fill(SIM_FN_cuMemsetD8Async, to, value, 1, bytes, stream));
}

berm_cu_result_t cuMemsetD16Async(berm_cu_deviceptr_t to, unsigned short value, size_t count,
                                  berm_cu_stream_t stream) {
    return sim_leave(fill(SIM_FN_cuMemsetD16Async, to, value, 2, count, stream));
}

berm_cu_result_t cuMemsetD32Async(berm_cu_deviceptr_t to, unsigned value, size_t count,
                                  berm_cu_stream_t stream) {
    return sim_leave(fill(SIM_FN_cuMemsetD32Async, to, value, 4, count, stream));
}

// --- waiting -------------------------------------------------------------------------------------

berm_cu_result_t cuMemcpy(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(
        copy_enter(SIM_FN_cuMemcpy, SIDE_DETECT, to, SIDE_DETECT, from, bytes, NULL, true));
}

berm_cu_result_t cuMemcpyDtoD_v2(berm_cu_deviceptr_t to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(
        copy_enter(SIM_FN_cuMemcpyDtoD_v2, SIDE_DETECT, to, SIDE_DETECT, from, bytes, NULL, false));
}

berm_cu_result_t cuMemcpyHtoD_v2(berm_cu_deviceptr_t to, const void *from, size_t bytes) {
    return sim_leave(copy_enter(SIM_FN_cuMemcpyHtoD_v2, SIDE_DEVICE, to, SIDE_HOST, host(from),
                                bytes, NULL, true));
}

berm_cu_result_t cuMemcpyDtoH_v2(void *to, berm_cu_deviceptr_t from, size_t bytes) {
    return sim_leave(copy_enter(SIM_FN_cuMemcpyDtoH_v2, SIDE_HOST, host(to), SIDE_DEVICE, from,
                                bytes, NULL, true));
}

berm_cu_result_t cuMemsetD8_v2(berm_cu_deviceptr_t to, unsigned char value, size_t bytes) {
    return sim_leave(fill(SIM_FN_cuMemsetD8_v2, to, value, 1, bytes, NULL));
}

berm_cu_result_t cuMemsetD16_v2(berm_cu_deviceptr_t to, unsigned short value, size_t count) {
    return sim_leave(fill(SIM_FN_cuMemsetD16_v2, to, value, 2, count, NULL));
}

berm_cu_result_t cuMemsetD32_v2(berm_cu_deviceptr_t to, unsigned value, size_t count) {
    return sim_leave(fill(SIM_FN_cuMemsetD32_v2, to, value, 4, count, NULL));
}

// --- between contexts ----------------------------------------------------------------------------

static int copy_peer(sim_fn_t fn, uint64_t to, berm_cu_context_t to_context, uint64_t from,
                     berm_cu_context_t from_context, uint64_t bytes, berm_cu_stream_t handle,
                     bool waits) {
    int result = copy_enter(fn, SIDE_DEVICE, to, SIDE_DEVICE, from, 0, handle, false);
    if (result != BERM_CU_SUCCESS)
        return result;
    if (sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)to_context) == NULL ||
        sim_table_get(&sim.contexts, (uint64_t)(uintptr_t)from_context) == NULL)
        return BERM_CU_INVALID_CONTEXT;
    if (bytes > 0 && (to == 0 || from == 0))
        return BERM_CU_INVALID_VALUE;
    copy_t copy = {.stream = sim_stream_get(handle, &result),
                   .to = to,
                   .from = from,
                   .is_to_device = true,
                   .is_from_device = true,
                   .bytes = bytes,
                   .waits = waits};
    return copy_run(&copy);
}

berm_cu_result_t cuMemcpyPeer(berm_cu_deviceptr_t to, berm_cu_context_t to_context,
                              berm_cu_deviceptr_t from, berm_cu_context_t from_context,
                              size_t bytes) {
    return sim_leave(
        copy_peer(SIM_FN_cuMemcpyPeer, to, to_context, from, from_context, bytes, NULL, true));
}

berm_cu_result_t cuMemcpyPeerAsync(berm_cu_deviceptr_t to, berm_cu_context_t to_context,
                                   berm_cu_deviceptr_t from, berm_cu_context_t from_context,
                                   size_t bytes, berm_cu_stream_t stream) {
    return sim_leave(copy_peer(SIM_FN_cuMemcpyPeerAsync, to, to_context, from, from_context, bytes,
                               stream, false));
}
