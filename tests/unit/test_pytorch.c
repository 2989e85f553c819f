// SPDX-License-Identifier: Apache-2.0
// PyTorch snapshots: what was live before, deferred frees, reserved bytes, and the path of every
// value that is wrong.
#include "tests/unit/trace_helpers.h"

static trace_t *read_device(const char *literal, int device) {
    th_bytes_t bytes = th_pickle(literal);
    trace_read_options_t options = {.scale = 1, .device = device};
    th_error[0] = '\0';
    trace_t *trace =
        trace_read_memory("T", bytes.bytes, bytes.size, &options, th_error, sizeof th_error);
    free(bytes.bytes);
    return trace;
}

static trace_t *read_literal(const char *literal) {
    return read_device(literal, -1);
}

static void refuse(const char *literal, const char *line) {
    trace_t *trace = read_literal(literal);
    cr_assert(trace == NULL, "accepted; expected: %s", line);
    cr_assert(strcmp(th_error, line) == 0, "got:      %s\nexpected: %s", th_error, line);
}

typedef struct expected {
    trace_op_t op;
    uint64_t size_bytes;
    uint64_t time_us;
} expected_t;

static void expect_events(const trace_t *trace, const expected_t *expected, size_t count) {
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->event_count == count, "%zu events", trace->event_count);
    for (size_t i = 0; i < count; i++) {
        const trace_event_t *event = &trace->events[i];
        cr_assert(event->op == expected[i].op, "event %zu: op %d", i, event->op);
        cr_assert(trace->blocks[event->block].size_bytes == expected[i].size_bytes, "event %zu", i);
        cr_assert(event->time_us == expected[i].time_us, "event %zu", i);
    }
}

#define EVENT(action, addr, size, stream, time)                                                    \
    "{'action': '" action "', 'addr': " #addr ", 'size': " #size ", 'stream': " #stream            \
    ", 'time_us': " #time ", 'compile_context': 'N/A', 'user_metadata': '', 'pool_id': (0, 0)"     \
    ", 'frames': []}, "
#define SNAPSHOT(segments, events)                                                                 \
    "{'segments': [" segments "], 'device_traces': [[" events "]], 'allocator_settings': {}, "     \
    "'external_annotations': []}"
#define SEGMENT(address, total, blocks)                                                            \
    "{'device': 0, 'address': " #address ", 'total_size': " #total ", 'stream': 0, "               \
    "'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': None, 'blocks': "        \
    "[" blocks "], 'frames': []}, "
#define BLOCK(address, size, requested, state)                                                     \
    "{'address': " #address ", 'size': " #size ", 'requested_size': " #requested                   \
    ", 'state': '" state "', 'frames': []}, "

Test(pytorch, reads_allocs_and_frees) {
    trace_t *trace = read_literal(SNAPSHOT(
        "", EVENT("alloc", 4096, 100, 0, 1000) EVENT("alloc", 8192, 700, 77, 1005)
                EVENT("free_requested", 4096, 100, 0, 1010)
                    EVENT("free_completed", 4096, 100, 0, 1011) EVENT("alloc", 4096, 50, 0, 1020)));
    static const expected_t expected[] = {
        {TRACE_ALLOC, 100, 0}, {TRACE_ALLOC, 700, 5}, {TRACE_FREE, 100, 10}, {TRACE_ALLOC, 50, 20}};
    expect_events(trace, expected, 4);
    cr_assert(strcmp(trace->format, "pytorch-snapshot") == 0 && trace->device == 0);
    cr_assert(trace->stream_count == 2 && trace->streams[1] == 77);
    cr_assert(trace->alloc_count == 3 && trace->free_count == 1 && trace->live_at_end == 2);
    cr_assert(trace->peak_live_bytes == 800 && trace->live_before == 0);
    cr_assert(!trace->blocks[0].is_deferred);
    cr_assert(trace->source_reserved_peak_bytes == 0, "no segments: unknown");
    trace_destroy(trace);
}

Test(pytorch, blocks_live_before_come_first_in_the_order_of_addresses) {
    // 9000 is freed without alloc, 5000 held to the end without any event; 6000 was awaiting its
    // free before the recording and completes in it; 7000 is allocated in it; 8000 awaits.
    trace_t *trace = read_literal(SNAPSHOT(
        SEGMENT(5000, 10000,
                BLOCK(5000, 512, 500, "active_allocated") BLOCK(5512, 1488, 1, "inactive")
                    BLOCK(7000, 512, 400, "active_allocated")
                        BLOCK(8000, 512, 300, "active_pending_free")),
        EVENT("free_completed", 6000, 9, 0, 1) EVENT("alloc", 7000, 400, 0, 2)
            EVENT("free_requested", 9000, 200, 3, 3) EVENT("free_completed", 9000, 200, 3, 3)));
    static const expected_t expected[] = {
        {TRACE_ALLOC, 500, 0}, {TRACE_ALLOC, 200, 0}, {TRACE_ALLOC, 400, 1}, {TRACE_FREE, 200, 2}};
    expect_events(trace, expected, 4);
    cr_assert(trace->live_before == 2 && trace->live_at_end == 2);
    cr_assert(trace->streams[trace->blocks[1].stream] == 3);
    cr_assert(trace->peak_live_bytes == 1100);
    cr_assert(trace->source_reserved_at_peak_bytes == 10000);
    trace_destroy(trace);
}

