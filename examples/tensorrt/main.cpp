// SPDX-License-Identifier: Apache-2.0
// A whole program: runs a serialized TensorRT engine once, with all memory from berm, and says what
// that took. TensorRT 8.6 and later; built by the CMakeLists.txt beside it.
//
// usage: berm_tensorrt_example ENGINE
#include "berm_tensorrt.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace {

class Logger : public nvinfer1::ILogger {
    void log(Severity severity, char const *text) noexcept override {
        if (severity <= Severity::kWARNING)
            std::fprintf(stderr, "TensorRT: %s\n", text);
    }
};

[[noreturn]] void fail(const std::string &what) {
    std::fprintf(stderr, "berm_tensorrt_example: %s\n", what.c_str());
    std::exit(1);
}

std::vector<char> file_read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        fail(std::string("cannot read ") + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Of an input, with 1 for each dimension that the engine leaves open.
nvinfer1::Dims shape_of(const nvinfer1::ICudaEngine &engine, const char *name) {
    nvinfer1::Dims shape = engine.getTensorShape(name);
    for (int i = 0; i < shape.nbDims; i++)
        if (shape.d[i] < 0)
            shape.d[i] = 1;
    return shape;
}

std::uint64_t bytes_of(const nvinfer1::ICudaEngine &engine, const char *name,
                       const nvinfer1::Dims &shape) {
    auto bytes = static_cast<std::uint64_t>(engine.getTensorBytesPerComponent(name));
    for (int i = 0; i < shape.nbDims; i++)
        bytes *= static_cast<std::uint64_t>(shape.d[i]);
    return bytes;
}

// Inputs get memory of berm's own; outputs get theirs when their size is known.
std::vector<berm_addr_t> tensors_set(const nvinfer1::ICudaEngine &engine,
                                     nvinfer1::IExecutionContext &context,
                                     nvinfer1::IOutputAllocator &outputs, cudaStream_t stream) {
    std::vector<berm_addr_t> inputs;
    for (int i = 0; i < engine.getNbIOTensors(); i++) {
        const char *name = engine.getIOTensorName(i);
        if (engine.getTensorIOMode(name) == nvinfer1::TensorIOMode::kOUTPUT) {
            if (!context.setOutputAllocator(name, &outputs))
                fail(std::string("no output allocator for ") + name);
            continue;
        }
        const nvinfer1::Dims shape = shape_of(engine, name);
        berm_addr_t addr = 0;
        if (berm_alloc(bytes_of(engine, name, shape), 0, stream, &addr) != BERM_OK)
            fail(berm_error_message());
        inputs.push_back(addr);
        void *data = reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr));
        if (!context.setInputShape(name, shape) || !context.setTensorAddress(name, data))
            fail(std::string("input ") + name + " is not taken");
    }
    return inputs;
}

void outputs_print(const nvinfer1::ICudaEngine &engine,
                   const berm::TensorRtOutputAllocator &outputs) {
    for (int i = 0; i < engine.getNbIOTensors(); i++) {
        const char *name = engine.getIOTensorName(i);
        if (engine.getTensorIOMode(name) != nvinfer1::TensorIOMode::kOUTPUT)
            continue;
        const nvinfer1::Dims shape = outputs.shape(name);
        std::printf("output %s:", name);
        for (int j = 0; j < shape.nbDims; j++)
            std::printf(" %lld", static_cast<long long>(shape.d[j]));
        std::printf(", %llu bytes\n", static_cast<unsigned long long>(outputs.size_bytes(name)));
    }
}

void run(const std::vector<char> &serialized, nvinfer1::ILogger &logger) {
    // In this order, so that the allocators go last: engines and contexts use them to their end.
    berm::TensorRtAllocator allocator;
    berm::TensorRtOutputAllocator outputs;
    std::unique_ptr<nvinfer1::IRuntime> runtime{nvinfer1::createInferRuntime(logger)};
    runtime->setGpuAllocator(&allocator);
    std::unique_ptr<nvinfer1::ICudaEngine> engine{
        runtime->deserializeCudaEngine(serialized.data(), serialized.size())};
    if (engine == nullptr)
        fail("the engine cannot be deserialized");
    std::unique_ptr<nvinfer1::IExecutionContext> context{engine->createExecutionContext()};
    if (context == nullptr)
        fail("no execution context");
    context->setTemporaryStorageAllocator(&allocator);
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        fail("no stream");
    const std::vector<berm_addr_t> inputs = tensors_set(*engine, *context, outputs, stream);
    if (!context->enqueueV3(stream) || cudaStreamSynchronize(stream) != cudaSuccess)
        fail("the inference failed");
    outputs_print(*engine, outputs);
    for (const berm_addr_t input : inputs)
        (void)berm_free(input, 0, stream);
    (void)berm_stream_retire(0, stream); // before it goes
    (void)cudaStreamDestroy(stream);
}

} // namespace

int main(int argc, char **argv) {
    Logger logger;
    if (argc != 2)
        fail("usage: berm_tensorrt_example ENGINE");
    run(file_read(argv[1]), logger);
    berm_stats_t stats = BERM_STATS_INIT;
    if (berm_stats_read(0, &stats) != BERM_OK)
        fail(berm_error_message());
    std::printf("%llu requests, at most %.1f MiB live, %.1f MiB reserved; %llu still live\n",
                static_cast<unsigned long long>(stats.blocks.total_up),
                static_cast<double>(stats.requested_bytes.peak) / (1 << 20),
                static_cast<double>(stats.reserved_bytes.peak) / (1 << 20),
                static_cast<unsigned long long>(stats.blocks.current));
    return 0;
}
