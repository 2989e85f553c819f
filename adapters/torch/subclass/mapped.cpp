// SPDX-License-Identifier: Apache-2.0
#include "adapters/torch/subclass/mapped.h"

#include <algorithm>

namespace berm_torch {

void Mapped::keep(void *self, const berm_event_t *event) {
    auto *mapped = static_cast<Mapped *>(self);
    const std::lock_guard<std::mutex> guard(mapped->lock_);
    mapped->kept_.push_back(*event);
}

// Whether it is watched from now on, and was not before.
bool Mapped::watch(int device) {
    const auto index = static_cast<std::size_t>(device);
    if (is_watched_.size() <= index)
        is_watched_.resize(index + 1);
    if (is_watched_[index] || berm_observe(device, keep, this) != BERM_OK)
        return false;
    is_watched_[index] = true;
    return true;
}

// What is mapped, as events; nothing of a device that was not used yet.
std::vector<berm_event_t> Mapped::walk(int device) {
    std::vector<berm_event_t> runs;
    const auto add = [](void *context, const berm_walk_segment_t *segment,
                        const berm_walk_block_t *block) {
        if (block != nullptr)
            return;
        berm_event_t event{};
        event.size = sizeof event;
        event.device = segment->device;
        event.kind = segment->is_plain ? BERM_EVENT_ALLOC : BERM_EVENT_MAP;
        event.addr = segment->addr;
        event.size_bytes = segment->size_bytes;
        event.stream = segment->stream;
        event.pool = segment->pool;
        static_cast<std::vector<berm_event_t> *>(context)->push_back(event);
    };
    (void)berm_walk(device, add, &runs);
    return runs;
}

// What is mapped, before all that was kept: parts of it that were mapped since the device is
// watched are told there already.
void Mapped::add_mapped(int device) {
    std::vector<berm_event_t> runs = walk(device);
    const std::lock_guard<std::mutex> guard(lock_);
    const auto is_kept = [this](const berm_event_t &run) {
        return std::any_of(kept_.begin(), kept_.end(), [&run](const berm_event_t &event) {
            return event.device == run.device && event.addr < run.addr + run.size_bytes &&
                   run.addr < event.addr + event.size_bytes;
        });
    };
    runs.erase(std::remove_if(runs.begin(), runs.end(), is_kept), runs.end());
    kept_.insert(kept_.begin(), runs.begin(), runs.end());
}

void Mapped::begin(int device_count) {
    const std::lock_guard<std::mutex> told(told_lock_);
    for (int device = 0; device < device_count; device++)
        if (!walk(device).empty())
            (void)watch(device);
}

void Mapped::end() {
    const std::lock_guard<std::mutex> told(told_lock_);
    for (std::size_t device = 0; device < is_watched_.size(); device++)
        if (is_watched_[device])
            (void)berm_unobserve(static_cast<int>(device), keep, this);
    is_watched_.clear();
    const std::lock_guard<std::mutex> guard(lock_);
    kept_.clear();
}

void Mapped::look(int device, const Tell &tell) {
    const std::lock_guard<std::mutex> told(told_lock_);
    if (device >= 0 && watch(device))
        add_mapped(device);
    std::vector<berm_event_t> events;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        events.swap(kept_);
    }
    for (const berm_event_t &event : events)
        tell(event);
}

} // namespace berm_torch
