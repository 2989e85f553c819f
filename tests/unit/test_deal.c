// SPDX-License-Identifier: Apache-2.0
// Traces dealt over streams: the same sizes in the same order, a correct program, by the seed.
#include "stress/trace/deal.h"

#include "stress/trace/generate.h"
#include "stress/trace/trace_builder.h"
#include "tests/unit/trace_helpers.h"

static trace_t *recorded(void) {
    const trace_generate_options_t options = {
        .operations = 4000, .max_size_bytes = BERM_MIB(64), .live_cap_bytes = BERM_GIB(2)};
    trace_t *trace = trace_generate("random", &options, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    return trace;
}

static trace_t *deal(const trace_t *trace, uint64_t streams, uint64_t seed) {
    trace_t *dealt = trace_deal(trace, streams, seed, th_error, sizeof th_error);
    cr_assert(dealt != NULL, "%s", th_error);
    cr_assert(trace_check(dealt, th_error, sizeof th_error) == 0, "%s", th_error);
    return dealt;
}

static size_t deferred_count(const trace_t *trace) {
    size_t count = 0;
    for (size_t i = 0; i < trace->block_count; i++)
        count += trace->blocks[i].is_deferred;
    return count;
}

// Allocs and frees of both, leaving out the ends of deferred frees, are the same.
static void same_program(const trace_t *a, const trace_t *b) {
    size_t i = 0, j = 0;
    while (i < a->event_count || j < b->event_count) {
        while (i < a->event_count && a->events[i].op == TRACE_FREE_DONE)
            i++;
        while (j < b->event_count && b->events[j].op == TRACE_FREE_DONE)
            j++;
        cr_assert((i < a->event_count) == (j < b->event_count));
        if (i == a->event_count)
            return;
        cr_assert(a->events[i].op == b->events[j].op && a->events[i].block == b->events[j].block);
        cr_assert(a->blocks[a->events[i].block].size_bytes ==
                  b->blocks[b->events[j].block].size_bytes);
        i++;
        j++;
    }
}

static bool are_equal(const trace_t *a, const trace_t *b) {
    if (a->event_count != b->event_count)
        return false;
    for (size_t i = 0; i < a->event_count; i++)
        if (a->events[i].op != b->events[i].op || a->events[i].block != b->events[i].block)
            return false;
    for (size_t i = 0; i < a->block_count; i++)
        if (a->blocks[i].stream != b->blocks[i].stream)
            return false;
    return true;
}

Test(deal, keeps_sizes_and_order) {
    trace_t *trace = recorded();
    for (uint64_t streams = 1; streams <= 16; streams *= 4) {
        trace_t *dealt = deal(trace, streams, 7);
        cr_assert(dealt->stream_count == streams, "every stream has its turns");
        same_program(trace, dealt);
        cr_assert(dealt->peak_live_bytes == trace->peak_live_bytes);
        size_t deferred = deferred_count(dealt);
        if (streams == 1)
            cr_assert(deferred == 0);
        else
            cr_assert(deferred > trace->free_count / 5 && deferred < trace->free_count / 3,
                      "a quarter, not %zu of %zu", deferred, trace->free_count);
        trace_destroy(dealt);
    }
    trace_destroy(trace);
}

Test(deal, by_the_seed) {
    trace_t *trace = recorded();
    trace_t *one = deal(trace, 4, 1), *same = deal(trace, 4, 1), *other = deal(trace, 4, 2);
    cr_assert(are_equal(one, same) && !are_equal(one, other));
    trace_destroy(one);
    trace_destroy(same);
    trace_destroy(other);
    trace_destroy(trace);
}

#define HEAD "event_index,op,id,size_bytes,stream\n"

// What was live before, was deferred, or failed when it was recorded.
Test(deal, keeps_deferred_frees_and_failures) {
    static const char text[] = HEAD "0,alloc,1,1048576,0\n"
                                    "1,free,1,1048576,0\n"
                                    "2,oom,0,4096,0\n"
                                    "3,alloc,2,2048,9\n"
                                    "4,free_done,1,1048576,0\n";
    const trace_read_options_t options = {.scale = 1, .device = -1};
    trace_t *trace =
        trace_read_memory("hand", text, strlen(text), &options, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    trace_t *dealt = deal(trace, 1, 0);
    cr_assert(dealt->event_count == 5 && dealt->stream_count == 1);
    cr_assert(dealt->events[2].op == TRACE_OOM && dealt->blocks[1].size_bytes == 4096);
    cr_assert(dealt->events[4].op == TRACE_FREE_DONE && dealt->blocks[0].is_deferred);
    cr_assert(dealt->live_at_end == 1);
    trace_destroy(dealt);
    dealt = deal(trace, 16, 3); // with fewer blocks than streams each alloc gives the turn
    cr_assert(dealt->event_count >= 5);
    trace_destroy(dealt);
    trace_destroy(trace);
}
