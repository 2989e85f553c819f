// SPDX-License-Identifier: Apache-2.0
// From counters to PyTorch's DeviceStats.
#include "stats.h"

#include <algorithm>

namespace berm_torch {

using c10::CachingAllocator::Stat;

namespace {

constexpr std::int64_t kSegment = 2 << 20; // of the small pool, as PyTorch has it

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// libberm keeps small and large blocks in the same memory. Of what is reserved, the small pool's
// part is what its blocks need in segments of 2 MiB, the rest is the large pool's.
void reserved_split(Stat (&parts)[3], const Stat &all, const Stat &small) {
    parts[0] = all;
    parts[1].current = std::min(all.current, rounded_up(small.current, kSegment));
    parts[1].peak = std::min(all.peak, rounded_up(small.peak, kSegment));
    parts[1].allocated = std::min(all.allocated, parts[1].peak);
    parts[1].freed = std::max<std::int64_t>(0, parts[1].allocated - parts[1].current);
    parts[2].current = all.current - parts[1].current;
    parts[2].peak = std::max(parts[2].current, all.peak - parts[1].peak);
    parts[2].allocated = all.allocated - parts[1].allocated;
    parts[2].freed = all.freed - parts[1].freed;
}

} // namespace

// type: all, small, large. With `awaited` the figure counts what is not allocated any more, but
// active. The lock is held.
Stat Counters::stat(int type, Measure measure, const Awaited *awaited) {
    Stat stat;
    for (int kind = 0; kind < 2; kind++) {
        if (type != 0 && type != 1 + kind)
            continue;
        const std::int64_t waits = awaited != nullptr ? awaited->amount[kind][measure] : 0;
        const std::int64_t now = current(kind != 0, measure);
        const std::int64_t total = up(kind != 0, measure);
        stat.current += now + waits;
        stat.allocated += total - up_base_[kind][measure];
        stat.freed += total - now - waits - down_base_[kind][measure];
    }
    stat.peak = std::max(stat.current, peak_[type][measure].load(std::memory_order_relaxed));
    return stat;
}

void Counters::read(const Awaited &awaited, const Physical &physical,
                    c10::CachingDeviceAllocator::DeviceStats &stats) {
    std::lock_guard<std::mutex> guard(lock_);
    for (int type = 0; type < 3; type++) {
        const auto at = static_cast<std::size_t>(type);
        stats.allocation[at] = stat(type, kBlocks, nullptr);
        stats.allocated_bytes[at] = stat(type, kBytes, nullptr);
        stats.active[at] = stat(type, kBlocks, &awaited);
        stats.active_bytes[at] = stat(type, kBytes, &awaited);
        stats.requested_bytes[at] = stat(type, kRequested, &awaited);
        if (type != 1)
            stats.active_bytes[at].peak += physical.active_excess_peak;
    }
    Stat all;
    all.current = physical.reserved;
    all.peak = physical.reserved_peak;
    all.allocated = physical.reserved_up - base_.reserved_up;
    all.freed = physical.reserved_down - base_.reserved_down;
    Stat parts[3];
    reserved_split(parts, all, stats.active_bytes[1]);
    std::copy(std::begin(parts), std::end(parts), stats.reserved_bytes.begin());
    stats.num_alloc_retries = physical.retries - base_.retries;
    stats.num_ooms = physical.out_of_memory - base_.out_of_memory;
    stats.num_sync_all_streams = physical.waits - base_.waits;
    stats.num_device_alloc = physical.maps - base_.maps;
    stats.num_device_free = physical.unmaps - base_.unmaps;
    stats.num_oom_rejections = rejections_.load(std::memory_order_relaxed);
}

void Counters::accumulated_reset(const Physical &physical) {
    std::lock_guard<std::mutex> guard(lock_);
    for (int kind = 0; kind < 2; kind++) {
        for (int m = 0; m < kMeasures; m++) {
            up_base_[kind][m] = up(kind != 0, m);
            down_base_[kind][m] = up_base_[kind][m] - current(kind != 0, m);
        }
    }
    base_ = physical;
    rejections_.store(0, std::memory_order_relaxed);
}

void Counters::peaks_reset() {
    for (int m = 0; m < kMeasures; m++) {
        peak_[1][m].store(current(false, m), std::memory_order_relaxed);
        peak_[2][m].store(current(true, m), std::memory_order_relaxed);
        peak_[0][m].store(current(false, m) + current(true, m), std::memory_order_relaxed);
    }
}

} // namespace berm_torch
