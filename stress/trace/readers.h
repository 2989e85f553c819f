// SPDX-License-Identifier: Apache-2.0
// Internal to stress/trace: one reader per format. `matches` looks at the beginning only; `read`
// returns NULL with a line in `error`.
#ifndef STRESS_TRACE_READERS_H
#define STRESS_TRACE_READERS_H

#include "stress/trace/input.h"
#include "stress/trace/trace.h"

bool trace_pytorch_matches(const trace_input_t *input);
trace_t *trace_pytorch_read(const trace_input_t *input, const trace_read_options_t *options,
                            char *error, size_t error_capacity);

bool trace_recording_matches(const trace_input_t *input);
trace_t *trace_recording_read(const trace_input_t *input, const trace_read_options_t *options,
                              char *error, size_t error_capacity);

bool trace_rmm_csv_matches(const trace_input_t *input);
trace_t *trace_rmm_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                            char *error, size_t error_capacity);

bool trace_event_csv_matches(const trace_input_t *input);
trace_t *trace_event_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                              char *error, size_t error_capacity);

bool trace_lifetimes_csv_matches(const trace_input_t *input);
trace_t *trace_lifetimes_csv_read(const trace_input_t *input, const trace_read_options_t *options,
                                  char *error, size_t error_capacity);

#endif
