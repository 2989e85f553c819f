// SPDX-License-Identifier: Apache-2.0
// PYTORCH_ALLOC_CONF as PyTorch has parsed it: what of it reaches this allocator. The table is in
// docs/adapters/pytorch.md. Thread-safe.
#ifndef BERM_TORCH_CONFIG_H
#define BERM_TORCH_CONFIG_H

#include <atomic>
#include <cstddef>

#include <c10/cuda/CUDACachingAllocator.h>

#include "adapters/torch/subclass/figures.h"

namespace berm_torch {

class Config {
  public:
    // Reads the settings, and again whenever a program changes them, which `changed` is then told.
    static void start(void (*changed)());

    // Whether roundup_power2_divisions has ever been set: then blocks are larger than asked for,
    // and what was asked for is kept apart.
    static bool has_divisions() { return has_divisions_.load(std::memory_order_relaxed); }

    // What a request of `size` bytes (1 or more) is made to be by roundup_power2_divisions, a
    // multiple of 512.
    static std::size_t divided(std::size_t size);

    // max_split_size_mb, which berm has no use for; -1: not set.
    static std::int64_t max_split_bytes();
    static double memory_fraction();
    // The part of a device over which requests are rejected by throw_on_cudamalloc_oom; 1: none.
    static double rejection_fraction();
    // throw_on_cudamalloc_oom.
    static bool rejects();
    static c10::cuda::CUDACachingAllocator::AllocatorConfigInfo describe();

  private:
    static void refresh();
    static std::atomic<bool> has_divisions_;
};

} // namespace berm_torch

#endif
