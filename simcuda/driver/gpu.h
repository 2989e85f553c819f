// SPDX-License-Identifier: Apache-2.0
// What a device is, and how much of its memory is free.
#ifndef SIM_GPU_H
#define SIM_GPU_H

#include "sim.h"

void sim_gpu_default(simcuda_gpu_t *gpu);
bool sim_gpu_is_valid(const simcuda_gpu_t *gpu);

static inline uint64_t sim_device_free_bytes(const sim_device_t *device) {
    return sim.config.memory_bytes - device->outside_bytes - device->context_bytes -
           device->used_bytes;
}

#endif
