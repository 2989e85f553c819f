// SPDX-License-Identifier: Apache-2.0
// The builder of traces and the checker: each numbered invariant is broken by hand and must be
// found by its number.
#include "stress/trace/trace.h"

#include "tests/unit/trace_helpers.h"

static trace_builder_t *start(void) {
    trace_builder_t *builder = trace_builder_create("T", "generated");
    cr_assert(builder != NULL);
    return builder;
}

static trace_t *finish(trace_builder_t *builder) {
    trace_t *trace = trace_builder_finish(builder, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    return trace;
}

// alloc 0 (100 on stream 9), alloc 1 (200 on 7), free 0 awaited, oom 2, done 0, free 1, alloc 3
static trace_t *make_sample(void) {
    trace_builder_t *builder = start();
    uint32_t block;
    cr_assert(trace_builder_alloc(builder, 100, 9, 1, &block) == 0 && block == 0);
    cr_assert(trace_builder_alloc(builder, 200, 7, 2, &block) == 0 && block == 1);
    cr_assert(trace_builder_free(builder, 0, true, 3) == 0);
    cr_assert(trace_builder_oom(builder, 5000, 7, 4) == 0);
    cr_assert(trace_builder_free_done(builder, 0, 5) == 0);
    cr_assert(trace_builder_free(builder, 1, false, 6) == 0);
    cr_assert(trace_builder_alloc(builder, 1, 9, 7, &block) == 0 && block == 3);
    return finish(builder);
}

Test(trace, counts_what_was_built) {
    trace_t *trace = make_sample();
    cr_assert(trace->event_count == 7 && trace->block_count == 4);
    cr_assert(trace->alloc_count == 3 && trace->free_count == 2 && trace->live_at_end == 1);
    cr_assert(trace->peak_live_bytes == 300);
    cr_assert(trace->stream_count == 2 && trace->streams[0] == 9 && trace->streams[1] == 7);
    cr_assert(trace->blocks[1].stream == 1 && trace->blocks[3].stream == 0);
    cr_assert(trace->blocks[0].is_deferred && !trace->blocks[1].is_deferred);
    cr_assert(trace->events[3].op == TRACE_OOM && trace->blocks[2].size_bytes == 5000);
    cr_assert(trace->events[4].op == TRACE_FREE_DONE && trace->events[4].time_us == 5);
    cr_assert(strcmp(trace->path, "T") == 0 && strcmp(trace->format, "generated") == 0);
    trace_destroy(trace);
    trace_destroy(NULL);
}

Test(trace, an_empty_trace_is_a_trace) {
    trace_t *trace = finish(start());
    cr_assert(trace->event_count == 0 && trace->peak_live_bytes == 0);
    trace_destroy(trace);
}

Test(trace, awaited_blocks_are_done_at_the_end) {
    trace_builder_t *builder = start();
    uint32_t block;
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(trace_builder_alloc(builder, 10, 0, i, &block) == 0);
        cr_assert(trace_builder_free(builder, block, i != 1, i) == 0);
    }
    trace_t *trace = finish(builder);
    cr_assert(trace->event_count == 8);
    cr_assert(trace->events[6].op == TRACE_FREE_DONE && trace->events[6].block == 0);
    cr_assert(trace->events[7].op == TRACE_FREE_DONE && trace->events[7].block == 2);
    cr_assert(trace->events[7].time_us == 2, "at the time of the last event");
    trace_destroy(trace);
}

