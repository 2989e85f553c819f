// SPDX-License-Identifier: Apache-2.0
// simcuda.h's calls that make, change and lose devices. The others are with what they are about:
// clock.c, faults.c, ledger.c, hazard.c, work.c.
#include "gpu.h"
#include "sim.h"

int simcuda_reset(const simcuda_config_t *config) {
    simcuda_config_t made;
    simcuda_config_default(&made);
    if (config != NULL)
        made = *config;
    if (!sim_config_is_valid(&made) || !sim_lock())
        return -1;
    sim_state_destroy();
    sim.is_env_bad = false;
    bool ok = sim_state_make(&made);
    sim_unlock();
    return ok ? 0 : -1;
}

int simcuda_config_read(simcuda_config_t *config) {
    simcuda_config_default(config);
    if (!sim_lock())
        return -1;
    *config = sim.config;
    sim_unlock();
    return 0;
}

int simcuda_memory_read(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
    int result = -1;
    *free_bytes = *total_bytes = 0;
    if (!sim_lock())
        return result;
    if (sim_device_is_valid(device) && !sim.devices[device].is_lost) {
        *free_bytes = sim_device_free_bytes(&sim.devices[device]);
        *total_bytes = sim.config.memory_bytes;
        result = 0;
    }
    sim_unlock();
    return result;
}

int simcuda_outside_set(int device, uint64_t bytes) {
    int result = -1;
    if (!sim_lock())
        return result;
    if (sim_device_is_valid(device) &&
        bytes <= sim_device_free_bytes(&sim.devices[device]) + sim.devices[device].outside_bytes) {
        sim.devices[device].outside_bytes = bytes;
        result = 0;
    }
    sim_unlock();
    return result;
}

void simcuda_device_lose(int device) {
    if (!sim_lock())
        return;
    if (sim_device_is_valid(device))
        sim.devices[device].is_lost = true;
    sim_unlock();
}
