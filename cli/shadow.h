// SPDX-License-Identifier: Apache-2.0
// What the files of `berm shadow` share: the arguments, one run, and what its processes reported.
#ifndef CLI_SHADOW_H
#define CLI_SHADOW_H

#include <jansson.h>
#include <limits.h>

#include "cli/cli.h"

enum {
    SHADOW_ALLOCATORS_MAX = 3,
    SHADOW_PROCESSES_MAX = 64,
};

typedef struct shadow_arguments {
    const char *command;
    const char *allocators[SHADOW_ALLOCATORS_MAX];
    int allocator_count;
    const char *gpu, *values, *record, *snapshot;
    uint64_t memory_bytes; // 0: the GPU's
    uint64_t devices, steps;
    bool fits, ranges, is_json;
    char **program;
} shadow_arguments_t;

// One run of the program: what it ended with, and a report of each of its processes.
typedef struct shadow_run {
    const char *allocator;
    int status;
    bool is_short; // it ran out of the device's memory
    json_t *reports[SHADOW_PROCESSES_MAX];
    int report_count;
    uint64_t least_bytes; // the smallest memory of a device that will do, context apart; 0: unknown
    uint64_t largest_batch; // 0: none fits; UINT64_MAX: not asked for
    // What was reserved at most, over kernels of no time and of 1 ms; 0: not asked
    // for.
    uint64_t reserved_low_bytes, reserved_high_bytes;
    bool is_range_short; // it ran out of memory with one of them
} shadow_run_t;

// One run of the program, as the server is told of it.
typedef struct shadow_try {
    const char *allocator;
    const char *what;      // "report", "trial" (only whether it ends) or "bound" (a silent report)
    const char *kernel_ns; // how long a kernel takes; "": as long as ever
    uint64_t memory_bytes; // 0: the GPU's
} shadow_try_t;

// The program, held at its `import torch`, from where it is run again and again.
typedef struct shadow_server shadow_server_t;

// shadow_server.c
shadow_server_t *shadow_server_start(const shadow_arguments_t *a, char *const *program);
// One run of it from there; its exit status, or -1 after a line.
int shadow_server_run(shadow_server_t *server, const shadow_try_t *one);
void shadow_server_stop(shadow_server_t *server);
// The folder for reports of the server's runs.
const char *shadow_server_folder(const shadow_server_t *server);
// Takes the reports that lie there into the run, and empties the folder. False after a line.
bool shadow_reports_take(shadow_server_t *server, shadow_run_t *run);
void shadow_reports_drop(shadow_run_t *run);

// shadow_report.c
void shadow_print(const shadow_arguments_t *a, const shadow_run_t *runs, int count);
void shadow_print_json(const shadow_arguments_t *a, const shadow_run_t *runs, int count);
// A figure of all devices of all processes: the largest.
uint64_t shadow_largest(const shadow_run_t *run, const char *figure);
uint64_t shadow_context_bytes(const shadow_run_t *run);

// shadow_fit.c: fill least_bytes, largest_batch, reserved_*; false after a line.
bool shadow_fit_memory(const shadow_arguments_t *a, shadow_server_t *server, shadow_run_t *run);
bool shadow_fit_batch(const shadow_arguments_t *a, shadow_run_t *run);
bool shadow_range_measure(const shadow_arguments_t *a, shadow_server_t *server, shadow_run_t *run);

#endif
