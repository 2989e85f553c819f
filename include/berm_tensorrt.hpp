// SPDX-License-Identifier: Apache-2.0
// berm as the allocator of TensorRT: header only, C++17, compiled in your program against your
// TensorRT's headers (8.6, 9, 10, 11, and TensorRT for RTX), linked with libberm and the CUDA
// runtime that those headers use.
//
//   berm::TensorRtAllocator allocator; // outlives the runtime, its engines and their contexts
//   runtime->setGpuAllocator(&allocator);
//
// Which methods TensorRT has is taken from its own macros: before 10 the class derives from
// nvinfer1::IGpuAllocator, from 10 on from IGpuAsyncAllocator. All methods may be called from any
// thread at once; none throws.
//
// docs/adapters/tensorrt.md says where it plugs in and what stays outside.
#ifndef BERM_TENSORRT_HPP
#define BERM_TENSORRT_HPP

#include <NvInferRuntime.h>
#include <NvInferVersion.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "berm.h"
#include "berm_introspect.h"

// TensorRT for RTX counts its versions from 1 and has the interface of 10.
#if defined(TRT_MAJOR_RTX) || NV_TENSORRT_MAJOR >= 10
#define BERM_TENSORRT_HAS_STREAMS 1
#else
#define BERM_TENSORRT_HAS_STREAMS 0
#endif

namespace berm {

// What TensorRtAllocator and TensorRtOutputAllocator are made with.
struct TensorRtOptions {
    // The ordinal, from 0; -1: the device that is current in the thread that asks.
    int device = -1;
    // Where blocks come from; {0, 0}: the process's default pool. Any other is made before, with
    // berm_pool_create, and released after.
    berm_pool_id_t pool = {0, 0};
    // The least alignment of every block in bytes, a power of two up to 2^32. TensorRT's texture
    // paths need 512.
    std::uint64_t alignment = 512;
    // Requests that fail are not reported: a builder that times tactics asks for more than there
    // is, and goes on when it gets nothing.
    bool quiet = false;
};

namespace tensorrt_detail {

// Requests of one adapter: what TensorRtAllocator and TensorRtOutputAllocator have in common.
class Requests {
  public:
    explicit Requests(const TensorRtOptions &options) noexcept : options_(options) {}
    Requests(const Requests &) = delete;
    Requests &operator=(const Requests &) = delete;

    // Blocks that live stay valid, and no longer grow.
    ~Requests() {
        for (std::size_t device = 0; device < made_.size(); device++)
            for (std::uint32_t uses = made_[device]; uses > 0; uses--)
                (void)berm_pool_release(static_cast<int>(device), resizable_id());
    }

    // Null where nothing is to be had, and for 0 bytes.
    void *alloc(std::uint64_t size_bytes, std::uint64_t alignment, bool is_resizable,
                berm_stream_t stream) noexcept {
        int device = options_.device;
        if (size_bytes == 0 || (device < 0 && cudaGetDevice(&device) != cudaSuccess))
            return nullptr;
        const Quiet quiet(options_.quiet);
        if (alignment < options_.alignment)
            alignment = options_.alignment;
        berm_addr_t addr = 0;
        if (!is_resizable || !alloc_resizable(size_bytes, alignment, device, stream, &addr))
            if (berm_alloc_from(options_.pool, size_bytes, alignment, device, stream, &addr) !=
                BERM_OK)
                return nullptr;
        return pointer(addr);
    }

    // The same block with more memory behind it, or null where it cannot grow: it stays as it is.
    void *grow(void *block, std::uint64_t size_bytes) noexcept {
        const Quiet quiet(options_.quiet);
        return berm_block_grow(address(block), size_bytes) == BERM_OK ? block : nullptr;
    }

    static bool free(void *block, berm_stream_t stream) noexcept {
        return berm_free(address(block), BERM_DEVICE_ANY, stream) == BERM_OK;
    }

    // What was asked for; 0: no live block begins there.
    static std::uint64_t size_bytes(const void *block) noexcept {
        berm_whatis_t what = BERM_WHATIS_INIT;
        const bool is_live = berm_whatis(address(block), &what) == BERM_OK &&
                             what.kind == BERM_ADDRESS_LIVE && what.block == address(block);
        return is_live ? what.requested_bytes : 0;
    }

    static berm_addr_t address(const void *block) noexcept {
        return reinterpret_cast<std::uintptr_t>(block);
    }

    static void *pointer(berm_addr_t addr) noexcept {
        return reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
    }

  private:
    // No reports of this thread's requests while it lives.
    class Quiet {
      public:
        explicit Quiet(bool is_quiet) noexcept
            : is_quiet_(is_quiet), was_enabled_(!is_quiet || berm_report_enable(false)) {}
        Quiet(const Quiet &) = delete;
        Quiet &operator=(const Quiet &) = delete;
        ~Quiet() {
            if (is_quiet_)
                (void)berm_report_enable(was_enabled_);
        }

