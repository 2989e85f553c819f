// SPDX-License-Identifier: Apache-2.0
// A part of a trace: what a program would have done that makes only some of its requests.
#ifndef STRESS_TRACE_SELECT_H
#define STRESS_TRACE_SELECT_H

#include "stress/trace/trace.h"

// A new trace without the requests of more than `most_bytes`, for what small blocks alone need.
// NULL with a line in `error` without memory.
trace_t *trace_select_small(const trace_t *trace, uint64_t most_bytes, char *error,
                            size_t error_capacity);

// A new trace that makes the last request that had failed, and frees it at once: it fails at the
// same place where there is as little memory, and says how much would do where there is more. NULL
// with a line in `error` without memory, and where none had failed.
trace_t *trace_select_failed(const trace_t *trace, char *error, size_t error_capacity);

#endif