Test(pytorch, a_free_that_completes_later_is_deferred) {
    trace_t *trace = read_literal(SNAPSHOT(
        "", EVENT("alloc", 10, 1, 0, 0) EVENT("alloc", 20, 2, 0, 1) EVENT("alloc", 30, 3, 0, 2)
                EVENT("free_requested", 10, 1, 0, 3) EVENT("free_requested", 20, 2, 0, 4)
                    EVENT("free_completed", 20, 2, 0, 5) EVENT("free_completed", 10, 1, 0, 6)
                        EVENT("free_requested", 30, 3, 0, 7)));
    static const expected_t expected[] = {
        {TRACE_ALLOC, 1, 0}, {TRACE_ALLOC, 2, 1},     {TRACE_ALLOC, 3, 2}, {TRACE_FREE, 1, 3},
        {TRACE_FREE, 2, 4},  {TRACE_FREE_DONE, 1, 6}, {TRACE_FREE, 3, 7},  {TRACE_FREE_DONE, 3, 7}};
    expect_events(trace, expected, 8);
    cr_assert(trace->blocks[0].is_deferred && !trace->blocks[1].is_deferred);
    cr_assert(trace->blocks[2].is_deferred, "never completed: done at the end");
    trace_destroy(trace);
}

Test(pytorch, an_alloc_ends_the_wait_for_its_address) {
    trace_t *trace = read_literal(
        SNAPSHOT("", EVENT("alloc", 10, 1, 0, 0) EVENT("free_requested", 10, 1, 0, 1)
                         EVENT("alloc", 10, 2, 0, 2) EVENT("free_completed", 10, 2, 0, 3)));
    static const expected_t expected[] = {{TRACE_ALLOC, 1, 0},
                                          {TRACE_FREE, 1, 1},
                                          {TRACE_FREE_DONE, 1, 2},
                                          {TRACE_ALLOC, 2, 2},
                                          {TRACE_FREE, 2, 3}};
    expect_events(trace, expected, 5); // and a completion alone frees
    cr_assert(!trace->blocks[1].is_deferred);
    trace_destroy(trace);
}

Test(pytorch, a_failed_alloc_is_an_event) {
    trace_t *trace = read_literal(
        "{'segments': [], 'device_traces': [[{'action': 'oom', 'device_free': 5, 'size': 99, "
        "'stream': 0, 'time_us': 3}, {'action': 'snapshot'}]]}");
    static const expected_t expected[] = {{TRACE_OOM, 99, 0}};
    expect_events(trace, expected, 1);
    cr_assert(trace->alloc_count == 0 && trace->peak_live_bytes == 0);
    trace_destroy(trace);
}

Test(pytorch, reserved_bytes_are_counted_back_from_the_end) {
    // 1000 are reserved at the end; the events add 700 and take 300: it began with 600.
    trace_t *trace = read_literal(
        SNAPSHOT(SEGMENT(0, 1000, ""),
                 EVENT("segment_alloc", 0, 500, 0, 0) EVENT("alloc", 10, 10, 0, 1)
                     EVENT("segment_map", 0, 200, 0, 2) EVENT("free_requested", 10, 10, 0, 3)
                         EVENT("free_completed", 10, 10, 0, 4) EVENT("segment_unmap", 0, 200, 0, 5)
                             EVENT("segment_free", 0, 100, 0, 6)));
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->source_reserved_at_peak_bytes == 1100);
    cr_assert(trace->source_reserved_peak_bytes == 1300);
    trace_destroy(trace);
    trace =
        read_literal(SNAPSHOT("", EVENT("segment_alloc", 0, 500, 0, 0) EVENT("alloc", 10, 10, 0, 1)
                                      EVENT("segment_free", 0, 500, 0, 2)));
    cr_assert(trace != NULL && trace->source_reserved_at_peak_bytes == 500, "%s", th_error);
    trace_destroy(trace);
    trace = read_literal(
        SNAPSHOT("", EVENT("segment_alloc", 0, 500, 0, 0) EVENT("alloc", 10, 10, 0, 1)));
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->source_reserved_peak_bytes == 0, "events and segments disagree: unknown");
    trace_destroy(trace);
}

