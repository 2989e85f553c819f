// SPDX-License-Identifier: Apache-2.0
// A minimal libnvidia-ml.so.1 over the simulated driver: devices by index, UUID and PCI address,
// their names, memory and versions. PyTorch's expandable segments and its out-of-memory report ask
// for it. What is not modelled (links, fabric, sensors) says NOT_SUPPORTED with its out parameters
// written.
//
// Own declarations of NVML's binary interface. A device handle is the address of an element of
// `devices`.
// Locks: none. May fail: an unknown device.
#include <stdio.h>
#include <string.h>

#include "simcuda.h"
#include "simcuda/driver/entries.h"

typedef enum nvml_result {
    NVML_OK = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_UNKNOWN = 999,
} nvml_result_t;

typedef struct nvml_device {
    char unused;
} nvml_device_t;

typedef struct nvml_memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
} nvml_memory_t; // nvmlMemory_t

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total_bytes, reserved_bytes, free_bytes, used_bytes;
} nvml_memory_v2_t; // nvmlMemory_v2_t

typedef struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvml_pci_info_t; // nvmlPciInfo_t

typedef struct nvml_fabric_info {
    unsigned version; // the caller's; later versions have more fields at the end
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique_id;
    unsigned char state;
} nvml_fabric_info_t; // nvmlGpuFabricInfoV_t, its beginning

// clang-format off
#define NVML_API BERM_EXPORT nvml_result_t
NVML_API nvmlInit(void);
NVML_API nvmlInit_v2(void);
NVML_API nvmlInitWithFlags(unsigned flags);
NVML_API nvmlShutdown(void);
BERM_EXPORT const char *nvmlErrorString(nvml_result_t result);
NVML_API nvmlSystemGetCudaDriverVersion(int *version);
NVML_API nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API nvmlSystemGetDriverVersion(char *version, unsigned length);
NVML_API nvmlDeviceGetCount_v2(unsigned *count);
NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_t **device);
NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device_t **device);
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device_t **device);
NVML_API nvmlDeviceGetIndex(nvml_device_t *device, unsigned *index);
NVML_API nvmlDeviceGetName(nvml_device_t *device, char *name, unsigned length);
NVML_API nvmlDeviceGetUUID(nvml_device_t *device, char *uuid, unsigned length);
NVML_API nvmlDeviceGetPciInfo_v3(nvml_device_t *device, nvml_pci_info_t *info);
NVML_API nvmlDeviceGetMemoryInfo(nvml_device_t *device, nvml_memory_t *memory);
NVML_API nvmlDeviceGetMemoryInfo_v2(nvml_device_t *device, nvml_memory_v2_t *memory);
NVML_API nvmlDeviceGetCudaComputeCapability(nvml_device_t *device, int *major, int *minor);
NVML_API nvmlDeviceGetComputeRunningProcesses(nvml_device_t *device, unsigned *count, void *processes);
NVML_API nvmlDeviceGetComputeRunningProcesses_v2(nvml_device_t *device, unsigned *count, void *processes);
NVML_API nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_t *device, unsigned *count, void *processes);
NVML_API nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device_t *device, unsigned link, int *type);
NVML_API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device_t *device, unsigned link, nvml_pci_info_t *info);
NVML_API nvmlDeviceGetGpuFabricInfoV(nvml_device_t *device, nvml_fabric_info_t *info);
// clang-format on

static nvml_device_t devices[SIMCUDA_DEVICE_MAX];

static int device_number(const nvml_device_t *device) {
    int count = 0;
    if (device < devices || device >= devices + SIMCUDA_DEVICE_MAX)
        return -1;
    if (cuDeviceGetCount(&count) != BERM_CU_SUCCESS || device - devices >= count)
        return -1;
    return (int)(device - devices);
}

nvml_result_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return cuInit(0) == BERM_CU_SUCCESS ? NVML_OK : NVML_UNKNOWN;
}

nvml_result_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvml_result_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvml_result_t nvmlShutdown(void) {
    return NVML_OK;
}

const char *nvmlErrorString(nvml_result_t result) {
    switch (result) {
    case NVML_OK:
        return "Success";
    case NVML_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_NOT_FOUND:
        return "Not Found";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

nvml_result_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuDriverGetVersion(version) == BERM_CU_SUCCESS ? NVML_OK : NVML_INVALID_ARGUMENT;
}

nvml_result_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

static nvml_result_t text_write(char *text, unsigned length, const char *value) {
    if (text == NULL)
        return NVML_INVALID_ARGUMENT;
    if (strlen(value) >= length)
        return NVML_INSUFFICIENT_SIZE;
    (void)snprintf(text, length, "%s", value);
    return NVML_OK;
}

nvml_result_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return text_write(version, length, "simcuda");
}

