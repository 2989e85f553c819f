// SPDX-License-Identifier: Apache-2.0
// berm as PyTorch's CUDA allocator: the subclass of c10's CUDAAllocator, compiled against the
// installed torch. What a call means is PyTorch's; what does it is libberm.
//
//   allocator.cpp   allocating, freeing, streams, peers, copies
//   pools.cpp       routes of graphs and MemPools into berm's pools
//   checkpoint.cpp  states of graph pools, for cudagraph trees
//   figures.cpp     PyTorch's statistics
//   config.cpp      PYTORCH_ALLOC_CONF
//   mapped.cpp      what is mapped, told as events of segments
//   history.cpp     traces of what happened, for snapshots
//   ipc.cpp         memory that goes to other processes
//   snapshot.cpp    the memory as PyTorch's snapshot has it
//   shortage.cpp    out of memory: observers, the error
//   install.cpp     making it the current allocator
//
// LOCKS: none is held while libberm, torch or Python is called, but where a file says so.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/torch/torch_versions.h"
#include "berm.h"
#include "berm_introspect.h"
#include "berm_share.h"
#include "adapters/torch/subclass/config.h"
#include "adapters/torch/subclass/figures.h"
#include "adapters/torch/subclass/history.h"
#include "adapters/torch/subclass/mapped.h"

namespace berm_torch {

using c10::DeviceIndex;
using c10::MempoolId_t;
namespace caching = c10::cuda::CUDACachingAllocator;

inline berm_addr_t address_of(const void *pointer) {
    return reinterpret_cast<berm_addr_t>(pointer);
}
inline void *pointer_of(berm_addr_t addr) {
    return reinterpret_cast<void *>(addr);
}
inline berm_pool_id_t pool_id_of(MempoolId_t id) {
    return {id.first, id.second};
}
inline MempoolId_t mempool_id_of(berm_pool_id_t id) {
    return {id.high, id.low};
}

// Raises what `status` of `call` means, with berm's own words.
[[noreturn]] void raise(const char *call, berm_status_t status);
inline void check(const char *call, berm_status_t status) {
    if (C10_UNLIKELY(status != BERM_OK))
        raise(call, status);
}

class Allocator final : public caching::CUDAAllocator {
  public:
    // The one there is; made by the first call, never destroyed: tensors may outlive everything.
    static const std::shared_ptr<Allocator> &instance();

    // c10::Allocator
    c10::DataPtr allocate(size_t size) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void copy_data(void *to, const void *from, std::size_t count) const override;

    // c10::DeviceAllocator
    bool initialized() override;
    void emptyCache(MempoolId_t id) override;
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;

    // CUDAAllocator
    using caching::CUDAAllocator::recordStream;
    void *raw_alloc(size_t size) override;
    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
    void raw_delete(void *pointer) override;
    void init(int device_count) override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
    void enable(bool value) override;
    bool isEnabled() const override;
    void cacheInfo(DeviceIndex device, size_t *largest) override;
    void *getBaseAllocation(void *pointer, size_t *size) override;
    void recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) override;
    caching::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                             std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<caching::CUDAAllocator> source) override;
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
    void setNoSplit(DeviceIndex device, MempoolId_t id) override;
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override;
    caching::ShareableHandle shareIpcHandle(void *pointer) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    bool isHistoryEnabled() override;
    std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *pointer) override;
    void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries,
                       caching::RecordContext when, bool clears,
                       const std::vector<std::string> &skipped) override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs) override;
    void pushCompileContext(std::string &context) override;
    void popCompileContext() override;
#if BERM_TORCH_HAS_ANNOTATIONS
    bool supportsUserMetadata() override;
    void annotateMemory(const void *pointer, const std::string &metadata) override;
#endif
    void setUserMetadata(const std::string &metadata) override;
    std::string getUserMetadata() override;
    void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
    void attachOomRejectionObserver(caching::OomRejectionObserver observer) override;
    void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                            size_t count, cudaStream_t stream, bool has_peer_access) override;
    std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                                MempoolId_t id) override;
    caching::CheckpointDelta
    setCheckpointPoolState(DeviceIndex device,
                           std::shared_ptr<caching::AllocatorState> state) override;
    std::string name() override;

  private:
    Allocator() = default;
    void *alloc(size_t size, DeviceIndex device, cudaStream_t stream);
    berm_status_t take(size_t size, DeviceIndex device, cudaStream_t stream, berm_addr_t *addr);
    size_t asked_for(berm_addr_t addr, uint64_t size);
    void alloc_note(void *pointer, size_t size, DeviceIndex device, cudaStream_t stream);
    void free_note(void *pointer, size_t size, DeviceIndex device, berm_stream_t stream);
    void mapped_note(int device, const History::Context &context);
    void checkpoint_note(bool is_allocated, DeviceIndex device, void *pointer, size_t size);
    void report_to_profiler(void *pointer, size_t size, bool is_allocation, DeviceIndex device);
    // shortage.cpp: raises where what is live leaves no room for a request.
    void reject_if_over(size_t size, DeviceIndex device);
    // shortage.cpp: tells the observers, and raises.
    [[noreturn]] void raise_shortage(berm_status_t status, size_t size, DeviceIndex device,
                                     cudaStream_t stream);

    std::atomic<int> device_count_{0};
    std::atomic<bool> is_enabled_{true};
    std::vector<std::unique_ptr<Figures>> figures_; // by device; fixed by init
    std::vector<double> fractions_;                 // by device; under lock_
    History history_;
    Mapped mapped_;
    std::mutex lock_; // of what follows and of fractions_
    std::vector<caching::OutOfMemoryObserver> shortage_observers_;
    std::vector<caching::OomRejectionObserver> rejection_observers_;
    std::map<berm_addr_t, size_t> asked_; // what was asked for, of blocks made larger by Config
};

// pools.cpp: of the pools of a device that are in use.
std::vector<MempoolId_t> pool_ids(DeviceIndex device);
// Whether a request was ever routed to one.
bool pools_are_used();
// The pool of a live block.
MempoolId_t pool_of(const void *pointer);

// The deleter of every tensor's memory.
void delete_block(void *pointer);

// shortage.cpp: berm's report of the request that failed last in this thread, taken.
std::string report_take();
void reports_begin();

} // namespace berm_torch
