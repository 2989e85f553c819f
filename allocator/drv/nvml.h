// SPDX-License-Identifier: Apache-2.0
// NVML, as far as berm asks for it: which processes hold memory of a device (the report of a failed
// request), and how much is free where there is no context to ask the driver in. The library is
// opened at run time where there is one, and never needed.
//
// Locks: the owner's of the berm_nvml_t.
#ifndef BERM_DRV_NVML_H
#define BERM_DRV_NVML_H

#include <stdbool.h>
#include <stdint.h>

// As NVML has it (nvmlProcessInfo_t).
typedef struct berm_nvml_process {
    unsigned pid;
    unsigned long long used_bytes; // BERM_NVML_UNKNOWN where the system does not say
    unsigned gpu_instance, compute_instance;
} berm_nvml_process_t;

// nvmlMemory_t
typedef struct berm_nvml_memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
} berm_nvml_memory_t;

#define BERM_NVML_UNKNOWN UINT64_MAX

typedef struct berm_nvml {
    bool was_tried;
    void *library; // NULL: none that can be used
    int (*init)(void);
    int (*shutdown)(void);
    int (*handle_by_uuid)(const char *uuid, void **device);
    int (*memory)(void *device, berm_nvml_memory_t *memory);
    int (*processes)(void *device, unsigned *count, berm_nvml_process_t *processes);
} berm_nvml_t;

// Opens libnvidia-ml.so.1, once: beside the driver where `driver` is a path, else by its name.
void berm__nvml_open(berm_nvml_t *nvml, const char *driver);
void berm__nvml_close(berm_nvml_t *nvml);

// The processes of the device with this UUID, at most `capacity`; -1 where they cannot be known.
int berm__nvml_processes(const berm_nvml_t *nvml, const unsigned char uuid[16],
                         berm_nvml_process_t *processes, unsigned capacity);

// What is free on the device with this UUID; false where it cannot be known.
bool berm__nvml_free(const berm_nvml_t *nvml, const unsigned char uuid[16], uint64_t *free_bytes);

#endif
