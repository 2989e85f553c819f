// SPDX-License-Identifier: Apache-2.0
// Other devices than the fixture's: a stream of each, and who may use an address. The context of
// device 0 is current before and after each call.
#ifndef BERM_TESTS_PEER_DEVICE_H
#define BERM_TESTS_PEER_DEVICE_H

#include <stdint.h>

#include "berm.h"

// What `device` may do at an address: 0 nothing, 1 read, 3 read and write (cuMemGetAccess).
int peer_access_of(berm_addr_t addr, int device);

// A stream of the device, the same each time.
void *peer_stream(int device);

// What is queued on the device's stream from now on comes after all that is queued on `other`, a
// stream of device 0, by now.
void peer_follow(int device, void *other);

// Queues a kernel on the device's stream that writes the block.
void peer_use(int device, berm_addr_t addr, uint64_t size_bytes, uint64_t duration_ns);

// Waits for the streams, destroys them and lets the devices' contexts go.
void peer_devices_end(void);

#endif
