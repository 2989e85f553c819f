// SPDX-License-Identifier: Apache-2.0
// The points of several traces, in several processes: the simulated device and berm have one state
// a process, so parts of a trace run side by side in processes of their own.
#ifndef STRESS_CURVES_WORKERS_H
#define STRESS_CURVES_WORKERS_H

#include "stress/curves/curves.h"

// Zeroed memory that processes forked later share; NULL without. To be given back with its size.
curves_point_t *curves_points_create(size_t count);
void curves_points_destroy(curves_point_t *points, size_t count);

// Runs all parts of all traces, `jobs` at a time. `points` are the traces' filled points, from
// curves_points_create. This process must not have opened a device or used berm. 0, or -1 with a
// line in `error` ("" where the library has said it) when options are bad or a part could not run.
int curves_run(const curves_options_t *options, trace_t *const *traces, size_t trace_count,
               curves_point_t *points, size_t jobs, void (*progress)(uint64_t done, uint64_t total),
               char *error, size_t error_capacity);

#endif
