// SPDX-License-Identifier: Apache-2.0
// Loads a library of stress/real and calls it: what torch.c and rmm.c have in common.
#ifndef STRESS_BASELINES_REAL_H
#define STRESS_BASELINES_REAL_H

#include "stress/allocator.h"
#include "stress/real/real.h"

typedef struct real_source {
    const char *name;        // of the baseline
    const char *mode;        // for stress_real_create
    const char *environment; // the variable that names the library
    const char *library;     // where it lies below build/
    const char *set_up;      // "./run torch-setup"
} real_source_t;

stress_allocator_t *real_create(const real_source_t *source,
                                const stress_allocator_options_t *options, char *error,
                                size_t error_capacity);
void real_destroy(stress_allocator_t *a, uint64_t *live_blocks);
stress_result_t real_alloc(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                           uint64_t *addr);
stress_result_t real_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes, void *stream);
stress_result_t real_record_stream(stress_allocator_t *a, uint64_t addr, void *stream);
void real_figures(stress_allocator_t *a, stress_figures_t *figures);
void real_peaks_reset(stress_allocator_t *a);
uint64_t real_largest_free(stress_allocator_t *a, void *stream);

#endif
