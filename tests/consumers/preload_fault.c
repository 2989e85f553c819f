// SPDX-License-Identifier: Apache-2.0
// Each driver call of a scenario fails once, in a process of its own: under libberm_preload.so the
// program gets memory or an error each time, and once the fault is over berm serves as before and
// nothing is left. Run by test_preload.sh; prints how many calls were made to fail.
#include <sys/wait.h>
#include <unistd.h>

#include "preload_test.h"
#include "simcuda/runtime/cudart.h"

enum {
    OK = 0,
    BLOCKS = 12,
};

typedef struct holdings {
    void *blocks[BLOCKS];
} holdings_t;

static void use(berm_cu_stream_t stream, void *pointer, size_t bytes) {
    simcuda_access_t access = {(uintptr_t)pointer, bytes, 1};
    if (pointer != NULL)
        (void)simcuda_launch(stream, 100000, &access, 1);
}

// Every result is allowed; what is held afterwards is in *held. Another cause than the one that was
// injected is not.
static void scenario(holdings_t *held, int injected) {
    berm_cu_stream_t stream = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    int results[8] = {0};
    results[0] = cudaStreamCreate(&stream);
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = (size_t)(i % 4 + 1) * (i % 2 == 0 ? MIB : 3000);
        results[1] = i % 3 == 0 && stream != NULL ? cudaMallocAsync(&held->blocks[i], bytes, stream)
                                                  : cudaMalloc(&held->blocks[i], bytes);
        CHECK((held->blocks[i] != NULL) == (results[1] == OK), "%d and %p", results[1],
              held->blocks[i]);
        CHECK(results[1] == OK || results[1] == injected, "%d", results[1]);
        use(stream, held->blocks[i], bytes);
    }
    results[2] = cudaMemGetInfo(&free_bytes, &total_bytes);
    for (int i = 0; i < BLOCKS; i += 2) {
        int result = i % 3 == 0 && stream != NULL ? cudaFreeAsync(held->blocks[i], stream)
                                                  : cudaFree(held->blocks[i]);
        if (result == OK)
            held->blocks[i] = NULL;
        CHECK(result == OK || result == injected, "%d", result);
        if (held->blocks[i] == NULL && cudaMalloc(&held->blocks[i], 700000) == OK)
            use(NULL, held->blocks[i], 700000);
    }
    if (stream != NULL)
        results[3] = cudaStreamDestroy(stream);
    for (int i = 0; i < 4; i++)
        CHECK(results[i] == OK || results[i] == injected, "call %d gave %d", i, results[i]);
}

static void after_the_fault(holdings_t *held) {
    void *pointer = NULL;
    simcuda_ledger_t ledger;
    size_t live_blocks = 0;
    for (int i = 0; i < BLOCKS; i++)
        GIVES(OK, cudaFree(held->blocks[i]));
    GIVES(OK, cudaMalloc(&pointer, 5 * MIB));
    CHECK(is_berms(pointer), "berm does not serve any more");
    use(NULL, pointer, 5 * MIB);
    GIVES(OK, cudaFree(pointer));
    GIVES(OK, cudaDeviceSynchronize());
    CHECK(stats_of(0).blocks.current == 0, "%d blocks are left", (int)stats_of(0).blocks.current);
    CHECK(BERM_CALL(berm_shutdown)(&live_blocks) == BERM_OK && live_blocks == 0, "shutdown");
    simcuda_ledger_read(0, &ledger);
    CHECK(ledger.handles == 0 && ledger.allocations == 0 && ledger.mappings == 0,
          "%d handles, %d allocations, %d mappings are left", (int)ledger.handles,
          (int)ledger.allocations, (int)ledger.mappings);
    no_hazards();
}

enum {
    CHILD_DONE = 0,      // the n-th call was failed, and all was well
    CHILD_NOT_FIRED = 4, // there are fewer calls
};

static void child_run(uint64_t nth, int result) {
    static holdings_t held;
    GIVES(OK, cudaFree(NULL));
    GIVES(0, simcuda_fault_nth(NULL, nth, 1, result));
    scenario(&held, result);
    int fired = simcuda_faults_fired() > 0;
    simcuda_faults_clear();
    (void)cudaGetLastError();
    after_the_fault(&held);
    exit(fired ? CHILD_DONE : CHILD_NOT_FIRED);
}

int main(void) {
    static const int results[] = {BERM_CU_OUT_OF_MEMORY, BERM_CU_UNKNOWN, BERM_CU_NOT_SUPPORTED};
    unsigned failed_calls = 0;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        int status = CHILD_DONE;
        for (uint64_t nth = 1; status == CHILD_DONE; nth++) {
            pid_t child = fork();
            if (child == 0)
                child_run(nth, results[i]);
            CHECK(waitpid(child, &status, 0) == child, "waitpid");
            CHECK(WIFEXITED(status), "call %d with %d: signal %d", (int)nth, results[i],
                  WTERMSIG(status));
            status = WEXITSTATUS(status);
            CHECK(status == CHILD_DONE || status == CHILD_NOT_FIRED, "call %d with %d", (int)nth,
                  results[i]);
            failed_calls += status == CHILD_DONE;
        }
    }
    (void)printf("%u driver calls failed once each\n", failed_calls);
    return failed_calls > 100 ? 0 : 1;
}
