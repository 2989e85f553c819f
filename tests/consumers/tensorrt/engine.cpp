// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvinfer that a program can be linked with: an "engine" is a text of three
// numbers, MiB of weights, MiB of scratch and bytes of output. It asks for memory as TensorRT does,
// when it does, and computes nothing.
#include <cstdio>
#include <cstring>
#include <string>

#include "NvInferRuntime.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace nvinfer1 {
namespace {

struct Sizes {
    unsigned long long weights_mib, scratch_mib, output_bytes;
};

void *take(IGpuAllocator &from, std::uint64_t size, AllocatorFlags flags, cudaStream_t stream) {
#if STANDIN_HAS_STREAMS
    return from.allocateAsync(size, 256, flags, stream);
#else
    (void)stream;
    return from.allocate(size, 256, flags);
#endif
}

bool give(IGpuAllocator &to, void *block, cudaStream_t stream) {
#if STANDIN_HAS_STREAMS
    return to.deallocateAsync(block, stream);
#else
    (void)stream;
    return to.deallocate(block);
#endif
}

class Context final : public IExecutionContext {
  public:
    Context(IGpuAllocator &allocator, const Sizes &sizes)
        : allocator_(&allocator), temporary_(&allocator), sizes_(sizes),
          activations_(take(allocator, sizes.scratch_mib << 20, 0, nullptr)) {}
    ~Context() override { (void)give(*allocator_, activations_, nullptr); }
    bool setInputShape(char const *, Dims const &dims) noexcept override {
        return dims.nbDims == 2;
    }
    bool setTensorAddress(char const *name, void *data) noexcept override {
        input_ = data;
        return std::strcmp(name, "input") == 0 && data != nullptr;
    }
    bool setOutputAllocator(char const *, IOutputAllocator *allocator) noexcept override {
        output_ = allocator;
        return true;
    }
    bool setTemporaryStorageAllocator(IGpuAllocator *allocator) noexcept override {
        temporary_ = allocator;
        return true;
    }
    bool enqueueV3(cudaStream_t stream) noexcept override {
        void *scratch = take(*temporary_, 1 << 20, 1, stream);
        bool is_done = input_ != nullptr && output_ != nullptr && activations_ != nullptr &&
                       scratch != nullptr &&
                       temporary_->reallocate(scratch, 256, sizes_.scratch_mib << 20) == scratch &&
                       give(*temporary_, scratch, stream);
#if STANDIN_HAS_STREAMS
        void *output =
            output_->reallocateOutputAsync("output", nullptr, sizes_.output_bytes, 256, stream);
#else
        void *output = output_->reallocateOutput("output", nullptr, sizes_.output_bytes, 256);
#endif
        Dims dims{};
        dims.nbDims = 1;
        dims.d[0] = static_cast<decltype(dims.d[0] + 0)>(sizes_.output_bytes / 4);
        output_->notifyShape("output", dims);
        return is_done && output != nullptr;
    }

  private:
    IGpuAllocator *allocator_, *temporary_;
    Sizes sizes_;
    void *activations_, *input_ = nullptr;
    IOutputAllocator *output_ = nullptr;
};

class Engine final : public ICudaEngine {
  public:
    Engine(IGpuAllocator &allocator, const Sizes &sizes)
        : allocator_(&allocator), sizes_(sizes),
          weights_(take(allocator, sizes.weights_mib << 20, 0, nullptr)) {}
    ~Engine() override { (void)give(*allocator_, weights_, nullptr); }
    std::int32_t getNbIOTensors() const noexcept override { return 2; }
    char const *getIOTensorName(std::int32_t index) const noexcept override {
        return index == 0 ? "input" : "output";
    }
    TensorIOMode getTensorIOMode(char const *name) const noexcept override {
        return std::strcmp(name, "input") == 0 ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
    }
    Dims getTensorShape(char const *) const noexcept override {
        Dims dims{};
        dims.nbDims = 2;
        dims.d[0] = -1;
        dims.d[1] = 1000;
        return dims;
    }
    std::int32_t getTensorBytesPerComponent(char const *) const noexcept override { return 4; }
    IExecutionContext *createExecutionContext() noexcept override {
        return new Context(*allocator_, sizes_);
    }
    bool is_loaded() const { return weights_ != nullptr; }

  private:
    IGpuAllocator *allocator_;
    Sizes sizes_;
    void *weights_;
};

class Runtime final : public IRuntime {
  public:
    void setGpuAllocator(IGpuAllocator *allocator) noexcept override { allocator_ = allocator; }
    ICudaEngine *deserializeCudaEngine(void const *blob, std::size_t size) noexcept override {
        Sizes sizes{};
        const std::string text(static_cast<const char *>(blob), size);
        if (allocator_ == nullptr || std::sscanf(text.c_str(), "%llu %llu %llu", &sizes.weights_mib,
                                                 &sizes.scratch_mib, &sizes.output_bytes) != 3)
            return nullptr;
        auto *engine = new Engine(*allocator_, sizes);
        if (engine->is_loaded())
            return engine;
        delete engine;
        return nullptr;
    }

  private:
    IGpuAllocator *allocator_ = nullptr;
};

} // namespace

IRuntime *createInferRuntime(ILogger &) noexcept {
    return new Runtime;
}

} // namespace nvinfer1
