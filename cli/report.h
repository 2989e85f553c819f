// SPDX-License-Identifier: Apache-2.0
// The parts of `berm report`.
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli/cli.h"
#include "record/record.h"

// Prints where live blocks of the device were asked for; nothing where call sites were not noted.
void cli_report_sites(const berm_record_t *record, const berm_record_device_t *device);

#endif
