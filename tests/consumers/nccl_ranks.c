// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL from a program's side, in RANKS processes (fork before CUDA is used):
//   nccl_ranks backed   every collective moves values between processes, in backed memory
//   nccl_ranks told     the same, in metadata mode, by standin_values_set
//   nccl_ranks plain    in metadata mode nothing moves, and nothing waits
//   nccl_ranks thread   one thread has every rank, in groups
//   nccl_ranks gone     a rank's process ends: the others get an error
// Prints what is wrong; exit status 0 if nothing is.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simcuda/driver/entries.h"
#include "simcuda/include/simcuda.h"
#include "simcuda/standins/nccl.h"
#include "simcuda/standins/nccl_abi.h"

enum {
    RANKS = 3,
    ROOM = 1 << 20
};
enum {
    INT32 = 2,
    UINT64 = 5,
    HALF = 6,
    FLOAT = 7,
    DOUBLE = 8,
    BFLOAT16 = 9,
    FP8 = 10
};

static int failures;
static bool is_told;
static int rank_now;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("rank %d, line %d: %s\n", rank_now, __LINE__, #condition);                      \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

// Where told values are kept: by address, a copy of each small buffer.
static unsigned char mirror[2][ROOM];
static bool mirror_known[2];
static uint64_t send_addr, recv_addr;
static berm_cu_stream_t stream;

static unsigned char *mirror_of(uint64_t addr, bool **known) {
    int which = addr >= recv_addr && addr < recv_addr + ROOM;
    *known = &mirror_known[which];
    return mirror[which] + (addr - (which ? recv_addr : send_addr));
}

static int told_read(uint64_t addr, void *data, size_t bytes) {
    bool *known = NULL;
    unsigned char *from = mirror_of(addr, &known);
    memcpy(data, from, bytes);
    return *known;
}

static void told_write(uint64_t addr, const void *data, size_t bytes) {
    bool *known = NULL;
    unsigned char *to = mirror_of(addr, &known);
    *known = data != NULL;
    if (data != NULL)
        memcpy(to, data, bytes);
}

static void put(const void *data, size_t bytes) {
    if (is_told) {
        memcpy(mirror[0], data, bytes);
        mirror_known[0] = true;
    } else {
        CHECK(cuStreamSynchronize(stream) == 0);
        CHECK(cuMemcpyHtoD_v2(send_addr, data, bytes) == 0);
    }
}

static void get(void *data, size_t bytes) {
    if (is_told) {
        CHECK(mirror_known[1]);
        memcpy(data, mirror[1], bytes);
    } else {
        CHECK(cuMemcpyDtoHAsync_v2(data, recv_addr, bytes, stream) == 0);
        CHECK(cuStreamSynchronize(stream) == 0);
    }
}

static void device_start(void) {
    berm_cu_context_t context = NULL;
    CHECK(cuInit(0) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
    CHECK(cuMemAlloc_v2(&send_addr, ROOM) == 0);
    CHECK(cuMemAlloc_v2(&recv_addr, ROOM) == 0);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    if (is_told)
        standin_values_set(told_read, told_write);
}

static void test_reductions(uint64_t comm, int rank) {
    float f[2] = {(float)rank + 1, 2.5F};
    put(f, sizeof f);
    CHECK(ncclAllReduce(send_addr, recv_addr, 2, FLOAT, NCCL_SUM, comm, stream) == 0);
    get(f, sizeof f);
    CHECK(f[0] == 6 && f[1] == 7.5F);
    int32_t i[2] = {rank - 1, 7 * rank};
    int32_t got[2];
    put(i, sizeof i);
    CHECK(ncclAllReduce(send_addr, recv_addr, 2, INT32, NCCL_MIN, comm, stream) == 0);
    get(got, sizeof got);
    CHECK(got[0] == -1 && got[1] == 0);
    CHECK(ncclAllReduce(send_addr, recv_addr, 2, INT32, NCCL_MAX, comm, stream) == 0);
    get(got, sizeof got);
    CHECK(got[0] == 1 && got[1] == 14);
    uint64_t u = UINT64_C(1) << (60 + rank);
    put(&u, sizeof u);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, UINT64, NCCL_SUM, comm, stream) == 0);
    get(&u, sizeof u);
    CHECK(u == UINT64_C(7) << 60);
    uint16_t h[2] = {0x3C00, 0x0001}; // 1, the smallest subnormal
    put(h, sizeof h);
    CHECK(ncclAllReduce(send_addr, recv_addr, 2, HALF, NCCL_SUM, comm, stream) == 0);
    get(h, sizeof h);
    CHECK(h[0] == 0x4200 && h[1] == 0x0003);
    uint16_t b[1] = {0x4040}; // 3
    put(b, sizeof b);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, BFLOAT16, NCCL_PROD, comm, stream) == 0);
    get(b, sizeof b);
    CHECK(b[0] == 0x41D8); // 27
    double d = rank;
    put(&d, sizeof d);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, DOUBLE, NCCL_AVG, comm, stream) == 0);
    get(&d, sizeof d);
    CHECK(d == 1);
}

