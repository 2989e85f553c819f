// SPDX-License-Identifier: Apache-2.0
// berm_trace_write: what was done is what is written, in each form; the order of several threads;
// the option.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "berm_diagnose.h"
#include "tests/api/api_test.h"

typedef struct text {
    size_t length, capacity;
    char *at;
} text_t;

static void keep(void *context, const char *bytes, size_t length) {
    text_t *text = context;
    while (text->capacity < text->length + length + 1) {
        text->capacity = text->capacity == 0 ? 1 << 16 : 2 * text->capacity;
        text->at = realloc(text->at, text->capacity);
        cr_assert(text->at != NULL);
    }
    memcpy(text->at + text->length, bytes, length);
    text->length += length;
    text->at[text->length] = '\0';
}

static text_t form_of(int device, berm_trace_form_t form) {
    text_t text = {0};
    EXPECT(BERM_OK, berm_trace_write(device, form, keep, &text));
    cr_assert(text.length > 0);
    return text;
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

Test(trace, replay_form_has_what_was_done) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    void *stream = heap_stream_create();
    berm_addr_t kept = heap_alloc(5 * MIB, stream), gone = heap_alloc(1000, stream), refused;
    heap_free(gone, stream);
    EXPECT(BERM_ERROR_OUT_OF_DEVICE_MEMORY, berm_alloc(1024 * MIB, 0, stream, &refused));
    char want[512];
    (void)snprintf(want, sizeof want,
                   "event_index,op,id,size_bytes,stream\n0,alloc,%llu,5242880,%llu\n"
                   "1,alloc,%llu,1000,%llu\n2,free,%llu,1000,%llu\n3,oom,0,1073741824,%llu\n",
                   (unsigned long long)kept, (unsigned long long)(uintptr_t)stream,
                   (unsigned long long)gone, (unsigned long long)(uintptr_t)stream,
                   (unsigned long long)gone, (unsigned long long)(uintptr_t)stream,
                   (unsigned long long)(uintptr_t)stream);
    text_t text = form_of(0, BERM_TRACE_REPLAY);
    cr_assert(strcmp(text.at, want) == 0, "%s", text.at);
    free(text.at);
    heap_free(kept, stream);
    BERM_TEST_END();
}

Test(trace, every_form_of_every_kind_of_request) {
    const berm_pool_id_t id = {0, 5};
    heap_fixture_begin(NULL);
    void *stream = heap_stream_create();
    EXPECT(BERM_OK, berm_pool_create(0, id, NULL));
    EXPECT(BERM_OK, berm_tag_push("a \"tag\""));
    berm_addr_t from, none = heap_alloc(700, BERM_STREAM_NONE), large = heap_alloc(9 * MIB, NULL);
    EXPECT(BERM_OK, berm_alloc_from(id, 4 * MIB, 1, 0, stream, &from));
    EXPECT(BERM_OK, berm_tag_pop());
    heap_free(large, stream); // of another stream: awaited
    text_t csv = form_of(BERM_DEVICE_ANY, BERM_TRACE_CSV);
    cr_assert(count_of(csv.at, ",alloc,") == 3 && count_of(csv.at, ",free,") == 1, "%s", csv.at);
    cr_assert(count_of(csv.at, ",map,") >= 2 && count_of(csv.at, "\"a \"\"tag\"\"\"") == 3);
    cr_assert(count_of(csv.at, ",0,5,0,0x0,\"a") == 1); // the pool of its request
    text_t rmm = form_of(0, BERM_TRACE_RMM);
    cr_assert(strncmp(rmm.at, "Thread,Time,Action,Pointer,Size,Stream\n", 39) == 0);
    cr_assert(count_of(rmm.at, ",allocate,") == 3 && count_of(rmm.at, ",free,") == 1);
    text_t chrome = form_of(0, BERM_TRACE_CHROME);
    cr_assert(strstr(chrome.at, "\"traceEvents\"") != NULL && count_of(chrome.at, "\"C\"") > 0);
    text_t pickle = form_of(0, BERM_TRACE_PYTORCH);
    cr_assert(pickle.at[0] == '\x80' && pickle.at[pickle.length - 1] == '.');
    text_t json = form_of(0, BERM_TRACE_RECORDING);
    cr_assert(strncmp(json.at, "{\"berm_recording\":1,", 19) == 0);
    free(csv.at), free(rmm.at), free(chrome.at), free(pickle.at), free(json.at);
    heap_free(from, stream);
    heap_free(none, NULL);
    EXPECT(BERM_OK, berm_pool_release(0, id));
    BERM_TEST_END();
}

