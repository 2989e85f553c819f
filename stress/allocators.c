// SPDX-License-Identifier: Apache-2.0
// The table of allocators that a trace can run through. Each is in a file of stress/baselines.
#include "stress/allocator.h"

#include <string.h>

#include "stress/baselines/baselines.h"
#include "stress/baselines/lib.h"

const stress_allocator_ops_t *const stress_allocators[] = {
    &stress_berm_ops,
    &stress_pytorch_ops,
    &stress_expandable_ops,
    &stress_gmlake_ops,
    &stress_naive_ops,
    &stress_bfc_ops,
    &stress_cudamalloc_ops,
    &stress_jemalloc_ops,
    &stress_torch_native_ops,
    &stress_torch_expandable_ops,
    &stress_rmm_pool_ops,
    &stress_rmm_arena_ops,
    &stress_rmm_berm_ops,
    NULL,
};

const stress_allocator_ops_t *stress_allocator_find(const char *name) {
    for (size_t i = 0; stress_allocators[i] != NULL; i++)
        if (strcmp(stress_allocators[i]->name, name) == 0)
            return stress_allocators[i];
    return stress_lib_find(name);
}
