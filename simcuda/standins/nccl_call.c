// SPDX-License-Identifier: Apache-2.0
// What a collective does: publish the rank's contribution, then, in stream order, wait for those of
// the others and write the result. See nccl.h for which ones move values.
//
// Locks: none. The second half may run inside the driver (a kernel of backed mode): it calls
// nothing of it.
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/entries.h"
#include "simcuda/include/simcuda.h"
#include "simcuda/standins/nccl.h"

// How long a collective keeps its stream busy: an assumed figure, as work.c's.
static const uint64_t CALL_NS = 20000;

// How many times `count` elements the send and the receive buffer hold.
static size_t send_parts(const nccl_call_t *call) {
    bool is_root = call->comm->rank == call->peer;
    switch (call->kind) {
    case NCCL_REDUCE_SCATTER:
    case NCCL_ALL_TO_ALL:
        return (size_t)call->comm->ranks;
    case NCCL_SCATTER:
        return is_root ? (size_t)call->comm->ranks : 0;
    case NCCL_BROADCAST:
        return is_root ? 1 : 0;
    case NCCL_RECV:
        return 0;
    default:
        return 1;
    }
}

static size_t recv_parts(const nccl_call_t *call) {
    bool is_root = call->comm->rank == call->peer;
    switch (call->kind) {
    case NCCL_ALL_GATHER:
    case NCCL_ALL_TO_ALL:
        return (size_t)call->comm->ranks;
    case NCCL_GATHER:
        return is_root ? (size_t)call->comm->ranks : 0;
    case NCCL_REDUCE:
        return is_root ? 1 : 0;
    case NCCL_SEND:
        return 0;
    default:
        return 1;
    }
}

static size_t part_bytes(const nccl_call_t *call) {
    return call->count * nccl_type_bytes(call->type);
}

static bool is_direct(const nccl_call_t *call) {
    return call->kind == NCCL_SEND || call->kind == NCCL_RECV;
}

static bool is_reduction(const nccl_call_t *call) {
    return call->kind == NCCL_ALL_REDUCE || call->kind == NCCL_REDUCE ||
           call->kind == NCCL_REDUCE_SCATTER;
}

// Both buffers of every rank are small by the same rule on every rank.
static bool is_small(const nccl_call_t *call) {
    size_t parts = is_direct(call) || call->kind == NCCL_ALL_REDUCE || call->kind == NCCL_REDUCE ||
                           call->kind == NCCL_BROADCAST
                       ? 1
                       : (size_t)call->comm->ranks;
    return part_bytes(call) <= NCCL_VALUES_MAX / parts;
}

static bool is_capturing(berm_cu_stream_t stream) {
    int status = 0;
    return cuStreamIsCapturing(stream, &status) == BERM_CU_SUCCESS && status != 0;
}

static void remember(nccl_comm_t *comm, int error) {
    if (error != NCCL_OK)
        atomic_store(&comm->error, error);
}

int nccl_call_publish(nccl_call_t *call) {
    nccl_comm_t *comm = call->comm;
    nccl_segment_t *segment = comm->segment;
    call->moves = segment != NULL && nccl_segment_moves(segment) && is_small(call) &&
                  (!is_reduction(call) || nccl_can_reduce(call->type, call->reduction)) &&
                  !is_capturing(call->stream);
    if (!call->moves)
        return NCCL_OK;
    call->number = call->kind == NCCL_SEND   ? nccl_segment_next_to(segment, call->peer)
                   : call->kind == NCCL_RECV ? nccl_segment_next_from(segment, call->peer)
                                             : nccl_segment_next(segment);
    if (!nccl_is_told_values()) {
        // What this call sends is there when the work before it is done.
        (void)cuStreamSynchronize(comm->last_stream);
        (void)cuStreamSynchronize(call->stream);
    }
    comm->last_stream = call->stream;
    size_t bytes = part_bytes(call) * send_parts(call);
    if (bytes == 0)
        return NCCL_OK;
    void *data = malloc(bytes);
    bool is_known = data != NULL && nccl_values_read(call->send, data, bytes);
    if (is_known && call->factor != 1)
        nccl_scale(data, bytes / nccl_type_bytes(call->type), call->type, call->factor);
    int result = nccl_segment_publish(segment, call->kind == NCCL_SEND ? call->peer : -1,
                                      call->number, data, bytes, is_known);
    free(data);
    remember(comm, result);
    return result;
}