static void test_factor(uint64_t comm, int rank) {
    int reduction = 0;
    float factor = 0.5F;
    float f = (float)rank;
    CHECK(ncclRedOpCreatePreMulSum(&reduction, &factor, FLOAT, 1, comm) == 0);
    put(&f, sizeof f);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, FLOAT, reduction, comm, stream) == 0);
    get(&f, sizeof f);
    CHECK(f == 1.5F);
    CHECK(ncclRedOpDestroy(reduction, comm) == 0);
    CHECK(ncclRedOpDestroy(reduction, comm) == NCCL_INVALID_ARGUMENT);
}

static void test_parts(uint64_t comm, int rank) {
    int32_t in[RANKS * 2];
    int32_t out[RANKS * 2];
    for (int i = 0; i < RANKS * 2; i++)
        in[i] = 100 * rank + i;
    put(in, sizeof in);
    CHECK(ncclReduceScatter(send_addr, recv_addr, 2, INT32, NCCL_SUM, comm, stream) == 0);
    get(out, 8);
    CHECK(out[0] == 300 + 3 * 2 * rank && out[1] == out[0] + 3);
    CHECK(ncclAllGather(send_addr, recv_addr, 2, INT32, comm, stream) == 0);
    get(out, sizeof out);
    for (int i = 0; i < RANKS * 2; i++)
        CHECK(out[i] == 100 * (i / 2) + i % 2);
    CHECK(ncclAlltoAll(send_addr, recv_addr, 2, INT32, comm, stream) == 0);
    get(out, sizeof out);
    for (int i = 0; i < RANKS * 2; i++)
        CHECK(out[i] == 100 * (i / 2) + 2 * rank + i % 2);
    CHECK(ncclBroadcast(send_addr, recv_addr, 2, INT32, 1, comm, stream) == 0);
    get(out, 8);
    CHECK(out[0] == 100 && out[1] == 101);
    CHECK(ncclScatter(send_addr, recv_addr, 2, INT32, 2, comm, stream) == 0);
    get(out, 8);
    CHECK(out[0] == 200 + 2 * rank);
    CHECK(ncclGather(send_addr, recv_addr, 2, INT32, 0, comm, stream) == 0);
    CHECK(ncclReduce(send_addr, recv_addr + 4096, 2, INT32, NCCL_SUM, 2, comm, stream) == 0);
    if (rank == 0) {
        get(out, sizeof out);
        CHECK(out[0] == 0 && out[2] == 100 && out[5] == 201);
    }
}

