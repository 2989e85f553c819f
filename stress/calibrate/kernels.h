// SPDX-License-Identifier: Apache-2.0
// Kernels for the rules of `berm calibrate`, the same on hardware and on the simulated device: on
// hardware PTX of kernels_ptx.c, which the driver compiles; on the simulated device host functions.
#ifndef STRESS_CALIBRATE_KERNELS_H
#define STRESS_CALIBRATE_KERNELS_H

#include "stress/calibrate/calibrate.h"

typedef enum stress_kernel {
    STRESS_KERNEL_FILL,  // waits `ns`, then sets word i to value + i
    STRESS_KERNEL_CHECK, // counts words that are not value + i; again and again for `ns`
    // Of dependent launch, where stress_kernels_can_depend:
    STRESS_KERNEL_FILL_EARLY, // a fill that lets the kernel behind it start at once
    STRESS_KERNEL_CHECK_LATE, // a check that starts early, and waits for the kernel before it
    STRESS_KERNEL_CHECK_NOW,  // one that starts early, and does not wait
    STRESS_KERNEL_COUNT,
} stress_kernel_t;

typedef struct stress_kernels {
    const stress_calibrate_driver_t *c;
    stress_cu_module_t modules[2]; // NULL on the simulated device
    stress_cu_function_t functions[STRESS_KERNEL_COUNT];
    bool can_depend;
    berm_cu_deviceptr_t result_addr; // one word: how many were wrong in all checks
} stress_kernels_t;

extern const char stress_kernels_ptx[], stress_kernels_dependent_ptx[];

// Compiles and loads them. A CUresult, with a line in `why`; nothing stays open then.
int stress_kernels_open(stress_kernels_t *kernels, const stress_calibrate_driver_t *c, char *why,
                        size_t why_capacity);
void stress_kernels_close(stress_kernels_t *kernels);

// Queues one kernel over [addr, addr + bytes). A CUresult.
int stress_kernels_launch(stress_kernels_t *kernels, stress_kernel_t kernel,
                          berm_cu_stream_t stream, uint64_t addr, uint64_t bytes, uint32_t value,
                          uint64_t ns);
// Waits for the stream, then reads how many words were wrong so far. A CUresult.
int stress_kernels_wrong(stress_kernels_t *kernels, berm_cu_stream_t stream, uint32_t *wrong);

#endif
