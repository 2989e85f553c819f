// SPDX-License-Identifier: Apache-2.0
// Communicators: how they are made, split and ended, and what they say of themselves.
//
// Locks: none; a communicator is used by one thread at a time, as NCCL wants it.
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "simcuda/driver/entries.h"
#include "simcuda/standins/nccl.h"
#include "simcuda/standins/nccl_abi.h"
#include "simcuda/standins/standin.h"

static const char COMM_KIND[] = "nccl communicator";
static const char REDUCTION_KIND[] = "nccl reduction";

typedef struct split {
    int color, key;
} split_t;

static uint64_t hash(uint64_t seed, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ at[i]) * 0x100000001B3;
    return seed;
}

static void comm_free(void *data) {
    nccl_comm_t *comm = data;
    nccl_segment_drop(comm->segment);
    nccl_segment_drop(comm->parent);
    free(comm);
}

nccl_comm_t *nccl_comm_of(uint64_t handle) {
    return standin_data(handle, COMM_KIND);
}

// A communicator that has not joined; *handle 0 where the host has no memory.
static nccl_comm_t *comm_new(uint64_t *handle, int ranks, int rank, uint64_t key) {
    *handle = 0;
    nccl_comm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return NULL;
    int device = 0;
    (void)cuCtxGetDevice(&device);
    *comm = (nccl_comm_t){.ranks = ranks, .rank = rank, .device = device, .key = key};
    *handle = standin_new(COMM_KIND, comm, comm_free);
    if (*handle != 0)
        return comm;
    free(comm);
    return NULL;
}

// Who is in a split's group: this rank's place and the group's size, by key and then rank.
static int split_resolve(nccl_comm_t *comm) {
    nccl_segment_t *parent = comm->parent;
    int me = comm->rank; // in the parent
    bool is_known = true;
    split_t mine;
    int result =
        nccl_segment_read(parent, me, false, comm->split_number, &mine, sizeof mine, &is_known);
    int ranks = 0;
    int place = 0;
    for (int from = 0; result == NCCL_OK && from < comm->ranks; from++) {
        split_t split;
        result = nccl_segment_read(parent, from, false, comm->split_number, &split, sizeof split,
                                   &is_known);
        if (result != NCCL_OK || split.color != comm->split_color)
            continue;
        ranks++;
        place += split.key < mine.key || (split.key == mine.key && from < me);
    }
    nccl_segment_consume(parent, -1, comm->split_number);
    nccl_segment_drop(parent);
    comm->parent = NULL;
    comm->ranks = ranks;
    comm->rank = place;
    return result;
}

int nccl_comm_join(nccl_comm_t *comm) {
    int result = comm->parent != NULL ? split_resolve(comm) : NCCL_OK;
    if (result != NCCL_OK || comm->ranks == 1 || comm->segment != NULL)
        return result;
    comm->segment = nccl_segment_join(comm->key, comm->ranks, comm->rank, nccl_moves_values());
    return comm->segment != NULL ? NCCL_OK : NCCL_SYSTEM_ERROR;
}

int nccl_comm_wait(nccl_comm_t *comm) {
    return comm->segment != NULL ? nccl_segment_wait(comm->segment) : NCCL_OK;
}

static int comm_init(uint64_t *handle, int ranks, const nccl_unique_id_t *id, int rank) {
    if (handle == NULL || id == NULL || ranks < 1 || ranks > NCCL_RANKS_MAX || rank < 0 ||
        rank >= ranks)
        return NCCL_INVALID_ARGUMENT;
    nccl_comm_t *comm = comm_new(handle, ranks, rank, hash(0xCBF29CE484222325, id, sizeof *id));
    if (comm == NULL)
        return NCCL_SYSTEM_ERROR;
    int result = nccl_group_join(comm);
    if (result != NCCL_OK) {
        (void)standin_delete(*handle);
        *handle = 0;
    }
    return result;
}

int ncclGetUniqueId(nccl_unique_id_t *id) {
    if (id == NULL)
        return NCCL_INVALID_ARGUMENT;
    memset(id, 0, sizeof *id);
    return getrandom(id->bytes, 32, 0) == 32 ? NCCL_OK : NCCL_SYSTEM_ERROR;
}

int ncclCommInitRank(uint64_t *comm, int ranks, nccl_unique_id_t id, int rank) {
    return comm_init(comm, ranks, &id, rank);
}

int ncclCommInitRankConfig(uint64_t *comm, int ranks, nccl_unique_id_t id, int rank,
                           const void *config) {
    (void)config;
    return comm_init(comm, ranks, &id, rank);
}

int ncclCommInitRankScalable(uint64_t *comm, int ranks, int rank, int ids,
                             const nccl_unique_id_t *id, const void *config) {
    (void)config;
    return ids < 1 ? NCCL_INVALID_ARGUMENT : comm_init(comm, ranks, id, rank);
}

int ncclCommInitAll(uint64_t *comms, int count, const int *devices) {
    nccl_unique_id_t id;
    int result = comms != NULL && count > 0 ? ncclGetUniqueId(&id) : NCCL_INVALID_ARGUMENT;
    if (result != NCCL_OK)
        return result;
    result = ncclGroupStart();
    for (int rank = 0; result == NCCL_OK && rank < count; rank++) {
        result = comm_init(&comms[rank], count, &id, rank);
        if (result == NCCL_OK)
            nccl_comm_of(comms[rank])->device = devices != NULL ? devices[rank] : rank;
    }
    int ended = ncclGroupEnd();
    return result != NCCL_OK ? result : ended;
}

