// SPDX-License-Identifier: Apache-2.0
// Primitive blocks and stitched views of the GMLake model: shared by gmlake.c (the policy),
// gmlake_space.c (segments and blocks) and gmlake_views.c.
#ifndef STRESS_BASELINES_GMLAKE_SPACE_H
#define STRESS_BASELINES_GMLAKE_SPACE_H

#include "stress/baselines/pytorch_blocks.h"

typedef struct gmlake_view gmlake_view_t;

// Physical memory, mapped at its home address and in any number of views.
typedef struct gmlake_granule {
    berm_cu_mem_handle_t handle;
    uint64_t home;         // address in its segment
    gmlake_view_t **views; // that map it, each once
    size_t view_count, view_capacity;
    bool is_used;
} gmlake_granule_t;

typedef struct gmlake_segment {
    ordered_node_t node; // by address
    uint64_t addr;
    size_t granule_count;
    gmlake_granule_t *granules;
} gmlake_segment_t;

typedef enum gmlake_state {
    GMLAKE_FREE,
    GMLAKE_LIVE, // handed out by its own address
    GMLAKE_LENT, // part of a view that was handed out
} gmlake_state_t;

// A primitive block: whole granules of one segment.
typedef struct gmlake_block {
    ordered_node_t node;  // while free: (stream, size, address)
    ordered_node_t where; // by address
    struct gmlake_block *prev, *next;
    uint64_t addr, size_bytes, requested_bytes;
    void *stream;
    gmlake_state_t state;
} gmlake_block_t;

// A stitched block: addresses of its own over granules that belong to several primitive blocks.
struct gmlake_view {
    ordered_node_t node; // while it can be handed out: (stream, size, address)
    berm_list_t idle;    // while not live: oldest release first
    uint64_t addr, size_bytes, requested_bytes;
    void *stream;
    gmlake_granule_t **granules; // NULL: the memory behind it went
    size_t granule_count;
    size_t live_count; // granules in use by its present owner, from the first; 0: not live
    size_t busy_count; // granules in use by anybody
    bool is_broken;    // some granule went: it is destroyed when it is freed
};

typedef struct gmlake_space {
    uint64_t granule_bytes, limit_bytes;
    berm_cu_mem_prop_t prop;
    ordered_set_t segments, blocks, free, views; // views: those that can be handed out
    berm_list_t idle_views;
    uint64_t reserved_bytes, view_bytes, moved_bytes, host_waits;
    gmlake_block_t *spares; // linked by next
    size_t spare_count;
    bool is_driver_failing; // the last refusal was another error than out of memory
} gmlake_space_t;

static inline ordered_key_t gmlake_key(const void *stream, uint64_t size_bytes, uint64_t addr) {
    return (ordered_key_t){(uint64_t)(uintptr_t)stream, size_bytes, addr};
}

// --- segments and blocks (gmlake_space.c) ---

void gmlake_space_init(gmlake_space_t *space);
void gmlake_space_destroy(gmlake_space_t *space);              // views first
bool gmlake_space_secure(gmlake_space_t *space, size_t count); // block nodes

// A new segment as one free block, or NULL where limit, device or host refuse.
gmlake_block_t *gmlake_segment_create(gmlake_space_t *space, uint64_t size_bytes, void *stream);
// Gives every unsplit free segment back, and the views over it.
void gmlake_segments_release(gmlake_space_t *space);
uint64_t gmlake_segments_releasable(const gmlake_space_t *space);

gmlake_block_t *gmlake_block_at(const gmlake_space_t *space, uint64_t addr); // that holds it
gmlake_granule_t *gmlake_granule_at(const gmlake_space_t *space, uint64_t addr);
// Takes [addr, addr + size) out of the free block around it; two nodes must be secured.
gmlake_block_t *gmlake_block_carve(gmlake_space_t *space, uint64_t addr, uint64_t size_bytes,
                                   gmlake_state_t state);
void gmlake_block_release(gmlake_space_t *space, gmlake_block_t *block); // joins, frees
// Counts in the views that map the granule.
void gmlake_granule_set_used(gmlake_space_t *space, gmlake_granule_t *granule, bool is_used);
bool gmlake_wait(gmlake_space_t *space, void *stream);

// --- views (gmlake_views.c) ---

// Stitches free granules; nothing of them is taken yet. NULL where the driver or the host refuse.
gmlake_view_t *gmlake_view_create(gmlake_space_t *space, gmlake_granule_t **granules, size_t count,
                                  void *stream);
void gmlake_view_destroy(gmlake_space_t *space, gmlake_view_t *view); // not live
// Hands out the first `count` granules; false without host memory.
bool gmlake_view_take(gmlake_space_t *space, gmlake_view_t *view, size_t count);
void gmlake_view_give(gmlake_space_t *space, gmlake_view_t *view);
// The granule's memory is about to go.
void gmlake_views_forget(gmlake_space_t *space, gmlake_granule_t *granule);
// Destroys idle views, oldest first, until `size_bytes` of addresses are free. False if none was.
bool gmlake_views_drop(gmlake_space_t *space, uint64_t size_bytes);
void gmlake_view_file(gmlake_space_t *space, gmlake_view_t *view); // into or out of `views`

// 0, or the number of the invariant that does not hold (gmlake.c).
int gmlake_space_audit(const gmlake_space_t *space, stress_figures_t *sums);
int gmlake_views_audit(const gmlake_space_t *space);

#endif
