// SPDX-License-Identifier: Apache-2.0
// Who is told when memory comes behind addresses of a device, or goes: berm_observe of
// berm_introspect.h. The layer below tells one function (gpu.h: tell), which is set while there is
// an observer.
//
// Locks: the device's, also while observers are called.
#ifndef BERM_POLICY_OBSERVE_H
#define BERM_POLICY_OBSERVE_H

#include "berm_introspect.h"
#include "policy/device.h"

// From now on what happens to the device's addresses is noted in the event ring, and told to
// observers. Before anything is mapped.
void berm__observe_begin(berm_device_t *device);
// STATE: there is one with the function and argument; OUT_OF_HOST_MEMORY.
berm_status_t berm__observer_add(berm_device_t *device, berm_event_fn fn, void *arg);
// ARGUMENT: there is none.
berm_status_t berm__observer_remove(berm_device_t *device, berm_event_fn fn, void *arg);
void berm__observers_destroy(berm_device_t *device);

#endif
