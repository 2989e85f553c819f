// SPDX-License-Identifier: Apache-2.0
// Memory beside cuMemAlloc's that cuMemFree and the end of a context meet: managed memory, and the
// blocks behind arrays. Locks: the state's.
#ifndef SIMCUDA_DRIVER_MANAGED_H
#define SIMCUDA_DRIVER_MANAGED_H

#include "sim.h"

// A block of the current context whose address no call of the program's finds (array.c).
int sim_malloc_hidden(uint64_t bytes, uint64_t *addr);
int sim_malloc_hidden_free(uint64_t addr);
// Managed memory (managed.c): the block that holds `addr`; what cuMemFree does of one that begins
// there, or false; what goes with a context (NULL: with all).
bool sim_managed_range(uint64_t addr, uint64_t *base, uint64_t *bytes);
bool sim_managed_free(uint64_t addr, int *result);
void sim_managed_free_all(const sim_context_t *context);

#endif
