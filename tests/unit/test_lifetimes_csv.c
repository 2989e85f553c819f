// SPDX-License-Identifier: Apache-2.0
// Lifetimes CSV: the order of events, the scale, and every row that does not fit.
#include "tests/unit/trace_helpers.h"

#define HEADER "id,lower,upper,size\n"

static trace_t *read_scaled(const char *text, uint64_t scale) {
    trace_read_options_t options = {.scale = scale, .device = -1};
    th_error[0] = '\0';
    return trace_read_memory("T", text, strlen(text), &options, th_error, sizeof th_error);
}

Test(lifetimes_csv, frees_come_before_allocs_and_both_in_the_order_of_ids) {
    trace_t *trace = th_read(HEADER "9,0,5,10\n"
                                    "4,0,5,20\n"
                                    "7,5,6,30\n"
                                    "2,5,9,40\n"
                                    "1,6,7,50\n");
    cr_assert(trace != NULL, "%s", th_error);
    static const struct {
        trace_op_t op;
        uint64_t size_bytes;
    } expected[] = {{TRACE_ALLOC, 20}, {TRACE_ALLOC, 10}, {TRACE_FREE, 20}, {TRACE_FREE, 10},
                    {TRACE_ALLOC, 40}, {TRACE_ALLOC, 30}, {TRACE_FREE, 30}, {TRACE_ALLOC, 50},
                    {TRACE_FREE, 50},  {TRACE_FREE, 40}};
    cr_assert(trace->event_count == 10);
    for (size_t i = 0; i < 10; i++) {
        cr_assert(trace->events[i].op == expected[i].op, "event %zu", i);
        cr_assert(trace->blocks[trace->events[i].block].size_bytes == expected[i].size_bytes,
                  "event %zu", i);
    }
    cr_assert(trace->peak_live_bytes == 90 && trace->live_at_end == 0);
    cr_assert(strcmp(trace->format, "lifetimes-csv") == 0);
    trace_destroy(trace);
}

Test(lifetimes_csv, sizes_are_scaled) {
    trace_t *trace = read_scaled(HEADER "0,0,1,3\n", 65536);
    cr_assert(trace != NULL && trace->peak_live_bytes == 3 * 65536, "%s", th_error);
    trace_destroy(trace);
    trace = read_scaled(HEADER "0,0,1,3\n", 0);
    cr_assert(trace != NULL && trace->peak_live_bytes == 3, "%s", th_error);
    trace_destroy(trace);
    trace = read_scaled(HEADER "0,0,1,2\n", UINT64_C(1) << 61);
    cr_assert(trace != NULL && trace->peak_live_bytes == TRACE_SIZE_MAX, "%s", th_error);
    trace_destroy(trace);
    cr_assert(read_scaled(HEADER "0,0,1,3\n", UINT64_C(1) << 61) == NULL);
    cr_assert(strcmp(th_error,
                     "T:2: size 3 times the scale 2305843009213693952 is larger than 2^62") == 0);
    cr_assert(read_scaled(HEADER "0,0,1,18446744073709551615\n", 3) == NULL);
    cr_assert(strstr(th_error, "T:2: size 18446744073709551615 times") == th_error);
}

Test(lifetimes_csv, refuses_rows_that_do_not_fit) {
    th_refuse(HEADER "0,5,5,1\n", "T:2: upper 5 is not after lower 5");
    th_refuse(HEADER "0,5,4,1\n", "T:2: upper 4 is not after lower 5");
    th_refuse(HEADER "0,0,1,0\n", "T:2: the size is 0");
    th_refuse(HEADER "0,0,1,1\n3,0,1,1\n0,7,8,1\n", "T:4: id 0 is in an earlier row too");
    th_refuse(HEADER "0,0,1\n", "T:2: 3 fields where the header has 4");
    th_refuse(HEADER "0,-1,1,1\n", "T:2: lower: \"-1\" is not a whole number of 0 or more");
    th_refuse(HEADER "0,0,1,4611686018427387904\n1,0,1,4611686018427387904\n2,0,1,1\n",
              "T: the live blocks add up to more than 2^63 bytes");
}
