// SPDX-License-Identifier: Apache-2.0
// RMM's pool and arena behind real.h: compiled by setup_rmm.sh against the headers of the PyPI
// wheel (the CCCL inside it comes first).
//
// From RMM's headers, unchanged: the stream-ordered base with its events, waits and merging of
// streams, the best-fit coalescing free list, the arenas with their superblocks. RMM compiles the
// rest into librmm, which carries a static CUDA runtime and so cannot use a simulated driver; from
// that library come only errors, logging and arithmetic. What it would do with memory is written
// here to the same rules: how a pool grows and gives back (`Pool`), which arena serves a stream and
// what is tried when it is empty (`Arena`), and three questions about the device.
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

// --- instead of librmm's own, which ask its static runtime
// ----------------------------------------

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

RMM_NAMESPACE_END

namespace {

constexpr std::size_t kAlignment = rmm::CUDA_ALLOCATION_ALIGNMENT;

// Private members of RMM's classes, read for the largest free block only: explicit instantiation
// may name them.
template <typename Tag, auto Member> struct Opened {
    friend constexpr auto member_of(Tag) { return Member; }
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
        count(addr, bytes, true);
        peak_bytes = std::max(peak_bytes, reserved_bytes);
        return addr;
    }

    void give(void *addr, std::size_t bytes) noexcept {
        (void)cudaFree(addr);
        count(addr, bytes, false);
    }

  private:
    // What the driver takes: whole granules, which plain allocations up to 1 MiB may share.
    void count(void *addr, std::size_t bytes, bool is_taken) noexcept {
        constexpr std::size_t granule = 2 << 20;
        const std::size_t whole = rmm::align_up(bytes, granule);
        const std::size_t at = rmm::align_down(reinterpret_cast<std::uintptr_t>(addr), granule);
        if (bytes <= granule / 2 && is_taken && shared_[at]++ > 0)
            return;
        if (bytes <= granule / 2 && !is_taken && --shared_[at] > 0)
            return;
        reserved_bytes = is_taken ? reserved_bytes + whole : reserved_bytes - whole;
    }

    std::map<std::size_t, int> shared_; // how many share the granule there
};

Upstream upstream;

// --- pool ----------------------------------------------------------------------------------------

class Pool final : public rmm::mr::detail::stream_ordered_memory_resource<
                       Pool, rmm::mr::detail::coalescing_free_list> {
  public:
    using Base =
        rmm::mr::detail::stream_ordered_memory_resource<Pool,
                                                        rmm::mr::detail::coalescing_free_list>;
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
        for (auto at = blocks.cbegin();
             at != blocks.cend() && *most_bytes_ - size_bytes_ < bytes;) {
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

struct PoolBlocks {
    friend constexpr auto member_of(PoolBlocks);
};
template struct Opened<PoolBlocks, &Pool::Base::stream_free_blocks_>;

// A block of another stream costs a wait of the stream, and no memory call.
std::size_t largest_free(const Pool &pool) {
    std::size_t largest = 0;
    for (const auto &[stream, blocks] : pool.*member_of(PoolBlocks{}))
        for (const auto &block : blocks)
            largest = std::max(largest, block.size());
    return largest;
}

// --- arena ---------------------------------------------------------------------------------------

struct DeviceMemory {
    void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t) {
        return upstream.take(bytes);
    }
    void deallocate(cuda::stream_ref, void *addr, std::size_t bytes, std::size_t) noexcept {
        upstream.give(addr, bytes);
    }
    void *allocate_sync(std::size_t bytes, std::size_t) { return upstream.take(bytes); }
    void deallocate_sync(void *addr, std::size_t bytes, std::size_t) noexcept {
        upstream.give(addr, bytes);
    }
    bool operator==(const DeviceMemory &) const noexcept { return true; }
    bool operator!=(const DeviceMemory &) const noexcept { return false; }
    friend constexpr void get_property(const DeviceMemory &, cuda::mr::device_accessible) noexcept {
    }
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
    using Global = rmm::mr::detail::arena::global_arena;

    Part &part_of(cudaStream_t stream) { return parts_.try_emplace(stream, global_).first->second; }

    Global global_;
    std::map<cudaStream_t, Part> parts_;
};

struct PartBlocks {
    friend constexpr auto member_of(PartBlocks);
};
struct GlobalBlocks {
    friend constexpr auto member_of(GlobalBlocks);
};
template struct Opened<PartBlocks, &rmm::mr::detail::arena::arena::superblocks_>;
template struct Opened<GlobalBlocks, &rmm::mr::detail::arena::global_arena::superblocks_>;

// What the global arena handles by itself is anybody's; smaller requests go to the stream's part.
std::size_t Arena::largest_free(cudaStream_t stream) {
    using rmm::mr::detail::arena::max_free_size;
    const std::size_t shared = max_free_size(global_.*member_of(GlobalBlocks{}));
    if (Global::handles(shared))
        return shared;
    return std::max(shared, max_free_size(part_of(stream).*member_of(PartBlocks{})));
}

// --- the one of this process ---------------------------------------------------------------------

std::unique_ptr<Pool> pool;
std::unique_ptr<Arena> arena;
stress_real_figures_t figures;
std::uint64_t live_blocks;
thread_local std::string last_error;

template <typename Body> int guarded(Body body) {
    try {
        body();
        return STRESS_REAL_OK;
    } catch (const rmm::out_of_memory &error) {
        last_error = error.what();
        return STRESS_REAL_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        last_error = error.what();
        return STRESS_REAL_ERROR;
    }
}

// "initial:BYTES" for the pool, "size:BYTES" for the arena; "free" is all that is free.
std::optional<std::size_t> conf_bytes(const std::string &conf, const std::string &key) {
    if (conf.empty())
        return std::nullopt;
    if (conf.rfind(key + ":", 0) != 0)
        throw std::invalid_argument("option '" + conf + "' is not " + key + ":BYTES or " + key +
                                    ":free");
    const std::string value = conf.substr(key.size() + 1);
    if (value == "free")
        return rmm::align_down(rmm::available_device_memory().first, kAlignment);
    char *end = nullptr;
    const std::size_t bytes = std::strtoull(value.c_str(), &end, 10);
    if (value.empty() || value[0] < '0' || value[0] > '9' || *end != '\0')
        throw std::invalid_argument("'" + value + "' is no number of bytes");
    return rmm::align_down(bytes, kAlignment);
}

void arena_create(const stress_real_options_t &options) {
    const std::size_t free_bytes = rmm::available_device_memory().first;
    std::size_t bytes = conf_bytes(options.conf, "size").value_or(free_bytes);
    bytes = std::min<std::size_t>(bytes, options.limit_bytes);
    bytes = std::min(bytes, rmm::mr::detail::arena::superblock::maximum_size);
    arena = std::make_unique<Arena>(rmm::align_down(bytes, 2 << 20));
}

void pool_create(const stress_real_options_t &options) {
    std::optional<std::size_t> most;
    if (options.limit_bytes != UINT64_MAX)
        most = rmm::align_down(options.limit_bytes, kAlignment);
    pool = std::make_unique<Pool>(conf_bytes(options.conf, "initial").value_or(0), most);
}

} // namespace

