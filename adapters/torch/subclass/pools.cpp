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

// Pools that torch knows, and what it said of them. Lock: filter_lock, never over a call of berm's.
struct Known {
    int uses = 0;
    uint32_t traits = 0;
    std::shared_ptr<caching::CUDAAllocator> source; // null: the driver
};
std::map<Key, Known> known;

void uses_add(const Key &key, int amount) {
    const std::lock_guard<std::mutex> guard(filter_lock);
    if ((known[key].uses += amount) <= 0)
        known.erase(key);
}

// --- memory of another allocator -----------------------------------------------------------------

// What libberm keeps of a source: it holds the allocator until the last segment has gone back, so
// that tensors may outlive the pool and the allocator's own object.
struct Source {
    std::shared_ptr<caching::CUDAAllocator> allocator;
};

berm_addr_t source_alloc(void *context, uint64_t size, int device, berm_stream_t stream) {
    const c10::DeviceGuard guard(
        c10::Device(c10::DeviceType::CUDA, static_cast<DeviceIndex>(device)));
    try {
        return address_of(static_cast<Source *>(context)->allocator->raw_alloc_with_stream(
            size, stream == BERM_STREAM_NONE ? nullptr : static_cast<cudaStream_t>(stream)));
    } catch (const std::exception &) {
        return 0; // it has none: the request goes on as when the device is full
    }
}

void source_free(void *context, berm_addr_t addr, uint64_t /*size*/, int device,
                 berm_stream_t /*stream*/) {
    const c10::DeviceGuard guard(
        c10::Device(c10::DeviceType::CUDA, static_cast<DeviceIndex>(device)));
    try {
        static_cast<Source *>(context)->allocator->raw_delete(pointer_of(addr));
    } catch (const std::exception &error) {
        fprintf(stderr, "berm: the allocator of a MemPool: %s\n", error.what());
    }
}

void source_done(void *context) {
    delete static_cast<Source *>(context);
}

void pool_make(const Key &key, const Known &pool) {
    berm_pool_options_t options = BERM_POOL_OPTIONS_INIT;
    options.traits = pool.traits;
    std::unique_ptr<Source> source;
    if (pool.source != nullptr) {
        source = std::make_unique<Source>(Source{pool.source});
        options.source = {source_alloc, source_free, source_done, source.get()};
        options.traits |= BERM_POOL_PINNED; // with use_on_oom it lends what is free; it goes back
    }                                       // with the pool only, as native's
    check("berm_pool_create", berm_pool_create(key.first, pool_id_of(key.second), &options));
    (void)source.release(); // libberm's, until source_done
}

// What a pool is like is decided when it is made; one that was not used yet is made anew.
void traits_change(const Key &key, uint32_t add, const char *what) {
    Known pool;
    {
        const std::lock_guard<std::mutex> guard(filter_lock);
        const auto found = known.find(key);
        if (found == known.end())
            return; // released before: it is not used any more
        pool = found->second;
    }
    const uint32_t before = pool.traits;
    pool.traits |= add;
    if (pool.traits == before)
        return;
    const berm_pool_id_t id = pool_id_of(key.second);
    berm_pool_stats_t stats = BERM_POOL_STATS_INIT;
    check("berm_pool_stats_read", berm_pool_stats_read(key.first, id, &stats));
    TORCH_CHECK(stats.uses == 1 && stats.reserved_bytes == 0, "berm: ", what,
                " of a memory pool that is in use cannot be changed");
    check("berm_pool_release", berm_pool_release(key.first, id));
    pool_make(key, pool);
    const std::lock_guard<std::mutex> guard(filter_lock);
    known[key].traits = pool.traits;
}

std::atomic<bool> is_used{false};

} // namespace

bool pools_are_used() {
    return is_used.load(std::memory_order_relaxed);
}

MempoolId_t pool_of(const void *pointer) {
    berm_whatis_t whatis = BERM_WHATIS_INIT;
    if (!pools_are_used() || berm_whatis(address_of(pointer), &whatis) != BERM_OK)
        return {0, 0};
    return mempool_id_of(whatis.pool);
}

// Filters are torch's: they ask for the thread, or the driver for the stream's capture.
bool is_routed(DeviceIndex device, cudaStream_t stream) {
    if (!pools_are_used())
        return false;
    const std::lock_guard<std::mutex> guard(filter_lock);
    for (const auto &[key, routes] : filters)
        for (const auto &filter : routes)
            if (key.first == device && (*filter)(stream))
                return true;
    return false;
}

bool pool_splits(DeviceIndex device, MempoolId_t id) {
    const std::lock_guard<std::mutex> guard(filter_lock);
    const auto found = known.find({device, id});
    return found == known.end() ||
           (found->second.traits & (BERM_POOL_EXPORTABLE | BERM_POOL_NO_SPLIT)) == 0;
}

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) {
    is_used.store(true);
    auto kept = std::make_unique<Filter>(std::move(filter));
    Filter *const raw = kept.get();
    {
        const std::lock_guard<std::mutex> guard(filter_lock);
        filters[{device, id}].push_back(std::move(kept));
    }
    const berm_status_t status = berm_pool_route_begin(device, pool_id_of(id), filter_call, raw);
    if (status == BERM_OK) {
        uses_add({device, id}, 1);
        return;
    }
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
    if (status == BERM_ERROR_POOL_UNKNOWN || status == BERM_ERROR_SHUTDOWN)
        return;
    check("berm_pool_release", status);
    uses_add({device, id}, -1);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
    const std::lock_guard<std::mutex> guard(filter_lock);
    const auto found = known.find({device, id});
    return found != known.end() ? found->second.uses : 0;
}

std::vector<MempoolId_t> pool_ids(DeviceIndex device) {
    const std::lock_guard<std::mutex> guard(filter_lock);
    std::vector<MempoolId_t> ids;
    for (const auto &entry : known)
        if (entry.first.first == device)
            ids.push_back(entry.first.second);
    return ids;
}

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                                   std::shared_ptr<caching::CUDAAllocator> source) {
    const Key key{device, id};
    if (getPoolUseCount(device, id) > 0) {
        check("berm_pool_create", berm_pool_create(device, pool_id_of(id), nullptr));
    } else {
        Known pool;
        pool.source = std::move(source);
        pool_make(key, pool);
        const std::lock_guard<std::mutex> guard(filter_lock);
        known[key] = std::move(pool);
    }
    uses_add(key, 1);
}

// Taken back by the destructor of a MemPool, just before its release: nothing is to be done then.
void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) {
    if (use_on_oom)
        traits_change({device, id}, uint32_t{BERM_POOL_USE_ON_OOM}, "use_on_oom");
}

// Nothing is split where each block has a handle of its own; such a block can be sent to another
// process too. Memory of a source, and plain memory, have no handles.
void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id) {
    bool has_handles = false;
    berm_device_info_t info = BERM_DEVICE_INFO_INIT;
    check("berm_device_info_read", berm_device_info_read(device, &info));
    char backing[16] = "";
    check("berm_option_get", berm_option_get("backing", backing, sizeof backing));
    {
        const std::lock_guard<std::mutex> guard(filter_lock);
        const auto found = known.find({device, id});
        has_handles = found != known.end() && found->second.source == nullptr &&
                      info.has_vmm != 0 && std::string(backing) != "plain";
    }
    traits_change({device, id},
                  has_handles ? uint32_t{BERM_POOL_EXPORTABLE} : uint32_t{BERM_POOL_NO_SPLIT},
                  "no_split");
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

} // namespace berm_torch
