// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that are made by hand. Communicators are handles (standin.h).
#ifndef SIMCUDA_STANDINS_NCCL_ABI_H
#define SIMCUDA_STANDINS_NCCL_ABI_H

#include "simcuda/standins/nccl.h"

// clang-format off
#define NCCL_API BERM_EXPORT int

// nccl_comm.c
NCCL_API ncclGetUniqueId(nccl_unique_id_t *id);
NCCL_API ncclCommInitRank(uint64_t *comm, int ranks, nccl_unique_id_t id, int rank);
NCCL_API ncclCommInitRankConfig(uint64_t *comm, int ranks, nccl_unique_id_t id, int rank, const void *config);
NCCL_API ncclCommInitRankScalable(uint64_t *comm, int ranks, int rank, int ids, const nccl_unique_id_t *id,
    const void *config);
NCCL_API ncclCommInitAll(uint64_t *comms, int count, const int *devices);
NCCL_API ncclCommSplit(uint64_t comm, int color, int key, uint64_t *made, const void *config);
NCCL_API ncclCommCount(uint64_t comm, int *count);
NCCL_API ncclCommUserRank(uint64_t comm, int *rank);
NCCL_API ncclCommCuDevice(uint64_t comm, int *device);
NCCL_API ncclCommGetAsyncError(uint64_t comm, int *error);
NCCL_API ncclCommFinalize(uint64_t comm);
NCCL_API ncclCommDestroy(uint64_t comm);
NCCL_API ncclCommAbort(uint64_t comm);
NCCL_API ncclRedOpCreatePreMulSum(int *reduction, const void *scalar, int type, int residence, uint64_t comm);
NCCL_API ncclRedOpDestroy(int reduction, uint64_t comm);
NCCL_API ncclMemAlloc(void **addr, size_t bytes);
NCCL_API ncclMemFree(void *addr);

// nccl_group.c
NCCL_API ncclGroupStart(void);
NCCL_API ncclGroupEnd(void);
NCCL_API ncclAllReduce(uint64_t send, uint64_t recv, size_t count, int type, int reduction, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclReduce(uint64_t send, uint64_t recv, size_t count, int type, int reduction, int root,
    uint64_t comm, berm_cu_stream_t stream);
NCCL_API ncclReduceScatter(uint64_t send, uint64_t recv, size_t count, int type, int reduction,
    uint64_t comm, berm_cu_stream_t stream);
NCCL_API ncclAllGather(uint64_t send, uint64_t recv, size_t count, int type, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclBroadcast(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclBcast(uint64_t buffer, size_t count, int type, int root, uint64_t comm, berm_cu_stream_t stream);
NCCL_API ncclGather(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclScatter(uint64_t send, uint64_t recv, size_t count, int type, int root, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclAlltoAll(uint64_t send, uint64_t recv, size_t count, int type, uint64_t comm,
    berm_cu_stream_t stream);
NCCL_API ncclSend(uint64_t send, size_t count, int type, int peer, uint64_t comm, berm_cu_stream_t stream);
NCCL_API ncclRecv(uint64_t recv, size_t count, int type, int peer, uint64_t comm, berm_cu_stream_t stream);
// clang-format on

#undef NCCL_API

#endif
