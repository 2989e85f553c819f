// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: functions by name and version.
//
// Of the functions that share a name, the newest that came with the asked version or before. A
// name nobody has, or one that came after this driver's version, is SYMBOL_NOT_FOUND; one that
// came after the asked version is VERSION_NOT_SUFFICIENT. The newer entry succeeds in both cases
// with a NULL function, the older one says NOT_FOUND.
#include <string.h>

#include "sim.h"

// A function of any type; the caller casts it to the one it asked for.
typedef void (*any_fn)(void);

typedef struct proc {
    any_fn plain;
    any_fn per_thread; // NULL: there is no such twin
    int version;
} proc_t;

// clang-format off
static const proc_t procs[SIM_FN_COUNT] = {
#define SIM_FN(symbol, name, version, rules, type)                                                 \
    [SIM_FN_##symbol] = {(any_fn)symbol, NULL, version},
#define SIM_FN_STREAM(symbol, name, version, rules, type)                                          \
    [SIM_FN_##symbol] = {(any_fn)symbol, (any_fn)symbol##_ptsz, version},
#include "functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
};
// clang-format on

static bool proc_exists(int fn) {
    if (fn == SIM_FN_cuCtxRecordEvent && !sim.config.has_ctx_event)
        return false;
    return procs[fn].version <= sim.config.driver_version;
}

// Writes the function, or NULL; returns one of BERM_CU_PROC_*.
static int proc_find(const char *name, int version, bool is_per_thread, void **out) {
    int status = BERM_CU_PROC_SYMBOL_NOT_FOUND;
    const proc_t *best = NULL;
    for (int fn = 0; fn < SIM_FN_COUNT; fn++) {
        if (strcmp(sim_fn_name((sim_fn_t)fn), name) != 0 || !proc_exists(fn))
            continue;
        if (procs[fn].version <= version) {
            if (best == NULL || procs[fn].version > best->version)
                best = &procs[fn];
            status = BERM_CU_PROC_FOUND;
        } else if (best == NULL) {
            status = BERM_CU_PROC_VERSION_NOT_SUFFICIENT;
        }
    }
    *out = NULL;
    if (best != NULL) {
        any_fn fn = is_per_thread && best->per_thread != NULL ? best->per_thread : best->plain;
        memcpy(out, &fn, sizeof(fn));
    }
    return status;
}

static int proc_address(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    if (symbol == NULL || out == NULL || version <= 0 || version > sim.config.driver_version ||
        flags > BERM_CU_PROC_PER_THREAD_STREAM)
        return BERM_CU_INVALID_VALUE;
    *status = proc_find(symbol, version, flags == BERM_CU_PROC_PER_THREAD_STREAM, out);
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags,
                                     int *status) {
    int result = sim_enter(SIM_FN_cuGetProcAddress_v2);
    int found;
    if (result == BERM_CU_SUCCESS)
        result = proc_address(symbol, fn, version, flags, status != NULL ? status : &found);
    return sim_leave(result);
}

berm_cu_result_t cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags) {
    int result = sim_enter(SIM_FN_cuGetProcAddress);
    int status = BERM_CU_PROC_FOUND;
    if (result == BERM_CU_SUCCESS)
        result = proc_address(symbol, fn, version, flags, &status);
    if (result == BERM_CU_SUCCESS && status != BERM_CU_PROC_FOUND)
        result = BERM_CU_NOT_FOUND;
    return sim_leave(result);
}
