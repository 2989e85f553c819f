// SPDX-License-Identifier: Apache-2.0
// The stand-in libnvidia-ml.so.1: devices are found in each way, figures are the driver's.
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"

typedef struct device device_t;
typedef struct memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
} memory_t;

static void *library;

static void library_open(void) {
    char path[4096];
    const char *folder = getenv("BERM_LIBDIR");
    (void)snprintf(path, sizeof path, "%s/simcuda/libnvidia-ml.so.1",
                   folder != NULL ? folder : ".");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library != NULL, "%s", dlerror());
}

static void function_find(const char *name, void *function) {
    void *found = dlsym(library, name);
    cr_assert(found != NULL, "no %s", name);
    memcpy(function, &found, sizeof found);
}

TestSuite(nvml, .init = library_open);

Test(nvml, finds_devices) {
    int (*init)(void);
    int (*by_index)(unsigned, device_t **);
    int (*by_pci)(const char *, device_t **);
    int (*by_uuid)(const char *, device_t **);
    int (*get_uuid)(device_t *, char *, unsigned);
    function_find("nvmlInit_v2", &init);
    function_find("nvmlDeviceGetHandleByIndex_v2", &by_index);
    function_find("nvmlDeviceGetHandleByPciBusId_v2", &by_pci);
    function_find("nvmlDeviceGetHandleByUUID", &by_uuid);
    function_find("nvmlDeviceGetUUID", &get_uuid);
    device_t *device = NULL, *other = NULL;
    char uuid[64];
    cr_assert(init() == 0);
    cr_assert(by_index(0, &device) == 0 && device != NULL);
    cr_assert(by_index(1, &other) != 0 && other == NULL);
    cr_assert(by_pci("00000000:10:00.0", &other) == 0 && other == device);
    cr_assert(by_pci("0000:10:00.0", &other) == 0 && other == device);
    cr_assert(by_pci("0000:77:00.0", &other) != 0 && other == NULL);
    cr_assert(by_pci("rubbish", &other) != 0 && other == NULL);
    cr_assert(get_uuid(device, uuid, sizeof uuid) == 0 && strncmp(uuid, "GPU-", 4) == 0);
    cr_assert(strlen(uuid) == 40);
    cr_assert(by_uuid(uuid, &other) == 0 && other == device);
    cr_assert(by_uuid("GPU-0", &other) != 0 && other == NULL);
    cr_assert(get_uuid(device, uuid, 10) == 7, "too small a buffer");
}

Test(nvml, tells_memory_and_processes) {
    int (*init)(void);
    int (*by_index)(unsigned, device_t **);
    int (*get_memory)(device_t *, memory_t *);
    int (*get_processes)(device_t *, unsigned *, void *);
    function_find("nvmlInit_v2", &init);
    function_find("nvmlDeviceGetHandleByIndex_v2", &by_index);
    function_find("nvmlDeviceGetMemoryInfo", &get_memory);
    function_find("nvmlDeviceGetComputeRunningProcesses", &get_processes);
    device_t *device = NULL;
    memory_t memory;
    unsigned count = 9;
    cr_assert(init() == 0 && by_index(0, &device) == 0);
    cr_assert(simcuda_outside_set(0, (uint64_t)3 << 30) == 0);
    cr_assert(get_memory(device, &memory) == 0);
    cr_assert(memory.total_bytes == (unsigned long long)80 << 30);
    cr_assert(memory.used_bytes == (unsigned long long)3 << 30);
    cr_assert(memory.used_bytes + memory.free_bytes == memory.total_bytes);
    simcuda_ledger_t ledger;
    simcuda_ledger_read(0, &ledger);
    cr_assert(ledger.contexts_retained == 0, "the borrowed context was given back");
    // What is held outside is one process.
    struct {
        unsigned pid;
        unsigned long long used_bytes;
    } process = {0};
    count = 0;
    cr_assert(get_processes(device, &count, NULL) == 7 && count == 1, "too small a buffer");
    cr_assert(get_processes(device, &count, NULL) != 0, "no buffer");
    cr_assert(get_processes(device, &count, &process) == 0 && count == 1);
    cr_assert(process.pid == 1 && process.used_bytes == (unsigned long long)3 << 30);
    cr_assert(simcuda_outside_set(0, 0) == 0);
    cr_assert(get_processes(device, &count, NULL) == 0 && count == 0);
    cr_assert(get_memory(NULL, &memory) != 0);
}
