// SPDX-License-Identifier: Apache-2.0
// Latency files: what each driver call costs (the form: simcuda_costs_read in simcuda.h).
//
// Bounds: as keyfile.c. No lock. May fail: a file that cannot be read or has a line that makes no
// sense; *costs is then unspecified.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keyfile.h"
#include "sim.h"

#define LATENCY_MAX UINT64_C(1000000000000)

typedef struct name_offset {
    const char *name;
    size_t offset;
} name_offset_t;

#define CALL(name, field)                                                                          \
    { name, offsetof(simcuda_costs_t, field) }
static const name_offset_t calls[] = {
    CALL("reserve", reserve),
    CALL("address_free", address_free),
    CALL("create", create),
    CALL("release", release),
    CALL("map", map),
    CALL("set_access", set_access),
    CALL("unmap", unmap),
    CALL("malloc", malloc_),
    CALL("free", free_),
    CALL("event_record", event_record),
    CALL("event_query", event_query),
    CALL("stream_wait", stream_wait),
    CALL("synchronize", synchronize),
    CALL("mem_info", mem_info),
    CALL("other", other),
};

static const name_offset_t fields[] = {
    {"base_ns", offsetof(simcuda_cost_t, base_ns)},
    {"per_mapping_ns", offsetof(simcuda_cost_t, per_mapping_ns)},
    {"ns_per_mib", offsetof(simcuda_cost_t, ns_per_mib)},
};

// The cost that `call`.`field` names, or NULL.
static uint64_t *cost_find(simcuda_costs_t *costs, const char *call, const char *field) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(calls); i++) {
        if (strcmp(call, calls[i].name) != 0)
            continue;
        for (size_t j = 0; j < BERM_ARRAY_LENGTH(fields); j++) {
            if (strcmp(field, fields[j].name) == 0)
                return (uint64_t *)(void *)((char *)costs + calls[i].offset + fields[j].offset);
        }
    }
    return NULL;
}

static bool number_read(const char *text, uint64_t *value) {
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= LATENCY_MAX;
}

// NULL, or what is wrong with the line.
static const char *line_set(void *context, char *key, const char *value) {
    simcuda_costs_t *costs = context;
    if (strcmp(key, "preset") == 0)
        return simcuda_costs_preset(value, costs) == 0 ? NULL : "want fast, typical or slow";
    char *dot = strchr(key, '.');
    if (dot != NULL)
        *dot = '\0';
    uint64_t *cost = dot != NULL ? cost_find(costs, key, dot + 1) : NULL;
    if (cost == NULL)
        return "no such key: want preset, or CALL.base_ns, .per_mapping_ns or .ns_per_mib";
    return number_read(value, cost) ? NULL : "want a whole number up to 10^12";
}

int simcuda_costs_read(const char *name, simcuda_costs_t *costs, char *error, size_t capacity) {
    if (simcuda_costs_preset(name, costs) == 0)
        return 0;
    FILE *file = name != NULL ? fopen(name, "re") : NULL;
    if (file == NULL) {
        (void)snprintf(error, capacity, "%s is neither fast, typical, slow nor a readable file: %s",
                       name != NULL ? name : "NULL", strerror(name != NULL ? errno : EINVAL));
        return -1;
    }
    (void)simcuda_costs_preset("typical", costs);
    int status = sim_keyfile_read(file, name, line_set, costs, error, capacity);
    (void)fclose(file);
    return status;
}
