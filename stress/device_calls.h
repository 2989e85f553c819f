// SPDX-License-Identifier: Apache-2.0
// Between device.c and device_calls.c: where the counts of driver calls come from.
#ifndef STRESS_DEVICE_CALLS_H
#define STRESS_DEVICE_CALLS_H

#include "stress/device.h"

stress_calls_t stress_calls_of_simcuda(const stress_simcuda_t *sim);

// Fills *wrapped with functions that count, time and pass on to *driver (borrowed until the next
// call). Counting starts at 0.
void stress_driver_wrap(const stress_driver_t *driver, stress_driver_t *wrapped);
stress_calls_t stress_calls_of_wrappers(void);
uint64_t stress_driver_ns_of_wrappers(void);

#endif
