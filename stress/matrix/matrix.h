// SPDX-License-Identifier: Apache-2.0
// Every trace on every number of streams, in every mode of berm, under every switch of the
// simulated device, with events that come late at random: `berm stress traces`.
//
// A cell is one such run. It replays with STRESS_CHECK_FULL: overlap, alignment, the device's
// ledger and its hazards after every event, libberm's audit after every k-th, so that there are
// about `audits` in a run. A recording is dealt over the streams (trace/deal.h), a generated
// program is generated for them. The device has 4 times the peak of live. Short traces are
// repeated, up to three times, so that plans are made (docs/learned.md).
//
// No cell may have a hazard, with two exceptions, in which hazards of one kind only are counted
// apart: with dependent launch remap:alias may be caught (docs/simcuda.md), and a device that shows
// mappings late must catch berm, which does nothing about such devices.
#ifndef STRESS_MATRIX_MATRIX_H
#define STRESS_MATRIX_MATRIX_H

#include "base/emit.h"
#include "stress/device.h"
#include "stress/trace/generate.h"

enum {
    MATRIX_SOURCES_MAX = 64,
    MATRIX_STREAMS_MAX = 8,
    MATRIX_MODES_MAX = 8,
    MATRIX_NAME = 48,
};

typedef struct matrix_source {
    char name[MATRIX_NAME];
    trace_t *trace;   // as recorded; NULL: generated
    const char *kind; // of what is generated
    trace_generate_options_t generate;
} matrix_source_t;

typedef struct matrix_switch {
    const char *name;
    stress_device_options_t device; // its switches
    const char *conf;               // that berm needs on such a device; ""
    bool shows_late;                // stale-map hazards must be seen
} matrix_switch_t;

typedef struct matrix_options {
    const matrix_source_t *sources;
    size_t source_count;
    uint64_t streams[MATRIX_STREAMS_MAX];
    size_t streams_count;
    const char *modes[MATRIX_MODES_MAX]; // options of berm
    size_t mode_count;
    uint64_t seed, event_lag_ns, audits;
} matrix_options_t;

typedef struct matrix_result {
    bool is_good, is_caught; // caught: hazards of the kind that this cell allows
    uint64_t events, repeats, audit_every, audits;
    uint64_t hazards, allowed_hazards; // not allowed; allowed
    uint64_t leaks, check_failures, moved_bytes, host_waits;
    double seconds;
    char finding[256]; // in words; "" where it is good
} matrix_result_t;

// Generated programs that the matrix has by itself, and the switches.
extern const matrix_source_t matrix_generated[];
extern const size_t matrix_generated_count;
extern const matrix_switch_t matrix_switches[];
extern const size_t matrix_switch_count;

size_t matrix_cell_count(const matrix_options_t *options);
typedef struct matrix_cell {
    const matrix_source_t *source;
    uint64_t streams;
    const char *mode;
    const matrix_switch_t *with;
} matrix_cell_t;
matrix_cell_t matrix_cell(const matrix_options_t *options, size_t number);

// Runs one cell on the trace of its source and streams. Opens a device of its own.
void matrix_cell_run(const matrix_options_t *options, const matrix_cell_t *cell,
                     const trace_t *trace, matrix_result_t *result);
// That trace; NULL with a line in `error`.
trace_t *matrix_cell_trace(const matrix_options_t *options, const matrix_cell_t *cell, char *error,
                           size_t error_capacity);

// All cells, `jobs` at a time in processes of their own; `report` is called for each in the order
// of their numbers. This process must not have opened a device or used berm. 0, or -1 with a line
// in `error` when they could not be started. A process that ends early is a finding of its cell.
int matrix_run(const matrix_options_t *options, size_t jobs,
               void (*report)(void *context, size_t number, const matrix_result_t *result),
               void *context, char *error, size_t error_capacity);

#endif
