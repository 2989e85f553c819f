// SPDX-License-Identifier: Apache-2.0
// The part of a trace whose requests are small.
#include "stress/trace/select.h"

#include "tests/unit/trace_helpers.h"

#define HEAD "event_index,op,id,size_bytes,stream\n"

static const char text[] = HEAD "0,alloc,1,1048577,0\n"
                                "1,alloc,2,1048576,7\n"
                                "2,oom,0,4194304,0\n"
                                "3,alloc,3,512,0\n"
                                "4,free,1,1048577,0\n"
                                "5,free,2,1048576,7\n"
                                "6,oom,0,4096,7\n"
                                "7,free,3,512,0\n"
                                "8,free_done,2,1048576,7\n"
                                "9,free_done,1,1048577,0\n";

static trace_t *selected(uint64_t most_bytes) {
    const trace_read_options_t options = {.scale = 1, .device = -1};
    trace_t *trace =
        trace_read_memory("hand", text, strlen(text), &options, th_error, sizeof th_error);
    cr_assert(trace != NULL, "%s", th_error);
    trace_t *part = trace_select_small(trace, most_bytes, th_error, sizeof th_error);
    cr_assert(part != NULL, "%s", th_error);
    cr_assert(trace_check(part, th_error, sizeof th_error) == 0, "%s", th_error);
    trace_destroy(trace);
    return part;
}

Test(select, leaves_larger_requests_out) {
    trace_t *part = selected(1048576);
    static const uint8_t ops[] = {TRACE_ALLOC, TRACE_ALLOC, TRACE_FREE,
                                  TRACE_OOM,   TRACE_FREE,  TRACE_FREE_DONE};
    cr_assert(part->event_count == 6 && part->block_count == 3 && part->stream_count == 2);
    for (size_t i = 0; i < 6; i++)
        cr_assert(part->events[i].op == ops[i]);
    cr_assert(part->blocks[0].size_bytes == 1048576 && part->streams[part->blocks[0].stream] == 7);
    cr_assert(part->blocks[0].is_deferred && !part->blocks[1].is_deferred);
    cr_assert(part->peak_live_bytes == 1048576 + 512 && part->live_at_end == 0);
    trace_destroy(part);
}

Test(select, all_or_nothing) {
    trace_t *part = selected(UINT64_C(1) << 40);
    cr_assert(part->event_count == 10 && part->peak_live_bytes == 1048577 + 1048576 + 512);
    trace_destroy(part);
    part = selected(1);
    cr_assert(part->event_count == 0 && part->block_count == 0);
    trace_destroy(part);
}
