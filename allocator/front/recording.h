// SPDX-License-Identifier: Apache-2.0
// Taking a recording (record/record.h) of the running heap.
#ifndef BERM_FRONT_RECORDING_H
#define BERM_FRONT_RECORDING_H

#include "berm.h"
#include "record/record.h"

// Fills *record, which is all zero: blocks, figures and, where `has_events`, events of the device,
// or of all that were used (BERM_DEVICE_ANY). A device's are of one moment. Stops each device for a
// while. On failure there is nothing to destroy. OUT_OF_HOST_MEMORY.
berm_status_t berm__recording_take(berm_record_t *record, int ordinal, bool has_events);

#endif
