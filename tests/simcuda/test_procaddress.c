// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: every function by name, exact versions, and the ways a search can end.
#include "sim_test.h"

typedef struct row {
    const char *name;
    int version;
    void (*fn)(void);
} row_t;

static const row_t rows[] = {
#define SIM_FN(symbol, name, version, rules, type)        {#name, version, (void (*)(void))symbol},
#define SIM_FN_STREAM(symbol, name, version, rules, type) {#name, version, (void (*)(void))symbol},
#include "simcuda/driver/functions.def"
#undef SIM_FN
#undef SIM_FN_STREAM
};

static void *as_pointer(void (*fn)(void)) {
    return (void *)(uintptr_t)fn;
}

static void *find(const char *name, int version, uint64_t flags, int *status) {
    void *fn = &fn;
    *status = -1;
    OK(cuGetProcAddress_v2(name, &fn, version, flags, status));
    return fn;
}

Test(procaddress, every_function_at_its_version) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(rows); i++) {
        int status;
        void *fn = find(rows[i].name, rows[i].version, BERM_CU_PROC_DEFAULT, &status);
        cr_assert(status == BERM_CU_PROC_FOUND, "%s", rows[i].name);
        cr_assert(fn == as_pointer(rows[i].fn), "%s at %d", rows[i].name, rows[i].version);
    }
}

Test(procaddress, the_newest_that_is_old_enough) {
    int status;
    cr_assert(find("cuCtxCreate", 11030, 0, &status) == (void *)(uintptr_t)cuCtxCreate_v2);
    cr_assert(find("cuCtxCreate", 12000, 0, &status) == (void *)(uintptr_t)cuCtxCreate_v3);
    cr_assert(find("cuCtxCreate", 13000, 0, &status) == (void *)(uintptr_t)cuCtxCreate_v4);
}

Test(procaddress, not_found_and_too_old) {
    int status;
    void *fn = &status;
    cr_assert(find("cuMemWish", 13000, 0, &status) == NULL);
    cr_assert(status == BERM_CU_PROC_SYMBOL_NOT_FOUND);
    cr_assert(find("cuMemCreate_v2", 13000, 0, &status) == NULL);
    cr_assert(status == BERM_CU_PROC_SYMBOL_NOT_FOUND);
    cr_assert(find("cuMemCreate", 10010, 0, &status) == NULL);
    cr_assert(status == BERM_CU_PROC_VERSION_NOT_SUFFICIENT);
    FAILS(cuGetProcAddress("cuMemWish", &fn, 13000, 0), BERM_CU_NOT_FOUND);
    cr_assert(fn == NULL);
    OK(cuGetProcAddress("cuMemCreate", &fn, 13000, 0));
    cr_assert(fn == (void *)(uintptr_t)cuMemCreate);
    OK(cuGetProcAddress_v2("cuMemCreate", &fn, 13000, 0, NULL));
}

Test(procaddress, bad_arguments) {
    void *fn;
    int status;
    FAILS(cuGetProcAddress_v2(NULL, &fn, 13000, 0, &status), BERM_CU_INVALID_VALUE);
    FAILS(cuGetProcAddress_v2("cuInit", NULL, 13000, 0, &status), BERM_CU_INVALID_VALUE);
    FAILS(cuGetProcAddress_v2("cuInit", &fn, 13010, 0, &status), BERM_CU_INVALID_VALUE);
    FAILS(cuGetProcAddress_v2("cuInit", &fn, 13000, 3, &status), BERM_CU_INVALID_VALUE);
}

Test(procaddress, per_thread_twins) {
    int status;
    uint64_t flags = BERM_CU_PROC_PER_THREAD_STREAM;
    cr_assert(find("cuStreamQuery", 13000, flags, &status) ==
              (void *)(uintptr_t)cuStreamQuery_ptsz);
    cr_assert(find("cuMemCreate", 13000, flags, &status) == (void *)(uintptr_t)cuMemCreate);
    cr_assert(find("cuStreamQuery", 13000, BERM_CU_PROC_LEGACY_STREAM, &status) ==
              (void *)(uintptr_t)cuStreamQuery);
}

Test(procaddress, an_older_driver) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.driver_version = 12000;
    OK(simcuda_reset(&config));
    int status, version = 0;
    OK(cuDriverGetVersion(&version));
    cr_assert(version == 12000);
    cr_assert(find("cuCtxRecordEvent", 12000, 0, &status) == NULL);
    cr_assert(status == BERM_CU_PROC_SYMBOL_NOT_FOUND);
    cr_assert(find("cuCtxCreate", 12000, 0, &status) == (void *)(uintptr_t)cuCtxCreate_v3);
}

Test(procaddress, without_context_events) {
    simcuda_config_t config;
    simcuda_config_default(&config);
    config.has_ctx_event = 0;
    start_with(&config);
    int status;
    cr_assert(find("cuCtxRecordEvent", 13000, 0, &status) == NULL);
    cr_assert(status == BERM_CU_PROC_SYMBOL_NOT_FOUND);
    FAILS(cuCtxRecordEvent(NULL, event_new()), BERM_CU_NOT_SUPPORTED);
}
