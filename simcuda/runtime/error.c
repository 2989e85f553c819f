// SPDX-License-Identifier: Apache-2.0
// Errors of the stand-in runtime: the last one of each thread, their names, and calls that have no
// stand-in.
//
// Locks: none; the last error is a thread's own, the counter atomic. May fail: nothing.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda.h"
#include "simcuda/runtime/runtime.h"

static _Thread_local int last_error;
static atomic_uint_fast64_t stub_hits;

int rt_finish(int result) {
    if (result != BERM_CU_SUCCESS)
        last_error = result;
    return result;
}

cudart_error_t cudaGetLastError(void) {
    int error = last_error;
    last_error = BERM_CU_SUCCESS;
    return error;
}

cudart_error_t cudaPeekAtLastError(void) {
    return last_error;
}

typedef struct error_words {
    int error;
    const char *name, *text; // text NULL: the driver's
} error_words_t;

static const error_words_t words[] = {
    {BERM_CU_SUCCESS, "cudaSuccess", NULL},
#define CUDART_ERROR(error, name, text) {error, #name, text},
#include "simcuda/runtime/errors.def"
#undef CUDART_ERROR
};

static const char unknown_words[] = "unrecognized error code";

static const error_words_t *words_find(cudart_error_t error) {
    for (size_t i = 0; i < BERM_ARRAY_LENGTH(words); i++)
        if (words[i].error == error)
            return &words[i];
    return NULL;
}

const char *cudaGetErrorName(cudart_error_t error) {
    const error_words_t *found = words_find(error);
    return found != NULL ? found->name : unknown_words;
}

const char *cudaGetErrorString(cudart_error_t error) {
    const error_words_t *found = words_find(error);
    const char *text = NULL;
    if (found != NULL && found->text != NULL)
        return found->text;
    return cuGetErrorString(error, &text) == BERM_CU_SUCCESS ? text : unknown_words;
}

int rt_unsupported(const char *name) {
    enum {
        LOG_MAX = 256
    };
    static const char *_Atomic logged[LOG_MAX];
    atomic_fetch_add(&stub_hits, 1);
    simcuda_stub_hit("cudart", name);
    for (int i = 0; secure_getenv("SIMCUDA_LOG") != NULL && i < LOG_MAX; i++) {
        const char *none = NULL;
        if (atomic_load(&logged[i]) == name)
            break;
        if (atomic_compare_exchange_strong(&logged[i], &none, name)) {
            (void)fprintf(stderr, "simcuda: %s has no stand-in; it returned \"not supported\"\n",
                          name);
            break;
        }
    }
    return rt_finish(BERM_CU_NOT_SUPPORTED);
}

uint64_t simcuda_runtime_stub_hits(void) {
    return atomic_load(&stub_hits);
}
