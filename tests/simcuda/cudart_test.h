// SPDX-License-Identifier: Apache-2.0
// What the tests of the stand-in runtimes share: libcudart.so.13, or with CUDART_MAJOR 12 the
// other, loaded by path, as a program of the user's gets it.
#ifndef TESTS_SIMCUDA_CUDART_TEST_H
#define TESTS_SIMCUDA_CUDART_TEST_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"
#include "simcuda/runtime/cudart.h"

#define CUDART_TEXT_(name) #name
#define CUDART_TEXT(name)  CUDART_TEXT_(name)
#define CUDART_LIBRARY     "libcudart.so." CUDART_TEXT(CUDART_MAJOR)

static void *library;

static void library_open(void) {
    char path[4096];
    const char *folder = getenv("BERM_LIBDIR");
    (void)snprintf(path, sizeof path, "%s/simcuda/" CUDART_LIBRARY, folder != NULL ? folder : ".");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library != NULL, "%s", dlerror());
}

// A variable of the function's own type, filled with its address in the library. The name is what
// cudart.h makes of it for this library.
#define FUNCTION(name) FUNCTION_FIND(name, name##_)
#define FUNCTION_FIND(name, variable)                                                              \
    __typeof__(&name) variable;                                                                    \
    {                                                                                              \
        void *found_ = dlvsym(library, #name, CUDART_LIBRARY);                                     \
        cr_assert(found_ != NULL, "no " #name);                                                    \
        memcpy(&variable, &found_, sizeof found_);                                                 \
    }

#endif
