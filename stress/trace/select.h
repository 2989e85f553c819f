// SPDX-License-Identifier: Apache-2.0
// A part of a trace: what a program would have done that makes only some of its requests.
#ifndef STRESS_TRACE_SELECT_H
#define STRESS_TRACE_SELECT_H

#include "stress/trace/trace.h"

// A new trace without the requests of more than `most_bytes`, for what small blocks alone need.
// NULL with a line in `error` without memory.
trace_t *trace_select_small(const trace_t *trace, uint64_t most_bytes, char *error,
                            size_t error_capacity);

#endif