int ncclCommSplit(uint64_t handle, int color, int key, uint64_t *made, const void *config) {
    (void)config;
    nccl_comm_t *comm = nccl_comm_of(handle);
    if (made != NULL)
        *made = 0;
    if (comm == NULL || made == NULL)
        return NCCL_INVALID_ARGUMENT;
    if (comm->ranks == 1)
        return color < 0 || comm_new(made, 1, 0, comm->key) != NULL ? NCCL_OK : NCCL_SYSTEM_ERROR;
    uint64_t number = nccl_segment_next(comm->segment);
    split_t mine = {color, key};
    int result = nccl_segment_publish(comm->segment, -1, number, &mine, sizeof mine, true);
    if (result != NCCL_OK || color < 0) {
        nccl_segment_consume(comm->segment, -1, number);
        return result;
    }
    uint64_t new_key = hash(hash(comm->key, &number, sizeof number), &color, sizeof color);
    nccl_comm_t *split = comm_new(made, comm->ranks, comm->rank, new_key);
    if (split == NULL)
        return NCCL_SYSTEM_ERROR;
    nccl_segment_keep(comm->segment);
    split->parent = comm->segment;
    split->split_number = number;
    split->split_color = color;
    split->device = comm->device;
    return nccl_group_join(split);
}

int ncclCommCount(uint64_t handle, int *count) {
    const nccl_comm_t *comm = nccl_comm_of(handle);
    if (count != NULL)
        *count = comm != NULL ? comm->ranks : 0;
    return comm != NULL ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclCommUserRank(uint64_t handle, int *rank) {
    const nccl_comm_t *comm = nccl_comm_of(handle);
    if (rank != NULL)
        *rank = comm != NULL ? comm->rank : 0;
    return comm != NULL ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclCommCuDevice(uint64_t handle, int *device) {
    const nccl_comm_t *comm = nccl_comm_of(handle);
    if (device != NULL)
        *device = comm != NULL ? comm->device : 0;
    return comm != NULL ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclCommGetAsyncError(uint64_t handle, int *error) {
    nccl_comm_t *comm = nccl_comm_of(handle);
    if (error != NULL)
        *error = comm != NULL ? atomic_load(&comm->error) : NCCL_OK;
    return comm != NULL ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclCommFinalize(uint64_t handle) {
    nccl_comm_t *comm = nccl_comm_of(handle);
    if (comm == NULL)
        return NCCL_INVALID_ARGUMENT;
    if (comm->segment != NULL)
        (void)cuStreamSynchronize(comm->last_stream);
    return NCCL_OK;
}

int ncclCommDestroy(uint64_t handle) {
    (void)ncclCommFinalize(handle);
    return handle == 0 || standin_delete(handle) ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclCommAbort(uint64_t handle) {
    nccl_comm_t *comm = nccl_comm_of(handle);
    if (comm != NULL && comm->segment != NULL)
        nccl_segment_abort(comm->segment);
    return handle == 0 || standin_delete(handle) ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

int ncclRedOpCreatePreMulSum(int *reduction, const void *scalar, int type, int residence,
                             uint64_t handle) {
    enum {
        ON_HOST = 1
    };
    unsigned char value[8] = {0};
    size_t bytes = nccl_type_bytes(type);
    if (reduction != NULL)
        *reduction = NCCL_SUM;
    if (reduction == NULL || scalar == NULL || bytes == 0 || nccl_comm_of(handle) == NULL)
        return NCCL_INVALID_ARGUMENT;
    if (residence == ON_HOST)
        memcpy(value, scalar, bytes);
    else if (!nccl_moves_values() || !nccl_values_read((uintptr_t)scalar, value, bytes))
        memset(value, 0, sizeof value); // not known
    double *factor = malloc(sizeof *factor);
    if (factor == NULL)
        return NCCL_SYSTEM_ERROR;
    *factor = nccl_value(value, 0, type);
    *reduction = (int)standin_new(REDUCTION_KIND, factor, free);
    if (*reduction != 0)
        return NCCL_OK;
    free(factor);
    return NCCL_SYSTEM_ERROR;
}

int ncclRedOpDestroy(int reduction, uint64_t handle) {
    (void)handle;
    return standin_delete((uint64_t)reduction) ? NCCL_OK : NCCL_INVALID_ARGUMENT;
}

double nccl_reduction_factor(int *reduction) {
    const double *factor = standin_data((uint64_t)*reduction, REDUCTION_KIND);
    if (factor == NULL)
        return 1;
    *reduction = NCCL_SUM;
    return *factor;
}

int ncclMemAlloc(void **addr, size_t bytes) {
    berm_cu_deviceptr_t made = 0;
    int result = addr != NULL ? (int)cuMemAlloc_v2(&made, bytes) : BERM_CU_INVALID_VALUE;
    if (addr != NULL)
        *addr = (void *)(uintptr_t)made; // NOLINT(performance-no-int-to-ptr)
    return result == BERM_CU_SUCCESS ? NCCL_OK : 1;
}

int ncclMemFree(void *addr) {
    return addr == NULL || cuMemFree_v2((uintptr_t)addr) == BERM_CU_SUCCESS ? NCCL_OK : 1;
}
