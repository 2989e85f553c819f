// SPDX-License-Identifier: Apache-2.0
// The background thread beside a program that allocates, changes the decay time, asks, forks, stops
// berm and starts it again. Meaningful under TSan; without it, the audit and both ledgers still
// have to agree.
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "berm_introspect.h"
#include "tests/support/heap_fixture.h"

enum {
    ROUNDS = 6,
    WORKERS = 2,
    OPERATIONS = 1500
};

static void *streams[WORKERS];

static void *worker(void *argument) {
    berm_rng_t rng;
    int index = (int)(intptr_t)argument;
    berm_addr_t blocks[16] = {0};
    berm__rng_seed(&rng, (uint64_t)index + 1);
    for (int i = 0; i < OPERATIONS; i++) {
        berm_addr_t *block = &blocks[berm__rng_below(&rng, 16)];
        uint64_t most = UINT64_C(512) << berm__rng_below(&rng, 14);
        if (i % 300 == 0)
            HEAP_INSIST(berm_option_set("decay_ms", i % 600 == 0 ? "0" : "40") == BERM_OK);
        HEAP_INSIST(berm_free(*block, 0, streams[index]) == BERM_OK);
        HEAP_INSIST(berm_alloc(1 + berm__rng_below(&rng, most), 0, streams[index], block) ==
                    BERM_OK);
    }
    for (int i = 0; i < 16; i++)
        HEAP_INSIST(berm_free(blocks[i], 0, streams[index]) == BERM_OK);
    return NULL;
}

// The child has no background thread, and must not miss it.
static void fork_in_the_middle(void) {
    pid_t child = fork();
    HEAP_INSIST(child >= 0);
    if (child == 0)
        _exit(berm_decay_tick(0) == BERM_ERROR_FORKED && berm_shutdown(NULL) == BERM_ERROR_FORKED
                  ? 0
                  : 1);
    int status = 0;
    HEAP_INSIST(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t workers[WORKERS];
        heap_fixture_begin(&(heap_fixture_options_t){
            .has_caches = 1, .is_lenient = 1, .berm = "background_thread:on,decay_ms:40"});
        for (int i = 0; i < WORKERS; i++)
            streams[i] = heap_stream_create();
        for (int i = 0; i < WORKERS; i++)
            HEAP_INSIST(pthread_create(&workers[i], NULL, worker, (void *)(intptr_t)i) == 0);
        fork_in_the_middle();
        for (int i = 0; i < WORKERS; i++)
            HEAP_INSIST(pthread_join(workers[i], NULL) == 0);
        berm_stats_t stats = {.size = sizeof stats, .reserved_bytes.current = 1};
        while (round % 2 == 0 && stats.reserved_bytes.current > 0) {
            HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
            (void)usleep(1000);
        }
        BERM_TEST_CHECK();
        BERM_TEST_END();
    }
    printf("1 passed, 0 failed\n");
    return 0;
}