      private:
        bool is_quiet_, was_enabled_;
    };

    // The pool of blocks that can grow: this object's own, made on each device by its first
    // request there, and again if berm was started anew.
    berm_pool_id_t resizable_id() const noexcept {
        return {UINT64_C(0x5452542d67726f77), reinterpret_cast<std::uintptr_t>(this)};
    }

    // False: the device's memory is plain, and no block of it grows.
    bool alloc_resizable(std::uint64_t size_bytes, std::uint64_t alignment, int device,
                         berm_stream_t stream, berm_addr_t *addr) noexcept {
        const berm_pool_id_t id = resizable_id();
        for (int attempt = 0; attempt < 2; attempt++) {
            berm_status_t status = berm_alloc_from(id, size_bytes, alignment, device, stream, addr);
            if (status != BERM_ERROR_POOL_UNKNOWN)
                return true;
            berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
            options.traits = BERM_POOL_RESIZABLE;
            if (berm_pool_create(device, id, &options) != BERM_OK)
                return false;
            made_[static_cast<std::size_t>(device)]++;
        }
        return false;
    }

    const TensorRtOptions options_;
    std::array<std::atomic<std::uint32_t>, 64> made_{}; // uses of the pool, by device
};

} // namespace tensorrt_detail

// Serves weights, contexts, scratch and tactics: nvinfer1::IRuntime::setGpuAllocator,
// IBuilder::setGpuAllocator, IExecutionContext::setTemporaryStorageAllocator.
//
// A block that is asked for with AllocatorFlag::kRESIZABLE has addresses behind it as many as the
// device has memory: reallocate maps pages there, and the block grows where it is.
#if BERM_TENSORRT_HAS_STREAMS
class TensorRtAllocator : public nvinfer1::IGpuAsyncAllocator {
#else
class TensorRtAllocator : public nvinfer1::IGpuAllocator {
#endif
  public:
    TensorRtAllocator() noexcept : TensorRtAllocator(TensorRtOptions{}) {}
    explicit TensorRtAllocator(const TensorRtOptions &options) noexcept : requests_(options) {}
    ~TensorRtAllocator() override = default;
    TensorRtAllocator(const TensorRtAllocator &) = delete;
    TensorRtAllocator &operator=(const TensorRtAllocator &) = delete;

    // Without a stream: the memory has no pending work, and serves any stream. `alignment` in
    // bytes, 0 or a power of two. Null for 0 bytes and where there is no memory.
    void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                   nvinfer1::AllocatorFlags const flags) noexcept override {
        return requests_.alloc(size, alignment, is_resizable(flags), BERM_STREAM_NONE);
    }

    // Grows a block of this allocator in place and returns it; a size that is not larger changes
    // nothing. Null: it cannot grow, and stays valid as it is. A null block is a new one that can.
    void *reallocate(void *const block, std::uint64_t alignment,
                     std::uint64_t size) noexcept override {
        if (block == nullptr)
            return requests_.alloc(size, alignment, true, BERM_STREAM_NONE);
        if (size == 0 || !is_aligned(block, alignment))
            return nullptr;
        if (size <= tensorrt_detail::Requests::size_bytes(block))
            return block;
        return requests_.grow(block, size);
    }

    // False where it is no live block of berm's; null is allowed. The memory is reused when all
    // work that is queued on the device by now is done.
    bool deallocate(void *const block) noexcept override {
        return tensorrt_detail::Requests::free(block, BERM_STREAM_NONE);
    }

#if BERM_TENSORRT_HAS_STREAMS
    // In the stream's order. The null stream counts as none, since TensorRT's own methods without a
    // stream pass it on.
    void *allocateAsync(std::uint64_t const size, std::uint64_t const alignment,
                        nvinfer1::AllocatorFlags const flags,
                        cudaStream_t stream) noexcept override {
        return requests_.alloc(size, alignment, is_resizable(flags), stream_of(stream));
    }

    // The memory is reused when the stream has come as far as it is queued by now.
    bool deallocateAsync(void *const block, cudaStream_t stream) noexcept override {
        return tensorrt_detail::Requests::free(block, stream_of(stream));
    }
#else
    // Of the interface before 8: deallocate.
    void free(void *const block) noexcept override {
        (void)tensorrt_detail::Requests::free(block, BERM_STREAM_NONE);
    }
#endif

  private:
    static bool is_resizable(nvinfer1::AllocatorFlags flags) noexcept {
        const auto bit = static_cast<std::uint32_t>(nvinfer1::AllocatorFlag::kRESIZABLE);
        return (flags & (std::uint32_t{1} << bit)) != 0;
    }

