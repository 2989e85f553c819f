// SPDX-License-Identifier: Apache-2.0
// Options that are switches of the simulated device (docs/simcuda.md), the same for every command
// that runs on one.
#ifndef CLI_SWITCHES_H
#define CLI_SWITCHES_H

#include <getopt.h>

#include "stress/device.h"

// Values of `struct option`; a command's own lie outside.
enum {
    CLI_SWITCH_GRANULE = 128,
    CLI_SWITCH_DRAINS_MAP,
    CLI_SWITCH_FAULTS_PAGE_EDITS,
    CLI_SWITCH_DEPENDENT_LAUNCH,
    CLI_SWITCH_STALE_MAP,
};

// Rows of a command's long options.
#define CLI_SWITCH_OPTIONS                                                                         \
    {"granule", required_argument, NULL, CLI_SWITCH_GRANULE},                                      \
        {"drains-map", no_argument, NULL, CLI_SWITCH_DRAINS_MAP},                                  \
        {"faults-page-edits", no_argument, NULL, CLI_SWITCH_FAULTS_PAGE_EDITS},                    \
        {"dependent-launch", required_argument, NULL, CLI_SWITCH_DEPENDENT_LAUNCH}, {              \
        "stale-map", required_argument, NULL, CLI_SWITCH_STALE_MAP                                 \
    }

// Lines of a command's --help, by its default granule.
#define CLI_SWITCH_HELP(DEFAULT)                                                                   \
    "  --granule BYTES      what is mapped at once, a power of two from 64K; " DEFAULT "\n"        \
    "  --drains-map         map, set access and unmap wait for the device\n"                       \
    "  --faults-page-edits  a page-table edit under running work is a fault (Volta)\n"             \
    "  --dependent-launch US  a kernel starts up to so long before the one before it ends\n"       \
    "  --stale-map US       what was just mapped reads as zeros for so long (gfx12)\n"

bool cli_switch_is(int option);
// False when the option does not take the value; `text` is NULL for those without one.
bool cli_switch_parse(stress_device_options_t *device, int option, const char *text);

#endif
