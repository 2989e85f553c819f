// SPDX-License-Identifier: Apache-2.0
// Tags: what a thread pushes is what its blocks have, however they are served.
#include <pthread.h>
#include <stdio.h>

#include "berm_diagnose.h"
#include "tests/api/api_test.h"

static const char *tag_of(berm_addr_t addr) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    EXPECT(BERM_OK, berm_whatis(addr, &whatis));
    return whatis.tag;
}

static void expect_tag(berm_addr_t addr, const char *tag) {
    cr_assert(strcmp(tag_of(addr), tag) == 0, "'%s', not '%s'", tag_of(addr), tag);
}

static berm_addr_t get(uint64_t size_bytes, berm_stream_t stream) {
    berm_addr_t addr;
    EXPECT(BERM_OK, berm_alloc(size_bytes, 0, stream, &addr));
    return addr;
}

static void push(const char *name) {
    EXPECT(BERM_OK, berm_tag_push(name));
}

static void pop(void) {
    EXPECT(BERM_OK, berm_tag_pop());
}

Test(tags, nest_and_stay_with_their_blocks) {
    heap_fixture_begin(NULL);
    berm_addr_t before = get(4096, NULL);
    push("weights");
    berm_addr_t small = get(4096, NULL), large = get(8 << 20, NULL);
    push("kv cache");
    berm_addr_t inner = get(100 << 10, NULL);
    pop();
    berm_addr_t outer = get(512, NULL);
    pop();
    berm_addr_t after = get(4096, NULL);
    expect_tag(before, "");
    expect_tag(small, "weights");
    expect_tag(large, "weights");
    expect_tag(inner, "kv cache");
    expect_tag(outer, "weights");
    expect_tag(after, "");
    BERM_TEST_END();
}

// Slots and large blocks that a thread takes again from its cache get the new tag.
Test(tags, of_hits) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    for (uint64_t size_bytes = 512; size_bytes <= 4 << 20; size_bytes *= 16) {
        push("first");
        berm_addr_t addr = get(size_bytes, NULL);
        pop();
        EXPECT(BERM_OK, berm_free(addr, 0, NULL));
        push("second");
        berm_addr_t again = get(size_bytes, NULL);
        pop();
        cr_assert(again == addr);
        expect_tag(again, "second");
    }
    BERM_TEST_END();
}

Test(tags, of_blocks_without_a_stream_and_of_pools) {
    heap_fixture_begin(NULL);
    push("scratch");
    berm_addr_t none = get(4096, BERM_STREAM_NONE), from;
    const berm_pool_id_t id = {0, 7};
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    EXPECT(BERM_OK, berm_alloc_from(id, 4096, 1, 0, NULL, &from));
    pop();
    expect_tag(none, "scratch");
    expect_tag(from, "scratch");
    EXPECT(BERM_OK, berm_free(none, 0, NULL));
    EXPECT(BERM_OK, berm_free(from, 0, NULL));
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

static void see(void *context, const berm_walk_segment_t *segment, const berm_walk_block_t *block) {
    uint64_t *bytes = context;
    (void)segment;
    if (block != NULL && strcmp(block->tag, "activations") == 0)
        *bytes += block->requested_bytes;
}

Test(tags, are_in_the_walk) {
    heap_fixture_begin(NULL);
    uint64_t bytes = 0;
    push("activations");
    (void)get(5000, NULL);
    (void)get(3 << 20, NULL);
    pop();
    (void)get(7000, NULL);
    EXPECT(BERM_OK, berm_walk(0, see, &bytes));
    cr_assert(bytes == 5000 + (3 << 20));
    BERM_TEST_END();
}

static void *other_thread(void *addr) {
    push("theirs");
    *(berm_addr_t *)addr = get(4096, NULL);
    pop();
    return NULL;
}

Test(tags, belong_to_their_thread) {
    heap_fixture_begin(NULL);
    pthread_t thread;
    berm_addr_t theirs = 0;
    push("mine");
    cr_assert(pthread_create(&thread, NULL, other_thread, &theirs) == 0);
    cr_assert(pthread_join(thread, NULL) == 0);
    berm_addr_t mine = get(4096, NULL);
    pop();
    expect_tag(theirs, "theirs");
    expect_tag(mine, "mine");
    BERM_TEST_END();
}

Test(tags, stay_over_a_restart) {
    heap_fixture_begin(NULL);
    push("kept");
    (void)get(4096, NULL);
    EXPECT(BERM_OK, berm_shutdown(NULL));
    EXPECT(BERM_OK, berm_init(heap_fixture_conf(NULL)));
    berm_addr_t addr = get(4096, NULL);
    pop();
    expect_tag(addr, "kept");
    BERM_TEST_END();
}

Test(tags, bad_names_and_unbalanced_calls) {
    heap_fixture_begin(NULL);
    char name[64];
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_push(NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_push(""));
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_push("a\nb"));
    memset(name, 'x', sizeof name);
    name[BERM_TAG_BYTES] = '\0';
    EXPECT(BERM_ERROR_ARGUMENT, berm_tag_push(name));
    name[BERM_TAG_BYTES - 1] = '\0';
    push(name);
    pop();
    EXPECT(BERM_ERROR_STATE, berm_tag_pop());
    for (int i = 0; i < BERM_TAG_DEPTH_MAX; i++)
        push("deep");
    EXPECT(BERM_ERROR_STATE, berm_tag_push("deep"));
    for (int i = 0; i < BERM_TAG_DEPTH_MAX; i++)
        pop();
    EXPECT(BERM_ERROR_STATE, berm_tag_pop());
    BERM_TEST_END();
}

Test(tags, are_255_at_most) {
    heap_fixture_begin(NULL);
    char name[16];
    int count = 0;
    berm_status_t status = BERM_OK;
    for (; status == BERM_OK && count <= BERM_TAG_COUNT_MAX; count++) {
        (void)snprintf(name, sizeof name, "name %d", count);
        status = berm_tag_push(name);
        if (status == BERM_OK)
            pop();
    }
    cr_assert(status == BERM_ERROR_TAGS);
    cr_assert(count == BERM_TAG_COUNT_MAX + 1);
    push("name 0"); // those that are there go on
    pop();
    BERM_TEST_END();
}
