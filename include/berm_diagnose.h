// SPDX-License-Identifier: Apache-2.0
// berm: who holds the memory, and why a request failed: tags. See berm.h for words, guarantees and
// the cost lines, berm_introspect.h for figures and questions.
#ifndef BERM_DIAGNOSE_H
#define BERM_DIAGNOSE_H

#include "berm_introspect.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------
// Tags
// ---------------------------------------------------------------------------------------------

enum {
    BERM_TAG_BYTES = 48,      // of a name, with its NUL
    BERM_TAG_COUNT_MAX = 255, // names in a process
    BERM_TAG_DEPTH_MAX = 32,  // tags of a thread at one time
};

// From now on, until the matching berm_tag_pop, each block that the calling thread asks for has
// this tag: berm_whatis and berm_walk tell it, reports and exports sort by it. Tags nest, and the
// innermost one counts. A tag belongs to its thread; it starts nothing, and stays over
// berm_shutdown.
//   name  1 to 47 bytes of UTF-8, copied; equal names are one tag
// Errors: ARGUMENT (NULL, empty, too long, or a control character in it), TAGS, STATE (32 tags of
// the thread are pushed). In a child of fork() it works.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_push(const char *name);

// Ends the innermost tag of the calling thread.
// Errors: STATE (the thread has none).
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_pop(void);

#ifdef __cplusplus
}
#endif

#endif
