// SPDX-License-Identifier: Apache-2.0
// The memory as PyTorch's snapshot has it: a segment for each mapped run of a pool, with blocks
// that cover it, and the traces. `_dump_snapshot` and the viewer take it from there.
#include "adapters/torch/subclass/allocator.h"

#include <algorithm>

namespace berm_torch {

namespace {

struct Walked {
    bool is_filtered = false;
    berm_pool_id_t wanted{};
    std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
};

// Under berm's locks: memory of the host is all that is taken here.
void walk(void *context, const berm_walk_segment_t *segment, const berm_walk_block_t *block) {
    auto *walked = static_cast<Walked *>(context);
    if (walked->is_filtered &&
        (segment->pool.high != walked->wanted.high || segment->pool.low != walked->wanted.low))
        return;
    if (block == nullptr) {
        c10::CachingDeviceAllocator::SegmentInfo info;
        info.device = static_cast<DeviceIndex>(segment->device);
        info.address = segment->addr;
        info.total_size = segment->size_bytes;
        info.stream = segment->stream == BERM_STREAM_NONE ? nullptr : segment->stream;
        info.is_large = true;
        info.is_expandable = segment->is_plain == 0;
        info.owner_private_pool_id = mempool_id_of(segment->pool);
        walked->segments.push_back(std::move(info));
        return;
    }
    c10::CachingDeviceAllocator::SegmentInfo &info = walked->segments.back();
    c10::CachingDeviceAllocator::BlockInfo one;
    one.size = block->size_bytes;
    one.requested_size = block->requested_bytes;
    one.allocated = block->kind == BERM_ADDRESS_LIVE;
    one.active = one.allocated || block->kind == BERM_ADDRESS_AWAITED;
    info.requested_size += one.active ? one.requested_size : 0;
    info.allocated_size += one.allocated ? one.size : 0;
    info.active_size += one.active ? one.size : 0;
    // Free pieces side by side (slots of a slab) are one.
    if (!one.active && !info.blocks.empty() && !info.blocks.back().active)
        info.blocks.back().size += one.size;
    else
        info.blocks.push_back(std::move(one));
}

void contexts_add(const History &history, c10::CachingDeviceAllocator::SegmentInfo *info) {
    size_t addr = info->address;
    for (auto &block : info->blocks) {
        if (block.active)
            block.context_when_allocated = history.context_of(pointer_of(addr));
        addr += block.size;
    }
}

} // namespace

caching::SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces) {
    caching::SnapshotInfo info;
    Walked walked;
    walked.is_filtered = id != MempoolId_t{0, 0};
    walked.wanted = pool_id_of(id);
    const int count = device_count_.load();
    for (int device = 0; device < count; device++)
        check("berm_walk", berm_walk(device, walk, &walked));
    for (auto &segment : walked.segments)
        contexts_add(history_, &segment);
    std::sort(walked.segments.begin(), walked.segments.end(),
              [](const auto &a, const auto &b) { return a.address < b.address; });
    for (const auto &segment : walked.segments)
        info.segments.push_back(segment);
    if (history_.is_watched()) {
        history_.completed_note(false);
        mapped_note(-1, nullptr);
    }
    std::vector<std::vector<History::Entry>> traces;
    history_.read(&traces, &info.external_annotations, static_cast<size_t>(count));
    if (include_traces)
        info.device_traces = std::move(traces);
    else
        info.device_traces.resize(static_cast<size_t>(count));
    info.config_metadata = Config::describe();
    if (history_.is_recording()) // so that snapshots are seen among the events
        for (int device = 0; device < count; device++)
            history_.add(History::Entry::SNAPSHOT, static_cast<DeviceIndex>(device), 0, 0, nullptr,
                         id, nullptr);
    return info;
}

std::vector<caching::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device) {
    std::map<berm_stream_t, size_t> sizes;
    const auto add = [](void *context, const berm_walk_segment_t *segment,
                        const berm_walk_block_t *block) {
        if (block == nullptr && segment->is_plain == 0)
            (*static_cast<std::map<berm_stream_t, size_t> *>(context))[segment->stream] +=
                segment->size_bytes;
    };
    check("berm_walk", berm_walk(device, add, &sizes));
    std::vector<caching::StreamSegmentSize> result;
    for (const auto &[stream, size] : sizes)
        result.emplace_back(static_cast<cudaStream_t>(stream), false, size);
    return result;
}

} // namespace berm_torch
