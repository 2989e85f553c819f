// SPDX-License-Identifier: Apache-2.0
// RMM logs: actions, times over midnight, reuse of pointers, and every row that does not fit.
#include "tests/unit/trace_helpers.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

Test(rmm_csv, reads_a_log) {
    trace_t *trace = th_read(HEADER "140,11:22:33.000100,allocate,0x7f0000000000,1024,0x0\n"
                                    "140,11:22:33.000350,allocate,0x7f0000000400,16,0x2\n"
                                    "141,11:22:33.000340,free,0x7f0000000000,0,0x0\n"
                                    "141,11:22:34.5,allocate failure,(nil),99999999,(nil)\n"
                                    "141,11:22:34:600000,allocate,0x7f0000000000,512,2\n"
                                    "141,11:22:35,free,0x7f0000000000,512,2\n");
    cr_assert(trace != NULL, "%s", th_error);
    static const struct {
        trace_op_t op;
        uint32_t block;
        uint64_t time_us;
    } expected[] = {{TRACE_ALLOC, 0, 0},     {TRACE_ALLOC, 1, 250},     {TRACE_FREE, 0, 250},
                    {TRACE_OOM, 2, 1499900}, {TRACE_ALLOC, 3, 1599900}, {TRACE_FREE, 3, 1999900}};
    cr_assert(trace->event_count == 6);
    for (size_t i = 0; i < 6; i++) {
        cr_assert(trace->events[i].op == expected[i].op, "event %zu", i);
        cr_assert(trace->events[i].block == expected[i].block, "event %zu", i);
        cr_assert(trace->events[i].time_us == expected[i].time_us, "event %zu", i);
    }
    cr_assert(strcmp(trace->format, "rmm-csv") == 0);
    cr_assert(trace->stream_count == 2 && trace->streams[0] == 0 && trace->streams[1] == 2);
    cr_assert(trace->peak_live_bytes == 1040 && trace->live_at_end == 1);
    trace_destroy(trace);
}

Test(rmm_csv, time_goes_on_over_midnight) {
    trace_t *trace = th_read(HEADER "1,23:59:59.900000,allocate,0x10,1,0\n"
                                    "1,00:00:00.100000,allocate,0x20,1,0\n"
                                    "1,23:59:59.950000,allocate,0x30,1,0\n");
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->events[1].time_us == 200000);
    cr_assert(trace->events[2].time_us == 200000, "a late row does not turn time back");
    trace_destroy(trace);
}

Test(rmm_csv, passes_over_requests_of_nothing) {
    trace_t *trace = th_read(HEADER "1,00:00:00.0,allocate,0x0,0,0\n"
                                    "1,00:00:00.0,free,(nil),0,0\n"
                                    "1,00:00:00.0,allocate,0x100,8,0\n");
    cr_assert(trace != NULL, "%s", th_error);
    cr_assert(trace->event_count == 1 && trace->blocks[0].size_bytes == 8);
    trace_destroy(trace);
}

Test(rmm_csv, refuses_rows_that_do_not_fit_what_came_before) {
    th_refuse(HEADER "1,00:00:00.0,free,0x10,8,0\n",
              "T:2: free of 0x10, which was never allocated");
    th_refuse(HEADER "1,00:00:00.0,allocate,0x10,8,0\n1,00:00:00.0,allocate,0x10,8,0\n",
              "T:3: allocate of 0x10, which is live");
    th_refuse(HEADER "1,00:00:00.0,allocate,0x10,8,0\r\n1,00:00:00.0,free,0x10,8,0\r\n"
                     "1,00:00:00.0,free,0x10,8,0\r\n",
              "T:4: free of 0x10, which was freed before");
}

Test(rmm_csv, refuses_bad_values) {
    th_refuse(HEADER "1,noon,allocate,0x10,8,0\n",
              "T:2: Time: \"noon\" is not HH:MM:SS.microseconds");
    th_refuse(HEADER "1,24:00:00.0,allocate,0x10,8,0\n",
              "T:2: Time: \"24:00:00.0\" is not HH:MM:SS.microseconds");
    th_refuse(HEADER "1,00:00:00.1234567,allocate,0x10,8,0\n",
              "T:2: Time: \"00:00:00.1234567\" is not HH:MM:SS.microseconds");
    th_refuse(HEADER "1,00:00:00.0,allocate,0xzz,8,0\n",
              "T:2: Pointer: \"0xzz\" is not a whole number of 0 or more");
    th_refuse(HEADER "1,00:00:00.0,allocate,0x10,8.5,0\n",
              "T:2: Size: \"8.5\" is not a whole number of 0 or more");
    th_refuse(HEADER "1,00:00:00.0,allocate,0x10,0,0\n", "T:2: the size is 0");
    th_refuse(HEADER "1,00:00:00.0,allocate,0x10,9223372036854775807,0\n",
              "T:2: the size is larger than 2^62");
    th_refuse(HEADER "1,00:00:00.0,resize,0x10,8,0\n",
              "T:2: Action: \"resize\" is none of allocate, allocate failure, free");
    th_refuse(HEADER "1,00:00:00.0,free,0x10,8\n", "T:2: 5 fields where the header has 6");
    th_refuse(HEADER "\"1,00:00:00.0,free,0x10,8,0\n",
              "T:2: a quoted field is not closed on its line");
}
