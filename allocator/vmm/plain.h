// SPDX-License-Identifier: Apache-2.0
// Plain segments: one cuMemAlloc each. Their ranges, slabs and tables are those of any segment, but
// all of the span has memory from the start until the segment goes, and nothing in it can move.
//
//   cuMemAlloc   |  plain_bytes                               |
//   segment      |base, at a cell's multiple    + span_bytes |   as a rule the same
//
// The driver promises no alignment that a slab could use. Where the address it gives is not a
// multiple of a cell, a little more is asked for and the segment begins inside.
//
// A segment that goes leaves its record to the next one of its size: threads that free an address
// which was no live block may still look at it, so the memory of a record is given back only when
// the device closes.
//
// Locks: the device's; open and forget also the pool's, for what the pool sees.
#ifndef BERM_VMM_PLAIN_H
#define BERM_VMM_PLAIN_H

#include "vmm/segment.h"

// Gets memory for a segment of `span_bytes` (a multiple of the granule), which nobody can find yet.
// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST. Calls the driver. Knows no limit:
// the caller keeps it. *out is NULL on failure.
berm_status_t berm__plain_create(berm_store_t *store, berm_addr_dir_t *dir, uint64_t span_bytes,
                                 void *pool, berm_segment_t **out);
// The same of memory that is there: `bytes` at `addr`, which have room for the span at a multiple
// of a cell. Calls no driver. OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY.
berm_status_t berm__plain_adopt(berm_store_t *store, berm_addr_dir_t *dir, uint64_t span_bytes,
                                void *pool, berm_addr_t addr, uint64_t bytes, berm_segment_t **out);
// Enters it into the address directory, all of it one FREE range. OUT_OF_HOST_MEMORY,
// OUT_OF_ADDRESSES: it stays as it was.
berm_status_t berm__plain_open(berm_segment_t *segment, berm_node_slab_t *nodes);

// Takes the segment out of the address directory, before its memory goes: from then on its
// addresses may be another's. Show undoes that; false where they are by now.
void berm__plain_hide(berm_segment_t *segment);
bool berm__plain_show(berm_segment_t *segment);
// Gives the memory back; nothing of it is used, or can be from here on. On failure nothing is known
// of it. Calls the driver, which waits for the device.
berm_status_t berm__plain_free(berm_segment_t *segment);
// Forgets the segment, open or not, and counts its memory no more: after a free, or where the
// memory is left to the end of the process.
void berm__plain_forget(berm_segment_t *segment);

// Frees the records of segments that are gone. No find can be running.
void berm__plain_spares_free(berm_store_t *store);

#endif
