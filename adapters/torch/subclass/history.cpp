// SPDX-License-Identifier: Apache-2.0
// What happened, for snapshots: see history.h.
#include "adapters/torch/subclass/allocator.h"

namespace berm_torch {

namespace {

thread_local std::vector<std::string> compile_contexts;
thread_local std::string metadata;

} // namespace

void History::set(bool is_on, c10::CachingDeviceAllocator::CreateContextFn recorder,
                  size_t max_entries, When when, bool clears,
                  const std::vector<std::string> &skipped) {
    TORCH_CHECK(when == When::NEVER || recorder != nullptr,
                "berm: stacks are to be recorded, and there is no function that gathers them");
    std::unordered_set<int> actions;
    for (const std::string &action : skipped)
        actions.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
    const std::lock_guard<std::mutex> guard(lock_);
    max_entries_ = std::max<size_t>(max_entries, 1);
    skipped_ = std::move(actions);
    recorder_.store(recorder);
    when_.store(is_on ? when : When::NEVER);
    if (clears || !is_on) {
        entries_.clear();
        annotations_.clear();
    }
    if (!is_on) {
        blocks_.clear();
        shared_.clear();
        awaiting_.clear();
    }
    is_recording_.store(is_on);
    is_watched_.store(is_on || !trackers_.empty());
}

History::Context History::gather(When when) const {
    const auto recorder = recorder_.load(std::memory_order_relaxed);
    return recorder != nullptr && when_.load(std::memory_order_relaxed) >= when ? recorder()
                                                                                : nullptr;
}

void History::add(Entry::Action action, c10::DeviceIndex device, size_t addr, size_t size,
                  void *stream, c10::MempoolId_t pool, Context context) {
    Entry entry(action, device, addr, size, stream, pool, c10::getApproximateTime(),
                when_.load(std::memory_order_relaxed) >= When::ALLOC ? std::move(context) : nullptr,
                compile_contexts.empty() ? std::string("N/A") : compile_contexts.back(), metadata);
    std::vector<c10::CachingDeviceAllocator::AllocatorTraceTracker> trackers;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        trackers = trackers_;
        if (is_recording_.load(std::memory_order_relaxed) &&
            skipped_.count(static_cast<int>(action)) == 0) {
            entries_.push_back(entry);
            if (entries_.size() > max_entries_)
                entries_.pop_front();
        }
    }
    for (const auto &tracker : trackers)
        tracker(entry);
}

void History::shared_add(const void *pointer) {
    const std::lock_guard<std::mutex> guard(lock_);
    shared_.insert(pointer);
}

bool History::await(const void *pointer, c10::DeviceIndex device, size_t size, void *stream,
                    c10::MempoolId_t pool, Context context) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (shared_.erase(pointer) == 0)
        return false;
    awaiting_.push_back({pointer, device, size, stream, pool, std::move(context)});
    return true;
}

// libberm is asked without the lock.
void History::completed_note(bool all) {
    for (;;) {
        std::unique_lock<std::mutex> guard(lock_);
        if (awaiting_.empty())
            return;
        const void *pointer = awaiting_.front().pointer;
        guard.unlock();
        berm_whatis_t whatis = BERM_WHATIS_INIT;
        const bool waits = !all && berm_whatis(address_of(pointer), &whatis) == BERM_OK &&
                           whatis.kind == BERM_ADDRESS_AWAITED &&
                           whatis.block == address_of(pointer);
        guard.lock();
        if (waits || awaiting_.empty() || awaiting_.front().pointer != pointer)
            return;
        Awaiting done = std::move(awaiting_.front());
        awaiting_.pop_front();
        guard.unlock();
        add(Entry::FREE_COMPLETED, done.device, address_of(pointer), done.size, done.stream,
            done.pool, std::move(done.context));
    }
}

void History::block_add(const void *pointer, Context context) {
    if (context == nullptr)
        return;
    const std::lock_guard<std::mutex> guard(lock_);
    blocks_[pointer] = std::move(context);
}

