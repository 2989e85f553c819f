// SPDX-License-Identifier: Apache-2.0
// Memory of another process, opened by a legacy IPC handle.
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "sim.h"

// Takes the block away, however often it was opened: its mapping, addresses and memory.
void sim_opened_destroy(sim_opened_t *opened);

#endif
