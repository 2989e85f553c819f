// SPDX-License-Identifier: Apache-2.0
// Opens the driver for a run: see device.h. Costs come from latency.c, counts from device_calls.c.
//
// The simulated library is loaded with RTLD_LOCAL: a later dlopen("libcuda.so.1") by libberm gives
// the same one, since the loader matches by SONAME.
// May fail: library or symbol absent, no such device, bad latency file; nothing stays open then but
// the library itself, which is never unloaded (allocators may hold its functions).
// Locks: none; one thread.
#include "stress/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defs.h"
#include "stress/device_calls.h"
#include "stress/latency.h"

static struct {
    void *library;
    bool is_open, is_simulated;
    int ordinal;
    uint64_t memory_bytes;
    berm_cu_device_t device;
    berm_cu_context_t context;
    simcuda_config_t config;
    stress_driver_t raw, wrapped;
    stress_simcuda_t sim;
    void (*source)(stress_calls_t *calls);
    uint64_t asked_bytes; // of memory, as the options have it; 0: the default
} device_state;

// POSIX lets an object pointer from dlsym hold a function; ISO C has no cast for it.
bool stress_device_symbol(void *library, const char *name, void *function, char *error,
                          size_t error_capacity) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        (void)snprintf(error, error_capacity, "the CUDA driver has no %s", name);
        return false;
    }
    memcpy(function, &found, sizeof found);
    return true;
}

static int device_driver_load(void *library, stress_driver_t *d, char *error,
                              size_t error_capacity) {
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cuInit", &d->init},
        {"cuDeviceGet", &d->device_get},
        {"cuDevicePrimaryCtxRetain", &d->ctx_retain},
        {"cuDevicePrimaryCtxRelease_v2", &d->ctx_release},
        {"cuCtxSetCurrent", &d->ctx_set_current},
        {"cuMemGetInfo_v2", &d->mem_get_info},
        {"cuMemAlloc_v2", &d->mem_alloc},
        {"cuMemFree_v2", &d->mem_free},
        {"cuMemAddressReserve", &d->address_reserve},
        {"cuMemAddressFree", &d->address_free},
        {"cuMemCreate", &d->mem_create},
        {"cuMemRelease", &d->mem_release},
        {"cuMemMap", &d->mem_map},
        {"cuMemUnmap", &d->mem_unmap},
        {"cuMemSetAccess", &d->set_access},
        {"cuMemGetAllocationGranularity", &d->get_granularity},
        {"cuStreamCreate", &d->stream_create},
        {"cuStreamDestroy_v2", &d->stream_destroy},
        {"cuStreamSynchronize", &d->stream_synchronize},
        {"cuStreamWaitEvent", &d->stream_wait_event},
        {"cuEventCreate", &d->event_create},
        {"cuEventDestroy_v2", &d->event_destroy},
        {"cuEventRecord", &d->event_record},
        {"cuEventQuery", &d->event_query},
        {"cuEventSynchronize", &d->event_synchronize},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(symbols); i++)
        if (!stress_device_symbol(library, symbols[i].name, symbols[i].function, error,
                                  error_capacity))
            return -1;
    return 0;
}

static int device_simcuda_load(void *library, stress_simcuda_t *s, char *error,
                               size_t error_capacity) {
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"simcuda_config_default", &s->config_default},
        {"simcuda_reset", &s->reset},
        {"simcuda_costs_preset", &s->costs_preset},
        {"simcuda_now_ns", &s->now_ns},
        {"simcuda_advance_ns", &s->advance_ns},
        {"simcuda_driver_ns", &s->driver_ns},
        {"simcuda_wait_ns", &s->wait_ns},
        {"simcuda_launch", &s->launch},
        {"simcuda_launch_fn", &s->launch_fn},
        {"simcuda_gate", &s->gate},
        {"simcuda_gate_open", &s->gate_open},
        {"simcuda_hazard_count", &s->hazard_count},
        {"simcuda_hazard_count_of", &s->hazard_count_of},
        {"simcuda_hazard_read", &s->hazard_read},
        {"simcuda_ledger_read", &s->ledger_read},
        {"simcuda_calls", &s->calls},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(symbols); i++)
        if (!stress_device_symbol(library, symbols[i].name, symbols[i].function, error,
                                  error_capacity))
            return -1;
    return 0;
}

// --- finding the library -------------------------------------------------------------------------

