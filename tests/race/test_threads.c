// SPDX-License-Identifier: Apache-2.0
// Threads at once on one heap: allocate, free, free on another thread, record a stream, trim,
// statistics, snapshot, questions, limit, pools made, routed to and released, birth and death of
// threads, and a fork in the middle.
// Meaningful under TSan; without it, the audit and both ledgers still have to agree at the end.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "berm_diagnose.h"
#include "tests/support/heap_fixture.h"

enum {
    WORKERS = 3,
    STREAMS = 2,
    MAILBOXES = 64,
    ROUNDS = 4,
    OPERATIONS = 1500,
    POOLS_MAX = 40,
};

static void *streams[STREAMS];
static _Atomic(berm_addr_t) mailboxes[MAILBOXES]; // blocks on their way to another thread
static atomic_bool is_done;

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes);

static uint64_t size_draw(berm_rng_t *rng) {
    uint64_t most = UINT64_C(512) << berm__rng_below(rng, 13); // up to 2 MiB
    return 1 + berm__rng_below(rng, most);
}

static void block_free(berm_rng_t *rng, berm_addr_t addr) {
    if (addr == 0)
        return;
    if (berm__rng_below(rng, 16) == 0)
        (void)berm_unpin(addr, pin_told, NULL);
    if (berm__rng_below(rng, 8) == 0)
        (void)berm_record_stream(addr, streams[berm__rng_below(rng, STREAMS)]);
    void *stream =
        berm__rng_below(rng, 16) == 0 ? BERM_STREAM_NONE : streams[berm__rng_below(rng, STREAMS)];
    HEAP_INSIST(berm_free(addr, 0, stream) == BERM_OK);
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)arg;
    HEAP_INSIST(berm_unpin(addr, pin_told, NULL) == BERM_ERROR_ADDRESS_UNKNOWN && size_bytes > 0);
}

static void *worker(void *argument) {
    berm_rng_t rng;
    berm__rng_seed(&rng, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < OPERATIONS; i++) {
        berm_addr_t addr = 0;
        void *stream = streams[berm__rng_below(&rng, STREAMS)];
        berm_status_t status = berm_alloc(size_draw(&rng), 0, stream, &addr);
        HEAP_INSIST(status == BERM_OK || status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ||
                    status == BERM_ERROR_LIMIT);
        if (addr != 0 && berm__rng_below(&rng, 16) == 0)
            HEAP_INSIST(berm_pin(addr, pin_told, NULL) == BERM_OK);
        if (berm__rng_below(&rng, 2) == 0)
            addr = atomic_exchange(&mailboxes[berm__rng_below(&rng, MAILBOXES)], addr);
        block_free(&rng, addr);
    }
    return NULL;
}

static void text_drop(void *context, const char *text, size_t length) {
    (void)text;
    *(size_t *)context += length;
}

// Everything that looks at the heap as a whole, while the workers run.
static void *watcher(void *argument) {
    (void)argument;
    while (!atomic_load(&is_done)) {
        berm_stats_t stats = {.size = sizeof stats};
        berm_whatis_t whatis = {.size = sizeof whatis};
        uint64_t bytes = 0, mark = 0;
        size_t written = 0;
        int invariant = 0;
        HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
        HEAP_INSIST(berm_largest_free_read(0, streams[0], &bytes) == BERM_OK);
        HEAP_INSIST(berm_limit_set(0, UINT64_C(200) << 20) == BERM_OK);
        HEAP_INSIST(berm_whatis(atomic_load(&mailboxes[0]), &whatis) == BERM_OK);
        HEAP_INSIST(berm_audit(&invariant) == BERM_OK);
        HEAP_INSIST(berm_snapshot_write(text_drop, &written) == BERM_OK && written > 0);
        HEAP_INSIST(berm_trace_write(0, BERM_TRACE_CSV, text_drop, &written) == BERM_OK);
        HEAP_INSIST(berm_mark(&mark) == BERM_OK);
        HEAP_INSIST(berm_option_set("event_ring", mark % 4 == 0 ? "off" : "on") == BERM_OK);
        HEAP_INSIST(berm_trim(0, UINT64_C(32) << 20, &bytes) == BERM_OK);
        HEAP_INSIST(berm_limit_set(0, UINT64_MAX) == BERM_OK);
    }
    return NULL;
}

