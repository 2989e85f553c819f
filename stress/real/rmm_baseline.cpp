// SPDX-License-Identifier: Apache-2.0
// RMM's pool and arena behind real.h: compiled by setup_rmm.sh against the headers of the PyPI wheel
// (the CCCL inside it comes first).
//
// From RMM's headers, unchanged: the stream-ordered base with its events, waits and merging of
// streams, the best-fit coalescing free list, the arenas with their superblocks. RMM compiles the
// rest into a library that carries a static CUDA runtime and so cannot run on a simulated driver;
// that rest is written here to the same rules: how a pool grows and gives back (`Pool`), which arena
// serves a stream and what is tried when it is empty (`Arena`), and small functions.
// May fail: out of memory, which RMM throws.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include <rmm/mr/detail/arena.hpp>
#include <rmm/mr/detail/coalescing_free_list.hpp>
#include <rmm/mr/detail/stream_ordered_memory_resource.hpp>

#include "stress/real/real.h"

#ifndef BERM_RMM_VERSION
#define BERM_RMM_VERSION "unknown"
#endif

// --- what RMM's headers leave to its library -----------------------------------------------------

RMM_NAMESPACE_BEGIN

cuda_device_id get_current_cuda_device() {
    int device = 0;
    RMM_CUDA_TRY(cudaGetDevice(&device));
    return cuda_device_id{device};
}

int get_num_cuda_devices() {
    int count = 0;
    RMM_CUDA_TRY(cudaGetDeviceCount(&count));
    return count;
}

std::pair<std::size_t, std::size_t> available_device_memory() {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    RMM_CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    return {free_bytes, total_bytes};
}

std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
    return (value + (alignment - 1)) & ~(alignment - 1);
}

std::size_t align_down(std::size_t value, std::size_t alignment) noexcept {
    return value & ~(alignment - 1);
}

bool process_is_exiting() noexcept {
    return false;
}

namespace detail {

std::string format_bytes(std::size_t value) {
    return std::to_string(value) + " bytes";
}

std::string format_stream(cuda::stream_ref stream) {
    char text[32];
    (void)std::snprintf(text, sizeof text, "%p", static_cast<void *>(stream.get()));
    return text;
}

} // namespace detail

RMM_NAMESPACE_END

namespace {

constexpr std::size_t kAlignment = rmm::CUDA_ALLOCATION_ALIGNMENT;

// Private members of RMM's classes, read for the largest free block only: explicit instantiation
// may name them.
template <typename Tag, auto Member> struct Opened {
    friend auto member_of(Tag) { return Member; }
};

// --- the device's memory -------------------------------------------------------------------------

struct Upstream {
    std::size_t reserved_bytes = 0;
    std::size_t peak_bytes = 0;

    void *take(std::size_t bytes) {
        void *addr = nullptr;
        const cudaError_t result = cudaMalloc(&addr, bytes);
        if (result != cudaSuccess) {
            (void)cudaGetLastError();
            throw rmm::out_of_memory("cudaMalloc of " + std::to_string(bytes) + " bytes");
        }
        reserved_bytes += granules(bytes);
        peak_bytes = std::max(peak_bytes, reserved_bytes);
        return addr;
    }

    void give(void *addr, std::size_t bytes) noexcept {
        (void)cudaFree(addr);
        reserved_bytes -= granules(bytes);
    }

