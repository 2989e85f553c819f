// SPDX-License-Identifier: Apache-2.0
// Modules, libraries and the kernels in them; the linker.
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "sim.h"

// A program's code. What it is made of is kept only where names can be looked up in it.
typedef struct sim_module {
    uint64_t handle;
    const sim_context_t *context; // NULL: a library, which lives in every context
    char *image;                  // text of PTX, or an ELF file; NULL: any name is in it
    size_t image_bytes;
} sim_module_t;

// A kernel, as CUfunction or CUkernel. It goes with its module.
typedef struct sim_function {
    uint64_t handle;
    sim_module_t *module;
    char *name;
    int attributes[BERM_CU_FUNC_ATTRIBUTES];
} sim_function_t;

// module.c: reads a whole file, with a zero after it. NULL with *result set.
char *sim_image_file_read(const char *path, size_t *bytes, int *result);
bool sim_image_is_text(const void *image); // of PTX, that is
void sim_modules_forget(const sim_context_t *context);
void sim_modules_clear(void); // at a reset
// A function or kernel that may be used now; NULL with *result set.
sim_function_t *sim_function_get(uint64_t handle, int *result);

// work.c: a kernel that nobody can run; duration 0: what the configuration says. It costs a launch.
int sim_kernel_launch(sim_stream_t *stream, uint64_t duration_ns);

// link.c
void sim_linkers_clear(void);

#endif
