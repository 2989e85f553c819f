// SPDX-License-Identifier: Apache-2.0
// The linker: texts of PTX that are added become one text, in which the names of all are found.
// Other inputs make an image that cannot be looked into (module.c).
//
// Locks: the state's, by sim_enter. May fail: no host memory; a file that cannot be read.
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum {
    BLIND_BYTES = 64 // zeros: an image in which any name is found
};

typedef struct linker {
    uint64_t handle;
    char *text; // zero-terminated
    size_t bytes;
    bool is_blind;
    bool is_complete;
} linker_t;

static void linker_free(linker_t *linker) {
    sim_table_remove(&sim.linkers, linker->handle);
    free(linker->text);
    free(linker);
}

void sim_linkers_clear(void) {
    uint32_t index = 0;
    for (linker_t *each; (each = sim_table_each(&sim.linkers, &index)) != NULL;)
        linker_free(each);
    sim_table_clear(&sim.linkers);
}

static linker_t *linker_get(sim_cu_linker_t handle, int *result) {
    linker_t *linker = sim_table_get(&sim.linkers, (uint64_t)(uintptr_t)handle);
    *result = linker != NULL ? BERM_CU_SUCCESS : BERM_CU_INVALID_HANDLE;
    return linker;
}

static int linker_create(sim_cu_linker_t *handle) {
    sim_charge(&sim.config.costs.other, 0, 0);
    if (handle == NULL)
        return BERM_CU_INVALID_VALUE;
    linker_t *linker = calloc(1, sizeof(*linker));
    if (linker == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    linker->text = calloc(1, BLIND_BYTES);
    linker->handle = linker->text != NULL ? sim_table_add(&sim.linkers, linker) : 0;
    if (linker->handle == 0) {
        free(linker->text);
        free(linker);
        return BERM_CU_OUT_OF_MEMORY;
    }
    *handle = (sim_cu_linker_t)(uintptr_t)linker->handle;
    return BERM_CU_SUCCESS;
}

static int linker_add(linker_t *linker, const char *data, size_t bytes) {
    if (linker->is_complete || data == NULL || bytes == 0)
        return BERM_CU_INVALID_VALUE;
    if (linker->is_blind || !sim_image_is_text(data)) {
        linker->is_blind = true;
        return BERM_CU_SUCCESS;
    }
    size_t length = strnlen(data, bytes);
    char *text = realloc(linker->text, linker->bytes + length + 2 + BLIND_BYTES);
    if (text == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    memcpy(text + linker->bytes, data, length);
    text[linker->bytes + length] = '\n';
    linker->text = text;
    linker->bytes += length + 1;
    linker->text[linker->bytes] = '\0';
    return BERM_CU_SUCCESS;
}

berm_cu_result_t cuLinkCreate_v2(unsigned option_count, int *options, void **values,
                                 sim_cu_linker_t *linker) {
    (void)option_count;
    (void)options;
    (void)values;
    int result = sim_enter(SIM_FN_cuLinkCreate_v2);
    if (result == BERM_CU_SUCCESS)
        result = linker_create(linker);
    return sim_leave(result);
}

berm_cu_result_t cuLinkAddData_v2(sim_cu_linker_t linker, int type, void *data, size_t bytes,
                                  const char *name, unsigned option_count, int *options,
                                  void **values) {
    (void)type;
    (void)name;
    (void)option_count;
    (void)options;
    (void)values;
    int result = sim_enter(SIM_FN_cuLinkAddData_v2);
    linker_t *found = result == BERM_CU_SUCCESS ? linker_get(linker, &result) : NULL;
    if (found != NULL)
        result = linker_add(found, data, bytes);
    return sim_leave(result);
}

berm_cu_result_t cuLinkAddFile_v2(sim_cu_linker_t linker, int type, const char *file,
                                  unsigned option_count, int *options, void **values) {
    (void)type;
    (void)option_count;
    (void)options;
    (void)values;
    int result = sim_enter(SIM_FN_cuLinkAddFile_v2);
    linker_t *found = result == BERM_CU_SUCCESS ? linker_get(linker, &result) : NULL;
    if (found != NULL && file == NULL) {
        result = BERM_CU_INVALID_VALUE;
    } else if (found != NULL) {
        size_t bytes = 0;
        char *data = sim_image_file_read(file, &bytes, &result);
        if (data != NULL)
            result = linker_add(found, data, bytes);
        free(data);
    }
    return sim_leave(result);
}

// The image is the linker's, until it is destroyed.
berm_cu_result_t cuLinkComplete(sim_cu_linker_t linker, void **image, size_t *bytes) {
    int result = sim_enter(SIM_FN_cuLinkComplete);
    linker_t *found = result == BERM_CU_SUCCESS ? linker_get(linker, &result) : NULL;
    if (found != NULL && image == NULL) {
        result = BERM_CU_INVALID_VALUE;
    } else if (found != NULL) {
        found->is_complete = true;
        if (found->is_blind || found->bytes == 0) {
            memset(found->text, 0, BLIND_BYTES);
            found->bytes = BLIND_BYTES - 1;
        }
        *image = found->text;
        if (bytes != NULL)
            *bytes = found->bytes + 1;
    }
    return sim_leave(result);
}

berm_cu_result_t cuLinkDestroy(sim_cu_linker_t linker) {
    int result = sim_enter(SIM_FN_cuLinkDestroy);
    linker_t *found = result == BERM_CU_SUCCESS ? linker_get(linker, &result) : NULL;
    if (found != NULL)
        linker_free(found);
    return sim_leave(result);
}
