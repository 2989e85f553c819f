// SPDX-License-Identifier: Apache-2.0
// From counters to PyTorch's DeviceStats.
#include "adapters/torch/subclass/allocator.h"

#include <algorithm>

namespace berm_torch {

using c10::CachingAllocator::Stat;
using c10::CachingDeviceAllocator::DeviceStats;

namespace {

constexpr std::int64_t segment_bytes = 2 << 20; // of the small pool, as PyTorch has it

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// libberm keeps small and large blocks in the same memory. Of what is reserved, the small pool's
// part is what its blocks need in segments of 2 MiB, the rest is the large pool's.
void reserved_split(Stat (&parts)[3], const Stat &all, const Stat &small) {
    parts[0] = all;
    parts[1].current = std::min(all.current, rounded_up(small.current, segment_bytes));
    parts[1].peak = std::min(all.peak, rounded_up(small.peak, segment_bytes));
    parts[1].allocated = std::max(parts[1].current, std::min(all.allocated, parts[1].peak));
    parts[1].freed = parts[1].allocated - parts[1].current;
    parts[2].current = all.current - parts[1].current;
    parts[2].peak = std::max(parts[2].current, all.peak - parts[1].peak);
    parts[2].allocated = all.allocated - parts[1].allocated;
    parts[2].freed = all.freed - parts[1].freed;
}

void awaited_add(void *context, const berm_walk_segment_t *, const berm_walk_block_t *block) {
    if (block == nullptr || block->kind != BERM_ADDRESS_AWAITED)
        return;
    const std::size_t size = rounded(block->requested_bytes);
    std::int64_t(&amount)[kMeasures] = static_cast<Awaited *>(context)->amount[size > kSmallMax];
    amount[kBlocks]++;
    amount[kBytes] += static_cast<std::int64_t>(size);
    amount[kRequested] += static_cast<std::int64_t>(block->requested_bytes);
}

berm_stats_t stats_of(DeviceIndex device) {
    berm_stats_t stats = BERM_STATS_INIT;
    check("berm_stats_read", berm_stats_read(device, &stats));
    return stats;
}

bool has_awaited(const berm_stats_t &stats) {
    return stats.active_bytes.current > stats.allocated_bytes.current;
}

std::int64_t number(std::uint64_t value) {
    return static_cast<std::int64_t>(value);
}

Physical physical_of(const berm_stats_t &stats) {
    Physical physical;
    physical.reserved = number(stats.reserved_bytes.current);
    physical.reserved_peak = number(stats.reserved_bytes.peak);
    physical.reserved_up = number(stats.reserved_bytes.total_up);
    physical.reserved_down = number(stats.reserved_bytes.total_down);
    physical.active_excess_peak = std::max<std::int64_t>(0, number(stats.active_bytes.peak) -
                                                                number(stats.allocated_bytes.peak));
    physical.retries = number(stats.retries);
    physical.out_of_memory = number(stats.out_of_memory);
    physical.waits = number(stats.host_waits);
    physical.maps = number(stats.driver_calls.map + stats.driver_calls.malloc_);
    physical.unmaps = number(stats.driver_calls.unmap + stats.driver_calls.free_);
    return physical;
}

} // namespace

// type: all, small, large. With `awaited` the figure counts what is not allocated any more, but
// active. The lock is held.
Stat Figures::stat(int type, Measure measure, const Awaited *awaited) {
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

void Figures::read(const Awaited &awaited, const Physical &physical, DeviceStats *stats) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (int type = 0; type < 3; type++) {
        const auto at = static_cast<std::size_t>(type);
        stats->allocation[at] = stat(type, kBlocks, nullptr);
        stats->allocated_bytes[at] = stat(type, kBytes, nullptr);
        stats->active[at] = stat(type, kBlocks, &awaited);
        stats->active_bytes[at] = stat(type, kBytes, &awaited);
        stats->requested_bytes[at] = stat(type, kRequested, &awaited);
        if (type != 1)
            stats->active_bytes[at].peak += physical.active_excess_peak;
    }
    Stat all;
    all.current = physical.reserved;
    all.peak = physical.reserved_peak;
    all.allocated = physical.reserved_up - base_.reserved_up;
    all.freed = physical.reserved_down - base_.reserved_down;
    Stat parts[3];
    reserved_split(parts, all, stats->active_bytes[1]);
    std::copy(std::begin(parts), std::end(parts), stats->reserved_bytes.begin());
    stats->num_alloc_retries = physical.retries - base_.retries;
    stats->num_sync_all_streams = physical.waits - base_.waits;
    stats->num_device_alloc = physical.maps - base_.maps;
    stats->num_device_free = physical.unmaps - base_.unmaps;
    stats->num_oom_rejections = rejections_.load(std::memory_order_relaxed);
    stats->num_ooms = physical.out_of_memory - base_.out_of_memory - stats->num_oom_rejections;
}

void Figures::totals_reset(const Physical &physical) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (int kind = 0; kind < 2; kind++) {
        for (int m = 0; m < kMeasures; m++) {
            up_base_[kind][m] = up(kind != 0, m);
            down_base_[kind][m] = up_base_[kind][m] - current(kind != 0, m);
        }
    }
    base_ = physical;
    rejections_.store(0, std::memory_order_relaxed);
}

void Figures::peaks_reset() {
    for (int m = 0; m < kMeasures; m++) {
        peak_[1][m].store(current(false, m), std::memory_order_relaxed);
        peak_[2][m].store(current(true, m), std::memory_order_relaxed);
        peak_[0][m].store(current(false, m) + current(true, m), std::memory_order_relaxed);
    }
}

// --- of a device ---------------------------------------------------------------------------------

// Memory is never split into segments that cannot go back, so the figures of segments and inactive
// splits are 0, as native's are with expandable segments.
DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
    DeviceStats stats;
    berm_stats_t now = stats_of(device);
    Awaited awaited;
    if (has_awaited(now)) {
        // A request that is served from a cache does not look whether waits are over, nor at pools
        // of graphs; this does, at all.
        uint64_t unused = 0;
        check("berm_largest_obtainable_read",
              berm_largest_obtainable_read(device, nullptr, &unused));
        now = stats_of(device);
    }
    if (has_awaited(now))
        check("berm_walk", berm_walk(device, awaited_add, &awaited));
    figures_.at(static_cast<std::size_t>(device))->read(awaited, physical_of(now), &stats);
    stats.max_split_size = Config::max_split_bytes();
    for (const MempoolId_t &id : pool_ids(device)) {
        berm_pool_stats_t pool = BERM_POOL_STATS_INIT;
        if (berm_pool_stats_read(device, pool_id_of(id), &pool) != BERM_OK)
            continue;
        Stat stat;
        stat.current = stat.peak = stat.allocated = number(pool.reserved_bytes);
        stats.reserved_bytes_by_private_pools[id] = {stat, Stat(), stat};
    }
    return stats;
}

void Allocator::resetPeakStats(DeviceIndex device) {
    figures_.at(static_cast<std::size_t>(device))->peaks_reset();
    check("berm_stats_peaks_reset", berm_stats_peaks_reset(device));
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
    figures_.at(static_cast<std::size_t>(device))->totals_reset(physical_of(stats_of(device)));
}

} // namespace berm_torch
