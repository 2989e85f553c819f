// SPDX-License-Identifier: Apache-2.0
// A stand-in for TensorRT's header, written by ourselves: of each generation, chosen by the macro
// STANDIN_TENSORRT, the classes that berm's adapter derives from, with the methods of the public
// interface, in the order in which its tables of virtual functions have them.
#ifndef STANDIN_NV_INFER_RUNTIME_H
#define STANDIN_NV_INFER_RUNTIME_H

#include "NvInferVersion.h"
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#if STANDIN_TENSORRT >= 10 || STANDIN_TENSORRT == 1
#define STANDIN_HAS_STREAMS 1
#else
#define STANDIN_HAS_STREAMS 0
#endif
#define STANDIN_OLD [[deprecated]]

namespace nvinfer1 {

using AllocatorFlags = std::uint32_t;

enum class AllocatorFlag : std::int32_t {
    kRESIZABLE = 0,
};

class Dims64 {
  public:
    static constexpr std::int32_t MAX_DIMS{8};
    std::int32_t nbDims;
#if STANDIN_HAS_STREAMS
    std::int64_t d[MAX_DIMS];
#else
    std::int32_t d[MAX_DIMS];
#endif
};
using Dims = Dims64;

#if STANDIN_HAS_STREAMS

enum class APILanguage : std::int32_t {
    kCPP = 0,
    kPYTHON = 1,
};

struct InterfaceInfo {
    char const *kind;
    std::int32_t major, minor;
};

class IVersionedInterface {
  public:
    virtual APILanguage getAPILanguage() const noexcept { return APILanguage::kCPP; }
    virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
    virtual ~IVersionedInterface() noexcept = default;

  protected:
    IVersionedInterface() = default;
    IVersionedInterface(IVersionedInterface const &) = default;
    IVersionedInterface &operator=(IVersionedInterface const &) & = default;
};

namespace v_1_0 {

class IGpuAllocator : public IVersionedInterface {
  public:
    ~IGpuAllocator() override = default;
    InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }
    STANDIN_OLD virtual void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                                       AllocatorFlags const flags) noexcept = 0;
    virtual void *reallocate(void *const, std::uint64_t, std::uint64_t) noexcept { return nullptr; }
    STANDIN_OLD virtual bool deallocate(void *const memory) noexcept = 0;
    virtual void *allocateAsync(std::uint64_t const size, std::uint64_t const alignment,
                                AllocatorFlags const flags, cudaStream_t) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        return allocate(size, alignment, flags);
    }
    virtual bool deallocateAsync(void *const memory, cudaStream_t) noexcept {
        return deallocate(memory);
#pragma GCC diagnostic pop
    }

  protected:
    IGpuAllocator() = default;
};

class IOutputAllocator : public IVersionedInterface {
  public:
    InterfaceInfo getInterfaceInfo() const noexcept override { return {"IOutputAllocator", 1, 0}; }
    STANDIN_OLD virtual void *reallocateOutput(char const *, void *, std::uint64_t,
                                               std::uint64_t) noexcept {
        return nullptr;
    }
    virtual void *reallocateOutputAsync(char const *name, void *current, std::uint64_t size,
                                        std::uint64_t alignment, cudaStream_t) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        return reallocateOutput(name, current, size, alignment);
#pragma GCC diagnostic pop
    }
    virtual void notifyShape(char const *name, Dims const &dims) noexcept = 0;
};

} // namespace v_1_0

using IGpuAllocator = v_1_0::IGpuAllocator;
using IOutputAllocator = v_1_0::IOutputAllocator;

namespace v_1_0 {

class IGpuAsyncAllocator : public IGpuAllocator {
  public:
    IGpuAsyncAllocator() = default;
    ~IGpuAsyncAllocator() override = default;
    void *allocateAsync(std::uint64_t const size, std::uint64_t const alignment,
                        AllocatorFlags const flags, cudaStream_t stream) noexcept override = 0;
    bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept override = 0;
    STANDIN_OLD void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                               AllocatorFlags const flags) noexcept override {
        return allocateAsync(size, alignment, flags, nullptr);
    }
    STANDIN_OLD bool deallocate(void *const memory) noexcept override {
        return deallocateAsync(memory, nullptr);
    }
    InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }
};

} // namespace v_1_0

using IGpuAsyncAllocator = v_1_0::IGpuAsyncAllocator;

#else

class IGpuAllocator {
  public:
    virtual void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                           AllocatorFlags const flags) noexcept = 0;
    STANDIN_OLD virtual void free(void *const memory) noexcept = 0;
    virtual ~IGpuAllocator() = default;
    IGpuAllocator() = default;
    virtual void *reallocate(void *, std::uint64_t, std::uint64_t) noexcept { return nullptr; }
    virtual bool deallocate(void *const memory) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        this->free(memory);
#pragma GCC diagnostic pop
        return true;
    }
};

class IOutputAllocator {
  public:
    virtual std::int32_t getInterfaceVersion() const noexcept { return 1; }
    virtual void *reallocateOutput(char const *name, void *current, std::uint64_t size,
                                   std::uint64_t alignment) noexcept = 0;
    virtual void notifyShape(char const *name, Dims const &dims) noexcept = 0;
    virtual ~IOutputAllocator() = default;
};

#endif

// --- what a program that runs an engine calls, for the example: implemented in engine.cpp --------

class ILogger {
  public:
    enum class Severity : std::int32_t {
        kINTERNAL_ERROR = 0,
        kERROR = 1,
        kWARNING = 2,
        kINFO = 3,
        kVERBOSE = 4,
    };
    virtual void log(Severity severity, char const *text) noexcept = 0;
    virtual ~ILogger() = default;
};

enum class TensorIOMode : std::int32_t {
    kNONE = 0,
    kINPUT = 1,
    kOUTPUT = 2,
};

class IExecutionContext {
  public:
    virtual ~IExecutionContext() noexcept = default;
    virtual bool setInputShape(char const *name, Dims const &dims) noexcept = 0;
    virtual bool setTensorAddress(char const *name, void *data) noexcept = 0;
    virtual bool setOutputAllocator(char const *name, IOutputAllocator *allocator) noexcept = 0;
    virtual bool setTemporaryStorageAllocator(IGpuAllocator *allocator) noexcept = 0;
    virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
};

class ICudaEngine {
  public:
    virtual ~ICudaEngine() noexcept = default;
    virtual std::int32_t getNbIOTensors() const noexcept = 0;
    virtual char const *getIOTensorName(std::int32_t index) const noexcept = 0;
    virtual TensorIOMode getTensorIOMode(char const *name) const noexcept = 0;
    virtual Dims getTensorShape(char const *name) const noexcept = 0;
    virtual std::int32_t getTensorBytesPerComponent(char const *name) const noexcept = 0;
    virtual IExecutionContext *createExecutionContext() noexcept = 0;
};

class IRuntime {
  public:
    virtual ~IRuntime() noexcept = default;
    virtual void setGpuAllocator(IGpuAllocator *allocator) noexcept = 0;
    virtual ICudaEngine *deserializeCudaEngine(void const *blob, std::size_t size) noexcept = 0;
};

IRuntime *createInferRuntime(ILogger &logger) noexcept;

} // namespace nvinfer1

#endif
