// SPDX-License-Identifier: Apache-2.0
#include "adapters/torch/subclass/mapped.h"

#include <algorithm>

namespace berm_torch {

namespace {

// Of the whole process.
std::uint64_t edits() {
    berm_stats_t stats = BERM_STATS_INIT;
    if (berm_stats_read(0, &stats) != BERM_OK)
        return 0;
    const berm_driver_calls_t &calls = stats.driver_calls;
    return calls.map + calls.unmap + calls.malloc_ + calls.free_;
}

} // namespace

Mapped::Runs Mapped::walk(int device) {
    Runs runs;
    const auto add = [](void *context, const berm_walk_segment_t *segment,
                        const berm_walk_block_t *block) {
        if (block == nullptr)
            static_cast<Runs *>(context)->push_back({segment->addr,
                                                     segment->addr + segment->size_bytes,
                                                     segment->stream, segment->pool});
    };
    (void)berm_walk(device, add, &runs);
    std::sort(runs.begin(), runs.end(), [](const Run &a, const Run &b) { return a.addr < b.addr; });
    return runs;
}

// Tells the parts of `from` that are not in `what`.
void Mapped::subtract(const Runs &from, const Runs &what, MappedChange change, const Tell &tell) {
    std::size_t at = 0;
    for (const Run &run : from) {
        change.stream = run.stream == BERM_STREAM_NONE ? nullptr : run.stream;
        change.pool = run.pool;
        berm_addr_t begin = run.addr;
        while (at < what.size() && what[at].end <= begin)
            at++;
        for (std::size_t over = at; begin < run.end; over++) {
            const bool is_past = over >= what.size() || what[over].addr >= run.end;
            change.addr = begin;
            change.size = (is_past ? run.end : std::max(begin, what[over].addr)) - begin;
            if (change.size > 0)
                tell(change);
            if (is_past)
                break;
            begin = std::max(begin, what[over].end);
        }
    }
}

void Mapped::begin(int device_count) {
    const std::lock_guard<std::mutex> guard(lock_);
    calls_ = edits();
    runs_.clear();
    for (int device = 0; device < device_count; device++)
        runs_.push_back(walk(device));
}

void Mapped::look(int device_count, const Tell &tell) {
    const std::lock_guard<std::mutex> guard(lock_);
    const std::uint64_t calls = edits();
    if (calls == calls_)
        return;
    calls_ = calls;
    runs_.resize(static_cast<std::size_t>(device_count));
    for (int device = 0; device < device_count; device++) {
        Runs &before = runs_[static_cast<std::size_t>(device)];
        Runs now = walk(device);
        MappedChange change{};
        change.device = static_cast<c10::DeviceIndex>(device);
        subtract(before, now, change, tell);
        change.is_mapped = true;
        subtract(now, before, change, tell);
        before = std::move(now);
    }
}

} // namespace berm_torch
