// SPDX-License-Identifier: Apache-2.0
// Collectives as they are called, alone or in a group. At the end of a group all that its calls
// contribute is published before any of them waits, so that several ranks may be one thread's.
//
// Locks: none; a group is of its thread.
#include <stdlib.h>

#include "simcuda/standins/nccl.h"
#include "simcuda/standins/nccl_abi.h"
#include "simcuda/standins/standin.h"

typedef struct group {
    int depth;
    size_t calls_count, calls_room, comms_count, comms_room;
    nccl_call_t *calls;
    nccl_comm_t **comms; // that have still to join
} group_t;

static _Thread_local group_t group;

// Room for one more of `bytes` each.
static bool room_for(void *list, size_t count, size_t *room, size_t bytes) {
    void **items = list;
    if (count < *room)
        return true;
    size_t more = *room == 0 ? 16 : *room * 2;
    void *grown = realloc(*items, more * bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *room = more;
    return true;
}

static int group_run(nccl_comm_t **comms, size_t comms_count, nccl_call_t *calls,
                     size_t calls_count) {
    int result = NCCL_OK;
    for (size_t i = 0; result == NCCL_OK && i < comms_count; i++)
        result = nccl_comm_join(comms[i]);
    for (size_t i = 0; result == NCCL_OK && i < comms_count; i++)
        result = nccl_comm_wait(comms[i]);
    for (size_t i = 0; result == NCCL_OK && i < calls_count; i++)
        result = nccl_call_publish(&calls[i]);
    for (size_t i = 0; result == NCCL_OK && i < calls_count; i++)
        result = nccl_call_launch(&calls[i]);
    return result;
}

int nccl_group_join(nccl_comm_t *comm) {
    if (group.depth == 0)
        return group_run(&comm, 1, NULL, 0);
    if (!room_for(&group.comms, group.comms_count, &group.comms_room, sizeof(nccl_comm_t *)))
        return NCCL_SYSTEM_ERROR;
    group.comms[group.comms_count++] = comm;
    return NCCL_OK;
}

int nccl_group_add(const nccl_call_t *call) {
    if (group.depth == 0) {
        nccl_call_t copy = *call;
        return group_run(NULL, 0, &copy, 1);
    }
    if (!room_for(&group.calls, group.calls_count, &group.calls_room, sizeof *call))
        return NCCL_SYSTEM_ERROR;
    group.calls[group.calls_count++] = *call;
    return NCCL_OK;
}

int ncclGroupStart(void) {
    group.depth++;
    return NCCL_OK;
}

int ncclGroupEnd(void) {
    if (group.depth == 0)
        return NCCL_INVALID_USAGE;
    if (--group.depth > 0)
        return NCCL_OK;
    int result = group_run(group.comms, group.comms_count, group.calls, group.calls_count);
    free(group.comms);
    free(group.calls);
    group = (group_t){0};
    return result;
}

typedef struct buffers {
    uint64_t send, recv;
    size_t count;
    int type;
} buffers_t;

static int call(const char *name, nccl_kind_t kind, buffers_t buffers, int reduction, int peer,
                uint64_t handle, berm_cu_stream_t stream) {
    standin_hit("nccl", name);
    nccl_comm_t *comm = nccl_comm_of(handle);
    if (comm == NULL || peer < 0 || peer >= comm->ranks || nccl_type_bytes(buffers.type) == 0)
        return NCCL_INVALID_ARGUMENT;
    double factor = nccl_reduction_factor(&reduction);
    nccl_call_t made = {.kind = kind,
                        .comm = comm,
                        .send = buffers.send,
                        .recv = buffers.recv,
                        .count = buffers.count,
                        .type = buffers.type,
                        .reduction = reduction,
                        .peer = peer,
                        .factor = factor,
                        .stream = stream};
    return nccl_group_add(&made);
}

int ncclAllReduce(uint64_t send, uint64_t recv, size_t count, int type, int reduction,
                  uint64_t comm, berm_cu_stream_t stream) {
    return call("ncclAllReduce", NCCL_ALL_REDUCE, (buffers_t){send, recv, count, type}, reduction,
                0, comm, stream);
}

int ncclReduce(uint64_t send, uint64_t recv, size_t count, int type, int reduction, int root,
               uint64_t comm, berm_cu_stream_t stream) {
    return call("ncclReduce", NCCL_REDUCE, (buffers_t){send, recv, count, type}, reduction, root,
                comm, stream);
}

int ncclReduceScatter(uint64_t send, uint64_t recv, size_t count, int type, int reduction,
                      uint64_t comm, berm_cu_stream_t stream) {
    return call("ncclReduceScatter", NCCL_REDUCE_SCATTER, (buffers_t){send, recv, count, type},
                reduction, 0, comm, stream);
}

int ncclAllGather(uint64_t send, uint64_t recv, size_t count, int type, uint64_t comm,
                  berm_cu_stream_t stream) {
    return call("ncclAllGather", NCCL_ALL_GATHER, (buffers_t){send, recv, count, type}, 0, 0, comm,
                stream);
}

int ncclBroadcast(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
                  berm_cu_stream_t stream) {
    return call("ncclBroadcast", NCCL_BROADCAST, (buffers_t){send, recv, count, type}, 0, root,
                comm, stream);
}

int ncclBcast(uint64_t buffer, size_t count, int type, int root, uint64_t comm,
              berm_cu_stream_t stream) {
    return call("ncclBcast", NCCL_BROADCAST, (buffers_t){buffer, buffer, count, type}, 0, root,
                comm, stream);
}

int ncclGather(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
               berm_cu_stream_t stream) {
    return call("ncclGather", NCCL_GATHER, (buffers_t){send, recv, count, type}, 0, root, comm,
                stream);
}

int ncclScatter(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
                berm_cu_stream_t stream) {
    return call("ncclScatter", NCCL_SCATTER, (buffers_t){send, recv, count, type}, 0, root, comm,
                stream);
}

int ncclAlltoAll(uint64_t send, uint64_t recv, size_t count, int type, uint64_t comm,
                 berm_cu_stream_t stream) {
    return call("ncclAlltoAll", NCCL_ALL_TO_ALL, (buffers_t){send, recv, count, type}, 0, 0, comm,
                stream);
}

int ncclSend(uint64_t send, size_t count, int type, int peer, uint64_t comm,
             berm_cu_stream_t stream) {
    return call("ncclSend", NCCL_SEND, (buffers_t){send, 0, count, type}, 0, peer, comm, stream);
}

int ncclRecv(uint64_t recv, size_t count, int type, int peer, uint64_t comm,
             berm_cu_stream_t stream) {
    return call("ncclRecv", NCCL_RECV, (buffers_t){0, recv, count, type}, 0, peer, comm, stream);
}
