// SPDX-License-Identifier: Apache-2.0
// A stand-in for the libraries that TensorRT's Python bindings (11.4) import: six functions of
// libnvinfer and its plugins, three of the ONNX parser. No engine is made: that library does not
// run without a GPU. "Deserializing" asks the runtime's allocator for what an engine would ask for,
// in the ways that the interface has, checks the answers, and gives back what is no weight; the
// runtime's end gives back the weights.
//
// The bindings are compiled against TensorRT's own headers and call through tables of virtual
// functions, so this also shows that the order in our stand-in headers is right.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "NvInferRuntime.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x);                   \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The table behind nvinfer1::IRuntime, up to what is used here.
class Implementation {
  public:
    virtual ~Implementation() = default;
    virtual void *getPImpl() noexcept = 0;
    virtual void *deserializeCudaEngine(void const *blob, std::size_t size) noexcept = 0;
    virtual void setDLACore(std::int32_t core) noexcept = 0;
    virtual std::int32_t getDLACore() const noexcept = 0;
    virtual std::int32_t getNbDLACores() const noexcept = 0;
    virtual void setGpuAllocator(nvinfer1::IGpuAllocator *allocator) noexcept = 0;
    virtual void setErrorRecorder(void *recorder) noexcept = 0;
    virtual void *getErrorRecorder() const noexcept = 0;
    virtual void *getLogger() const noexcept = 0;
    virtual bool setMaxThreads(std::int32_t threads) noexcept = 0;
    virtual std::int32_t getMaxThreads() const noexcept = 0;
};

class Made final : public Implementation {
  public:
    ~Made() override {
        for (void *weights : weights_)
            CHECK(allocator_->deallocateAsync(weights, nullptr));
    }
    void *getPImpl() noexcept override { return nullptr; }
    void *deserializeCudaEngine(void const *, std::size_t size) noexcept override;
    void setDLACore(std::int32_t) noexcept override {}
    std::int32_t getDLACore() const noexcept override { return 0; }
    std::int32_t getNbDLACores() const noexcept override { return 0; }
    void setGpuAllocator(nvinfer1::IGpuAllocator *allocator) noexcept override {
        allocator_ = allocator;
    }
    void setErrorRecorder(void *) noexcept override {}
    void *getErrorRecorder() const noexcept override { return nullptr; }
    void *getLogger() const noexcept override { return nullptr; }
    bool setMaxThreads(std::int32_t) noexcept override { return true; }
    std::int32_t getMaxThreads() const noexcept override { return 1; }

  private:
    nvinfer1::IGpuAllocator *allocator_ = nullptr;
    std::vector<void *> weights_;
};

bool is_aligned(const void *block) {
    return block != nullptr && reinterpret_cast<std::uintptr_t>(block) % 512 == 0;
}

void *Made::deserializeCudaEngine(void const *, std::size_t size) noexcept {
    CHECK(allocator_ != nullptr);
    void *weights = allocator_->allocateAsync(size * kMiB, 256, 0, nullptr);
    CHECK(is_aligned(weights));
    weights_.push_back(weights);
    // Scratch, both ways.
    void *scratch = allocator_->allocate(5 * kMiB, 256, 0);
    CHECK(is_aligned(scratch) && scratch != weights && allocator_->deallocate(scratch));
    // A block of unknown size, as builders have them.
    void *unknown = allocator_->allocateAsync(kMiB, 256, 1, nullptr);
    CHECK(is_aligned(unknown));
    for (std::uint64_t i = 2; i <= 32; i++)
        CHECK(allocator_->reallocate(unknown, 256, i * kMiB) == unknown);
    CHECK(allocator_->reallocate(unknown, 256, std::uint64_t{1} << 40) == nullptr);
    CHECK(allocator_->deallocateAsync(unknown, nullptr));
    // What does not fit, what is empty, and what is nothing.
    CHECK(allocator_->allocateAsync(std::uint64_t{1} << 40, 256, 0, nullptr) == nullptr);
    CHECK(allocator_->allocate(0, 256, 0) == nullptr);
    CHECK(allocator_->reallocate(weights, 256, std::uint64_t{1} << 40) == nullptr);
    return nullptr;
}

// nvinfer1::IRuntime: a table with a destructor, then the implementation.
class Runtime {
  public:
    virtual ~Runtime() { delete implementation_; }
    Implementation *implementation_ = new Made;
};

} // namespace

extern "C" {

#define STANDIN_EXPORT __attribute__((visibility("default")))

STANDIN_EXPORT void *createInferRuntime_INTERNAL(void *, std::int32_t) {
    return new Runtime;
}
STANDIN_EXPORT void *createInferBuilder_INTERNAL(void *, std::int32_t) {
    return nullptr;
}
STANDIN_EXPORT void *createInferRefitter_INTERNAL(void *, void *, std::int32_t) {
    return nullptr;
}
STANDIN_EXPORT void *getBuilderPluginRegistry(std::int32_t) {
    return nullptr;
}
STANDIN_EXPORT void *getPluginRegistry() {
    return nullptr;
}
STANDIN_EXPORT bool initLibNvInferPlugins(void *, const char *) {
    return false;
}
STANDIN_EXPORT void *createNvOnnxParser_INTERNAL(void *, void *, std::int32_t) {
    return nullptr;
}
STANDIN_EXPORT void *createNvOnnxParserRefitter_INTERNAL(void *, void *, std::int32_t) {
    return nullptr;
}
STANDIN_EXPORT std::int32_t getNvOnnxParserVersion() {
    return 0;
}

} // extern "C"
