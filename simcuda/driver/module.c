// SPDX-License-Identifier: Apache-2.0
// Modules of a context, and libraries, which belong to none: what a program's kernels are in.
//
// No code is compiled or run. PTX and ELF images are kept, and only the names that are in them are
// found; any name is found in an image that cannot be looked into (a fat binary, which may be
// compressed, and what stand-in compilers make).
// Locks: the state's, by sim_enter. May fail: no host memory; a file that cannot be read.
#include "module.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELF_SECTIONS_AT = 0x28, // e_shoff, 8 bytes
    ELF_SECTION_SIZE_AT = 0x3a,
    ELF_SECTION_COUNT_AT = 0x3c,
    ELF_HEADER_BYTES = 64,
    KERNEL_REGISTERS = 32, // of every kernel: none is compiled
    KERNEL_THREADS = 1024,
    KERNEL_SHARED_BYTES = 48 << 10, // without opting in
};

// --- images --------------------------------------------------------------------------------------

char *sim_image_file_read(const char *path, size_t *bytes, int *result) {
    *result = BERM_CU_FILE_NOT_FOUND;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return NULL;
    char *text = NULL;
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        *result = BERM_CU_OUT_OF_MEMORY;
        text = malloc((size_t)length + 1);
        if (text != NULL) {
            *bytes = fread(text, 1, (size_t)length, file);
            text[*bytes] = '\0';
            *result = BERM_CU_SUCCESS;
        }
    }
    (void)fclose(file);
    return text;
}

// Text is what begins as PTX may: space, a comment, a directive.
bool sim_image_is_text(const void *image) {
    unsigned char first = *(const unsigned char *)image;
    return isspace(first) || first == '/' || first == '.';
}

static bool image_is_elf(const void *image) {
    return strncmp(image, "\177ELF", 4) == 0; // stops at the end of a shorter one
}

// An ELF file ends with its table of sections. 0: it does not say.
static size_t elf_bytes(const unsigned char *image) {
    uint64_t at;
    uint16_t size, count;
    memcpy(&at, image + ELF_SECTIONS_AT, sizeof(at));
    memcpy(&size, image + ELF_SECTION_SIZE_AT, sizeof(size));
    memcpy(&count, image + ELF_SECTION_COUNT_AT, sizeof(count));
    return at == 0 || at > BERM_GIB(1) ? 0 : (size_t)at + (size_t)size * count;
}

// Whether all that is looked at in an image lies in its file.
static bool file_is_whole(const char *image, size_t bytes) {
    if (!image_is_elf(image))
        return bytes > 0;
    return bytes >= ELF_HEADER_BYTES && elf_bytes((const unsigned char *)image) <= bytes;
}

static int image_keep(sim_module_t *module, const void *image) {
    size_t bytes = 0;
    if (sim_image_is_text(image)) {
        if (strstr(image, ".version") == NULL)
            return BERM_CU_INVALID_IMAGE;
        bytes = strlen(image) + 1;
    } else if (image_is_elf(image)) {
        bytes = elf_bytes(image);
    }
    if (bytes == 0)
        return BERM_CU_SUCCESS;
    module->image = malloc(bytes);
    if (module->image == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    memcpy(module->image, image, bytes);
    module->image_bytes = bytes;
    return BERM_CU_SUCCESS;
}

static bool is_name_character(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

// Whether the text of PTX has a kernel of that name.
static bool ptx_has(const char *text, const char *name) {
    static const char entry[] = ".entry";
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, entry)) != NULL;) {
        at += sizeof(entry) - 1;
        at += strspn(at, " \t\r\n");
        if (strncmp(at, name, length) == 0 && !is_name_character(at[length]))
            return true;
    }
    return false;
}

static bool module_has(const sim_module_t *module, const char *name) {
    if (module->image == NULL)
        return true;
    if (!image_is_elf(module->image))
        return ptx_has(module->image, name);
    // The table of strings has a zero at both ends of each.
    size_t length = strlen(name) + 1;
    for (const char *at = module->image, *end = at + module->image_bytes;
         (at = memmem(at, (size_t)(end - at), name, length)) != NULL; at++)
        if (at > module->image && at[-1] == '\0')
            return true;
    return false;
}

// --- objects -------------------------------------------------------------------------------------

static void function_free(sim_function_t *function) {
    sim_table_remove(&sim.functions, function->handle);
    free(function->name);
    free(function);
}

static void module_free(sim_module_t *module) {
    uint32_t index = 0;
    for (sim_function_t *each; (each = sim_table_each(&sim.functions, &index)) != NULL;)
        if (each->module == module)
            function_free(each);
    sim_table_remove(&sim.modules, module->handle);
    free(module->image);
    free(module);
}

