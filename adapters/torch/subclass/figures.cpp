// SPDX-License-Identifier: Apache-2.0
// PyTorch's statistics: see figures.h. The lock is held for some twenty instructions and never over
// a call, so waiting for it spins, and gives the processor away when that lasts.
#include "adapters/torch/subclass/allocator.h"

#include <thread>

namespace berm_torch {

namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t round_bytes = 512;
constexpr size_t small_most_bytes = size_t{1} << 20;
constexpr int aggregate = 0, small_pool = 1, large_pool = 2;

size_t rounded(size_t bytes) {
    return (bytes + round_bytes - 1) / round_bytes * round_bytes;
}

void set(c10::CachingAllocator::Stat *stat, const berm_figure_t &figure, int64_t up, int64_t down) {
    stat->current = static_cast<int64_t>(figure.current);
    stat->peak = static_cast<int64_t>(figure.peak);
    stat->allocated = static_cast<int64_t>(figure.total_up) - up;
    stat->freed = static_cast<int64_t>(figure.total_down) - down;
}

berm_stats_t stats_of(DeviceIndex device) {
    berm_stats_t stats = BERM_STATS_INIT;
    check("berm_stats_read", berm_stats_read(device, &stats));
    return stats;
}

} // namespace

Figures::Guard::Guard(std::atomic_flag &flag) : flag_(flag) {
    for (int tries = 0; flag_.test_and_set(std::memory_order_acquire); tries++)
        if (tries >= 100)
            std::this_thread::yield();
}

Figures::Guard::~Guard() {
    flag_.clear(std::memory_order_release);
}

void Figures::raise(One *one, int64_t amount) {
    one->current += amount;
    one->up += amount;
    if (one->current > one->peak)
        one->peak = one->current;
}

void Figures::lower(One *one, int64_t amount) {
    one->current -= amount;
    one->down += amount;
}

void Figures::add(size_t requested_bytes) {
    const auto allocated = static_cast<int64_t>(rounded(requested_bytes));
    const auto requested = static_cast<int64_t>(requested_bytes);
    const int pool = requested_bytes <= small_most_bytes ? small_pool : large_pool;
    const Guard guard(flag_);
    for (Kind *kind : {&kinds_[aggregate], &kinds_[pool]}) {
        raise(&kind->blocks, 1);
        raise(&kind->allocated, allocated);
        raise(&kind->requested, requested);
    }
}

void Figures::remove(size_t requested_bytes) {
    const auto allocated = static_cast<int64_t>(rounded(requested_bytes));
    const auto requested = static_cast<int64_t>(requested_bytes);
    const int pool = requested_bytes <= small_most_bytes ? small_pool : large_pool;
    const Guard guard(flag_);
    for (Kind *kind : {&kinds_[aggregate], &kinds_[pool]}) {
        lower(&kind->blocks, 1);
        lower(&kind->allocated, allocated);
        lower(&kind->requested, requested);
    }
}

void Figures::reset_peaks() {
    const Guard guard(flag_);
    for (Kind &kind : kinds_)
        for (One *one : {&kind.blocks, &kind.allocated, &kind.requested})
            one->peak = one->current;
}

void Figures::reset_totals() {
    const Guard guard(flag_);
    for (Kind &kind : kinds_)
        for (One *one : {&kind.blocks, &kind.allocated, &kind.requested})
            one->up = one->down = 0;
}

int64_t Figures::allocated_bytes() const {
    const Guard guard(flag_);
    return kinds_[aggregate].allocated.current;
}

void Figures::read(DeviceStats *stats) const {
    const Guard guard(flag_);
    for (size_t i = 0; i < 3; i++) {
        const auto put = [](c10::CachingAllocator::Stat *stat, const One &one) {
            stat->current = one.current;
            stat->peak = one.peak;
            stat->allocated = one.up;
            stat->freed = one.down;
        };
        put(&stats->allocation[i], kinds_[i].blocks);
        put(&stats->allocated_bytes[i], kinds_[i].allocated);
        put(&stats->requested_bytes[i], kinds_[i].requested);
    }
}

// --- of a device ---------------------------------------------------------------------------------

// Active is allocated and what is freed and still awaited: the second is berm's figure, the peak
// the larger of the two that are known. Memory is never split into segments that cannot go back, so
// the figures of segments and inactive splits are 0, as native's are with expandable segments.
DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
    DeviceStats stats;
    const berm_stats_t now = stats_of(device);
    const Figures &figures = *figures_.at(device);
    figures.read(&stats);
    const Figures::Base &base = figures.base;
    const auto awaited = static_cast<int64_t>(now.active_bytes.current) -
                         static_cast<int64_t>(now.allocated_bytes.current);
    stats.active = stats.allocation;
    stats.active_bytes = stats.allocated_bytes;
    for (const int i : {aggregate, large_pool}) {
        c10::CachingAllocator::Stat &active = stats.active_bytes[i];
        active.current += awaited;
        active.peak = std::max(active.peak, active.current);
        set(&stats.reserved_bytes[i], now.reserved_bytes, base.reserved_up, base.reserved_down);
    }
    stats.num_alloc_retries = static_cast<int64_t>(now.retries) - base.retries;
    stats.num_ooms = static_cast<int64_t>(now.out_of_memory) - base.ooms;
    stats.num_sync_all_streams = static_cast<int64_t>(now.host_waits) - base.waits;
    stats.num_device_alloc =
        static_cast<int64_t>(now.driver_calls.create + now.driver_calls.malloc_) - base.creates;
    stats.num_device_free =
        static_cast<int64_t>(now.driver_calls.release + now.driver_calls.free_) - base.releases;
    return stats;
}

void Allocator::resetPeakStats(DeviceIndex device) {
    figures_.at(device)->reset_peaks();
    check("berm_stats_peaks_reset", berm_stats_peaks_reset(device));
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
    const berm_stats_t now = stats_of(device);
    Figures &figures = *figures_.at(device);
    figures.reset_totals();
    const std::lock_guard<std::mutex> guard(lock_);
    const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
    figures.base.reserved_up = number(now.reserved_bytes.total_up);
    figures.base.reserved_down = number(now.reserved_bytes.total_down);
    figures.base.retries = number(now.retries);
    figures.base.ooms = number(now.out_of_memory);
    figures.base.waits = number(now.host_waits);
    figures.base.creates = number(now.driver_calls.create + now.driver_calls.malloc_);
    figures.base.releases = number(now.driver_calls.release + now.driver_calls.free_);
}

} // namespace berm_torch