static void *device_sim_open_near(const char *folder, char *error, size_t error_capacity) {
    static const char *const places[] = {
        "../lib/simcuda",        "lib/simcuda",
        "../lib/berm/simcuda",   "../lib/x86_64-linux-gnu/berm/simcuda",
        "../lib64/berm/simcuda",
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(places); i++) {
        char path[PATH_MAX + 64];
        int length = snprintf(path, sizeof path, "%s/%s/libcuda.so.1", folder, places[i]);
        if (length < 0 || (size_t)length >= sizeof path || access(path, R_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            (void)snprintf(error, error_capacity, "%s", dlerror());
        return library;
    }
    (void)snprintf(error, error_capacity,
                   "the simulated libcuda.so.1 is not in lib/simcuda beside %s; set "
                   "BERM_LIBCUDA_SIM to its path",
                   folder);
    return NULL;
}

static void *device_sim_open(char *error, size_t error_capacity) {
    const char *named = getenv("BERM_LIBCUDA_SIM");
    if (named != NULL && *named != '\0') {
        void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            (void)snprintf(error, error_capacity, "BERM_LIBCUDA_SIM: %s", dlerror());
        return library;
    }
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) {
        (void)snprintf(error, error_capacity, "/proc/self/exe: %s", strerror(errno));
        return NULL;
    }
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
    return device_sim_open_near(path, error, error_capacity);
}

// "sim", "cuda" or "cuda:N".
static int device_name_parse(const char *name, bool *is_simulated, int *ordinal) {
    *is_simulated = strcmp(name, "sim") == 0;
    *ordinal = 0;
    if (*is_simulated || strcmp(name, "cuda") == 0)
        return 0;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    char *end = NULL;
    errno = 0;
    long value = strtol(name + 5, &end, 10);
    if (errno != 0 || *end != '\0' || value > 1023)
        return -1;
    *ordinal = (int)value;
    return 0;
}

// --- opening -------------------------------------------------------------------------------------

static int device_error(const char *call, berm_cu_result_t result, char *error,
                        size_t error_capacity) {
    (void)snprintf(error, error_capacity, "%s of device %d failed with CUresult %d", call,
                   device_state.ordinal, result);
    return -1;
}

static int device_context_make(char *error, size_t error_capacity) {
    const stress_driver_t *d = &device_state.raw;
    berm_cu_result_t result = d->init(0);
    if (result != BERM_CU_SUCCESS)
        return device_error("cuInit", result, error, error_capacity);
    result = d->device_get(&device_state.device, device_state.ordinal);
    if (result != BERM_CU_SUCCESS)
        return device_error("cuDeviceGet", result, error, error_capacity);
    result = d->ctx_retain(&device_state.context, device_state.device);
    if (result != BERM_CU_SUCCESS)
        return device_error("cuDevicePrimaryCtxRetain", result, error, error_capacity);
    result = d->ctx_set_current(device_state.context);
    if (result != BERM_CU_SUCCESS)
        return device_error("cuCtxSetCurrent", result, error, error_capacity);
    device_state.is_open = true;
    size_t free_bytes = 0, total_bytes = 0;
    if (d->mem_get_info(&free_bytes, &total_bytes) == BERM_CU_SUCCESS)
        device_state.memory_bytes = total_bytes;
    return 0;
}

int stress_device_reset(uint64_t capacity_bytes, char *error, size_t error_capacity) {
    if (!device_state.is_simulated)
        return device_state.is_open ? 0 : device_context_make(error, error_capacity);
    simcuda_config_t config = device_state.config;
    if (capacity_bytes != 0)
        config.memory_bytes = capacity_bytes / config.granule_bytes * config.granule_bytes;
    device_state.is_open = false;
    if (config.memory_bytes == 0) {
        uint64_t asked = capacity_bytes != 0 ? capacity_bytes : device_state.asked_bytes;
        (void)snprintf(error, error_capacity,
                       "the simulated device cannot have %llu byte%s of memory: at least one "
                       "granule, %llu bytes",
                       (unsigned long long)asked, BERM_PLURAL(asked),
                       (unsigned long long)config.granule_bytes);
        return -1;
    }
    if (device_state.sim.reset(&config) != 0) {
        (void)snprintf(error, error_capacity,
                       "the simulated device cannot have %llu bytes of memory",
                       (unsigned long long)config.memory_bytes);
        return -1;
    }
    return device_context_make(error, error_capacity);
}

static int device_sim_configure(const stress_device_options_t *options, char *error,
                                size_t error_capacity) {
    if (device_simcuda_load(device_state.library, &device_state.sim, error, error_capacity) != 0)
        return -1;
    simcuda_config_t *config = &device_state.config;
    device_state.sim.config_default(config);
    config->is_strict = options->is_strict ? 1 : 0;
    config->is_backed = options->is_backed ? 1 : 0;
    config->drains_map = options->drains_map ? 1 : 0;
    config->faults_page_edits = options->faults_page_edits ? 1 : 0;
    config->pdl_overlap_ns = options->pdl_overlap_ns;
    config->stale_map_ns = options->stale_map_ns;
    if (options->granule_bytes != 0)
        config->granule_bytes = options->granule_bytes;
    device_state.asked_bytes = options->capacity_bytes;
    if (options->capacity_bytes != 0)
        config->memory_bytes =
            options->capacity_bytes / config->granule_bytes * config->granule_bytes;
    const char *latency = options->latency != NULL ? options->latency : "typical";
    return stress_latency_read(latency, device_state.sim.costs_preset, &config->costs, error,
                               error_capacity);
}

int stress_device_open(const stress_device_options_t *options, char *error, size_t error_capacity) {
    memset(&device_state, 0, sizeof device_state);
    const char *name = options->name != NULL ? options->name : "sim";
    if (device_name_parse(name, &device_state.is_simulated, &device_state.ordinal) != 0) {
        (void)snprintf(error, error_capacity, "device '%s' is not sim, cuda or cuda:N", name);
        return -1;
    }
    if (!device_state.is_simulated && options->capacity_bytes != 0) {
        (void)snprintf(error, error_capacity,
                       "a capacity can be given to the simulated device only");
        return -1;
    }
    if (!device_state.is_simulated &&
        (options->drains_map || options->faults_page_edits || options->pdl_overlap_ns != 0 ||
         options->stale_map_ns != 0)) {
        (void)snprintf(error, error_capacity, "only the simulated device has such switches");
        return -1;
    }
    if (device_state.is_simulated) {
        device_state.library = device_sim_open(error, error_capacity);
    } else {
        device_state.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (device_state.library == NULL)
            (void)snprintf(error, error_capacity, "no CUDA driver: %s", dlerror());
    }
    if (device_state.library == NULL ||
        device_driver_load(device_state.library, &device_state.raw, error, error_capacity) != 0)
        return -1;
    if (device_state.is_simulated && device_sim_configure(options, error, error_capacity) != 0)
        return -1;
    if (!device_state.is_simulated)
        stress_driver_wrap(&device_state.raw, &device_state.wrapped);
    return stress_device_reset(0, error, error_capacity);
}

void stress_device_close(void) {
    if (device_state.is_open)
        (void)device_state.raw.ctx_release(device_state.device);
    device_state.is_open = false;
}

uint64_t stress_device_memory_bytes(void) {
    return device_state.memory_bytes;
}

bool stress_device_is_simulated(void) {
    return device_state.is_simulated;
}

int stress_device_ordinal(void) {
    return device_state.ordinal;
}

const stress_simcuda_t *stress_simcuda(void) {
    return device_state.is_simulated ? &device_state.sim : NULL;
}

const stress_driver_t *stress_driver(void) {
    return device_state.is_simulated ? &device_state.raw : &device_state.wrapped;
}

const stress_driver_t *stress_driver_raw(void) {
    return &device_state.raw;
}

stress_calls_t stress_device_calls(void) {
    if (device_state.is_simulated)
        return stress_calls_of_simcuda(&device_state.sim);
    stress_calls_t calls = stress_calls_of_wrappers();
    if (device_state.source != NULL) {
        stress_calls_t own = {0};
        device_state.source(&own);
        for (int i = 0; i < BERM_DRV_KIND_COUNT; i++)
            calls.of[i] += own.of[i];
    }
    return calls;
}

uint64_t stress_device_calls_all(void) {
    if (device_state.is_simulated)
        return device_state.sim.calls(NULL);
    stress_calls_t calls = stress_device_calls();
    return stress_calls_all(&calls);
}

uint64_t stress_device_driver_ns(void) {
    return device_state.is_simulated ? device_state.sim.driver_ns()
                                     : stress_driver_ns_of_wrappers();
}

void stress_device_source_set(void (*read)(stress_calls_t *calls)) {
    device_state.source = read;
}
