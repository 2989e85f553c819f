// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>

#include <c10/util/Exception.h>

#include "berm_introspect.h"

namespace berm_torch {

namespace {

thread_local std::string report; // of the request of this thread that failed last

void report_take(void *, berm_status_t, const char *text) {
    report = text;
}

// As PyTorch writes sizes in the same place.
std::string bytes_text(std::uint64_t bytes) {
    static const struct {
        double bytes;
        const char *name;
    } units[] = {{1ull << 30, " GiB"}, {1ull << 20, " MiB"}, {1ull << 10, " KiB"}};
    std::ostringstream text;
    text << std::fixed << std::setprecision(2);
    for (const auto &unit : units) {
        if (static_cast<double>(bytes) > unit.bytes) {
            text << static_cast<double>(bytes) / unit.bytes << unit.name;
            return text.str();
        }
    }
    text << bytes << " bytes";
    return text.str();
}

} // namespace

bool is_shortage(berm_status_t status) {
    return status == BERM_ERROR_OUT_OF_DEVICE_MEMORY || status == BERM_ERROR_LIMIT ||
           status == BERM_ERROR_OUT_OF_ADDRESSES || status == BERM_ERROR_CEILING ||
           status == BERM_ERROR_SIZE_TOO_LARGE;
}

void Failure::start() {
    (void)berm_report_set(report_take, nullptr);
}

void Failure::attach(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) {
    std::lock_guard<std::mutex> guard(lock_);
    observers_.push_back(std::move(observer));
}

void Failure::attach_rejection(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) {
    std::lock_guard<std::mutex> guard(lock_);
    rejection_observers_.push_back(std::move(observer));
}

void Failure::observers_tell(const Shortage &shortage) {
    std::unique_lock<std::mutex> guard(lock_);
    const auto observers = observers_;
    guard.unlock(); // they may take the interpreter's lock
    const std::size_t most = std::min(shortage.limit_bytes, shortage.total_bytes);
    for (const auto &observer : observers)
        observer(shortage.device, shortage.size, most, shortage.free_bytes);
}

void Failure::rejection_tell(const Shortage &shortage) {
    std::unique_lock<std::mutex> guard(lock_);
    const auto observers = rejection_observers_;
    guard.unlock();
    for (const auto &observer : observers)
        observer(shortage.device, shortage.size, static_cast<std::size_t>(shortage.allocated),
                 shortage.total_bytes);
}

void Failure::raise(const Shortage &shortage) {
    std::ostringstream text;
    text << "CUDA out of memory. Tried to allocate " << bytes_text(shortage.size) << ". GPU "
         << static_cast<int>(shortage.device) << " has a total capacity of "
         << bytes_text(shortage.total_bytes) << " of which " << bytes_text(shortage.free_bytes)
         << " is free. ";
    if (shortage.limit_bytes != UINT64_MAX)
        text << bytes_text(shortage.limit_bytes) << " allowed; ";
    text << "Of the allocated memory "
         << bytes_text(static_cast<std::uint64_t>(std::max<std::int64_t>(0, shortage.allocated)))
         << " is allocated by PyTorch, and "
         << bytes_text(static_cast<std::uint64_t>(
                std::max<std::int64_t>(0, shortage.reserved - shortage.allocated)))
         << " is reserved by PyTorch but unallocated.\nberm: " << berm_error_message();
    if (!report.empty())
        text << "\n" << report;
    report.clear();
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                                text.str());
}

void Failure::raise_other(const char *what, berm_status_t status) {
    report.clear();
    TORCH_CHECK(false, what, ": ", berm_status_name(status), ": ", berm_error_message());
}

} // namespace berm_torch