Test(pytorch, reads_older_snapshots) {
    // No address and no requested size of blocks, no time, no device of the segment.
    trace_t *trace = read_literal(
        "{'segments': [{'address': 1000, 'total_size': 300, 'stream': 0, 'blocks': ["
        "{'size': 100, 'state': 'inactive'}, {'size': 200, 'state': 'active_allocated'}]}], "
        "'device_traces': [[{'action': 'free_requested', 'addr': 1000, 'size': 7, 'stream': 0}]]}");
    static const expected_t expected[] = {
        {TRACE_ALLOC, 7, 0}, {TRACE_ALLOC, 200, 0}, {TRACE_FREE, 7, 0}, {TRACE_FREE_DONE, 7, 0}};
    expect_events(trace, expected, 4);
    trace_destroy(trace);
}

Test(pytorch, chooses_the_device_with_most_events_or_the_one_asked_for) {
    static const char literal[] =
        "{'segments': [{'device': 1, 'address': 50, 'total_size': 10, 'stream': 0, 'blocks': ["
        "{'address': 50, 'size': 10, 'requested_size': 9, 'state': 'active_allocated'}]}], "
        "'device_traces': [[{'action': 'alloc', 'addr': 1, 'size': 5, 'stream': 0}], "
        "[{'action': 'alloc', 'addr': 1, 'size': 6, 'stream': 0}, "
        "{'action': 'alloc', 'addr': 2, 'size': 7, 'stream': 0}], []]}";
    trace_t *trace = read_device(literal, -1);
    cr_assert(trace != NULL && trace->device == 1 && trace->alloc_count == 3, "%s", th_error);
    trace_destroy(trace);
    trace = read_device(literal, 0);
    cr_assert(trace != NULL && trace->device == 0 && trace->alloc_count == 1, "%s", th_error);
    trace_destroy(trace);
    cr_assert(read_device(literal, 3) == NULL);
    cr_assert(strcmp(th_error, "T: device_traces[3]: the snapshot has no such device") == 0, "%s",
              th_error);
    cr_assert(read_device(literal, 2) == NULL);
    cr_assert(strstr(th_error, "T: device_traces[2]: no events; record them with ") != NULL, "%s",
              th_error);
}

#define ONE(event) "{'segments': [], 'device_traces': [[" event "]]}"

Test(pytorch, names_the_path_of_what_is_wrong) {
    refuse("[]", "T: the pickle: is list, not dict");
    refuse("None", "T: the pickle: is None, not dict");
    refuse("{'segments': []}", "T: device_traces: missing");
    refuse("{'device_traces': []}", "T: segments: missing");
    refuse("{'segments': 5, 'device_traces': []}", "T: segments: is int, not list");
    refuse("{'segments': [], 'device_traces': []}", "T: device_traces: no events; record them with "
                                                    "torch.cuda.memory._record_memory_history()");
    refuse("{'segments': [], 'device_traces': [[], ()]}",
           "T: device_traces[1]: is tuple, not list");
    refuse(ONE("7"), "T: device_traces[0][0]: is int, not dict");
    refuse(ONE("{'addr': 1}"), "T: device_traces[0][0].action: missing");
    refuse(ONE("{'action': 'dance'}"),
           "T: device_traces[0][0].action: is none that PyTorch records");
    refuse(ONE("{'action': 'alloc', 'addr': 1, 'stream': 0}"),
           "T: device_traces[0][0].size: missing");
    refuse(ONE("{'action': 'snapshot'}, {'action': 'alloc', 'size': 1, 'stream': 0}"),
           "T: device_traces[0][1].addr: missing");
    refuse(ONE("{'action': 'alloc', 'addr': 1, 'size': 1}"),
           "T: device_traces[0][0].stream: missing");
    refuse(ONE("{'action': 'alloc', 'addr': 1, 'size': 1, 'stream': 'x'}"),
           "T: device_traces[0][0].stream: is str, not int");
    refuse(ONE("{'action': 'alloc', 'addr': -1, 'size': 1, 'stream': 0}"),
           "T: device_traces[0][0].addr: is negative");
    refuse(ONE("{'action': 'alloc', 'addr': 1, 'size': None, 'stream': 0}"),
           "T: device_traces[0][0].size: is None, not int");
    refuse(ONE(EVENT("alloc", 1, 0, 0, 0)), "T: device_traces[0][0]: the size is 0");
    refuse(ONE(EVENT("alloc", 1, 0x4000000000000001, 0, 0)),
           "T: device_traces[0][0]: the size is larger than 2^62");
    refuse(ONE(EVENT("free_requested", 16, 0, 0, 0)),
           "T: the block at 0x10, live before the recording: the size is 0");
}

