// SPDX-License-Identifier: Apache-2.0
// The thread of the option background_thread: it ticks the decay of every device, in steps, as long
// as berm runs. It takes each device's lock for a tick and no other.
#ifndef BERM_FRONT_BACKGROUND_H
#define BERM_FRONT_BACKGROUND_H

#include "base/defs.h"

// All under the heap's lock. Start logs a line if there can be no thread, and berm goes on without.
void berm__background_start(void);
// decay_ms has changed.
void berm__background_wake(void);
// Before the devices are closed.
void berm__background_stop(void);

#endif
