// SPDX-License-Identifier: Apache-2.0
// Loads a library of stress/real: see real.h. On the simulated device the stand-ins for the CUDA
// runtime and NVML are loaded before it, by path: the loader then takes them, by their SONAME, for
// what the library asks for, whatever paths are written in it.
//
// The library is never unloaded; an allocator of it can be made once a process.
// Locks: none; one thread. May fail: not set up, or a library or function missing, with a line.
#include "stress/baselines/real.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defs.h"
#include "stress/device.h"

struct stress_allocator {
    __typeof__(&stress_real_version) version;
    __typeof__(&stress_real_create) create;
    __typeof__(&stress_real_destroy) destroy;
    __typeof__(&stress_real_alloc) alloc;
    __typeof__(&stress_real_free) free;
    __typeof__(&stress_real_record_stream) record_stream;
    __typeof__(&stress_real_figures) figures;
    __typeof__(&stress_real_peaks_reset) peaks_reset;
    __typeof__(&stress_real_largest_free) largest_free;
    __typeof__(&stress_real_error) error;
};

// --- finding -------------------------------------------------------------------------------------

// The folder of the executable, without a slash at its end.
static bool folder_of_executable(char *folder, size_t capacity) {
    ssize_t length = readlink("/proc/self/exe", folder, capacity - 1);
    if (length <= 0)
        return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    return slash != NULL;
}

// The library's path: from the environment, or build/ above build/PRESET/bin.
static bool library_path(const real_source_t *source, char *path, size_t capacity) {
    const char *named = getenv(source->environment);
    char folder[PATH_MAX];
    int length = -1;
    if (named != NULL && *named != '\0')
        length = snprintf(path, capacity, "%s", named);
    else if (folder_of_executable(folder, sizeof folder))
        length = snprintf(path, capacity, "%s/../../%s", folder, source->library);
    return length > 0 && (size_t)length < capacity && access(path, R_OK) == 0;
}

// The stand-ins lie beside the simulated driver: where that was loaded from, they are.
static bool standins_load(const char *library, char *error, size_t error_capacity) {
    static const char *const names[] = {"libcudart.so.13", "libnvidia-ml.so.1"};
    char folder[PATH_MAX], path[PATH_MAX + 32];
    Dl_info info;
    void *now_ns = NULL;
    __typeof__(stress_simcuda()->now_ns) function = stress_simcuda()->now_ns;
    memcpy(&now_ns, &function, sizeof now_ns);
    if (dladdr(now_ns, &info) == 0)
        info.dli_fname = "";
    // A library that imports more than the stand-in has brings a fuller one.
    (void)snprintf(path, sizeof path, "%.*s/libcudart.so.13",
                   (int)(strrchr(library, '/') - library), library);
    if (access(path, R_OK) == 0 && dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
        (void)snprintf(error, error_capacity, "%s", dlerror());
        return false;
    }
    (void)snprintf(folder, sizeof folder, "%s", info.dli_fname);
    char *slash = strrchr(folder, '/');
    (void)snprintf(slash != NULL ? slash : folder, 2, "%s", slash != NULL ? "" : ".");
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
            (void)snprintf(error, error_capacity, "%s", dlerror());
            return false;
        }
    }
    return true;
}

// POSIX lets an object pointer from dlsym hold a function; ISO C has no cast for it.
static bool functions_load(stress_allocator_t *a, void *library, char *error,
                           size_t error_capacity) {
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"stress_real_version", &a->version},
        {"stress_real_create", &a->create},
        {"stress_real_destroy", &a->destroy},
        {"stress_real_alloc", &a->alloc},
        {"stress_real_free", &a->free},
        {"stress_real_record_stream", &a->record_stream},
        {"stress_real_figures", &a->figures},
        {"stress_real_peaks_reset", &a->peaks_reset},
        {"stress_real_largest_free", &a->largest_free},
        {"stress_real_error", &a->error},
    };
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(symbols); i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL) {
            (void)snprintf(error, error_capacity, "%s", dlerror());
            return false;
        }
        memcpy(symbols[i].function, &found, sizeof found);
    }
    return true;
}