void History::block_remove(const void *pointer) {
    Context context; // dropped without the lock: its end may need the GIL
    const std::lock_guard<std::mutex> guard(lock_);
    const auto at = blocks_.find(pointer);
    if (at == blocks_.end())
        return;
    context = std::move(at->second);
    blocks_.erase(at);
}

History::Context History::context_of(const void *pointer) const {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto at = blocks_.find(pointer);
    return at == blocks_.end() ? nullptr : at->second;
}

void History::annotate(c10::DeviceIndex device,
                       const std::vector<std::pair<std::string, std::string>> &pairs) {
    c10::CachingDeviceAllocator::AnnotationEntry entry(device, c10::getApproximateTime());
    for (const auto &pair : pairs)
        entry.recordUserMetadata(pair.first, pair.second);
    const std::lock_guard<std::mutex> guard(lock_);
    if (is_recording_.load(std::memory_order_relaxed))
        annotations_.push_back(std::move(entry));
}

void History::track(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) {
    const std::lock_guard<std::mutex> guard(lock_);
    trackers_.push_back(std::move(tracker));
    is_watched_.store(true);
}

void History::read(std::vector<std::vector<Entry>> *traces,
                   std::vector<c10::CachingDeviceAllocator::AnnotationEntry> *annotations,
                   size_t device_count) const {
    const auto to_real = clock_.makeConverter();
    const auto real_us = [&to_real](c10::approx_time_t time) { return to_real(time) / 1000; };
    traces->assign(device_count, {});
    const std::lock_guard<std::mutex> guard(lock_);
    for (const Entry &entry : entries_) {
        if (static_cast<size_t>(entry.device_) >= device_count)
            continue;
        std::vector<Entry> &trace = (*traces)[static_cast<size_t>(entry.device_)];
        trace.push_back(entry);
        trace.back().time_.t_ = real_us(entry.time_.approx_t_);
    }
    *annotations = annotations_;
    for (auto &entry : *annotations)
        entry.time_.t_ = real_us(entry.time_.approx_t_);
}

void History::compile_push(const std::string &context) {
    compile_contexts.push_back(context);
}

void History::compile_pop() {
    if (!compile_contexts.empty())
        compile_contexts.pop_back();
}

std::string *History::user_metadata() {
    return &metadata;
}

// --- of the allocator ----------------------------------------------------------------------------

bool Allocator::isHistoryEnabled() {
    return history_.is_recording();
}

std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void *pointer) {
    return history_.context_of(pointer);
}

void Allocator::recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries,
                              caching::RecordContext when, bool clears,
                              const std::vector<std::string> &skipped) {
    if (enabled && !history_.is_watched())
        mapped_.begin(device_count_.load());
    history_.set(enabled, recorder, max_entries, when, clears, skipped);
    if (!history_.is_watched())
        mapped_.end();
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs) {
    history_.annotate(c10::cuda::current_device(), pairs);
}

void Allocator::pushCompileContext(std::string &context) {
    History::compile_push(context);
}

void Allocator::popCompileContext() {
    History::compile_pop();
}

void Allocator::setUserMetadata(const std::string &text) {
    *History::user_metadata() = text;
}

std::string Allocator::getUserMetadata() {
    return *History::user_metadata();
}

#if BERM_TORCH_HAS_ANNOTATIONS
bool Allocator::supportsUserMetadata() {
    return true;
}

void Allocator::annotateMemory(const void *pointer, const std::string &text) {
    uint64_t size = 0;
    int device = 0;
    berm_stream_t stream = nullptr;
    if (!history_.is_watched() ||
        berm_block_read(address_of(pointer), &size, &device, &stream) != BERM_OK)
        return;
    const std::string before = *History::user_metadata();
    *History::user_metadata() = text;
    history_.add(History::Entry::ANNOTATE, static_cast<DeviceIndex>(device), address_of(pointer),
                 size, stream, pool_of(pointer), history_.gather(caching::RecordContext::ALL));
    *History::user_metadata() = before;
}
#endif

void Allocator::attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) {
    if (!history_.is_watched())
        mapped_.begin(device_count_.load());
    history_.track(std::move(tracker));
}

} // namespace berm_torch
