// SPDX-License-Identifier: Apache-2.0
// Captures: which streams are being captured into a graph, asked of the driver where it matters.
//
// While a stream is captured, nothing may be asked of it and no event of berm's may be recorded on
// it (it would become part of the graph); while any stream of a context is, the context can be
// neither synchronised nor recorded. What needs one of these waits until the capture is over: a
// ticket stays open, and what holds it stays awaited.
//
// The driver can be asked about one stream at a time. So a capture is known of where its stream is:
// one that berm has seen, or one that a route (front/route.h) is about to take requests from.
//
// Locks: the device's; the context is current.
#ifndef BERM_POLICY_CAPTURE_H
#define BERM_POLICY_CAPTURE_H

#include "base/list.h"
#include "vmm/gpu.h"

// Ids of captures are the driver's.
#define BERM_CAPTURE_NONE    UINT64_C(0)
#define BERM_CAPTURE_UNKNOWN UINT64_MAX // there is one; the driver does not say which

// What is known of captures on one device.
typedef struct berm_watch {
    struct berm_device *device; // whose streams are asked
    uint32_t capture_routes;    // routes into private pools: while there is one, assume a capture
} berm_watch_t;

// The capture that a stream is part of. DRIVER, DEVICE_LOST. Calls the driver.
berm_status_t berm__capture_read(berm_gpu_t *gpu, berm_stream_t handle, uint64_t *id);
// Whether any stream may be being captured. Calls the driver once a stream.
berm_status_t berm__capture_any(berm_gpu_t *gpu, const berm_watch_t *watch, bool *is_any);

#endif
