// SPDX-License-Identifier: Apache-2.0
// A segment: one reservation of device addresses that belongs to one pool, the ranges that tile it,
// which granules have memory behind them, and from an address back to the block. It maps and unmaps
// what it is told; which and when is policy.
//
//   base                                                                    base + span
//   |  slab | block |free| block |  free  |      void      | block | void ...  |
//   |granule|granule|granule|granule|granule|granule| ...     handle_of[], ticket_of[]
//   |cell|cell| ... 64 KiB each                               cells[]
//
// Invariants (docs/invariants.md), beside I1 to I4 of its ranges:
//   I5  a granule has a handle exactly if a range that is not VOID overlaps it; VOID ranges are
//       whole granules, and so are POISONED ones, which may have handles or not, and STALE ones,
//       which have none
//   I6  a handle of n granules stands in handle_of n times in a row, once, and names this segment;
//       in a segment that has views one of a single granule may stand several times
//   I7  every LIVE range that is no slab has its cell point to it, every cell of a slab to the
//       slab; every other cell is 0
//   I8  the ticket of a granule with a handle is one that the pool's stream has given out
//   I22 its handles are of its store, and mapped_bytes is the sum of them
//   I28 the one handle of a plain segment is all of it, nothing is VOID, and the span lies within
//       the allocation
//
// Locks: handle_of and the driver's view of the addresses are under the device's lock; ranges,
// tickets and cells under the pool's, but for the tickets of granules that are being mapped or
// unmapped, whose ranges are BUSY. Handles change only under such ranges, so who holds the pool's
// lock may read those of ranges that are not BUSY. Cells may be read without a lock by who holds a
// live block (policy above).
#ifndef BERM_VMM_SEGMENT_H
#define BERM_VMM_SEGMENT_H

#include "core/addr_dir.h"
#include "core/ranges.h"
#include "core/size_class.h"
#include "vmm/phys.h"

typedef struct berm_segment {
    // Constant after creation.
    berm_gpu_t *gpu;
    berm_store_t *store; // of all its handles
    void *pool;          // the owner, for the layers above
    berm_addr_t base;
    uint64_t span_bytes;
    berm_addr_dir_t *dir;
    berm_addr_entry_t dir_entry;
    berm_list_t link; // of the pool's list; changed under both locks
    // Under the pool's lock.
    void *planned;    // the plan whose arena it is, for the layers above; changed under both
    bool has_views;   // its handles may stand several times; under the device's lock as well
    bool was_planned; // it was one's before
    berm_ranges_t ranges;
    uint64_t *ticket_of;       // per granule: last ticket of the pool's stream; 0: never mapped
    _Atomic(uintptr_t) *cells; // per cell: 0, a berm_range_t *, or a slab with bit 0 set
    // Under the device's lock.
    berm_phys_handle_t **handle_of; // per granule; NULL: nothing mapped
    berm_range_t *stale;            // first of the STALE ranges (as.stale.next)
    uint64_t poisoned_bytes;
    uint64_t mapped_bytes; // of all its handles (I22)
    // Plain segments (plain.h).
    bool is_plain;
    bool is_exported;       // another process may have it open: it stays
    bool is_hidden;         // taken out of the address directory, on its way to the driver
    berm_addr_t plain_addr; // what cuMemAlloc gave; 0 once it is given back
    uint64_t plain_bytes;   // what was asked of it
    uint64_t table_bytes;   // the span that the tables have room for
    void *source_return;    // memory of a pool's source: how it goes back, for the layers above
} berm_segment_t;

// Reserves `span_bytes` (a multiple of the granule) of addresses. OUT_OF_ADDRESSES,
// OUT_OF_HOST_MEMORY, DRIVER, DEVICE_LOST. Calls the driver. *out is NULL on failure.
berm_status_t berm__segment_create(berm_gpu_t *gpu, berm_store_t *store, berm_addr_dir_t *dir,
                                   uint64_t span_bytes, void *pool, berm_segment_t **out);
// Makes it one VOID range, with a node of `nodes`, and lets its addresses be found. Calls no
// driver; the pool's lock is held. OUT_OF_HOST_MEMORY, OUT_OF_ADDRESSES.
berm_status_t berm__segment_open(berm_segment_t *segment, berm_node_slab_t *nodes);
// Nothing may be mapped. Gives the addresses back; if the driver refuses they are lost, and counted
// nowhere any more. Calls the driver.
void berm__segment_destroy(berm_segment_t *segment);

