// SPDX-License-Identifier: Apache-2.0
// Traces made by rule instead of recorded. The same kind, options and version of this code give the
// same trace on every machine. A kind is a row of the table in generate.c and a file gen_*.c.
#ifndef STRESS_TRACE_GENERATE_H
#define STRESS_TRACE_GENERATE_H

#include "stress/trace/trace.h"

typedef enum trace_size_law {
    TRACE_SIZES_UNIFORM, // every size from 1 to the largest alike, as RMM's benchmark has it
    TRACE_SIZES_LOG,     // every octave alike, uniform within one: many small, few large
} trace_size_law_t;

typedef enum trace_kv_law {
    TRACE_KV_GROW,   // a sequence's cache is one tensor a group of layers, allocated anew to grow
    TRACE_KV_BLOCKS, // a sequence's cache is blocks of 16 tokens
} trace_kv_law_t;

// Options that only some kinds take; `seed` and `streams` all do.
enum {
    TRACE_TAKES_OPERATIONS = 1 << 0,
    TRACE_TAKES_MAX_SIZE = 1 << 1,
    TRACE_TAKES_LIVE_CAP = 1 << 2,
    TRACE_TAKES_SIZES = 1 << 3,
    TRACE_TAKES_ITERATIONS = 1 << 4,
    TRACE_TAKES_CHANGE = 1 << 5,
    TRACE_TAKES_LAG = 1 << 6,
    TRACE_TAKES_LAYERS = 1 << 7,
    TRACE_TAKES_HIDDEN = 1 << 8,
    TRACE_TAKES_MICRO_BATCHES = 1 << 9,
    TRACE_TAKES_STAGES = 1 << 10,
    TRACE_TAKES_MOE = 1 << 11,
    TRACE_TAKES_RECOMPUTE = 1 << 12,
    TRACE_TAKES_OFFLOAD = 1 << 13,
    TRACE_TAKES_REQUESTS = 1 << 14,
    TRACE_TAKES_KV = 1 << 15,
    TRACE_TAKES_CHUNK = 1 << 16,
    TRACE_TAKES_NO_PREFIX = 1 << 17,
    TRACE_TAKES_STEPS = 1 << 18,
    TRACE_TAKES_ANSWER = 1 << 19,
};

// Zero members are the kind's defaults (docs/trace-format.md). What a kind does not take must be
// zero.
typedef struct trace_generate_options {
    uint64_t operations;     // allocs and frees together
    uint64_t max_size_bytes; // of one block
    uint64_t live_cap_bytes; // live bytes stay below it
    uint64_t seed;           // any value, 0 included
    uint64_t streams;        // 1 to 4096
    uint64_t iterations;     // times that the same work is done
    uint64_t change_pct;     // of an iteration's requests have another size, 0 to 100
    uint64_t lag_events;     // a block used by another stream is done up to so many events later
    uint64_t layers, hidden; // of the transformer
    uint64_t micro_batches;  // an iteration
    uint64_t stages;         // of the pipeline, of which this program is the first
    uint64_t moe_pct;        // 0: dense; else experts, whose loads differ by up to so much
    uint64_t requests;       // sequences, images, calls of a model
    uint64_t steps;          // of an image
    uint64_t chunk_tokens;   // of a prompt that one step processes
    uint64_t answer_tokens;  // of the longest answer, 16 to 2048
    uint64_t sizes;          // trace_size_law_t
    uint64_t kv;             // trace_kv_law_t
    bool recompute, offload, no_prefix;
} trace_generate_options_t;

typedef struct trace_kind {
    const char *name;
    const char *summary; // one line, for --help
    uint32_t takes;      // TRACE_TAKES_*
    trace_t *(*generate)(const trace_generate_options_t *options, char *error,
                         size_t error_capacity);
    // Of the trace with all options at their defaults.
    uint64_t events, peak_live_bytes, live_end_bytes;
} trace_kind_t;

// The table of kinds; `count` receives its length.
const trace_kind_t *trace_kinds(size_t *count);
const trace_kind_t *trace_kind_find(const char *name); // NULL if unknown

// NULL with one line in `error` for an unknown kind, options that contradict each other or that the
// kind does not take, or no memory. `options` may be NULL.
trace_t *trace_generate(const char *kind, const trace_generate_options_t *options, char *error,
                        size_t error_capacity);

#endif