void sim_modules_forget(const sim_context_t *context) {
    uint32_t index = 0;
    for (sim_module_t *each; (each = sim_table_each(&sim.modules, &index)) != NULL;)
        if (each->context == context)
            module_free(each);
}

void sim_modules_clear(void) {
    uint32_t index = 0;
    for (sim_module_t *each; (each = sim_table_each(&sim.modules, &index)) != NULL;)
        module_free(each);
    sim_table_clear(&sim.functions);
    sim_table_clear(&sim.modules);
}

static int module_create(const void *image, const sim_context_t *context, uint64_t *handle) {
    sim_charge(&sim.config.costs.other, 0, 0);
    if (image == NULL)
        return BERM_CU_INVALID_VALUE;
    sim_module_t *module = calloc(1, sizeof(*module));
    if (module == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    module->context = context;
    int result = image_keep(module, image);
    if (result == BERM_CU_SUCCESS)
        module->handle = sim_table_add(&sim.modules, module);
    if (result == BERM_CU_SUCCESS && module->handle == 0)
        result = BERM_CU_OUT_OF_MEMORY;
    if (result != BERM_CU_SUCCESS) {
        free(module->image);
        free(module);
        return result;
    }
    *handle = module->handle;
    return BERM_CU_SUCCESS;
}

// The module or library of a handle; NULL with *result set.
static sim_module_t *module_get(const void *handle, bool is_library, int *result) {
    sim_module_t *module = sim_table_get(&sim.modules, (uint64_t)(uintptr_t)handle);
    *result = BERM_CU_SUCCESS;
    if (module != NULL && (module->context == NULL) == is_library &&
        (is_library || module->context == sim_context_current()))
        return module;
    *result = BERM_CU_INVALID_HANDLE;
    return NULL;
}

static sim_function_t *function_find(const sim_module_t *module, const char *name) {
    uint32_t index = 0;
    for (sim_function_t *each; (each = sim_table_each(&sim.functions, &index)) != NULL;)
        if (each->module == module && strcmp(each->name, name) == 0)
            return each;
    return NULL;
}

static sim_function_t *function_create(sim_module_t *module, const char *name) {
    sim_function_t *function = calloc(1, sizeof(*function));
    if (function == NULL)
        return NULL;
    int version = sim.config.gpu.capability_major * 10 + sim.config.gpu.capability_minor;
    function->module = module;
    function->name = strdup(name);
    function->handle = function->name != NULL ? sim_table_add(&sim.functions, function) : 0;
    if (function->handle == 0) {
        free(function->name);
        free(function);
        return NULL;
    }
    function->attributes[BERM_CU_FUNC_MAX_THREADS_PER_BLOCK] = KERNEL_THREADS;
    function->attributes[BERM_CU_FUNC_REGISTERS] = KERNEL_REGISTERS;
    function->attributes[BERM_CU_FUNC_PTX_VERSION] = version;
    function->attributes[BERM_CU_FUNC_BINARY_VERSION] = version;
    function->attributes[BERM_CU_FUNC_MAX_DYNAMIC_SHARED_BYTES] = KERNEL_SHARED_BYTES;
    function->attributes[BERM_CU_FUNC_PREFERRED_SHARED_CARVEOUT] = -1;
    return function;
}

// The kernel of a name, the same one each time.
static int function_take(sim_module_t *module, const char *name, uint64_t *handle) {
    sim_charge(&sim.config.costs.other, 0, 0);
    if (name == NULL || *name == '\0')
        return BERM_CU_INVALID_VALUE;
    if (!module_has(module, name))
        return BERM_CU_NOT_FOUND;
    sim_function_t *function = function_find(module, name);
    if (function == NULL)
        function = function_create(module, name);
    if (function == NULL)
        return BERM_CU_OUT_OF_MEMORY;
    *handle = function->handle;
    return BERM_CU_SUCCESS;
}

sim_function_t *sim_function_get(uint64_t handle, int *result) {
    sim_function_t *function = sim_table_get(&sim.functions, handle);
    *result = BERM_CU_SUCCESS;
    if (function != NULL &&
        (function->module->context == NULL || function->module->context == sim_context_current()))
        return function;
    *result = BERM_CU_INVALID_HANDLE;
    return NULL;
}

// --- calls: modules ------------------------------------------------------------------------------

static int module_load(sim_fn_t fn, sim_cu_module_t *module, const void *image) {
    int result = sim_enter(fn);
    uint64_t handle = 0;
    if (result == BERM_CU_SUCCESS)
        result = module == NULL ? BERM_CU_INVALID_VALUE
                                : module_create(image, sim_context_current(), &handle);
    if (result == BERM_CU_SUCCESS)
        *module = (sim_cu_module_t)(uintptr_t)handle;
    return sim_leave(result);
}

berm_cu_result_t cuModuleLoadData(sim_cu_module_t *module, const void *image) {
    return module_load(SIM_FN_cuModuleLoadData, module, image);
}

berm_cu_result_t cuModuleLoadFatBinary(sim_cu_module_t *module, const void *image) {
    return module_load(SIM_FN_cuModuleLoadFatBinary, module, image);
}

// Options are for a compiler, which is not here.
berm_cu_result_t cuModuleLoadDataEx(sim_cu_module_t *module, const void *image,
                                    unsigned option_count, int *options, void **values) {
    (void)option_count;
    (void)options;
    (void)values;
    return module_load(SIM_FN_cuModuleLoadDataEx, module, image);
}

berm_cu_result_t cuModuleLoad(sim_cu_module_t *module, const char *file) {
    int result = sim_enter(SIM_FN_cuModuleLoad);
    uint64_t handle = 0;
    if (result == BERM_CU_SUCCESS && (module == NULL || file == NULL))
        result = BERM_CU_INVALID_VALUE;
    if (result == BERM_CU_SUCCESS) {
        size_t bytes = 0;
        char *image = sim_image_file_read(file, &bytes, &result);
        if (result == BERM_CU_SUCCESS)
            result = file_is_whole(image, bytes)
                         ? module_create(image, sim_context_current(), &handle)
                         : BERM_CU_INVALID_IMAGE;
        free(image);
    }
    if (result == BERM_CU_SUCCESS)
        *module = (sim_cu_module_t)(uintptr_t)handle;
    return sim_leave(result);
}

berm_cu_result_t cuModuleUnload(sim_cu_module_t module) {
    int result = sim_enter(SIM_FN_cuModuleUnload);
    sim_module_t *found = result == BERM_CU_SUCCESS ? module_get(module, false, &result) : NULL;
    if (found != NULL)
        module_free(found);
    return sim_leave(result);
}

berm_cu_result_t cuModuleGetFunction(sim_cu_function_t *function, sim_cu_module_t module,
                                     const char *name) {
    int result = sim_enter(SIM_FN_cuModuleGetFunction);
    uint64_t handle = 0;
    if (result == BERM_CU_SUCCESS && function == NULL)
        result = BERM_CU_INVALID_VALUE;
    sim_module_t *found = result == BERM_CU_SUCCESS ? module_get(module, false, &result) : NULL;
    if (found != NULL)
        result = function_take(found, name, &handle);
    if (result == BERM_CU_SUCCESS)
        *function = (sim_cu_function_t)(uintptr_t)handle;
    return sim_leave(result);
}

// --- calls: libraries ----------------------------------------------------------------------------

berm_cu_result_t cuLibraryLoadData(sim_cu_library_t *library, const void *image, int *jit_options,
                                   void **jit_values, unsigned jit_count, int *options,
                                   void **values, unsigned count) {
    (void)jit_options;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    int result = sim_enter(SIM_FN_cuLibraryLoadData);
    uint64_t handle = 0;
    if (result == BERM_CU_SUCCESS)
        result = library == NULL ? BERM_CU_INVALID_VALUE : module_create(image, NULL, &handle);
    if (result == BERM_CU_SUCCESS)
        *library = (sim_cu_library_t)(uintptr_t)handle;
    return sim_leave(result);
}

berm_cu_result_t cuLibraryUnload(sim_cu_library_t library) {
    int result = sim_enter(SIM_FN_cuLibraryUnload);
    sim_module_t *found = result == BERM_CU_SUCCESS ? module_get(library, true, &result) : NULL;
    if (found != NULL)
        module_free(found);
    return sim_leave(result);
}

berm_cu_result_t cuLibraryGetKernel(sim_cu_kernel_t *kernel, sim_cu_library_t library,
                                    const char *name) {
    int result = sim_enter(SIM_FN_cuLibraryGetKernel);
    uint64_t handle = 0;
    if (result == BERM_CU_SUCCESS && kernel == NULL)
        result = BERM_CU_INVALID_VALUE;
    sim_module_t *found = result == BERM_CU_SUCCESS ? module_get(library, true, &result) : NULL;
    if (found != NULL)
        result = function_take(found, name, &handle);
    if (result == BERM_CU_SUCCESS)
        *kernel = (sim_cu_kernel_t)(uintptr_t)handle;
    return sim_leave(result);
}
