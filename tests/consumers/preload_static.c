// SPDX-License-Identifier: Apache-2.0
// A program that carries its runtime in itself, as nvcc makes it by default: there is no cudaMalloc
// to replace. It reaches the driver as that runtime does: dlopen of libcuda.so.1, dlsym of
// cuGetProcAddress, and everything else through that. Run by test_preload.sh with and without
// libberm_preload.so. (NVIDIA's own static runtime insists on tables that no stand-in has.)
#include <unistd.h>

#include "preload_test.h"
#include "simcuda/driver/entries.h"

enum {
    OK = BERM_CU_SUCCESS,
};

static void *library;
static berm_cu_get_proc_address_fn get_address;

static void *driver_symbol(const char *name) {
    return dlsym(library, name);
}

static void open_driver(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "%s", dlerror());
    get_address = (berm_cu_get_proc_address_fn)driver_symbol("cuGetProcAddress_v2");
    CHECK(get_address != NULL, "%s", dlerror());
}

// The function by name and version; NULL where the driver has none.
static void *look_up(const char *name, int version, uint64_t flags) {
    void *function = NULL;
    int status = -1;
    GIVES(OK, get_address(name, &function, version, flags, &status));
    CHECK((function != NULL) == (status == BERM_CU_PROC_FOUND), "%s: status %d", name, status);
    return function;
}

#define DRIVER(type, name, version) ((type)look_up(name, version, BERM_CU_PROC_DEFAULT))

// --- the runtime in the program
// --------------------------------------------------------------------

static void runtime_start(void) {
    berm_cu_context_t context;
    open_driver();
    GIVES(OK, DRIVER(berm_cu_init_fn, "cuInit", 2000)(0));
    GIVES(OK, DRIVER(berm_cu_primary_ctx_retain_fn, "cuDevicePrimaryCtxRetain", 7000)(&context, 0));
    GIVES(OK, DRIVER(berm_cu_ctx_set_current_fn, "cuCtxSetCurrent", 4000)(context));
}

static int own_malloc(void **pointer, size_t bytes) {
    berm_cu_deviceptr_t addr = 0;
    int result = DRIVER(berm_cu_mem_alloc_fn, "cuMemAlloc", 3020)(&addr, bytes);
    *pointer = (void *)(uintptr_t)addr;
    return result;
}

static int own_free(void *pointer) {
    return DRIVER(berm_cu_mem_free_fn, "cuMemFree", 3020)((uintptr_t)pointer);
}

static bool replaces(void) {
    const char *options = getenv("BERM_PRELOAD");
    return is_preloaded() && (options == NULL || strstr(options, "dlsym:off") == NULL);
}

static void case_basic(void) {
    void *pointers[64];
    runtime_start();
    for (size_t i = 0; i < 64; i++) {
        GIVES(OK, own_malloc(&pointers[i], i * 100000 + 1));
        CHECK(is_berms(pointers[i]) == replaces(), "%zu", i);
    }
    for (size_t i = 0; i < 64; i++)
        GIVES(OK, own_free(pointers[i]));
    if (replaces())
        GIVES(BERM_CU_INVALID_VALUE, own_free(pointers[5]));
}

