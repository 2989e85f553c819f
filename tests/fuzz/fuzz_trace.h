// SPDX-License-Identifier: Apache-2.0
// The function that the fuzzing engine and the regression test call.
#ifndef TESTS_FUZZ_FUZZ_TRACE_H
#define TESTS_FUZZ_FUZZ_TRACE_H

#include "stress/trace/input.h"
#include "stress/trace/trace_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