// --- which device --------------------------------------------------------------------------------

nvml_result_t nvmlDeviceGetCount_v2(unsigned *count) {
    int number = 0;
    if (count == NULL)
        return NVML_INVALID_ARGUMENT;
    *count = 0;
    if (cuDeviceGetCount(&number) != BERM_CU_SUCCESS)
        return NVML_UNKNOWN;
    *count = (unsigned)number;
    return NVML_OK;
}

nvml_result_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_t **device) {
    if (device == NULL)
        return NVML_INVALID_ARGUMENT;
    *device = NULL;
    if (index >= SIMCUDA_DEVICE_MAX || device_number(&devices[index]) < 0)
        return NVML_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_OK;
}

// Domains are written with four or eight digits; the driver takes four.
nvml_result_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device_t **device) {
    unsigned domain = 0, bus = 0;
    char text[32];
    int number = 0;
    if (device == NULL)
        return NVML_INVALID_ARGUMENT;
    *device = NULL;
    if (bus_id == NULL || sscanf(bus_id, "%8x:%2x:", &domain, &bus) != 2 || domain > 0xffff)
        return NVML_NOT_FOUND;
    (void)snprintf(text, sizeof text, "%04x:%02x:00.0", domain, bus);
    if (cuDeviceGetByPCIBusId(&number, text) != BERM_CU_SUCCESS)
        return NVML_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2((unsigned)number, device);
}

// "GPU-" and the bytes of the driver's UUID in the usual groups.
static void uuid_text(int device, char text[48]) {
    berm_cu_uuid_t uuid = {{0}};
    (void)cuDeviceGetUuid_v2(&uuid, device);
    int length = snprintf(text, 48, "GPU-");
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += snprintf(text + length, 48 - (size_t)length, "%s%02x", dash,
                           (unsigned)(unsigned char)uuid.bytes[i]);
    }
}

nvml_result_t nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device_t **device) {
    if (device == NULL || uuid == NULL)
        return NVML_INVALID_ARGUMENT;
    *device = NULL;
    for (int i = 0; i < SIMCUDA_DEVICE_MAX && device_number(&devices[i]) >= 0; i++) {
        char text[48];
        uuid_text(i, text);
        if (strcmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
    return NVML_NOT_FOUND;
}

nvml_result_t nvmlDeviceGetIndex(nvml_device_t *device, unsigned *index) {
    int number = device_number(device);
    if (index == NULL || number < 0)
        return NVML_INVALID_ARGUMENT;
    *index = (unsigned)number;
    return NVML_OK;
}

// --- what it is ----------------------------------------------------------------------------------

nvml_result_t nvmlDeviceGetName(nvml_device_t *device, char *name, unsigned length) {
    int number = device_number(device);
    char text[256] = "";
    if (number < 0 || cuDeviceGetName(text, (int)sizeof text, number) != BERM_CU_SUCCESS)
        return NVML_INVALID_ARGUMENT;
    return text_write(name, length, text);
}

nvml_result_t nvmlDeviceGetUUID(nvml_device_t *device, char *uuid, unsigned length) {
    int number = device_number(device);
    char text[48];
    if (number < 0)
        return NVML_INVALID_ARGUMENT;
    uuid_text(number, text);
    return text_write(uuid, length, text);
}

nvml_result_t nvmlDeviceGetPciInfo_v3(nvml_device_t *device, nvml_pci_info_t *info) {
    int number = device_number(device), bus = 0;
    if (info == NULL || number < 0)
        return NVML_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    (void)cuDeviceGetAttribute(&bus, BERM_CU_ATTR_PCI_BUS_ID, number);
    info->bus = (unsigned)bus;
    (void)snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    (void)snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0",
                   info->bus & 0xffu);
    return NVML_OK;
}

nvml_result_t nvmlDeviceGetCudaComputeCapability(nvml_device_t *device, int *major, int *minor) {
    int number = device_number(device);
    if (major == NULL || minor == NULL || number < 0)
        return NVML_INVALID_ARGUMENT;
    *major = *minor = 0;
    (void)cuDeviceGetAttribute(major, BERM_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, number);
    (void)cuDeviceGetAttribute(minor, BERM_CU_ATTR_COMPUTE_CAPABILITY_MINOR, number);
    return NVML_OK;
}

nvml_result_t nvmlDeviceGetMemoryInfo(nvml_device_t *device, nvml_memory_t *memory) {
    int number = device_number(device);
    uint64_t free_bytes = 0, total_bytes = 0;
    if (memory == NULL || number < 0)
        return NVML_INVALID_ARGUMENT;
    memset(memory, 0, sizeof *memory);
    if (simcuda_memory_read(number, &free_bytes, &total_bytes) != 0)
        return NVML_UNKNOWN;
    *memory = (nvml_memory_t){.total_bytes = total_bytes,
                              .free_bytes = free_bytes,
                              .used_bytes = total_bytes - free_bytes};
    return NVML_OK;
}

nvml_result_t nvmlDeviceGetMemoryInfo_v2(nvml_device_t *device, nvml_memory_v2_t *memory) {
    nvml_memory_t plain;
    if (memory == NULL)
        return NVML_INVALID_ARGUMENT;
    nvml_result_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    memory->reserved_bytes = 0;
    memory->total_bytes = result == NVML_OK ? plain.total_bytes : 0;
    memory->free_bytes = result == NVML_OK ? plain.free_bytes : 0;
    memory->used_bytes = result == NVML_OK ? plain.used_bytes : 0;
    return result;
}

// --- processes -----------------------------------------------------------------------------------

typedef struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used_bytes;
} nvml_process_v1_t; // nvmlProcessInfo_v1_t

