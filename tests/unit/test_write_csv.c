// SPDX-License-Identifier: Apache-2.0
// What is written is exactly the documented text, and reads back as the same trace.
#include "tests/unit/trace_helpers.h"

#define TEXT                                                                                       \
    "event_index,op,id,size_bytes,stream\n"                                                        \
    "0,alloc,0,1024,5\n"                                                                           \
    "1,alloc,1,10,93946175087440\n"                                                                \
    "2,free,0,1024,5\n"                                                                            \
    "3,oom,2,999,5\n"                                                                              \
    "4,free_done,0,1024,5\n"

Test(write_csv, writes_the_documented_text_and_reads_it_back) {
    th_folder_t folder = th_make_folder();
    trace_t *trace = th_read(TEXT);
    cr_assert(trace != NULL, "%s", th_error);
    const char *paths[2] = {th_name_file(&folder, "t.csv"), th_name_file(&folder, "t.csv.gz")};
    for (size_t i = 0; i < 2; i++) {
        cr_assert(trace_write_csv(trace, paths[i], th_error, sizeof th_error) == 0, "%s", th_error);
        trace_input_t input;
        cr_assert(trace_input_load(&input, paths[i], NULL, th_error, sizeof th_error) == 0);
        cr_assert(input.size == strlen(TEXT) && memcmp(input.bytes, TEXT, input.size) == 0);
        trace_input_unload(&input);
        trace_t *again = trace_read(paths[i], NULL, th_error, sizeof th_error);
        cr_assert(again != NULL, "%s", th_error);
        cr_assert(again->event_count == trace->event_count);
        cr_assert(again->blocks[0].is_deferred);
        cr_assert(again->peak_live_bytes == trace->peak_live_bytes);
        trace_destroy(again);
    }
    FILE *packed = fopen(paths[1], "rb");
    cr_assert(packed != NULL && fgetc(packed) == 0x1f && fgetc(packed) == 0x8b, "is gzip");
    fclose(packed);
    trace_destroy(trace);
    th_remove_folder(&folder);
}

Test(write_csv, says_why_it_cannot_write) {
    trace_t *trace = th_read(TEXT);
    static const char *const paths[] = {"/nonexistent/t.csv", "/nonexistent/t.csv.gz"};
    for (size_t i = 0; i < 2; i++) {
        char expected[96];
        snprintf(expected, sizeof expected, "%s: No such file or directory", paths[i]);
        cr_assert(trace_write_csv(trace, paths[i], th_error, sizeof th_error) == -1);
        cr_assert(strcmp(th_error, expected) == 0, "%s", th_error);
    }
    if (access("/dev/full", W_OK) == 0) {
        cr_assert(trace_write_csv(trace, "/dev/full", th_error, sizeof th_error) == -1);
        cr_assert(strcmp(th_error, "/dev/full: cannot write it: No space left on device") == 0,
                  "%s", th_error);
    }
    trace_destroy(trace);
}
