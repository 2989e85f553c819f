// SPDX-License-Identifier: Apache-2.0
// Imports as the rest of front/ meets them: an address that is in no segment may be in one.
//
// Locks: takes each open device's in turn.
#ifndef BERM_FRONT_SHARE_H
#define BERM_FRONT_SHARE_H

#include "front/heap.h"
#include "policy/share.h"

// The device whose import holds `addr`, locked, and the import; NULL, and nothing locked, if there
// is none. The caller unlocks.
berm_device_t *berm__import_find(berm_addr_t addr, berm_import_t **import);

// ADDRESS_IMPORTED if an import holds `addr`, else ADDRESS_UNKNOWN: for addresses in no segment.
berm_status_t berm__import_or_unknown(berm_addr_t addr);

// An import from its beginning to its end, part by part, with `call` in the messages; arguments are
// checked here. Between the calls no lock is held. One that was begun is finished or dropped; after
// a failure of `finish` it was dropped. After berm_shutdown each fails, and touches nothing.
typedef struct berm_incoming {
    const char *call;
    const berm_import_request_t *request;
    int ordinal;
    berm_import_t *import;
} berm_incoming_t;
berm_status_t berm__incoming_begin(berm_incoming_t *incoming, const char *call,
                                   const berm_import_request_t *request, int ordinal);
berm_status_t berm__incoming_part(berm_incoming_t *incoming, int fd, uint64_t part_bytes);
berm_status_t berm__incoming_finish(berm_incoming_t *incoming, berm_addr_t *addr);
void berm__incoming_drop(berm_incoming_t *incoming);

// What berm_share_send tells of a block, and the descriptor of one of its handles.
typedef struct berm_exported {
    int device;                             // ordinal
    uint32_t part_count;                    // handles, one behind the other
    uint64_t size_bytes;                    // of all of them
    uint64_t offset_bytes, requested_bytes; // of the block in them
    int fd;              // of the handle that was asked for; the caller's to close
    uint64_t part_bytes; // of that handle
} berm_exported_t;

// Which handles of a block may be exported: its own, or (option shareable) those it lies in.
typedef enum berm_export_kind {
    BERM_EXPORT_OWN,
    BERM_EXPORT_SHOWN,
} berm_export_kind_t;

// The block's handle number `part`, from 0; -1 in exported->fd on failure.
berm_status_t berm__share_export(const char *call, berm_addr_t addr, berm_export_kind_t kind,
                                 uint32_t part, berm_exported_t *exported);

#endif
