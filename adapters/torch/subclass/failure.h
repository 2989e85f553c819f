// SPDX-License-Identifier: Apache-2.0
// What happens when a request fails: observers are told, and torch.OutOfMemoryError is raised with
// libberm's report in its text. Thread-safe; observers are called without a lock held.
#ifndef BERM_TORCH_FAILURE_H
#define BERM_TORCH_FAILURE_H

#include <mutex>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

#include "berm.h"

namespace berm_torch {

// What the text of an error needs beside libberm's own words.
struct Shortage {
    c10::DeviceIndex device;
    std::size_t size;                      // asked for
    std::int64_t allocated, reserved;      // by PyTorch's count; physical
    std::size_t free_bytes, total_bytes;   // of the device
    std::size_t limit_bytes;               // UINT64_MAX: none
};

bool is_shortage(berm_status_t status);

class Failure {
  public:
    // Takes libberm's reports of requests that fail.
    static void start();

    void attach(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer);
    void attach_rejection(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer);

    void observers_tell(const Shortage &shortage);
    void rejection_tell(const Shortage &shortage);

    // Throws c10::OutOfMemoryError. To be called by the thread whose request failed, before its next
    // call of libberm.
    [[noreturn]] static void raise(const Shortage &shortage);

    // Throws c10::Error with what libberm says about the last failure of this thread.
    [[noreturn]] static void raise_other(const char *what, berm_status_t status);

  private:
    std::mutex lock_; // of the lists
    std::vector<c10::cuda::CUDACachingAllocator::OutOfMemoryObserver> observers_;
    std::vector<c10::cuda::CUDACachingAllocator::OomRejectionObserver> rejection_observers_;
};

} // namespace berm_torch

#endif
