// SPDX-License-Identifier: Apache-2.0
// Blocks that can be exported: from a pool of device 0 that is made for them.
#ifndef BERM_TESTS_EXPORTABLE_H
#define BERM_TESTS_EXPORTABLE_H

#include <stdint.h>

#include "berm.h"

// Aborts where the fixture's driver refuses, but for `status` (may be NULL), which says how it
// went.
berm_addr_t exportable_alloc(uint64_t size_bytes, void *stream, berm_status_t *status);

#endif
