// SPDX-License-Identifier: Apache-2.0
// Taking a recording (record/record.h) of the running heap.
#ifndef BERM_FRONT_RECORDING_H
#define BERM_FRONT_RECORDING_H

#include "berm.h"
#include "record/record.h"

// Fills *record, which is all zero: blocks, figures and events of the device,
// or of all that were used (BERM_DEVICE_ANY). A device's are of one moment. Stops each device for a
// while. On failure there is nothing to destroy. OUT_OF_HOST_MEMORY.
//   events_max  of each device, the last ones; 0: none
berm_status_t berm__recording_take(berm_record_t *record, int ordinal, uint64_t events_max);

#endif
