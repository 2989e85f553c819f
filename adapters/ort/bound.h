// SPDX-License-Identifier: Apache-2.0
// What the two ways of berm_ort.h share: the streams that are bound.
#ifndef BERM_ORT_BOUND_H
#define BERM_ORT_BOUND_H

#include "berm.h"

// The stream bound for a device; BERM_STREAM_NONE where none is.
berm_stream_t berm_ort_bound(int device);
// Frees in the order of the stream bound for the device; says on standard error what is wrong.
void berm_ort_free_on(berm_addr_t addr, int device);

#endif
