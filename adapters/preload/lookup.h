// SPDX-License-Identifier: Apache-2.0
// Functions of the driver that programs look up: by cuGetProcAddress, by the runtime's
// cudaGetDriverEntryPoint, and by dlsym, which is how a runtime reaches the driver.
//
// Locks: none.
#ifndef PRELOAD_LOOKUP_H
#define PRELOAD_LOOKUP_H

#include <stdint.h>

// Ours in the place of `found`, which the driver gave for `name` with these flags of
// cuGetProcAddress; `found` itself where it is no form of a function that we know.
void *lookup_replace(const char *name, uint64_t flags, void *found);

#endif
