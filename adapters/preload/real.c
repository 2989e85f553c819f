// SPDX-License-Identifier: Apache-2.0
// Finding the functions behind ours: see real.h.
#include "real.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "berm.h"

static const char driver_name[] = "libcuda.so.1";

static const char *const driver_symbols[REAL_DRIVER_COUNT] = {
// clang-format off
#define PRELOAD_ENTRY(symbol, name, version, type)        [REAL_##symbol] = #symbol,
#define PRELOAD_ENTRY_STREAM(symbol, name, version, type)                                          \
    [REAL_##symbol] = #symbol, [REAL_##symbol##_ptsz] = #symbol "_ptsz",
#define PRELOAD_REAL(symbol, type)                        [REAL_##symbol] = #symbol,
#include "entries.def"
#include "real.def"
#undef PRELOAD_ENTRY
#undef PRELOAD_ENTRY_STREAM
#undef PRELOAD_REAL
    // clang-format on
};

static void *_Atomic driver_library;
static void *_Atomic driver_functions[REAL_DRIVER_COUNT];

real_dlsym_fn real_dlsym(void) {
    // Where dlsym is: in libc since glibc 2.34, in libdl before.
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    static void *_Atomic found;
    void *symbol = atomic_load_explicit(&found, memory_order_relaxed);
    for (size_t i = 0; symbol == NULL && i < BERM_ARRAY_LENGTH(versions); i++)
        symbol = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    atomic_store_explicit(&found, symbol, memory_order_relaxed);
    return (real_dlsym_fn)symbol;
}

static const void *object_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

bool real_is_own(const void *address) {
    __typeof__(&berm_alloc) of_libberm = berm_alloc;
    const void *base = object_of(address);
    return base == object_of(driver_name) || base == object_of((const void *)of_libberm);
}

// --- the driver ----------------------------------------------------------------------------------

// Kept open once found: the functions of it that are kept stay valid.
static void *driver_open(int flags) {
    void *library = atomic_load(&driver_library);
    if (library != NULL)
        return library;
    library = dlopen(driver_name, RTLD_LAZY | RTLD_LOCAL | flags);
    if (library != NULL)
        atomic_store(&driver_library, library);
    return library;
}

static void *driver_find(real_driver_fn_t fn, int flags) {
    void *found = atomic_load_explicit(&driver_functions[fn], memory_order_relaxed);
    if (BERM_LIKELY(found != NULL))
        return found;
    void *library = driver_open(flags);
    real_dlsym_fn look_up = real_dlsym();
    if (library == NULL || look_up == NULL)
        return NULL;
    found = look_up(library, driver_symbols[fn]);
    atomic_store_explicit(&driver_functions[fn], found, memory_order_relaxed);
    return found;
}

void *real_driver_find(real_driver_fn_t fn) {
    return driver_find(fn, 0);
}

void *real_driver_loaded(real_driver_fn_t fn) {
    return driver_find(fn, RTLD_NOLOAD);
}

// --- the runtime ---------------------------------------------------------------------------------

// `name` in the library of that path and in what it was linked with; NULL for one of ours.
static void *found_in(const char *path, const char *name) {
    void *library = path != NULL && *path != '\0' ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library == NULL)
        return NULL;
    void *found = real_dlsym()(library, name);
    (void)dlclose(library);
    return real_is_own(found) ? NULL : found;
}

static int cudart_visit(struct dl_phdr_info *info, size_t size, void *path) {
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (strncmp(file != NULL ? file + 1 : info->dlpi_name, "libcudart.so", 12) != 0)
        return 0;
    (void)snprintf(path, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

// So that the function stays where it is; a reference more is never given back.
static void library_keep(const void *function) {
    Dl_info info;
    if (dladdr(function, &info) != 0)
        (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

void *real_runtime_find(void *_Atomic *slot, const char *name, const void *caller) {
    void *found = atomic_load_explicit(slot, memory_order_relaxed);
    if (BERM_LIKELY(found != NULL) || real_dlsym() == NULL)
        return found;
    found = real_dlsym()(RTLD_NEXT, name);
    Dl_info info;
    if (found == NULL && dladdr(caller, &info) != 0)
        found = found_in(info.dli_fname, name);
    char path[PATH_MAX];
    if (found == NULL && dl_iterate_phdr(cudart_visit, path) != 0)
        found = found_in(path, name);
    if (found != NULL) {
        library_keep(found);
        atomic_store_explicit(slot, found, memory_order_relaxed);
    }
    return found;
}