static bool library_open(stress_allocator_t *a, const real_source_t *source, char *error,
                         size_t error_capacity) {
    char path[PATH_MAX + 64];
    if (!library_path(source, path, sizeof path)) {
        (void)snprintf(error, error_capacity, "not set up: run %s", source->set_up);
        return false;
    }
    if (strchr(path, '/') == NULL) {
        (void)snprintf(error, error_capacity, "%s must be a path with a folder",
                       source->environment);
        return false;
    }
    if (stress_device_is_simulated() && !standins_load(path, error, error_capacity))
        return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(error, error_capacity, "%s", dlerror());
        return false;
    }
    if (!functions_load(a, library, error, error_capacity))
        return false;
    if (a->version() == STRESS_REAL_VERSION)
        return true;
    (void)snprintf(error, error_capacity, "%.200s is of another version: run %s again", path,
                   source->set_up);
    return false;
}

// An allocator of a library can be made once a process.
static bool library_take(const real_source_t *source, char *error, size_t error_capacity) {
    static const real_source_t *taken[4];
    size_t i = 0;
    while (taken[i] != NULL && strcmp(taken[i]->library, source->library) != 0)
        i++;
    if (taken[i] != NULL) {
        (void)snprintf(error, error_capacity,
                       "this process has made %s already, and there can be one: run them apart",
                       taken[i]->name);
        return false;
    }
    if (i + 1 < BERM_ARRAY_LENGTH(taken))
        taken[i] = source;
    return true;
}

// --- the operations ------------------------------------------------------------------------------

// Cut at the first line: what PyTorch says goes on with a stack.
static void first_line(char *text) {
    text[strcspn(text, "\n")] = '\0';
}

stress_allocator_t *real_create(const real_source_t *source,
                                const stress_allocator_options_t *options, char *error,
                                size_t error_capacity) {
    const stress_real_options_t real_options = {
        .mode = source->mode,
        .conf = options->conf,
        .device = options->device,
        .limit_bytes = options->limit_bytes,
    };
    char words[400] = "no memory";
    stress_allocator_t *a = calloc(1, sizeof *a);
    bool is_made = a != NULL && library_take(source, words, sizeof words) &&
                   library_open(a, source, words, sizeof words) &&
                   a->create(&real_options, words, sizeof words) == STRESS_REAL_OK;
    if (is_made)
        return a;
    first_line(words);
    (void)snprintf(error, error_capacity, "%s: %s", source->name, words);
    free(a);
    return NULL;
}

void real_destroy(stress_allocator_t *a, uint64_t *live_blocks) {
    a->destroy(live_blocks);
    free(a);
}

// Words that no result can carry go to standard error, once.
static stress_result_t real_result_told(const stress_allocator_t *a, int result) {
    static bool is_told;
    if (result == STRESS_REAL_ERROR && !is_told) {
        char words[256];
        (void)snprintf(words, sizeof words, "%s", a->error());
        first_line(words);
        (void)fprintf(stderr, "%s\n", words);
        is_told = true;
    }
    if (result == STRESS_REAL_OK)
        return STRESS_OK;
    return result == STRESS_REAL_OUT_OF_MEMORY ? STRESS_OUT_OF_MEMORY : STRESS_ERROR;
}

stress_result_t real_alloc(stress_allocator_t *a, uint64_t size_bytes, void *stream,
                           uint64_t *addr) {
    return real_result_told(a, a->alloc(size_bytes, stream, addr));
}

stress_result_t real_free(stress_allocator_t *a, uint64_t addr, uint64_t size_bytes, void *stream) {
    return real_result_told(a, a->free(addr, size_bytes, stream));
}

stress_result_t real_record_stream(stress_allocator_t *a, uint64_t addr, void *stream) {
    return real_result_told(a, a->record_stream(addr, stream));
}

void real_figures(stress_allocator_t *a, stress_figures_t *figures) {
    stress_real_figures_t real;
    a->figures(&real);
    *figures = (stress_figures_t){.requested_bytes = real.requested_bytes,
                                  .allocated_bytes = real.allocated_bytes,
                                  .active_bytes = real.active_bytes,
                                  .reserved_bytes = real.reserved_bytes,
                                  .reserved_peak_bytes = real.reserved_peak_bytes,
                                  .allocated_peak_bytes = real.allocated_peak_bytes,
                                  .host_waits = real.host_waits};
}

void real_peaks_reset(stress_allocator_t *a) {
    a->peaks_reset();
}

uint64_t real_largest_free(stress_allocator_t *a, void *stream) {
    return a->largest_free(stream);
}
