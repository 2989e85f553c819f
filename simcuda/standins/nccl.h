// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL. A communicator of several ranks is a file in shared memory, named by the
// unique id, that all ranks map and the last to join unlinks. Through it small collectives move
// real values: at most NCCL_VALUES_MAX bytes of one rank's larger buffer, where device memory is
// backed (SIMCUDA_BACKED=1) or the program told where small values are (standin_values_set).
// Everything else is one piece of work on the stream and leaves memory as it is.
//
// A contribution is read and published when the collective is called, after the work before it in
// its stream; results are written in stream order, by a kernel that waits for the others. So no
// rank waits for what another rank's host has not reached, except to be one ahead.
#ifndef SIMCUDA_STANDINS_NCCL_H
#define SIMCUDA_STANDINS_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "base/defs.h"

enum {
    NCCL_OK = 0,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6
};

enum {
    NCCL_VALUES_MAX = 64 << 10,
    NCCL_RANKS_MAX = 256,
    NCCL_ID_BYTES = 128,
    NCCL_SLOTS = 4,        // contributions of one rank to all that are kept
    NCCL_DIRECT_SLOTS = 64 // of one rank to one other
};

enum {
    NCCL_SUM,
    NCCL_PROD,
    NCCL_MAX,
    NCCL_MIN,
    NCCL_AVG,
    NCCL_OPS
};

typedef struct nccl_unique_id {
    char bytes[NCCL_ID_BYTES];
} nccl_unique_id_t;

// --- nccl_segment.c: what the ranks share ----------------------------------------------------

typedef struct nccl_segment nccl_segment_t;

// Joins (and makes, if first) the segment named by `key`, as `rank` of `ranks`, without waiting.
// `moves`: whether this rank can move values. NULL where there is no shared memory for it.
nccl_segment_t *nccl_segment_join(uint64_t key, int ranks, int rank, bool moves);
// Waits until all have joined: 0, or NCCL_REMOTE_ERROR when one is gone or none comes.
int nccl_segment_wait(nccl_segment_t *segment);
bool nccl_segment_moves(const nccl_segment_t *segment); // whether every rank can
void nccl_segment_keep(nccl_segment_t *segment);
void nccl_segment_drop(nccl_segment_t *segment);
void nccl_segment_abort(nccl_segment_t *segment); // every wait of any rank ends
// The number of the next contribution that this rank makes to all (to `peer`, from `peer`).
uint64_t nccl_segment_next(nccl_segment_t *segment);
uint64_t nccl_segment_next_to(nccl_segment_t *segment, int peer);
uint64_t nccl_segment_next_from(nccl_segment_t *segment, int peer);
// Publishes contribution `number` to all, or to `peer` (not -1); `is_known` 0: without values.
int nccl_segment_publish(nccl_segment_t *segment, int peer, uint64_t number, const void *data,
                         size_t bytes, bool is_known);
// Waits for contribution `number` of `from`, made to all or (is_direct) to this rank, and copies
// it; *is_known is cleared if it came without values.
int nccl_segment_read(nccl_segment_t *segment, int from, bool is_direct, uint64_t number,
                      void *data, size_t bytes, bool *is_known);
// Says that this rank needs contribution `number` no more, of all or (not -1) of `peer`.
void nccl_segment_consume(nccl_segment_t *segment, int peer, uint64_t number);

// --- nccl_reduce.c ---------------------------------------------------------------------------

// Bytes of one element; 0 for a type that is not known.
size_t nccl_type_bytes(int type);
bool nccl_can_reduce(int type, int reduction);
// into[i] = into[i] (reduction) from[i].
void nccl_combine(void *into, const void *from, size_t count, int type, int reduction);
// Multiplies by a number, of the type's own precision.
void nccl_scale(void *values, size_t count, int type, double factor);
double nccl_value(const void *values, size_t index, int type);

// --- nccl_comm.c -----------------------------------------------------------------------------

typedef struct nccl_comm {
    int ranks, rank, device;
    uint64_t key;
    nccl_segment_t *segment; // NULL with one rank, and until it has joined
    berm_cu_stream_t last_stream;
    atomic_int error; // for ncclCommGetAsyncError
    // Of a communicator that comes from a split and has not joined: what the parent's ranks say
    // of colour and key is in this contribution.
    nccl_segment_t *parent;
    uint64_t split_number;
    int split_color;
} nccl_comm_t;

// NULL where the handle is of no communicator.
nccl_comm_t *nccl_comm_of(uint64_t handle);
// Joins, where the communicator is of a split; then waits for all ranks.
int nccl_comm_join(nccl_comm_t *comm);
int nccl_comm_wait(nccl_comm_t *comm);
// The factor of a reduction made by ncclRedOpCreatePreMulSum (*reduction becomes NCCL_SUM); else 1.
double nccl_reduction_factor(int *reduction);

// --- nccl_group.c ----------------------------------------------------------------------------

typedef enum nccl_kind {
    NCCL_ALL_REDUCE,
    NCCL_REDUCE,
    NCCL_REDUCE_SCATTER,
    NCCL_ALL_GATHER,
    NCCL_BROADCAST,
    NCCL_GATHER,
    NCCL_SCATTER,
    NCCL_ALL_TO_ALL,
    NCCL_SEND,
    NCCL_RECV
} nccl_kind_t;

typedef struct nccl_call {
    nccl_kind_t kind;
    nccl_comm_t *comm;
    uint64_t send, recv;
    size_t count;              // of the shorter buffer
    int type, reduction, peer; // peer: the root, or the other rank
    double factor;
    berm_cu_stream_t stream;
    bool moves;
    uint64_t number; // of the contribution
} nccl_call_t;

// Makes the call, or keeps it for the end of the group.
int nccl_group_add(const nccl_call_t *call);
// Joins the communicator and waits for it, or does so at the end of the group.
int nccl_group_join(nccl_comm_t *comm);

// --- nccl_call.c -----------------------------------------------------------------------------

// The two halves of a call: publishing what it contributes, and queueing the rest.
int nccl_call_publish(nccl_call_t *call);
int nccl_call_launch(const nccl_call_t *call);

// --- nccl_values.c ---------------------------------------------------------------------------

// Where the values of small device memory are kept by the program (metadata mode). `read` copies
// the `bytes` at `addr` and returns 1 if they are known; `write` is told what a collective put
// there, or with data NULL that the values there are no longer known. Called by the thread that
// calls NCCL. Both NULL: none. Set before communicators are made. Not thread-safe.
typedef int (*standin_values_read_fn)(uint64_t addr, void *data, size_t bytes);
typedef void (*standin_values_write_fn)(uint64_t addr, const void *data, size_t bytes);
BERM_EXPORT void standin_values_set(standin_values_read_fn read, standin_values_write_fn write);

// Whether this process can move values, and how.
bool nccl_moves_values(void);
bool nccl_is_told_values(void); // by standin_values_set, rather than from backed memory
bool nccl_values_read(uint64_t addr, void *data, size_t bytes);
void nccl_values_write(uint64_t addr, const void *data, size_t bytes);

#endif
