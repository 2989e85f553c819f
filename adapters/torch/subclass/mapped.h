// SPDX-License-Identifier: Apache-2.0
// What is mapped, told as events: a look compares the mapped runs with those of the last look. Used
// while history or a tracker watches, so that its cost (a walk when the driver was asked to map or
// unmap since) is paid there only.
//
// LOCK: its own, over what was seen; libberm is walked under it, and `tell` is called under it, so
// that events come in the order of the looks. `tell` must not look.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>

#include "berm_introspect.h"

namespace berm_torch {

struct MappedChange {
    bool is_mapped; // else unmapped
    c10::DeviceIndex device;
    berm_addr_t addr;
    std::size_t size;
    berm_stream_t stream;
    berm_pool_id_t pool;
};

class Mapped {
  public:
    using Tell = std::function<void(const MappedChange &)>;

    // From now on only what changes is told.
    void begin(int device_count);
    void look(int device_count, const Tell &tell);

  private:
    struct Run {
        berm_addr_t addr, end;
        berm_stream_t stream;
        berm_pool_id_t pool;
    };
    using Runs = std::vector<Run>; // by address, none overlaps

    static Runs walk(int device);
    static void subtract(const Runs &from, const Runs &what, MappedChange change, const Tell &tell);

    std::mutex lock_;
    std::uint64_t calls_ = 0; // of the driver, that edit mappings, at the last look
    std::vector<Runs> runs_;  // by device
};

} // namespace berm_torch
