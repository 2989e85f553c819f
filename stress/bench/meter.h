// SPDX-License-Identifier: Apache-2.0
// What the benchmarks measure with: clock, instruction counter, host bytes.
#ifndef STRESS_BENCH_METER_H
#define STRESS_BENCH_METER_H

#include <stdbool.h>
#include <stdint.h>

uint64_t meter_clock_ns(void);
uint64_t meter_clock_cost_ns(void); // two readings of the clock, at least

// User-mode instructions of the calling thread between start and stop; false where the kernel does
// not permit it.
bool meter_instructions_start(void);
bool meter_instructions_stop(uint64_t *count);

// Bytes of the process's jemalloc that are allocated now; false without jemalloc.
bool meter_host_bytes(uint64_t *bytes);

double meter_mutex_pair_ns(uint64_t pairs);          // the mean of an uncontended lock and unlock
double meter_median(double *values, uint32_t count); // sorts them; -1 for none

#endif
