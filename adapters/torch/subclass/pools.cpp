// SPDX-License-Identifier: Apache-2.0
// Graph pools and MemPools: PyTorch's ids are berm's, and a filter is a route's.
//
// FILTERS. A route calls its filter until berm_pool_route_end has returned; each is kept here until
// then, newest last. Lock: filter_lock, never over a call of berm's.
#include "adapters/torch/subclass/allocator.h"

#include <utility>

namespace berm_torch {

namespace {

using Filter = std::function<bool(cudaStream_t)>;
using Key = std::pair<DeviceIndex, MempoolId_t>;

std::mutex filter_lock;
std::map<Key, std::vector<std::unique_ptr<Filter>>> filters;

bool filter_call(berm_stream_t stream, void *context) {
    return (*static_cast<Filter *>(context))(static_cast<cudaStream_t>(stream));
}

berm_pool_stats_t pool_stats(DeviceIndex device, MempoolId_t id) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    check("berm_pool_stats_read", berm_pool_stats_read(device, pool_id_of(id), &stats));
    return stats;
}

void pool_create(DeviceIndex device, MempoolId_t id, uint32_t traits) {
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = traits;
    check("berm_pool_create", berm_pool_create(device, pool_id_of(id), &options));
}

} // namespace

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) {
    auto kept = std::make_unique<Filter>(std::move(filter));
    Filter *const raw = kept.get();
    {
        const std::lock_guard<std::mutex> guard(filter_lock);
        filters[{device, id}].push_back(std::move(kept));
    }
    const berm_status_t status = berm_pool_route_begin(device, pool_id_of(id), filter_call, raw);
    if (status == BERM_OK)
        return;
    {
        const std::lock_guard<std::mutex> guard(filter_lock);
        filters[{device, id}].pop_back();
    }
    raise("berm_pool_route_begin", status);
}

// The end of a route that never began is none of an error: captures are abandoned.
void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
    const berm_status_t status = berm_pool_route_end(device, pool_id_of(id));
    if (status == BERM_ERROR_POOL_UNKNOWN)
        return;
    check("berm_pool_route_end", status);
    std::unique_ptr<Filter> done; // dropped without the lock: it may hold Python's objects
    const std::lock_guard<std::mutex> guard(filter_lock);
    const auto at = filters.find({device, id});
    if (at == filters.end() || at->second.empty())
        return;
    done = std::move(at->second.back());
    at->second.pop_back();
    if (at->second.empty())
        filters.erase(at);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id) {
    const berm_status_t status = berm_pool_release(device, pool_id_of(id));
    if (status != BERM_ERROR_POOL_UNKNOWN)
        check("berm_pool_release", status);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    const berm_status_t status = berm_pool_stats_read(device, pool_id_of(id), &stats);
    if (status == BERM_ERROR_POOL_UNKNOWN)
        return 0;
    check("berm_pool_stats_read", status);
    return static_cast<int>(stats.uses);
}

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                                   std::shared_ptr<caching::CUDAAllocator> source) {
    TORCH_CHECK(source == nullptr,
                "berm: a MemPool with an allocator of its own is not supported; make it without, "
                "and it has memory of berm's");
    check("berm_pool_create", berm_pool_create(device, pool_id_of(id), nullptr));
}

// What a pool is like is decided when it is made; one that nobody uses yet is made anew.
void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) {
    const berm_pool_stats_t stats = pool_stats(device, id);
    const uint32_t wanted = use_on_oom ? uint32_t{BERM_POOL_USE_ON_OOM} : 0;
    if ((stats.traits & BERM_POOL_USE_ON_OOM) == wanted)
        return;
    TORCH_CHECK(stats.uses == 1 && stats.blocks == 0 && stats.reserved_bytes == 0,
                "berm: use_on_oom of a MemPool that is in use cannot be changed");
    check("berm_pool_release", berm_pool_release(device, pool_id_of(id)));
    pool_create(device, id, wanted);
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id) {
    (void)pool_stats(device, id);
    TORCH_CHECK(false, "berm: no_split pools are not supported");
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void *> &expected) {
    struct Live {
        berm_pool_id_t id;
        std::unordered_set<void *> blocks;
    } live{pool_id_of(id), {}};
    const auto look = [](void *context, const berm_walk_segment_t *segment,
                         const berm_walk_block_t *block) {
        auto *to = static_cast<Live *>(context);
        if (block != nullptr && block->kind == BERM_ADDRESS_LIVE &&
            segment->pool.high == to->id.high && segment->pool.low == to->id.low &&
            segment->is_released == 0)
            to->blocks.insert(pointer_of(block->addr));
    };
    check("berm_walk", berm_walk(device, look, &live));
    return live.blocks == expected;
}

std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(DeviceIndex /*device*/,
                                                                       MempoolId_t /*id*/) {
    TORCH_CHECK(false, "berm: checkpoints of graph pools are not supported");
}

caching::CheckpointDelta
Allocator::setCheckpointPoolState(DeviceIndex /*device*/,
                                  std::shared_ptr<caching::AllocatorState> /*state*/) {
    TORCH_CHECK(false, "berm: checkpoints of graph pools are not supported");
}

// --- between processes ---------------------------------------------------------------------------

caching::ShareableHandle Allocator::shareIpcHandle(void *pointer) {
    unsigned char handle[BERM_IPC_HANDLE_BYTES];
    uint64_t offset = 0;
    check("berm_ipc_export", berm_ipc_export(address_of(pointer), handle, &offset));
    return {static_cast<ptrdiff_t>(offset),
            std::string(reinterpret_cast<const char *>(handle), sizeof handle)};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
    berm_addr_t addr = 0;
    TORCH_CHECK(handle.size() == BERM_IPC_HANDLE_BYTES, "berm: a handle of ", handle.size(),
                " bytes is none of berm's");
    const DeviceIndex device = c10::cuda::current_device();
    check("berm_ipc_open",
          berm_ipc_open(reinterpret_cast<const unsigned char *>(handle.data()), device, 0, &addr));
    return {pointer_of(addr), [](void *opened) { (void)berm_ipc_close(address_of(opened)); }};
}

} // namespace berm_torch
