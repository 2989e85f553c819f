// SPDX-License-Identifier: Apache-2.0
// Threads on a device that is too small for them, with callbacks that give their blocks back, pins
// that are told, callbacks that come and go, and reports. Meaningful under TSan; without it, the
// audit and both ledgers still have to agree, and a request fails only while nothing is kept.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/rng.h"
#include "berm_introspect.h"
#include "tests/support/heap_fixture.h"

enum {
    WORKERS = 3,
    OPERATIONS = 1500,
    STASH_MAX = 64
};

// What a worker keeps, and whoever is short of memory may take.
typedef struct stash {
    pthread_mutex_t lock;
    unsigned count;
    berm_addr_t blocks[STASH_MAX];
    void *stream;
} stash_t;

static stash_t stashes[WORKERS];
static atomic_uint asked, told, reported, failed;
static atomic_bool is_over;

static bool stash_take(stash_t *stash, berm_addr_t *block) {
    (void)pthread_mutex_lock(&stash->lock);
    bool has_one = stash->count > 0;
    if (has_one)
        *block = stash->blocks[--stash->count];
    (void)pthread_mutex_unlock(&stash->lock);
    return has_one;
}

static bool stash_put(stash_t *stash, berm_addr_t block) {
    (void)pthread_mutex_lock(&stash->lock);
    bool has_room = stash->count < STASH_MAX;
    if (has_room)
        stash->blocks[stash->count++] = block;
    (void)pthread_mutex_unlock(&stash->lock);
    return has_room;
}

static bool give(void *arg, int device, uint64_t needed_bytes) {
    unsigned freed = 0;
    berm_addr_t block;
    (void)arg;
    (void)needed_bytes;
    atomic_fetch_add(&asked, 1);
    for (unsigned i = 0; i < WORKERS; i++)
        while (freed < 8 * (i + 1) && stash_take(&stashes[i], &block)) {
            HEAP_INSIST(berm_free(block, device, stashes[i].stream) == BERM_OK);
            freed++;
        }
    return freed > 0;
}

static bool refuse(void *arg, int device, uint64_t needed_bytes) {
    return arg == NULL && device < 0 && needed_bytes == 0;
}

static void pin_told(void *arg, berm_addr_t addr, uint64_t size_bytes) {
    (void)arg;
    (void)addr;
    (void)size_bytes;
    atomic_fetch_add(&told, 1);
}

static void report_count(void *context, berm_status_t status, const char *text) {
    (void)context;
    HEAP_INSIST(status == BERM_ERROR_OUT_OF_DEVICE_MEMORY && text[0] != '\0');
    atomic_fetch_add(&reported, 1);
}

static void *worker(void *argument) {
    berm_rng_t rng;
    int index = (int)(intptr_t)argument;
    stash_t *stash = &stashes[index];
    berm__rng_seed(&rng, (uint64_t)index + 1);
    for (int i = 0; i < OPERATIONS; i++) {
        berm_addr_t block;
        uint64_t size_bytes = 1 + berm__rng_below(&rng, i % 3 == 0 ? 4000 : BERM_MIB(9));
        if (berm_alloc(size_bytes, 0, stash->stream, &block) != BERM_OK) {
            atomic_fetch_add(&failed, 1);
            continue;
        }
        bool is_pinned = i % 16 == 0 && berm_pin(block, pin_told, NULL) == BERM_OK;
        if (is_pinned || !stash_put(stash, block))
            HEAP_INSIST(berm_free(block, 0, stash->stream) == BERM_OK);
    }
    return NULL;
}

static void *come_and_go(void *unused) {
    int mark;
    (void)unused;
    while (!atomic_load(&is_over)) {
        HEAP_INSIST(berm_pressure_register(0, refuse, &mark) == BERM_OK);
        HEAP_INSIST(berm_report_set(report_count, NULL) == BERM_OK);
        (void)usleep(200);
        HEAP_INSIST(berm_pressure_unregister(0, refuse, &mark) == BERM_OK);
    }
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS], changer;
    heap_fixture_begin(&(heap_fixture_options_t){
        .memory_bytes = BERM_MIB(96), .has_caches = 1, .is_lenient = 1, .berm = "log:error"});
    HEAP_INSIST(berm_pressure_register(0, give, NULL) == BERM_OK);
    for (int i = 0; i < WORKERS; i++) {
        HEAP_INSIST(pthread_mutex_init(&stashes[i].lock, NULL) == 0);
        stashes[i].stream = heap_stream_create();
    }
    HEAP_INSIST(pthread_create(&changer, NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < WORKERS; i++)
        HEAP_INSIST(pthread_create(&workers[i], NULL, worker, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < WORKERS; i++)
        HEAP_INSIST(pthread_join(workers[i], NULL) == 0);
    atomic_store(&is_over, true);
    HEAP_INSIST(pthread_join(changer, NULL) == 0);
    HEAP_INSIST(atomic_load(&asked) > 0 && atomic_load(&told) > 0);
    HEAP_INSIST(atomic_load(&failed) < OPERATIONS / 10);
    BERM_TEST_CHECK();
    HEAP_INSIST(berm_report_set(NULL, NULL) == BERM_OK);
    BERM_TEST_END();
    printf("1 passed, 0 failed (%u asked, %u told, %u failed, %u reported)\n", atomic_load(&asked),
           atomic_load(&told), atomic_load(&failed), atomic_load(&reported));
    return 0;
}
