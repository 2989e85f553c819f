// SPDX-License-Identifier: Apache-2.0
// What adapters that serve a whole process allocate with: the consumer's tag, and its own heap's
// figures stay those of everything else in the process.
#ifndef BERM_ADAPTERS_TAGGED_H
#define BERM_ADAPTERS_TAGGED_H

#include "berm.h"
#include "berm_diagnose.h"

// berm_alloc with the tag; without it where the thread has too many, or names are used up.
static inline berm_status_t berm_tagged_alloc(const char *tag, uint64_t size_bytes, int device,
                                              berm_stream_t stream, berm_addr_t *out) {
    bool is_tagged = berm_tag_push(tag) == BERM_OK;
    berm_status_t status = berm_alloc(size_bytes, device, stream, out);
    if (is_tagged)
        (void)berm_tag_pop();
    return status;
}

// Nothing is left to be freed, and nobody to tell.
static inline bool berm_free_is_over(berm_status_t status) {
    return status == BERM_OK || status == BERM_ERROR_SHUTDOWN || status == BERM_ERROR_FORKED;
}

#endif
