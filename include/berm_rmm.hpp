// SPDX-License-Identifier: Apache-2.0
// berm as a memory resource of RMM: header only, compiled in your program against your RMM's
// headers, linked with libberm and librmm.
//
//   rmm::mr::set_current_device_resource(berm::RmmResource{});            // RMM 26.06 and later
//   auto resource = rmm::mr::callback_memory_resource{                    // any RMM that has it
//       berm::RmmAllocate{}, berm::RmmDeallocate{}};
//
// Blocks follow the order of their streams, as RMM's own do: memory that was given back on a stream
// serves that stream at once, and others when it has come so far. All may be used from any thread
// at once. docs/adapters/rmm.md says more.
#ifndef BERM_RMM_HPP
#define BERM_RMM_HPP

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/error.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "berm.h"

#if defined(__cpp_concepts) && __has_include(<cuda/memory_resource>) && __has_include(<cuda/stream>)
#include <cuda/memory_resource>
#include <cuda/stream>
#define BERM_RMM_HAS_CONCEPT 1
#else
#define BERM_RMM_HAS_CONCEPT 0
#endif

namespace berm {

// What a resource is made with.
struct RmmOptions {
    // The ordinal, from 0; -1: the device that is current when the resource is made.
    int device = -1;
    // Where blocks come from; {0, 0}: the process's default pool. Any other is made before, with
    // berm_pool_create, and released after.
    berm_pool_id_t pool = {0, 0};
};

namespace rmm_detail {

inline RmmOptions options_made(RmmOptions options) {
    if (options.device < 0)
        options.device = static_cast<int>(rmm::get_current_cuda_device().value());
    return options;
}

// Null for 0 bytes, as RMM's resources do. Throws rmm::out_of_memory where there is no memory, and
// rmm::bad_alloc for other causes, with berm's line.
inline void *allocate(const RmmOptions &options, std::size_t size_bytes, std::size_t alignment,
                      berm_stream_t stream) {
    berm_addr_t addr = 0;
    if (size_bytes == 0)
        return nullptr;
    const bool is_usual = options.pool.high == 0 && options.pool.low == 0 && alignment <= 512;
    const berm_status_t status =
        is_usual
            ? berm_alloc(size_bytes, options.device, stream, &addr) // the quickest
            : berm_alloc_from(options.pool, size_bytes, alignment, options.device, stream, &addr);
    if (status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
        status == BERM_ERROR_QUOTA || status == BERM_ERROR_SIZE_TOO_LARGE)
        throw rmm::out_of_memory(std::string("berm: ") + berm_error_message());
    if (status != BERM_OK)
        throw rmm::bad_alloc(std::string("berm: ") + berm_error_message());
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
}

// A block that is not berm's is the caller's fault: it stays where it is. After berm_shutdown, and
// in a child of fork, there is nothing to give back: containers may be destroyed then.
inline void deallocate(const RmmOptions &options, void *block, berm_stream_t stream) noexcept {
    const berm_status_t status =
        berm_free(reinterpret_cast<std::uintptr_t>(block), options.device, stream);
    const bool is_over =
        status == BERM_OK || status == BERM_ERROR_SHUTDOWN || status == BERM_ERROR_FORKED;
    assert(is_over && "not a live block of berm's on this device");
    (void)is_over;
}

inline bool is_same(const RmmOptions &one, const RmmOptions &other) noexcept {
    return one.device == other.device && one.pool.high == other.pool.high &&
           one.pool.low == other.pool.low;
}

// The handle in a stream as RMM passes it: cuda::stream_ref, or rmm::cuda_stream_view before 26.06.
template <typename Stream>
auto handle_of(const Stream &stream, int) -> decltype(static_cast<berm_stream_t>(stream.get())) {
    return static_cast<berm_stream_t>(stream.get());
}
template <typename Stream>
auto handle_of(const Stream &stream, long) -> decltype(static_cast<berm_stream_t>(stream.value())) {
    return static_cast<berm_stream_t>(stream.value());
}

} // namespace rmm_detail

#if BERM_RMM_HAS_CONCEPT

// A resource by CCCL's concept, cuda::mr::resource with the property device_accessible: for
// rmm::mr::set_current_device_resource, cuda::mr::any_resource, and whatever takes one. It holds no
// memory itself: copies, and any two of the same device and pool, are equal, and a block of one may
// be given back to another.
class RmmResource {
  public:
    RmmResource() : RmmResource(RmmOptions{}) {}
    explicit RmmResource(const RmmOptions &options) : options_(rmm_detail::options_made(options)) {}

    // `alignment` in bytes, a power of two; blocks are aligned to 512 at least.
    void *allocate(cuda::stream_ref stream, std::size_t size_bytes,
                   std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) {
        return rmm_detail::allocate(options_, size_bytes, alignment,
                                    static_cast<berm_stream_t>(stream.get()));
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t,
                    std::size_t = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept {
        rmm_detail::deallocate(options_, block, static_cast<berm_stream_t>(stream.get()));
    }

    // Without a stream: the memory has no pending work. What is given back so is reused when all
    // work that is queued on the device by then is done.
    void *allocate_sync(std::size_t size_bytes,
                        std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) {
        return rmm_detail::allocate(options_, size_bytes, alignment, BERM_STREAM_NONE);
    }

    void deallocate_sync(void *block, std::size_t,
                         std::size_t = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept {
        rmm_detail::deallocate(options_, block, BERM_STREAM_NONE);
    }

    const RmmOptions &options() const noexcept { return options_; }

    friend bool operator==(const RmmResource &one, const RmmResource &other) noexcept {
        return rmm_detail::is_same(one.options_, other.options_);
    }
    friend bool operator!=(const RmmResource &one, const RmmResource &other) noexcept {
        return !(one == other);
    }

    friend constexpr void get_property(const RmmResource &, cuda::mr::device_accessible) noexcept {}

  private:
    RmmOptions options_;
};

static_assert(cuda::mr::resource_with<RmmResource, cuda::mr::device_accessible>,
              "berm::RmmResource is what RMM takes");

#endif

// The two callbacks of rmm::mr::callback_memory_resource; both are made with the same options. The
// context pointers are not used.
class RmmAllocate {
  public:
    RmmAllocate() : RmmAllocate(RmmOptions{}) {}
    explicit RmmAllocate(const RmmOptions &options) : options_(rmm_detail::options_made(options)) {}

    template <typename Stream>
    void *operator()(std::size_t size_bytes, Stream stream, void * = nullptr) const {
        return rmm_detail::allocate(options_, size_bytes, rmm::CUDA_ALLOCATION_ALIGNMENT,
                                    rmm_detail::handle_of(stream, 0));
    }

  private:
    RmmOptions options_;
};

class RmmDeallocate {
  public:
    RmmDeallocate() : RmmDeallocate(RmmOptions{}) {}
    explicit RmmDeallocate(const RmmOptions &options)
        : options_(rmm_detail::options_made(options)) {}

    template <typename Stream>
    void operator()(void *block, std::size_t, Stream stream, void * = nullptr) const noexcept {
        rmm_detail::deallocate(options_, block, rmm_detail::handle_of(stream, 0));
    }

  private:
    RmmOptions options_;
};

} // namespace berm

#endif
