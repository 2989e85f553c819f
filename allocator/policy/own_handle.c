// SPDX-License-Identifier: Apache-2.0
// The handles of blocks: none is a block's own yet.
#include "policy/share.h"

berm_phys_handle_t *berm__block_own_handle(const berm_block_t *block) {
    (void)block;
    return NULL;
}

void berm__handle_exported(berm_phys_handle_t *handle) {
    (void)handle;
}