int stress_real_version() {
    return STRESS_REAL_VERSION;
}

const char *stress_real_describe() {
    return "RMM " BERM_RMM_VERSION ", its headers";
}

const char *stress_real_error() {
    return last_error.c_str();
}

int stress_real_create(const stress_real_options_t *options, char *error,
                       std::size_t error_capacity) {
    const int result = guarded([&] {
        RMM_CUDA_TRY(cudaSetDevice(options->device));
        if (std::string(options->mode) == "arena")
            arena_create(*options);
        else
            pool_create(*options);
    });
    if (result != STRESS_REAL_OK)
        (void)std::snprintf(error, error_capacity, "%s", last_error.c_str());
    return result;
}

void stress_real_destroy(std::uint64_t *blocks) {
    *blocks = live_blocks;
    pool.reset();
    arena.reset();
}

int stress_real_alloc(std::uint64_t size_bytes, void *stream, std::uint64_t *addr) {
    *addr = 0;
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    const int result = guarded([&] {
        // The arena wants whole units, as RMM's own front gives it.
        const std::size_t bytes = rmm::align_up(size_bytes, kAlignment);
        void *taken = pool ? pool->allocate(cuda::stream_ref{cuda_stream}, bytes, kAlignment)
                           : arena->allocate(cuda_stream, bytes);
        *addr = reinterpret_cast<std::uintptr_t>(taken);
    });
    if (result != STRESS_REAL_OK)
        return result;
    live_blocks++;
    figures.requested_bytes += size_bytes;
    figures.allocated_bytes += rmm::align_up(size_bytes, kAlignment);
    figures.allocated_peak_bytes = std::max(figures.allocated_peak_bytes, figures.allocated_bytes);
    return result;
}

int stress_real_free(std::uint64_t addr, std::uint64_t size_bytes, void *stream) {
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    const int result = guarded([&] {
        void *block = reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
        const std::size_t bytes = rmm::align_up(size_bytes, kAlignment);
        if (pool)
            pool->deallocate(cuda::stream_ref{cuda_stream}, block, bytes, kAlignment);
        else
            arena->deallocate(cuda_stream, block, bytes);
    });
    if (result != STRESS_REAL_OK)
        return result;
    live_blocks--;
    figures.requested_bytes -= size_bytes;
    figures.allocated_bytes -= rmm::align_up(size_bytes, kAlignment);
    return result;
}

int stress_real_record_stream(std::uint64_t, void *) {
    last_error = "RMM has no record_stream";
    return STRESS_REAL_ERROR;
}

void stress_real_figures(stress_real_figures_t *out) {
    figures.active_bytes = figures.allocated_bytes;
    figures.reserved_bytes = upstream.reserved_bytes;
    figures.reserved_peak_bytes = upstream.peak_bytes;
    *out = figures;
}

void stress_real_peaks_reset() {
    upstream.peak_bytes = upstream.reserved_bytes;
    figures.allocated_peak_bytes = figures.allocated_bytes;
}

std::uint64_t stress_real_largest_free(void *stream) {
    return pool ? largest_free(*pool) : arena->largest_free(static_cast<cudaStream_t>(stream));
}

void stress_real_empty_cache() {}
