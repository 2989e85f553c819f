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

// berm_import of a part of a handle, with `call` in the messages. Arguments are checked here.
berm_status_t berm__share_import(const char *call, const berm_import_request_t *request,
                                 int ordinal, berm_addr_t *addr);

// What berm_share_send tells of a block.
typedef struct berm_exported {
    int fd;                                 // the caller's to close
    int device;                             // ordinal
    uint64_t size_bytes;                    // of the handle
    uint64_t offset_bytes, requested_bytes; // of the block in it
} berm_exported_t;

// berm_export with all that is known; -1 in exported->fd on failure.
berm_status_t berm__share_export(const char *call, berm_addr_t addr, berm_exported_t *exported);

#endif