    static bool is_aligned(const void *block, std::uint64_t alignment) noexcept {
        return alignment == 0 || tensorrt_detail::Requests::address(block) % alignment == 0;
    }

#if BERM_TENSORRT_HAS_STREAMS
    static berm_stream_t stream_of(cudaStream_t stream) noexcept {
        return stream == nullptr ? BERM_STREAM_NONE : static_cast<berm_stream_t>(stream);
    }
#endif

    tensorrt_detail::Requests requests_;
};

// Keeps a buffer for each output whose size depends on the data, by its tensor's name:
// IExecutionContext::setOutputAllocator(name, &outputs), one object for any number of outputs of
// one context. A buffer grows where it is, and stays from one inference to the next.
class TensorRtOutputAllocator : public nvinfer1::IOutputAllocator {
  public:
    TensorRtOutputAllocator() noexcept : TensorRtOutputAllocator(TensorRtOptions{}) {}
    explicit TensorRtOutputAllocator(const TensorRtOptions &options) noexcept
        : requests_(options) {}
    TensorRtOutputAllocator(const TensorRtOutputAllocator &) = delete;
    TensorRtOutputAllocator &operator=(const TensorRtOutputAllocator &) = delete;

    // Buffers are reused when all work that is queued on the device by then is done.
    ~TensorRtOutputAllocator() override {
        for (const auto &[name, output] : outputs_)
            (void)tensorrt_detail::Requests::free(output.data, BERM_STREAM_NONE);
    }

    // The buffer of a tensor, null before its first inference; valid until the next one, or until
    // release.
    void *data(const char *name) const noexcept { return find(name).data; }

    // What TensorRT last asked for, in bytes: the data, rounded up as it likes.
    std::uint64_t size_bytes(const char *name) const noexcept { return find(name).size_bytes; }

    // The shape that the last inference found; nbDims is -1 where there was none.
    nvinfer1::Dims shape(const char *name) const noexcept { return find(name).shape; }

    // Hands the buffer over to the caller, who frees it with berm_free; the next inference gets a
    // new one. Null: there is none.
    void *release(const char *name) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = outputs_.find(name);
        if (at == outputs_.end())
            return nullptr;
        void *data = at->second.data;
        outputs_.erase(at);
        return data;
    }

    // `current` is what the context was given, which may be the caller's own: it is left alone.
    void *reallocateOutput(char const *name, void *, std::uint64_t size,
                           std::uint64_t alignment) noexcept override {
        return output_resize(name, size, alignment, BERM_STREAM_NONE);
    }

#if BERM_TENSORRT_HAS_STREAMS
    void *reallocateOutputAsync(char const *name, void *, std::uint64_t size,
                                std::uint64_t alignment, cudaStream_t stream) noexcept override {
        return output_resize(name, size, alignment,
                             stream == nullptr ? BERM_STREAM_NONE
                                               : static_cast<berm_stream_t>(stream));
    }
#endif

    void notifyShape(char const *name, nvinfer1::Dims const &shape) noexcept override {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = outputs_.find(name); // TensorRT has asked for its memory before
        if (at != outputs_.end())
            at->second.shape = shape;
    }

  private:
    struct Output {
        void *data = nullptr;
        std::uint64_t size_bytes = 0;
        nvinfer1::Dims shape = none();

        static nvinfer1::Dims none() noexcept {
            nvinfer1::Dims dims{};
            dims.nbDims = -1;
            return dims;
        }
    };

    Output find(const char *name) const noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = outputs_.find(name);
        return at != outputs_.end() ? at->second : Output{};
    }

    // A buffer that cannot grow is replaced: what was in it need not stay.
    void *output_resize(const char *name, std::uint64_t size, std::uint64_t alignment,
                        berm_stream_t stream) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        Output *output = nullptr;
        try {
            output = &outputs_[name];
        } catch (...) { // no host memory
            return nullptr;
        }
        const bool is_aligned =
            alignment == 0 || tensorrt_detail::Requests::address(output->data) % alignment == 0;
        const bool fits = output->data != nullptr && is_aligned &&
                          (size <= tensorrt_detail::Requests::size_bytes(output->data) ||
                           requests_.grow(output->data, size) != nullptr);
        if (!fits) {
            void *made = requests_.alloc(size, alignment, true, stream);
            if (made == nullptr)
                return nullptr;
            (void)tensorrt_detail::Requests::free(output->data, BERM_STREAM_NONE);
            output->data = made;
        }
        output->size_bytes = size;
        return output->data;
    }

    tensorrt_detail::Requests requests_;
    mutable std::mutex mutex_;
    std::map<std::string, Output, std::less<>> outputs_; // under the mutex
};

} // namespace berm

#endif
