// SPDX-License-Identifier: Apache-2.0
// The thread of the option live_page: it publishes the statistics of every device for berm top
// (host/live.h), several times a second.
#ifndef BERM_FRONT_LIVE_H
#define BERM_FRONT_LIVE_H

// Both with the heap's lock held. Start does nothing without the option; where there is no file or
// no thread to be had, a line says so.
void berm__live_start(void);
void berm__live_stop(void);

#endif
