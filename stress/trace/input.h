// SPDX-License-Identifier: Apache-2.0
// The bytes of a trace file, unpacked if they were gzip, and the one way to report what is wrong
// with them.
#ifndef STRESS_TRACE_INPUT_H
#define STRESS_TRACE_INPUT_H

#include "base/defs.h"
#include "stress/trace/trace.h"

typedef struct trace_input {
    const char *name;     // borrowed; how messages call the file
    const uint8_t *bytes; // what the file holds, after unpacking
    size_t size;
    uint8_t *owned; // the same bytes where this struct must free them, else NULL
} trace_input_t;

// What is read before giving up. Zero members are the defaults.
typedef struct trace_input_limits {
    uint64_t size_bytes; // of the file, and of what it unpacks to; 4 GiB
    uint64_t ratio;      // unpacked to packed bytes, looked at from 64 MiB on; 256
} trace_input_limits_t;

// Reads the file at `path`, a regular file or a pipe. 0, or -1 with a line in `error`.
BERM_NODISCARD int trace_input_load(trace_input_t *input, const char *path,
                                    const trace_input_limits_t *limits, char *error,
                                    size_t error_capacity);

// The same for bytes in memory, which must outlive the input.
BERM_NODISCARD int trace_input_borrow(trace_input_t *input, const char *name, const void *bytes,
                                      size_t size, const trace_input_limits_t *limits, char *error,
                                      size_t error_capacity);

void trace_input_unload(trace_input_t *input);

// Formats one line into `error` (which may be NULL); bytes that are not printable become '?'.
void trace_fail(char *error, size_t error_capacity, const char *format, ...) BERM_PRINTF(3, 4);

// Reads a trace from bytes in memory, as trace_read does from a file. `name` is the trace's path.
trace_t *trace_read_memory(const char *name, const void *bytes, size_t size,
                           const trace_read_options_t *options, char *error, size_t error_capacity);

#endif
