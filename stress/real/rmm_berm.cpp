// SPDX-License-Identifier: Apache-2.0
// berm as a resource of RMM behind real.h: what a RAPIDS program has that sets it, so that it can
// be measured beside RMM's own pool and arena. Compiled by setup_rmm.sh against the headers of the
// wheel. Requests go the way of RMM's containers: through cuda::mr::any_resource to
// berm::RmmResource, which calls the libberm.so that this library is linked with.
// May fail: out of memory, which the resource throws.
#include <cstdio>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

#include "berm_introspect.h"
#include "berm_rmm.hpp"
#include "stress/real/real.h"

#ifndef BERM_RMM_VERSION
#define BERM_RMM_VERSION "unknown"
#endif

// Instead of librmm's own, which asks its static runtime.
RMM_NAMESPACE_BEGIN
cuda_device_id get_current_cuda_device() {
    int device = 0;
    (void)cudaGetDevice(&device);
    return cuda_device_id{device};
}
RMM_NAMESPACE_END

namespace {

std::optional<cuda::mr::any_resource<cuda::mr::device_accessible>> resource;
int device;
thread_local std::string last_error;

int failed(const char *what, int result) {
    last_error = what;
    return result;
}

template <typename Body> int guarded(Body body) {
    try {
        body();
        return STRESS_REAL_OK;
    } catch (const rmm::out_of_memory &error) {
        return failed(error.what(), STRESS_REAL_OUT_OF_MEMORY);
    } catch (const std::exception &error) {
        return failed(error.what(), STRESS_REAL_ERROR);
    }
}

berm_stats_t stats_read() {
    berm_stats_t stats = BERM_STATS_INIT;
    (void)berm_stats_read(device, &stats);
    return stats;
}

} // namespace

int stress_real_version() {
    return STRESS_REAL_VERSION;
}

const char *stress_real_describe() {
    return "berm as a resource of RMM " BERM_RMM_VERSION;
}

const char *stress_real_error() {
    return last_error.c_str();
}

int stress_real_create(const stress_real_options_t *options, char *error,
                       std::size_t error_capacity) {
    device = options->device;
    // A request that fails is reported by the harness.
    const std::string conf = std::string("driver:libcuda.so.1,log:error") +
                             (*options->conf != '\0' ? "," : "") + options->conf;
    berm_status_t status = berm_init(conf.c_str());
    if (status == BERM_OK)
        status = berm_limit_set(device, options->limit_bytes);
    if (status != BERM_OK) {
        (void)std::snprintf(error, error_capacity, "%s", berm_error_message());
        return STRESS_REAL_ERROR;
    }
    berm::RmmOptions made;
    made.device = device;
    resource.emplace(berm::RmmResource{made});
    return STRESS_REAL_OK;
}

void stress_real_destroy(std::uint64_t *blocks) {
    std::size_t live_blocks = 0;
    resource.reset();
    (void)berm_shutdown(&live_blocks);
    *blocks = live_blocks;
}

int stress_real_alloc(std::uint64_t size_bytes, void *stream, std::uint64_t *addr) {
    *addr = 0;
    return guarded([&] {
        const cuda::stream_ref on{static_cast<cudaStream_t>(stream)};
        *addr = reinterpret_cast<std::uintptr_t>(
            resource->allocate(on, size_bytes, rmm::CUDA_ALLOCATION_ALIGNMENT));
    });
}

int stress_real_free(std::uint64_t addr, std::uint64_t size_bytes, void *stream) {
    const cuda::stream_ref on{static_cast<cudaStream_t>(stream)};
    resource->deallocate(on, reinterpret_cast<void *>(static_cast<std::uintptr_t>(addr)),
                         size_bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
    return STRESS_REAL_OK;
}

int stress_real_record_stream(std::uint64_t, void *) {
    return failed("RMM has no record_stream", STRESS_REAL_ERROR);
}

void stress_real_figures(stress_real_figures_t *out) {
    const berm_stats_t stats = stats_read();
    *out = {stats.requested_bytes.current,
            stats.allocated_bytes.current,
            stats.active_bytes.current,
            stats.reserved_bytes.current,
            stats.allocated_bytes.peak,
            stats.reserved_bytes.peak,
            stats.host_waits};
}

void stress_real_peaks_reset() {
    (void)berm_stats_peaks_reset(device);
}

std::uint64_t stress_real_largest_free(void *stream) {
    std::uint64_t bytes = 0;
    (void)berm_largest_free_read(device, stream, &bytes);
    return bytes;
}

void stress_real_empty_cache() {
    (void)berm_trim(device, 0, nullptr);
}