    // What the driver takes for a plain allocation above 1 MiB. Below it several may share a
    // granule: such a pool is far smaller than any trace.
    static std::size_t granules(std::size_t bytes) { return rmm::align_up(bytes, 2 << 20); }
};

Upstream upstream;

// --- pool ----------------------------------------------------------------------------------------

class Pool final : public rmm::mr::detail::stream_ordered_memory_resource<
                       Pool, rmm::mr::detail::coalescing_free_list> {
  public:
    using Base = rmm::mr::detail::stream_ordered_memory_resource<
        Pool, rmm::mr::detail::coalescing_free_list>;
    friend Base;

    Pool(std::size_t initial_bytes, std::optional<std::size_t> most_bytes)
        : most_bytes_{most_bytes} {
        const cuda::stream_ref legacy{cudaStreamLegacy};
        if (initial_bytes > 0)
            insert_block(grow(initial_bytes, initial_bytes), legacy);
    }

    ~Pool() {
        (void)cudaDeviceSynchronize();
        for (const auto &[addr, bytes] : taken_)
            upstream.give(addr, bytes);
    }

  protected:
    using Blocks = rmm::mr::detail::coalescing_free_list;
    using Block = Blocks::block_type;

    std::size_t get_maximum_allocation_size() const { return SIZE_MAX; }

    Block expand_pool(std::size_t bytes, Blocks &blocks, cuda::stream_ref) {
        std::size_t wanted = growth(bytes);
        if (wanted < bytes && most_bytes_.has_value()) {
            give_back(bytes, blocks);
            wanted = growth(bytes);
        }
        return grow(wanted, bytes);
    }

    split_block allocate_from_block(const Block &block, std::size_t bytes) {
        const Block taken{block.pointer(), bytes, block.is_head()};
        if (block.size() == bytes)
            return {taken, Block{}};
        return {taken, Block{block.pointer() + bytes, block.size() - bytes, false}};
    }

    Block free_block(void *addr, std::size_t bytes) noexcept {
        const bool is_head = taken_.find(static_cast<char *>(addr)) != taken_.end();
        return Block{static_cast<char *>(addr), bytes, is_head};
    }

    std::pair<std::size_t, std::size_t> free_list_summary(const Blocks &blocks) {
        std::pair<std::size_t, std::size_t> largest_and_total{0, 0};
        for (const auto &block : blocks) {
            largest_and_total.first = std::max(largest_and_total.first, block.size());
            largest_and_total.second += block.size();
        }
        return largest_and_total;
    }

  private:
    // Without a ceiling a pool doubles; with one it takes half of what is left. 0: does not fit.
    std::size_t growth(std::size_t bytes) const {
        if (!most_bytes_.has_value())
            return std::max(bytes, size_bytes_);
        const std::size_t left = rmm::align_up(*most_bytes_ - size_bytes_, kAlignment);
        return bytes <= left ? std::max(bytes, left / 2) : 0;
    }

    // Tries ever smaller sizes down to the request's.
    Block grow(std::size_t wanted, std::size_t least) {
        while (wanted >= least && wanted > 0) {
            try {
                auto *addr = static_cast<char *>(upstream.take(wanted));
                taken_.emplace(addr, wanted);
                size_bytes_ += wanted;
                return Block{addr, wanted, true};
            } catch (const rmm::out_of_memory &) {
                if (wanted == least)
                    throw;
                wanted = std::max(least, wanted / 2);
            }
        }
        throw rmm::out_of_memory("the pool may not grow by " + std::to_string(least) + " bytes");
    }

    // Gives whole free allocations back until there is room for `bytes` below the ceiling.
    void give_back(std::size_t bytes, Blocks &blocks) {
        if (bytes > *most_bytes_)
            return;
        for (auto at = blocks.cbegin(); at != blocks.cend() && *most_bytes_ - size_bytes_ < bytes;) {
            const auto candidate = at++;
            const auto whole = taken_.find(candidate->pointer());
            if (!candidate->is_head() || whole == taken_.end() ||
                whole->second != candidate->size())
                continue;
            upstream.give(whole->first, whole->second);
            size_bytes_ -= whole->second;
            taken_.erase(whole);
            blocks.erase(candidate);
        }
    }

    std::optional<std::size_t> most_bytes_;
    std::size_t size_bytes_ = 0;
    std::map<char *, std::size_t> taken_; // from the driver
};

struct PoolBlocks {};
auto member_of(PoolBlocks);

// --- arena ---------------------------------------------------------------------------------------

struct DeviceMemory {
    void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t) { return upstream.take(bytes); }
    void deallocate(cuda::stream_ref, void *addr, std::size_t bytes, std::size_t) noexcept {
        upstream.give(addr, bytes);
    }
    void *allocate_sync(std::size_t bytes, std::size_t) { return upstream.take(bytes); }
    void deallocate_sync(void *addr, std::size_t bytes, std::size_t) noexcept {
        upstream.give(addr, bytes);
    }
    bool operator==(const DeviceMemory &) const noexcept { return true; }
    bool operator!=(const DeviceMemory &) const noexcept { return false; }
    friend constexpr void get_property(const DeviceMemory &, cuda::mr::device_accessible) noexcept {}
};

class Arena final {
  public:
    using Part = rmm::mr::detail::arena::arena;

    explicit Arena(std::size_t bytes) : global_{DeviceMemory{}, bytes} {}

    void *allocate(cudaStream_t stream, std::size_t bytes) {
        Part &part = part_of(stream);
        if (void *addr = part.allocate_sync(bytes))
            return addr;
        // Nothing fits: all parts hand their superblocks back, when the device is done with them.
        RMM_CUDA_TRY(cudaDeviceSynchronize());
        for (auto &[key, other] : parts_)
            other.clean();
        if (void *addr = part.allocate_sync(bytes))
            return addr;
        throw rmm::out_of_memory("no room in the arena for " + std::to_string(bytes) + " bytes");
    }

    void deallocate(cudaStream_t stream, void *addr, std::size_t bytes) {
        if (part_of(stream).deallocate(cuda::stream_ref{stream}, addr, bytes))
            return;
        RMM_CUDA_TRY(cudaStreamSynchronize(stream));
        for (auto &[key, other] : parts_)
            if (other.deallocate_sync(addr, bytes))
                return;
        if (!global_.deallocate_sync(addr, bytes))
            throw std::invalid_argument("not an address of the arena");
    }

    std::size_t largest_free(cudaStream_t stream);

  private:
    Part &part_of(cudaStream_t stream) { return parts_.try_emplace(stream, global_).first->second; }

    rmm::mr::detail::arena::global_arena global_;
    std::map<cudaStream_t, Part> parts_;
};

} // namespace

