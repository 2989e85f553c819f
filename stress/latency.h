// SPDX-License-Identifier: Apache-2.0
// Latency files: what each driver call of the simulated device costs.
//
// Text, one "key=value" a line; "#" starts a comment. "preset=fast|typical|slow" loads a preset
// (typical is loaded before the first line); every other key is CALL.FIELD, with CALL one of
//   reserve address_free create release map set_access unmap malloc free event_record event_query
//   stream_wait synchronize mem_info other
// and FIELD one of base_ns, per_mapping_ns, ns_per_mib. Values are whole numbers up to 10^12:
//   preset=slow
//   create.base_ns=193000
#ifndef STRESS_LATENCY_H
#define STRESS_LATENCY_H

#include <stddef.h>

#include "simcuda.h"

typedef int (*stress_latency_preset_fn)(const char *name, simcuda_costs_t *costs);

// `name` is a preset's or a file's. 0, or -1 with "FILE:LINE: what" in `error`.
int stress_latency_read(const char *name, stress_latency_preset_fn preset, simcuda_costs_t *costs,
                        char *error, size_t error_capacity);

#endif
