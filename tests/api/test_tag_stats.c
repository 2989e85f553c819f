// SPDX-License-Identifier: Apache-2.0
// What is counted by tag, however a block comes and goes.
#include <pthread.h>

#include "berm_diagnose.h"
#include "tests/api/api_test.h"

static berm_tag_stats_t tag_of(int device, const char *name) {
    berm_tag_stats_t stats = BERM_TAG_STATS_INIT;
    EXPECT(BERM_OK, berm_tag_stats_read(device, name, &stats));
    return stats;
}

static void tag_expect(const char *name, uint64_t blocks, uint64_t requested, uint64_t allocated) {
    berm_tag_stats_t stats = tag_of(0, name);
    cr_assert(stats.blocks.current == blocks && stats.requested_bytes.current == requested &&
                  stats.allocated_bytes.current == allocated,
              "%s has %llu blocks of %llu bytes in %llu", name,
              (unsigned long long)stats.blocks.current,
              (unsigned long long)stats.requested_bytes.current,
              (unsigned long long)stats.allocated_bytes.current);
    cr_assert(berm_audit(NULL) == BERM_OK, "%s", berm_error_message());
}

static const char *tag_at(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    return whatis.tag;
}

Test(tag_stats, two_tags_and_none_in_one_heap) {
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create(), *other = heap_stream_create();
    berm_addr_t none = heap_alloc(1000, stream);
    EXPECT(BERM_OK, berm_tag_push("first"));
    berm_addr_t small = heap_alloc(700, stream), large = heap_alloc(3 * MIB + 5, stream);
    EXPECT(BERM_OK, berm_tag_push("second"));
    berm_addr_t inner = heap_alloc(MIB, BERM_STREAM_NONE);
    EXPECT(BERM_OK, berm_tag_pop());
    berm_addr_t again = heap_alloc(512, stream);
    EXPECT(BERM_OK, berm_tag_pop());
    tag_expect("first", 3, 700 + 3 * MIB + 5 + 512, 1024 + 3 * MIB + 512 + 512);
    tag_expect("second", 1, MIB, MIB);
    cr_assert(strcmp(tag_at(none), "") == 0 && strcmp(tag_at(small), "first") == 0);
    cr_assert(strcmp(tag_at(large + 9), "first") == 0 && strcmp(tag_at(inner), "second") == 0);
    heap_free(large, stream);
    heap_free(small, other); // awaited: the tag's figure is of what lives
    heap_free(inner, BERM_STREAM_NONE);
    tag_expect("first", 1, 512, 512);
    tag_expect("second", 0, 0, 0);
    berm_tag_stats_t first = tag_of(0, "first");
    cr_assert(first.blocks.total_up == 3 && first.blocks.total_down == 2);
    cr_assert(first.requested_bytes.total_up == 700 + 3 * MIB + 5 + 512);
    cr_assert(stats_of(0).blocks.current == 2, "one heap has them all");
    heap_free(again, stream);
    heap_free(none, stream);
    BERM_TEST_END();
}

// Hits of the thread's cache, small and large, take and give the tag that is on.
Test(tag_stats, cached_memory_changes_its_tag) {
    static const uint64_t sizes[] = {512, 40000, 5 * MIB};
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        berm_addr_t before = heap_alloc(sizes[i], stream);
        heap_free(before, stream);
        EXPECT(BERM_OK, berm_tag_push("cached"));
        berm_addr_t after = heap_alloc(sizes[i], stream);
        EXPECT(BERM_OK, berm_tag_pop());
        cr_assert(after == before, "the thread's cache served it");
        cr_assert(tag_of(0, "cached").requested_bytes.current == sizes[i]);
        heap_free(after, stream);
        cr_assert(heap_alloc(sizes[i], stream) == before);
        cr_assert(tag_of(0, "cached").blocks.current == 0);
        heap_free(before, stream);
    }
    cr_assert(tag_of(0, "cached").blocks.total_up == 3);
    BERM_TEST_END();
}

static void *free_elsewhere(void *addr) {
    EXPECT(BERM_OK, berm_tag_push("thread"));
    heap_free(*(berm_addr_t *)addr, NULL);
    (void)heap_alloc(2000, NULL);
    return NULL; // its stack of tags ends with it
}

Test(tag_stats, are_of_the_thread_and_stay_with_the_block) {
    pthread_t thread;
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_tag_push("main"));
    berm_addr_t addr = heap_alloc(4000, NULL);
    cr_assert(pthread_create(&thread, NULL, free_elsewhere, &addr) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    cr_assert(tag_of(0, "main").blocks.total_down == 1 && tag_of(0, "main").blocks.current == 0);
    cr_assert(tag_of(0, "thread").requested_bytes.current == 2000);
    EXPECT(BERM_OK, berm_tag_pop());
    BERM_TEST_END();
}

Test(tag_stats, of_a_pool_and_its_restored_state) {
    const berm_pool_id_t id = {7, 1};
    const berm_pool_options_t options = {.size = sizeof options, .traits = BERM_POOL_PRIVATE};
    berm_pool_state_t *state;
    berm_addr_t small, large, more;
    heap_fixture_begin(NULL);
    EXPECT(BERM_OK, berm_pool_create(0, id, &options));
    EXPECT(BERM_OK, berm_tag_push("pool"));
    EXPECT(BERM_OK, berm_alloc_from(id, 3000, 1, 0, NULL, &small));
    EXPECT(BERM_OK, berm_alloc_from(id, 3 * MIB, 1, 0, NULL, &large));
    EXPECT(BERM_OK, berm_pool_state_take(0, id, &state));
    EXPECT(BERM_OK, berm_tag_pop());
    heap_free(large, NULL);
    EXPECT(BERM_OK, berm_alloc_from(id, 4 * MIB, 1, 0, NULL, &more));
    tag_expect("pool", 1, 3000, 3072);
    EXPECT(BERM_OK, berm_pool_state_restore(state, NULL, NULL, NULL));
    tag_expect("pool", 2, 3000 + 3 * MIB, 3072 + 3 * MIB);
    heap_free(large, NULL);
    heap_free(small, NULL);
    tag_expect("pool", 0, 0, 0);
    berm_pool_state_destroy(state);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

Test(tag_stats, what_a_reader_is_refused) {
    berm_tag_stats_t stats = BERM_TAG_STATS_INIT;
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_stats_read(0, "any", NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_stats_read(0, NULL, &stats));
    EXPECT(BERM_ERROR_DEVICE, berm_tag_stats_read(-1, "any", &stats));
    stats.size = sizeof stats + 8;
    EXPECT(BERM_ERROR_VERSION, berm_tag_stats_read(0, "any", &stats));
    cr_assert(tag_of(0, "never pushed").blocks.total_up == 0);
    cr_assert(berm_tag_name(0) == NULL);
    EXPECT(BERM_OK, berm_tag_push("first"));
    EXPECT(BERM_OK, berm_tag_push("second"));
    cr_assert(strcmp(berm_tag_name(0), "first") == 0 && strcmp(berm_tag_name(1), "second") == 0);
    cr_assert(berm_tag_name(2) == NULL);
    BERM_TEST_END();
}
