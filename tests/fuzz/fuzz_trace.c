// SPDX-License-Identifier: Apache-2.0
// The entry for libFuzzer: any bytes as a trace, from every reader. A trace that is accepted must
// pass the checker. Build and run:
//
//   clang -g -fsanitize=fuzzer,address,undefined -DBERM_CHECK_LEVEL=2 -Iallocator -Iinclude -I.
//     tests/fuzz/fuzz_trace.c stress/trace/*.c allocator/base/insist.c -lz -o /tmp/fuzz_trace
//   /tmp/fuzz_trace -max_len=4096 -rss_limit_mb=4096 NEW_CORPUS tests/fuzz/corpus/trace
//
// test_trace_regression.c runs the same function over the committed corpus without the engine.
#include <stdlib.h>
#include <string.h>

#include "base/insist.h"
#include "tests/fuzz/fuzz_trace.h"

static void check_error(const char *error, bool is_accepted) {
    BERM_INSIST((error[0] == '\0') == is_accepted, "an error line if and only if refused");
    for (const char *c = error; *c != '\0'; c++) {
        BERM_INSIST((unsigned char)*c >= 0x20 && *c != 0x7f, "the line is printable");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const trace_read_options_t options[] = {{.scale = 1, .device = -1},
                                                   {.scale = 65536, .device = 0}};
    for (size_t i = 0; i < 2; i++) {
        char error[256] = "";
        trace_t *trace = trace_read_memory("fuzz", bytes, size, &options[i], error, sizeof error);
        check_error(error, trace != NULL);
        if (trace != NULL) {
            BERM_INSIST(trace_check(trace, error, sizeof error) == 0, "accepted and not sound");
            BERM_INSIST(trace->live_at_end == trace->alloc_count - trace->free_count, "counts");
            trace_destroy(trace);
        }
    }
    return 0;
}
