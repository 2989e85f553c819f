// SPDX-License-Identifier: Apache-2.0
// Thread caches (policy/cache.h, front/thread.h): what is kept, what a hit costs, who gets it back,
// and the races between a cache and the end of its stream or thread.
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "berm_introspect.h"
#include "front/audit.h"
#include "front/thread.h"
#include "tests/support/heap_inside.h"

#define MIB ((uint64_t)1 << 20)

static void cached_begin(void) {
    // A pool that learns keeps no large block in caches.
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .berm = "learned_placement:off"});
    atomic_store(&berm__heap.audits, false); // an audit after each call would empty every cache
}

static berm_cache_t *own_cache(void *stream) {
    return berm__thread_cache(atomic_load(&berm__heap.epoch), 0, stream);
}

static berm_stats_t stats_read(void) {
    berm_stats_t stats = {.size = sizeof stats};
    cr_assert(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

static void audit_expect(int number) {
    int found = -1;
    berm_status_t status = berm_audit(&found);
    cr_assert(found == number, "I%d: %s", found, berm_error_message());
    cr_assert(status == (number == 0 ? BERM_OK : BERM_ERROR_CORRUPTION));
}

// A loop that frees and asks again gets the same block, calls no driver, and takes no lock: it goes
// on while another thread holds the device's.
Test(thread_cache, a_hit_takes_no_lock) {
    static const uint64_t sizes[] = {512, 4096, 65536, MIB, 64 * MIB};
    cached_begin();
    void *stream = heap_stream_create();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        berm_addr_t first = heap_alloc(sizes[i], stream);
        heap_free(first, stream);
        uint64_t calls = simcuda_calls(NULL);
        berm__mutex_lock(&heap_device()->lock);
        for (int turn = 0; turn < 10; turn++) {
            berm_addr_t again = heap_alloc(sizes[i], stream);
            heap_free(again, stream);
            cr_assert(again == first);
        }
        berm__mutex_unlock(&heap_device()->lock);
        cr_assert(simcuda_calls(NULL) == calls);
    }
    BERM_TEST_END_INSIDE();
}

Test(thread_cache, a_double_free_is_caught) {
    cached_begin();
    berm_addr_t small = heap_alloc(700, NULL), large = heap_alloc(3 * MIB, NULL);
    heap_free(small, NULL);
    heap_free(large, NULL);
    cr_assert(own_cache(NULL)->large.range != NULL);
    cr_assert(berm_free(small, 0, NULL) == BERM_ERROR_DOUBLE_FREE);
    cr_assert(berm_free(large, 0, NULL) == BERM_ERROR_DOUBLE_FREE);
    cr_assert(berm_free(small + 1, 0, NULL) != BERM_OK);
    cr_assert(stats_read().blocks.current == 0);
    BERM_TEST_END_INSIDE();
}

// With one thread the peaks are those of the order of calls, whatever went by the cache.
Test(thread_cache, peaks_are_exact_with_one_thread) {
    cached_begin();
    berm_addr_t blocks[100];
    uint64_t live = 0, peak = 0;
    for (int turn = 0; turn < 5; turn++) {
        for (unsigned i = 0; i < 100; i++) {
            blocks[i] = heap_alloc(100 + i, NULL);
            live += 100 + i;
            peak = live > peak ? live : peak;
        }
        for (unsigned i = 100; i-- > 10;) {
            heap_free(blocks[i], NULL);
            live -= 100 + i;
        }
        cr_assert(stats_read().requested_bytes.peak == peak);
        cr_assert(stats_read().requested_bytes.current == live);
    }
    BERM_TEST_END_INSIDE();
}

// One thread, two streams: what one cache has not merged does not count twice in the other's peak.
Test(thread_cache, peaks_are_exact_over_several_streams) {
    cached_begin();
    void *stream = heap_stream_create();
    berm_addr_t first = heap_alloc(10 * MIB, stream), second = heap_alloc(10 * MIB, stream);
    heap_free(first, stream);
    heap_free(second, stream);
    berm_addr_t other = heap_alloc(5 * MIB, NULL);
    cr_assert(berm_stats_peaks_reset(0) == BERM_OK);
    heap_free(other, NULL);
    first = heap_alloc(10 * MIB, stream);
    cr_assert(stats_read().requested_bytes.peak == 10 * MIB);
    heap_free(first, stream);
    BERM_TEST_END_INSIDE();
}

// Blocks that one thread allocates and another frees come back through the exchange, in batches: no
// slab is made for them but the first.
enum {
    PASSED = 2000
};
static berm_addr_t passed[16];
static pthread_barrier_t barrier;

static void *free_what_is_passed(void *unused) {
    (void)unused;
    for (int turn = 0; turn < PASSED / 16; turn++) {
        (void)pthread_barrier_wait(&barrier);
        for (int i = 0; i < 16; i++)
            heap_free(passed[i], NULL);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

Test(thread_cache, blocks_pass_through_the_exchange) {
    cached_begin();
    pthread_t thread;
    cr_assert(pthread_barrier_init(&barrier, NULL, 2) == 0);
    cr_assert(pthread_create(&thread, NULL, free_what_is_passed, NULL) == 0);
    for (int turn = 0; turn < PASSED / 16; turn++) {
        for (int i = 0; i < 16; i++)
            passed[i] = heap_alloc(1024, NULL);
        (void)pthread_barrier_wait(&barrier);
        (void)pthread_barrier_wait(&barrier);
        if (turn == PASSED / 32)
            audit_expect(0);
    }
    cr_assert(pthread_join(thread, NULL) == 0);
    berm_pool_t *pool = heap_pool(NULL);
    cr_assert(pool->exchange != NULL);
    cr_assert(stats_read().reserved_bytes.peak <= 4 * MIB && stats_read().blocks.current == 0);
    audit_expect(0);
    cr_assert(pool->exchange->bytes == 0);
    BERM_TEST_END_INSIDE();
}

static void *alloc_and_end(void *blocks) {
    for (int i = 0; i < 40; i++)
        ((berm_addr_t *)blocks)[i] = heap_alloc(1000, NULL);
    for (int i = 0; i < 20; i++)
        heap_free(((berm_addr_t *)blocks)[i], NULL);
    return NULL;
}

Test(thread_cache, a_thread_gives_everything_back_when_it_ends) {
    cached_begin();
    berm_addr_t blocks[40];
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, alloc_and_end, blocks) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    berm_device_t *device = heap_device();
    cr_assert(berm__list_is_empty(&device->caches));
    cr_assert(device->requested.current == 20 * 1000);
    for (int i = 20; i < 40; i++)
        heap_free(blocks[i], NULL);
    cr_assert(stats_read().blocks.current == 0);
    BERM_TEST_END_INSIDE();
}

// A request that fails tells live memory as it is, also when another thread freed what this one
// allocated and neither has merged its counts.
static void *free_all(void *blocks) {
    for (int i = 0; i < 11; i++)
        heap_free(((berm_addr_t *)blocks)[i], NULL);
    return NULL;
}

Test(thread_cache, a_shortage_is_reported_with_merged_figures) {
    cached_begin();
    berm_addr_t blocks[11], out = 0;
    pthread_t thread;
    for (int i = 0; i < 11; i++)
        blocks[i] = heap_alloc(512, NULL);
    cr_assert(pthread_create(&thread, NULL, free_all, blocks) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(berm_alloc(1000 * MIB, 0, NULL, &out) == BERM_ERROR_OUT_OF_DEVICE_MEMORY);
    cr_assert(strstr(berm_error_message(), "live 0.0 MiB") != NULL, "%s", berm_error_message());
    BERM_TEST_END_INSIDE();
}

// Another thread takes over the pool of a retired stream; this one still has the old cache.
static void *alloc_on(void *stream) {
    return (void *)(uintptr_t)heap_alloc(4096, stream);
}

Test(thread_cache, a_retired_cache_catches_no_free) {
    cached_begin();
    void *old = heap_stream_create();
    heap_free(heap_alloc(4096, old), old);
    cr_assert(berm_stream_retire(0, old) == BERM_OK);
    void *adopter = heap_stream_create(), *block = NULL;
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, alloc_on, adopter) == 0);
    cr_assert(pthread_join(thread, &block) == 0);
    berm_addr_t addr = (berm_addr_t)(uintptr_t)block;
    heap_stream_follow(old, adopter);
    heap_use(old, addr, 4096, 1000000000);
    heap_free(addr, old); // `old` stands for a new stream with the handle of the old one
    cr_assert(stats_read().active_bytes.current == 4096);
    cr_assert(heap_alloc(4096, adopter) != addr);
    BERM_TEST_END_INSIDE();
}

Test(thread_cache, I21_what_a_cache_holds) {
    cached_begin();
    void *stream = heap_stream_create();
    heap_free(heap_alloc(4096, stream), stream);
    heap_free(heap_alloc(MIB, stream), stream);
    berm_cache_t *cache = own_cache(stream);
    unsigned size_class = berm__size_class_of(4096);
    cr_assert(cache->count[size_class] > 1 && cache->large.range != NULL);
    berm_cache_t kept = *cache;
    uint8_t *state =
        &cache->slots[size_class][0].slab->slot[cache->slots[size_class][0].slot].state;
    cache->bytes += 512;
    // The check comes before the caches are emptied, which would carry the damage on.
    berm_audit_t audit = {.device = heap_device(), .error = (char[200]){0}, .error_capacity = 200};
    cr_assert(berm__audit_caches(&audit) == 21);
    *cache = kept;
    *state = BERM_SLOT_LIVE;
    cr_assert(berm__audit_caches(&audit) == 21);
    *state = BERM_SLOT_CACHED;
    cache->slots[size_class][1] = cache->slots[size_class][0];
    cr_assert(berm__audit_caches(&audit) == 21);
    *cache = kept;
    cache->large.range->state = BERM_RANGE_LIVE;
    cr_assert(berm__audit_caches(&audit) == 21);
    cache->large.range->state = BERM_RANGE_CACHED;
    cr_assert(berm__audit_caches(&audit) == 0);
    audit_expect(0);
    cr_assert(cache->bytes == 0); // the audit has emptied it
    BERM_TEST_END_INSIDE();
}