Test(pytorch, names_the_event_that_contradicts_earlier_ones) {
    refuse(ONE(EVENT("alloc", 1, 1, 0, 0) EVENT("alloc", 1, 1, 0, 0)),
           "T: device_traces[0][1].addr: allocated while it is live");
    refuse(ONE(EVENT("alloc", 1, 1, 0, 0) EVENT("free_requested", 1, 1, 0, 0)
                   EVENT("free_requested", 1, 1, 0, 0)),
           "T: device_traces[0][2].addr: freed twice");
    refuse(ONE(EVENT("alloc", 1, 1, 0, 0) EVENT("free_requested", 1, 1, 0, 0)
                   EVENT("free_completed", 1, 1, 0, 0) EVENT("free_completed", 1, 1, 0, 0)),
           "T: device_traces[0][3].addr: freed twice");
    refuse(ONE(EVENT("free_requested", 1, 1, 0, 0) EVENT("alloc", 2, 1, 0, 0)
                   EVENT("free_requested", 1, 1, 0, 0)),
           "T: device_traces[0][2].addr: freed twice");
}

#define WITH(segment)                                                                              \
    "{'device_traces': [[" EVENT("alloc", 1, 1, 0, 0) "]], 'segments': [" segment "]}"

Test(pytorch, names_the_path_in_segments) {
    refuse(WITH("3"), "T: segments[0]: is int, not dict");
    refuse(WITH("{'device': 0}"), "T: segments[0].address: missing");
    refuse(WITH("{'device': 9}, {'address': 1}"), "T: segments[1].total_size: missing");
    refuse(WITH("{'address': 1, 'total_size': 1, 'stream': 0}"), "T: segments[0].blocks: missing");
    refuse(WITH("{'address': 1, 'total_size': 1, 'stream': 0, 'blocks': [0]}"),
           "T: segments[0].blocks[0]: is int, not dict");
    refuse(WITH("{'address': 1, 'total_size': 1, 'stream': 0, 'blocks': [{'size': 1}]}"),
           "T: segments[0].blocks[0].state: missing");
    refuse(WITH("{'address': 1, 'total_size': 1, 'stream': 0, 'blocks': [{'state': 'x'}]}"),
           "T: segments[0].blocks[0].size: missing");
}

Test(pytorch, refuses_values_repeated_without_end, .timeout = 30) {
    // 100,000 segments that are one, each with 100,000 blocks that are one.
    th_bytes_t bytes = {0};
    th_put_text(&bytes, "}(U\x0d"
                        "device_traces](]");
    th_bytes_t event = th_pickle(EVENT("alloc", 1, 1, 0, 0));
    th_put(&bytes, event.bytes + 2, event.size - 3);
    th_put_text(&bytes, "aeU\x08segments](}(U\x07"
                        "addressK\x01U\x0atotal_sizeK\x01U\x06streamK\x01U\x06"
                        "blocks](");
    th_bytes_t block = th_pickle("{'size': 0, 'state': 'inactive'}");
    th_put(&bytes, block.bytes + 2, block.size - 3);
    th_put_repeated(&bytes, '2', 100000);
    th_put_text(&bytes, "eu");
    th_put_repeated(&bytes, '2', 100000);
    th_put_text(&bytes, "eu.");
    trace_t *trace = th_read_bytes(bytes.bytes, bytes.size);
    cr_assert(trace == NULL);
    cr_assert(strstr(th_error, "the same values are repeated more often than a snapshot does"),
              "%s", th_error);
    free(bytes.bytes);
    free(block.bytes);
    free(event.bytes);
}

Test(pytorch, refuses_a_dict_too_large_to_search) {
    th_bytes_t bytes = {0};
    th_put_text(&bytes, "}(U\x08segments]U\x0d"
                        "device_traces](](}(");
    th_put_repeated(&bytes, 'N', 130);
    th_put_text(&bytes, "ueeu.");
    th_refuse_bytes(bytes.bytes, bytes.size,
                    "T: device_traces[0][0]: has more keys than a snapshot's dicts do");
    free(bytes.bytes);
}

Test(pytorch, values_that_contain_themselves_do_not_hang, .timeout = 30) {
    // device_traces is a list whose items are itself; and a list of a list that holds itself.
    static const char one[] = "}(U\x08segments]U\x0d"
                              "device_traces]q\x00(h\x00h\x00"
                              "eu.";
    th_refuse_bytes(one, sizeof one - 1, "T: device_traces[0][0]: is list, not dict");
    static const char two[] = "}q\x01(U\x08segments]q\x00h\x00"
                              "aU\x0d"
                              "device_traces](](h\x01"
                              "eeu.";
    th_refuse_bytes(two, sizeof two - 1, "T: device_traces[0][0].action: missing");
}
