// SPDX-License-Identifier: Apache-2.0
// The adapter as TensorRT calls it, through pointers to its interface, on the simulated device.
// Built once for each generation of the interface; prints one line of what was called how often.
#include "berm_tensorrt.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "simcuda.h"

// What is deprecated is called all the same by TensorRT.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #x,               \
                         berm_error_message());                                                    \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr nvinfer1::AllocatorFlags kResizable = 1;

berm_stats_t stats_read() {
    berm_stats_t stats = BERM_STATS_INIT;
    CHECK(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

std::uint64_t memory_calls() {
    const berm_driver_calls_t calls = stats_read().driver_calls;
    return calls.reserve + calls.address_free + calls.create + calls.release + calls.map +
           calls.set_access + calls.unmap + calls.malloc_ + calls.free_;
}

bool is_aligned(const void *block, std::uint64_t alignment) {
    return reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
}

void rules_of_the_interface(nvinfer1::IGpuAllocator &allocator) {
    CHECK(allocator.allocate(0, 256, 0) == nullptr);
    CHECK(allocator.deallocate(nullptr));
    CHECK(allocator.reallocate(nullptr, 512, 0) == nullptr);
    int on_the_stack = 0;
    CHECK(!allocator.deallocate(&on_the_stack));
    std::vector<void *> blocks;
    for (std::uint64_t alignment : {0u, 1u, 256u, 512u, 4096u, 1u << 21})
        for (std::uint64_t size : {std::uint64_t{1}, std::uint64_t{1000}, 3 * kMiB}) {
            blocks.push_back(allocator.allocate(size, alignment, 0));
            CHECK(blocks.back() != nullptr);
            CHECK(is_aligned(blocks.back(), alignment > 512 ? alignment : 512));
        }
    CHECK(allocator.allocate(1000, 768, 0) == nullptr); // no power of two
    // A block that was not asked for as resizable stays as it is.
    CHECK(allocator.reallocate(blocks[1], 0, 100 * kMiB) == nullptr);
    CHECK(allocator.reallocate(blocks[1], 0, 999) == blocks[1]);
    for (void *block : blocks)
        CHECK(allocator.deallocate(block));
    CHECK(!allocator.deallocate(blocks[0]));
}

// A block grown 100 times from 1 MiB to 1 GiB.
void grows_in_place(nvinfer1::IGpuAllocator &allocator) {
    CHECK(berm_trim(0, 0, nullptr) == BERM_OK); // no page of other blocks is at hand
    void *block = allocator.allocate(kMiB, 512, kResizable);
    CHECK(block != nullptr);
    const std::uint64_t last = 1024 * kMiB, copies = simcuda_calls("cuMemcpyDtoDAsync_v2") +
                                                     simcuda_calls("cuMemcpyAsync");
    const berm_stats_t before = stats_read();
    const std::uint64_t calls = memory_calls();
    for (std::uint64_t i = 1; i <= 100; i++)
        CHECK(allocator.reallocate(block, 512, kMiB + (last - kMiB) * i / 100) == block);
    const berm_stats_t after = stats_read();
    CHECK(after.requested_bytes.current - before.requested_bytes.current == last - kMiB);
    CHECK(after.moved_bytes == before.moved_bytes);
    CHECK(simcuda_calls("cuMemcpyDtoDAsync_v2") + simcuda_calls("cuMemcpyAsync") == copies);
    // A create and a map for each granule at most, and one call for access a step.
    const std::uint64_t made = memory_calls() - calls, granules = last / (2 * kMiB);
    CHECK(made <= 2 * granules + 100);
    std::printf(
        "grown 100 times from 1 MiB to 1 GiB: same address, 0 copies, %llu driver calls for "
        "%llu granules\n",
        static_cast<unsigned long long>(made), static_cast<unsigned long long>(granules));
    CHECK(allocator.reallocate(block, 512, last / 2) == block);
    CHECK(allocator.reallocate(block, 512, std::uint64_t{1} << 40) == nullptr); // and still valid
    CHECK(allocator.reallocate(block, 512, last) == block);
    CHECK(allocator.deallocate(block));
    block = allocator.reallocate(nullptr, 512, 3 * kMiB);
    CHECK(block != nullptr && allocator.reallocate(block, 512, 30 * kMiB) == block);
    CHECK(allocator.deallocate(block));
}

void many_threads(nvinfer1::IGpuAllocator &allocator) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++)
        threads.emplace_back([&allocator, i] {
            CHECK(cudaSetDevice(0) == cudaSuccess);
            for (unsigned round = 0; round < 50; round++) {
                void *fixed = allocator.allocate((i + 1) * 10000, 0, 0);
                void *block = allocator.allocate(kMiB, 0, kResizable);
                CHECK(fixed != nullptr && block != nullptr);
                CHECK(allocator.reallocate(block, 0, 9 * kMiB) == block);
                CHECK(allocator.deallocate(block) && allocator.deallocate(fixed));
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

#if STANDIN_HAS_STREAMS
void in_stream_order(nvinfer1::IGpuAllocator &allocator) {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    void *first = allocator.allocateAsync(5 * kMiB, 512, 0, stream);
    CHECK(first != nullptr);
    simcuda_access_t access{};
    access.addr = reinterpret_cast<std::uintptr_t>(first);
    access.size_bytes = 5 * kMiB;
    CHECK(simcuda_launch(stream, 1000000, &access, 1) == 0);
    CHECK(allocator.deallocateAsync(first, stream));
    // In order, so at once; without a stream, only where nothing is pending.
    void *again = allocator.allocateAsync(5 * kMiB, 512, 0, stream);
    CHECK(again == first && allocator.deallocateAsync(again, stream));
    void *elsewhere = allocator.allocateAsync(5 * kMiB, 512, 0, nullptr);
    CHECK(elsewhere != nullptr && elsewhere != first);
    CHECK(allocator.deallocateAsync(elsewhere, nullptr));
    CHECK(allocator.allocateAsync(0, 512, 0, stream) == nullptr);
    CHECK(allocator.deallocateAsync(nullptr, stream));
    void *block = allocator.allocateAsync(kMiB, 512, kResizable, stream);
    CHECK(block != nullptr && allocator.reallocate(block, 512, 20 * kMiB) == block);
    CHECK(allocator.deallocateAsync(block, stream));
    CHECK(berm_stream_retire(0, stream) == BERM_OK);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    const nvinfer1::InterfaceInfo info = allocator.getInterfaceInfo();
    CHECK(std::strcmp(info.kind, "IGpuAllocator") == 0 && info.major == 1 && info.minor == 0);
}
#endif

unsigned reports;

void report_count(void *, berm_status_t, const char *) {
    reports++;
}

void failures_may_be_quiet() {
    CHECK(berm_report_set(report_count, nullptr) == BERM_OK);
    berm::TensorRtOptions options;
    options.quiet = true;
    berm::TensorRtAllocator quiet(options);
    CHECK(static_cast<nvinfer1::IGpuAllocator &>(quiet).allocate(100ull << 30, 0, 0) == nullptr);
    CHECK(reports == 0);
    berm::TensorRtAllocator usual;
    CHECK(static_cast<nvinfer1::IGpuAllocator &>(usual).allocate(100ull << 30, 0, 0) == nullptr);
    CHECK(reports == 1);
    CHECK(berm_report_set(nullptr, nullptr) == BERM_OK);
}

void options_are_kept() {
    const berm_pool_id_t id = {7, 7};
    CHECK(berm_pool_create(0, id, nullptr) == BERM_OK);
    berm::TensorRtOptions options;
    options.device = 0;
    options.pool = id;
    options.alignment = 8192;
    berm::TensorRtAllocator own(options);
    nvinfer1::IGpuAllocator &allocator = own;
    void *block = allocator.allocate(3 * kMiB, 256, 0);
    berm_whatis_t what = BERM_WHATIS_INIT;
    CHECK(berm_whatis(reinterpret_cast<std::uintptr_t>(block), &what) == BERM_OK);
    CHECK(what.pool.high == 7 && what.pool.low == 7 && is_aligned(block, 8192));
    CHECK(allocator.deallocate(block));
    options.device = 5; // there is none
    berm::TensorRtAllocator nowhere(options);
    CHECK(static_cast<nvinfer1::IGpuAllocator &>(nowhere).allocate(100, 0, kResizable) == nullptr);
    CHECK(berm_pool_release(0, id) == BERM_OK);
}

void *output_ask(nvinfer1::IOutputAllocator &outputs, const char *name, void *current,
                 std::uint64_t size) {
#if STANDIN_HAS_STREAMS
    return outputs.reallocateOutputAsync(name, current, size, 256, nullptr);
#else
    return outputs.reallocateOutput(name, current, size, 256);
#endif
}

void outputs_of_unknown_size() {
    berm::TensorRtOutputAllocator own;
    nvinfer1::IOutputAllocator &outputs = own;
    CHECK(own.data("boxes") == nullptr && own.shape("boxes").nbDims == -1);
    void *boxes = output_ask(outputs, "boxes", nullptr, 1000);
    void *scores = output_ask(outputs, "scores", nullptr, 1); // an empty tensor asks for a byte
    CHECK(boxes != nullptr && scores != nullptr && boxes != scores);
    nvinfer1::Dims dims{};
    dims.nbDims = 2;
    dims.d[0] = 3;
    dims.d[1] = 4;
    outputs.notifyShape("boxes", dims);
    CHECK(own.shape("boxes").nbDims == 2 && own.shape("boxes").d[1] == 4);
    CHECK(own.data("boxes") == boxes && own.size_bytes("boxes") == 1000);
    CHECK(output_ask(outputs, "boxes", boxes, 40 * kMiB) == boxes); // it grows where it is
    CHECK(output_ask(outputs, "boxes", boxes, 10) == boxes && own.size_bytes("boxes") == 10);
    CHECK(output_ask(outputs, "boxes", boxes, 100ull << 30) == nullptr &&
          own.data("boxes") == boxes);
    void *released = own.release("scores");
    CHECK(released == scores && own.data("scores") == nullptr && own.release("scores") == nullptr);
    CHECK(berm_free(reinterpret_cast<std::uintptr_t>(released), 0, BERM_STREAM_NONE) == BERM_OK);
}

} // namespace

int main() {
    CHECK(cudaSetDevice(0) == cudaSuccess);
    {
        berm::TensorRtAllocator own;
        nvinfer1::IGpuAllocator &allocator = own;
        rules_of_the_interface(allocator);
        grows_in_place(allocator);
        many_threads(allocator);
#if STANDIN_HAS_STREAMS
        in_stream_order(allocator);
#else
        void *block = allocator.allocate(100, 0, 0);
        CHECK(block != nullptr);
        allocator.free(block);
        allocator.free(nullptr);
        CHECK(!allocator.deallocate(block));
#endif
    }
    options_are_kept();
    failures_may_be_quiet();
    outputs_of_unknown_size();
    const berm_stats_t stats = stats_read();
    CHECK(stats.requested_bytes.current == 0 && stats.blocks.current == 0);
    std::printf("TensorRT interface %d: %llu allocations of %llu bytes reached berm, %llu frees\n",
                STANDIN_TENSORRT, static_cast<unsigned long long>(stats.blocks.total_up),
                static_cast<unsigned long long>(stats.requested_bytes.total_up),
                static_cast<unsigned long long>(stats.blocks.total_down));
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    std::size_t live_blocks = 1;
    CHECK(berm_shutdown(&live_blocks) == BERM_OK && live_blocks == 0);
    simcuda_ledger_t ledger{};
    simcuda_ledger_read(-1, &ledger);
    CHECK(ledger.used_bytes == 0 && ledger.reservations == 0 && simcuda_hazard_count() == 0);
    return 0;
}
