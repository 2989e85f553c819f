// SPDX-License-Identifier: Apache-2.0
// Allocators in shared libraries, named "lib:FILE[:ALLOC:FREE]" where an allocator's name is asked.
#ifndef STRESS_BASELINES_LIB_H
#define STRESS_BASELINES_LIB_H

#include "stress/allocator.h"

#define STRESS_LIB_PREFIX "lib:"

enum {
    STRESS_LIB_MAX = 4, // different names in one process
};

// NULL when the name does not start with the prefix, names no file, is too long, or there are
// STRESS_LIB_MAX others. The library is opened when an allocator is created.
const stress_allocator_ops_t *stress_lib_find(const char *name);

#endif
