// SPDX-License-Identifier: Apache-2.0
// What happened, for snapshots: a ring of PyTorch's trace entries, and where live blocks were
// allocated. Costs one relaxed load a request while nothing is recorded.
//
// LOCK: its own mutex, over the ring and the map; nothing is called under it but copies of shared
// pointers. Contexts (stacks) are gathered before it is taken: that may need the GIL.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace berm_torch {

class History {
  public:
    using Entry = c10::CachingDeviceAllocator::TraceEntry;
    using When = c10::CachingDeviceAllocator::RecordContext;
    using Context = std::shared_ptr<c10::GatheredContext>;

    bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }
    bool is_watched() const { return is_watched_.load(std::memory_order_relaxed); }
    void set(bool is_on, c10::CachingDeviceAllocator::CreateContextFn recorder, size_t max_entries,
             When when, bool clears, const std::vector<std::string> &skipped);
    // A stack, if `when` asks for one at this level.
    Context gather(When when) const;
    void add(Entry::Action action, c10::DeviceIndex device, size_t addr, size_t size, void *stream,
             c10::MempoolId_t pool, Context context);
    // Blocks that record_stream has named, while history is watched: their frees may have to wait.
    void shared_add(const void *pointer);
    // Whether the free of the block waits: then completed_note tells its end.
    bool await(const void *pointer, c10::DeviceIndex device, size_t size, void *stream,
               c10::MempoolId_t pool, Context context);
    // Tells of frees whose wait is over by now.
    void completed_note(bool all);
    void block_add(const void *pointer, Context context);
    void block_remove(const void *pointer);
    Context context_of(const void *pointer) const;

    void annotate(c10::DeviceIndex device,
                  const std::vector<std::pair<std::string, std::string>> &pairs);
    void track(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker);
    // By device, with real times; and the annotations.
    void read(std::vector<std::vector<Entry>> *traces,
              std::vector<c10::CachingDeviceAllocator::AnnotationEntry> *annotations,
              size_t device_count) const;

    static void compile_push(const std::string &context);
    static void compile_pop();
    static std::string *user_metadata(); // of the thread

  private:
    std::atomic<bool> is_recording_{false}, is_watched_{false};
    std::atomic<c10::CachingDeviceAllocator::CreateContextFn> recorder_{nullptr};
    std::atomic<When> when_{When::NEVER};
    // Made early: it compares both clocks from then to when it is asked.
    mutable c10::ApproximateClockToUnixTimeConverter clock_;
    mutable std::mutex lock_;
    size_t max_entries_ = 0;
    std::unordered_set<int> skipped_;
    std::deque<Entry> entries_;
    std::vector<c10::CachingDeviceAllocator::AnnotationEntry> annotations_;
    std::unordered_map<const void *, Context> blocks_;
    std::unordered_set<const void *> shared_;
    struct Awaiting {
        const void *pointer;
        c10::DeviceIndex device;
        size_t size;
        void *stream;
        c10::MempoolId_t pool;
        Context context;
    };
    std::deque<Awaiting> awaiting_; // freed, oldest first
    std::vector<c10::CachingDeviceAllocator::AllocatorTraceTracker> trackers_;
};

} // namespace berm_torch
