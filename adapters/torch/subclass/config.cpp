// SPDX-License-Identifier: Apache-2.0
#include "adapters/torch/subclass/config.h"

#include <algorithm>
#include <bit>

namespace berm_torch {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

std::atomic<bool> Config::has_divisions_{false};

void Config::refresh() {
    const auto &divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
    if (std::any_of(divisions.begin(), divisions.end(), [](std::size_t d) { return d > 1; }))
        has_divisions_.store(true, std::memory_order_relaxed);
}

void Config::start(void (*changed)()) {
    (void)CUDAAllocatorConfig::instance(); // parses the environment, and says what is wrong with it
    refresh();
    auto before = AcceleratorAllocatorConfig::getConfigParserHook();
    AcceleratorAllocatorConfig::getConfigParserHook() = [before,
                                                         changed](const std::string &settings) {
        if (before)
            before(settings);
        refresh();
        changed();
    };
}

// PyTorch's rule: the next of `divisions` equal steps between powers of two; a power of two stays.
std::size_t Config::divided(std::size_t size) {
    const std::size_t plain = rounded(size);
    if (size < kBlockMin)
        return plain;
    const std::size_t divisions = AcceleratorAllocatorConfig::roundup_power2_divisions(size);
    if (divisions <= 1 || size <= kBlockMin * divisions || std::has_single_bit(size))
        return plain;
    const std::size_t floor = std::bit_floor(size);
    const std::size_t step = floor / divisions;
    return step == 0 ? floor * 2 : (size + step - 1) / step * step;
}

double Config::memory_fraction() {
    return CUDAAllocatorConfig::per_process_memory_fraction();
}

double Config::rejection_fraction() {
    return rejects() ? CUDAAllocatorConfig::per_process_memory_fraction() : 1.0;
}

bool Config::rejects() {
    return CUDAAllocatorConfig::throw_on_cudamalloc_oom();
}

std::int64_t Config::max_split_bytes() {
    return static_cast<std::int64_t>(AcceleratorAllocatorConfig::max_split_size());
}

c10::cuda::CUDACachingAllocator::AllocatorConfigInfo Config::describe() {
    c10::cuda::CUDACachingAllocator::AllocatorConfigInfo info{};
    info.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
    info.max_split_size = AcceleratorAllocatorConfig::max_split_size();
    info.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
    info.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
    info.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
    info.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
    info.graph_capture_record_stream_reuse =
        CUDAAllocatorConfig::graph_capture_record_stream_reuse();
    info.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
    info.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
    info.max_round_threshold = AcceleratorAllocatorConfig::pinned_max_round_threshold();
    info.max_cached_size = AcceleratorAllocatorConfig::pinned_max_cached_size();
    return info;
}

} // namespace berm_torch
