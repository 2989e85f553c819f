// SPDX-License-Identifier: Apache-2.0
// What an allocation costs through torch's own functions, under the allocator that is current:
// called by bench.py. No stream has work, so that it is the host's time alone.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr int kRounds = 60; // the best of them counts, so that a busy machine disturbs little

template <typename Body> double best_ns(std::int64_t count, Body body) {
    double best = 1e18;
    for (int round = 0; round < kRounds; round++) {
        const auto begin = std::chrono::steady_clock::now();
        body();
        const std::chrono::duration<double, std::nano> spent =
            std::chrono::steady_clock::now() - begin;
        best = std::min(best, spent.count() / static_cast<double>(count));
    }
    return best;
}

std::size_t size_draw(std::mt19937_64 &random) {
    // From 512 bytes to 4 MiB, each doubling alike.
    const double power = std::uniform_real_distribution<double>(9, 22)(random);
    return static_cast<std::size_t>(std::exp2(power));
}

} // namespace

// Allocating and freeing `size` bytes, one after the other.
extern "C" __attribute__((visibility("default"))) double pair_ns(std::int64_t count,
                                                                 std::size_t size) {
    return best_ns(count, [=] {
        for (std::int64_t i = 0; i < count; i++)
            allocator::raw_delete(allocator::raw_alloc(size));
    });
}

// Freeing a block of `live` at random and allocating another size in its place.
extern "C" __attribute__((visibility("default"))) double churn_ns(std::int64_t count, int live) {
    std::mt19937_64 random(1);
    std::vector<void *> blocks(static_cast<std::size_t>(live));
    for (void *&block : blocks)
        block = allocator::raw_alloc(size_draw(random));
    std::vector<std::pair<std::size_t, std::size_t>> plan(static_cast<std::size_t>(count));
    for (auto &step : plan)
        step = {random() % blocks.size(), size_draw(random)};
    const double best = best_ns(count, [&] {
        for (const auto &step : plan) {
            allocator::raw_delete(blocks[step.first]);
            blocks[step.first] = allocator::raw_alloc(step.second);
        }
    });
    for (void *block : blocks)
        allocator::raw_delete(block);
    return best;
}
