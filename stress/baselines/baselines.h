// SPDX-License-Identifier: Apache-2.0
// The allocators that stress/allocators.c lists.
#ifndef STRESS_BASELINES_BASELINES_H
#define STRESS_BASELINES_BASELINES_H

#include "stress/allocator.h"

extern const stress_allocator_ops_t stress_berm_ops;
extern const stress_allocator_ops_t stress_pytorch_ops;
extern const stress_allocator_ops_t stress_expandable_ops;
extern const stress_allocator_ops_t stress_gmlake_ops;
extern const stress_allocator_ops_t stress_naive_ops;
extern const stress_allocator_ops_t stress_bfc_ops;
extern const stress_allocator_ops_t stress_cudamalloc_ops;
extern const stress_allocator_ops_t stress_jemalloc_ops;
extern const stress_allocator_ops_t stress_torch_native_ops;
extern const stress_allocator_ops_t stress_torch_expandable_ops;
extern const stress_allocator_ops_t stress_rmm_pool_ops;
extern const stress_allocator_ops_t stress_rmm_arena_ops;
extern const stress_allocator_ops_t stress_rmm_berm_ops;

#endif
