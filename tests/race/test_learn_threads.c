// SPDX-License-Identifier: Apache-2.0
// Threads over work that comes again, with plans coming and going: one stream that a thread has for
// itself, one that two share with changing work, others' requests in between, trims, audits, limits
// and the option switched on and off. Packed plans, then aliased ones.
// Meaningful under TSan; without it, the audit and both ledgers still have to agree at the end.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/rng.h"
#include "berm_introspect.h"
#include "tests/support/heap_fixture.h"
#include "tests/support/periodic.h"

enum {
    GRANULE = 256 << 10,
    STEPS = 3000,
    STEPS_ALONE = 1200,
    WORKERS = 3,
};

static void *streams[2];
static bool is_alias;
static atomic_bool is_done;

static void use_nothing(periodic_t *work, uint32_t request) {
    (void)work;
    (void)request;
}

static void work_init(periodic_t *work, void *stream, uint64_t seed) {
    if (is_alias)
        periodic_init(work, stream, 60, GRANULE, 1, 12, 12, seed);
    else
        periodic_init(work, stream, 100, 512, 200, 5000, 12, seed);
    work->on_alloc = use_nothing; // threads have no context
}

static void steps(periodic_t *work, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        berm_status_t status = periodic_step(work);
        HEAP_INSIST(status == BERM_OK || status == BERM_ERROR_OUT_OF_DEVICE_MEMORY ||
                    status == BERM_ERROR_LIMIT);
    }
}

typedef struct worker {
    pthread_t thread;
    unsigned number;
    periodic_t works[2];
} worker_t;

// The first has a stream for itself. The others share one, and do something else now and then.
static void *worker_run(void *argument) {
    worker_t *worker = argument;
    void *stream = streams[worker->number == 0 ? 0 : 1];
    for (unsigned i = 0; i < 2; i++)
        work_init(&worker->works[i], stream, worker->number * 2 + i + 3);
    for (uint32_t done = 0; done < STEPS; done += STEPS / 6) {
        unsigned which = worker->number == 0 ? 0 : (done / (STEPS / 6)) % 2;
        steps(&worker->works[which], STEPS / 6);
        if (worker->number == 2) // leaves the stream to the other for a while
            while (!atomic_load(&is_done) && simcuda_now_ns() % 4000000 > 1000000)
                simcuda_advance_ns(1000);
    }
    for (unsigned i = 0; i < 2; i++)
        periodic_free_all(&worker->works[i]);
    return NULL;
}

static void *intruder_run(void *argument) {
    berm_rng_t rng;
    (void)argument;
    berm__rng_seed(&rng, 1);
    while (!atomic_load(&is_done)) {
        berm_addr_t addr = 0;
        void *stream = streams[berm__rng_below(&rng, 2)];
        uint64_t bytes = 70000 + 512 * berm__rng_below(&rng, 8000);
        berm_status_t status = berm_alloc(bytes, 0, stream, &addr);
        HEAP_INSIST(status == BERM_OK || addr == 0);
        if (addr == 0)
            continue;
        if (berm__rng_below(&rng, 4) == 0)
            HEAP_INSIST(berm_record_stream(addr, streams[berm__rng_below(&rng, 2)]) == BERM_OK);
        HEAP_INSIST(berm_free(addr, 0, stream) == BERM_OK);
    }
    return NULL;
}

static void *watcher_run(void *argument) {
    (void)argument;
    for (unsigned i = 0; !atomic_load(&is_done); i++) {
        berm_stats_t stats = {.size = sizeof stats};
        uint64_t bytes;
        int invariant = 0;
        HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
        HEAP_INSIST(berm_largest_obtainable_read(0, streams[i % 2], &bytes) == BERM_OK);
        HEAP_INSIST(berm_audit(&invariant) == BERM_OK);
        HEAP_INSIST(berm_trim(0, UINT64_C(16) << 20, &bytes) == BERM_OK);
        HEAP_INSIST(berm_limit_set(0, i % 8 == 7 ? UINT64_C(64) << 20 : UINT64_MAX) == BERM_OK);
        if (i % 16 == 14)
            HEAP_INSIST(berm_option_set("learned_placement", "off") == BERM_OK);
        if (i % 16 == 15)
            HEAP_INSIST(berm_option_set("learned_placement", "on") == BERM_OK);
    }
    return NULL;
}

static void all_at_once(void) {
    static worker_t workers[WORKERS];
    pthread_t intruder, watcher;
    atomic_store(&is_done, false);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].number = i;
        HEAP_INSIST(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]) == 0);
    }
    HEAP_INSIST(pthread_create(&intruder, NULL, intruder_run, NULL) == 0);
    HEAP_INSIST(pthread_create(&watcher, NULL, watcher_run, NULL) == 0);
    for (unsigned i = 0; i < WORKERS; i++)
        HEAP_INSIST(pthread_join(workers[i].thread, NULL) == 0);
    atomic_store(&is_done, true);
    HEAP_INSIST(pthread_join(intruder, NULL) == 0);
    HEAP_INSIST(pthread_join(watcher, NULL) == 0);
}

static void *alone_run(void *argument) {
    steps(argument, STEPS_ALONE);
    return NULL;
}

static void kind_run(bool is_aliased) {
    static periodic_t alone;
    berm_stats_t stats = {.size = sizeof stats};
    pthread_t thread;
    is_alias = is_aliased;
    heap_fixture_begin(
        &(heap_fixture_options_t){.granule_bytes = GRANULE,
                                  .has_caches = 1,
                                  .berm = is_alias ? "growth_handle:256K,headroom:1,remap:alias"
                                                   : "growth_handle:256K,headroom:4"});
    for (int i = 0; i < 2; i++)
        streams[i] = heap_stream_create();
    // A plan is there when the others begin.
    work_init(&alone, streams[0], 3);
    HEAP_INSIST(pthread_create(&thread, NULL, alone_run, &alone) == 0);
    HEAP_INSIST(pthread_join(thread, NULL) == 0);
    HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK && stats.planned_requests > 0);
    all_at_once();
    HEAP_INSIST(berm_stats_read(0, &stats) == BERM_OK);
    (void)printf("%s: %llu plans, %llu dropped, %llu requests\n", is_alias ? "aliased" : "packed",
                 (unsigned long long)stats.plans, (unsigned long long)stats.plans_dropped,
                 (unsigned long long)stats.planned_requests);
    BERM_TEST_CHECK();
    periodic_free_all(&alone);
    BERM_TEST_END();
}

int main(void) {
    kind_run(false);
    kind_run(true);
    (void)printf("1 passed, 0 failed\n");
    return 0;
}
