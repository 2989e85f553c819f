// SPDX-License-Identifier: Apache-2.0
// PyTorch's memory statistics of one device, with its meaning: blocks and bytes rounded to 512,
// apart for requests up to 1 MiB (small) and above (large).
//
// Each figure has two parts: one that only the owner writes, the first thread that allocates on the
// device, without atomic instructions; and one that all other threads share. A current value is the
// sum of both, and each part may be negative, since a block may be freed by another thread than the
// one that took it. Peaks are exact while no two threads allocate at once; else they may miss what
// overlapped. Thread-safe; no locks but for reading and resetting.
#ifndef BERM_TORCH_FIGURES_H
#define BERM_TORCH_FIGURES_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <c10/core/CachingDeviceAllocator.h>

namespace berm_torch {

constexpr std::size_t kSmallMax = 1 << 20;
constexpr std::size_t kBlockMin = 512;

// What a block of `size` bytes occupies in PyTorch's count.
inline std::size_t rounded(std::size_t size) {
    return (size + kBlockMin - 1) & ~(kBlockMin - 1);
}

enum Measure {
    kBlocks,
    kBytes,
    kRequested,
    kMeasures
};

// What freed blocks that some stream may still use hold: they are active and not allocated.
struct Awaited {
    std::int64_t amount[2][kMeasures] = {}; // small, large
};

// What libberm counts that PyTorch shows too.
struct Physical {
    std::int64_t reserved = 0, reserved_peak = 0, reserved_up = 0, reserved_down = 0;
    std::int64_t active_excess_peak = 0; // how far the peak of active was above that of allocated
    std::int64_t retries = 0, out_of_memory = 0, waits = 0, maps = 0, unmaps = 0;
};

class Figures {
  public:
    std::int64_t allocated_bytes() const { return current(false, kBytes) + current(true, kBytes); }

    void add(std::size_t bytes, std::size_t requested) {
        const bool is_large = bytes > kSmallMax;
        const std::int64_t amount[kMeasures] = {1, static_cast<std::int64_t>(bytes),
                                                static_cast<std::int64_t>(requested)};
        const bool is_owner = is_owned_by_caller();
        Part &part = is_owner ? owned_ : shared_;
        for (int m = 0; m < kMeasures; m++) {
            raise_by(part.current[is_large][m], amount[m], is_owner);
            raise_by(part.up[is_large][m], amount[m], is_owner);
            const std::int64_t kind = current(is_large, m);
            raise(peak_[1 + is_large][m], kind);
            raise(peak_[0][m], kind + current(!is_large, m));
        }
    }

    void remove(std::size_t bytes, std::size_t requested) {
        const bool is_large = bytes > kSmallMax;
        const std::int64_t amount[kMeasures] = {1, static_cast<std::int64_t>(bytes),
                                                static_cast<std::int64_t>(requested)};
        const bool is_owner = is_owned_by_caller();
        Part &part = is_owner ? owned_ : shared_;
        for (int m = 0; m < kMeasures; m++)
            raise_by(part.current[is_large][m], -amount[m], is_owner);
    }

    // Rejections by throw_on_cudamalloc_oom.
    void rejected() { rejections_.fetch_add(1, std::memory_order_relaxed); }

    void read(const Awaited &awaited, const Physical &physical,
              c10::CachingDeviceAllocator::DeviceStats *stats);
    void totals_reset(const Physical &physical);
    void peaks_reset();

  private:
    using Figure = std::atomic<std::int64_t>;
    struct alignas(64) Part {
        Figure current[2][kMeasures] = {}; // small, large
        Figure up[2][kMeasures] = {};
    };

    // Something that no two running threads share, and that costs nothing to get.
    static const void *caller() {
#if __has_builtin(__builtin_thread_pointer)
        return __builtin_thread_pointer();
#else
        static thread_local char token;
        return &token;
#endif
    }

    bool is_owned_by_caller() {
        const void *self = caller();
        const void *owner = owner_.load(std::memory_order_relaxed);
        if (C10_LIKELY(owner == self))
            return true;
        return owner == nullptr &&
               owner_.compare_exchange_strong(owner, self, std::memory_order_relaxed);
    }

    static void raise_by(Figure &figure, std::int64_t amount, bool is_owner) {
        if (C10_LIKELY(is_owner))
            figure.store(figure.load(std::memory_order_relaxed) + amount,
                         std::memory_order_relaxed);
        else
            figure.fetch_add(amount, std::memory_order_relaxed);
    }

    static void raise(Figure &peak, std::int64_t value) {
        std::int64_t seen = peak.load(std::memory_order_relaxed);
        while (C10_UNLIKELY(value > seen) &&
               !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
        }
    }

    std::int64_t current(bool is_large, int measure) const {
        return owned_.current[is_large][measure].load(std::memory_order_relaxed) +
               shared_.current[is_large][measure].load(std::memory_order_relaxed);
    }

    std::int64_t up(bool is_large, int measure) const {
        return owned_.up[is_large][measure].load(std::memory_order_relaxed) +
               shared_.up[is_large][measure].load(std::memory_order_relaxed);
    }

    c10::CachingAllocator::Stat stat(int type, Measure measure, const Awaited *awaited);

    std::atomic<const void *> owner_{nullptr};
    Part owned_, shared_;
    alignas(64) Figure peak_[3][kMeasures] = {}; // all, small, large
    Figure rejections_{0};

    std::mutex lock_;                           // of what follows
    std::int64_t up_base_[2][kMeasures] = {};   // what the last reset of totals saw
    std::int64_t down_base_[2][kMeasures] = {}; //
    Physical base_;                             //
};

} // namespace berm_torch

#endif