Test(trace, off_and_on_again) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .berm = "event_ring:off"});
    heap_free(heap_alloc(1000, NULL), NULL);
    text_t text = form_of(0, BERM_TRACE_REPLAY);
    cr_assert(count_of(text.at, "\n") == 1, "%s", text.at);
    free(text.at);
    EXPECT(BERM_OK, berm_option_set("event_ring", "on"));
    heap_free(heap_alloc(1000, NULL), NULL);
    heap_free(heap_alloc(1000, NULL), NULL);
    EXPECT(BERM_OK, berm_option_set("event_ring", "off"));
    heap_free(heap_alloc(1000, NULL), NULL);
    text = form_of(0, BERM_TRACE_REPLAY);
    cr_assert(count_of(text.at, "\n") == 5, "%s", text.at);
    free(text.at);
    BERM_TEST_END();
}

Test(trace, bad_arguments) {
    heap_fixture_begin(NULL);
    EXPECT(BERM_ERROR_ARGUMENT, berm_trace_write(0, BERM_TRACE_CSV, NULL, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_trace_write(0, BERM_TRACE_FORM_COUNT, keep, NULL));
    EXPECT(BERM_ERROR_ARGUMENT, berm_trace_write(BERM_DEVICE_ANY, BERM_TRACE_RMM, keep, NULL));
    EXPECT(BERM_ERROR_DEVICE, berm_trace_write(7, BERM_TRACE_CSV, keep, NULL));
    BERM_TEST_END();
}

// One thread allocates, the other frees, through a mailbox: the list has each alloc before its
// free, and each address free before it is another's.
enum {
    BLOCKS = 20000
};
static _Atomic(berm_addr_t) mailbox;

static void *take_and_free(void *stream) {
    for (int i = 0; i < BLOCKS; i++) {
        berm_addr_t addr;
        while ((addr = atomic_exchange(&mailbox, 0)) == 0)
            (void)sched_yield();
        if (berm_free(addr, 0, stream) != BERM_OK)
            return stream;
    }
    return NULL;
}

typedef struct live {
    unsigned long long addr;
    bool is_live;
} live_t;

static void expect_alternating(const char *text) {
    static live_t live[4096];
    size_t count = 0, allocs = 0;
    memset(live, 0, sizeof live);
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        unsigned long long addr;
        char op[16];
        cr_assert(sscanf(line, "%*u,%15[a-z],%llu,", op, &addr) == 2, "%.40s", line);
        size_t i = 0;
        while (i < count && live[i].addr != addr)
            i++;
        if (i == count)
            live[count++].addr = addr;
        cr_assert(count < 4096);
        cr_assert(live[i].is_live != (strcmp(op, "alloc") == 0), "%.60s", line);
        live[i].is_live = !live[i].is_live;
        allocs += live[i].is_live;
    }
    cr_assert(allocs == BLOCKS, "%zu allocs", allocs);
}

Test(trace, order_of_two_threads, .timeout = 60) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1});
    pthread_t thread;
    void *result;
    cr_assert(pthread_create(&thread, NULL, take_and_free, NULL) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        berm_addr_t addr = heap_alloc(1000 + (uint64_t)i % 3000, NULL);
        while (atomic_load(&mailbox) != 0)
            (void)sched_yield();
        atomic_store(&mailbox, addr);
    }
    cr_assert(pthread_join(thread, &result) == 0 && result == NULL);
    text_t text = form_of(0, BERM_TRACE_REPLAY);
    expect_alternating(text.at);
    free(text.at);
    BERM_TEST_END();
}
