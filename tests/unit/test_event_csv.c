// SPDX-License-Identifier: Apache-2.0
// Event CSV: what it holds, and every row that does not fit.
#include "tests/unit/trace_helpers.h"

#define HEADER "event_index,op,id,size_bytes,stream\n"

Test(event_csv, reads_every_op) {
    trace_t *trace = th_read(HEADER "0,alloc,7,1024,5\n"
                                    "1,alloc,3,10,18446744073709551615\n"
                                    "2,free,7,1024,5\n"
                                    "3,oom,0,999,5\n"
                                    "4,free_done,7,1024,5\n"
                                    "5,free,3,0,5\n"
                                    "6,alloc,7,1,5\n");
    cr_assert(trace != NULL, "%s", th_error);
    static const struct {
        trace_op_t op;
        uint32_t block;
    } expected[] = {{TRACE_ALLOC, 0},     {TRACE_ALLOC, 1}, {TRACE_FREE, 0}, {TRACE_OOM, 2},
                    {TRACE_FREE_DONE, 0}, {TRACE_FREE, 1},  {TRACE_ALLOC, 3}};
    cr_assert(trace->event_count == 7);
    for (size_t i = 0; i < 7; i++) {
        cr_assert(trace->events[i].op == expected[i].op);
        cr_assert(trace->events[i].block == expected[i].block);
    }
    cr_assert(strcmp(trace->format, "event-csv") == 0 && strcmp(trace->path, "T") == 0);
    cr_assert(trace->stream_count == 2 && trace->streams[1] == UINT64_MAX);
    cr_assert(trace->blocks[0].is_deferred && !trace->blocks[1].is_deferred);
    cr_assert(trace->alloc_count == 3 && trace->free_count == 2 && trace->live_at_end == 1);
    cr_assert(trace->peak_live_bytes == 1034 && trace->live_before == 0);
    cr_assert(trace->source_reserved_peak_bytes == 0);
    trace_destroy(trace);
}

Test(event_csv, reads_crlf_quotes_other_columns_and_no_last_newline) {
    trace_t *trace = th_read("event_index,extra,\"op\",id,stream,size_bytes\r\n"
                             "0,x,\"alloc\",1,0,\"64\"\r\n"
                             "1,\"a,b\",free,1,0,64");
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->alloc_count == 1 && trace->free_count == 1 && trace->peak_live_bytes == 64);
    trace_destroy(trace);
}

Test(event_csv, a_header_alone_is_an_empty_trace) {
    trace_t *trace = th_read("event_index,op,id,size_bytes,stream");
    cr_assert(trace != NULL && trace->event_count == 0, "%s", th_error);
    trace_destroy(trace);
}

Test(event_csv, refuses_rows_that_do_not_fit_what_came_before) {
    th_refuse(HEADER "0,free,1,8,0\n", "T:2: free of id 1, which was never allocated");
    th_refuse(HEADER "0,free_done,1,8,0\n", "T:2: free_done of id 1, which was never allocated");
    th_refuse(HEADER "0,alloc,1,8,0\n1,alloc,1,8,0\n", "T:3: alloc of id 1, which is live");
    th_refuse(HEADER "0,alloc,1,8,0\n1,free,1,8,0\n2,free,1,8,0\n",
              "T:4: free of id 1, which was freed before");
    th_refuse(HEADER "0,alloc,1,8,0\n1,free,1,9,0\n",
              "T:3: free of id 1 with 9 bytes; its alloc had 8");
    th_refuse(HEADER "0,alloc,1,8,0\n1,free_done,1,8,0\n", "T:3: free_done of id 1, which is live");
    th_refuse(HEADER "0,alloc,1,8,0\n1,free,1,8,0\n2,free_done,1,8,0\n3,free_done,1,8,0\n",
              "T:5: free_done of id 1, which was done before");
    th_refuse(HEADER "0,alloc,1,8,0\n1,free,1,8,0\n2,alloc,1,8,0\n3,free_done,1,8,0\n",
              "T:5: free_done of id 1, which is live");
}

Test(event_csv, refuses_bad_values) {
    th_refuse(HEADER "0,alloc,1,0,0\n", "T:2: the size is 0");
    th_refuse(HEADER "0,alloc,1,4611686018427387905,0\n", "T:2: the size is larger than 2^62");
    th_refuse(HEADER "0,alloc,1,18446744073709551616,0\n",
              "T:2: size_bytes: \"18446744073709551616\" does not fit in 64 bits");
    th_refuse(HEADER "0,alloc,-1,1,0\n", "T:2: id: \"-1\" is not a whole number of 0 or more");
    th_refuse(HEADER "0,alloc,1,1,x\n", "T:2: stream: \"x\" is not a whole number of 0 or more");
    th_refuse(HEADER "0,malloc,1,1,0\n",
              "T:2: op: \"malloc\" is none of alloc, free, free_done, oom");
    th_refuse(HEADER "0,alloc,1,1\n", "T:2: 4 fields where the header has 5");
    th_refuse(HEADER "0,alloc,1\n", "T:2: 3 fields where the header has 5");
    th_refuse(HEADER "0,alloc,1,4611686018427387904,0\n1,alloc,2,4611686018427387904,0\n"
                     "2,alloc,3,1,0\n",
              "T:4: the live blocks add up to more than 2^63 bytes");
    th_refuse_bytes(HEADER "0,alloc,\0,1,0\n", sizeof HEADER + 14,
                    "T:2: a NUL byte; this is not a text file");
}

Test(event_csv, refuses_a_file_without_header) {
    trace_t *trace = th_read("0,alloc,1,8,0\n1,free,1,8,0\n");
    cr_assert(trace == NULL);
    cr_assert(strncmp(th_error, "T:1: is no trace", 16) == 0, "%s", th_error);
}
