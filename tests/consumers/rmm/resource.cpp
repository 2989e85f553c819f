// SPDX-License-Identifier: Apache-2.0
// berm as a resource of the real RMM (headers and library of the wheel), on the simulated device:
// RMM's containers, its adaptors and its callback resource get their memory from berm. Prints one
// line of what was called how often.
//
// Three questions about the device are answered here, since librmm asks a static CUDA runtime of
// its own, which takes no simulated driver.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include "berm_diagnose.h"
#include "berm_introspect.h"
#include "berm_rmm.hpp"
#include "simcuda.h"

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

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #x,               \
                         berm_error_message());                                                    \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

namespace {

constexpr std::size_t kMiB = 1 << 20;
using AnyResource = cuda::mr::any_resource<cuda::mr::device_accessible>;

berm_stats_t stats_read() {
    berm_stats_t stats = BERM_STATS_INIT;
    CHECK(berm_stats_read(0, &stats) == BERM_OK);
    return stats;
}

std::uint64_t live_bytes() {
    return stats_read().requested_bytes.current;
}

cudaStream_t stream_make() {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

void containers(cuda::stream_ref stream) {
    const std::uint64_t before = live_bytes();
    {
        rmm::device_buffer buffer{10 * kMiB, stream};
        CHECK(live_bytes() == before + 10 * kMiB);
        rmm::device_uvector<double> numbers{1000, stream};
        CHECK(live_bytes() == before + 10 * kMiB + 1000 * sizeof(double));
        berm_whatis_t what = BERM_WHATIS_INIT;
        CHECK(berm_whatis(reinterpret_cast<std::uintptr_t>(numbers.data()), &what) == BERM_OK);
        CHECK(what.kind == BERM_ADDRESS_LIVE && what.requested_bytes == 1000 * sizeof(double));
        rmm::device_buffer moved{std::move(buffer)};
        CHECK(moved.size() == 10 * kMiB && buffer.data() == nullptr);
        const rmm::device_buffer empty{0, stream};
        CHECK(empty.data() == nullptr);
    }
    CHECK(live_bytes() == before);
}

void in_stream_order() {
    const cudaStream_t one = stream_make();
    const cudaStream_t two = stream_make();
    AnyResource resource{berm::RmmResource{}};
    void *first = resource.allocate(cuda::stream_ref{one}, 5 * kMiB, 256);
    simcuda_access_t access{};
    access.addr = reinterpret_cast<std::uintptr_t>(first);
    access.size_bytes = 5 * kMiB;
    CHECK(simcuda_launch(one, 1000000, &access, 1) == 0);
    resource.deallocate(cuda::stream_ref{one}, first, 5 * kMiB, 256);
    void *again = resource.allocate(cuda::stream_ref{one}, 5 * kMiB, 256);
    void *other = resource.allocate(cuda::stream_ref{two}, 5 * kMiB, 256);
    CHECK(again == first && other != first);
    resource.deallocate(cuda::stream_ref{one}, again, 5 * kMiB, 256);
    resource.deallocate(cuda::stream_ref{two}, other, 5 * kMiB, 256);
    void *synchronous = resource.allocate_sync(kMiB, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(synchronous) % 4096 == 0);
    resource.deallocate_sync(synchronous, kMiB, 4096);
    CHECK(berm_stream_retire(0, one) == BERM_OK && berm_stream_retire(0, two) == BERM_OK);
    CHECK(cudaStreamDestroy(one) == cudaSuccess && cudaStreamDestroy(two) == cudaSuccess);
}

void failures_are_rmms() {
    AnyResource resource{berm::RmmResource{}};
    const cuda::stream_ref stream{cudaStream_t{nullptr}};
    CHECK(resource.allocate(stream, 0, 256) == nullptr);
    resource.deallocate(stream, nullptr, 0, 256);
    bool is_caught = false;
    try {
        (void)resource.allocate(stream, 100ULL << 30, 256);
    } catch (const rmm::out_of_memory &error) {
        is_caught = std::string{error.what()}.find("wanted on device 0") != std::string::npos;
    }
    CHECK(is_caught);
    is_caught = false;
    try {
        (void)resource.allocate(stream, 1000, 768); // no power of two
    } catch (const rmm::out_of_memory &) {
        CHECK(false);
    } catch (const rmm::bad_alloc &) {
        is_caught = true;
    }
    CHECK(is_caught);
}

// A quota of the program's own is no memory too: adaptors that catch rmm::out_of_memory go on.
void quota_is_no_memory() {
    AnyResource resource{berm::RmmResource{}};
    const cuda::stream_ref stream{cudaStream_t{nullptr}};
    CHECK(berm_quota_set(0, "rmm", 4 * kMiB) == BERM_OK && berm_tag_push("rmm") == BERM_OK);
    bool is_caught = false;
    try {
        (void)resource.allocate(stream, 5 * kMiB, 256);
    } catch (const rmm::out_of_memory &error) {
        is_caught = std::string{error.what()}.find("quota") != std::string::npos;
    } catch (const rmm::bad_alloc &) { // not this
    }
    CHECK(berm_tag_pop() == BERM_OK && berm_quota_set(0, "rmm", UINT64_MAX) == BERM_OK);
    CHECK(is_caught);
}

// Containers that a forked child destroys on its way out are nobody's fault.
void child_gives_back(cuda::stream_ref stream) {
    const rmm::device_buffer kept{kMiB, stream};
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        berm::RmmResource{berm::RmmOptions{0, {0, 0}}}.deallocate(
            stream, const_cast<void *>(kept.data()), kMiB);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void equality() {
    berm::RmmOptions other;
    other.pool = {0, 9};
    const berm::RmmResource one;
    const berm::RmmResource same{berm::RmmOptions{0, {0, 0}}};
    CHECK(one == same && one != berm::RmmResource{other});
    CHECK(AnyResource{one} == AnyResource{same});
    CHECK(berm_pool_create(0, other.pool, nullptr) == BERM_OK);
    const cuda::stream_ref stream{cudaStream_t{nullptr}};
    berm::RmmResource pooled{other};
    void *block = pooled.allocate(stream, 3 * kMiB);
    berm_whatis_t what = BERM_WHATIS_INIT;
    CHECK(berm_whatis(reinterpret_cast<std::uintptr_t>(block), &what) == BERM_OK);
    CHECK(what.pool.low == 9);
    pooled.deallocate(stream, block, 3 * kMiB);
    CHECK(berm_pool_release(0, other.pool) == BERM_OK);
}

// The way that needs no concept: two callbacks.
void callbacks(cuda::stream_ref stream) {
    rmm::mr::callback_memory_resource resource{berm::RmmAllocate{}, berm::RmmDeallocate{}};
    const std::uint64_t before = live_bytes();
    {
        rmm::device_buffer buffer{3 * kMiB, stream, resource};
        CHECK(live_bytes() == before + 3 * kMiB);
    }
    CHECK(live_bytes() == before);
}

// As RMM before 26.06 passes a stream.
struct OlderStream {
    cudaStream_t handle;
    cudaStream_t value() const noexcept { return handle; }
};

void callbacks_of_older_versions() {
    const cudaStream_t stream = stream_make();
    void *block = berm::RmmAllocate{}(5 * kMiB, OlderStream{stream}, nullptr);
    berm::RmmDeallocate{}(block, 5 * kMiB, OlderStream{stream}, nullptr);
    void *again = berm::RmmAllocate{}(5 * kMiB, OlderStream{stream}, nullptr);
    CHECK(block != nullptr && again == block);
    berm::RmmDeallocate{}(again, 5 * kMiB, OlderStream{stream}, nullptr);
}

// What RMM puts around a resource.
void adaptors(cuda::stream_ref stream) {
    rmm::mr::statistics_resource_adaptor statistics{berm::RmmResource{}};
    rmm::mr::limiting_resource_adaptor limiting{berm::RmmResource{}, 8 * kMiB};
    {
        rmm::device_buffer buffer{3 * kMiB, stream, statistics};
        CHECK(statistics.get_bytes_counter().value == static_cast<std::int64_t>(3 * kMiB));
    }
    bool is_caught = false;
    try {
        const rmm::device_buffer buffer{9 * kMiB, stream, limiting};
    } catch (const rmm::out_of_memory &) {
        is_caught = true;
    }
    CHECK(is_caught);
}

void many_threads() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([stream = stream_make()] {
            CHECK(cudaSetDevice(0) == cudaSuccess);
            for (int round = 0; round < 200; round++) {
                rmm::device_uvector<int> few{1000, cuda::stream_ref{stream}};
                rmm::device_buffer many{3 * kMiB, cuda::stream_ref{stream}};
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

int main() {
    CHECK(cudaSetDevice(0) == cudaSuccess);
    (void)rmm::mr::set_current_device_resource(berm::RmmResource{});
    const cuda::stream_ref stream{stream_make()};
    containers(stream);
    in_stream_order();
    failures_are_rmms();
    quota_is_no_memory();
    child_gives_back(stream);
    equality();
    callbacks(stream);
    callbacks_of_older_versions();
    adaptors(stream);
    many_threads();
    const berm_stats_t stats = stats_read();
    CHECK(stats.requested_bytes.current == 0 && stats.blocks.current == 0);
    std::printf("RMM %s: %llu allocations of %llu bytes reached berm, %llu frees\n",
                BERM_RMM_VERSION, static_cast<unsigned long long>(stats.blocks.total_up),
                static_cast<unsigned long long>(stats.requested_bytes.total_up),
                static_cast<unsigned long long>(stats.blocks.total_down));
    (void)rmm::mr::reset_current_device_resource();
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    berm::RmmResource late;
    void *left = late.allocate_sync(kMiB); // of a container that lives longer than berm
    std::size_t live_blocks = 0;
    CHECK(berm_shutdown(&live_blocks) == BERM_OK && live_blocks == 1);
    late.deallocate_sync(left, kMiB);
    CHECK(simcuda_hazard_count() == 0);
    return 0;
}
