// SPDX-License-Identifier: Apache-2.0
// What was not real: counters, and the functions of stand-in libraries that do less than the real
// ones, by name.
//
// The table of names is the process's, not the device's: a stand-in may be called before there is
// one. Bounds: STUBS_MAX pairs, found by comparing; only refusals and the like come here.
// Locks: stub_lock, taken by nobody who holds the state's; entries are only ever added.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum {
    STUBS_MAX = 1024
};

typedef struct stub {
    char *library, *name;
    uint64_t hits;
} stub_t;

static pthread_mutex_t stub_lock = PTHREAD_MUTEX_INITIALIZER;
static stub_t stubs[STUBS_MAX];
static size_t stub_count;
static uint64_t stub_hits;

void simcuda_counters_read(simcuda_counters_t *counters) {
    if (counters == NULL)
        return;
    *counters = (simcuda_counters_t){0};
    if (sim_lock()) {
        *counters = sim.counters;
        sim_unlock();
    }
    (void)pthread_mutex_lock(&stub_lock);
    counters->stub_hits = stub_hits;
    (void)pthread_mutex_unlock(&stub_lock);
}

static stub_t *stub_find(const char *library, const char *name) {
    for (size_t i = 0; i < stub_count; i++) {
        if (strcmp(stubs[i].name, name) == 0 && strcmp(stubs[i].library, library) == 0)
            return &stubs[i];
    }
    if (stub_count == STUBS_MAX)
        return NULL;
    stub_t made = {.library = strdup(library), .name = strdup(name)};
    if (made.library == NULL || made.name == NULL) {
        free(made.library);
        free(made.name);
        return NULL;
    }
    stubs[stub_count] = made;
    return &stubs[stub_count++];
}

void simcuda_stub_hit(const char *library, const char *name) {
    if (library == NULL || name == NULL)
        return;
    (void)pthread_mutex_lock(&stub_lock);
    stub_t *stub = stub_find(library, name);
    if (stub != NULL)
        stub->hits++;
    stub_hits++;
    (void)pthread_mutex_unlock(&stub_lock);
}

int simcuda_stub_read(size_t index, const char **library, const char **name, uint64_t *hits) {
    int result = -1;
    if (library == NULL || name == NULL || hits == NULL)
        return result;
    (void)pthread_mutex_lock(&stub_lock);
    if (index < stub_count) {
        *library = stubs[index].library;
        *name = stubs[index].name;
        *hits = stubs[index].hits;
        result = 0;
    }
    (void)pthread_mutex_unlock(&stub_lock);
    return result;
}