// One rank's contribution into its place of the result, by way of `scratch`.
static int take_one(const nccl_call_t *call, int from, char *result, char *scratch,
                    bool *is_known) {
    const nccl_comm_t *comm = call->comm;
    size_t part = part_bytes(call);
    size_t sent = call->kind == NCCL_REDUCE_SCATTER || call->kind == NCCL_ALL_TO_ALL ||
                          call->kind == NCCL_SCATTER
                      ? part * (size_t)comm->ranks
                      : part;
    size_t place = sent > part ? part * (size_t)comm->rank : 0;
    int error = nccl_segment_read(comm->segment, from, is_direct(call), call->number, scratch, sent,
                                  is_known);
    if (error != NCCL_OK || !*is_known)
        return error;
    if (!is_reduction(call)) {
        size_t to = recv_parts(call) > 1 ? part * (size_t)from : 0;
        memcpy(result + to, scratch + place, part);
    } else if (from == 0)
        memcpy(result, scratch + place, part);
    else
        nccl_combine(result, scratch + place, call->count, call->type, call->reduction);
    return NCCL_OK;
}

// The second half. Every rank's contribution is waited for, so that all are consumed.
static void call_finish(const nccl_call_t *call) {
    nccl_comm_t *comm = call->comm;
    size_t bytes = part_bytes(call) * recv_parts(call);
    bool has_one_source =
        is_direct(call) || call->kind == NCCL_BROADCAST || call->kind == NCCL_SCATTER;
    char *result = bytes > 0 ? malloc(bytes) : NULL;
    char *scratch = malloc(NCCL_VALUES_MAX);
    bool is_known = result != NULL && scratch != NULL;
    int error = NCCL_OK;
    for (int from = 0; is_known && error == NCCL_OK && from < comm->ranks; from++)
        if (!has_one_source || from == call->peer)
            error = take_one(call, from, result, scratch, &is_known);
    if (is_known && call->reduction == NCCL_AVG && is_reduction(call))
        nccl_scale(result, call->count, call->type, 1.0 / comm->ranks);
    if (bytes > 0)
        nccl_values_write(call->recv, is_known && error == NCCL_OK ? result : NULL, bytes);
    remember(comm, error);
    if (call->kind != NCCL_SEND)
        nccl_segment_consume(comm->segment, call->kind == NCCL_RECV ? call->peer : -1,
                             call->number);
    free(scratch);
    free(result);
}

static void call_kernel(void *arg) {
    nccl_call_t *call = arg;
    call_finish(call);
    free(call);
}

// With one rank a collective is a copy.
static int call_alone(const nccl_call_t *call) {
    size_t bytes = part_bytes(call);
    if (is_direct(call) || call->send == call->recv || bytes == 0)
        return NCCL_OK;
    (void)cuMemcpyDtoDAsync_v2(call->recv, call->send, bytes, call->stream);
    char data[1024];
    if (nccl_is_told_values() && bytes <= sizeof data)
        nccl_values_write(call->recv, nccl_values_read(call->send, data, bytes) ? data : NULL,
                          bytes);
    return NCCL_OK;
}

int nccl_call_launch(const nccl_call_t *call) {
    if (call->comm->ranks == 1)
        return call_alone(call);
    size_t part = part_bytes(call);
    simcuda_access_t accesses[2];
    size_t count = 0;
    if (part * send_parts(call) > 0)
        accesses[count++] = (simcuda_access_t){call->send, part * send_parts(call), 0};
    if (part * recv_parts(call) > 0)
        accesses[count++] = (simcuda_access_t){call->recv, part * recv_parts(call), 1};
    int result = BERM_CU_SUCCESS;
    if (call->moves && !nccl_is_told_values()) {
        nccl_call_t *kept = malloc(sizeof *kept);
        if (kept == NULL)
            return NCCL_SYSTEM_ERROR;
        *kept = *call;
        result = simcuda_launch_fn(call->stream, CALL_NS, accesses, count, call_kernel, kept);
        if (result != BERM_CU_SUCCESS)
            free(kept);
        return result == BERM_CU_SUCCESS ? NCCL_OK : 1;
    }
    result = simcuda_launch(call->stream, CALL_NS, accesses, count);
    if (call->moves)
        call_finish(call);
    else if (nccl_is_told_values() && part * recv_parts(call) > 0)
        nccl_values_write(call->recv, NULL, part * recv_parts(call));
    return result == BERM_CU_SUCCESS ? NCCL_OK : 1;
}
