// SPDX-License-Identifier: Apache-2.0
// Checkpoints of graph pools, for cudagraph trees: what lives in a pool at one time, to be made so
// again before another graph is captured on top of it.
#include "adapters/torch/subclass/allocator.h"

namespace berm_torch {

namespace {

struct State final : caching::AllocatorState {
    State(DeviceIndex of_device, berm_pool_state_t *taken) : device(of_device), state(taken) {}
    ~State() override { berm_pool_state_destroy(state); }
    State(const State &) = delete;
    State &operator=(const State &) = delete;

    const DeviceIndex device;
    berm_pool_state_t *const state;
};

// What libberm tells of a restoration; it is acted upon when the whole of it is known.
struct Change {
    struct Block {
        berm_addr_t addr;
        uint64_t size;
    };
    std::vector<Block> freed, allocated;
};

void freed_add(void *context, berm_addr_t addr, uint64_t size) {
    static_cast<Change *>(context)->freed.push_back({addr, size});
}

void allocated_add(void *context, berm_addr_t addr, uint64_t size) {
    static_cast<Change *>(context)->allocated.push_back({addr, size});
}

} // namespace

std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(DeviceIndex device,
                                                                       MempoolId_t id) {
    berm_pool_state_t *state = nullptr;
    check("berm_pool_state_take", berm_pool_state_take(device, pool_id_of(id), &state));
    return std::make_shared<State>(device, state);
}

// The events of a restoration: all is freed, and then what lives afterwards is allocated.
void Allocator::checkpoint_note(bool is_allocated, DeviceIndex device, void *pointer, size_t size) {
    if (!history_.is_watched())
        return;
    const MempoolId_t pool = pool_of(pointer);
    const auto note = [&](History::Entry::Action action) {
        history_.add(action, device, address_of(pointer), size, nullptr, pool, nullptr);
    };
    if (is_allocated) {
        note(History::Entry::ALLOC);
        return;
    }
    history_.block_remove(pointer);
    note(History::Entry::FREE_REQUESTED);
    note(History::Entry::FREE_COMPLETED);
}

// A block that lives before and after is in both lists, as PyTorch has it.
caching::CheckpointDelta
Allocator::setCheckpointPoolState(DeviceIndex device,
                                  std::shared_ptr<caching::AllocatorState> given) {
    const auto *state = dynamic_cast<const State *>(given.get());
    TORCH_CHECK(state != nullptr && state->device == device,
                "berm: a checkpoint of another allocator or device");
    Change change;
    check("berm_pool_state_restore",
          berm_pool_state_restore(state->state, freed_add, allocated_add, &change));
    caching::CheckpointDelta delta;
    Figures &figures = *figures_.at(static_cast<size_t>(device));
    const c10::Device where(c10::DeviceType::CUDA, device);
    for (const Change::Block &block : change.freed) {
        figures.remove(rounded(block.size),
                       Config::has_divisions() ? asked_for(block.addr, block.size) : block.size);
        delta.ptrs_freed.push_back(pointer_of(block.addr));
        checkpoint_note(false, device, pointer_of(block.addr), block.size);
    }
    for (const Change::Block &block : change.allocated) {
        void *pointer = pointer_of(block.addr);
        figures.add(rounded(block.size), block.size);
        delta.dataptrs_allocd.emplace_back(pointer, pointer, &delete_block, where);
        checkpoint_note(true, device, pointer, block.size);
    }
    return delta;
}

} // namespace berm_torch
