// SPDX-License-Identifier: Apache-2.0
// The table of generated traces, and where the shipped recordings are.
//
// A row more is a trace more; a row's options must not change once figures of it are published.
// Locks: none. May fail: nothing; what is not there is not found.
#include "stress/curves/sources.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defs.h"

const curves_source_t curves_sources[] = {
    {"random_64M",
     "random",
     {.operations = 10000,
      .max_size_bytes = BERM_MIB(64),
      .live_cap_bytes = BERM_GIB(32),
      .seed = 1}},
    {"random_1G",
     "random",
     {.operations = 5000,
      .max_size_bytes = BERM_GIB(1),
      .live_cap_bytes = BERM_GIB(32),
      .seed = 2}},
    {"random_1G_log",
     "random",
     {.operations = 10000,
      .max_size_bytes = BERM_GIB(1),
      .live_cap_bytes = BERM_GIB(32),
      .seed = 3,
      .sizes = TRACE_SIZES_LOG}},
    {"random_1G_log_4_streams",
     "random",
     {.operations = 5000,
      .max_size_bytes = BERM_GIB(1),
      .live_cap_bytes = BERM_GIB(16),
      .seed = 4,
      .streams = 4,
      .sizes = TRACE_SIZES_LOG}},
};

const size_t curves_source_count = BERM_ARRAY_LENGTH(curves_sources);

const curves_source_t *curves_source_find(const char *name) {
    for (size_t i = 0; i < curves_source_count; i++)
        if (strcmp(curves_sources[i].name, name) == 0)
            return &curves_sources[i];
    return NULL;
}

static const char *const shipped[] = {
    "gpt2_fixed.pickle.gz",
    "gpt2_varlen.pickle.gz",
    "multi_stream.pickle.gz",
};

// The program lies in build/PRESET/bin.
size_t curves_shipped(char **paths, size_t capacity) {
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return 0;
    program[length] = '\0';
    for (int i = 0; i < 4; i++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL)
            return 0;
        *slash = '\0';
    }
    size_t count = 0;
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(shipped) && count < capacity; i++) {
        (void)snprintf(path, sizeof path, "%s/stress/traces/%s", program, shipped[i]);
        if (access(path, R_OK) != 0 || (paths[count] = strdup(path)) == NULL)
            break;
        count++;
    }
    return count;
}
