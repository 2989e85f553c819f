// SPDX-License-Identifier: Apache-2.0
// Kinds of devices: the presets, device files (the form: simcuda_gpu_read in simcuda.h), and the
// device that there is where nobody says which.
//
// The memory of a preset is what that device's driver reported to a program, below what its maker
// prints; context_bytes are estimates. docs/simcuda.md says where the figures are from.
// No lock. May fail: an unknown name, a file that cannot be read or has a line that makes no sense.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "keyfile.h"

typedef struct preset {
    const char *name;
    simcuda_gpu_t gpu;
} preset_t;

// The columns: memory, a context's, L2; capability; multiprocessors; clocks of the device and of
// its memory, memory bus; threads, blocks, shared memory of a multiprocessor, of a block.
#define GPU(text, mib, context_mib, l2_kib, major, minor, count, mhz, memory_mhz, bus, threads,    \
            blocks, shared_kib, block_kib, rdma, peers, ecc)                                       \
    {                                                                                              \
        .name = (text), .memory_bytes = BERM_MIB(mib), .context_bytes = BERM_MIB(context_mib),     \
        .l2_bytes = BERM_KIB(l2_kib), .capability_major = (major), .capability_minor = (minor),    \
        .multiprocessors = (count), .clock_khz = (mhz)*1000,                                       \
        .memory_clock_khz = (memory_mhz)*1000, .memory_bus_bits = (bus),                           \
        .threads_per_multiprocessor = (threads), .blocks_per_multiprocessor = (blocks),            \
        .shared_multiprocessor_bytes = (shared_kib) << 10,                                         \
        .shared_block_bytes = (block_kib) << 10, .has_rdma = (rdma), .has_peers = (peers),         \
        .has_ecc = (ecc)                                                                           \
    }

// clang-format off
static const simcuda_gpu_t gpu_default =
    GPU("simcuda device", 81920, 0, 51200, 9, 0, 132, 1500, 2619, 5120, 2048, 32, 228, 227, 1, 1, 1);

static const preset_t presets[] = {
    {"T4-16", GPU("Tesla T4", 14930, 150, 4096, 7, 5, 40, 1590, 5001, 256, 1024, 16, 64, 64, 1, 1, 1)},
    {"L4-24", GPU("NVIDIA L4", 22491, 250, 49152, 8, 9, 58, 2040, 6251, 192, 1536, 24, 100, 99, 1, 1, 1)},
    {"RTX4090-24", GPU("NVIDIA GeForce RTX 4090", 24081, 380, 73728, 8, 9, 128, 2520, 10501, 384, 1536, 24, 100, 99, 0, 0, 0)},
    {"A100-40", GPU("NVIDIA A100-SXM4-40GB", 40339, 420, 40960, 8, 0, 108, 1410, 1215, 5120, 2048, 32, 164, 163, 1, 1, 1)},
    {"A100-80", GPU("NVIDIA A100-SXM4-80GB", 81050, 420, 40960, 8, 0, 108, 1410, 1593, 5120, 2048, 32, 164, 163, 1, 1, 1)},
    {"H100-80", GPU("NVIDIA H100 80GB HBM3", 81090, 520, 51200, 9, 0, 132, 1980, 2619, 5120, 2048, 32, 228, 227, 1, 1, 1)},
    {"H200-141", GPU("NVIDIA H200", 143156, 520, 61440, 9, 0, 132, 1980, 3201, 6144, 2048, 32, 228, 227, 1, 1, 1)},
    {"B200-192", GPU("NVIDIA B200", 182631, 600, 129536, 10, 0, 148, 1965, 3996, 7680, 2048, 32, 228, 227, 1, 1, 1)},
};
// clang-format on

void sim_gpu_default(simcuda_gpu_t *gpu) {
    *gpu = gpu_default;
}

const char *simcuda_gpu_name(size_t index) {
    return index < BERM_ARRAY_LENGTH(presets) ? presets[index].name : NULL;
}

static bool preset_read(const char *name, simcuda_gpu_t *gpu) {
    for (size_t i = 0; name != NULL && i < BERM_ARRAY_LENGTH(presets); i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *gpu = presets[i].gpu;
            return true;
        }
    }
    return false;
}

// --- the fields, by name -------------------------------------------------------------------------

typedef struct field {
    const char *name;
    size_t offset;
    uint64_t least, most;
    bool is_wide; // uint64_t; else int
} field_t;

