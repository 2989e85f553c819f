// SPDX-License-Identifier: Apache-2.0
// PyTorch's own CUDA caching allocator behind real.h: compiled by setup_torch.sh against the
// headers of an installed torch and linked with its libc10 and libc10_cuda alone. No line of the
// allocator is here; nor is Python or any other of torch's libraries needed.
//
// The mode is what PYTORCH_CUDA_ALLOC_CONF says when libc10_cuda reads it, so it is set before the
// first call into it. Statistics, peaks and the largest free block are the allocator's own.
// May fail: bad options and out of memory, which the allocator throws; its words are kept.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <c10/util/Flags.h>

#include "stress/real/real.h"

#ifndef BERM_TORCH_VERSION
#define BERM_TORCH_VERSION "unknown"
#endif

C10_DECLARE_int(caffe2_log_level); // errors only from 2 on

namespace c10::cuda::_internal {
// Exported by libc10_cuda for libtorch, which sets it; no header declares it for others.
void setHasPrimaryContext(bool (*func)(c10::DeviceIndex));
} // namespace c10::cuda::_internal

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// Requests up to this are served from a pool of their own.
constexpr std::size_t kSmallMax = 1 << 20;
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::DeviceIndex device;
thread_local std::string last_error;

int failed(const std::exception &error) {
    last_error = error.what();
    return STRESS_REAL_ERROR;
}

// Runs `body`, whose exceptions become results.
template <typename Body> int guarded(Body body) {
    try {
        body();
        return STRESS_REAL_OK;
    } catch (const c10::OutOfMemoryError &error) {
        (void)failed(error);
        return STRESS_REAL_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        return failed(error);
    }
}

void environment_set(const stress_real_options_t &options) {
    std::string conf = options.conf;
    if (std::string(options.mode) == "expandable")
        conf = conf.empty() ? "expandable_segments:True" : "expandable_segments:True," + conf;
    (void)unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    (void)unsetenv("PYTORCH_ALLOC_CONF");
    if (conf.empty())
        (void)unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    else
        (void)setenv("PYTORCH_CUDA_ALLOC_CONF", conf.c_str(), 1);
}

void limit_set(std::uint64_t limit_bytes) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    // The allocator multiplies again and drops the fraction of a byte.
    if (limit_bytes < total_bytes)
        allocator::setMemoryFraction(
            (static_cast<double>(limit_bytes) + 0.5) / static_cast<double>(total_bytes), device);
}

void *pointer(std::uint64_t addr) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
}

std::uint64_t unsigned_of(std::int64_t value) {
    return value < 0 ? 0 : static_cast<std::uint64_t>(value);
}

} // namespace

int stress_real_version() {
    return STRESS_REAL_VERSION;
}

const char *stress_real_describe() {
    return "torch " BERM_TORCH_VERSION ", libc10_cuda";
}

const char *stress_real_error() {
    return last_error.c_str();
}

int stress_real_create(const stress_real_options_t *options, char *error,
                       std::size_t error_capacity) {
    environment_set(*options);
    // It warns at each failed mapping, which a search for the smallest capacity makes by the
    // hundred.
    FLAGS_caffe2_log_level = 2;
    const int result = guarded([&] {
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        device = static_cast<c10::DeviceIndex>(options->device);
        const auto count = c10::cuda::device_count();
        TORCH_CHECK(count > device, "no CUDA device ", static_cast<int>(device));
        c10::cuda::set_device(device);
        c10::cuda::detail::init_p2p_access_cache(count);
        allocator::init(count);
        if (options->limit_bytes != UINT64_MAX)
            limit_set(options->limit_bytes);
        // Options are parsed when they are first asked for: a bad one must be told now.
        (void)allocator::CUDAAllocatorConfig::expandable_segments();
    });
    if (result != STRESS_REAL_OK)
        (void)std::snprintf(error, error_capacity, "%s", last_error.c_str());
    return result;
}

void stress_real_destroy(std::uint64_t *live_blocks) {
    *live_blocks = unsigned_of(allocator::getDeviceStats(device).allocation[kAll].current);
    (void)guarded([] { allocator::emptyCache(); });
}

int stress_real_alloc(std::uint64_t size_bytes, void *stream, std::uint64_t *addr) {
    *addr = 0;
    return guarded([&] {
        *addr = reinterpret_cast<std::uintptr_t>(
            allocator::raw_alloc_with_stream(size_bytes, static_cast<cudaStream_t>(stream)));
    });
}

int stress_real_free(std::uint64_t addr, std::uint64_t, void *) {
    return guarded([&] { allocator::raw_delete(pointer(addr)); });
}

int stress_real_record_stream(std::uint64_t addr, void *stream) {
    return guarded([&] {
        // A borrowed pointer that looks like a tensor's; it must not free.
        auto *base = allocator::get();
        c10::DataPtr data(pointer(addr), pointer(addr), base->raw_deleter(),
                          c10::Device(c10::DeviceType::CUDA, device));
        allocator::recordStream(
            data, c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), device));
        (void)data.release_context();
    });
}

void stress_real_figures(stress_real_figures_t *figures) {
    const auto stats = allocator::getDeviceStats(device);
    figures->requested_bytes = unsigned_of(stats.requested_bytes[kAll].current);
    figures->allocated_bytes = unsigned_of(stats.allocated_bytes[kAll].current);
    figures->active_bytes = unsigned_of(stats.active_bytes[kAll].current);
    figures->reserved_bytes = unsigned_of(stats.reserved_bytes[kAll].current);
    figures->allocated_peak_bytes = unsigned_of(stats.allocated_bytes[kAll].peak);
    figures->reserved_peak_bytes = unsigned_of(stats.reserved_bytes[kAll].peak);
    figures->host_waits = unsigned_of(stats.num_sync_all_streams);
}

void stress_real_peaks_reset() {
    allocator::resetPeakStats(device);
}

std::uint64_t stress_real_largest_free(void *stream) {
    std::size_t large = 0;
    std::size_t small = 0;
    (void)guarded([&] {
        const auto snapshot = allocator::snapshot({0, 0}, false);
        for (const auto &segment : snapshot.segments) {
            if (segment.device != device || segment.stream != stream)
                continue;
            auto &largest = segment.is_large ? large : small;
            for (const auto &block : segment.blocks)
                if (!block.active && !block.allocated)
                    largest = std::max(largest, block.size);
        }
    });
    // A request above the small limit goes to the large pool, any other to the small one.
    return large > kSmallMax ? large : std::min(small, kSmallMax);
}

void stress_real_empty_cache() {
    (void)guarded([] { allocator::emptyCache(); });
}
