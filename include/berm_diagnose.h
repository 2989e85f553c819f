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

// Of a tag over time; both totals count up from the start of berm.
typedef struct berm_tag_figure {
    uint64_t current, total_up, total_down;
} berm_tag_figure_t;

// What was allocated under a tag on one device.
typedef struct berm_tag_stats {
    size_t size; // sizeof(berm_tag_stats_t) of the caller
    int device;
    uint32_t reserved_;
    berm_tag_figure_t blocks;          // live; requests; frees
    berm_tag_figure_t requested_bytes; //
    berm_tag_figure_t allocated_bytes; // what the blocks occupy
} berm_tag_stats_t;

#define BERM_TAG_STATS_INIT BERM_SIZED_INIT(berm_tag_stats_t)

// Fills *stats for the tag `name`; a name that was never pushed has zeros. Blocks are counted down
// when they are freed, also where a stream may still use them. Starts nothing.
// Errors: ARGUMENT, VERSION, DEVICE, SHUTDOWN, FORKED.
// Driver: never. Waits: never. Streams: none.
BERM_API berm_status_t berm_tag_stats_read(int device, const char *name, berm_tag_stats_t *stats);

// Every tag that was ever pushed, in the order of first use: index from 0; NULL past the end.
// Static strings. Starts nothing.
// Driver: never. Waits: never. Streams: none.
BERM_API const char *berm_tag_name(size_t index);

#ifdef __cplusplus
}
#endif

#endif
