// SPDX-License-Identifier: Apache-2.0
// Parses the switches of the simulated device: see switches.h.
#include "cli/switches.h"

#include "base/bits.h"
#include "cli/cli.h"

#define SWITCH_US_MAX 1000000
#define GRANULE_LEAST (UINT64_C(64) << 10)

bool cli_switch_is(int option) {
    return option >= CLI_SWITCH_GRANULE && option <= CLI_SWITCH_STALE_MAP;
}

static bool parse_us(const char *text, uint64_t *ns) {
    uint64_t us = 0;
    bool is_good = cli_parse_u64(text, 1, SWITCH_US_MAX, &us);
    *ns = us * 1000;
    return is_good;
}

bool cli_switch_parse(stress_device_options_t *device, int option, const char *text) {
    switch (option) {
    case CLI_SWITCH_GRANULE:
        return cli_parse_bytes(text, &device->granule_bytes) &&
               device->granule_bytes >= GRANULE_LEAST && device->granule_bytes <= BERM_GIB(1) &&
               berm__is_pow2(device->granule_bytes);
    case CLI_SWITCH_DRAINS_MAP:
        return device->drains_map = true;
    case CLI_SWITCH_FAULTS_PAGE_EDITS:
        return device->faults_page_edits = true;
    case CLI_SWITCH_DEPENDENT_LAUNCH:
        return parse_us(text, &device->pdl_overlap_ns);
    default:
        return parse_us(text, &device->stale_map_ns);
    }
}
