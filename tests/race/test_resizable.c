// SPDX-License-Identifier: Apache-2.0
// Blocks that grow, in several threads at once, beside threads whose pages they take and give:
// under the thread sanitizer nothing is raced for, and the audit holds.
#include <pthread.h>

#include "base/bits.h"
#include "tests/support/heap_fixture.h"

enum {
    GROWERS = 3,
    OTHERS = 2,
    ROUNDS = 60
};

static const berm_pool_id_t id = {0, 1};

static void *thread_grow(void *own) {
    for (int round = 0; round < ROUNDS; round++) {
        berm_addr_t addr = 0;
        HEAP_INSIST(berm_alloc_from(id, BERM_MIB(1), 512, 0, own, &addr) == BERM_OK);
        for (uint64_t size_bytes = BERM_MIB(3); size_bytes <= BERM_MIB(15);
             size_bytes += BERM_MIB(4))
            HEAP_INSIST(berm_block_grow(addr, size_bytes) == BERM_OK);
        HEAP_INSIST(berm_free(addr, 0, own) == BERM_OK);
    }
    return NULL;
}

static void *thread_alloc(void *own) {
    for (int round = 0; round < ROUNDS; round++) {
        berm_addr_t addr = 0;
        HEAP_INSIST(berm_alloc(BERM_MIB(11), 0, own, &addr) == BERM_OK);
        HEAP_INSIST(berm_block_grow(addr, BERM_MIB(12)) == BERM_ERROR_NOT_RESIZABLE);
        HEAP_INSIST(berm_free(addr, 0, own) == BERM_OK);
        HEAP_INSIST(round % 16 != 0 || berm_trim(0, 0, NULL) == BERM_OK);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[GROWERS + OTHERS];
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_RESIZABLE};
    heap_fixture_begin(&(heap_fixture_options_t){.memory_bytes = BERM_MIB(256), .has_caches = 1});
    HEAP_INSIST(berm_pool_create(0, id, &options) == BERM_OK);
    for (int i = 0; i < GROWERS + OTHERS; i++)
        HEAP_INSIST(pthread_create(&threads[i], NULL, i < GROWERS ? thread_grow : thread_alloc,
                                   heap_stream_create()) == 0);
    for (int i = 0; i < GROWERS + OTHERS; i++)
        (void)pthread_join(threads[i], NULL);
    BERM_TEST_END();
    return 0;
}
