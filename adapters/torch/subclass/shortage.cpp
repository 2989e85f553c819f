// SPDX-License-Identifier: Apache-2.0
// Out of memory: what PyTorch may give back first, who is told, and the error, whose text is berm's
// report.
//
// The report comes by a callback in the thread whose request failed, at most once a second for a
// call site; between two of them the error has berm's one line.
#include "adapters/torch/subclass/allocator.h"

#include <cinttypes>

namespace berm_torch {

namespace {

thread_local std::string report;

void report_receive(void * /*context*/, berm_status_t /*status*/, const char *text) {
    report = text;
}

// PyTorch's registered callbacks: memory that was sent to other processes, and is back.
bool memory_free(void * /*context*/, int /*device*/, uint64_t /*needed*/) {
    bool has_freed = false;
    for (const std::string &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
        has_freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    return has_freed;
}

std::string size_text(uint64_t bytes) {
    char text[48];
    const double value = static_cast<double>(bytes);
    if (bytes < uint64_t{1} << 10)
        (void)snprintf(text, sizeof text, "%" PRIu64 " bytes", bytes);
    else if (bytes < uint64_t{1} << 20)
        (void)snprintf(text, sizeof text, "%.2f KiB", value / 1024);
    else if (bytes < uint64_t{1} << 30)
        (void)snprintf(text, sizeof text, "%.2f MiB", value / 1048576);
    else
        (void)snprintf(text, sizeof text, "%.2f GiB", value / 1073741824);
    return text;
}

} // namespace

void reports_begin() {
    check("berm_report_set", berm_report_set(report_receive, nullptr));
    const berm_status_t status = berm_pressure_register(BERM_DEVICE_ANY, memory_free, nullptr);
    if (status != BERM_ERROR_STATE) // registered already
        check("berm_pressure_register", status);
}

std::string report_take() {
    std::string taken;
    taken.swap(report);
    return taken;
}

// With throw_on_cudamalloc_oom a request for which the settings' part of the device (by default all
// of it) has no room, and nothing can be moved or given back either, is no failure of the device:
// it is counted and told apart. Does nothing where the cause is another.
void Allocator::reject(size_t size, DeviceIndex device, const berm_stats_t &stats,
                       size_t total_bytes, const std::string &words) {
    const double fraction = Config::rejection_fraction();
    const auto limit = static_cast<uint64_t>(static_cast<double>(total_bytes) * fraction);
    if (!Config::rejects() || getMemoryFraction(device) < fraction ||
        stats.reserved_bytes.current + size <= limit)
        return;
    figures_[static_cast<size_t>(device)]->rejected();
    std::vector<caching::OomRejectionObserver> observers;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        observers = rejection_observers_;
    }
    for (const auto &observer : observers) {
        try {
            observer(device, size, stats.reserved_bytes.current, total_bytes);
        } catch (const std::exception &error) {
            TORCH_WARN("berm: an observer of rejections: ", error.what());
        }
    }
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. The request for ",
                     size_text(size), " is rejected, as throw_on_cudamalloc_oom wants it: ",
                     size_text(stats.reserved_bytes.current), " are held, and of GPU ",
                     static_cast<int>(device), " per_process_memory_fraction leaves ",
                     size_text(limit), ".\n", words);
}

void Allocator::raise_shortage(berm_status_t status, size_t size, DeviceIndex device,
                               cudaStream_t stream) {
    std::string words = report_take();
    if (words.empty())
        words = berm_error_message();
    if (status != BERM_ERROR_OUT_OF_DEVICE_MEMORY && status != BERM_ERROR_LIMIT &&
        status != BERM_ERROR_QUOTA)
        TORCH_CHECK(false, "berm_alloc: ", berm_status_name(status), ": ", words);
    size_t free_bytes = 0, total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    berm_stats_t stats = BERM_STATS_INIT;
    check("berm_stats_read", berm_stats_read(device, &stats));
    reject(size, device, stats, total_bytes, words);
    const uint64_t allowed = std::min<uint64_t>(stats.limit_bytes, total_bytes);
    const auto allocated =
        static_cast<uint64_t>(figures_[static_cast<size_t>(device)]->allocated_bytes());
    if (history_.is_watched())
        history_.add(History::Entry::OOM, device, free_bytes, size, stream, {0, 0},
                     history_.gather(caching::RecordContext::ALLOC));
    std::vector<caching::OutOfMemoryObserver> observers;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        observers = shortage_observers_;
    }
    for (const auto &observer : observers)
        observer(device, static_cast<int64_t>(size), static_cast<int64_t>(allowed),
                 static_cast<int64_t>(free_bytes));
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated,
                                     stats.reserved_bytes.current,
                                     c10::Device(c10::DeviceType::CUDA, device));
    const std::string limit = stats.limit_bytes < total_bytes
                                  ? size_text(stats.limit_bytes) + " allowed; "
                                  : std::string();
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size_text(size),
        ". GPU ", static_cast<int>(device), " has a total capacity of ", size_text(total_bytes),
        " of which ", size_text(free_bytes), " is free. ", limit, "Of the allocated memory ",
        size_text(allocated), " is allocated by PyTorch, and ", size_text(stats.cached_bytes),
        " is reserved by PyTorch but unallocated.\n", words);
}

void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
    const std::lock_guard<std::mutex> guard(lock_);
    shortage_observers_.push_back(std::move(observer));
}

void Allocator::attachOomRejectionObserver(caching::OomRejectionObserver observer) {
    const std::lock_guard<std::mutex> guard(lock_);
    rejection_observers_.push_back(std::move(observer));
}

} // namespace berm_torch
