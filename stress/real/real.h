// SPDX-License-Identifier: Apache-2.0
// What a library that holds a real allocator exports: stress/real/torch_baseline.cpp and
// rmm_baseline.cpp are compiled against what the user has installed, stress/baselines/real.c loads
// them. Every function is there under its name; one allocator a process.
//
// Sizes are bytes, an address is a device address, a stream a CUstream. Functions that can fail
// return 0, or one of stress_real_result; `error` gets a line.
#ifndef STRESS_REAL_REAL_H
#define STRESS_REAL_REAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRESS_REAL_VERSION = 1
};

enum stress_real_result {
    STRESS_REAL_OK = 0,
    STRESS_REAL_OUT_OF_MEMORY = 1,
    STRESS_REAL_ERROR = 2,
};

typedef struct stress_real_options {
    const char *mode; // "native", "expandable"; "pool", "arena"
    const char *conf; // the allocator's own, "" for none
    int device;
    uint64_t limit_bytes; // UINT64_MAX: none
} stress_real_options_t;

typedef struct stress_real_figures {
    uint64_t requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
    uint64_t allocated_peak_bytes, reserved_peak_bytes;
    uint64_t host_waits;
} stress_real_figures_t;

#define STRESS_REAL_API __attribute__((visibility("default")))

STRESS_REAL_API int stress_real_version(void);
STRESS_REAL_API const char *stress_real_describe(void); // "torch 2.15.0, ..."
STRESS_REAL_API int stress_real_create(const stress_real_options_t *options, char *error,
                                       size_t error_capacity);
// Gives everything back that the allocator can; what is live is freed first.
STRESS_REAL_API void stress_real_destroy(uint64_t *live_blocks);
STRESS_REAL_API int stress_real_alloc(uint64_t size_bytes, void *stream, uint64_t *addr);
STRESS_REAL_API int stress_real_free(uint64_t addr, uint64_t size_bytes, void *stream);
STRESS_REAL_API int stress_real_record_stream(uint64_t addr, void *stream);
STRESS_REAL_API void stress_real_figures(stress_real_figures_t *figures);
STRESS_REAL_API void stress_real_peaks_reset(void);
STRESS_REAL_API uint64_t stress_real_largest_free(void *stream);
STRESS_REAL_API void stress_real_empty_cache(void);
// The words of the last error of this thread.
STRESS_REAL_API const char *stress_real_error(void);

#ifdef __cplusplus
}
#endif

#endif
