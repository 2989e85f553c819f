// SPDX-License-Identifier: Apache-2.0
// A service that makes and destroys streams for weeks: addresses, pools and host memory stay flat.
#include <criterion/criterion.h>

#include "berm_introspect.h"
#include "tests/support/heap_inside.h"

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

// One stream's life: blocks of its own, one that the next stream's use holds, one freed after it.
static berm_addr_t life(berm_addr_t left_over) {
    void *stream = heap_stream_create();
    berm_addr_t small = 0, large = 0, late = 0;
    cr_assert(berm_alloc(1000, 0, stream, &small) == BERM_OK);
    cr_assert(berm_alloc(3 << 20, 0, stream, &large) == BERM_OK);
    cr_assert(berm_alloc(5 << 20, 0, stream, &late) == BERM_OK);
    if (left_over != 0) {
        cr_assert(berm_record_stream(left_over, stream) == BERM_OK);
        cr_assert(berm_free(left_over, 0, BERM_STREAM_NONE) == BERM_OK);
    }
    cr_assert(berm_free(small, 0, stream) == BERM_OK);
    cr_assert(berm_free(large, 0, stream) == BERM_OK);
    cr_assert(berm_stream_retire(0, stream) == BERM_OK);
    heap_stream_destroy(stream);
    return late;
}

static void lives_are_flat(int has_caches) {
    enum {
        WARM = 8,
        LIVES = 700
    }; // 700 reservations of the least size would be 10 TiB
    heap_fixture_begin(
        &(heap_fixture_options_t){.has_caches = has_caches, .berm = "event_ring:off"});
    berm_addr_t late = 0;
    for (int i = 0; i < WARM; i++)
        late = life(late);
    berm_stats_t before = stats_read();
    for (int i = 0; i < LIVES; i++)
        late = life(late);
    berm_stats_t after = stats_read();
    cr_assert(after.address_bytes == before.address_bytes);
    cr_assert(after.pools == before.pools, "%u pools, %u before", after.pools, before.pools);
    cr_assert(after.host_metadata_bytes <= before.host_metadata_bytes + 4096);
    cr_assert(after.reserved_bytes.current <= before.reserved_bytes.current + (8 << 20));
    cr_assert(berm_free(late, 0, BERM_STREAM_NONE) == BERM_OK);
    BERM_TEST_END();
}

Test(stream_retire, lives_are_flat) {
    lives_are_flat(0);
}

Test(stream_retire, lives_are_flat_with_thread_caches) {
    lives_are_flat(1);
}

// A retirement that fails has changed nothing: the thread goes on with its cache.
Test(stream_retire, a_failure_leaves_the_caches) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    void *stream = heap_stream_create();
    berm_addr_t block = heap_alloc(3 << 20, stream);
    heap_use(stream, block, 3 << 20, 1000000);
    heap_free(block, stream);
    cr_assert(simcuda_fault_nth("cuEventSynchronize", 1, 1, 999) == 0);
    cr_assert(berm_stream_retire(0, stream) == BERM_ERROR_DRIVER);
    BERM_LIST_EACH (const berm_cache_t, cache, &heap_device()->caches, link)
        cr_assert(!cache->is_retired && !atomic_load(&cache->claimed));
    cr_assert(!heap_pool(stream)->stream->is_retired);
    heap_free(heap_alloc(3 << 20, stream), stream);
    cr_assert(berm_stream_retire(0, stream) == BERM_OK);
    BERM_TEST_END_INSIDE();
}
