// SPDX-License-Identifier: Apache-2.0
// A running heap's events in four forms, each read back: the same sequence, block for block. And
// recordings that were damaged are refused, or read, but never believed to be more than they are.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "berm_diagnose.h"
#include "base/rng.h"
#include "stress/trace/recording.h"
#include "tests/support/heap_fixture.h"

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

static text_t form_of(berm_trace_form_t form) {
    text_t text = {0};
    cr_assert(berm_trace_write(0, form, keep, &text) == BERM_OK, "%s", berm_error_message());
    return text;
}

// Random blocks on two streams, some freed on the other one.
static void churn(unsigned steps) {
    enum {
        LIVE = 60
    };
    berm_addr_t blocks[LIVE] = {0};
    void *streams[2] = {heap_stream_create(), heap_stream_create()}, *owner[LIVE] = {0};
    berm_rng_t rng;
    berm__rng_seed(&rng, 7);
    for (unsigned i = 0; i < steps; i++) {
        unsigned slot = (unsigned)berm__rng_below(&rng, LIVE);
        if (blocks[slot] != 0) {
            bool is_own = berm__rng_below(&rng, 8) != 0;
            heap_free(blocks[slot], is_own ? owner[slot] : streams[owner[slot] == streams[0]]);
            blocks[slot] = 0;
            continue;
        }
        owner[slot] = streams[berm__rng_below(&rng, 2)];
        uint64_t most = berm__rng_below(&rng, 3) == 0 ? 3 << 20 : 50 << 10;
        blocks[slot] = heap_alloc(1 + berm__rng_below(&rng, most), owner[slot]);
    }
}

static trace_t *read_form(berm_trace_form_t form) {
    char error[300] = "";
    text_t text = form_of(form);
    trace_t *trace = trace_read_memory("T", text.at, text.length, NULL, error, sizeof error);
    cr_assert(trace != NULL, "form %d: %s", (int)form, error);
    free(text.at);
    return trace;
}

// What the pickle alone knows: the ends of frees that other streams were waited for.
static bool next_event(const trace_t *trace, size_t *at, trace_event_t *event) {
    while (*at < trace->event_count && trace->events[*at].op == TRACE_FREE_DONE)
        ++*at;
    if (*at == trace->event_count)
        return false;
    *event = trace->events[(*at)++];
    return true;
}

static void expect_same(const trace_t *one, const trace_t *other) {
    size_t i = 0, j = 0, count = 0;
    trace_event_t a, b;
    cr_assert(one->block_count == other->block_count, "%s %zu, %s %zu", one->format,
              one->block_count, other->format, other->block_count);
    for (bool more = next_event(one, &i, &a); more; more = next_event(one, &i, &a), count++) {
        cr_assert(next_event(other, &j, &b), "%s ends at event %zu", other->format, count);
        cr_assert(a.op == b.op && a.block == b.block, "event %zu: op %d of %u, in %s op %d of %u",
                  count, a.op, a.block, other->format, b.op, b.block);
        cr_assert(one->blocks[a.block].size_bytes == other->blocks[b.block].size_bytes);
    }
    cr_assert(!next_event(other, &j, &b), "%s goes on", other->format);
}

Test(recording, every_form_is_the_same_sequence, .timeout = 120) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .memory_bytes = 1ull << 30});
    churn(20000);
    trace_t *own = read_form(BERM_TRACE_RECORDING);
    cr_assert(own->event_count > 19000 && strcmp(own->format, "berm-recording") == 0);
    static const berm_trace_form_t forms[] = {BERM_TRACE_PYTORCH, BERM_TRACE_RMM,
                                              BERM_TRACE_REPLAY};
    for (size_t i = 0; i < 3; i++) {
        trace_t *trace = read_form(forms[i]);
        expect_same(own, trace);
        trace_destroy(trace);
    }
    trace_destroy(own);
    BERM_TEST_END();
}

// More than the ring has: what lived before the first event that is left.
Test(recording, of_a_ring_that_went_round, .timeout = 120) {
    heap_fixture_begin(&(heap_fixture_options_t){.has_caches = 1, .memory_bytes = 1ull << 30});
    berm_addr_t old = heap_alloc(7777777, NULL);
    for (unsigned i = 0; i < 300000; i++) {
        berm_addr_t one = heap_alloc(1000, NULL), two = heap_alloc(2000, NULL);
        heap_free(one, NULL);
        heap_free(two, NULL);
    }
    trace_t *own = read_form(BERM_TRACE_RECORDING), *pickle = read_form(BERM_TRACE_PYTORCH);
    cr_assert(own->event_count > 100000 && own->event_count < 1200000);
    cr_assert(own->blocks[0].size_bytes == 7777777 || own->blocks[1].size_bytes == 7777777 ||
              own->blocks[2].size_bytes == 7777777);
    expect_same(own, pickle);
    trace_destroy(own);
    trace_destroy(pickle);
    heap_free(old, NULL);
    BERM_TEST_END();
}

// A byte changed anywhere: read or refused, with a line.
Test(recording, damaged, .timeout = 120) {
    heap_fixture_begin(NULL);
    churn(60);
    text_t text = form_of(BERM_TRACE_RECORDING);
    unsigned refused = 0;
    berm_rng_t rng;
    berm__rng_seed(&rng, 3);
    for (unsigned i = 0; i < 3000; i++) {
        char error[300] = "";
        size_t at = berm__rng_below(&rng, text.length);
        char kept = text.at[at];
        text.at[at] = "0123456789-,[]{}\"x\0"[berm__rng_below(&rng, 19)];
        trace_input_t input = {.name = "T", .bytes = (const uint8_t *)text.at, .size = text.length};
        berm_record_t *record = recording_read(&input, error, sizeof error);
        cr_assert((record == NULL) == (error[0] != '\0'));
        refused += record == NULL;
        recording_free(record);
        text.at[at] = kept;
    }
    cr_assert(refused > 1000, "%u", refused);
    free(text.at);
    BERM_TEST_END();
}
