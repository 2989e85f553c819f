// SPDX-License-Identifier: Apache-2.0
// The parts of an audit of one device (audit.c): what is walked once is summed here, and compared
// when the walk is over. Every check returns 0, or the number of the invariant that does not hold
// and a line in `error`. Locks: the device's.
#ifndef BERM_FRONT_AUDIT_H
#define BERM_FRONT_AUDIT_H

#include "policy/pool.h"

// What must agree with figures that are kept elsewhere.
typedef struct berm_audit_sums {
    uint64_t mapped_handles, mapped_bytes; // a handle with several views counts as often
    uint64_t extra_views;                  // beyond one for each handle
    uint64_t poisoned_bytes, address_bytes, exported_bytes;
    uint64_t stale_mappings, stale_bytes;
    uint64_t requested_bytes, allocated_bytes, awaited_bytes, blocks;
    uint64_t plain_handles;
    uint64_t plain_slack_bytes; // of plain allocations, beside their segments
    uint64_t held_blocks, pinned_bytes, pins_of_handles;
    struct {
        uint64_t blocks, requested_bytes, allocated_bytes;
    } tags[BERM_TAG_NUMBERS]; // of live blocks
} berm_audit_sums_t;

typedef struct berm_audit {
    const berm_device_t *device;
    const berm_pool_t *pool; // being walked; NULL: none, the line names only the device
    char *error;
    size_t error_capacity;
    berm_audit_sums_t sums; // over what was walked so far
} berm_audit_t;

// Writes "I5: device 0, stream 0x…, address 0x…: …" and returns the number. `addr` 0 is left out.
int berm__audit_fail(const berm_audit_t *audit, int number, berm_addr_t addr, const char *format,
                     ...) BERM_PRINTF(4, 5);

// I1 to I8 of one segment of audit->pool.
int berm__audit_segment(berm_audit_t *audit, const berm_segment_t *segment);
// I34 and I35 of one, if it is a plan's arena; adds its pages to the sums.
int berm__audit_arena(berm_audit_t *audit, const berm_segment_t *segment);
// I9 and I12 to I15 of audit->pool.
int berm__audit_pool(berm_audit_t *audit);
// I23 and I25.
int berm__audit_groups(const berm_audit_t *audit);
// I31 and I33.
int berm__audit_share(const berm_audit_t *audit);
// I32, once segments were walked; how many handles leave.
int berm__audit_exports(const berm_audit_t *audit, uint64_t *leaving);
// I27, once all pools were walked.
int berm__audit_pins(const berm_audit_t *audit);
// I24. Adds the addresses of spare pools to the sums.
int berm__audit_spares(berm_audit_t *audit);
// I21. The caches are claimed.
int berm__audit_caches(const berm_audit_t *audit);

#endif