// The record and its tables, all zero, for a span of up to `table_bytes`; NULL without host memory.
berm_segment_t *berm__segment_record_make(berm_gpu_t *gpu, uint64_t table_bytes);
void berm__segment_record_free(berm_segment_t *segment);

static inline uint64_t berm__segment_granule_of(const berm_segment_t *segment,
                                                uint64_t offset_bytes) {
    return offset_bytes >> segment->gpu->lg_granule;
}

// The ticket of memory that no work uses: it has always passed. 0 is no ticket at all.
#define BERM_TICKET_NONE UINT64_C(1)

// Maps idle handles into the granules [first, first + count), none of which is mapped, and makes
// them accessible with one cuMemSetAccess. The idle handles must fill it exactly: `large` large
// ones first, then small ones; those of `aliased` before the store's. On failure nothing is mapped
// and the handles are idle again; if the driver then also refuses to unmap, BERM_ERROR_CORRUPTION:
// the caller poisons the range.
berm_status_t berm__segment_map(berm_segment_t *segment, uint64_t first, uint64_t count,
                                uint64_t large, berm_aliased_t *aliased);

// The parts of that, for a segment that has views: to be called before the first map; maps one
// granule with a handle that is taken, or stands in the segment already; makes [first, first +
// count) accessible, or takes the maps back; takes them back, and returns `status`, or CORRUPTION.
berm_status_t berm__segment_edit_begin(berm_segment_t *segment);
berm_status_t berm__segment_map_one(berm_segment_t *segment, uint64_t granule,
                                    berm_phys_handle_t *handle);
berm_status_t berm__segment_access(berm_segment_t *segment, uint64_t first, uint64_t count);
berm_status_t berm__segment_map_undo(berm_segment_t *segment, uint64_t first, uint64_t end,
                                     berm_status_t status);

// The same with one idle handle of exactly `granules`.
berm_status_t berm__segment_map_whole(berm_segment_t *segment, uint64_t first, uint32_t granules);

// Unmaps the granules [first, first + count), whole handles all of them, with one cuMemUnmap; the
// handles become idle, but for those that have other views. On failure nothing is known of the
// range: the caller poisons it.
berm_status_t berm__segment_unmap(berm_segment_t *segment, uint64_t first, uint64_t count);

// Tells whoever wants to know that memory is behind addresses now, or is about to go
// (berm_introspect.h: berm_event_kind_t).
static inline void berm__segment_tell(const berm_segment_t *segment, int kind, berm_addr_t addr,
                                      uint64_t size_bytes) {
    if (BERM_UNLIKELY(segment->gpu->tell != NULL))
        segment->gpu->tell(segment, kind, addr, size_bytes);
}

// The records of an unmap, for a handle that one granule, or one run, names no more: without a
// view it becomes idle.
void berm__segment_forget(berm_segment_t *segment, berm_phys_handle_t *handle);

// The run of granules of whole handles that lies inside [start, start + size): false if none.
bool berm__segment_whole_handles(const berm_segment_t *segment, uint64_t start_bytes,
                                 uint64_t size_bytes, uint64_t *first, uint64_t *count);

// Remembers that the pool's stream, at `ticket`, used the bytes.
void berm__segment_ticket_set(berm_segment_t *segment, uint64_t start_bytes, uint64_t size_bytes,
                              uint64_t ticket);

// Slots: what an address belongs to.
enum {
    BERM_CELL_IS_SLAB = 1
};
static inline uintptr_t berm__segment_cell_read(const berm_segment_t *segment,
                                                uint64_t offset_bytes) {
    return atomic_load_explicit(&segment->cells[offset_bytes / BERM_CELL_BYTES],
                                memory_order_acquire);
}
static inline void berm__segment_cell_write(berm_segment_t *segment, uint64_t offset_bytes,
                                            uintptr_t value) {
    atomic_store_explicit(&segment->cells[offset_bytes / BERM_CELL_BYTES], value,
                          memory_order_release);
}
// The same for all cells of a run.
void berm__segment_cells_write(berm_segment_t *segment, uint64_t start_bytes, uint64_t size_bytes,
                               uintptr_t value);

#endif