// A ring in a group, more sends to one rank than a collective keeps, and order within a pair.
static void test_direct(uint64_t comm, int rank) {
    enum {
        SENDS = 20
    };
    int32_t in[SENDS];
    int32_t out[SENDS];
    for (int i = 0; i < SENDS; i++)
        in[i] = 1000 * rank + i;
    put(in, sizeof in);
    CHECK(ncclGroupStart() == 0);
    for (unsigned i = 0; i < SENDS; i++) {
        CHECK(ncclSend(send_addr + 4 * i, 1, INT32, (rank + 1) % RANKS, comm, stream) == 0);
        CHECK(ncclRecv(recv_addr + 4 * i, 1, INT32, (rank + RANKS - 1) % RANKS, comm, stream) == 0);
    }
    CHECK(ncclGroupEnd() == 0);
    get(out, sizeof out);
    for (int i = 0; i < SENDS; i++)
        CHECK(out[i] == 1000 * ((rank + RANKS - 1) % RANKS) + i);
}

static void test_split(uint64_t comm, int rank) {
    uint64_t part = 0;
    int place = -1;
    int count = -1;
    // Ranks 0 and 2, in the other order; rank 1 is in none.
    CHECK(ncclCommSplit(comm, rank == 1 ? -1 : 5, -rank, &part, NULL) == 0);
    CHECK((part == 0) == (rank == 1));
    if (part == 0)
        return;
    CHECK(ncclCommUserRank(part, &place) == 0 && place == (rank == 2 ? 0 : 1));
    CHECK(ncclCommCount(part, &count) == 0 && count == 2);
    float f = (float)rank;
    put(&f, sizeof f);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, FLOAT, NCCL_SUM, part, stream) == 0);
    get(&f, sizeof f);
    CHECK(f == 2);
    CHECK(ncclCommDestroy(part) == 0);
    CHECK(ncclCommDestroy(part) == NCCL_INVALID_ARGUMENT);
}

// What is too large, or of a type without arithmetic, leaves memory as it is.
static void test_not_moved(uint64_t comm, int rank) {
    static unsigned char data[NCCL_VALUES_MAX * 2];
    memset(data, rank + 1, sizeof data);
    if (is_told)
        mirror_known[1] = true;
    else
        CHECK(cuStreamSynchronize(stream) == 0 &&
              cuMemcpyHtoD_v2(recv_addr, data, sizeof data) == 0);
    put(data, sizeof data);
    CHECK(ncclAllReduce(send_addr, recv_addr, sizeof data / 4, INT32, NCCL_SUM, comm, stream) == 0);
    CHECK(ncclAllReduce(send_addr, recv_addr, 4, FP8, NCCL_SUM, comm, stream) == 0);
    if (is_told) {
        CHECK(!mirror_known[1]);
        return;
    }
    memset(data, 0, sizeof data);
    get(data, sizeof data);
    CHECK(data[0] == rank + 1 && data[sizeof data - 1] == rank + 1);
    // The largest that is moved.
    CHECK(ncclAllGather(send_addr, recv_addr, NCCL_VALUES_MAX / RANKS / 4, INT32, comm, stream) ==
          0);
    get(data, sizeof data);
    CHECK(data[0] == 1 && data[NCCL_VALUES_MAX / RANKS / 4 * 4 * 2] == 3);
}

static void test_many(uint64_t comm, int rank) {
    int32_t value = 0;
    for (int i = 0; i < 100; i++) {
        int32_t mine = i + rank;
        put(&mine, sizeof mine);
        CHECK(ncclAllReduce(send_addr, recv_addr, 1, INT32, NCCL_SUM, comm, stream) == 0);
    }
    get(&value, sizeof value);
    CHECK(value == 3 * 99 + 3);
}

static void test_arguments(uint64_t comm, int rank) {
    nccl_unique_id_t id = {{0}};
    uint64_t made = 1;
    int error = -1;
    CHECK(ncclCommInitRank(&made, RANKS, id, RANKS) == NCCL_INVALID_ARGUMENT);
    CHECK(ncclCommInitRank(&made, 0, id, 0) == NCCL_INVALID_ARGUMENT);
    CHECK(ncclCommInitRank(&made, NCCL_RANKS_MAX + 1, id, 0) == NCCL_INVALID_ARGUMENT);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, FLOAT, 0, comm + 1, stream) ==
          NCCL_INVALID_ARGUMENT);
    CHECK(ncclAllReduce(send_addr, recv_addr, 1, 99, 0, comm, stream) == NCCL_INVALID_ARGUMENT);
    CHECK(ncclSend(send_addr, 1, FLOAT, RANKS, comm, stream) == NCCL_INVALID_ARGUMENT);
    CHECK(ncclGroupEnd() == NCCL_INVALID_USAGE);
    CHECK(ncclCommGetAsyncError(comm, &error) == 0 && error == 0);
    CHECK(ncclCommUserRank(comm, &error) == 0 && error == rank);
}

