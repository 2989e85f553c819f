// SPDX-License-Identifier: Apache-2.0
// Replacing what is looked up: see lookup.h. dlsym itself is at the end.
#include "lookup.h"

#include <dlfcn.h>
#include <string.h>

#include "option.h"
#include "real.h"

typedef void (*any_fn)(void);

static const struct row {
    const char *symbol, *name;
    any_fn own;
    real_driver_fn_t real;
    int version;
    bool is_stream, is_per_thread; // one of two twins, and which
} rows[] = {
// clang-format off
#define PRELOAD_ENTRY(symbol, name, version, type)                                                 \
    {#symbol, #name, (any_fn)symbol, REAL_##symbol, version, false, false},
#define PRELOAD_ENTRY_STREAM(symbol, name, version, type)                                          \
    {#symbol, #name, (any_fn)symbol, REAL_##symbol, version, true, false},                         \
    {#symbol "_ptsz", #name, (any_fn)symbol##_ptsz, REAL_##symbol##_ptsz, version, true, true},
#include "entries.def"
#undef PRELOAD_ENTRY
#undef PRELOAD_ENTRY_STREAM
    // clang-format on
};

static void *own_of(const struct row *row) {
    void *own = NULL;
    memcpy(&own, &row->own, sizeof own);
    return own;
}

// Whether the driver gives `found` for exactly the name and version of the row.
static bool is_form(const struct row *row, uint64_t flags, const void *found) {
    void *known = NULL;
    return row->is_per_thread == (row->is_stream && flags == BERM_CU_PROC_PER_THREAD_STREAM) &&
           REAL_DRIVER(cuGetProcAddress, row->name, &known, row->version, flags) ==
               BERM_CU_SUCCESS &&
           known == found;
}

void *lookup_replace(const char *name, uint64_t flags, void *found) {
    for (size_t i = 0; found != NULL && i < BERM_ARRAY_LENGTH(rows); i++)
        if (strcmp(rows[i].name, name) == 0 && is_form(&rows[i], flags, found))
            return own_of(&rows[i]);
    return found;
}

// --- by the driver and the runtime ---------------------------------------------------------------

berm_cu_result_t cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags) {
    int result = REAL_DRIVER(cuGetProcAddress, symbol, fn, version, flags);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, flags, *fn);
    return result;
}

berm_cu_result_t cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags,
                                     int *status) {
    int result = REAL_DRIVER(cuGetProcAddress_v2, symbol, fn, version, flags, status);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, flags, *fn);
    return result;
}

preload_error_t cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
                                        int *status) {
    int result = REAL_RUNTIME(cudaGetDriverEntryPoint, PRELOAD_CALLER(), symbol, fn, flags, status);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, flags, *fn);
    return result;
}

preload_error_t cudaGetDriverEntryPointByVersion(const char *symbol, void **fn, unsigned version,
                                                 unsigned long long flags, int *status) {
    int result = REAL_RUNTIME(cudaGetDriverEntryPointByVersion, PRELOAD_CALLER(), symbol, fn,
                              version, flags, status);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, flags, *fn);
    return result;
}

// Of programs whose default stream is each thread's own.
static uint64_t own_default(uint64_t flags) {
    return flags == BERM_CU_PROC_DEFAULT ? BERM_CU_PROC_PER_THREAD_STREAM : flags;
}

preload_error_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **fn,
                                             unsigned long long flags, int *status) {
    int result =
        REAL_RUNTIME(cudaGetDriverEntryPoint_ptsz, PRELOAD_CALLER(), symbol, fn, flags, status);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, own_default(flags), *fn);
    return result;
}

preload_error_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **fn,
                                                      unsigned version, unsigned long long flags,
                                                      int *status) {
    int result = REAL_RUNTIME(cudaGetDriverEntryPointByVersion_ptsz, PRELOAD_CALLER(), symbol, fn,
                              version, flags, status);
    if (result == BERM_CU_SUCCESS)
        *fn = lookup_replace(symbol, own_default(flags), *fn);
    return result;
}

// --- dlsym ---------------------------------------------------------------------------------------

#if defined(__x86_64__)

// The loader's dlsym: RTLD_NEXT and RTLD_DEFAULT mean something only for the library that calls,
// and it tells that by its return address. So what is not replaced is left to it by a jump, as if
// the program had called it.
__attribute__((visibility("hidden"))) void *lookup_dlsym_real;
__attribute__((visibility("hidden"))) void *lookup_dlsym_pick(void *handle, const char *name,
                                                              const void *caller);

static void *no_dlsym(void *handle, const char *name) {
    (void)handle;
    (void)name;
    return NULL;
}

static const struct row *row_of(const char *symbol) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++)
        if (strcmp(rows[i].symbol, symbol) == 0)
            return &rows[i];
    return NULL;
}

// Whether there is a function behind ours of that name.
static bool is_behind(const struct row *row, const char *name, const void *caller) {
    void *_Atomic slot = NULL;
    return row != NULL ? real_driver_loaded(row->real) != NULL
                       : real_runtime_find(&slot, name, caller) != NULL;
}

// What is given in the place of the loader's answer; NULL: the loader answers; LOOKUP_NOTHING: NULL
// is the answer.
#define LOOKUP_NOTHING ((void *)1)
void *lookup_dlsym_pick(void *handle, const char *name, const void *caller) {
    real_dlsym_fn real = real_dlsym();
    if (real == NULL)
        real = no_dlsym;
    memcpy(&lookup_dlsym_real, &real, sizeof real);
    if (name == NULL || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT ||
        !preload_options()->replaces_dlsym || real_is_own(caller))
        return NULL;
    const struct row *row = row_of(name);
    void *found = real(handle, name);
    if (found == NULL)
        return NULL;
    if (!real_is_own(found)) // exactly the driver's function, not another library's of that name
        return row != NULL && found == real_driver_loaded(row->real) ? own_of(row) : NULL;
    // A look-up in the whole program finds ours also where there is no CUDA; then it is not there.
    if (is_behind(row, name, caller))
        return found;
    (void)real(RTLD_NEXT, name); // for dlerror
    return LOOKUP_NOTHING;
}

__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "movq 24(%rsp), %rdx\n" // the return address
        "call lookup_dlsym_pick\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "testq %rax, %rax\n"
        "jz 1f\n"
        "cmpq $1, %rax\n" // LOOKUP_NOTHING
        "jne 2f\n"
        "xorl %eax, %eax\n"
        "2: ret\n"
        "1: jmp *lookup_dlsym_real(%rip)\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");

#endif