static bool filter(berm_stream_t stream, void *context) {
    return stream == context;
}

// Pools come and go, and take the workers' requests for a while; their blocks outlive them.
static void *router(void *argument) {
    (void)argument;
    berm_pool_options_t options = {.size = sizeof options};
    berm_pool_stats_t stats = {.size = sizeof stats};
    berm_stats_t all = {.size = sizeof all};
    for (uint64_t i = 0; !atomic_load(&is_done); i++) {
        const berm_pool_id_t id = {1, i % 3}, exportable = {2, i % 4};
        berm_addr_t addr;
        // The thread sanitizer knows of 64 locks a thread, and an audit takes all pools'.
        HEAP_INSIST(berm_stats_read(0, &all) == BERM_OK);
        if (all.pools > POOLS_MAX) {
            (void)sched_yield();
            continue;
        }
        options.traits = i % 4 == 0 ? BERM_POOL_PLAIN : BERM_POOL_EXPORTABLE;
        berm_status_t status = berm_pool_create(0, exportable, &options);
        options.traits = BERM_POOL_PLAIN; // where there are no handles that could be exported
        HEAP_INSIST(status == BERM_OK || (status == BERM_ERROR_UNSUPPORTED &&
                                          berm_pool_create(0, exportable, &options) == BERM_OK));
        HEAP_INSIST(berm_pool_route_begin(0, id, filter, streams[i % STREAMS]) == BERM_OK);
        status = berm_alloc_from(exportable, 5000, 512, 0, streams[0], &addr);
        HEAP_INSIST(status == BERM_OK || addr == 0);
        if (status == BERM_OK)
            addr = atomic_exchange(&mailboxes[i % MAILBOXES], addr);
        HEAP_INSIST(berm_free(addr, 0, streams[0]) == BERM_OK);
        HEAP_INSIST(berm_pool_stats_read(0, id, &stats) == BERM_OK);
        HEAP_INSIST(berm_pool_route_end(0, id) == BERM_OK);
        HEAP_INSIST(berm_pool_release(0, id) == BERM_OK);
        HEAP_INSIST(berm_pool_release(0, exportable) == BERM_OK);
    }
    return NULL;
}

// A child must neither hang nor touch the driver, whatever locks others held at the fork.
static void fork_in_the_middle(void) {
    pid_t child = fork();
    HEAP_INSIST(child >= 0);
    if (child == 0) {
        berm_addr_t addr = 0;
        int is_right = berm_alloc(4096, 0, streams[0], &addr) == BERM_ERROR_FORKED &&
                       berm_free(1, 0, streams[0]) == BERM_ERROR_FORKED;
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    HEAP_INSIST(waitpid(child, &status, 0) == child && status == 0);
}

static void round_all(const char *conf) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .is_lenient = 1, .berm = conf});
    atomic_store(&is_done, false);
    for (int i = 0; i < MAILBOXES; i++)
        atomic_store(&mailboxes[i], 0);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = heap_stream_create();
    pthread_t watching, routing, workers[WORKERS];
    HEAP_INSIST(pthread_create(&watching, NULL, watcher, NULL) == 0);
    HEAP_INSIST(pthread_create(&routing, NULL, router, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WORKERS; i++)
            HEAP_INSIST(pthread_create(&workers[i], NULL, worker,
                                       (void *)(uintptr_t)(round * WORKERS + i + 1)) == 0);
        fork_in_the_middle();
        for (int i = 0; i < WORKERS; i++)
            HEAP_INSIST(pthread_join(workers[i], NULL) == 0);
    }
    atomic_store(&is_done, true);
    HEAP_INSIST(pthread_join(watching, NULL) == 0);
    HEAP_INSIST(pthread_join(routing, NULL) == 0);
    for (int i = 0; i < MAILBOXES; i++)
        if (atomic_load(&mailboxes[i]) != 0)
            HEAP_INSIST(berm_free(atomic_load(&mailboxes[i]), 0, streams[0]) == BERM_OK);
    BERM_TEST_END();
}

int main(void) {
    round_all(NULL);
    round_all("backing:plain"); // segments go and their records serve again, while others free
    printf("1 passed, 0 failed\n");
    return 0;
}
