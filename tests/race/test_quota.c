// SPDX-License-Identifier: Apache-2.0
// Threads of one tag never have more than its quota together, while the quota comes and goes.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "berm_diagnose.h"
#include "tests/support/heap_fixture.h"

enum {
    THREADS = 4,
    ROUNDS = 3000,
    BLOCK = 1 << 20,
    QUOTA = 2 * BLOCK,
};

static atomic_long live; // what the threads know to have
static atomic_long refused, served;

static void *tenant(void *argument) {
    void *stream = argument;
    HEAP_INSIST(berm_tag_push("tenant") == BERM_OK);
    for (int i = 0; i < ROUNDS; i++) {
        berm_addr_t blocks[3] = {0};
        for (int k = 0; k < 3; k++) {
            berm_status_t status = berm_alloc(BLOCK, 0, stream, &blocks[k]);
            HEAP_INSIST(status == BERM_OK || status == BERM_ERROR_QUOTA);
            if (status == BERM_OK)
                HEAP_INSIST(atomic_fetch_add(&live, BLOCK) + BLOCK <= QUOTA);
            atomic_fetch_add(status == BERM_OK ? &served : &refused, 1);
        }
        for (int k = 0; k < 3; k++) {
            if (blocks[k] == 0)
                continue;
            atomic_fetch_sub(&live, BLOCK);
            HEAP_INSIST(berm_free(blocks[k], 0, stream) == BERM_OK);
        }
    }
    HEAP_INSIST(berm_tag_pop() == BERM_OK);
    return NULL;
}

// Quotas of another tag are set and taken back, so that hits come and go, but never all.
static void *setter(void *argument) {
    for (int i = 0; i < ROUNDS; i++)
        HEAP_INSIST(berm_quota_set(0, "guest", i % 2 == 0 ? BLOCK : UINT64_MAX) == BERM_OK);
    return argument;
}

int main(void) {
    pthread_t threads[THREADS + 1];
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    HEAP_INSIST(berm_quota_set(0, "tenant", QUOTA) == BERM_OK);
    void *streams[THREADS];
    for (int i = 0; i < THREADS; i++)
        streams[i] = heap_stream_create();
    for (int i = 0; i < THREADS; i++)
        HEAP_INSIST(pthread_create(&threads[i], NULL, tenant, streams[i]) == 0);
    HEAP_INSIST(pthread_create(&threads[THREADS], NULL, setter, NULL) == 0);
    for (int i = 0; i <= THREADS; i++)
        HEAP_INSIST(pthread_join(threads[i], NULL) == 0);
    berm_quota_t quota = BERM_QUOTA_INIT;
    HEAP_INSIST(berm_quota_get(0, "tenant", &quota) == BERM_OK);
    HEAP_INSIST(quota.live_bytes == 0 && quota.refused == (uint64_t)atomic_load(&refused));
    HEAP_INSIST(atomic_load(&refused) > 0 && atomic_load(&served) > 0);
    (void)printf("%ld served, %ld refused\n", atomic_load(&served), atomic_load(&refused));
    BERM_TEST_END();
    return 0;
}
