// SPDX-License-Identifier: Apache-2.0
// Shared by the programs that run under libberm_preload.so: a check that ends the program with a
// line, and questions to the libberm that the preload brings. The programs know nothing of berm
// otherwise, and run without it too (`is_preloaded`), on the simulated device alone.
#ifndef BERM_TESTS_PRELOAD_TEST_H
#define BERM_TESTS_PRELOAD_TEST_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berm_diagnose.h"
#include "simcuda.h"

#define MIB ((size_t)1 << 20)

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                  \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fputc('\n', stderr);                                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The call gives this result.
#define GIVES(want, call)                                                                          \
    do {                                                                                           \
        int got_ = (int)(call);                                                                    \
        CHECK(got_ == (want), "%s gave %d, not %d", #call, got_, (int)(want));                     \
    } while (0)

#define BERM_CALL(name)                                                                            \
    __extension__({                                                                                \
        void *symbol_ = dlsym(RTLD_DEFAULT, #name);                                                \
        __typeof__(&name) fn_ = NULL;                                                              \
        CHECK(symbol_ != NULL, "no libberm in the process");                                       \
        memcpy(&fn_, &symbol_, sizeof fn_);                                                        \
        fn_;                                                                                       \
    })

static inline bool is_preloaded(void) {
    return dlsym(RTLD_DEFAULT, "berm_alloc") != NULL;
}

// Whether a live block of berm's begins there.
static inline bool is_berms(const void *pointer) {
    return is_preloaded() &&
           BERM_CALL(berm_block_read)((uintptr_t)pointer, NULL, NULL, NULL) == BERM_OK;
}

static inline berm_stats_t stats_of(int device) {
    berm_stats_t stats = BERM_STATS_INIT;
    CHECK(BERM_CALL(berm_stats_read)(device, &stats) == BERM_OK, "no statistics");
    return stats;
}

static inline bool overlaps(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

static inline void no_hazards(void) {
    simcuda_hazard_t hazard;
    if (simcuda_hazard_count() > 0 && simcuda_hazard_read(0, &hazard) == 0)
        CHECK(false, "%s: %s", simcuda_hazard_name(hazard.kind), hazard.text);
}

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case_t;

// Runs the case that the argument names.
static inline int run_case(const test_case_t *cases, size_t count, int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < count; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        cases[i].run();
        no_hazards();
        return 0;
    }
    (void)fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
}

#endif
