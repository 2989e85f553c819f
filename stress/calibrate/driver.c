// SPDX-License-Identifier: Apache-2.0
// Makes the open device ready to be calibrated: further functions of its driver, its name, its
// granule. Opening and closing the device is left to stress/device.c.
//
// Locks: none; one thread. May fail: a function or virtual memory management is absent.
#include <dlfcn.h>
#include <string.h>

#include "base/bits.h"
#include "stress/calibrate/calibrate.h"

#define UNIT_LEAST   (UINT64_C(2) << 20)
#define BACKED_BYTES (UINT64_C(256) << 20)

// What is absent stays NULL. The simulated device has none of these and runs host functions.
static void modules_find(stress_calibrate_driver_t *c, void *library) {
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cuModuleLoadData", &c->module.load_data},
        {"cuModuleGetFunction", &c->module.get_function},
        {"cuModuleUnload", &c->module.unload},
        {"cuLaunchKernel", &c->module.launch},
        {"cuLaunchKernelEx", &c->module.launch_ex},
    };
    char ignored[128];
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(symbols); i++)
        (void)stress_device_symbol(library, symbols[i].name, symbols[i].function, ignored,
                                   sizeof ignored);
    c->has_modules = !stress_device_is_simulated();
    berm_cu_device_get_attribute_fn attribute = NULL;
    if (stress_device_symbol(library, "cuDeviceGetAttribute", &attribute, ignored, sizeof ignored))
        (void)attribute(&c->capability_major, BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR,
                        stress_device_ordinal());
}

// The library is loaded already; the loader finds it by its SONAME, the simulated one too.
static int functions_find(stress_calibrate_driver_t *c, char *error, size_t error_capacity) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        (void)snprintf(error, error_capacity, "the CUDA driver is not loaded");
        return -1;
    }
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cuDriverGetVersion", &c->get_version},
        {"cuDeviceGetName", &c->get_name},
        {"cuMemcpyHtoDAsync_v2", &c->copy_to_device},
        {"cuMemcpyDtoHAsync_v2", &c->copy_to_host},
        {"cuMemsetD8Async", &c->fill},
    };
    bool ok = true;
    for (size_t i = 0; ok && i < BERM_ARRAY_LENGTH(symbols); i++)
        ok = stress_device_symbol(library, symbols[i].name, symbols[i].function, error,
                                  error_capacity);
    if (ok)
        modules_find(c, library);
    (void)dlclose(library);
    return ok ? 0 : -1;
}

// Retained once more than by stress/device.c, only to learn its handle.
static int context_read(stress_calibrate_driver_t *c, char *error, size_t error_capacity) {
    berm_cu_device_t device = 0;
    int result = c->d->device_get(&device, stress_device_ordinal());
    if (result == BERM_CU_SUCCESS)
        result = c->d->ctx_retain(&c->context, device);
    if (result == BERM_CU_SUCCESS)
        result = c->d->ctx_release(device);
    if (result == BERM_CU_SUCCESS)
        result = c->d->ctx_set_current(c->context);
    if (result == BERM_CU_SUCCESS)
        return 0;
    (void)snprintf(error, error_capacity, "the device's context cannot be had: CUresult %d",
                   result);
    return -1;
}

int stress_calibrate_open(stress_calibrate_driver_t *c, char *error, size_t error_capacity) {
    memset(c, 0, sizeof *c);
    c->d = stress_driver_raw();
    c->is_backed = !stress_device_is_simulated();
    if (functions_find(c, error, error_capacity) != 0 || context_read(c, error, error_capacity))
        return -1;
    berm_cu_device_t device = 0;
    (void)c->d->device_get(&device, stress_device_ordinal());
    if (c->get_name(c->name, (int)sizeof c->name - 1, device) != BERM_CU_SUCCESS)
        (void)snprintf(c->name, sizeof c->name, "unknown");
    (void)c->get_version(&c->version);
    c->prop.type = BERM_CU_MEM_ALLOCATION_PINNED;
    c->prop.location.type = BERM_CU_MEM_LOCATION_DEVICE;
    c->prop.location.id = stress_device_ordinal();
    c->access.location = c->prop.location;
    c->access.flags = BERM_CU_MEM_ACCESS_READWRITE;
    size_t granule = 0;
    int result = c->d->get_granularity(&granule, &c->prop, BERM_CU_MEM_GRANULARITY_MINIMUM);
    if (result != BERM_CU_SUCCESS || granule == 0) {
        (void)snprintf(error, error_capacity,
                       "the device has no virtual memory management: "
                       "cuMemGetAllocationGranularity failed with CUresult %d",
                       result);
        return -1;
    }
    c->granule_bytes = granule;
    c->unit_bytes = granule > UNIT_LEAST ? granule : UNIT_LEAST / granule * granule;
    return 0;
}

int stress_calibrate_back(stress_calibrate_driver_t *c, char *error, size_t error_capacity) {
    const stress_simcuda_t *sim = stress_simcuda();
    if (sim == NULL)
        return 0;
    simcuda_config_t config;
    sim->config_default(&config);
    config.memory_bytes = BACKED_BYTES;
    config.is_backed = 1;
    // The context of before is gone with the device; stress_device_close releases the new one.
    berm_cu_device_t device = 0;
    bool ok = sim->reset(&config) == 0 && c->d->init(0) == BERM_CU_SUCCESS &&
              c->d->device_get(&device, stress_device_ordinal()) == BERM_CU_SUCCESS &&
              c->d->ctx_retain(&c->context, device) == BERM_CU_SUCCESS &&
              c->d->ctx_set_current(c->context) == BERM_CU_SUCCESS;
    if (!ok) {
        (void)snprintf(error, error_capacity,
                       "no simulated device with contents: the host has no memory for it");
        return -1;
    }
    c->is_backed = true;
    return 0;
}