#define WIDE(name, least, most)                                                                    \
    { #name, offsetof(simcuda_gpu_t, name), (least), (most), true }
#define PLAIN(name, least, most)                                                                   \
    { #name, offsetof(simcuda_gpu_t, name), (least), (most), false }
static const field_t fields[] = {
    WIDE(memory_bytes, 1, SIM_ADDRESS_BYTES),
    WIDE(context_bytes, 0, SIM_ADDRESS_BYTES),
    WIDE(l2_bytes, 0, INT32_MAX),
    PLAIN(capability_major, 1, 99),
    PLAIN(capability_minor, 0, 9),
    PLAIN(multiprocessors, 1, 10000),
    PLAIN(clock_khz, 1, INT32_MAX),
    PLAIN(memory_clock_khz, 1, INT32_MAX),
    PLAIN(memory_bus_bits, 1, 1000000),
    PLAIN(threads_per_multiprocessor, 1024, 65536), // a block of 1,024 must fit
    PLAIN(blocks_per_multiprocessor, 1, 1024),
    PLAIN(shared_multiprocessor_bytes, 48 << 10, 16 << 20), // what a block has without opting in
    PLAIN(shared_block_bytes, 48 << 10, 16 << 20),
    PLAIN(has_rdma, 0, 1),
    PLAIN(has_peers, 0, 1),
    PLAIN(has_ecc, 0, 1),
};

static uint64_t field_get(const simcuda_gpu_t *gpu, const field_t *field) {
    const void *at = (const char *)gpu + field->offset;
    int64_t narrow;
    if (field->is_wide)
        return *(const uint64_t *)at;
    narrow = *(const int *)at;
    return (uint64_t)narrow; // a negative one is above every bound
}

static void field_put(simcuda_gpu_t *gpu, const field_t *field, uint64_t value) {
    void *at = (char *)gpu + field->offset;
    if (field->is_wide)
        *(uint64_t *)at = value;
    else
        *(int *)at = (int)value;
}

bool sim_gpu_is_valid(const simcuda_gpu_t *gpu) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(fields); i++) {
        uint64_t value = field_get(gpu, &fields[i]);
        if (value < fields[i].least || value > fields[i].most)
            return false;
    }
    return gpu->name[0] != '\0' && memchr(gpu->name, '\0', sizeof(gpu->name)) != NULL &&
           gpu->shared_block_bytes <= gpu->shared_multiprocessor_bytes;
}

// --- device files --------------------------------------------------------------------------------

typedef struct reading {
    simcuda_gpu_t *gpu;
    char what[160]; // the message of the last line
} reading_t;

static const char *name_set(simcuda_gpu_t *gpu, const char *value) {
    if (*value == '\0' || strlen(value) >= sizeof(gpu->name))
        return "want a name of 1 to 63 characters";
    (void)snprintf(gpu->name, sizeof(gpu->name), "%s", value);
    return NULL;
}

static const char *capability_set(simcuda_gpu_t *gpu, const char *value) {
    char *end = NULL;
    errno = 0;
    unsigned long major = *value >= '1' && *value <= '9' ? strtoul(value, &end, 10) : 0;
    if (errno != 0 || major < 1 || major > 99 || end[0] != '.' || end[1] < '0' || end[1] > '9' ||
        end[2] != '\0')
        return "want a compute capability as in 9.0";
    gpu->capability_major = (int)major;
    gpu->capability_minor = end[1] - '0';
    return NULL;
}

static const char *line_set(void *context, char *key, const char *value) {
    reading_t *reading = context;
    uint64_t number = 0;
    if (strcmp(key, "preset") == 0)
        return preset_read(value, reading->gpu) ? NULL : "no such preset";
    if (strcmp(key, "name") == 0)
        return name_set(reading->gpu, value);
    if (strcmp(key, "capability") == 0)
        return capability_set(reading->gpu, value);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(fields); i++) {
        if (strcmp(key, fields[i].name) != 0)
            continue;
        if (!sim_bytes_parse(value, &number) || number < fields[i].least ||
            number > fields[i].most) {
            (void)snprintf(reading->what, sizeof(reading->what),
                           "want a whole number from %llu to %llu, with or without K, M, G or T",
                           (unsigned long long)fields[i].least, (unsigned long long)fields[i].most);
            return reading->what;
        }
        field_put(reading->gpu, &fields[i], number);
        return NULL;
    }
    return "no such key: want preset, name, capability or a field of simcuda_gpu_t";
}

static void names_tell(const char *name, char *error, size_t capacity) {
    int code = name != NULL ? errno : EINVAL, length = 0;
    length = snprintf(error, capacity, "%s is neither", name != NULL ? name : "NULL");
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(presets) && length >= 0 && (size_t)length < capacity;
         i++)
        length += snprintf(error + length, capacity - (size_t)length, " %s%s", presets[i].name,
                           i + 1 < BERM_ARRAY_LENGTH(presets) ? "," : "");
    if (length >= 0 && (size_t)length < capacity)
        (void)snprintf(error + length, capacity - (size_t)length, " nor a readable file: %s",
                       strerror(code));
}

int simcuda_gpu_read(const char *name, simcuda_gpu_t *gpu, char *error, size_t capacity) {
    if (preset_read(name, gpu))
        return 0;
    errno = 0;
    FILE *file = name != NULL ? fopen(name, "re") : NULL;
    if (file == NULL) {
        names_tell(name, error, capacity);
        return -1;
    }
    sim_gpu_default(gpu);
    reading_t reading = {.gpu = gpu};
    int status = sim_keyfile_read(file, name, line_set, &reading, error, capacity);
    (void)fclose(file);
    if (status == 0 && !sim_gpu_is_valid(gpu)) { // each line was fine
        (void)snprintf(error, capacity,
                       "%s: shared_block_bytes is more than shared_multiprocessor_bytes", name);
        status = -1;
    }
    return status;
}
