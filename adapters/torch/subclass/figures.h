// SPDX-License-Identifier: Apache-2.0
// PyTorch's statistics of one device. Blocks are counted by what PyTorch would have rounded them to
// (multiples of 512 bytes), and are small up to 1 MiB: so that the figures of a program are those
// of the native allocator, whatever berm's own size classes are.
//
// Invariants, under the lock: a sum over both pools is the aggregate; no current is negative.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace berm_torch {

class Figures {
  public:
    void add(size_t requested_bytes);
    void remove(size_t requested_bytes);
    void reset_peaks();
    void reset_totals();
    // What is counted here: allocation, allocated_bytes, requested_bytes.
    void read(c10::CachingDeviceAllocator::DeviceStats *stats) const;
    int64_t allocated_bytes() const;

    // Totals of berm that PyTorch can set back to 0: what they were then. Under the caller's lock.
    struct Base {
        int64_t reserved_up = 0, reserved_down = 0, active_up = 0, active_down = 0;
        int64_t retries = 0, ooms = 0, waits = 0, creates = 0, releases = 0;
    };
    Base base;

  private:
    struct One {
        int64_t current = 0, peak = 0, up = 0, down = 0;
    };
    struct Kind {
        One blocks, allocated, requested;
    };
    class Guard {
      public:
        explicit Guard(std::atomic_flag &flag);
        ~Guard();
        Guard(const Guard &) = delete;
        Guard &operator=(const Guard &) = delete;

      private:
        std::atomic_flag &flag_;
    };
    static void raise(One *one, int64_t amount);
    static void lower(One *one, int64_t amount);

    mutable std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
    Kind kinds_[3]; // aggregate, small, large: as PyTorch's StatType
};

} // namespace berm_torch