static int run_rank(const nccl_unique_id_t *id, int rank, const char *mode) {
    uint64_t comm = 0;
    rank_now = rank;
    device_start();
    CHECK(ncclCommInitRank(&comm, RANKS, *id, rank) == 0);
    if (strcmp(mode, "gone") == 0) {
        if (rank == 2)
            _exit(0);
        int32_t value = 1;
        int error = 0;
        put(&value, sizeof value);
        CHECK(ncclAllReduce(send_addr, recv_addr, 1, INT32, NCCL_SUM, comm, stream) == 0);
        CHECK(cuStreamSynchronize(stream) == 0);
        CHECK(ncclCommGetAsyncError(comm, &error) == 0 && error == NCCL_REMOTE_ERROR);
        return failures != 0;
    }
    if (strcmp(mode, "plain") == 0) {
        // Only rank 0 calls: were anything moved, it would wait for the others.
        CHECK(rank != 0 ||
              ncclAllReduce(send_addr, recv_addr, 1, FLOAT, NCCL_SUM, comm, stream) == 0);
        CHECK(cuStreamSynchronize(stream) == 0);
    } else {
        test_reductions(comm, rank);
        test_factor(comm, rank);
        test_parts(comm, rank);
        test_direct(comm, rank);
        test_split(comm, rank);
        test_not_moved(comm, rank);
        test_many(comm, rank);
    }
    test_arguments(comm, rank);
    CHECK(ncclCommDestroy(comm) == 0);
    simcuda_hazard_t hazard;
    if (simcuda_hazard_read(0, &hazard) == 0)
        printf("rank %d: %s\n", rank, hazard.text);
    CHECK(simcuda_hazard_count() == 0);
    return failures != 0;
}

// One thread, every rank: only groups can work, and do.
static int run_thread(void) {
    uint64_t comms[RANKS];
    int32_t value[RANKS];
    device_start();
    CHECK(ncclCommInitAll(comms, RANKS, NULL) == 0);
    for (int i = 0; i < RANKS; i++)
        value[i] = 10 + i;
    put(value, sizeof value);
    CHECK(ncclGroupStart() == 0);
    for (unsigned i = 0; i < RANKS; i++)
        CHECK(ncclAllReduce(send_addr + 4 * i, recv_addr + 4 * i, 1, INT32, NCCL_SUM, comms[i],
                            stream) == 0);
    CHECK(ncclGroupEnd() == 0);
    get(value, sizeof value);
    CHECK(value[0] == 33 && value[1] == 33 && value[2] == 33);
    uint64_t parts[RANKS];
    CHECK(ncclGroupStart() == 0);
    for (int i = 0; i < RANKS; i++)
        CHECK(ncclCommSplit(comms[i], 0, RANKS - i, &parts[i], NULL) == 0);
    CHECK(ncclGroupEnd() == 0);
    for (int i = 0; i < RANKS; i++) {
        int place = -1;
        CHECK(ncclCommUserRank(parts[i], &place) == 0 && place == RANKS - 1 - i);
        CHECK(ncclCommDestroy(parts[i]) == 0 && ncclCommAbort(comms[i]) == 0);
    }
    return failures != 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    nccl_unique_id_t id;
    int status = 0;
    int failed = 0;
    is_told = strcmp(mode, "told") == 0;
    if (strcmp(mode, "thread") == 0)
        return run_thread();
    if (ncclGetUniqueId(&id) != 0)
        return 2;
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0) {
            int result = run_rank(&id, rank, mode);
            fflush(stdout);
            _exit(result);
        }
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
