// SPDX-License-Identifier: Apache-2.0
// Reads berm's own recordings (docs/recording.md), for `berm export`, `berm report` and `berm
// diff`.
#ifndef STRESS_TRACE_RECORDING_H
#define STRESS_TRACE_RECORDING_H

#include "record/record.h"
#include "stress/trace/input.h"

// Whether the input begins as a recording does.
bool recording_matches(const trace_input_t *input);
// Reads one; the caller destroys and frees it. NULL with a line in `error`. What a file says is
// checked: blocks cover their segments, and events agree with them.
berm_record_t *recording_read(const trace_input_t *input, char *error, size_t error_capacity);
// The same from a file, gzip or not; what is no recording is refused.
berm_record_t *recording_load(const char *path, char *error, size_t error_capacity);
void recording_free(berm_record_t *record);

#endif
