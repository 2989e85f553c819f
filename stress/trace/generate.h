// SPDX-License-Identifier: Apache-2.0
// Traces made by rule instead of recorded. The same kind, options and version of this code give the
// same trace on every machine.
#ifndef STRESS_TRACE_GENERATE_H
#define STRESS_TRACE_GENERATE_H

#include "stress/trace/trace.h"

typedef enum trace_size_law {
    TRACE_SIZES_UNIFORM, // every size from 1 to the largest alike, as RMM's benchmark has it
    TRACE_SIZES_LOG,     // every octave alike, uniform within one: many small, few large
} trace_size_law_t;

// Zero members are the kind's defaults, given here for "random".
typedef struct trace_generate_options {
    uint64_t operations;     // allocs and frees together; 1000
    uint64_t max_size_bytes; // of one block; 4096 MiB, or the cap if that is less
    uint64_t live_cap_bytes; // allocs that would exceed it become frees; 32 GiB
    uint64_t seed;           // any value, 0 included
    uint32_t streams;        // blocks take one at random; 1
    trace_size_law_t sizes;
} trace_generate_options_t;

typedef struct trace_kind {
    const char *name;
    const char *summary; // one line, for --help
    trace_t *(*generate)(const trace_generate_options_t *options, char *error,
                         size_t error_capacity);
} trace_kind_t;

// The table of kinds; `count` receives its length.
const trace_kind_t *trace_kinds(size_t *count);

// NULL with one line in `error` for an unknown kind, options that contradict each other, or no
// memory. `options` may be NULL.
trace_t *trace_generate(const char *kind, const trace_generate_options_t *options, char *error,
                        size_t error_capacity);

#endif
