// SPDX-License-Identifier: Apache-2.0
// How the device is made: defaults, ranges, and the environment that decides before the first
// simcuda_reset. A value of the environment that makes no sense is reported on standard error and
// makes cuInit fail, rather than being guessed at.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "keyfile.h"

void simcuda_config_default(simcuda_config_t *config) {
    *config = (simcuda_config_t){
        .size = sizeof(*config),
        .devices = 1,
        .driver_version = 13000,
        .memory_bytes = BERM_GIB(80),
        .granule_bytes = BERM_MIB(2),
        .address_bytes = SIM_ADDRESS_BYTES,
        .has_vmm = 1,
        .has_ctx_event = 1,
        .kernel_ns = 10000,
        .launch_ns = 4000,
    };
    (void)simcuda_costs_preset("typical", &config->costs);
    sim_gpu_default(&config->gpu);
}

void simcuda_config_gpu(simcuda_config_t *config, const simcuda_gpu_t *gpu) {
    config->gpu = *gpu;
    config->memory_bytes = gpu->memory_bytes;
    config->lacks_peers = !gpu->has_peers;
}

// Whether what is taken before a program starts leaves it a granule.
static bool config_has_room(const simcuda_config_t *config) {
    uint64_t left_bytes = config->memory_bytes;
    if (config->outside_bytes > left_bytes)
        return false;
    left_bytes -= config->outside_bytes;
    // Other processes may hold all of a device whose contexts take nothing.
    return config->gpu.context_bytes == 0 ||
           (config->gpu.context_bytes <= left_bytes &&
            left_bytes - config->gpu.context_bytes >= config->granule_bytes);
}

bool sim_config_is_valid(const simcuda_config_t *config) {
    return config->size == sizeof(*config) && config->devices >= 1 &&
           config->devices <= SIMCUDA_DEVICE_MAX && config->driver_version >= 10000 &&
           config->driver_version < 100000 && berm__is_pow2(config->granule_bytes) &&
           config->granule_bytes >= BERM_KIB(4) && config->granule_bytes <= BERM_GIB(1) &&
           config->memory_bytes >= config->granule_bytes &&
           config->memory_bytes <= SIM_ADDRESS_BYTES && config_has_room(config) &&
           sim_gpu_is_valid(&config->gpu) && config->address_bytes >= config->granule_bytes &&
           config->address_bytes <= SIM_ADDRESS_BYTES &&
           (config->is_backed == 0 || config->granule_bytes % (uint64_t)sysconf(_SC_PAGESIZE) == 0);
}

static bool read_bytes(const char *name, uint64_t least, uint64_t most, uint64_t *bytes) {
    const char *text = secure_getenv(name);
    if (text == NULL)
        return true;
    uint64_t value;
    if (sim_bytes_parse(text, &value) && value >= least && value <= most) {
        *bytes = value;
        return true;
    }
    (void)fprintf(stderr,
                  "simcuda: %s=%s: want a number from %llu to %llu, with or without K, M, G or T\n",
                  name, text, (unsigned long long)least, (unsigned long long)most);
    return false;
}

static bool read_int(const char *name, int least, int most, int *out) {
    uint64_t value = 0;
    if (secure_getenv(name) == NULL)
        return true;
    if (!read_bytes(name, (uint64_t)least, (uint64_t)most, &value))
        return false;
    *out = (int)value;
    return true;
}

static bool read_latency(simcuda_costs_t *costs) {
    char error[512];
    const char *text = secure_getenv("SIMCUDA_LATENCY");
    if (text == NULL || simcuda_costs_read(text, costs, error, sizeof(error)) == 0)
        return true;
    (void)fprintf(stderr, "simcuda: SIMCUDA_LATENCY: %s\n", error);
    return false;
}

static bool read_gpu(simcuda_config_t *config) {
    char error[512];
    simcuda_gpu_t gpu;
    const char *text = secure_getenv("SIMCUDA_GPU");
    if (text == NULL)
        return true;
    if (simcuda_gpu_read(text, &gpu, error, sizeof(error)) == 0) {
        simcuda_config_gpu(config, &gpu);
        return true;
    }
    (void)fprintf(stderr, "simcuda: SIMCUDA_GPU: %s\n", error);
    return false;
}

// Memory and what is taken of it, by SIMCUDA_MEMORY and SIMCUDA_OUTSIDE.
static bool read_memory(simcuda_config_t *config) {
    bool ok = read_bytes("SIMCUDA_MEMORY", config->granule_bytes, SIM_ADDRESS_BYTES,
                         &config->memory_bytes);
    ok = read_bytes("SIMCUDA_OUTSIDE", 0, config->memory_bytes, &config->outside_bytes) && ok;
    if (!ok || config_has_room(config))
        return ok;
    (void)fprintf(stderr,
                  "simcuda: %llu bytes of memory are too few: a context takes %llu on this device, "
                  "others hold %llu\n",
                  (unsigned long long)config->memory_bytes,
                  (unsigned long long)config->gpu.context_bytes,
                  (unsigned long long)config->outside_bytes);
    return false;
}

bool sim_config_from_environment(simcuda_config_t *config) {
    bool ok = read_gpu(config);
    ok = read_memory(config) && ok;
    ok = read_int("SIMCUDA_DEVICES", 1, SIMCUDA_DEVICE_MAX, &config->devices) && ok;
    ok = read_latency(&config->costs) && ok;
    ok = read_bytes("SIMCUDA_HANDLES", 0, UINT64_C(1) << 40, &config->handles_max) && ok;
    ok = read_int("SIMCUDA_STRICT", 0, 1, &config->is_strict) && ok;
    ok = read_int("SIMCUDA_VMM", 0, 1, &config->has_vmm) && ok;
    ok = read_int("SIMCUDA_BACKED", 0, 1, &config->is_backed) && ok;
    ok = read_int("SIMCUDA_ACTS_AT_LAUNCH", 0, 1, &config->acts_at_launch) && ok;
    ok = read_int("SIMCUDA_REALTIME", 0, 1, &config->is_realtime) && ok;
    ok = read_int("SIMCUDA_CAPTURE_EDITS", 0, 1, &config->has_capture_edits) && ok;
    ok = read_bytes("SIMCUDA_PDL_OVERLAP_NS", 0, UINT64_C(1) << 62, &config->pdl_overlap_ns) && ok;
    ok = read_bytes("SIMCUDA_KERNEL_NS", 0, UINT64_C(1) << 40, &config->kernel_ns) && ok;
    return read_bytes("SIMCUDA_LAUNCH_NS", 0, UINT64_C(1) << 40, &config->launch_ns) && ok;
}
