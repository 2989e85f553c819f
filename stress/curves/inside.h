// SPDX-License-Identifier: Apache-2.0
// Internal to stress/curves: what points.c and common.c share.
#ifndef STRESS_CURVES_INSIDE_H
#define STRESS_CURVES_INSIDE_H

#include "stress/curves/curves.h"

enum {
    CURVES_UNCAPPED_FACTOR = 16, // times the peak of live: as much as a fit tries
};

bool curves_is_named(const curves_variant_t *variant, const char *name);
// The first variant of that allocator; variant_count where there is none.
size_t curves_variant_find(const curves_options_t *options, const char *name);
size_t curves_berm_count(const curves_options_t *options);

// Peak live x (1 + headroom) in whole granules, at least one.
uint64_t curves_capacity_bytes(uint64_t peak_live_bytes, double headroom_pct,
                               uint64_t granule_bytes);

void curves_replay_options(const curves_options_t *options, const curves_point_t *point,
                           stress_replay_options_t *replay);
// One replay on the device that is open. 0, or -1 with a line in `error`.
int curves_point_run(const curves_options_t *options, const trace_t *trace, curves_point_t *point,
                     char *error, size_t error_capacity);
int curves_device_open(const curves_options_t *options, size_t latency, char *error,
                       size_t error_capacity);
uint64_t curves_granule_bytes(void); // of the device that is open

// The part of all COMMON points of a trace.
int curves_common_run(const curves_options_t *options, const trace_t *trace, curves_point_t *points,
                      char *error, size_t error_capacity);

#endif