Test(trace, the_builder_refuses_what_cannot_be) {
    trace_builder_t *builder = start();
    uint32_t block;
    cr_assert(trace_builder_alloc(builder, 0, 0, 0, &block) == -1);
    cr_assert(strcmp(builder->failure, "the size is 0") == 0);
    cr_assert(trace_builder_alloc(builder, TRACE_SIZE_MAX + 1, 0, 0, &block) == -1);
    cr_assert(trace_builder_alloc(builder, UINT64_MAX, 0, 0, &block) == -1);
    cr_assert(strcmp(builder->failure, "the size is larger than 2^62") == 0);
    cr_assert(trace_builder_oom(builder, 0, 0, 0) == -1);
    cr_assert(trace_builder_alloc(builder, TRACE_SIZE_MAX, 0, 0, &block) == 0);
    cr_assert(trace_builder_alloc(builder, TRACE_SIZE_MAX, 0, 0, &block) == 0);
    cr_assert(trace_builder_alloc(builder, 1, 0, 0, &block) == -1);
    cr_assert(strcmp(builder->failure, "the live blocks add up to more than 2^63 bytes") == 0);
    cr_assert(trace_builder_free_done(builder, 0, 0) == -1);
    cr_assert(strcmp(builder->failure, "the block was not freed before") == 0);
    cr_assert(trace_builder_free(builder, 0, false, 0) == 0);
    cr_assert(trace_builder_free(builder, 0, false, 0) == -1);
    cr_assert(strcmp(builder->failure, "the block is not live") == 0);
    cr_assert(trace_builder_free_done(builder, 0, 0) == 0);
    cr_assert(trace_builder_free_done(builder, 0, 0) == -1);
    cr_assert(trace_builder_oom(builder, 7, 0, 0) == 0);
    cr_assert(trace_builder_free(builder, 2, false, 0) == -1, "a failed block is never live");
    trace_t *trace = finish(builder);
    cr_assert(trace->event_count == 5, "a refused event leaves nothing behind");
    trace_destroy(trace);
}

static void expect_broken(trace_t *trace, const char *text) {
    th_error[0] = '\0';
    cr_assert(trace_check(trace, th_error, sizeof th_error) == -1, "not found: %s", text);
    cr_assert(strstr(th_error, text) != NULL, "got:      %s\nexpected: %s", th_error, text);
    trace_destroy(trace);
}

Test(trace, each_broken_invariant_is_found_by_its_number) {
    trace_t *trace = make_sample();
    cr_assert(trace_check(trace, th_error, sizeof th_error) == 0);
    trace->events[2].block = 99;
    expect_broken(trace, "T: event 2: invariant 1");
    trace = make_sample();
    trace->blocks[1].stream = 2;
    expect_broken(trace, "T: event 1: invariant 1");
    trace = make_sample();
    trace->events[2].op = 77;
    expect_broken(trace, "T: event 2: invariant 1");
    trace = make_sample();
    trace->events[0].block = 1;
    expect_broken(trace, "T: event 0: invariant 2");
    trace = make_sample();
    trace->events[0].op = TRACE_FREE;
    expect_broken(trace, "T: event 0: invariant 2");
    trace = make_sample();
    trace->event_count = 6;
    expect_broken(trace, "T: invariant 2");
    trace = make_sample();
    trace->events[5].block = 0;
    expect_broken(trace, "T: event 5: invariant 3");
    trace = make_sample();
    trace->blocks[0].is_deferred = false;
    expect_broken(trace, "T: event 4: invariant 4");
    trace = make_sample();
    trace->blocks[1].is_deferred = true;
    expect_broken(trace, "T: invariant 4");
    trace = make_sample();
    trace->blocks[3].is_deferred = true;
    expect_broken(trace, "T: invariant 4");
    trace = make_sample();
    trace->blocks[1].size_bytes = 0;
    expect_broken(trace, "T: event 1: invariant 5");
    trace = make_sample();
    trace->blocks[2].size_bytes = TRACE_SIZE_MAX + 1;
    expect_broken(trace, "T: event 3: invariant 5");
    trace = make_sample();
    trace->live_before = 3;
    expect_broken(trace, "T: event 2: invariant 6");
    trace = make_sample();
    trace->live_at_end = 0;
    expect_broken(trace, "T: invariant 7");
    trace = make_sample();
    trace->peak_live_bytes++;
    expect_broken(trace, "T: invariant 7");
}