// Which of the driver's functions are given in another's place: those of a known name and version.
static void case_versions(void) {
    runtime_start();
    Dl_info info;
    static const struct {
        const char *name;
        int version;
        uint64_t flags;
        bool is_replaced;
    } rows[] = {
        {"cuMemAlloc", 3020, BERM_CU_PROC_DEFAULT, true},
        {"cuMemAlloc", 13000, BERM_CU_PROC_LEGACY_STREAM, true},
        {"cuMemAllocAsync", 12000, BERM_CU_PROC_DEFAULT, true},
        {"cuMemAllocAsync", 12000, BERM_CU_PROC_PER_THREAD_STREAM, true},
        {"cuMemFree", 12000, BERM_CU_PROC_PER_THREAD_STREAM, true},
        {"cuGetProcAddress", 11030, BERM_CU_PROC_DEFAULT, true},
        {"cuGetProcAddress", 12000, BERM_CU_PROC_DEFAULT, true},
        {"cuMemsetD8Async", 12000, BERM_CU_PROC_DEFAULT, false},
        {"cuMemMap", 12000, BERM_CU_PROC_DEFAULT, false},
        {"cuDevicePrimaryCtxReset", 12000, BERM_CU_PROC_DEFAULT, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = look_up(rows[i].name, rows[i].version, rows[i].flags);
        CHECK(function != NULL && dladdr(function, &info) != 0, "%s", rows[i].name);
        bool is_ours = strstr(info.dli_fname, "libberm_preload") != NULL;
        CHECK(is_ours == (rows[i].is_replaced && replaces()), "%s of %d is in %s", rows[i].name,
              rows[i].version, info.dli_fname);
    }
    CHECK(look_up("cuMemAlloc", 2000, 0) == NULL, "a form that the driver does not have");
    CHECK(look_up("cuMemAllocAsync", 11010, 0) == NULL, "a version before the function");
    CHECK(look_up("cuMemAlloc_v2", 13000, 0) == NULL, "a symbol instead of a name");
    void *one = look_up("cuMemAllocAsync", 12000, BERM_CU_PROC_DEFAULT);
    void *twin = look_up("cuMemAllocAsync", 12000, BERM_CU_PROC_PER_THREAD_STREAM);
    CHECK(one != twin, "the two default streams are one");
    // Looked up through what was looked up.
    berm_cu_get_proc_address_fn again =
        (berm_cu_get_proc_address_fn)look_up("cuGetProcAddress", 12000, 0);
    void *function = NULL;
    GIVES(OK, again("cuMemAlloc", &function, 13000, 0, NULL));
    CHECK(function == look_up("cuMemAlloc", 13000, 0), "another one");
}

// dlsym answers what the loader answers, for everything but those functions of the driver.
static void case_dlsym(void) {
    open_driver();
    (void)dlerror();
    CHECK(driver_symbol("cuMemAlloc") == NULL && dlerror() != NULL, "a symbol that is not there");
    CHECK(driver_symbol("cuNothing") == NULL && dlerror() != NULL, "a symbol that is not there");
    CHECK(driver_symbol("cuMemAllocAsync") != driver_symbol("cuMemAllocAsync_ptsz"), "twins");
    Dl_info info;
    CHECK(dladdr(driver_symbol("cuMemAlloc_v2"), &info) != 0, "no address");
    CHECK((strstr(info.dli_fname, "libberm_preload") != NULL) == replaces(), "%s", info.dli_fname);
    CHECK(dladdr(driver_symbol("cuMemMap"), &info) != 0, "no address");
    CHECK(strstr(info.dli_fname, "libcuda.so") != NULL, "%s", info.dli_fname);
}

// Two libraries with one function: who asks for the next one gets the other's, and who asks one of
// them gets its own, also under the name of a function of the driver's.
static void case_next(void) {
    void *first = dlopen("libfirst.so", RTLD_NOW); // linked with the second
    void *second = dlopen("libsecond.so", RTLD_NOW);
    CHECK(first != NULL && second != NULL, "%s", dlerror());
    int (*which_next)(void) = (int (*)(void))dlsym(first, "which_next");
    int (*which_driver)(void *) = (int (*)(void *))dlsym(first, "which_driver");
    CHECK(which_next() == 2, "the next after the first is %d", which_next());
    CHECK(which_driver(second) == 7, "another library's cuMemAlloc_v2 was replaced");
}

// Without CUDA nothing of it is there, and nothing is printed.
static void case_absent(void) {
    static const char *const names[] = {"cudaMalloc", "cuMemAlloc_v2", "cudaGetLastError",
                                        "cuGetProcAddress"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)dlerror();
        CHECK(dlsym(RTLD_DEFAULT, names[i]) == NULL, "%s is there", names[i]);
        CHECK(dlerror() != NULL, "no reason why %s is not there", names[i]);
    }
    CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL && dlsym(RTLD_DEFAULT, "cuserid") != NULL,
          "libc's functions are not found");
}

// --- a runtime that is opened
// ----------------------------------------------------------------------

typedef int (*malloc_fn)(void **, size_t);
typedef int (*free_fn)(void *);

// libcudart opened, used, closed, and once more.
static void case_opened(void) {
    for (int i = 0; i < 3; i++) {
        void *pointer = NULL, *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
        CHECK(runtime != NULL, "%s", dlerror());
        malloc_fn allocate = (malloc_fn)dlsym(runtime, "cudaMalloc");
        free_fn release = (free_fn)dlsym(runtime, "cudaFree");
        GIVES(OK, allocate(&pointer, MIB));
        CHECK(is_berms(pointer) == is_preloaded(), "round %d", i);
        GIVES(OK, release(pointer));
        GIVES(OK, dlclose(runtime));
    }
}

// A library linked with libcudart that is opened with its names kept to itself, as Python opens
// extensions.
static void case_extension(void) {
    void *extension = dlopen("libextension.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(extension != NULL, "%s", dlerror());
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(extension, "extension_alloc");
    int (*release)(void *) = (int (*)(void *))dlsym(extension, "extension_free");
    void *pointer = allocate(MIB);
    CHECK(pointer != NULL && is_berms(pointer) == is_preloaded(), "not served");
    GIVES(OK, release(pointer));
    CHECK(allocate((size_t)1 << 50) == NULL, "a petabyte");
}

int main(int argc, char **argv) {
    static const test_case_t cases[] = {
        {"basic", case_basic},         {"versions", case_versions}, {"dlsym", case_dlsym},
        {"next", case_next},           {"absent", case_absent},     {"opened", case_opened},
        {"extension", case_extension},
    };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    return 2;
}
