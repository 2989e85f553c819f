// SPDX-License-Identifier: Apache-2.0
// Reads latency files: see latency.h for the form. What the costs do is left to simcuda.
// Bounds: a line is at most 255 characters, a file at most 1,000 lines.
// May fail: unreadable file, unknown key, bad number; *costs is then unspecified.
#include "stress/latency.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defs.h"

enum {
    LINE_CAPACITY = 256,
    LINES_MAX = 1000,
};

static const struct {
    const char *name;
    size_t offset;
} latency_calls[] = {
    {"reserve", offsetof(simcuda_costs_t, reserve)},
    {"address_free", offsetof(simcuda_costs_t, address_free)},
    {"create", offsetof(simcuda_costs_t, create)},
    {"release", offsetof(simcuda_costs_t, release)},
    {"map", offsetof(simcuda_costs_t, map)},
    {"set_access", offsetof(simcuda_costs_t, set_access)},
    {"unmap", offsetof(simcuda_costs_t, unmap)},
    {"malloc", offsetof(simcuda_costs_t, malloc_)},
    {"free", offsetof(simcuda_costs_t, free_)},
    {"event_record", offsetof(simcuda_costs_t, event_record)},
    {"event_query", offsetof(simcuda_costs_t, event_query)},
    {"stream_wait", offsetof(simcuda_costs_t, stream_wait)},
    {"synchronize", offsetof(simcuda_costs_t, synchronize)},
    {"mem_info", offsetof(simcuda_costs_t, mem_info)},
    {"other", offsetof(simcuda_costs_t, other)},
};

static const struct {
    const char *name;
    size_t offset;
} latency_fields[] = {
    {"base_ns", offsetof(simcuda_cost_t, base_ns)},
    {"per_mapping_ns", offsetof(simcuda_cost_t, per_mapping_ns)},
    {"ns_per_mib", offsetof(simcuda_cost_t, ns_per_mib)},
};

// The cost that "CALL.FIELD" names, or NULL.
static uint64_t *latency_find(simcuda_costs_t *costs, const char *key) {
    const char *dot = strchr(key, '.');
    if (dot == NULL)
        return NULL;
    size_t length = (size_t)(dot - key);
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(latency_calls); i++) {
        const char *name = latency_calls[i].name;
        if (strlen(name) != length || strncmp(key, name, length) != 0)
            continue;
        for (size_t j = 0; j < BERM_ARRAY_LENGTH(latency_fields); j++)
            if (strcmp(dot + 1, latency_fields[j].name) == 0)
                return (uint64_t *)(void *)((char *)costs + latency_calls[i].offset +
                                            latency_fields[j].offset);
    }
    return NULL;
}

static bool latency_number(const char *text, uint64_t *value) {
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= UINT64_C(1000000000000);
}

// Drops the comment and the space at both ends.
static char *latency_trim(char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    line += strspn(line, " \t");
    size_t length = strlen(line);
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        line[--length] = '\0';
    return line;
}

// NULL, or what is wrong with the line.
static const char *latency_line(char *line, stress_latency_preset_fn preset,
                                simcuda_costs_t *costs) {
    char *text = latency_trim(line);
    if (*text == '\0')
        return NULL;
    char *equals = strchr(text, '=');
    if (equals == NULL)
        return "expected key=value";
    *equals = '\0';
    char *key = latency_trim(text);
    char *value = latency_trim(equals + 1);
    if (strcmp(key, "preset") == 0)
        return preset(value, costs) == 0 ? NULL : "no such preset (fast, typical, slow)";
    uint64_t *cost = latency_find(costs, key);
    if (cost == NULL)
        return "no such key (CALL.base_ns, CALL.per_mapping_ns or CALL.ns_per_mib)";
    return latency_number(value, cost) ? NULL : "expected a whole number up to 10^12";
}

static int latency_lines(FILE *file, const char *name, stress_latency_preset_fn preset,
                         simcuda_costs_t *costs, char *error, size_t error_capacity) {
    char line[LINE_CAPACITY];
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        const char *what = NULL;
        if (number > LINES_MAX)
            what = "more than 1000 lines";
        else if (strchr(line, '\n') == NULL && !feof(file))
            what = "line longer than 254 characters";
        else
            what = latency_line(line, preset, costs);
        if (what != NULL) {
            (void)snprintf(error, error_capacity, "%s:%d: %s", name, number, what);
            return -1;
        }
    }
    if (ferror(file)) {
        (void)snprintf(error, error_capacity, "%s: %s", name, strerror(errno));
        return -1;
    }
    return 0;
}

int stress_latency_read(const char *name, stress_latency_preset_fn preset, simcuda_costs_t *costs,
                        char *error, size_t error_capacity) {
    if (preset(name, costs) == 0)
        return 0;
    FILE *file = fopen(name, "r");
    if (file == NULL) {
        (void)snprintf(error, error_capacity,
                       "latency '%s' is neither fast, typical, slow nor a readable file: %s", name,
                       strerror(errno));
        return -1;
    }
    (void)preset("typical", costs);
    int status = latency_lines(file, name, preset, costs, error, error_capacity);
    (void)fclose(file);
    return status;
}
