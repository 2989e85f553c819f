// SPDX-License-Identifier: Apache-2.0
// What is mapped and unmapped, told as events of segments. libberm tells of each, in its order,
// with a device locked (berm_observe): there they are kept, and told on when a call of PyTorch's
// allocator comes by that may run PyTorch's code. Used while history or a tracker watches.
//
// A device is watched from its first call on that comes by: libberm opens it when it is asked to
// watch it, and a program may never use all of them. What is mapped there by then is told as
// mapped.
//
// LOCKS: `told_lock_`, over telling on, so that events keep their order: `tell` runs under it and
// must not come by again. `lock_`, over what is kept: nothing is called under it, and libberm's
// locks are above it.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "berm_introspect.h"

namespace berm_torch {

class Mapped {
  public:
    using Tell = std::function<void(const berm_event_t &)>;

    // From now on what changes is kept; what is mapped already is not told.
    void begin(int device_count);
    // Nothing is kept any more.
    void end();
    // Watches the device, -1 for none more, and tells on what was kept.
    void look(int device, const Tell &tell);

  private:
    static void keep(void *self, const berm_event_t *event);
    static std::vector<berm_event_t> walk(int device);
    bool watch(int device);
    void add_mapped(int device);

    std::mutex told_lock_, lock_;
    std::vector<berm_event_t> kept_; // under lock_
    std::vector<bool> is_watched_;   // by device, under told_lock_
};

} // namespace berm_torch
