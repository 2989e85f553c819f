// SPDX-License-Identifier: Apache-2.0
// NVML by dlopen: see nvml.h. NVML_SUCCESS is 0.
#include "drv/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char library_name[] = "libnvidia-ml.so.1";

static bool symbol_find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

void berm__nvml_open(berm_nvml_t *nvml, const char *driver) {
    char path[512] = "";
    const char *slash = strrchr(driver, '/');
    if (nvml->was_tried)
        return;
    *nvml = (berm_nvml_t){.was_tried = true};
    if (slash != NULL)
        (void)snprintf(path, sizeof path, "%.*s/%s", (int)(slash - driver), driver, library_name);
    void *library = dlopen(slash != NULL ? path : library_name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    bool is_whole =
        symbol_find(library, "nvmlInit_v2", &nvml->init) &&
        symbol_find(library, "nvmlShutdown", &nvml->shutdown) &&
        symbol_find(library, "nvmlDeviceGetHandleByUUID", &nvml->handle_by_uuid) &&
        symbol_find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory) &&
        symbol_find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes);
    if (is_whole && nvml->init() == 0)
        nvml->library = library;
    else
        (void)dlclose(library);
}

void berm__nvml_close(berm_nvml_t *nvml) {
    if (nvml->library != NULL) {
        (void)nvml->shutdown();
        (void)dlclose(nvml->library);
    }
    *nvml = (berm_nvml_t){0};
}

static bool device_find(const berm_nvml_t *nvml, const unsigned char uuid[16], void **device) {
    char text[48] = "GPU-";
    size_t length = strlen(text);
    if (nvml->library == NULL)
        return false;
    for (unsigned i = 0; i < 16; i++) {
        bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%02x",
                                   has_dash ? "-" : "", uuid[i]);
    }
    return nvml->handle_by_uuid(text, device) == 0;
}

int berm__nvml_processes(const berm_nvml_t *nvml, const unsigned char uuid[16],
                         berm_nvml_process_t *processes, unsigned capacity) {
    void *device = NULL;
    unsigned count = capacity;
    if (!device_find(nvml, uuid, &device) || nvml->processes(device, &count, processes) != 0 ||
        count > capacity)
        return -1;
    return (int)count;
}

bool berm__nvml_free(const berm_nvml_t *nvml, const unsigned char uuid[16], uint64_t *free_bytes) {
    void *device = NULL;
    berm_nvml_memory_t memory = {0};
    if (!device_find(nvml, uuid, &device) || nvml->memory(device, &memory) != 0)
        return false;
    *free_bytes = memory.free_bytes;
    return true;
}
