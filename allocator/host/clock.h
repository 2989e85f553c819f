// SPDX-License-Identifier: Apache-2.0
// The clock of all policy, injected so that tests can drive hours in microseconds.
#ifndef BERM_HOST_CLOCK_H
#define BERM_HOST_CLOCK_H

#include "base/defs.h"

// Nanoseconds that never run backwards; the origin has no meaning. Thread-safe.
uint64_t berm__clock_ns(void);
// The same of CLOCK_MONOTONIC, whatever clock is set: to say how long berm's own work took.
uint64_t berm__clock_own_ns(void);

// Replaces the clock; NULL brings CLOCK_MONOTONIC back. Not while another thread reads the clock.
void berm__clock_set(uint64_t (*now_ns)(void *context), void *context);

#endif