typedef struct nvml_process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process_t; // nvmlProcessInfo_t, nvmlProcessInfo_v2_t

enum {
    OTHER_PID = 1 // of whoever holds what the device says is held outside
};

// What "other processes" hold, as one process; none where they hold nothing.
static nvml_result_t outside_read(const nvml_device_t *device, unsigned *count,
                                  const void *processes, unsigned long long *outside_bytes) {
    int number = device_number(device);
    simcuda_ledger_t ledger;
    nvml_memory_t memory;
    if (count == NULL || number < 0)
        return NVML_INVALID_ARGUMENT;
    nvml_result_t result = nvmlDeviceGetMemoryInfo(&devices[number], &memory);
    if (result != NVML_OK)
        return result;
    simcuda_ledger_read(number, &ledger);
    unsigned long long own_bytes = ledger.used_bytes + ledger.context_bytes;
    *outside_bytes = memory.used_bytes > own_bytes ? memory.used_bytes - own_bytes : 0;
    unsigned room = *count;
    *count = *outside_bytes > 0;
    if (room < *count)
        return NVML_INSUFFICIENT_SIZE;
    return *count > 0 && processes == NULL ? NVML_INVALID_ARGUMENT : NVML_OK;
}

nvml_result_t nvmlDeviceGetComputeRunningProcesses(nvml_device_t *device, unsigned *count,
                                                   void *processes) {
    unsigned long long outside_bytes = 0;
    nvml_result_t result = outside_read(device, count, processes, &outside_bytes);
    if (result == NVML_OK && outside_bytes > 0)
        *(nvml_process_v1_t *)processes = (nvml_process_v1_t){OTHER_PID, outside_bytes};
    return result;
}

nvml_result_t nvmlDeviceGetComputeRunningProcesses_v2(nvml_device_t *device, unsigned *count,
                                                      void *processes) {
    unsigned long long outside_bytes = 0;
    nvml_result_t result = outside_read(device, count, processes, &outside_bytes);
    if (result == NVML_OK && outside_bytes > 0) // instances: none, all bits set
        *(nvml_process_t *)processes =
            (nvml_process_t){OTHER_PID, outside_bytes, UINT32_MAX, UINT32_MAX};
    return result;
}

nvml_result_t nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_t *device, unsigned *count,
                                                      void *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, processes);
}

// --- not modelled --------------------------------------------------------------------------------

nvml_result_t nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device_t *device, unsigned link, int *type) {
    (void)device;
    (void)link;
    if (type != NULL)
        *type = 0xff; // NVML_NVLINK_DEVICE_TYPE_UNKNOWN
    return NVML_NOT_SUPPORTED;
}

nvml_result_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device_t *device, unsigned link,
                                                  nvml_pci_info_t *info) {
    (void)device;
    (void)link;
    if (info != NULL)
        memset(info, 0, sizeof *info);
    return NVML_NOT_SUPPORTED;
}

// A device of no fabric: state 0 is "not supported".
nvml_result_t nvmlDeviceGetGpuFabricInfoV(nvml_device_t *device, nvml_fabric_info_t *info) {
    if (info == NULL || device_number(device) < 0)
        return NVML_INVALID_ARGUMENT;
    memset(info->cluster_uuid, 0, sizeof info->cluster_uuid);
    info->status = NVML_NOT_SUPPORTED;
    info->clique_id = 0;
    info->state = 0;
    return NVML_OK;
}
